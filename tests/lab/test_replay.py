"""Traffic on a topology: what the replay counts is what the routes say, and what real servers do."""

from statistics import fmean

import pytest

from mombroker import store
from mombroker.admin.audit.bus import audit
from mombroker.core import layouts
from mombroker.core.topology import Domain, Topology
from mombroker.lab.bus_workloads import Send
from mombroker.lab.communities import SHAPES, communities, uniform
from mombroker.lab.recording import mixed, paced, record
from mombroker.lab.replay import Delays, Links, acts, replay
from mombroker.sim.world import EPOCH, MS, World


def chain(backend=""):
    bus = layouts.build({"left": ["a", "b", "c"], "right": ["c", "d", "e"]})
    domains = {name: Domain(name, domain.members, backend) for name, domain in bus.domains.items()}
    return Topology(bus.name, bus.servers, domains, registry="a")


def test_a_multicast_is_one_packet_for_each_next_server():
    played = replay(chain(), [Send(5, "a", ("b", "d", "e"))])
    assert (played.messages, played.copies, played.hops) == (1, 3, 5)
    assert {name: tally.packets for name, tally in played.domains.items()} == {"left": 2, "right": 2}


def test_acts_say_what_each_domain_carries_and_when():
    """In the order of the links: c has what a has sent later not before what a has sent first."""
    sends = [Send(7, "a", ("b", "d", "e")), Send(7 + MS, "a", ("d",)), Send(9, "d", ("e",))]
    for seed in range(20):
        found = acts(chain(), sends, Delays(10 * MS), seed)
        assert [(act.number, act.server, act.peers) for act in found["left"]] == [
            (1, "a", ("b", "c")),
            (2, "a", ("c",)),
        ]
        right = [(act.number, act.server, act.peers) for act in found["right"]]
        assert right == [(3, "d", ("e",)), (1, "c", ("d", "e")), (2, "c", ("d",))]
        assert [act.at - EPOCH for act in found["left"]] == [0, MS] and found["right"][1].at >= EPOCH + 5 * MS
    played = replay(chain(), sends)
    assert {name: len(each) for name, each in found.items()} == {"left": 2, "right": 3}
    assert {name: sum(len(act.peers) for act in each) for name, each in found.items()} == {
        name: tally.packets for name, tally in played.domains.items()
    }


@pytest.mark.parametrize("gap", [100, 10, 1, 0.1])
def test_a_link_takes_as_long_in_the_mean_however_busy_it_is(gap):
    world, took = World(3), []
    links = Links(world, ["a", "b"], Delays(10 * MS))

    def send():
        took.append(links.arrival(0, 1) - world.now)

    for at in range(int(4000 / min(gap, 1))):
        world.after(int(at * gap * MS), send)
    world.run()
    assert fmean(took) == pytest.approx(10 * MS, rel=0.15)


def test_what_comes_first_is_played_and_not_counted():
    sends = [Send(at * MS, "a", ("b", "d") if at < 5 else ("c",)) for at in range(10)]
    whole, rest = replay(chain(), sends), replay(chain(), sends, first=5)
    assert (whole.messages, whole.copies, whole.hops) == (10, 15, 20) and (rest.messages, rest.copies, rest.hops) == (
        5,
        5,
        5,
    )
    assert rest.total.packets == 5 and whole.total.packets == 20


def test_what_overtakes_its_cause_is_held():
    """a tells c slowly and b quickly, and what b then tells c has to wait."""
    bus = layouts.build({"d": ["a", "b", "c"]})
    sends = [Send(EPOCH, "a", ("c",)), Send(EPOCH + 1, "a", ("b",)), Send(EPOCH + 100 * MS, "b", ("c",))]
    played = replay(bus, sends, Delays(MS, {("a", "c"): 900 * MS}))
    assert played.total.held == 1 and played.total.held_ns > 100 * MS


@pytest.mark.parametrize("backend", ["matrix", "ks", "vector", "overlay", "daisy", "rst"])
def test_every_back_end_carries_a_replay(backend):
    traffic = uniform(9, 3)
    played = replay(chainlike(traffic, backend), traffic.sends(200))
    assert played.copies == 200 and played.total.control_bytes > 0


def chainlike(traffic, backend):
    return layouts.build(layouts.bus(traffic.servers), servers=traffic.servers, ordering=backend)


def test_hidden_communities_are_a_forest_and_the_same_each_time():
    shapes = set()
    for seed in range(1000, 1020):
        traffic = communities(seed)
        assert 24 <= len(traffic.servers) <= 120
        assert traffic.split().servers.keys() == set(traffic.servers)  # valid: a Topology refuses cycles
        shapes.add("backbone" in traffic.hidden)
    assert shapes == {True, False} and len(SHAPES) == 3
    assert communities(1004).sends(50) == communities(1004).sends(50)
    assert communities(1004).sends(50) != communities(1005).sends(50)


def test_most_traffic_stays_in_its_community():
    traffic = communities(1001, 40)
    home = {server: name for name, members in traffic.hidden.items() if name != "backbone" for server in members}
    sends = traffic.sends(2000)
    inside = sum(home[send.origin] == home[dest] for send in sends for dest in send.dests)
    assert inside > 0.7 * sum(len(send.dests) for send in sends)


def test_real_servers_stamp_as_many_packets_as_the_replay(tmp_path):
    traffic = communities(5, 9)
    topology = mixed(traffic, ("matrix", "ks"))
    sends = paced(traffic.sends(300), 3000)
    truth = record(topology, sends, tmp_path)
    played = replay(topology, sends)
    assert truth.messages == 300 + 9  # and an agent made on each server
    assert {name: row["packets"] for name, row in truth.domains().items()} == {
        name: tally.packets for name, tally in played.domains.items() if tally.packets
    }
    control = sum(row["control_bytes"] for row in truth.domains().values())
    assert control == pytest.approx(played.total.control_bytes, rel=0.15)
    passages = [each for passed in truth.passages.values() for each in passed]
    assert all(each.stamped <= each.durable <= each.arrived <= each.ordered for each in passages)


def test_the_stores_of_a_recorded_bus_know_each_other(tmp_path):
    """As those of a bus that ran: `mom check` has nothing to say about them, and servers could go on with them."""
    traffic = communities(1, 9)
    topology = mixed(traffic, ["matrix", "ks"])
    record(topology, paced(traffic.sends(50), 500), tmp_path)
    stores = {name: store.read(tmp_path / name) for name in topology.servers}
    met = [row for each in stores.values() for row in each.links() if row.incarnation]
    assert met and all(row.incarnation == stores[row.peer].meta()["incarnation"] for row in met)
    found = audit(topology, stores)
    assert found.clean and found.sends >= 50 and not found.restored
