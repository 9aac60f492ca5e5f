"""Starting a domain's clocks anew, on a server that does not run: what cannot be delivered becomes dead letters."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from mombroker import ordering
from mombroker.core import undelivered
from mombroker.core.message import Message, decode
from mombroker.core.meta import EPOCH, OWN

if TYPE_CHECKING:
    from mombroker.core.domain_channel import DomainChannel
    from mombroker.core.server import AgentServer

Undelivered = tuple[Message, str, str]  # the message, an agent that does not get it, why
Copy = tuple[str, int, str]  # of a message (origin, number) for one agent


def start_anew(
    server: AgentServer, domain: str, epoch: int, unseen: Container[Copy] = (), buried: set[Copy] | None = None
) -> list[Undelivered]:
    """Give `domain` a new clock and new links under `epoch`; returns what was still under way in it, for `give_up`.

    All members must do the same before they meet again; the epoch in the handshake sees to that. Where members pass on
    for others, a packet to one may be the way of a message to another: only `unseen`, copies without a trace at their
    destination, tells whether it came there by another one. And several members may have it: what is in `buried` is
    given up already.
    """
    consumer = server.channel.domains[domain]
    buried = set() if buried is None else buried
    found: list[Undelivered] = []
    for message, agent, reason in _bound_out(server, consumer, unseen) + _held(server, consumer):
        if (message.origin, message.number, agent) not in buried:
            buried.add((message.origin, message.number, agent))
            found.append((message, agent, reason))
    own, rows = consumer.own_left(), server.tx.rows.core
    for kind, key in server.reader.core(domain):
        rows[domain, kind, key] = None
    consumer.core = server.channel.core(consumer.domain, {}, epoch)
    consumer.pending, consumer.mine = 0, {}
    server.tx.rows.meta[OWN + domain] = None
    consumer.touched = True
    for message in own:  # what nobody orders any more
        server.channel.hand_over_own(message)
    for link in consumer.links.values():
        server.tx.rows.acked[link.id] = link.sent
        link.sent = link.durable = link.acked = link.received = link.received_durable = link.held = 0
        link.next, link.incarnation, link.changed = 1, "", True
        link.touch()
    server.neighbours.epochs[domain] = epoch
    server.tx.rows.meta[EPOCH + domain] = epoch
    return found


def give_up(server: AgentServer, found: list[Undelivered]) -> list[Undelivered]:
    """Bury all that, once all clocks are new, since the senders are told; returns what has become a dead letter.

    What destinations tell each other is of no use any more.
    """
    dead = []
    for message, agent, reason in found:
        if not server.clients.orphans.settle(message, agent):
            server.dead_letters.bury(message, agent, reason, "ReactionFailed")
            dead.append((message, agent, reason))
    return dead


def _bound_out(server: AgentServer, consumer: DomainChannel, unseen: Container[Copy]) -> list[Undelivered]:
    """The agents that the packets in this domain's out-queues do not reach."""
    out: list[Undelivered] = []
    domain = consumer.domain
    relays = ordering.backend(domain.backend).relays
    for link in consumer.links.values():
        reason = f"it waited for {link.peer} when the clocks of domain {domain.name} were started anew"
        after = link.acked
        while packets := undelivered.page(consumer, link, after, 256):
            for seq, packet in packets:
                after = seq
                if link.member not in packet.dests and not (relays and packet.body):
                    continue
                message = decode(packet.body)
                for agent in message.dests:
                    through = relays and (message.origin, message.number, agent) in unseen
                    if undelivered.via(server.channel, agent, domain.name, None if through else link.peer):
                        out.append((message, agent, reason))
    return out


def _held(server: AgentServer, consumer: DomainChannel) -> list[Undelivered]:
    """The agents, here or beyond us, that the held packets do not reach."""
    reason = f"its causes were lost when the clocks of domain {consumer.name} were started anew"
    return [(message, agent, reason) for message, agent in undelivered.held(server.channel, consumer)]
