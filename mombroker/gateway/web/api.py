"""`/api`: what `mom` asks a server, as JSON. `/api` lists the verbs, `/api/VERB?ARGUMENT=VALUE` asks one that reads;
one that changes something is sent its arguments by POST, as a table of JSON."""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from mombroker.broker.access.guard import denied
from mombroker.broker.access.permission import BROWSE, BUS, MANAGE, check_destination
from mombroker.core.errors import MomError
from mombroker.core.requests import Argument, Verb
from mombroker.core.topology import suggestion
from mombroker.gateway.web.http import Answer, Request, as_json

PREFIX = "/api/"
# Each of these reads, tells no secret, and takes no longer than its page. What else is asked needs the token.
VERBS = (
    "agent", "agents", "browse", "connections", "deadletter", "deadletters", "destination", "group", "group_states",
    "groups", "home", "losses", "may", "permissions", "policies", "queues", "status", "subscriptions", "topic",
    "topics", "topology", "topology_history", "topology_status", "users", "why",
)  # fmt: skip
# Each of these changes something, for who may manage what stands here: the destination or the agent that is its
# argument of this name, the agent whose dead letter has this id, or the bus. What else is changed needs the token.
CHANGES = {
    "create_queue": "destination", "create_topic": "destination", "delete_destination": "destination",
    "delete_topic": "destination", "move": "destination", "move_destination": "destination",
    "move_topic": "destination", "purge": "destination",
    "release": "destination", "drop": "id", "retry": "id", "move_agent": "agent", "close_connections": BUS,
    "delete_permission": BUS, "delete_user": BUS, "limit_user": BUS, "reload": BUS, "set_permission": BUS,
    "set_policy": BUS, "set_roles": BUS,
}  # fmt: skip
PLAN = "plan"  # what `mom topology plan` says of the text of a topology file; by POST
WAYS = "ways"  # of one message, by the logs on this machine
OF_AGENTS = ("agent", "deadletter")  # these tell what is in messages
MOST = {"limit": 1_000, "bytes": 1 << 16}  # of an argument, whatever a verb takes
LEAST_ASKED = {"limit": 100, "bytes": 1 << 10}  # where nothing is asked for

Result = dict[str, Any]
Steps = Generator[tuple[str, Result], Result, Answer]
Asking = Generator[tuple[str, Result], Result, Result]
May = Callable[[str, str, str], bool]  # a user, an action, a destination


class Refusal(MomError):
    """With the status of its answer."""

    def __init__(self, status: int, sentence: str):
        self.status = status
        super().__init__(sentence)


class Api:
    """verbs  all that a server knows
    may     who may do what (broker/access)
    aside   what the process can be asked beside them
    """

    def __init__(self, verbs: Mapping[str, Verb], may: May, aside: Container[str] = ()):
        self.verbs, self.may, self.aside = verbs, may, aside

    def all(self, request: Request, user: str) -> Steps:
        yield from ()
        return as_json({"user": user, "verbs": [_described(self.verbs[name]) for name in (*VERBS, *CHANGES)]})

    def ask(self, request: Request, user: str) -> Steps:
        return (yield from _told(self._ask(request, user)))

    def change(self, request: Request, user: str) -> Steps:
        return (yield from _told(self._change(request, user)))

    def _ask(self, request: Request, user: str) -> Asking:
        name = request.path.removeprefix(PREFIX)
        if name in CHANGES:
            raise Refusal(405, f"{name} changes something: send it by POST")
        if name == WAYS:
            return (yield from self._ways(request.query))
        if name not in VERBS:
            raise _unknown(name, VERBS)
        args = arguments(self.verbs[name], request.query)
        if name == "browse" and not self._may(user, BROWSE, args.get("destination", "")):
            raise Refusal(403, "access refused: bodies need the right to browse their queue")
        reply = yield name, args
        agent = str(reply.get("agent", "")) if name in OF_AGENTS else ""
        if agent and not self._may(user, BROWSE, _of_agent(agent)):
            why = "what an agent has, and what was sent to it, need the right to browse it, as agent:NAME"
            raise Refusal(403, f"access refused: {why}")
        return reply

    def _ways(self, query: Mapping[str, str]) -> Asking:
        if set(query) != {"message"}:
            raise MomError("the ways are those of one message: ask /api/ways?message=SERVER%23NUMBER")
        if WAYS not in self.aside:
            raise Refusal(404, "this server was not started by a topology file: ask `mom log diagram`")
        return (yield WAYS, dict(query))

    def _change(self, request: Request, user: str) -> Asking:
        name = request.path.removeprefix(PREFIX)
        if name == PLAN:
            return (yield from self._plan(request, user))
        if name not in CHANGES:
            raise _unknown(name, CHANGES)
        args = request.arguments
        self.verbs[name].check(args)
        for each in (yield from self._touched(name, args)):
            if not self._may(user, MANAGE, each):
                raise Refusal(403, denied(user, MANAGE, each))
        return (yield name, args)

    def _plan(self, request: Request, user: str) -> Asking:
        """It changes nothing, but tells what lives on servers, and asks all of them."""
        args = {"drop": False, **request.arguments}
        if set(args) != {"text", "drop"} or type(args["text"]) is not str or type(args["drop"]) is not bool:
            raise MomError('a plan is made of {"text": "a topology file"}, and "drop": true if servers leave with all')
        if not self._may(user, MANAGE, BUS):
            raise Refusal(403, denied(user, MANAGE, BUS))
        if PLAN not in self.aside:
            raise Refusal(404, "this server was not started by a topology file: ask `mom topology plan`")
        return (yield PLAN, args)

    def _touched(self, name: str, args: Result) -> Generator[tuple[str, Result], Result, list[str]]:
        """What must be managed for a change."""
        what = CHANGES[name]
        if what == BUS or (name == "retry" and args.get("target")):
            return [BUS]
        if what == "destination":
            touched = [args[what], *([args["target"]] if args.get("target") else [])]
            for each in touched:
                check_destination(each)
            return touched
        about = yield ("agent" if what == "agent" else "deadletter"), {what: args[what]}
        return [_of_agent(about["agent"]) if about["agent"] else BUS]

    def _may(self, user: str, action: str, destination: str) -> bool:
        """By its name and as it is known on the bus, which is that name percent-encoded: a verb takes either."""
        return self.may(user, action, destination) and self.may(user, action, unquote(destination))


def _told(asking: Asking) -> Steps:
    try:
        return as_json((yield from asking))
    except MomError as error:
        return as_json({"error": str(error)}, error.status if isinstance(error, Refusal) else 400)


def _unknown(name: str, known: Iterable[str]) -> Refusal:
    return Refusal(404, f"there is no {name[:64]!a} here: {suggestion(name, tuple(known)) or '/api lists all'}")


def _of_agent(id: str) -> str:
    return f"agent:{id.partition('/')[2]}"


def arguments(verb: Verb, query: Mapping[str, str]) -> dict[str, Any]:
    """Of their kinds. Raises MomError for one that cannot be; the verb itself judges the rest."""
    found = {
        name: _value(verb.arguments[name], text) if name in verb.arguments else text for name, text in query.items()
    }
    for name, most in MOST.items():
        if name in verb.arguments:
            value = found.get(name, LEAST_ASKED[name])
            found[name] = min(value, most) if isinstance(value, int) else value
    return found


def _value(argument: Argument, text: str) -> Any:
    kind = argument.kind
    try:
        if kind.type is list:
            return [int(each) if kind.inner is int else each for each in text.split(",")] if text else []
        if kind.type is bool:
            return {"true": True, "false": False}[text]
        return int(text) if kind.type is int else text
    except (ValueError, LookupError):
        raise MomError(f"{argument.name} cannot be {ascii(text)[:64]}: it is {kind.says}") from None


def _described(verb: Verb) -> dict[str, Any]:
    return {
        "verb": verb.name, "does": verb.does, "changes": verb.changes,
        "arguments": [
            {"name": each.name, "is": each.kind.says, "needed": each.needed, "default": each.default}
            for each in verb.arguments.values()
        ],
    }  # fmt: skip
