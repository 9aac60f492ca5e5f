"""A daisy under load that splits, merges or gets another connector by the paper's own protocol (001, §3.1.1).

The coordinator is at one member. Its orders and what members tell it of their views go over the network, too.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from mombroker.lab.domain import NUMBER, Network
from mombroker.lab.dynamic.codec import pack
from mombroker.lab.dynamic.coordinator import Coordinator, Operation
from mombroker.lab.dynamic.course import Course, Load
from mombroker.lab.dynamic.evolving import EvolvingDaisy
from mombroker.lab.dynamic.views import Event, Gid, Heard, Pool, Report, Said, State, View
from mombroker.ordering import Packet, Step
from mombroker.ordering.daisy import Edge
from mombroker.sim.world import World

COORDINATOR = 0
REPORTS = 5  # delays of a link between two acknowledgements of a member


@dataclass(slots=True, frozen=True)
class SeenGroup:
    """What a member has told of one of its groups."""

    ready: bool
    view: int
    views: tuple[View, ...]


@dataclass(slots=True, frozen=True)
class SeenWay:
    outbox: bool  # there is something in it


@dataclass(slots=True, frozen=True)
class Seen:
    """A member, as the coordinator knows it."""

    groups: dict[Gid, SeenGroup]
    ways: dict[Edge, SeenWay]


def seen(core: EvolvingDaisy) -> Seen:
    groups = {gid: SeenGroup(each.ready, each.view, tuple(each.views)) for gid, each in core.groups.items()}
    return Seen(groups, {edge: SeenWay(bool(way.outbox)) for edge, way in core.ways.items()})


class DaisyChange(Course):
    def __init__(
        self, world: World, members: int, load: Load, network: Network, groups: list[list[int]], operation: Operation,
        backend: type[EvolvingDaisy] = EvolvingDaisy, coordinator: type[Coordinator] = Coordinator,
    ):  # fmt: skip
        super().__init__(world, members, load)
        self.network, self.operation = network, operation
        self.cores = [backend(me, members, groups=groups) for me in range(members)]
        self.told = {me: seen(core) for me, core in enumerate(self.cores)}  # what was told, by member
        self.known: dict[int, Any] = dict(self.told)  # what of it has come
        self.coordinator = coordinator(groups, self.known.get)
        self.steps = 0
        self.first: dict[tuple[Gid, tuple[int, int]], tuple[int, int]] = {}  # broadcast -> who made it, in which step
        for me in range(members):
            world.after(REPORTS * load.delay * (me + 1) // members, self._report, me)

    def send(self, me: int, dests: tuple[int, ...], number: int) -> None:
        self._act(me, lambda core: Step(core.send(dests, number.to_bytes(NUMBER, "little")), []))

    def _report(self, me: int) -> None:
        self._act(me, lambda core: core.change(Report()))
        if self.talking or not self.over:
            self.world.after(REPORTS * self.load.delay, self._report, me)

    def _act(self, me: int, act: Callable[[EvolvingDaisy], Step]) -> None:
        core = self.cores[me]
        step = act(core)
        core.check()
        self.steps += 1
        for packet in step.send:
            data = core.encode(packet)
            self._count(me, packet, len(data))
            self.network.carry(me, packet.to, len(data), self._arrive, packet.to, me, data)
        for packet in step.deliver:
            self.heard(me, int.from_bytes(packet.body, "little"))
        if self.asked and not self.over:
            self.may_send(me, not core.holding and core.groups[core.home].open)
            self._tell(me)

    def _arrive(self, me: int, frm: int, data: bytes) -> None:
        self._act(me, lambda core: core.receive(frm, core.decode(frm, data)))

    def _count(self, me: int, packet: Packet, size: int) -> None:
        """Messages, when they are first said in a group, and acknowledgements are none of the change."""
        stamp = packet.stamp
        if isinstance(stamp, Said) and stamp.marks < 0:
            first = self.first.setdefault((stamp.gid, stamp.place), (me, self.steps)) == (me, self.steps)
            self.count(size - NUMBER + (0 if first else self.load.payload), not first)
            return
        inner = len(stamp.log) + len(stamp.inherited) if isinstance(stamp, State) else 0
        inner += len(stamp.packets) if isinstance(stamp, Pool) else 0
        self.count(size + inner * (self.load.payload - NUMBER), not isinstance(stamp, Heard))

    # -- the coordinator ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self.known.update({me: seen(core) for me, core in enumerate(self.cores)})
        self.told = dict(self.known)
        self.coordinator.ask(self.operation)
        self._look()

    def _look(self) -> None:
        for _ in range(3):  # a step of its work may have no orders, and the next one some
            for me, event in self.coordinator.orders():
                self._carry(COORDINATOR, me, len(pack(event)), self._obey, me, event)
        if self.coordinator.resting and not self.over:
            for me in [*self.closed]:
                self.may_send(me, True)
            self.end()

    def _obey(self, me: int, event: Event) -> None:
        self._act(me, lambda core: core.change(event))

    def _tell(self, me: int) -> None:
        """Tell the coordinator what has changed."""
        now, before = seen(self.cores[me]), self.told[me]
        if now != before:
            self.told[me] = now
            groups = [[gid, *_plain(each)] for gid, each in now.groups.items() if before.groups.get(gid) != each]
            ways = [[*edge, each.outbox] for edge, each in now.ways.items() if before.ways.get(edge) != each]
            self._carry(me, COORDINATOR, len(pack([groups, ways])), self._learn, me, now)

    def _learn(self, me: int, now: Seen) -> None:
        self.known[me] = now
        self._look()

    def _carry(self, frm: int, to: int, size: int, arrive: Callable[..., Any], *args: Any) -> None:
        if frm == to:
            self.world.after(0, arrive, *args)
        else:
            self.count(size, True)
            self.network.carry(frm, to, size, arrive, *args)

    def settled(self) -> Iterable[str]:
        for me, core in enumerate(self.cores):
            if core.held() or core.unsent or any(way.outbox for way in core.ways.values()):
                yield f"member {me} still has something"


def _plain(group: SeenGroup) -> list[int]:
    return [int(group.ready), group.view, *(view.number for view in group.views)]
