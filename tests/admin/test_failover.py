"""Leaders of replicated servers are killed, with their disks, while clients go on; and what is broken shows."""

import pytest

from mombroker.admin.bench import failover
from mombroker.net.replicas.consensus import Consensus


def test_some_leaders_are_lost_and_some_hand_over(tmp_path):
    row = failover.run(2, 1, True, 0.5, 3, tmp_path)
    assert row["faults"] == [] and row["clean"]
    assert (row["kills"], row["transfers"]) == (2, 1)
    assert row["kill_max_ms"] > 500, "nobody else leads so soon"
    assert row["receipts"] > 100 and row["seen"] > 0.8 * row["sent"]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_two_hundred_leaders_are_lost_with_their_disks(tmp_path, seed):
    """A quarter of them."""
    row = failover.run(50, 5, True, 0.5, seed, tmp_path)
    assert row["faults"] == [] and row["clean"]
    assert (row["kills"], row["transfers"]) == (50, 5)


@pytest.mark.long
def test_leaders_that_tell_before_a_majority_has_it_are_found(tmp_path, monkeypatch):
    def tell(consensus, store, batch, done):
        SUBMIT(consensus, store, batch, lambda error: None)
        if consensus.replica.leads:
            done(None)

    SUBMIT = Consensus.submit
    monkeypatch.setattr(Consensus, "submit", tell)
    assert not failover.run(6, 0, True, 0.5, 3, tmp_path)["clean"]


def test_how_long_a_client_waits_is_from_its_last_receipt_to_the_next():
    pauses = [("a", 1.0, 1.1), ("a", 2.1, 3.5), ("b", 2.0, 9.0), ("a", 3.5, 3.6)]
    assert failover.lasted(pauses, "a", 2.0) == 1400.0
    assert failover.lasted(pauses, "a", 5.0) == 1000 * failover.LONG_S, "no receipt took long"


def test_what_a_server_has_against_its_neighbour_is_found_in_its_log(tmp_path):
    log = tmp_path / "log.txt"
    log.write_text("x closed the connection to replica a1: fell silent\ny closed the connection from a: gap\n")
    assert failover.said(log) == ["closed the connection from a: gap"]
