"""An overlay under load that a member joins or leaves by the paper's own protocol (000; protocols §5.3).

A coordinator at one member tells both ends of each link that opens or closes, and hears when they have done it. It also
collects what all have, so that the logs can forget it. All of that goes over the network.
"""

from collections.abc import Callable, Generator, Iterable
from typing import Any

from mombroker.lab.domain import NUMBER, Network
from mombroker.lab.dynamic.course import Course, Load
from mombroker.lab.dynamic.growing_overlay import OPEN, Close, GrowingOverlay, Open, Stable, Told
from mombroker.ordering import Packet, Step
from mombroker.ordering.hypercube import host, neighbours
from mombroker.sim.world import World

COORDINATOR = 0
REPORTS = 5  # delays of a link between two reports of a member, and between two words of what is stable
SMALL = 16  # bytes of an order, of its answer, of a farewell
Pair = tuple[int, int]


class OverlayChange(Course):
    """`members` are those before. Who joins is number `members`; the last one is who leaves."""

    def __init__(
        self, world: World, members: int, load: Load, network: Network, joins: bool,
        backend: type[GrowingOverlay] = GrowingOverlay,
    ):  # fmt: skip
        super().__init__(world, members, load, None if joins else members - 1)
        self.network, self.joins, self.members = network, joins, members
        self.cores = {me: backend(me, members) for me in range(members)}
        self.backend = backend
        self.reports: dict[int, list[int]] = {}  # by member: what it has, as it came
        self.left: set[Pair] = set()  # ends of links, (member, peer), that have still to do it
        self.answers = 0  # that have still to come
        self.work = self._join() if joins else self._leave()
        for me in range(members):
            world.after(REPORTS * load.delay * (me + 1) // members, self._report, me)
        world.after(2 * REPORTS * load.delay, self._stabilise)

    def send(self, me: int, dests: tuple[int, ...], number: int) -> None:
        self._post(me, self.cores[me].send(dests, number.to_bytes(NUMBER, "little")))

    # -- packets -----------------------------------------------------------------------------------------------------

    def _post(self, me: int, packets: list[Packet], again: bool = False) -> None:
        """`again`: they are sent for the change."""
        core = self.cores[me]
        for packet in packets:
            data = core.encode(packet)
            of_change = again or isinstance(packet.stamp, Told)
            body = self.load.payload if packet.body and of_change else 0
            self.count(len(data) - len(packet.body) + body, of_change)
            self.network.carry(me, packet.to, len(data), self._arrive, packet.to, me, data)

    def _arrive(self, me: int, frm: int, data: bytes) -> None:
        core = self.cores.get(me)
        if core is None:
            return
        packet = core.decode(frm, data)
        self._done(me, core.receive(frm, packet), isinstance(packet.stamp, Told))

    def _done(self, me: int, step: Step, again: bool) -> None:
        core = self.cores[me]
        core.check()
        self._post(me, step.send, again)
        for packet in step.deliver:
            self.heard(me, int.from_bytes(packet.body, "little"))
        for end in [end for end in self.left if end[0] == me and core.state(end[1]) == OPEN]:
            self._tell(end)

    # -- what is stable ----------------------------------------------------------------------------------------------

    def _report(self, me: int) -> None:
        if me not in self.cores:
            return
        mine = self.cores[me].seen[:]
        self._carry(me, COORDINATOR, 8 * len(mine), False, self._reported, me, mine)
        if self.talking or not self.over:
            self.world.after(REPORTS * self.load.delay, self._report, me)

    def _reported(self, me: int, numbers: list[int]) -> None:
        self.reports[me] = numbers

    def _stabilise(self) -> None:
        """Not before a newcomer has said what it has: it may have nothing of what is stable among the others."""
        if all(me in self.reports for me in self.cores) and (self.over or not self.asked):
            size = max(map(len, self.reports.values()))
            rows = [self.reports[me] for me in self.cores]
            numbers = [min(row[k] if k < len(row) else 0 for row in rows) for k in range(size)]
            for me in self.cores:
                self._carry(COORDINATOR, me, 8 * size, False, self._stable, me, numbers)
        if self.talking or not self.over:
            self.world.after(REPORTS * self.load.delay, self._stabilise)

    def _stable(self, me: int, numbers: list[int]) -> None:
        if me in self.cores:
            self._done(me, self.cores[me].change(Stable(numbers)), False)

    # -- the coordinator ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        next(self.work, None)

    def _join(self) -> Generator[None, None, None]:
        """The newcomer takes its links, that to its host first; the host drops those that it had in
        its place."""
        n = self.members
        self.cores[n] = self.backend(n, n + 1, links=[])
        mine, first = neighbours(n, n + 1), host(n)
        self._open([(first, n)])
        yield
        self._open([(peer, n) for peer in mine if peer != first])
        yield
        if drops := [(first, peer) for peer in neighbours(first, n) if peer not in neighbours(first, n + 1)]:
            self._close(drops)
            yield
        self._report(n)
        self.end(n)

    def _leave(self) -> Generator[None, None, None]:
        """The host takes the links that the leaver leaves without an end; then the leaver goes, once what it has sent
        has arrived."""
        n = self.members - 1
        if takes := [(host(n), peer) for peer in neighbours(host(n), n) if peer not in neighbours(host(n), n + 1)]:
            self._open(takes)
            yield
        self._order({(peer, n) for peer in neighbours(n, n + 1)})
        self._carry(COORDINATOR, n, SMALL, True, self._farewell, n)
        yield
        del self.cores[n]
        self.reports.pop(n, None)
        self.end()

    def _order(self, ends: set[Pair]) -> None:
        self.left, self.answers = ends, len(ends)

    def _open(self, links: list[Pair]) -> None:
        self._order({end for link in links for end in (link, link[::-1])})
        for me, peer in sorted(self.left):
            self._carry(COORDINATOR, me, SMALL, True, self._opened, me, peer)

    def _opened(self, me: int, peer: int) -> None:
        self._done(me, self.cores[me].change(Open(peer)), True)

    def _close(self, links: list[Pair]) -> None:
        self._order({end for link in links for end in (link, link[::-1])})
        for me, peer in sorted(self.left):
            self._carry(COORDINATOR, me, SMALL, True, self._closed, me, peer)

    def _closed(self, me: int, peer: int) -> None:
        self._done(me, self.cores[me].change(Close(peer)), True)
        self._tell((me, peer))

    def _farewell(self, me: int) -> None:
        """The last packet on each of its links."""
        for peer in self.cores[me].neighbours:
            self._carry(me, peer, SMALL, True, self._closed, peer, me)

    def _tell(self, end: Pair) -> None:
        """An end has done it."""
        self.left.discard(end)
        self._carry(end[0], COORDINATOR, SMALL, True, self._learn, end)

    def _learn(self, end: Pair) -> None:
        self.answers -= 1
        if not self.answers:
            next(self.work, None)

    def _carry(
        self, frm: int, to: int, size: int, of_change: bool, arrive: Callable[..., Any], *args: Any
    ) -> None:  # fmt: skip
        if frm == to:
            self.world.after(0, arrive, *args)
        else:
            self.count(size, of_change)
            self.network.carry(frm, to, size, arrive, *args)

    def settled(self) -> Iterable[str]:
        for me, core in self.cores.items():
            if core.held():
                yield f"member {me} still holds packets"
