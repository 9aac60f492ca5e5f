"""What is under way in a domain whose clocks end, and does not arrive: packets for a neighbour, and held ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mombroker import ordering
from mombroker.core.message import Message, decode
from mombroker.ordering.base import Packet

if TYPE_CHECKING:
    from mombroker.core.channel import Channel
    from mombroker.core.domain_channel import DomainChannel
    from mombroker.core.link import Link


def page(part: DomainChannel, link: Link, after: int, limit: int) -> list[tuple[int, Packet]]:
    """The stored packets for a neighbour behind sequence `after`, with their sequences, so many at most."""
    domain = part.domain
    options = ordering.backend(domain.backend).resolve(domain.members, domain.options)
    theirs = ordering.create(domain.backend, link.member, len(domain.members), **options)
    theirs.forgetful = True
    rows = part.tx.reader.queue_out(link.id, after, link.durable, limit)
    return [(seq, theirs.decode(part.me, data)) for seq, data in rows]


def via(channel: Channel, agent: str, domain: str, peer: str | None) -> bool:
    """Does our way to an agent lead through this domain, to this peer if one is named?"""
    home = agent.partition("/")[0]
    if home == channel.tx.name or home not in channel.tx.topology.servers:
        return False
    into, hop = channel.routes.hop(home)
    return into == domain and (peer is None or hop == peer)


def held(channel: Channel, part: DomainChannel) -> Iterator[tuple[Message, str]]:
    """The agents, here or beyond us, that the held packets do not reach. Where members pass on for others a packet may
    have been delivered here, or on another way, so of any of its agents that is unknown."""
    relays = part.core.relays
    for packet, _ in [*part.core.held(), *part.core.parked()]:
        message = (packet.note and packet.note[1]) or decode(packet.body)
        mine = packet.origin == part.me  # our own agents have it
        for agent in message.dests:
            through = via(channel, agent, part.name, None)
            if (relays or not through) and not (mine and not through):
                yield message, agent


def bury(channel: Channel, part: DomainChannel, link: Link) -> None:
    """What waits for a neighbour that is lost, and for ever without a successor, becomes dead letters."""
    reason = f"its way led to {link.peer}, which is lost: it was not delivered"
    for seq, packet in page(part, link, link.acked, link.sent):
        message = decode(packet.body)
        for agent in message.dests:
            if seq > link.acked and via(channel, agent, part.name, link.peer):
                channel.dead_letters.undeliverable(message, agent, reason)
