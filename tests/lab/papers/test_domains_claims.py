"""Each claim of paper 004 by a table that holds and by one that does not."""

from math import log
from pathlib import Path

import pytest

from mombroker.lab.papers import domains_claims as claims
from mombroker.lab.papers.base import FAILS, HOLDS, PARTLY, UNKNOWN, Missing, Table

NS = (10, 25, 49, 100, 150, 400, 1000)


def table(figure, constant=0, **curves):
    """layout -> n -> the time; but for `constant` all of it is the clocks'."""
    return Table(
        {"figure": figure, "setting": layout, "x": n, "n": n, "rtt_ms": curve(n), "clock_ms": curve(n) - constant,
         "control_bytes": 4, "hops": 0, "kind": claims.REMOTE, "layout": layout, "a_us": 1000, "b_us": 10}
        for layout, curve in curves.items()
        for n in NS
    )  # fmt: skip


@pytest.mark.parametrize(
    ("power", "verdict"), [(2, HOLDS), (2.14, HOLDS), (2.16, FAILS), (1.86, HOLDS), (1.84, FAILS), (0, FAILS)]
)
def test_without_domains_the_cost_is_quadratic(power, verdict):
    found = claims.grows("8", "flat", 2)(table("8", flat=lambda n: 7 * n**power))
    assert found.verdict == verdict and "by assumption" in found.why and "live" in found.why
    assert "a power of 2, 0.15 off at most, and an R² of 0.95" in found.why


def test_the_whole_time_is_on_the_line_too():
    """Whatever the part of the clocks is."""
    for times, verdict in ((lambda n: 100 + n, HOLDS), (lambda n: 100 + n + 500 * (n == 49), FAILS)):
        rows = table("11", bus=times).rows
        found = claims.grows("11", "bus", 1, 150)(Table(row | {"clock_ms": row["x"]} for row in rows))
        assert found.verdict == verdict


@pytest.mark.parametrize(("power", "verdict"), [(1, HOLDS), (1.2, FAILS), (2, FAILS)])
def test_with_a_bus_it_is_linear_up_to_a_size(power, verdict):
    """Beyond 150 servers it grows faster: a claim about fewer does not mind."""
    found = table("11", bus=lambda n: n**power if n <= 150 else n**3)
    assert claims.grows("11", "bus", 1, 150)(found).verdict == verdict
    assert claims.grows("11", "bus", 1)(found).verdict == FAILS
    with pytest.raises(Missing):
        claims.grows("11", "bus", 1, 30)(found)


@pytest.mark.parametrize(("power", "verdict", "why"), [(2, HOLDS, False), (2.65, FAILS, True), (1.5, FAILS, False)])
def test_a_broadcast_is_quadratic_in_all(power, verdict, why):
    """That all messages pass one server is told only where it takes too long."""
    found = claims.broadcast(table("9", flat=lambda n: n**power))
    assert found.verdict == verdict and ("one after another" in found.why) == why
    assert "a power of 2, 0.15 off at most" in found.why


def test_what_costs_nothing_by_assumption_is_not_judged():
    assert claims.local(table("8", local=lambda n: 0)).verdict == UNKNOWN


@pytest.mark.parametrize(
    ("flat", "bus", "verdict"),
    [
        (1.0, 1.0, HOLDS), (0.99, 1.0, PARTLY), (1.01, 1.0, PARTLY), (0.99, 1.01, FAILS), (1.0, 0.5, HOLDS),
    ],
)  # fmt: skip
def test_the_formula_is_exact_without_domains_and_a_bound_on_the_bus(flat, bus, verdict):
    a, b = 1, 0.01
    flats = table("12", flat=lambda n: flat * 2 * (a + b * n * n)).rows
    buses = table("12", 6 * a * bus, bus=lambda n: bus * 6 * (a + b * n)).rows
    assert claims.formula(Table(flats + buses)).verdict == verdict
    with pytest.raises(Missing):
        claims.formula(Table(flats))


@pytest.mark.parametrize(
    ("power", "verdict"), [(0, PARTLY), (0.84, PARTLY), (0.86, HOLDS), (1.14, HOLDS), (1.16, PARTLY)]
)
def test_the_formula_on_the_bus_is_not_the_bound_alone(power, verdict):
    """What is far below it may be constant."""
    rows = table("12", flat=lambda n: 2 * (1 + 0.01 * n * n)).rows
    rows += table("12", 1, bus=lambda n: 1 + 0.01 * n**power).rows
    found = claims.formula(Table(rows))
    assert found.verdict == verdict and f"to the power {power:.2f}" in found.measured


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (lambda n: n / 20, PARTLY), (lambda n: 0.5, FAILS), (lambda n: 1.5, PARTLY), (lambda n: 3.0, HOLDS),
        (lambda n: 3.0 if n in (10, 1000) else 0.5, PARTLY), (lambda n: 3.0 if n > 400 else 0.5, PARTLY),
        (lambda n: 2.01 if n > 400 else 1.01, HOLDS), (lambda n: 1.99, PARTLY), (lambda n: n / 9, HOLDS),
    ],
)  # fmt: skip
def test_a_gain_is_there_at_every_size_and_clear_in_the_end(ratio, verdict):
    found = claims.gain(table("12", flat=lambda n: 10 * ratio(n), bus=lambda n: 10))
    assert found.verdict == verdict and ("few servers" in found.why) == (ratio(10) < 1)
    assert "more than 2 times as fast at the greatest size" in found.why
    assert ("not so: a gain at n = 10;" in found.why) == (ratio(10) < 1 < ratio(25))


def test_a_tree_that_is_never_worse_than_a_bus():
    for factor, verdict in ((0.9, FAILS), (1.0, FAILS), (1.1, HOLDS)):
        found = table("12", tree=lambda n, by=factor: n if n > 10 else by * n, bus=lambda n: n)
        assert claims.tree_may_lose(found).verdict == verdict


def test_a_cost_that_grows_as_the_logarithm():
    for power, verdict in ((0.01, HOLDS), (1, FAILS), (0.6, FAILS)):
        found = claims.logarithmic(table("12", tree=lambda n, by=power: n**by))
        assert found.verdict == verdict and "more than 0.9 over log n" in found.why


@pytest.mark.parametrize(
    ("curve", "verdict"), [(lambda n: 5 + log(n), HOLDS), (lambda n: 5, FAILS), (lambda n: 9 - log(n), FAILS)]
)
def test_a_cost_that_does_not_rise_is_not_logarithmic(curve, verdict):
    assert claims.logarithmic(table("12", tree=curve)).verdict == verdict


def test_too_few_sizes_and_no_time_are_no_fault():
    one = [row for row in table("12", tree=lambda n: n, bus=lambda n: n, flat=lambda n: n).rows if row["x"] < 49]
    for rule in (claims.logarithmic, claims.formula):
        with pytest.raises(Missing):
            rule(Table(one))
    nothing = table("12", tree=lambda n: 0, bus=lambda n: 0, flat=lambda n: 0)
    assert claims.tree_may_lose(nothing).verdict == claims.gain(nothing).verdict == FAILS
    with pytest.raises(Missing):
        claims.broadcast(table("9", flat=lambda n: 0))


def test_the_live_figures_are_those_of_the_documents():
    text = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if line.startswith("| ")]
    table = {tuple(row[1:4]): (row[-3], row[-2]) for row in rows if row[1] in (claims.REMOTE, claims.BROADCAST)}
    for (kind, layout), sizes in claims.LIVE.items():
        for n, values in sizes.items():
            assert tuple(f"{value:,g}" for value in values) == table[kind, layout, str(n)]
    assert claims.LOCAL_LIVE.partition(" ms")[0] + " ms in any layout" in " ".join(text.split())
