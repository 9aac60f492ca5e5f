"""The freeze of the bus (protocols §8.7) on ordering cores alone, to be held against the papers' own protocols.

Each server has the old domains, in which all is under way until it switches, and the new ones. Its orders, answers and
marks are messages of those domains, as on the bus; what a disk does is left out.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mombroker.core import revision
from mombroker.core.topology import Topology
from mombroker.lab.bus import Bus
from mombroker.lab.domain import NUMBER, Network, Observer, number_of
from mombroker.lab.dynamic.course import Course, Load
from mombroker.ordering import Packet, Step
from mombroker.sim.world import World

REGISTRY = 0
READY, ANSWER, FREEZE, MARK, SWITCHED, OVER = "ready", "answer", "freeze", "mark", "switched", "over"
SMALL = 32  # bytes of an answer, a mark, a word that one has switched: a few numbers


class Frozen(Course):
    """All servers are inside. 1. Who has switched has the marks of all."""

    marks = True  # who delivers FREEZE says so, and switches with the marks of all

    def __init__(
        self, world: World, members: int, load: Load, network: Network, old: Topology, new: Topology,
        leaver: int | None = None, newcomer: int | None = None,
    ):  # fmt: skip
        super().__init__(world, members, load, leaver)
        self.network, self.newcomer = network, newcomer
        self.text = len(revision.text_of(new).encode())
        self.servers = list(range(len(old.servers)))
        self.notes: list[tuple[Any, int]] = []  # what the messages of both buses are: (kind or number, its bytes)
        self.buses = [self._bus(old, _OldLinks(self)), self._bus(new, _NewLinks(self))]
        self.at = dict.fromkeys(self.servers, 0)  # the bus that each one sends in
        self.gates: dict[int, deque[tuple[Any, tuple[int, ...], int]]] = {}  # of those that may not send
        self.marked: dict[int, set[int]] = {me: set() for me in self.servers}
        self.under_way = dict.fromkeys(self.servers, 0)  # packets of its own in old domains, not acknowledged
        self.left: set[int] = set()  # have still to answer, or to switch
        self.early: dict[int, list[Callable[[], None]]] = {}  # packets of new domains for who has not switched

    def _bus(self, topology: Topology, network: Network) -> Bus:
        bus = Bus(self.world, topology, lambda domain: network, lambda domain: [_Counter(self)])
        bus.on_arrival = self._arrived
        return bus

    # -- messages -----------------------------------------------------------------------------------------------------

    def send(self, me: int, dests: tuple[int, ...], number: int) -> None:
        self._say(me, dests, number, self.load.payload)

    def _say(self, me: int, dests: tuple[int, ...], what: Any, size: int) -> None:
        if me in self.gates:
            self.gates[me].append((what, dests, size))
        else:
            self._stamp(me, dests, what, size)

    def _stamp(self, me: int, dests: tuple[int, ...], what: Any, size: int) -> None:
        """Both buses number their messages alike, so that a number says what a message is."""
        self.notes.append((what, me))
        bus = self.buses[self.at[me]]
        for each in self.buses:
            if each is not bus:
                each.born.append(self.world.now)
                each.sizes.append(size)
                each.origins.append(me)
                each.finals.append(())
        bus.send(me, dests, size)

    def what(self, number: int) -> Any:
        return self.notes[number - 1][0]

    def _arrived(self, number: int, origin: int, me: int) -> None:
        what = self.what(number)
        if isinstance(what, int):
            self.heard(me, what)
        else:
            self.world.after(0, self._react, what, origin, me)  # stamp all forwards, then react

    def _react(self, what: str, origin: int, me: int) -> None:
        if what == READY:
            self._say(me, (REGISTRY,), ANSWER, SMALL)
        elif what == FREEZE:
            if self.marks:
                self._say(me, tuple(self.servers), MARK, SMALL)
            self.close(me)
            self.look(me)
        elif what == MARK:
            self.marked[me].add(origin)
            self.look(me)
        elif what in (ANSWER, SWITCHED):
            self.left.discard(origin)
            if not self.left:
                self._next(what)

    # -- the registry -------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self.left = set(self.servers)
        self._say(REGISTRY, tuple(self.servers), READY, self.text)

    def _next(self, what: str) -> None:
        if what == ANSWER:
            self.left = set(self.servers)
            self._say(REGISTRY, tuple(self.servers), FREEZE, self.text)
        else:
            self._say(REGISTRY, tuple(self.servers), OVER, self.text)
            self.end(self.newcomer)

    # -- a server -----------------------------------------------------------------------------------------------------

    def close(self, me: int) -> None:
        self.gates[me] = deque()
        self.may_send(me, False)

    def look(self, me: int) -> None:
        """Switch, if all marks are there and nothing of its own is under way."""
        complete = self.marked[me].issuperset(self.servers) if self.marks else True
        if me in self.gates and not self.at[me] and complete and not self.under_way[me]:
            self.at[me] = 1
            self.may_send(me, True)
            gate = self.gates.pop(me)
            while gate:
                what, dests, size = gate.popleft()
                self._stamp(me, dests, what, size)
            for arrive in self.early.pop(me, []):
                arrive()
            self._say(me, (REGISTRY,), SWITCHED, SMALL)

    def settled(self) -> Iterable[str]:
        for me in self.servers:
            if not self.at[me] or me in self.gates:
                yield f"server {me} has not switched"
        for bus in self.buses:
            for domain in bus.domains.values():
                for core in domain.members:
                    if core.held():
                        yield f"a member of {bus.topology.name} still holds packets"


class _OldLinks:
    """Acknowledges all that it brings: a server switches when nothing of its own is under way any more. One that has
    switched has no clocks any more for what comes then, and drops it."""

    def __init__(self, frozen: Frozen):
        self.frozen = frozen

    def carry(self, frm: int, to: int, size: int, arrive: Callable[..., Any], *args: Any) -> None:
        frozen = self.frozen
        frozen.under_way[frm] += 1

        def come() -> None:
            if not frozen.at[to]:
                arrive(*args)
            frozen.network.carry(to, frm, SMALL, acknowledged)

        def acknowledged() -> None:
            frozen.under_way[frm] -= 1
            frozen.look(frm)

        frozen.network.carry(frm, to, size, come)


class _NewLinks:
    """A link comes up when both its ends have switched: packets wait until then."""

    def __init__(self, frozen: Frozen):
        self.frozen = frozen

    def carry(self, frm: int, to: int, size: int, arrive: Callable[..., Any], *args: Any) -> None:
        frozen = self.frozen

        def come() -> None:
            if frozen.at[to]:
                arrive(*args)
            else:
                frozen.early.setdefault(to, []).append(lambda: arrive(*args))

        frozen.network.carry(frm, to, size, come)


class _Counter(Observer):
    def __init__(self, frozen: Frozen):
        super().__init__()
        self.frozen = frozen

    def sent(self, me: int, number: int, packets: Sequence[Packet]) -> None:
        self._count(me, packets)

    def received(self, me: int, packet: Packet, step: Step) -> None:
        self._count(me, step.send)

    def _count(self, me: int, packets: Sequence[Packet]) -> None:
        core = self.domain.members[me]
        for packet in packets:
            number = number_of(packet)
            control = len(core.encode(packet)) - NUMBER
            of_change = not isinstance(self.frozen.what(number), int)
            self.frozen.count(control + (self.domain.sizes[number] if of_change else 0), of_change)
