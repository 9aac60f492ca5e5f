"""What an operator may ask of a running server. Answers are plain dicts; refusals are one sentence (MomError)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mombroker.core import times
from mombroker.core.batch import ItemRow
from mombroker.core.errors import MomError, Overloaded
from mombroker.core.ids import check_address, is_id
from mombroker.core.message import decode
from mombroker.core.topology import listed

if TYPE_CHECKING:
    from mombroker.core.domain_channel import DomainChannel
    from mombroker.core.link import Link
    from mombroker.core.server import AgentServer

Args = dict[str, Any]
Reply = dict[str, Any]
Verb = Callable[["AgentServer", int, Args], "Reply | None"]
EXPORTED = "exported"  # meta key, once an export is registered: the last log record that it has taken
USER = "user:"  # before the name of a client's user, among the meta rows
MAX_USER = 100
LAST_INT = (1 << 63) - 1  # that a row can hold

# What the arguments of requests are; a list holds texts, but for ids, and the place behind which a page begins.
KINDS: dict[str, tuple[type, ...]] = {
    "agent": (str,), "to": (list,), "type": (str,), "fields": (dict,), "ttl_ns": (int,), "class": (str,),
    "name": (str,), "server": (str, type(None)), "id": (int,), "limit": (int,), "after": (str, list), "user": (str,),
    "hash": (str,), "was": (str,), "new": (bool,), "seq": (int,), "destination": (str,), "target": (str,),
    "holder": (str,), "client_id": (str, type(None)), "topics": (list,), "selector": (str, type(None)),
    "where": (str, type(None)), "from": (str, type(None)), "ids": (list, type(None)), "upto": (int, type(None)),
    "bytes": (int,), "values": (dict, type(None)), "match": (str,),
}  # fmt: skip
FIRST_ITEMS = 5  # of a collection that are shown with its agent
SAMPLE = 64  # packets whose size stands for that of all
AWAY_NS = 10_000_000_000  # a neighbour that was not seen for so long is no longer just starting again


def answer(server: AgentServer, ticket: int, verb: str, args: Args) -> Reply | None:
    """The reply, or None when it follows later under the same ticket."""
    verbs = VERBS | server.verbs
    if verb not in verbs:
        raise MomError(f"no such request: {verb}; known are {', '.join(sorted(verbs))}")
    for name, value in args.items():
        if not _fits(name, value):
            raise MomError(f"the request {verb} cannot have {ascii(value)[:64]} as its {name}")
    try:
        return verbs[verb](server, ticket, args)
    except KeyError as error:
        raise MomError(f"the request {verb} needs {error}") from None


def _fits(name: str, value: object) -> bool:
    """Whoever asks holds our token, but is another program, perhaps of another version."""
    kinds = KINDS.get(name)
    if kinds is None:
        return True
    if isinstance(value, list):
        inner = int if name in ("after", "ids") else str
        return list in kinds and all(type(each) is inner for each in value)
    return type(value) in kinds and not (isinstance(value, int) and not 0 <= value <= LAST_INT)


def status(server: AgentServer) -> Reply:
    engine, channel = server.engine, server.channel
    links = [_link(server, link) for consumer in server.consumers.values() for link in consumer.links.values()]
    return {
        "server": server.name,
        "incarnation": server.incarnation,
        "now": server.now,
        "ahead_ns": server.ahead,
        "domains": [_domain(server, consumer) for consumer in server.consumers.values()],
        "links": links,
        "agents_in_memory": len(engine.residents.loaded),
        "inbox_in_memory": engine.inboxes.in_memory,
        "sent": server.sent,
        "received": channel.received,
        "forwarded": channel.forwarded,
        "reactions": engine.reactions,
        "failures": engine.failures,
        "holds": channel.holds,
        "dead_letters": len(server.dead_letters.letters),
        "names": len(server.names.known),
        "store_bytes": server.alarms.bytes,
        "full": server.full(),
        "stuck": _stuck(server),
        "problems": _problems(server),
    }


def _domain(server: AgentServer, consumer: DomainChannel) -> Reply:
    links, core = consumer.links.values(), consumer.core
    came = [packet.note[0] or consumer.since for packet, _ in core.held()]
    return {
        "domain": consumer.name, "ordering": consumer.domain.backend, "members": list(consumer.members),
        "held": sum(link.held for link in links), "held_longest_ns": server.now - min(came) if came else 0,
        "parked": len(core.parked()), "relays": consumer.relays,
        "duplicates": core.duplicates + sum(link.duplicates for link in links),
        "waiting": sum(link.sent - link.acked for link in links),
    }  # fmt: skip


def _link(server: AgentServer, link: Link) -> Reply:
    return {
        "peer": link.peer, "domain": link.domain, "up": bool(link.conn), "sent": link.sent, "acked": link.acked,
        "received": link.received, "waiting": link.sent - link.acked, "held": link.held,
        "duplicates": link.duplicates, "last_seen": link.last_seen, "trouble": server.trouble.get(link.peer, ""),
    }  # fmt: skip


def _stuck(server: AgentServer) -> list[Reply]:
    """Agents that cannot be loaded."""
    inboxes = server.engine.inboxes
    return [
        {"agent": box.agent, "class": stuck.path, "reason": stuck.reason, "waiting": inboxes.count(box)}
        for box in inboxes.boxes.values() if (stuck := box.stuck)
    ]  # fmt: skip


def clock_trouble(server: AgentServer) -> str:
    """A sentence, if the server's time is far ahead of the machine's clock, or that is not believed yet."""
    if server.behind:
        return (
            f"the machine's clock is {times.shown(server.behind)} ahead of the time of {server.name}: for a minute "
            "nothing expires or falls due by it; if it is wrong, set it right before that, or stop the server"
        )
    if server.ahead <= times.FAR:
        return ""
    return (
        f"the time of {server.name} is {times.shown(server.ahead)} ahead of its machine's clock, which is wrong or was "
        "once: messages live and wait as long as they should, but the log tells that time; once the clock is right, "
        f"stop {server.name} and run `mom store clock`"
    )


def _problems(server: AgentServer) -> list[str]:
    """One sentence for each thing that an operator should act on."""
    out = [trouble] if (trouble := clock_trouble(server)) else []
    stuck: dict[str, list[Reply]] = {}
    for row in _stuck(server):
        stuck.setdefault(f"{row['class']} {row['reason']}", []).append(row)
    for what, rows in stuck.items():
        agents = listed(row["agent"] for row in rows)
        waiting = sum(row["waiting"] for row in rows)
        out.append(
            f"{what}: {waiting} messages wait for {agents}; bring the class back and start {server.name} again, or "
            f"delete what is not needed any more by `mom agent delete`"
        )
    if server.full():
        waiting = {link.peer: link.sent - link.acked for c in server.consumers.values() for link in c.links.values()}
        blame = max(waiting, key=lambda peer: waiting[peer], default="")
        backlog = f"; most of it waits for {blame} ({waiting[blame]} packets)" if blame and waiting[blame] else ""
        out.append(
            f"no work is taken from outside: {', '.join(server.alarms.why())}{backlog}; make room, bring the peer "
            "back, or change the limit"
        )
    if server.aside.kept:
        out.append(
            f"{len(server.aside.kept)} damaged rows were set aside: see to the disk; `mom store verify` looks "
            "for more, `mom store salvage` exports what can be read"
        )
    for consumer in server.consumers.values():
        if consumer.core.spreads:
            out += [_costs_disk(server, link) for link in consumer.links.values() if _away(server, consumer, link)]
        for link in consumer.links.values():
            if link.broken:
                out.append(f"nothing more is sent to {link.peer}: {link.broken}")
            reason = server.trouble.get(link.peer)
            if reason:
                waiting_for = sum(
                    any(origin == link.member for origin, _ in missing) for _, missing in consumer.core.held()
                )
                out.append(
                    f"{link.peer} is refused: {reason} ({link.sent - link.acked} packets wait for it here, "
                    f"{waiting_for} held messages in domain {consumer.name} wait for messages that only it had)"
                )
    return out


def _away(server: AgentServer, consumer: DomainChannel, link: Link) -> bool:
    seen = max(link.last_seen, consumer.since)
    return not link.conn and link.waiting() and server.now - seen > AWAY_NS


def _costs_disk(server: AgentServer, link: Link) -> str:
    packets = link.durable - link.acked
    sample = [len(data) for _, data in server.reader.queue_out(link.id, link.acked, link.durable, SAMPLE)]
    size = packets * sum(sample) // max(1, len(sample))  # reading all of a long queue would hold up the server
    return (
        f"{link.peer} is down, and what others tell each other in domain {link.domain} is kept for it, too, on every "
        f"member that sends to it: {packets} packets of about {size} bytes here; bring it back"
    )


def why(server: AgentServer) -> list[Reply]:
    """What waits here, and for what: held packets, failing agents, unknown names, links that are down."""
    out: list[Reply] = [{"kind": "full", "reason": reason} for reason in server.alarms.why()]
    for consumer in server.consumers.values():
        for packet, missing in consumer.core.held():
            message = packet.note[1] or decode(packet.body)
            causes = []
            for member, sequence in missing:
                peer = consumer.members[member]
                link = consumer.links.get(peer)
                seen = link.last_seen if link else 0
                causes.append({"server": peer, "sequence": sequence, "up": bool(link and link.conn), "last_seen": seen})
            out.append({
                "kind": "held", "message": f"{message.origin}#{message.number}", "domain": consumer.name,
                "from": consumer.members[packet.frm], "waits_for": causes,
            })  # fmt: skip
        for packet, lacking in consumer.core.parked():
            message = decode(packet.body)
            out.append({
                "kind": "parked", "message": f"{message.origin}#{message.number}", "domain": consumer.name,
                "waits_for": list(dict.fromkeys(consumer.members[member] for member, _ in lacking)),
            })  # fmt: skip
    for box in server.engine.inboxes.boxes.values():
        if box.blocked():
            first, stuck = box.queue[0], box.stuck
            out.append({
                "kind": "class" if stuck else "name" if box.name else "retry", "agent": box.agent, "name": box.name,
                "class": stuck.path if stuck else "", "reason": stuck.reason if stuck else "", "until": box.until,
                "message": f"{first.message.origin}#{first.message.number}", "attempts": first.attempts,
                "behind": server.engine.inboxes.count(box) - 1,
            })  # fmt: skip
    for consumer in server.consumers.values():
        for link in consumer.links.values():
            if link.waiting() and (not link.conn or link.next > link.limit):
                out.append({
                    "kind": "link" if not link.conn else "credit", "peer": link.peer, "domain": consumer.name,
                    "packets": link.sent - link.acked, "last_seen": link.last_seen,
                    "trouble": server.trouble.get(link.peer, ""),
                })  # fmt: skip
    return out


def _why(server: AgentServer, ticket: int, args: Args) -> Reply:
    return {"now": server.now, "waits": why(server)}


def _agents(server: AgentServer, ticket: int, args: Args) -> Reply:
    limit = min(int(args.get("limit", 1000)), 10_000)
    rows = server.reader.agents(str(args.get("after", "")), limit)
    names = {id: name for name, id in server.names.known.items()}
    return {"agents": [{"agent": id, "class": path, "name": names.get(id, "")} for id, path in rows]}


def known(server: AgentServer, agent: str) -> str:
    check_address(agent)
    if is_id(agent):
        server.distance(agent.partition("/")[0])  # raises for a server that is not on this bus
        return agent
    id = server.names.resolve(agent)
    server.names.present(id, agent)
    return id


def _home(server: AgentServer, ticket: int, args: Args) -> Reply:
    """Where the agent of a name lives, as far as this server knows."""
    return {"home": known(server, args["agent"]).partition("/")[0]}


def _agent(server: AgentServer, ticket: int, args: Args) -> Reply:
    id = known(server, args["agent"])
    row = server.written_agent(id)
    if row is None:
        home = id.partition("/")[0]
        if home == server.name:
            raise MomError(f"there is no agent {id}; see `mom agent list`")
        raise MomError(f"{id} does not live on {server.name}; ask its home server {home}")
    box = server.engine.inboxes.boxes.get(id)
    name = id.partition("/")[2]
    native = server.clients.owns(row[0])
    return {
        "agent": id, "name": name if server.names.known.get(name) == id else "", "class": row[0],
        "waiting": server.engine.inboxes.count(box) if box else 0, "blocked": bool(box and box.blocked()),
        "fields": {} if native else server.program.describe(row[0], row[1]),
        "items": {} if native else _items(server, id, row[0]),
    }  # fmt: skip


def _items(server: AgentServer, agent: str, path: str) -> dict[str, Reply]:
    """How many rows each collection of an agent has, and the first of them, as they are on disk."""
    found = {}
    for name in server.program.collections(path):
        rows = server.reader.items(agent, name, None, FIRST_ITEMS)
        first = [{"id": row.id, "key": row.key, "value": server.program.value(row.body)} for row in rows]
        found[name] = {"rows": server.reader.item_count(agent, name), "first": first}
    return found


def _open(server: AgentServer) -> None:
    if server.full():
        raise Overloaded(
            f"{server.name} takes no work from outside: {', '.join(server.alarms.why())}; see `mom status`"
        )
    if server.stopping:
        raise Overloaded(f"{server.name} is stopping")


def _send(server: AgentServer, ticket: int, args: Args) -> Reply:
    _open(server)
    dests = tuple(dict.fromkeys(known(server, agent) for agent in args["to"]))
    if not dests:
        raise MomError("a message needs a receiver: name an agent")
    payload = server.program.compose(args["type"], args.get("fields", {}))
    size = len(payload) + sum(map(len, dests[1:]))
    if size > server.limits.max_message:
        raise MomError(f"{size} bytes are over max_message = {server.limits.max_message}")
    ttl = int(args.get("ttl_ns", 0))
    expires = times.after(server.now, ttl) if ttl else 0
    message = server.message(f"{server.name}/_admin", dests, args["type"], payload, expires)
    server.send(message)
    return {"message": f"{message.origin}#{message.number}", "to": list(dests)}


def _deploy(server: AgentServer, ticket: int, args: Args) -> None:
    _open(server)
    path = args["class"]
    server.program.allowed(path, remote=True)
    state = server.program.initial(path, args.get("fields", {}))
    if len(state) > server.limits.max_message:
        raise MomError(f"{len(state)} bytes of fields are over max_message = {server.limits.max_message}")
    server.names.ask(ticket, args["name"], path, state, args.get("server") or server.name)


def _delete(server: AgentServer, ticket: int, args: Args) -> Reply:
    id = known(server, args["agent"])
    server.send(server.message(f"{server.name}/_admin", (id,), "_delete", b""))
    server.engine.give_up(id)
    return {"agent": id}


def letter_of(row: ItemRow) -> Reply:
    try:
        return {"id": row.id, **json.loads(row.head)}
    except (TypeError, ValueError):
        raise MomError(f"dead letter {row.id} is damaged: `mom agent deadletters drop {row.id}`") from None


def _deadletters(server: AgentServer, ticket: int, args: Args) -> Reply:
    limit = min(int(args.get("limit", 100)), 10_000)
    after = args.get("after")
    if after and not (isinstance(after, list) and len(after) == 2):
        raise MomError("dead letters are listed after [time, id]")
    rows = server.dead_letters.letters.scan((after[0], after[1]) if after else None, limit)
    letters = [{k: v for k, v in letter_of(row).items() if k != "traceback"} for row in rows]
    return {"count": len(server.dead_letters.letters), "letters": letters}


def one_letter(server: AgentServer, args: Args) -> ItemRow:
    row = server.dead_letters.letters.get(int(args["id"]))
    if row is None:
        raise MomError(f"no dead letter {args['id']} here; see `mom agent deadletters list`")
    return row


def _deadletter(server: AgentServer, ticket: int, args: Args) -> Reply:
    row = one_letter(server, args)
    try:
        message = decode(row.body)
    except MomError:
        return {**letter_of(row), "payload": {"packed": row.body}}
    return {**letter_of(row), "payload": server.program.read(message.type, message.payload)}


def _drop(server: AgentServer, ticket: int, args: Args) -> Reply:
    row = one_letter(server, args)
    remove_letter(server, row)
    return {"dropped": row.id}


def remove_letter(server: AgentServer, row: ItemRow) -> None:
    server.dead_letters.letters.remove(row.id)
    server.dead_letters.letters.accept()


def _users(server: AgentServer) -> dict[str, str]:
    """The hash of each user's passcode, as of the open batch."""
    rows: dict[str, str | int | None] = {**server.reader.meta()}
    for batch in (server.in_flight, server.batch):
        rows.update(batch.meta if batch else {})
    return {
        key.removeprefix(USER): str(rows[key])
        for key in sorted(rows) if key.startswith(USER) and rows[key] is not None
    }  # fmt: skip


def _set_user(server: AgentServer, ticket: int, args: Args) -> Reply:
    """Add a user of clients, with the hash of a passcode (gateway/users.py), or change the passcode."""
    user, hashed = str(args["user"]), str(args["hash"])
    if not user or len(user) > MAX_USER or not user.isprintable() or user != user.strip():
        raise MomError(f"a user's name has 1 to {MAX_USER} printable characters, and no spaces around them")
    there = user in _users(server)
    if args.get("new", False) and there:
        raise MomError(f"there is a user {user!r} on {server.name} already; `mom user passwd` changes the passcode")
    if not args.get("new", False) and not there:
        raise MomError(f"there is no user {user!r} on {server.name}; `mom user add` makes one")
    server.batch.meta[USER + user] = hashed
    return {"user": user, "hash": hashed}


def _renew_user(server: AgentServer, ticket: int, args: Args) -> Reply:
    """Store another hash of the same passcode, if it was not changed since."""
    user, hashed = args["user"], args["hash"]
    if _users(server).get(user) != args["was"]:
        raise MomError(f"the passcode of {user!r} was changed meanwhile")
    server.batch.meta[USER + user] = hashed
    return {"user": user, "hash": hashed}


def _delete_user(server: AgentServer, ticket: int, args: Args) -> Reply:
    user = str(args["user"])
    if user not in _users(server):
        raise MomError(f"there is no user {user!r} on {server.name}; see `mom user list`")
    server.batch.meta[USER + user] = None
    return {"user": user}


def _exported(server: AgentServer, ticket: int, args: Args) -> Reply:
    """Log records up to this one are somewhere else too, and may go when their time is over."""
    known = server.batch.meta.get(EXPORTED) or server.reader.meta().get(EXPORTED, 0)
    seq = max(int(args["seq"]), int(known or 0))
    server.batch.meta[EXPORTED] = seq
    return {"exported": seq}


VERBS: dict[str, Verb] = {
    "status": lambda server, ticket, args: status(server),
    "why": _why,
    "agents": _agents,
    "agent": _agent,
    "home": _home,
    "send": _send,
    "deploy": _deploy,
    "delete": _delete,
    "deadletters": _deadletters,
    "deadletter": _deadletter,
    "drop": _drop,
    "exported": _exported,
    "users": lambda server, ticket, args: {"users": list(_users(server))},
    "user_hashes": lambda server, ticket, args: {"hashes": _users(server)},
    "set_user": _set_user,
    "renew_user": _renew_user,
    "delete_user": _delete_user,
}
