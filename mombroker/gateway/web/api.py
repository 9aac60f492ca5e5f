"""`/api`: what `mom` asks a server, as JSON. `/api` lists the verbs, `/api/VERB?ARGUMENT=VALUE` asks one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any
from urllib.parse import unquote

from mombroker.broker.access.permission import BROWSE
from mombroker.core.errors import MomError
from mombroker.core.requests import Argument, Verb
from mombroker.core.topology import suggestion
from mombroker.gateway.web.http import Answer, Request, as_json

PREFIX = "/api/"
# Each of these reads, tells no secret, and takes no longer than its page. What else is asked needs the token.
VERBS = (
    "agent", "agents", "browse", "connections", "deadletter", "deadletters", "destination", "home", "losses", "may",
    "permissions", "policies", "queues", "status", "subscriptions", "topic", "topics", "topology", "topology_history",
    "topology_status", "users", "why",
)  # fmt: skip
OF_AGENTS = ("agent", "deadletter")  # these tell what is in messages
MOST = {"limit": 1_000, "bytes": 1 << 16}  # of an argument, whatever a verb takes
LEAST_ASKED = {"limit": 100, "bytes": 1 << 10}  # where nothing is asked for

Steps = Generator[tuple[str, dict[str, Any]], dict[str, Any], Answer]
May = Callable[[str, str, str], bool]  # a user, an action, a destination


class Api:
    """verbs  all that a server knows
    may     who may do what (broker/access)
    """

    def __init__(self, verbs: Mapping[str, Verb], may: May):
        self.verbs, self.may = verbs, may

    def list(self, request: Request, user: str) -> Steps:
        yield from ()
        return as_json({"user": user, "verbs": [_described(self.verbs[name]) for name in VERBS]})

    def ask(self, request: Request, user: str) -> Steps:
        name = request.path.removeprefix(PREFIX)
        if name not in VERBS:
            near = suggestion(name, VERBS) or "/api lists all"
            return as_json({"error": f"there is no {name[:64]!a} here: {near}"}, 404)
        try:
            args = arguments(self.verbs[name], request.query)
            if name == "browse" and not self._may_see(user, args.get("destination", "")):
                return as_json({"error": "access refused: bodies need the right to browse their queue"}, 403)
            reply = yield name, args
            agent = str(reply.get("agent", "")) if name in OF_AGENTS else ""
            if agent and not self._may_see(user, f"agent:{agent.partition('/')[2]}"):
                why = "what an agent has, and what was sent to it, need the right to browse it, as agent:NAME"
                return as_json({"error": f"access refused: {why}"}, 403)
        except MomError as error:
            return as_json({"error": str(error)}, 400)
        return as_json(reply)

    def _may_see(self, user: str, destination: str) -> bool:
        """By its name and as it is known on the bus, which is that name percent-encoded: a verb takes either."""
        return self.may(user, BROWSE, destination) and self.may(user, BROWSE, unquote(destination))


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
        "verb": verb.name, "does": verb.does,
        "arguments": [
            {"name": each.name, "is": each.kind.says, "needed": each.needed, "default": each.default}
            for each in verb.arguments.values()
        ],
    }  # fmt: skip
