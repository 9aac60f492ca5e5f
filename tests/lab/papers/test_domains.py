"""Paper 004 again: in the model of cost round trips are exact."""

import pytest

from mombroker.lab.papers import domains
from mombroker.lab.papers.base import FAILS, HOLDS, UNKNOWN, Table, judge


def run(layout, kind, n, rounds=3, **more):
    return domains.run({"layout": layout, "kind": kind, "n": n, "rounds": rounds} | domains.COMMON | more)


def test_a_round_trip_on_the_own_server_takes_no_hop():
    assert {run("flat", "local", n)["rtt_ms"] for n in (5, 40)} == {0}


@pytest.mark.parametrize("n", [5, 20, 45])
def test_a_remote_round_trip_takes_two_hops_of_all_cells(n):
    assert run("flat", "remote", n)["rtt_ms"] == pytest.approx(2 * (1 + 0.01 * n * n))
    assert run("flat", "remote", n, a_us=0.0, b_us=100.0)["rtt_ms"] == pytest.approx(2 * 0.1 * n * n)


@pytest.mark.parametrize("n", [25, 100, 1000])
def test_on_the_bus_it_takes_at_most_six_hops_of_few(n):
    found = run("bus", "remote", n)
    assert found["rtt_ms"] <= 6 * (1 + 0.01 * n) and found["hops"] <= 6
    assert found["rtt_ms"] - found["hops"] == pytest.approx(found["clock_ms"])


def test_cells_that_receivers_compare_with_their_own():
    """Alone on its link a message carries its own number, which is compared to decide, and again to learn it. A round
    to all tells of the others, too. Other clocks have no cells."""
    assert {run("flat", "remote", n)["compared"] for n in (5, 40)} == {4}
    assert run("flat", "remote", 5)["compared"] < run("bus", "remote", 9)["compared"] < 16
    few, many = (run("flat", "broadcast", n) for n in (5, 20))
    assert many["compared"] > 4 * few["compared"] > 4 * few["hops"] * 2
    assert run("flat", "remote", 5, ordering="ks")["compared"] == 0


def test_a_server_does_one_thing_after_another():
    """Half of each hop, there and back, is work of the main agent's server, which is never idle."""
    n, hop = 10, 1 + 0.01 * 100
    assert run("flat", "broadcast", n)["rtt_ms"] == pytest.approx(hop * (n - 1))
    assert run("flat", "broadcast", n)["hops"] == 2 * (n - 1)


def rows(figure, n=10**9):
    return [
        {"figure": point.figure, "setting": point.setting, "x": point.x, **point.params, **domains.run(point.params)}
        for point in domains.points(figure, False, (1,), {})
        if point.x <= n
    ]


def test_claims_are_judged_by_fitted_exponents():
    found = rows("8")
    assert [row["verdict"] for row in judge(domains.CLAIMS, "8", Table(found))] == [HOLDS, UNKNOWN]
    for row in found:
        row["clock_ms"] = row["clock_ms"] ** 0.5
    assert judge(domains.CLAIMS, "8", Table(found))[0]["verdict"] == FAILS
    assert [row["verdict"] for row in judge(domains.CLAIMS, "11", Table(rows("11")))] == [HOLDS] * 2


@pytest.mark.parametrize("figure", domains.PAPER.figures)
def test_every_figure_has_points_and_claims(figure):
    for full in (False, True):
        points = domains.points(figure, full, (1,), {})
        assert {point.figure for point in points} == {figure}
        assert max(point.x for point in points) == (50 if figure in "89" else 1000)
    assert any(claim.figure == figure for claim in domains.CLAIMS)
