"""A process group in virtual time: members, links that keep their order, joins, leaves and crashes."""

from collections import Counter
from collections.abc import Callable

from mombroker.lab.domain import Network
from mombroker.lab.isis.judge import Log
from mombroker.lab.isis.member import Member
from mombroker.lab.isis.membership import Membership
from mombroker.lab.isis.messages import ABCAST, CBCAST, EACH, Cast, Multicast, Packet, Sent, Step, View
from mombroker.lab.isis.post import MEMBERSHIP, Post
from mombroker.sim.world import World

Make = Callable[..., Member]


class Group:
    """Processes are numbered; one that joins is new. A crash loses, of what is on the way from the process, a random
    end of each link, and is known to the membership `detect` ns later; views come as slowly as packets do.

    `linger`: ns until the holder of the token tells numbers that do not fill a batch, and any member what is stable.
    """

    def __init__(
        self, world: World, network: Network, size: int, how: str = EACH, batch: int = 1, follow: bool = False,
        linger: int = 0, make: Make = Member,
    ):  # fmt: skip
        self.world, self.linger = world, linger
        self.new: Callable[[int, View | None], Member] = lambda me, view: make(me, view, how, batch, follow)
        self.membership = Membership(tuple(range(size)))
        first = self.membership.view
        self.members: dict[int, Member] = {me: self.new(me, first) for me in range(size)}
        self.log = Log(first.members)
        self.post = Post(world, network)
        self.packets: Counter[str] = Counter()  # on links, by kind
        self.observe: Callable[[int, Step], None] = lambda me, step: None
        self.arrived: Callable[[int, int, Packet], None] = lambda frm, to, packet: None
        self.born: dict[int, int] = {}  # by body, ns
        self.ended: dict[int, int] = {}  # by process that crashed, ns
        self.delays: list[int] = []  # of each copy for another, ns
        self.bodies = 0
        self._ticking: set[int] = set()

    # -- what is done to it --------------------------------------------------------------------------------------------

    def cast(self, me: int, kind: str = CBCAST) -> None:
        if self.members[me].left:
            return
        self.bodies += 1
        self.born[self.bodies] = self.world.now
        self.log.asked(me, self.bodies)
        self._after(me, self.members[me].cast(self.bodies, kind))

    def join(self) -> int:
        me = len(self.members)
        self.members[me] = self.new(me, None)
        self._announce(self.membership.join(me))
        return me

    def leave(self, me: int) -> None:
        self._announce(self.membership.leave(me))

    @property
    def crashed(self) -> set[int]:
        return self.post.crashed

    def crash(self, me: int, detect: int) -> None:
        self.post.crash(me)
        self.ended[me] = self.world.now
        self.world.after(detect, self._detect, me)

    def _detect(self, me: int) -> None:
        view = self.membership.fail(me)
        if view:
            self._announce(view)

    def flush(self) -> None:
        self._announce(self.membership.flush())

    def _announce(self, view: View) -> None:
        for me in sorted(view.everyone):
            self.post.send(MEMBERSHIP, me, self._see, me, view)

    # -- what happens in it --------------------------------------------------------------------------------------------

    def _see(self, me: int, view: View) -> None:
        self._after(me, self.members[me].see(view))

    def _after(self, me: int, step: Step) -> None:
        member = self.members[me]
        member.check()
        self.observe(me, step)
        for each in step.deliver:
            if isinstance(each, Sent):
                self.log.sent(me, each.cast.body, each.cast.kind)
            elif isinstance(each, Cast):
                self.log.delivered(me, each.body)
                if each.sender != me:
                    self.delays.append(self.world.now - self.born[each.body])
            else:
                self.log.viewed(me, each.number, each.members)
                self.membership.has_installed(me, each.number)
        for to, packet in step.send:
            self.packets[packet.cast.kind if isinstance(packet, Multicast) else type(packet).__name__.lower()] += 1
            self.post.send(me, to, self._arrive, me, to, packet)
        if member.owes and me not in self._ticking:
            self._ticking.add(me)
            self.world.after(self.linger, self._tick, me)

    def _arrive(self, frm: int, to: int, packet: Packet) -> None:
        self.arrived(frm, to, packet)
        self._after(to, self.members[to].receive(frm, packet))

    def _tick(self, me: int) -> None:
        self._ticking.discard(me)
        if me not in self.crashed:
            self._after(me, self.members[me].tick())

    # -- the end -------------------------------------------------------------------------------------------------------

    @property
    def live(self) -> list[int]:
        """Members of the newest view that have not crashed."""
        return [me for me in self.membership.view.members if me not in self.crashed]

    def faults(self) -> list[str]:
        """What is wrong once nothing is under way any more; each begins with a word for its kind."""
        found = self.log.faults({*self.members} - self.crashed)
        newest = self.membership.view.number
        for me in self.live:
            member = self.members[me]
            if member.installed != newest:
                found.append(f"stuck: {me} is in view {member.installed} of {newest}")
            elif member.queue or member.later or member.waiting:
                found.append(f"stuck: {me} has {len(member.queue)} multicasts that wait")
            elif member.copies.kept:
                found.append(f"kept: {me} has copies of {[*member.copies.kept][:3]}")
        return found


def play(group: Group, casts: int, changes: int, total: float, gap: int, crashes: float = 0.4) -> None:
    """So many multicasts at random of random members, `gap` ns apart and a share of them in total order, with so many
    joins, leaves and crashes between, half of which follow close upon another; until nothing is under way."""
    world, rng = group.world, group.world.rng

    def say(left: int) -> None:
        if live := group.live:
            group.cast(rng.choice(live), ABCAST if rng.random() < total else CBCAST)
        if left > 1:
            world.after(world.about(gap), say, left - 1)

    def change() -> None:
        live, dice = group.live, rng.random()
        if dice < crashes and len(live) > 2:
            able = sorted({*live, *group.membership.view.leaving} - group.crashed)
            group.crash(rng.choice([able[0], *able]), world.about(gap))
        elif dice < (1 + crashes) / 2 or len(live) < 3:
            group.join()
        else:
            group.leave(rng.choice(live))

    world.after(0, say, casts)
    at = 0
    for _ in range(changes):
        at = at + world.about(2 * gap) if rng.random() < 0.5 else int(rng.random() * casts * gap)
        world.after(at, change)
    world.run(calls=2_000_000)
