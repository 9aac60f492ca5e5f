"""Starting a domain's clocks anew, on a server that does not run: what cannot be delivered becomes dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mombroker import ordering
from mombroker.core.message import Message, decode

if TYPE_CHECKING:
    from mombroker.core.consumer import MessageConsumer
    from mombroker.core.server import AgentServer

Undelivered = tuple[Message, str, str]  # the message, an agent that does not get it, why


def start_anew(
    server: AgentServer, domain: str, epoch: int, buried: set[tuple[str, int, str]] | None = None
) -> list[Undelivered]:
    """Give `domain` a new clock and new links under `epoch`; returns, and buries, what was still under way in it.

    All members must do the same before they meet again; the epoch in the handshake sees to that. `buried` are (origin,
    number, agent) that others have buried: where members relay, several may have the same message for an agent.
    """
    consumer = server.consumers[domain]
    buried = set() if buried is None else buried
    undelivered: list[Undelivered] = []
    for message, agent, reason in _bound_out(server, consumer) + _held(server, consumer):
        if (message.origin, message.number, agent) not in buried:
            buried.add((message.origin, message.number, agent))
            undelivered.append((message, agent, reason))
    rows = server.batch.core
    for kind, key in server.reader.core(domain):
        rows[domain, kind, key] = None
    consumer.core = server.core(consumer.domain, {})
    consumer.touched = True
    for link in consumer.links.values():
        server.batch.acked[link.id] = link.sent
        link.sent = link.durable = link.acked = link.received = link.received_durable = link.held = 0
        link.next, link.incarnation, link.changed = 1, "", True
        server.touch(link)
    server.epochs[domain] = epoch
    server.batch.meta[f"epoch:{domain}"] = epoch
    for message, agent, reason in undelivered:
        server.engine.bury(message, agent, reason, "", "ReactionFailed", 0)
    return undelivered


def _bound_out(server: AgentServer, consumer: MessageConsumer) -> list[Undelivered]:
    """The agents that the packets in this domain's out-queues do not reach."""
    out: list[Undelivered] = []
    domain = consumer.domain
    backend = ordering.backend(domain.backend)
    options = backend.resolve(domain.members, domain.options)
    for link in consumer.links.values():
        theirs = ordering.create(domain.backend, link.member, len(domain.members), **options)
        theirs.forgetful = True
        reason = f"it waited for {link.peer} when the clocks of domain {domain.name} were started anew"
        after = link.acked
        while rows := server.reader.queue_out(link.id, after, link.durable, 256):
            for seq, data in rows:
                packet = theirs.decode(consumer.me, data)
                if link.member in packet.dests:
                    message = decode(packet.body)
                    out += [(message, agent, reason) for agent in message.dests if _via(server, agent, link.peer)]
                after = seq
    return out


def _via(server: AgentServer, agent: str, peer: str) -> bool:
    home = agent.partition("/")[0]
    return home != server.name and server.routes.hop(home)[1] == peer


def _held(server: AgentServer, consumer: MessageConsumer) -> list[Undelivered]:
    """The agents, here or beyond us, that the held packets do not reach."""
    out: list[Undelivered] = []
    reason = f"its causes were lost when the clocks of domain {consumer.name} were started anew"
    core = consumer.core
    for packet, _ in [*core.held(), *core.parked()]:
        message = packet.note[1] or decode(packet.body)
        for agent in message.dests:
            home = agent.partition("/")[0]
            if home == server.name or server.routes.hop(home)[0] != consumer.name:
                out.append((message, agent, reason))
    return out
