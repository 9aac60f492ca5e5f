"""How a server is, and what it waits for: `mom status` and `mom why`."""

from __future__ import annotations

from mombroker.core import revision, times
from mombroker.core.domain_channel import DomainChannel
from mombroker.core.groups.bus import CASTS_OF, ORDER_OF, STATE_OF
from mombroker.core.link import Link
from mombroker.core.message import decode
from mombroker.core.meta import HISTORY
from mombroker.core.passage import MOVING
from mombroker.core.reconfiguration import FROZEN
from mombroker.core.requests import Reply, reads
from mombroker.core.server import AgentServer
from mombroker.core.topology import listed
from mombroker.core.words import many

SAMPLE = 64  # packets whose size stands for that of all
AWAY_NS = 10 * times.SECOND  # a neighbour that was not seen for so long is no longer just starting again


class StatusVerbs:
    """What operators may ask about a server as a whole."""

    def __init__(self, server: AgentServer):
        self.server = server

    @reads
    def status(self) -> Reply:
        """How the server, its domains and its links are, with one sentence for each problem."""
        return status(self.server)

    @reads
    def why(self) -> Reply:
        """What waits on the server, and for what."""
        return {"now": self.server.tx.now, "waits": why(self.server)}


def status(server: AgentServer) -> Reply:
    engine, channel = server.engine, server.channel
    links = [_link(server, link) for consumer in server.channel.domains.values() for link in consumer.links.values()]
    return {
        "server": server.name,
        "incarnation": server.neighbours.incarnation,
        "now": server.tx.now,
        "ahead_ns": server.clock.ahead,
        "domains": [_domain(server, consumer) for consumer in server.channel.domains.values()],
        "links": links,
        "agents_in_memory": len(engine.residents.loaded),
        "inbox_in_memory": engine.inboxes.in_memory,
        "sent": channel.sent,
        "received": channel.received,
        "forwarded": channel.forwarded,
        "reactions": engine.reactions,
        "failures": engine.failures,
        "holds": channel.holds,
        "dead_letters": len(server.dead_letters.letters),
        "names": len(server.names.known),
        "store_bytes": server.alarms.last.bytes,
        "max_store": server.limits.max_store,
        "free_bytes": server.alarms.last.free,
        "full": server.tx.full,
        "stuck": _stuck(server),
        "problems": _problems(server),
    }


def closed(server: AgentServer) -> str:
    """Why it takes no work from outside; empty if it does."""
    if server.tx.full:
        return f"takes no work from outside: {', '.join(server.alarms.why())}; see `mom status`"
    return "is stopping" if server.stopping else ""


def _domain(server: AgentServer, consumer: DomainChannel) -> Reply:
    links, core = consumer.links.values(), consumer.core
    came = [packet.note[0] or consumer.since for packet, _ in core.held()]
    return {
        "domain": consumer.name, "ordering": consumer.domain.backend, "members": list(consumer.members),
        "held": sum(link.held for link in links), "held_longest_ns": server.tx.now - min(came) if came else 0,
        "parked": len(core.parked()), "relays": consumer.relays,
        "duplicates": core.duplicates + sum(link.duplicates for link in links),
        "waiting": sum(link.sent - link.acked for link in links), "token": _token(consumer),
    }  # fmt: skip


def _token(consumer: DomainChannel) -> str:
    """The server that numbers all messages of a domain, as far as this one knows."""
    holder = consumer.core.token()
    return consumer.members[holder] if holder >= 0 else ""


def _link(server: AgentServer, link: Link) -> Reply:
    return {
        "peer": link.peer, "domain": link.domain, "up": bool(link.conn), "sent": link.sent, "acked": link.acked,
        "received": link.received, "waiting": link.sent - link.acked, "held": link.held,
        "duplicates": link.duplicates, "last_seen": link.last_seen,
        "trouble": server.neighbours.trouble.get(link.peer, ""),
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
    clock = server.clock
    if clock.behind:
        return (
            f"the machine's clock is {times.shown(clock.behind)} ahead of the time of {server.name}: for a minute "
            "nothing expires or falls due by it; if it is wrong, set it right before that, or stop the server"
        )
    if clock.ahead <= times.FAR:
        return ""
    return (
        f"the time of {server.name} is {times.shown(clock.ahead)} ahead of its machine's clock, which is wrong or was "
        "once: messages live and wait as long as they should, but the log tells that time; once the clock is right, "
        f"stop {server.name} and run `mom store clock`"
    )


def _problems(server: AgentServer) -> list[str]:
    """One sentence for each thing that an operator should act on."""
    out = [trouble] if (trouble := clock_trouble(server)) else []
    if trouble := server.newcomers.trouble():
        out.append(trouble)
    stuck: dict[str, list[Reply]] = {}
    for row in _stuck(server):
        stuck.setdefault(f"{row['class']} {row['reason']}", []).append(row)
    for what, rows in stuck.items():
        agents = listed(row["agent"] for row in rows)
        wait = many(sum(row["waiting"] for row in rows), "message waits", "messages wait")
        out.append(
            f"{what}: {wait} for {agents}; bring the class back and start {server.name} again, or delete what is not "
            "needed any more by `mom agent delete`"
        )
    if server.tx.full:
        waiting = {
            link.peer: link.sent - link.acked for c in server.channel.domains.values() for link in c.links.values()
        }
        blame = max(waiting, key=lambda peer: waiting[peer], default="")
        most = f"; most of it waits for {blame} ({many(waiting[blame], 'packet')})" if blame and waiting[blame] else ""
        out.append(
            f"no work is taken from outside: {', '.join(server.alarms.why())}{most}; make room, bring the peer "
            "back, or change the limit"
        )
    begun = max((each.since for each in (server.change.plan, server.coordinator.run) if each), default=0)
    if begun and server.tx.now - begun > AWAY_NS and (waits := _change(server)):
        wait = many(len(server.channel.gate), "message waits", "messages wait")
        out.append(
            f"{waits}; {wait} here to enter what changes: start who is down, or, if a store is gone for good, run `mom "
            "server lost` for it; `mom topology status` tells of all"
        )
    known = revision.history(server.reader.meta(HISTORY))
    for name in server.newcomers.expected():
        begun = known.get(server.newcomers.attached[name].revision, (0, "", []))[0]
        if server.tx.now - begun > AWAY_NS:
            out.append(
                f"{name} has joined the bus, and has not begun: start it by `mom server start {name}`, or `mom server "
                f"join` on its machine, or take it out again by `mom topology abort`"
            )
    if to := server.names.elsewhere:
        out.append(
            f"{server.name} is drained to {to}: it lets no client in, and makes nothing new, until `mom server drain "
            f"{server.name} --end`"
        )
    if server.aside.kept:
        damaged = many(len(server.aside.kept), "damaged row was", "damaged rows were")
        out.append(
            f"{damaged} set aside: see to the disk; `mom store verify` looks for more, `mom store salvage` exports "
            "what can be read"
        )
    for consumer in server.channel.domains.values():
        if consumer.core.spreads:
            out += [_costs_disk(server, link) for link in consumer.links.values() if _away(server, consumer, link)]
        for link in consumer.links.values():
            if link.broken:
                out.append(f"nothing more is sent to {link.peer}: {link.broken}")
            reason = server.neighbours.trouble.get(link.peer)
            if reason:
                waiting_for = sum(
                    any(origin == link.member for origin, _ in missing) for _, missing in consumer.core.held()
                )
                packets = many(link.sent - link.acked, "packet waits", "packets wait")
                held = many(waiting_for, "held message waits", "held messages wait")
                out.append(
                    f"{link.peer} is refused: {reason} ({packets} for it here, and in domain {consumer.name} {held} "
                    "for messages that only it had)"
                )
    return out


def _change(server: AgentServer) -> str:
    """What a change of the domains that has begun waits for here; on the registry, if it has no other reason, whom the
    bus waits for. Empty if there is none."""
    mine, bus = server.change.status(), server.coordinator.status()
    if mine["waits_for"]:
        return f"the change to revision {mine['change']} of the topology waits for {listed(mine['waits_for'])}"
    if bus.get("phase") == FROZEN:
        return f"the change to revision {bus['change']} of the topology waits for {listed(bus['waits_for'])} to switch"
    return ""


def _away(server: AgentServer, consumer: DomainChannel, link: Link) -> bool:
    seen = max(link.last_seen, consumer.since)
    return not link.conn and link.waiting() and server.tx.now - seen > AWAY_NS


def _costs_disk(server: AgentServer, link: Link) -> str:
    packets = link.durable - link.acked
    sample = [len(data) for _, data in server.reader.queue_out(link.id, link.acked, link.durable, SAMPLE)]
    size = packets * sum(sample) // max(1, len(sample))  # reading all of a long queue would hold up the server
    return (
        f"{link.peer} is down, and what others tell each other in domain {link.domain} is kept for it, too, on every "
        f"member that sends to it: {many(packets, 'packet')} of about {size} bytes here; bring it back"
    )


def _named(name: str) -> str:
    """What kind of thing an agent waits for."""
    kinds = {CASTS_OF: "cast", STATE_OF: "state", ORDER_OF: "order"}
    return next((kind for begin, kind in kinds.items() if name.startswith(begin)), "name")


def why(server: AgentServer) -> list[Reply]:
    """What waits here, and for what: held packets, failing agents, unknown names, links that are down."""
    out: list[Reply] = [{"kind": "full", "reason": reason} for reason in server.alarms.why()]
    if waits := _change(server):
        out.append({"kind": "change", "packets": len(server.channel.gate), "reason": waits})
    for consumer in server.channel.domains.values():
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
                "from": consumer.members[packet.frm], "waits_for": causes, "token": _token(consumer),
            })  # fmt: skip
        for packet, lacking in consumer.core.parked():
            message = decode(packet.body)
            out.append({
                "kind": "parked", "message": f"{message.origin}#{message.number}", "domain": consumer.name,
                "waits_for": list(dict.fromkeys(consumer.members[member] for member, _ in lacking)),
            })  # fmt: skip
    for box in server.engine.inboxes.boxes.values():
        if box.blocked() and box.queue and box.name != MOVING:
            first, stuck = box.queue[0], box.stuck
            kind = "class" if stuck else _named(box.name) if box.name else "retry"
            reason = stuck.reason if stuck else server.clients.reason(box.agent) if kind in ("cast", "order") else ""
            out.append({
                "kind": kind, "agent": box.agent,
                "name": box.name.removeprefix(CASTS_OF).removeprefix(STATE_OF).removeprefix(ORDER_OF),
                "class": stuck.path if stuck else "", "reason": reason, "until": box.until,
                "message": f"{first.message.origin}#{first.message.number}", "attempts": first.attempts,
                "behind": server.engine.inboxes.count(box) - 1,
            })  # fmt: skip
    clients, told = server.clients.why(), {row["agent"] for row in out if row["kind"] in ("cast", "order")}
    told |= {row["agent"] for row in clients if row["kind"] == "window"}
    for agent in server.clients.groups.waiting():  # nothing may have come for it meanwhile
        if agent not in told:
            out.append({
                "kind": "cast", "agent": agent, "name": agent, "class": "", "reason": server.clients.reason(agent),
                "until": 0, "message": "", "attempts": 0, "behind": 0,
            })  # fmt: skip
    out += clients
    for id, departure in server.departures.leaving.items():
        if reason := server.departures.why(id):
            out.append({"kind": "move", "agent": id, "to": departure.to, "reason": reason})
    for consumer in server.channel.domains.values():
        for link in consumer.links.values():
            if link.waiting() and (not link.conn or link.next > link.limit):
                out.append({
                    "kind": "link" if not link.conn else "credit", "peer": link.peer, "domain": consumer.name,
                    "packets": link.sent - link.acked, "last_seen": link.last_seen,
                    "trouble": server.neighbours.trouble.get(link.peer, ""),
                })  # fmt: skip
    return out
