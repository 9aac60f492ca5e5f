"""Groups that overlap, in virtual time: each process has a member in each of its groups, and is judged across them."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from mombroker.core.causality import Event, check
from mombroker.lab.domain import Network
from mombroker.lab.isis import structure
from mombroker.lab.isis.judge import Log
from mombroker.lab.isis.member import Member
from mombroker.lab.isis.membership import Membership
from mombroker.lab.isis.messages import ABCAST, CBCAST, EACH, Cast, Multicast, Packet, Sent, View
from mombroker.lab.isis.post import MEMBERSHIP, Post
from mombroker.lab.isis.several import ALL, Out, Process
from mombroker.sim.world import World


class Overlap:
    """`groups`: by name the processes that are in each, the eldest first."""

    def __init__(
        self, world: World, network: Network, groups: Mapping[str, Sequence[int]], rule: str = ALL,
        excluded: Collection[str] = (), how: str = EACH, batch: int = 1, linger: int = 0,
        make: Callable[..., Process] = Process,
    ):  # fmt: skip
        self.world, self.linger = world, linger
        self.post = Post(world, network)
        self.memberships = {gid: Membership(tuple(members)) for gid, members in groups.items()}
        self.logs = {gid: Log(membership.view.members) for gid, membership in self.memberships.items()}
        self.processes: dict[int, Process] = {}
        carried = structure.carried(groups)
        for me in sorted(carried):
            mine = {
                gid: Member(me, membership.view, how, batch)
                for gid, membership in self.memberships.items() if me in membership.view.members
            }  # fmt: skip
            self.processes[me] = process = make(me, mine, rule, excluded, carried[me])
            process.ask = self.flush
        self.packets: dict[str, Counter[str]] = {gid: Counter() for gid in groups}  # by group and kind
        self.observe: Callable[[int, Out], None] = lambda me, out: None
        self.born: dict[int, int] = {}  # by body, ns
        self.delays: list[tuple[str, int]] = []  # of each copy for another: its group, ns
        self.events: list[Event] = []  # of all groups
        self._asked: dict[int, int] = {}  # by body: where its send stands among them
        self._ticking: set[int] = set()

    def cast(self, me: int, gid: str, kind: str = CBCAST) -> None:
        if me in self.post.crashed:
            return
        body = len(self.born) + 1
        self.born[body] = self.world.now
        self.logs[gid].asked(me, body)
        self._asked[body] = len(self.events)
        self.events.append(("send", me, body, ()))
        self._after(me, self.processes[me].cast(gid, body, kind))

    def crash(self, me: int, detect: int) -> None:
        self.post.crash(me)
        self.world.after(detect, self._detect, me)

    def _detect(self, me: int) -> None:
        for gid, membership in self.memberships.items():
            if me in membership.view.members and (view := membership.fail(me)):
                self._announce(gid, view)

    def flush(self, gid: str) -> None:
        """The same members again (§6.7)."""
        self._announce(gid, self.memberships[gid].flush())

    def _announce(self, gid: str, view: View) -> None:
        for me in sorted(view.everyone):
            self.post.send(MEMBERSHIP, me, self._see, me, gid, view)

    def _see(self, me: int, gid: str, view: View) -> None:
        self._after(me, self.processes[me].see(gid, view))

    def _after(self, me: int, out: Out) -> None:
        process = self.processes[me]
        process.check()
        self.observe(me, out)
        for gid, step in out:
            for each in step.deliver:
                self._seen(me, gid, each)
            for to, packet in step.send:
                kind = packet.cast.kind if isinstance(packet, Multicast) else type(packet).__name__.lower()
                self.packets[gid][kind] += 1
                self.post.send(me, to, self._arrive, to, gid, me, packet)
        if process.owes and me not in self._ticking:
            self._ticking.add(me)
            self.world.after(self.linger, self._tick, me)

    def _seen(self, me: int, gid: str, each: Cast | View | Sent) -> None:
        log = self.logs[gid]
        if isinstance(each, Sent):
            log.sent(me, each.cast.body, each.cast.kind)
            self.events[self._asked[each.cast.body]] = ("send", me, each.cast.body, log.dests[each.cast.body])
        elif isinstance(each, Cast):
            log.delivered(me, each.body)
            self.events.append(("deliver", me, each.body))
            if each.sender != me:
                self.delays.append((gid, self.world.now - self.born[each.body]))
        else:
            log.viewed(me, each.number, each.members)
            self.memberships[gid].has_installed(me, each.number)

    def _arrive(self, to: int, gid: str, frm: int, packet: Packet) -> None:
        self._after(to, self.processes[to].receive(gid, frm, packet))

    def _tick(self, me: int) -> None:
        self._ticking.discard(me)
        if me not in self.post.crashed:
            self._after(me, self.processes[me].tick())

    def faults(self) -> list[str]:
        """What is wrong once nothing is under way any more; each begins with a word for its kind."""
        live = {*self.processes} - self.post.crashed
        found = [f"{fault} of {gid}" for gid, log in self.logs.items() for fault in log.faults(live)]
        for me in sorted(live):
            process = self.processes[me]
            if process.queue or any(member.queue or member.waiting for member in process.groups.values()):
                found.append(f"stuck: {me} has something that waits")
            for gid, member in process.groups.items():
                if member.installed != self.memberships[gid].view.number:
                    found.append(f"stuck: {me} is in view {member.installed} of {gid}")
        verdict = check(self.events)
        for kind in ("violations", "duplicates", "unsent"):
            if wrong := getattr(verdict, kind):
                found.append(f"across: {len(wrong)} {kind}, as {wrong[0]}")
        return found


def play(overlap: Overlap, casts: int, total: float, gap: int, crashes: int = 0, stays: float = 0.0) -> None:
    """So many multicasts at random, `gap` ns apart, a share of them in total order; with the chance `stays` one is sent
    in the group of the one before. Until nothing is under way."""
    world, rng = overlap.world, overlap.world.rng
    places = [(gid, me) for me, process in overlap.processes.items() for gid in process.groups]
    gid = ""

    def say(left: int) -> None:
        nonlocal gid
        near = [place for place in places if place[0] == gid]
        gid, me = rng.choice(near if near and rng.random() < stays else places)
        overlap.cast(me, gid, ABCAST if rng.random() < total else CBCAST)
        if left > 1:
            world.after(world.about(gap), say, left - 1)

    world.after(0, say, casts)
    for _ in range(crashes):
        world.after(int(rng.random() * casts * gap), _crash, overlap, gap)
    world.run(calls=5_000_000)


def _crash(overlap: Overlap, gap: int) -> None:
    """Nobody of whom a group would be left without members."""
    crashed = overlap.post.crashed
    groups = [{*each.view.members} - crashed for each in overlap.memberships.values()]
    able = [me for me in sorted(overlap.processes) if me not in crashed and all(members != {me} for members in groups)]
    if able:
        overlap.crash(overlap.world.rng.choice(able), overlap.world.about(gap))
