"""One process in several groups that overlap: what it sends in one may depend on another (paper 003, §6.1 to §6.7)."""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from itertools import count
from typing import Any

from mombroker.lab.isis.member import Member
from mombroker.lab.isis.messages import CBCAST, Cast, Packet, Step, Vector, View

ALL, STRUCTURE, OWN, CONSERVATIVE = "all", "structure", "own", "conservative"
RULES = (ALL, STRUCTURE, OWN, CONSERVATIVE)
Out = list[tuple[str, Step]]  # by group, in the order in which it was done


class Process:
    """How what depends on another group finds its place is the rule:

    all            a multicast has the vectors of all groups that its sender knows of (rule 2')
    structure      of these, those of its sender's groups and of groups on circles with them (theorem 1): `carried`
    own            those of its sender's groups: enough where the groups that overlap form no circle (lemma 3)
    conservative   none: it is sent once no other group of its sender has something that is not stable

    With `excluded` groups the rule is `own`, and a process raises its epoch before it sends in a group, if since it
    last rose it had or sent something in another one, and one of the two is excluded (§6.7). A process has its groups
    flushed before it goes on into a higher epoch, of its own or of a multicast that comes.

    1. While a multicast waits for another group to become stable, nothing is delivered.
    """

    def __init__(
        self, me: int, members: Mapping[str, Member], rule: str = ALL, excluded: Collection[str] = (),
        carried: Collection[str] = (),
    ):  # fmt: skip
        self.me, self.groups, self.rule, self.excluded = me, members, rule, excluded
        self.carried = carried
        self.known: dict[str, tuple[int, Vector]] = {}  # of groups that it is not in
        self.queue: deque[tuple[str, str, Any]] = deque()  # what the application sends, in its order
        self.waits: set[tuple[str, tuple[int, int, int]]] | None = None  # the first of them, for these to be stable
        self.sending = False
        self.epoch = 0
        self.came: set[str] = set()  # groups of what was delivered or sent since the epoch rose
        self.rising = False
        self.flushing: dict[str, int] = {}  # groups that must get beyond this view before the epoch rises
        self.ask: Callable[[str], None] = lambda group: None  # has a group flushed
        clock = count().__next__
        for gid, member in members.items():
            member.clock = clock
            member.allow = lambda cast, gid=gid: self._may(gid, cast)  # type: ignore[misc]
            member.stamp = lambda gid=gid: self._stamp(gid)  # type: ignore[misc]

    def cast(self, gid: str, body: Any, kind: str = CBCAST) -> Out:
        """To the members of one of its groups; it is sent once the rule lets it, in the order of all that it sends."""
        self.queue.append((gid, kind, body))
        return self._go([])

    def receive(self, gid: str, frm: int, packet: Packet) -> Out:
        return self._go([(gid, self.groups[gid].receive(frm, packet))])

    def see(self, gid: str, view: View) -> Out:
        return self._go([(gid, self.groups[gid].see(view))])

    def tick(self) -> Out:
        return self._go([(gid, member.tick()) for gid, member in self.groups.items()])

    @property
    def owes(self) -> bool:
        return any(member.owes for member in self.groups.values())

    # -- one group after the other -------------------------------------------------------------------------------------

    def _go(self, out: Out) -> Out:
        """What one group has done may set free what waits in another. Of what may be delivered what came first is: that
        matters where all had to wait."""
        for gid, step in out:
            self._learn(gid, step)
        while True:
            self._rise()
            firsts = {gid: first for gid, member in self.groups.items() if (first := member.first) is not None}
            if firsts:
                gid = min(firsts, key=lambda gid: firsts[gid])
                done = [(gid, self.groups[gid].deliver())]
            else:
                done = self._send() or [(gid, member.go()) for gid, member in self.groups.items()]
                done = [(gid, step) for gid, step in done if step.send or step.deliver]
            if not done:
                return out
            for gid, step in done:
                self._learn(gid, step)
            out += done

    def _learn(self, gid: str, step: Step) -> None:
        for each in step.deliver:
            if not isinstance(each, View):
                self.came.add(gid)
            if isinstance(each, Cast):
                for other, (view, vector) in each.others.items():
                    if other not in self.groups and (self.rule == ALL or other in self.carried):
                        self._merge(other, view, vector)

    def _merge(self, gid: str, view: int, vector: Vector) -> None:
        before, known = self.known.get(gid, (0, {}))
        if view == before:
            vector = {who: max(vector.get(who, 0), known.get(who, 0)) for who in {*vector, *known}}
        if view >= before:
            self.known[gid] = view, vector

    # -- what a multicast says and waits for ---------------------------------------------------------------------------

    def _stamp(self, gid: str) -> dict[str, Any]:
        """Its own multicasts count from their sending on."""
        others: dict[str, tuple[int, Vector]] = {}
        if self.rule in (ALL, STRUCTURE, OWN):
            others = {
                other: (member.installed, member.delivered | {self.me: member.seq})
                for other, member in self.groups.items()
                if other != gid and (member.seq or member.delivered)
            }
        if self.rule in (ALL, STRUCTURE):
            others |= self.known
        return {"others": others, "epoch": self.epoch}

    def _may(self, gid: str, cast: Cast) -> bool:
        if self.waits or self.sending and cast.sender != self.me:
            return False
        if cast.epoch > self.epoch:
            self._flush_before({*self.groups} - {gid})
            return False
        return all(self._has(other, *cast.others[other]) for other in self._compared(gid, cast))

    def _compared(self, gid: str, cast: Cast) -> list[str]:
        """Not its own group: the multicast itself has not been delivered there."""
        return [other for other in cast.others if other in self.groups and other != gid]

    def _has(self, gid: str, view: int, vector: Vector) -> bool:
        """All that this vector counts is delivered here; what is of a view that is over, too."""
        member = self.groups[gid]
        if view != member.installed:
            return view < member.installed
        return all(many <= member.delivered.get(who, 0) for who, many in vector.items())

    # -- sending -------------------------------------------------------------------------------------------------------

    def _send(self) -> Out:
        """The first that waits, if it may go. What it waits for is seen anew once others may deliver meanwhile: while
        the view of its group changes, and while what was sent before waits for its place in another one."""
        if not self.queue:
            return []
        gid, kind, body = self.queue[0]
        member = self.groups[gid]
        if not member.ready or self._unplaced(gid):
            self.waits = None
            return []
        if self._unsafe(gid):
            self._flush_before(self.groups)
            return []
        if self.rule == CONSERVATIVE:
            others = [(other, each) for other, each in self.groups.items() if other != gid]
            if untold := [(other, each.tick()) for other, each in others if each.order.untold]:
                return untold
            active = {(other, uid) for other, each in others for uid in each.copies.kept}
            self.waits = active if self.waits is None else self.waits & active
            if self.waits:
                return []
        self.queue.popleft()
        self.waits, self.sending = None, True
        step = member.cast(body, kind)
        self.sending = False
        return [(gid, step)]

    def _unplaced(self, gid: str) -> bool:
        """Under the conservative rule an ABCAST that it has sent in another group must have its place first."""
        return self.rule == CONSERVATIVE and any(
            member.own_waits for other, member in self.groups.items() if other != gid
        )

    # -- epochs --------------------------------------------------------------------------------------------------------

    def _unsafe(self, gid: str) -> bool:
        """There was something in another group since the epoch rose, and one of the two is excluded."""
        return any(other != gid and self.excluded and {other, gid} & {*self.excluded} for other in self.came)

    def _flush_before(self, groups: Collection[str]) -> None:
        self.rising = True
        for gid in groups:
            if gid not in self.flushing:
                self.flushing[gid] = self.groups[gid].latest.number
                self.ask(gid)

    def _rise(self) -> None:
        """All that was to be flushed is: the epoch is that of what waits, or a new one for what is to be sent."""
        over = (
            max(self.groups[gid].installed, self.groups[gid].exhausted) > view for gid, view in self.flushing.items()
        )
        if not self.rising or not all(over):
            return
        waiting = [cast.epoch for member in self.groups.values() for cast in member.queue.values()]
        sends = bool(self.queue) and self._unsafe(self.queue[0][0])
        self.epoch = min((epoch for epoch in waiting if epoch > self.epoch), default=self.epoch + sends)
        self.rising = False
        self.came.clear()
        self.flushing.clear()

    def check(self) -> None:
        for member in self.groups.values():
            member.check()
        assert not self.waits or self.rule == CONSERVATIVE, "invariant 1: it waits without that rule"
