"""Groups of paper 003 at random: joins, leaves and crashes under load. Every run is judged by the outsider."""

from collections import defaultdict, deque
from random import Random

from mombroker.lab.isis.group import Group, play
from mombroker.lab.isis.judge import Log
from mombroker.lab.isis.member import Member
from mombroker.lab.isis.messages import CBCAST, COORDINATOR, EACH, Sent, View
from mombroker.lab.networks import Exponential
from mombroker.sim.world import MS, World


def group(seed, make=Member, how=None, total=None):
    """A run to its end; the group is to be asked what is wrong."""
    lots, world = Random(f"isis {seed}"), World(seed)
    how = how or lots.choice([EACH, COORDINATOR])
    size, batch, follow = lots.randint(2, 6), lots.choice([1, 2, 4, 8]), lots.random() < 0.5
    linger = lots.choice([0, 5, 30, 100]) * MS
    found = Group(world, Exponential(world, 10 * MS), size, how, batch, follow, linger, make)
    share = lots.choice([0.2, 0.45, 1]) if total is None else total
    casts, changes, gap = lots.randint(10, 60), lots.choice([0, 1, 2, 3, 5]), lots.choice([2, 5, 10]) * MS
    play(found, casts, changes, share, gap, lots.choice([0.2, 0.4, 0.8]))
    return found


def run(seed, make=Member, how=None, total=None):
    return group(seed, make, how, total).faults()


class Table:
    """Members whose packets go where and when a test says; what they see is in a log for the outsider."""

    def __init__(self, members, make=Member, how=EACH):
        view = View(1, tuple(members))
        self.members = {me: make(me, view, how) for me in members}
        self.log, self.links, self.bodies = Log(view.members), defaultdict(deque), 0

    def cast(self, me, kind=CBCAST):
        self.bodies += 1
        self.log.asked(me, self.bodies)
        self.after(me, self.members[me].cast(self.bodies, kind))
        return self.bodies

    def see(self, view, *members):
        for me in members:
            self.after(me, self.members[me].see(view))

    def after(self, me, step):
        self.members[me].check()
        for each in step.deliver:
            if isinstance(each, Sent):
                self.log.sent(me, each.cast.body, each.cast.kind)
            elif isinstance(each, View):
                self.log.viewed(me, each.number, each.members)
            else:
                self.log.delivered(me, each.body)
        for to, packet in step.send:
            self.links[me, to].append(packet)

    def give(self, frm, to, most=1):
        """The next packets of a link arrive."""
        for _ in range(min(most, len(self.links[frm, to]))):
            self.after(to, self.members[to].receive(frm, self.links[frm, to].popleft()))

    def settle(self, *live):
        """All that is under way between these arrives; nothing of others does."""
        while links := [link for link in self.links if self.links[link] and {*link} <= {*live}]:
            self.give(*links[0])

    def got(self, me):
        return [what for kind, what, *_ in self.log.of[me] if kind == "deliver"]
