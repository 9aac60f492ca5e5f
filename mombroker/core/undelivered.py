"""What is under way in a domain whose clocks end, and does not arrive: packets for a neighbour, and held ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from mombroker import ordering
from mombroker.core.message import Message, decode
from mombroker.core.topology import listed
from mombroker.ordering.base import Packet

PAGE = 64  # packets that are read at once

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


def copies(channel: Channel, message: Message, domain: str, peers: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """The agents of a message that waits for these peers whose way led to one of them, and True; and those whose home
    has left the bus, and False: which way led there nobody knows any more."""
    for agent in message.dests:
        if agent.partition("/")[0] not in channel.tx.topology.servers:
            yield agent, False
        elif any(via(channel, agent, domain, peer) for peer in peers):
            yield agent, True


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


def without(channel: Channel, part: DomainChannel, lost: Collection[str], seen: Mapping[str, int]) -> int:
    """What waits in a domain for neighbours that are lost, and for what only those had, becomes dead letters. None of
    them has received what comes after `seen`, if that is known. How many there are.

    Where each member passes on each message its origin tells of it, or whoever else has it.
    """
    relays, dead = part.core.relays, 0
    gone = [server for server in part.members if server in lost]
    shown = listed(gone)
    reached = part.core.reach([part.numbers[server] for server in gone])

    def bury(message: Message, agent: str, why: str, known: bool) -> int:
        told = "it was not delivered" if known else "whether it was delivered is unknown"
        return channel.dead_letters.undeliverable(message, agent, f"{why}, which is lost: {told}")

    for server in gone:
        link = part.link(server)
        while packets := page(part, link, link.acked, PAGE):
            for seq, packet in packets:
                if packet.body and (relays or link.member in packet.dests):
                    message, known = decode(packet.body), seq > seen.get(server, 0) and not relays
                    ways = {server} | {part.members[at] for at in packet.dests if relays and at not in reached}
                    for agent, sure in copies(channel, message, part.name, ways):
                        way = "led" if sure else "may have led"
                        dead += bury(message, agent, f"its way {way} to {shown}", known and sure)
            link.acknowledged(packets[-1][0], 0)
    for message, agent in [*held(channel, part)]:
        dead += bury(message, agent, f"it waited for what only {shown} had", not relays)
    return dead
