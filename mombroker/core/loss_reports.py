"""What those that are left of a domain tell each other when another member is lost: how much each has sent to whom, and
received. It goes from each to each on their links, past all order (protocols §8.9)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mombroker.core.channel import Channel
from mombroker.core.domain_channel import DomainChannel
from mombroker.core.errors import PeerError
from mombroker.core.link import Link
from mombroker.core.transaction import COMMIT
from mombroker.ordering.base import Packet

KIND = "loss"  # of the frames that carry them
LAST = (1 << 62) - 1

Counts = dict[str, dict[str, int]]  # "sent" and "received", by peer


@dataclass(slots=True)
class Loss:
    """The loss of servers of a domain, as one that is left of it keeps it until it is over.

    epoch    that the domain begins anew under
    lost     the servers
    seen     of each, the last packet of ours that it can have received
    left     those that are left, and were not met in the new epoch
    dead     messages that became dead letters here; of `unknown` ones nobody knows whether they were delivered
    """

    domain: str
    epoch: int
    lost: list[str]
    phase: str = ""
    seen: dict[str, int] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    dead: int = 0
    unknown: int = 0


class Reports:
    """Of one domain.

    heard    peer -> its last report
    _said    peer -> the connection that ours has gone to, and that
    _sought   those that are to be connected for that
    """

    def __init__(self, channel: Channel, domain: str):
        self.channel, self.links, self.tx = channel, channel.links, channel.tx
        self.domain = domain
        self.heard: dict[str, Counts] = {}
        self._said: dict[str, tuple[int, Counts]] = {}
        self._sought: set[str] = set()

    @property
    def part(self) -> DomainChannel:
        return self.channel.domains[self.domain]

    def others(self, lost: Iterable[str]) -> list[Link]:
        """The links to those that are left."""
        return [self.part.link(peer) for peer in self.part.members if peer != self.tx.name and peer not in lost]

    def met(self, peer: str) -> None:
        """It is connected anew, and may have forgotten."""
        self._said.pop(peer, None)

    def apart(self, peer: str) -> None:
        """What it lacks is told on another connection."""
        self._sought.discard(peer)

    def own(self) -> Counts:
        return counted(self.part)

    def say(self, loss: Loss) -> None:
        """Tell those that are left: when it begins, and whenever nothing of ours is under way and ours has changed."""
        counts, links = self.own(), self.others(loss.lost)
        quiet = not any(link.waiting() for link in links)
        for link in links:
            conn, before = self._said.get(link.peer, (0, {}))
            if conn == link.conn and conn and (before == counts or not quiet):
                continue
            if link.conn:
                self._said[link.peer] = link.conn, counts
                text = json.dumps([loss.lost, counts["sent"], counts["received"]]).encode()
                self.links.say(link, (KIND, self.domain, loss.epoch, text))
            elif link.peer not in self._sought:
                self._sought.add(link.peer)
                self.links.meet.append(link.peer)
                self.tx.urgency = COMMIT

    def missing(self, loss: Loss) -> list[str]:
        """Those that have not told anything yet."""
        return [link.peer for link in self.others(loss.lost) if link.peer not in self.heard]

    def settled(self, loss: Loss) -> bool:
        """Is nothing under way, nor ever will be? So it is if whatever somebody has sent the other has received: the
        reports are a consistent cut, in which all links are empty, and who has nothing to take sends nothing."""
        reports = {**self.heard, self.tx.name: self.own()}
        left = [member for member in self.part.members if member not in loss.lost]
        return reports.keys() >= set(left) and quiet({member: reports[member] for member in left})

    def tells(self, packet: Packet, server: str) -> bool:
        """Are we to tell of a packet for a lost server? Where a message comes to a member on several links, its origin
        does, or the first one with such a link. If that has nothing to tell, the lost server had it."""
        part = self.part
        if not part.core.floods:
            return True
        reports = {**self.heard, self.tx.name: self.own()}
        origin = part.members[packet.origin]
        near = [peer for peer in part.members if reports.get(peer, {}).get("sent", {}).get(server)]
        return self.tx.name == (origin if origin in near else next(iter(near), self.tx.name))


def counted(part: DomainChannel) -> Counts:
    """How much we have sent to each other member of a domain, and received."""
    links = [link for link in part.links.values() if link.sent or link.received]
    return {"sent": {link.peer: link.sent for link in links}, "received": {link.peer: link.received for link in links}}


def quiet(reports: Mapping[str, Counts]) -> bool:
    """Has each of these members received what each other has sent?"""
    return all(
        mine["sent"].get(other, 0) == theirs["received"].get(one, 0)
        for one, mine in reports.items() for other, theirs in reports.items() if one != other
    )  # fmt: skip


def read_report(peer: str, value: object, members: Iterable[str]) -> tuple[list[str], Counts]:
    """The servers that are lost, and the counts. Raises PeerError."""
    known = set(members)
    try:
        lost, sent, received = json.loads(value)  # type: ignore[arg-type]
        counts = {"sent": dict(sent), "received": dict(received)}
        names = {*lost, *sent, *received}
        if not lost or sorted(set(lost)) != lost or not names <= known:
            raise ValueError("it names others than members of the domain")
        if not all(type(n) is int and 0 <= n <= LAST for each in counts.values() for n in each.values()):
            raise ValueError("a count is none")
    except (ValueError, TypeError, RecursionError) as error:
        raise PeerError(f"{peer} tells of a loss what cannot be read: {error}") from None
    return lost, counts
