"""A bus that changes under load while its servers and clients are killed: nothing is lost, repeated or out of order."""

from random import Random

import pytest

from mombroker.admin import supervisor
from mombroker.admin.bench import changechaos, clientchaos, ledger
from mombroker.broker.policy import policy
from mombroker.core import revision
from mombroker.core.errors import MomError


def test_some_changes(tmp_path):
    row = changechaos.run(2, 1.5, 5, tmp_path)
    assert row["faults"] == [] and row["clean"]
    assert sum(row["changes"].values()) == 2 and row["server_kills"] and row["client_kills"]
    assert row["seen"] > 0.8 * row["sent"] and row["sent"] > 100 and row["told"] > 100
    pauses = {*row["changes"]} - {"attach", "settings"}  # what is drawn depends on kills, too, and these hold nothing
    assert not pauses or (row["pauses"] and row["pause_p50_ms"] > 0), row


def test_a_storm_that_is_cut_short_says_how_far_it_was(tmp_path, monkeypatch):
    def cut(it):
        it.watcher.made["split"] = 3
        it.watcher.started("s8", 1)
        it.watcher.ended("s8", "stopped", False)

    monkeypatch.setattr(supervisor.Supervisor, "run", cut)
    monkeypatch.setattr(changechaos.ChangeStorm, "_end", lambda storm: None)
    with pytest.raises(MomError, match="^3 of 9 changes were made; stopped by a signal before it was over"):
        changechaos.run(9, 1.0, 1, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_a_hundred_changes(tmp_path, seed):
    row = changechaos.run(100, 3.0, seed, tmp_path)
    assert row["faults"] == [] and row["clean"]
    assert set(row["changes"]) == {"attach", "settings", "split", "merge", "move", "router", "back end"}
    assert row["server_kills"] > 20 and row["client_kills"] > 10


def test_every_kind_of_change_is_made(tmp_path):
    """One after another, each a successor of the one before."""
    storm = changechaos.ChangeStorm(
        changechaos.topology_of(tmp_path, 1), 0.0, 1.0, Random(1), journal=tmp_path / "journal", changes=80
    )
    topology, made = storm.topology, set()
    for _ in range(80):
        new = storm._make(topology)
        revision.read(revision.text_of(new))  # raises if anything is wrong with it
        topology = revision.read(revision.text_of(new), new)
        made.add(storm._kind)
        assert all(map(policy, topology.policies))
    assert made == {"attach", "settings", "split", "merge", "move", "router", "back end"}
    assert len(topology.servers) == changechaos.MOST_SERVERS
    assert topology.servers["s8"].data == str(tmp_path / "s8")


def test_a_connection_that_is_lost_though_its_server_lives_is_a_fault(tmp_path):
    topology = changechaos.topology_of(tmp_path, 1)
    storm = clientchaos.ClientStorm(topology, 0.0, 1.0, Random(1))
    ports = {name: int(str(server.stomp).rpartition(":")[2]) for name, server in topology.servers.items()}
    book = ledger.Ledger(clientchaos.streams())
    storm.deaths = [("s1", 100.0), ("s2", 200.0)]
    for conn, server, since, end in [("c1", "s1", 50.0, 100.1), ("c2", "s1", 101.0, 150.0), ("c3", "s2", 150.0, 199.9)]:
        book.take(["lost", conn, ports[server], since, end])
    assert storm.unexplained(book.cut_off) == [("c2", "s1")]


def test_what_probes_see_is_told_by_where_and_when():
    held = [("a", 10_000_000_000, 10_200_000_000), ("b", 10_000_000_000, 10_100_000_000)]
    steps = [("split", 9.9, 10.4), ("attach", 20.0, 21.0)]
    probes = [
        ("a", 1.0, 3.0, 4.0), ("a", 9.95, 40.0, 60.0), ("b", 10.15, 7.0, 8.0), ("c", 10.05, 5.0, 6.0),
        ("c", 10.3, 900.0, 900.0), ("a", 20.5, 9.0, 10.0), ("a", 30.0, 1.0, 2.0),
    ]  # fmt: skip
    row = changechaos.meanwhile(probes, held, steps)
    seen = {where: row[f"{where}_probes"] for where in ("calm", "inside", "outside", "attach")}
    assert seen == {"calm": 2, "inside": 1, "outside": 2, "attach": 1}
    assert (row["inside_receipt_p99_ms"], row["inside_message_p99_ms"]) == (40.0, 60.0)
    assert (row["outside_message_p99_ms"], row["attach_receipt_p50_ms"]) == (8.0, 9.0)
    assert changechaos.meanwhile([], held, steps) == {}


def test_a_rate_without_kills(tmp_path):
    row = changechaos.run(4, 1.5, 5, tmp_path, rate=200.0, kills=False)
    assert row["faults"] == [] and row["clean"]
    assert row["server_kills"] == row["client_kills"] == row["cut_off"] == 0
    probes = sum(row[f"{where}_probes"] for where in ("calm", "inside", "outside", "attach"))
    assert probes > 0 and row["per_s"] > 0 and row["told"] > 100  # where each falls is up to the machine
