"""A process group as a space-time diagram: multicasts, what tells their order, what is said again, and the views."""

from collections import Counter, deque

from mombroker.lab.isis.group import Group, play
from mombroker.lab.isis.messages import ABCAST, SETS_ORDER, Cast, Copy, Multicast, Packet, Step, Uid, View
from mombroker.lab.networks import Exponential
from mombroker.lab.stories import Arrow, Mark, Story
from mombroker.sim.world import MS, World


class Watch:
    """Notes the arrows of a group: process k is called s<k + 1>, message m<number>, and what tells an order by the
    numbers that it tells. What is lost with a crash has no arrow."""

    def __init__(self, group: Group):
        self.group = group
        self.arrows: list[Arrow] = []
        self.marks: list[Mark] = []
        self._flying: dict[tuple[int, int], deque[tuple[Packet, Arrow]]] = {}  # by link, which keeps the order
        self._waiting: dict[tuple[int, Uid], Arrow] = {}
        self._last = ""  # what has come last
        self._places: Counter[tuple[int, int]] = Counter()  # by process and view: ABCASTs that it has delivered
        group.observe, group.arrived = self.done, self.came

    def story(self) -> Story:
        ends = [Mark(_name(me), at, "crashes", line=True) for me, at in self.group.ended.items()]
        return Story([_name(me) for me in self.group.members], self.arrows, [*self.marks, *ends])

    def done(self, me: int, step: Step) -> None:
        now, texts = self.group.world.now, []
        for each in step.deliver:
            if isinstance(each, View):
                text = f"view {each.number}: {' '.join(map(_name, each.members))}"
                self.marks.append(Mark(_name(me), now, text, line=True))
            elif isinstance(each, Cast):
                arrow = self._waiting.pop((me, each.uid), None)
                if arrow:
                    arrow.delivered = now
                    arrow.waited_for = self._last if now > arrow.came else ""
                if each.kind == ABCAST:
                    self._places[me, each.view] += 1
                    texts.append(f"m{each.body} #{self._places[me, each.view]}")
        if texts:
            self.marks.append(Mark(_name(me), now, ", ".join(texts)))
        for to, packet in step.send:
            if isinstance(packet, Multicast | Copy):
                cast = packet.cast
                arrow = Arrow(_called(cast), _name(me), _name(to), now, 0, bare=cast.kind == SETS_ORDER)
                arrow.onward = isinstance(packet, Copy)
                arrow.stamp = f"{len(cast.vector)} of {len(self.group.members[me].latest.members)} fields"
                self._flying.setdefault((me, to), deque()).append((packet, arrow))

    def came(self, frm: int, to: int, packet: Packet) -> None:
        if not isinstance(packet, Multicast | Copy):
            self._last = f"the {type(packet).__name__.lower()} of {_name(frm)}"
            return
        flying = self._flying[frm, to]
        while (known := flying.popleft())[0] is not packet:
            pass  # lost with a crash
        arrow = known[1]
        arrow.came, self._last = self.group.world.now, arrow.message
        self.arrows.append(arrow)
        arrow.passed = arrow.bare
        if not arrow.bare:
            self._waiting.setdefault((to, packet.cast.uid), arrow)


def _name(me: int) -> str:
    return f"s{me + 1}"


def _called(cast: Cast) -> str:
    if cast.kind != SETS_ORDER:
        return f"m{cast.body}"
    first, last = cast.orders[0][0], cast.orders[-1][0]
    return f"#{first}" + f" to #{last}" * (last > first) + f" of view {cast.view}"


def played(servers: int, sends: int, total: float, changes: int, seed: int) -> Story:
    """What happens in one group with packets of 50 ms in the mean; multicasts are 60 ms apart."""
    world = World(seed)
    group = Group(world, Exponential(world, 50 * MS), servers, linger=20 * MS)
    watch = Watch(group)
    play(group, sends, changes, total, 60 * MS)
    assert not group.faults()
    return watch.story()
