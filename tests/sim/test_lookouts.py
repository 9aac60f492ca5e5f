"""Who is told who is down, where it takes long until a home can know."""

from random import Random

import pytest

from mombroker.broker.groups.lookout import Lookout
from mombroker.broker.groups.notes import MemberUp
from mombroker.core.topology import Domain, Server, Topology
from mombroker.sim.cluster import Cluster
from mombroker.sim.faults import Faults
from mombroker.sim.groups import Groups
from mombroker.sim.lookouts import PERIOD, Lookouts, Moment
from mombroker.sim.partners import WATCH, Partner
from mombroker.sim.world import MS, SECOND, World


class Two(Groups):
    """A guard on each of two servers."""

    def __init__(self, seed):
        super().__init__(Random(seed), 0, destinations=False, guarded=True)
        self.ids, self.opener = ["s0/p0", "s1/p2"], "s0/p0"

    def agents(self):
        return [self._declared(id, Partner, {"known": self.ids, "destinations": False}) for id in self.ids]


def judged(seed, there, back):
    """The server that was down, and what is wrong, where a message from s0 takes as long as `there`, ms, at least, and
    one to it as `back`."""
    work = Two(seed)
    servers = {name: Server(name, "127.0.0.1", port, None, name) for port, name in enumerate(("s0", "s1"), 20_000)}
    topology = Topology(
        "sim", servers, {"d0": Domain("d0", tuple(servers))}, work.agents(), registry="s0", allow=("mombroker",),
        limits={"probe_ns": PERIOD},
    )  # fmt: skip
    cluster = Cluster(World(seed), topology, Faults(latency=MS, commit=MS, notice=300 * MS), work)
    for node in cluster.nodes.values():
        node.boot()
    cluster.world.run(cluster.world.now + SECOND)
    cluster.network.base = {("s0", "s1"): there * MS, ("s1", "s0"): back * MS}
    cluster.world.run(cluster.world.now + 10 * SECOND)
    work.lookouts.settle(cluster, lambda: work.logs(cluster), True)
    cluster.world.run(cluster.world.now + 10 * SECOND)
    return work.lookouts.server, [*work.lookouts.faults(work.logs(cluster), False)]


@pytest.mark.parametrize(
    "seed, there, back, down", [(1, 500, 500, "s0"), (5, 500, 500, "s1"), (5, 1, 500, "s1"), (11, 1, 600, "s1")]
)
def test_long_ways_are_waited_for(seed, there, back, down):
    """After the outage an answer takes longer than four more: the one of s1, and where s0, the home, was down itself.
    With the last seed one from before the outage comes when that would have ended."""
    assert judged(seed, there, back) == (down, [])


@pytest.mark.parametrize(
    "back, wrong", [(1, "s0 has not told s0/p0 that s1 is up again"), (500, "s0 has told that s1 is down twice")]
)
def test_who_is_not_told_that_a_server_is_up_again_is_found(back, wrong, monkeypatch):
    tell = Lookout._tell

    def tells(lookout, note, agents):
        if not isinstance(note, MemberUp):
            tell(lookout, note, agents)

    monkeypatch.setattr(Lookout, "_tell", tells)
    assert wrong in judged(5, 1, back)[1]


@pytest.mark.parametrize(
    "deaf, wrong",
    [({"s0", "s2"}, []), ({"s0"}, ["s3 has not told that s0 is down"]), (set(), ["s3 has not told that s0 is down"])],
)
def test_who_is_told_who_is_down_is_not_down_itself(deaf, wrong):
    """s0 is down; the home, on s3, has heard nothing of the other guard, on s2, either, as it is far away."""
    members = ["s3/p5", "s0/p0", "s2/p2"]
    logs = {id: [["v", WATCH, 7, members, "s3#651"]] for id in members}
    found = Lookouts(
        Random(1), {"s0/p0": 0, "s2/p2": 0}, server="s0", begin=Moment(logs, {"s3": 700}),
        end=Moment(logs, {"s3": 800}), deaf={(f"s3/group:{WATCH}", server) for server in deaf},
        quiet={"s3": 900},
    )  # fmt: skip
    assert [*found.faults(logs, False)] == wrong


@pytest.mark.parametrize("back, right", [("up", True), ("down", False)])
def test_who_is_down_before_somebody_else_wants_to_know_is_told_later(back, right):
    """The home, on s3, has not heard of s2 for long when it tells that s0 is down: nobody was there to be told. The
    guard on s2 is told when that is up again; if it was up all the time that is too late."""
    members = ["s3/p5", "s0/p0", "s2/p2", "s4/p4"]
    view = ["v", WATCH, 7, members, "s3#651"]
    logs = {
        "s3/p5": [view],
        "s2/p2": [view, ["w", WATCH, "down", ["s0/p0"], "s3#703"]],
        "s4/p4": [view, ["w", WATCH, "down", ["s0/p0"], "s3#700"], ["w", WATCH, back, ["s2/p2"], "s3#702"]],
    }
    found = Lookouts(Random(1), {"s2/p2": 0, "s4/p4": 0}, quiet={"s3": 900})
    told = "s3 has told that s0 is down, and not to ['s2/p2', 's4/p4'] but to ['s4/p4']"
    assert (told not in [*found.faults(logs, False)]) is right


@pytest.mark.parametrize("up, right", [("s4/p4", True), ("s5/p1", False)])
def test_who_is_up_again_is_told_what_all_others_could_not_be(up, right):
    """When s2 went down s4 was down, and nobody else was there to be told. The guard on s0, which has come since, hears
    that s4 is up, and the one there that s2 is down; had it not been down itself, both would have to be told."""
    members = ["s3/p5", "s0/p0", "s2/p2", "s4/p4", "s5/p1"]
    view = ["v", WATCH, 8, members, "s3#669"]
    back = ["w", WATCH, "up", ["s2/p2"], "s3#711"]
    logs = {
        "s0/p0": [view, ["w", WATCH, "up", [up], "s3#674"], back],
        "s2/p2": [view],
        "s3/p5": [view],
        "s4/p4": [view, ["w", WATCH, "down", ["s2/p2"], "s3#676"], back],
    }
    found = Lookouts(Random(1), {"s0/p0": 0, "s2/p2": 0, "s4/p4": 0}, quiet={"s3": 900})
    told = "s3 has told that s2 is down, and not to ['s0/p0', 's2/p2', 's4/p4'] but to ['s4/p4']"
    assert (told not in [*found.faults(logs, False)]) is right
