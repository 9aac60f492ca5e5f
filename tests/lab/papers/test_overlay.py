"""Paper 000 again: counts and bytes are exact, delays are those of the model."""

from functools import cache
from statistics import correlation, fmean, stdev

import pytest

from mombroker.lab.papers import overlay, overlay_claims
from mombroker.lab.papers.base import CONTROL, FAILS, FORETOLD, HOLDS, PARTLY, Table, judge
from mombroker.lab.papers.overlay_claims import MULTICAST, OVERLAY, UNICASTS
from mombroker.ordering.hypercube import flood, hypercube
from mombroker.sim.world import World


def run(n, d, protocol, seed=1, **more):
    return overlay.run({"n": n, "d": d, "protocol": protocol, "seed": seed, "graph": 1} | overlay.RATE | more)


# n, data -> mean delay, greatest (ms), of Overlay, unicasts, multicast; tolerance 30 %
EXPECTED = {(100, 0): ((7.4, 29), (83, 314), (10.2, 37)), (300, 100): ((16.7, 70), (308, 1198), (21.3, 109))}


@pytest.mark.parametrize(("n", "d"), [(20, 0), (20, 2000)])
def test_counts_and_bytes_are_exact(n, d):
    """100 messages; each fragment of at most 1500 bytes has 32 more."""
    found = {protocol: run(n, d, protocol) for protocol in overlay.PROTOCOLS}
    copies = 100 * flood(hypercube(n))
    parts = 2 if d else 1
    assert found[OVERLAY]["messages"] == parts * copies
    assert found[OVERLAY]["bytes"] == copies * (4 + d + 32 * parts)
    for protocol in (UNICASTS, MULTICAST):
        assert found[protocol]["messages"] == parts * 100 * (n - 1)
        assert found[protocol]["bytes"] == 100 * (n - 1) * (4 * n + d + 32 * parts)
    assert found[MULTICAST]["hops"] == parts * 100 * (n - 1) < found[UNICASTS]["hops"] < found[OVERLAY]["hops"]
    assert found[OVERLAY]["held_most_here"] == found[OVERLAY]["held_pct"] == 0


def test_timestamp_takes_as_long_as_an_independent_model():
    for protocol, delays in zip(overlay.PROTOCOLS[1:], EXPECTED[100, 0][1:], strict=True):
        runs = [run(100, 0, protocol, seed) for seed in (1, 2, 3)]
        for column, expected in zip(("delay_ms", "delay_max_ms"), delays, strict=True):
            assert sum(each[column] for each in runs) / 3 == pytest.approx(expected, rel=0.3)


FEW_LINKS = pytest.mark.xfail(
    strict=True, reason="a sender with few links decides: here it is 1,650 ± 60 ms, by the loads of 1,000 graphs"
)


@pytest.mark.long
@pytest.mark.parametrize("column", ["delay_ms", "delay_max_ms"])
@pytest.mark.parametrize("at", range(3), ids=overlay.PROTOCOLS)
@pytest.mark.parametrize(("n", "d"), EXPECTED)
def test_delays_are_those_of_an_independent_model(n, d, at, column, request):
    """Of unicasts the most loaded link of a sender decides: six graphs of 300 nodes take 278 to 455 ms. So the three
    graphs that are run are weighed against 600 others (60 of the overlay, whose graphs vary less)."""
    if (n, at, column) == (300, 1, "delay_max_ms"):
        request.applymarker(FEW_LINKS)
    found = Table(measured(n, d, overlay.PROTOCOLS[at])).at("3", overlay.PROTOCOLS[at], n, column)
    assert found == pytest.approx(EXPECTED[n, d][at][column == "delay_max_ms"], rel=0.3)


@pytest.mark.long
def test_the_greatest_delay_of_unicasts_in_the_graph_in_the_middle_is_within_30_per_cent():
    """A run's greatest delay is what its loads foretell, but for 1 %; so the loads of 400 graphs show what single ones
    give. That of the independent model lies among them: above one in twenty, and below the median."""
    n, d, expected = 300, 100, EXPECTED[300, 100][1][1]
    runs = [run(n, d, UNICASTS, seed) for seed in (1, 2, 3)]
    factors = [each["delay_max_ms"] / each[FORETOLD + "delay_max_ms"] for each in runs]
    assert max(factors) / min(factors) < 1.01
    params, world = {"n": n, "protocol": UNICASTS, "degree": 0, "seed": 1}, World(0)
    drawn = [overlay.loads(UNICASTS, *overlay.drawn(params, graph, world)) for graph in range(1, 401)]
    graphs = sorted(fmean(factors) * each["delay_max_ms"] for each in drawn)
    assert graphs[200] == pytest.approx(expected, rel=0.3)
    assert graphs[20] < expected < graphs[200]


@cache
def measured(n, d, protocol):
    point = {"figure": "3", "setting": protocol, "x": n}
    rows = [point | {"seed": seed} | run(n, d, protocol, seed) for seed in (1, 2, 3)]
    for seed in (1, 2, 3):
        params = {"n": n, "protocol": protocol, "degree": 0, "seed": seed, "graphs": 20 if protocol == OVERLAY else 200}
        rows.append(point | {"figure": CONTROL, "seed": seed} | overlay.run(params))
    return rows


def test_the_same_seed_gives_the_same_run_and_another_graph_another():
    assert run(16, 0, OVERLAY) == run(16, 0, OVERLAY) != run(16, 0, OVERLAY, seed=2)
    assert run(16, 0, OVERLAY)["degree_mean"] == run(16, 0, UNICASTS)["degree_mean"]


def test_readings_change_the_run():
    assert run(60, 0, UNICASTS, degree=2)["degree_mean"] < run(60, 0, UNICASTS)["degree_mean"]
    slow = run(60, 0, MULTICAST, **overlay.SLOW)
    assert slow["ms"] > 250 and slow["messages"] == 300 * 59


@pytest.mark.parametrize("figure", [str(figure) for figure in range(3, 18)])
def test_every_figure_has_points_of_three_curves_and_claims(figure):
    points = overlay.points(figure, False, (1, 2), {})
    mine = [point for point in points if point.figure == figure]
    assert {point.setting for point in mine} == set(overlay.PROTOCOLS)
    assert {point.params["d"] for point in mine} == {(0, 100, 1000)[int(figure) % 3]}
    assert any(claim.figure == figure for claim in overlay.PAPER.claims)


def test_claims_are_judged_by_what_was_run():
    """Every point of one seed and one size, as if that were all there is."""
    rows = [
        {"figure": point.figure, "setting": point.setting, "x": point.x, **point.params}
        | run(16, point.params["d"], point.setting)
        for point in overlay.points("6", False, (1,), {})
        if point.x == 100 and point.params.get("graph") == 1
    ]
    for row in rows:
        row["x"] = 16
    found = {
        (figure, row["claim"]): row["verdict"] for figure in "678" for row in judge(overlay.CLAIMS, figure, Table(rows))
    }
    assert found["6", "Timestamp sends fewer messages"] == HOLDS
    assert found["8", "with 1000 bytes Overlay sends more bytes"] == HOLDS
    assert found["7", "Overlay sends fewer bytes even with 100 bytes of data"] == FAILS
    exact = [verdict for (_, claim), verdict in found.items() if "n log n" in claim]
    assert exact == [HOLDS] * 3
    for row in rows:
        row["messages"] += 1
    spoilt = judge(overlay.CLAIMS, "6", Table(rows))
    assert [row["verdict"] for row in spoilt if "n log n" in row["claim"]] == [PARTLY]


@pytest.mark.parametrize("reading", [{}, *overlay.PAPER.readings.values()])
def test_floods_are_counted_exactly_under_every_reading(reading):
    point = next(point for point in overlay.points("6", False, (1,), reading) if point.setting == OVERLAY)
    rows = [
        {"figure": "6", "setting": setting, "x": 12} | overlay.run(point.params | {"n": 12, "protocol": setting})
        for setting in (OVERLAY, UNICASTS)
    ]
    found = overlay_claims.counts("6")(Table(rows))
    assert found.verdict == HOLDS and "exactly" in found.why and "Timestamp: 1 at n = 12" in found.measured


def test_the_sustained_points_are_of_the_same_graphs_as_the_others():
    points = overlay.points("12", False, (1,), {"degree": 2, "per_ms": 5})
    assert {point.params["degree"] for point in points} == {2}
    slow = [point.params for point in points if point.figure == overlay_claims.SUSTAINED]
    assert slow == [
        point.params for point in overlay.points(overlay_claims.SUSTAINED, False, (1,), {"degree": 2, "per_ms": 5})
    ]
    assert slow and all(overlay.SLOW.items() <= params.items() for params in slow)


@pytest.mark.parametrize("protocol", overlay.PROTOCOLS)
def test_what_a_graph_foretells_is_what_a_run_shows(protocol):
    """Over ten graphs of 24 nodes: the links that are loaded most decide."""
    runs = [run(24, 0, protocol, graph=graph, per_ms=4, degree=3) for graph in range(1, 11)]
    exact = [("queue_most", 0.99)] if protocol == UNICASTS else []  # what a sender puts on a link at once
    for column, least in (("hops", 0.95), ("delay_ms", 0.5), *exact):
        values, foretold = ([each[name] for each in runs] for name in (column, FORETOLD + column))
        if len(set(values)) > 1:
            assert correlation(values, foretold) > least
    drawn = {"n": 24, "protocol": protocol, "seed": 1, "degree": 3, "graphs": 10}
    control = overlay.run(drawn)
    assert control["queue"] == pytest.approx(fmean(each[FORETOLD + "queue"] for each in runs))
    assert control["queue_error"] == pytest.approx(stdev(each[FORETOLD + "queue"] for each in runs) / 10**0.5)


def test_where_the_links_can_carry_the_load_it_foretells_nothing():
    slow = run(20, 0, MULTICAST, **overlay.SLOW)
    assert not any(column.startswith(FORETOLD) for column in slow)
    points = overlay.points("15", False, (1, 2), overlay.SLOW)
    assert not any(point.figure == CONTROL for point in points)
