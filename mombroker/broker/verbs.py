"""What an operator may ask of destinations. Long lists come in pages: an answer says where the next one begins.

A request is a reaction of its server like any other: what it changes is durable before it is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from mombroker.broker import destinations, selectors
from mombroker.broker.message import ClientMessage
from mombroker.broker.names import MAX_NAME, TEMPORARY, name_of, spoken, subscription_name
from mombroker.broker.protocol import Publish, Spec
from mombroker.broker.queue.item import QueuedMessage
from mombroker.broker.queue.messages import LOOK, MOVE, WORK_BYTES
from mombroker.broker.queue.queue import Queue
from mombroker.broker.session.service import Sessions
from mombroker.broker.topic.patterns import segments_of
from mombroker.broker.topic.subscription import Subscription
from mombroker.broker.topic.topic import Topic
from mombroker.broker.wire import note_of
from mombroker.core import admin
from mombroker.core.errors import MomError
from mombroker.core.ids import home_of
from mombroker.core.message import BOUNCE, Message, decode
from mombroker.core.reaction import DELETE

if TYPE_CHECKING:
    from mombroker.core.server import AgentServer

T = TypeVar("T", str, list[int])
Args = dict[str, Any]
Reply = dict[str, Any]
Verb = Callable[["AgentServer", int, Args], "Reply | None"]

MAX_PAGE = 1_000  # entries, or messages moved at once
LOOKS = 1_000  # of work for one request: LOOKS / LOOK messages are looked at, or LOOKS / MOVE moved
PAGE_BYTES = 4 << 20  # of messages in one answer, or moved at once
DEAD = ("dead-letter-", "original-")  # how the properties begin that a dead letter has got as such
KINDS = {"queue": "queue:", "temp-queue": TEMPORARY, "sub": "sub:", "share": "share:"}


class Operations:
    """The verbs, by the names that the admin port knows them by."""

    def __init__(self, service: Sessions):
        self.service, self.server = service, service.server
        for verb in (
            self.queues, self.subscriptions, self.topics, self.destination, self.create_queue,
            self.create_subscription, self.create_topic, self.topic, self.delete_topic, self.delete_destination,
            self.purge, self.browse, self.move, self.release, self.policies, self.set_policy, self.retry,
        ):  # fmt: skip
            service.server.verbs[verb.__name__] = _plain(verb)

    # -- lists ---------------------------------------------------------------------------------------------------

    def _here(self, *kinds: str, after: str, limit: int) -> tuple[list[Queue], str]:
        """Of these kinds, in order of their agents' ids, and where the next page begins; empty if there is none."""
        prefixes = tuple(f"{self.server.name}/{KINDS[kind]}" for kind in kinds)
        agents = self.server.natives.agents
        ids = sorted(id for id in agents if id.startswith(prefixes) and id > after)
        page = ids[: min(limit, MAX_PAGE)]
        found = [native for id in page if isinstance(native := agents[id], Queue)]
        return found, page[-1] if len(page) < len(ids) else ""

    def queues(self, ticket: int, args: Args) -> Reply:
        found, after = self._here("queue", "temp-queue", after=_after(args, ""), limit=args.get("limit", MAX_PAGE))
        return {"queues": [queue.describe() for queue in found], "after": after}

    def subscriptions(self, ticket: int, args: Args) -> Reply:
        found, after = self._here("sub", "share", after=_after(args, ""), limit=args.get("limit", MAX_PAGE))
        rows = [_subscription(each) for each in found if isinstance(each, Subscription)]
        return {"subscriptions": rows, "after": after}

    def topics(self, ticket: int, args: Args) -> Reply:
        """The patterns that somebody listens to, as this server knows them."""
        topics = self.service.topics
        servers: dict[str, list[str]] = {}
        for home, entries in topics.table.items():
            for pattern in entries.values():
                servers.setdefault(pattern, []).append(home)
        after, limit = _after(args, ""), min(args.get("limit", MAX_PAGE), MAX_PAGE)
        created = {unquote(name): id for name, id in self.server.names.known.items() if name.startswith("topic:")}
        names = sorted(name for name in {*servers, *created} if name > after)
        rows = []
        for name in names[:limit]:
            entry = topics.own.get(name)
            rows.append({
                "topic": name, "servers": sorted(servers.get(name, ())), "created": name in created,
                "takers_here": len(entry.takers) if entry else 0,
                "unknown_to": sorted(entry.unknown) if entry else [],
                "dropped_here": sum(taker.dropped for taker in entry.takers) if entry else 0,
            })  # fmt: skip
        more = names[limit - 1] if len(names) > limit else ""
        counts = {
            "published": topics.published, "copies": topics.copies, "unheard": topics.unheard,
            "dropped": topics.dropped,
        }  # fmt: skip
        return {"topics": rows, "after": more, **counts}

    # -- one -----------------------------------------------------------------------------------------------------

    def _find(self, args: Args, key: str = "destination") -> Queue:
        """The queue or subscription of this name, which lives here."""
        shown = _text(args, key)
        if shown.startswith("temp-queue:"):
            id = f"{self.server.name}/{TEMPORARY}{name_of(shown.partition(':')[2])}"
        else:
            name = shown if shown in self.server.names.known else name_of(shown)
            id = self.server.names.known.get(name) or f"{self.server.name}/{name}"
        found = self.server.natives.agents.get(id)
        if isinstance(found, Queue):
            return found
        self.server.names.present(id, shown)
        home = id[: id.index("/")]
        if home != self.server.name:
            raise MomError(f"{spoken(shown)} does not live on {self.server.name}; ask its home server {home}")
        if shown.startswith(("sub:", "share:")):
            _, client, name = shown.split(":", 2) if shown.count(":") > 1 else ("", "", "")
            client, colon, name = ("", "", "") if client else unquote(name).partition(":")
            meant = f"did you mean {name} --client-id {client}? " if colon else ""
            raise MomError(f"there is no {spoken(shown)}: {meant}see `mom subscription list`")
        raise MomError(f"there is no {shown}; see `mom queue list`")

    def destination(self, ticket: int, args: Args) -> Reply:
        queue = self._find(args)
        about = _subscription(queue) if isinstance(queue, Subscription) else queue.describe()
        consumers = [
            {
                "proxy": each.key[0], "credit": each.credit, "selector": each.note.selector,
                "priority": each.note.priority, "exclusive": each.note.exclusive,
                "holds": len(queue.out.get(each.key[0], ())),
            }
            for each in queue.takers
        ]  # fmt: skip
        return {**about, "consumers": consumers, "policy": queue.policy.as_dict()}

    def create_queue(self, ticket: int, args: Args) -> None:
        """A queue on this server; the reply follows the decision about its name."""
        shown = _text(args, "destination")
        self.server.names.ask_for(ticket, name_of(shown), Queue.path, b"", self.server.name)

    def create_subscription(self, ticket: int, args: Args) -> None:
        """A durable subscription on this server; the reply follows the decision about its name."""
        client_id, topics = args.get("client_id") or "", [f"topic:{topic}" for topic in args["topics"]]
        selector, shared = args.get("selector") or "", bool(args.get("shared"))
        if not topics:
            raise MomError("a subscription needs a topic: name one or several")
        if not shared and not client_id:
            raise MomError("a durable subscription needs the client id of its consumer, or has to be shared")
        selectors.compile(selector)
        if max(len(client_id), len(_text(args, "name"))) > MAX_NAME:
            raise MomError(f"the name of a client or subscription has at most {MAX_NAME} characters")
        name = subscription_name(client_id, _text(args, "name"))
        state = Subscription.new(Spec(topics, selector, "", shared))
        self.server.names.ask_for(ticket, name, Subscription.path, state, self.server.name)

    def create_topic(self, ticket: int, args: Args) -> None:
        """A topic that is there though nobody uses it; the reply follows the decision about its name."""
        self.server.names.ask_for(ticket, name_of(_topic(args)), Topic.path, b"", self.server.name)

    def topic(self, ticket: int, args: Args) -> Reply:
        """Who listens to a topic, as this server knows them."""
        name, topics = _topic(args), self.service.topics
        found = sorted(topics.patterns.fit(name))
        takers = {taker for _, epoch in found if (entry := topics.entries.get(epoch)) for taker in entry.takers}
        kept = sorted(self.service.shown(taker.name) for taker in takers if isinstance(taker, Subscription))
        return {
            "topic": name, "created": self.server.names.known.get(name_of(name), "").partition("/")[0],
            "patterns": sorted({topics.table[home][epoch] for home, epoch in found}),
            "servers": sorted({home for home, _ in found}), "takers_here": len(takers), "subscriptions_here": kept,
            "policy": self.service.policies.of(name).as_dict(),
        }  # fmt: skip

    def delete_topic(self, ticket: int, args: Args) -> Reply:
        """One that was created; who listens goes on, unless its policy has create = false."""
        name = _topic(args)
        id = self.server.names.known.get(name_of(name))
        if id is None:
            raise MomError(f"nobody has created {name}: it is there as long as somebody listens")
        self.server.names.present(id, name)
        self.server.send(self.server.message(f"{self.server.name}/_admin", (id,), DELETE, b"", flags=BOUNCE))
        return {"deleted": name}

    def delete_destination(self, ticket: int, args: Args) -> Reply:
        queue = self._find(args)
        self.server.send(self.server.message(f"{self.server.name}/_admin", (queue.id,), DELETE, b"", flags=BOUNCE))
        return {"deleted": self.service.shown(queue.name), "messages": queue.count}

    def purge(self, ticket: int, args: Args) -> Reply:
        queue = self._find(args)
        return {"destination": self.service.shown(queue.name), "purged": queue.purge()}

    def release(self, ticket: int, args: Args) -> Reply:
        """Take back what the clients of another server hold, which does not come back itself."""
        queue, holder = self._find(args), _text(args, "holder")
        self.server.distance(holder)  # raises for one that is not on this bus
        if holder == self.server.name:
            raise MomError(f"{holder} runs: what its clients hold comes back when their connections end")
        returned = queue.release(lambda proxy: proxy.startswith(f"{holder}/"))
        return {"destination": self.service.shown(queue.name), "released": returned}

    # -- messages ------------------------------------------------------------------------------------------------

    def _waiting(self, queue: Queue, args: Args) -> Iterator[tuple[int, QueuedMessage]]:
        """What waits, in order, with its lane, behind the place `after`; for as long as nothing is taken."""
        lane_after, id_after = _after(args, [-1, 0])
        for number, lane in list(queue.lanes.items()):
            if number < lane_after:
                continue
            behind = max(id_after if number == lane_after else 0, queue.purged)
            if args.get("ids"):
                named = (lane.get(id) for id in sorted(set(args["ids"])) if id > behind)
                yield from ((number, item) for item in named if item is not None)
            else:
                yield from ((number, item) for item in lane.after(behind, LOOKS // LOOK))

    def _wanted(self, queue: Queue, args: Args, cost: int = LOOK) -> tuple[list[QueuedMessage], list[int]]:
        """A page of the messages that wait, are wanted, and were there at first; and where the next page begins. `cost`
        of what is done to one of them."""
        test = selectors.compile(args["where"]) if args.get("where") else None
        upto, looks = args.get("upto") or self.server.next_id, LOOKS
        limit, size, origin = min(args.get("limit", MAX_PAGE), MAX_PAGE), 0, args.get("from")
        found: list[QueuedMessage] = []
        for number, item in self._waiting(queue, args):
            put = queue.loaded(item)
            looks -= LOOK + item.size // WORK_BYTES
            fits = test is None or test(selectors.lookup(put, item.count + 1, item.message))
            fits = fits and (not origin or put.properties.get("dead-letter-from") == origin)
            if fits and item.id <= upto:
                found.append(item)
                size += item.size
                looks -= cost
            if looks <= 0 or len(found) >= limit or size >= PAGE_BYTES:
                return found, [number, item.id]
        return found, []

    def browse(self, ticket: int, args: Args) -> Reply:
        """Ready messages, or with `unacked` those that consumers have or that back off, as they are; none is taken."""
        queue, most = self._find(args), int(args.get("bytes", 1_000))
        if not args.get("unacked"):
            items, after = self._wanted(queue, args)
            return {"messages": [_row(queue, item, "ready", most) for item in items], "after": after}
        last = _after(args, [0, 0])[1]
        states = {"unacked": [item for held in queue.out.values() for item in held.values()], "backing off": []}
        states["backing off"] = list(queue.later.values())
        limit = min(args.get("limit", 100), MAX_PAGE, LOOKS // MOVE)
        both = ((item.id, state, item) for state, some in states.items() for item in some if item.id > last)
        page = nsmallest(limit + 1, both)
        more, page = len(page) > limit, page[:limit]
        rows = []
        for _, state, item in page:
            kept, put = item.put, queue.loaded(item)
            rows.append(_row(queue, item, state, most))
            if kept is None and put is not None:
                item.put = None  # only the row has it, as before
        return {"messages": rows, "after": [0, page[-1][0]] if more else []}

    def move(self, ticket: int, args: Args) -> Reply:
        """Move messages that wait to another queue, or dead letters back to where they came from; some at a time."""
        queue, back = self._find(args), bool(args.get("back"))
        target = "" if back else _text(args, "target")
        if not back and name_of(target) == queue.name:
            raise MomError(f"{target} is where these messages are")
        upto = args.get("upto") or self.server.next_id
        items, after = self._wanted(queue, {**args, "upto": upto}, MOVE)
        moved = 0
        for item in items:
            where = target or queue.loaded(item).properties.get("dead-letter-from", "")
            if where:
                self._move(queue, item, where)
                moved += 1
        if moved:
            queue.change()
        return {"moved": moved, "left": len(items) - moved, "after": after, "upto": upto}

    def _move(self, queue: Queue, item: QueuedMessage, where: str) -> None:
        put = queue.loaded(item).copy()
        put.destination = where
        put.due = put.counter = 0
        put.producer = put.message = ""
        put.properties = {name: value for name, value in put.properties.items() if not name.startswith(DEAD)}
        id = self._home(where)
        queue.withdraw(item)
        self._put(put, id, queue.id)

    def _home(self, where: str) -> str:
        """The agent of a queue or subscription; empty for a queue that is still to be made."""
        known = self.server.names.known
        id = known.get(name_of(where), "")
        if not id and not where.startswith("queue:"):  # a client id is written in other escapes than a name
            id = next((known[name] for name in known if self.service.shown(name) == where), "")
        if not id and not where.startswith("queue:"):
            raise MomError(
                f"{where} is gone: send what was for it to a queue, by `mom queue move`, or by "
                "`mom agent deadletters retry --to`"
            )
        if id:
            self.server.names.present(id, where)
        return id

    def _put(self, put: ClientMessage, id: str, source: str) -> None:
        if id:
            self.server.send(self.server.note_to(source, (id,), put, 0, BOUNCE))
        else:  # it is made
            self.service.send_to_queue(put, source)

    # -- dead letters of agents ----------------------------------------------------------------------------------

    def retry(self, ticket: int, args: Args) -> Reply:
        """Send a dead letter anew, as a new message that comes late by nature: to whoever has the name by now that the
        agent had which failed, or to another queue or agent."""
        server, row = self.server, admin.one_letter(self.server, args)
        letter, message, to = admin.letter_of(row), decode(row.body), str(args.get("target", ""))
        agents = (letter["agent"],) if letter["agent"] else message.dests
        number = server.next_id + 1  # of what is sent
        if message.type in (ClientMessage.wire, Publish.wire):
            where = self._again(message, agents, to)
        else:
            where = [admin.known(server, to)] if to else [self._successor(agent) for agent in agents]
            server.send(server.message(message.source, tuple(where), message.type, message.payload))
        admin.remove_letter(server, row)
        return {"message": f"{server.name}#{number}", "to": where}

    def _again(self, message: Message, agents: tuple[str, ...], to: str) -> list[str]:
        """A client's message, to a queue or a topic."""
        note = note_of(message)
        put = note.put if message.type == Publish.wire else note
        put.expires = put.due = 0
        if to:
            put.destination, put.producer = to if to.startswith("queue:") else destinations.one(to), ""
            if not put.destination.startswith("queue:"):
                raise MomError(f"{to} is no queue: write NAME or /queue/NAME")
        if to or message.type == ClientMessage.wire:
            self._put(put, self._home(put.destination), message.source)
            return [put.destination]
        homes = [agent for agent in agents if home_of(agent) in self.server.topology.servers]
        self.server.send(self.server.note_to(message.source, tuple(homes), Publish(put, None), 0, BOUNCE))
        return homes

    def _successor(self, agent: str) -> str:
        """Whoever has the name now that an agent had; itself if it had none."""
        home, _, name = agent.partition("/")
        if "/" in name or name.startswith("_"):
            self.server.distance(home)  # raises for a server that has left the bus
            return agent
        id = self.server.names.known.get(name)
        if id is None and home == self.server.name and self.server.written_agent(agent) is not None:
            return agent
        if id is None:
            raise MomError(f"no agent is named {name} on this bus any more: deploy it, or name another by --to")
        self.server.names.present(id, name)
        return id

    # -- policies ------------------------------------------------------------------------------------------------

    def policies(self, ticket: int, args: Args) -> Reply:
        policies = self.service.policies
        rows = [{"from": "mom policy set", **each.as_dict()} for each in policies.set.values()]
        return {"policies": rows + [{"from": "topology file", **each.as_dict()} for each in policies.declared]}

    def set_policy(self, ticket: int, args: Args) -> None:
        """Or delete it, without `values`. The reply comes when this server has the decision."""
        self.service.policies.change(_text(args, "match"), args.get("values"), ticket)


def _plain(verb: Callable[[int, Args], Reply | None]) -> Verb:
    return lambda server, ticket, args: verb(ticket, args)


def _after(args: Args, start: T) -> T:
    """The place behind which a page begins: of the kind that `start` is."""
    place = args.get("after") or start
    if type(place) is not type(start) or (start and len(place) != len(start)):
        raise MomError(f"a page of this begins behind {'a name' if start == '' else '[place, id]'}, not {place!r:.64}")
    return place


def _text(args: Args, key: str) -> str:
    if not isinstance(args[key], str) or not args[key]:
        raise MomError(f"{key} must be a text, not {args[key]!r}")
    return str(args[key])


def _topic(args: Args) -> str:
    name = _text(args, "destination")
    if not name.startswith("topic:") or segments_of(name):
        raise MomError(f"{name} is no topic: a topic has no wildcards")
    return name


def _subscription(each: Subscription) -> Reply:
    spec, kind = each.spec, each.name.partition(":")
    client, _, name = kind[2].partition(":")
    return {
        **each.describe(), "name": unquote(name), "client_id": unquote(client), "topics": spec.topics,
        "selector": spec.selector, "shared": spec.shared, "durable": spec.durable, "oldest": _oldest(each),
        "last_seen": each.seen - each.server.ahead if each.seen else each.server.now - each.server.ahead,
    }  # fmt: skip


def _oldest(queue: Queue) -> int:
    """When the message was sent that waits for longest, in ns; 0 if none waits."""
    firsts = [item for lane in queue.lanes.values() for item in lane.after(queue.purged, 1)]
    return queue.loaded(min(firsts, key=lambda item: item.id)).timestamp if firsts else 0


def _row(queue: Queue, item: QueuedMessage, state: str, most: int) -> Reply:
    put = queue.loaded(item)
    return {
        "id": item.id, "message": item.message, "state": state, "holder": item.holder, "deliveries": item.count,
        "priority": put.priority, "timestamp": put.timestamp, "expires": put.expires, "due": item.due,
        "destination": put.shown, "kind": put.kind, "bytes": len(put.body), "headers": put.headers,
        "properties": put.properties, "body": put.body[:most],
    }  # fmt: skip
