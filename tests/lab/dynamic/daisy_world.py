"""A small world for daisies that change: members are lost for good, with their disks; groups split, merge, and get
other connectors, while everybody talks. The same seed gives the same world."""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from mombroker.core.causality import Event, Verdict, check
from mombroker.lab.dynamic.coordinator import Coordinator, HandOver, Merge, Split
from mombroker.lab.dynamic.evolving import EvolvingDaisy
from mombroker.lab.dynamic.views import Report
from mombroker.ordering import Step
from mombroker.ordering.base import Rows
from mombroker.ordering.groups import leaves

Groups = list[Any]
MOST = 200  # messages in a world


def report(core: EvolvingDaisy) -> Step:
    return core.change(Report())


def grow(lots: random.Random, levels: int) -> Groups:
    """A tree of so many levels, leaf groups of one to four members."""
    count = iter(range(1000))

    def group(left: int) -> Groups:
        if left == 1:
            return [next(count) for _ in range(lots.choice((1, 2, 2, 3, 3, 4) if levels < 4 else (1, 2, 2, 3)))]
        return [group(left - 1) for _ in range(lots.choice((2, 2, 3) if left == levels else (1, 2, 2)))]

    return group(levels)


class World:
    def __init__(
        self,
        seed: int,
        levels: int,
        relay: str = "eager",
        backend: type[EvolvingDaisy] = EvolvingDaisy,
        coordinator: type[Coordinator] = Coordinator,
        harsh: bool | None = None,
        restarts: float | None = None,
    ):
        self.lots = random.Random(seed)
        self.groups = grow(self.lots, levels)
        members = [*leaves(self.groups)]
        self.options = {"groups": self.groups, "relay": relay}
        self.backend, self.size = backend, len(members)
        self.cores = {me: backend(me, self.size, **self.options) for me in members}
        self.coordinator = coordinator(self.groups, lambda me: self.cores.get(me))
        self.links: dict[tuple[int, int], deque[bytes]] = {}
        self.rows: dict[int, Rows] = {me: {} for me in members}
        self.orders: dict[int, deque[Any]] = {me: deque() for me in members}
        self.slow = {(a, b) for a in members for b in members if self.lots.random() < 0.25}
        self.doomed: set[int] = set()  # lost in the middle of their next step
        self.bereaved: set[int] = set()  # groups of connectors that have lost a member
        self.unnoticed: set[int] = set()  # lost, and the coordinator does not know
        self.events: list[Event] = []
        self.sent = 0
        chance = self.lots.random(), self.lots.choice((0.0, 0.0, 0.0, 0.05))
        self.harsh = relay == "stable" and chance[0] < 0.5 if harsh is None else harsh
        self.restarts = chance[1] if restarts is None else restarts
        self.reports = self.lots.choice((0.02, 0.1)) if relay == "eager" else self.lots.choice((0.1, 0.3))
        self.talk = self.lots.choice((0.05, 0.15))
        self.quiet = False

    # -- the course of things ------------------------------------------------------------------------------------

    def play(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def rest(self, limit: int = 10_000) -> None:
        """Until the coordinator has nothing to do any more; people go on talking."""
        while self.doomed or self.unnoticed or not self.coordinator.resting or self.coordinator.operations:
            limit -= 1
            assert limit, "the coordinator does not come to rest"
            self.step()

    def settle(self) -> None:
        """Nobody has anything to say any more; all that is on its way arrives."""
        self.rest()
        self.quiet = True
        limit = 40_000
        while self.step():
            limit -= 1
            assert limit, "it does not come to rest"
        for me, core in self.cores.items():
            assert not core.held(), f"member {me} still holds packets"
            boxes = [way.outbox for way in core.ways.values()]
            assert not any(boxes) and not core.unsent, f"member {me} has not passed on everything"
            assert not any(group.early or group.views for group in core.groups.values()), f"member {me} lags behind"

    def step(self) -> bool:
        """One thing happens. False when nothing can."""
        lots = self.lots
        for me, event in self.coordinator.orders():
            if me in self.orders:
                self.orders[me].append(event)
        if self.unnoticed and lots.random() < 0.1:
            self.notice(min(self.unnoticed))
        if lots.random() < self.reports:
            self.act(lots.choice([*self.cores]), report)
        ordered = [me for me, queue in self.orders.items() if queue]
        if ordered and lots.random() < 0.3:
            me = lots.choice(ordered)
            event = self.orders[me].popleft()
            self.act(me, lambda core: core.change(event))
            return True
        full = [link for link, queue in self.links.items() if queue]
        if not self.quiet and lots.random() < self.talk and not self.is_busy():
            self.send(lots.choice([*self.cores]))
            return True
        if not full:
            return self.report_all() or bool(ordered or self.unnoticed or not self.quiet)
        ready = [link for link in full if link not in self.slow or lots.random() < 0.1]
        frm, me = lots.choice(ready or full)
        data = self.links[frm, me].popleft()
        self.act(me, lambda core: core.receive(frm, core.decode(frm, data)))
        return True

    def report_all(self) -> bool:
        """True if anybody had anything to say."""
        for me in [*self.cores]:
            self.act(me, report)
        return any(self.links.values())

    def act(self, me: int, act: Callable[[EvolvingDaisy], Step]) -> None:
        """One input is one transaction. Some restart before it, some before it is committed: they do it again."""
        if self.lots.random() < self.restarts:
            self.restart(me, act)
        core = self.cores[me]
        step = act(core)
        if me in self.doomed:
            self.die(me, step)
            return
        core.check()
        self.post(me, step)
        for packet in step.deliver:
            self.events.append(("deliver", me, int(packet.body)))
            if me in self.cores and self.lots.random() < 0.25 and not self.quiet and not self.is_busy():
                self.send(me)

    def is_busy(self) -> bool:
        """Answers to answers could grow without end."""
        return self.sent >= MOST or sum(map(len, self.links.values())) > 3 * self.size

    def post(self, me: int, step: Step) -> None:
        coded: dict[int, bytes] = {}  # what goes to several has one stamp, and the same bytes
        for packet in step.send:
            if packet.to in self.cores:
                data = coded.get(id(packet.stamp)) or self.cores[me].encode(packet)
                coded[id(packet.stamp)] = data
                self.links.setdefault((me, packet.to), deque()).append(data)

    def send(self, me: int) -> None:
        others = [k for k in self.cores if k != me]
        if not others:
            return
        lots = self.lots
        count = 1 if lots.random() < 0.5 else 1 + lots.randrange(len(others))
        dests = tuple(lots.sample(others, count))
        self.events.append(("send", me, self.sent, dests))
        body = b"%d" % self.sent
        self.sent += 1
        self.act(me, lambda core: Step(core.send(dests, body), []))

    def restart(self, me: int, act: Callable[[EvolvingDaisy], Step]) -> None:
        """The process stops and starts again; its store is whole, and its links keep what is on them."""
        rows, gone = self.cores[me].dirty()
        rows = self.rows[me] = {key: blob for key, blob in (self.rows[me] | rows).items() if key not in gone}
        if self.lots.random() < 0.5:
            act(self.cores[me])
        self.cores[me] = self.backend.restore(me, self.size, rows, **self.options)

    # -- faults --------------------------------------------------------------------------------------------------

    def lose(self, me: int) -> None:
        """Somebody must be left to talk to; and a group of connectors that has lost somebody keeps its last one, who
        may be the only one that knows what they were about to pass on. Eager relays stand one loss at a time, unless
        it is to be seen that they stand no more."""
        left = self.cores.keys() - self.doomed
        connecting = {gid: group.members for gid, group in self.coordinator.groups.items() if not group.leaf}
        last = any(gid in self.bereaved and members & left == {me} for gid, members in connecting.items())
        several = self.harsh or self.options["relay"] == "stable"
        alone = self.coordinator.mended and not (self.doomed or self.unnoticed)
        if len(left) > 2 and not last and (several or alone):
            self.doomed.add(me)
            self.bereaved |= {gid for gid, members in connecting.items() if me in members}

    def die(self, me: int, step: Step) -> None:
        """Of its last step some packets get out, in their order. Where links are harsh, of each some last ones are lost
        with the disk too."""
        step.send = step.send[: self.lots.randrange(len(step.send) + 1)]
        self.post(me, step)
        self.doomed.remove(me)
        del self.cores[me], self.orders[me]
        for (frm, to), queue in self.links.items():
            if to == me:
                queue.clear()
            elif frm == me and self.harsh:
                for _ in range(self.lots.choice((0, 0, self.lots.randrange(len(queue) + 1)))):
                    queue.pop()
        self.unnoticed.add(me)

    def notice(self, me: int) -> None:
        """With eager relays a loss must not be told before what the lost one sent has arrived: what is still on its
        links is dropped then, and a relay may have overtaken it. With stable ones at any time."""
        if (
            self.harsh
            or self.options["relay"] == "stable"
            or not any(queue for link, queue in self.links.items() if link[0] == me)
        ):
            self.unnoticed.remove(me)
            self.coordinator.lose(me)

    # -- what to do ----------------------------------------------------------------------------------------------

    def connectors(self) -> list[int]:
        """Live ones; those that connect at several levels are named once for each."""
        return [
            seat
            for group in self.coordinator.groups.values()
            if not group.leaf
            for seat in group.seats.values()
            if seat in self.cores
        ]

    def lose_connector(self) -> None:
        self.lose(self.lots.choice(self.connectors() or [*self.cores]))

    def lose_any(self) -> None:
        self.lose(self.lots.choice([*self.cores]))

    def _leaf_groups(self) -> list[int]:
        known = self.coordinator.groups
        return [gid for gid, group in known.items() if group.leaf and group.members and group.parent in known]

    def split(self) -> None:
        """Some members that do not connect leave a group."""
        known = self.coordinator.groups
        for gid in self.lots.sample(self._leaf_groups(), len(self._leaf_groups())):
            elder = known[known[gid].parent].seats.get(gid) if known[gid].parent in known else None
            others = sorted(known[gid].members - {elder})
            if others:
                leaving = self.lots.sample(others, 1 + self.lots.randrange(len(others)))
                self.coordinator.ask(Split(gid, tuple(leaving)))
                return

    def merge(self) -> None:
        leaf_groups, known = self._leaf_groups(), self.coordinator.groups
        pairs = [
            (a, b) for a in leaf_groups for b in leaf_groups if a != b and known[a].parent == known[b].parent != -1
        ]
        if pairs:
            self.coordinator.ask(Merge(*self.lots.choice(pairs)))

    def hand_over(self) -> None:
        choices = [
            HandOver(gid, member)
            for gid, group in self.coordinator.groups.items()
            if group.parent in self.coordinator.groups
            for member in group.members
            if member != self.coordinator.groups[group.parent].seats.get(gid)
        ]
        if choices:
            self.coordinator.ask(self.lots.choice(choices))

    # -- the judge -----------------------------------------------------------------------------------------------

    def faults(self) -> list[str]:
        """Kinds of faults. Lost is what a live member has not got although its sender lives, or a live one got it."""
        verdict: Verdict = check(self.events)
        known = {event[2] for event in self.events if event[1] in self.cores}
        lost = [each for each in verdict.lost if each[0] in self.cores and each[1] in known]
        found = {"order": verdict.violations, "twice": verdict.duplicates, "unsent": verdict.unsent, "lost": lost}
        return [f"{kind} {each[:3]}" for kind, each in found.items() if each]


def calm(world: World) -> None: ...


def crash(world: World) -> None:
    world.lose_connector()


def two_crashes(world: World) -> None:
    """One after the other: the second when the first is made good."""
    world.lose_connector()
    world.rest()
    world.play(world.lots.randrange(100))
    world.lose_connector()


def split(world: World) -> None:
    world.split()


def merge(world: World) -> None:
    world.merge()


def split_and_merge(world: World) -> None:
    world.split()
    world.merge()


def hand_over(world: World) -> None:
    world.hand_over()


def mixture(world: World) -> None:
    """Operations, some with a loss inside."""
    for _ in range(3):
        world.lots.choice((world.split, world.merge, world.hand_over, world.lose_any))()
        world.play(world.lots.randrange(60))
        if world.lots.random() < 0.6:
            world.lots.choice((world.lose_any, world.lose_connector))()
        world.rest()


def concurrent(world: World) -> None:
    """Two or three are lost before anybody notices."""
    for _ in range(world.lots.choice((2, 3))):
        world.lose_connector()


def run(seed: int, scenario: Callable[[World], None], levels: int = 2, **options: Any) -> list[str]:
    world = World(seed, levels, **options)
    world.play(world.lots.randrange(50, 250))
    try:
        scenario(world)
        world.play(world.lots.randrange(100))
        world.settle()
    except AssertionError as error:
        return [f"stuck: {error}", *world.faults()]
    return world.faults()
