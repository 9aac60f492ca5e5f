"""Each claim of paper 001 by a table that holds and by one that does not."""

import pytest

from mombroker.sim.papers import daisy_claims as claims
from mombroker.sim.papers.base import FAILS, HOLDS, PARTLY, UNKNOWN, Missing, Table
from mombroker.sim.papers.daisy_claims import DAISY, FLAT


def table(figure, column, flat, daisy, off=0.01):
    """load -> the mean of three runs, which are so far apart; `off` of each setting where they differ."""
    return Table(
        {"figure": figure, "setting": setting, "x": load, "seed": seed, column: value + (seed - 2) * off}
        for setting, curve in ((FLAT, flat), (DAISY, daisy))
        for load, value in curve.items()
        for seed in (1, 2, 3)
    )


@pytest.mark.parametrize(
    ("flat", "daisy", "off", "less_flat", "less_daisy"),
    [
        ({1: 15, 10: 22}, {1: 16, 10: 25}, 0.01, HOLDS, FAILS),
        ({1: 17, 10: 26}, {1: 16, 10: 25}, 0.01, FAILS, HOLDS),
        ({1: 17, 10: 22}, {1: 16, 10: 25}, 0.01, PARTLY, PARTLY),
        ({1: 15.9, 10: 22}, {1: 16, 10: 25}, 0.1, PARTLY, FAILS),  # 0.1 apart, each ± 0.25
        ({1: 15.9, 10: 24.9}, {1: 16, 10: 25}, 0.1, UNKNOWN, UNKNOWN),
    ],
)
def test_which_is_lower_where_the_intervals_do_not_overlap(flat, daisy, off, less_flat, less_daisy):
    found = table("6", "delay_ms", flat, daisy, off)
    for who, verdict in ((FLAT, less_flat), (DAISY, less_daisy)):
        judged = claims.lower("6", "delay_ms", who, "ms", ".2f")(found)
        assert judged.verdict == verdict
        assert ("within chance, by 95 % intervals: a load of 1" in judged.why) == (off > 0.01)
        assert ("so" in judged.why) == (verdict == FAILS or flat[1] == 17 and verdict == PARTLY)


@pytest.mark.parametrize(("kb", "verdict"), [(2 * 2.5, HOLDS), (2 * 1.7, FAILS)])
def test_what_the_memory_is_for(kb, verdict):
    """Twice as many messages, and so many times as large."""
    both = [
        table("7", "buffered", {5: 2, 10: 4}, {5: 1, 10: 2}, 0).rows,
        table("7", "buffered_kb", {5: kb, 10: 2 * kb}, {5: 1, 10: 2}, 0).rows,
    ]
    found = claims.mainly_control(Table(one | other for one, other in zip(*both, strict=True)))
    assert found.verdict == verdict and bool(found.why) == (verdict == FAILS)


@pytest.mark.parametrize(("last", "verdict"), [(60.5, HOLDS), (60.7, FAILS), (59.2, FAILS)])
def test_a_stability_delay_that_is_constant(last, verdict):
    """Within a per cent."""
    assert claims.flat_constant(table("8", "stable_ms", {1: 60, 10: last}, {1: 1}, 0)).verdict == verdict


@pytest.mark.parametrize(("curve", "verdict"), [((40, 45, 50), HOLDS), ((40, 50, 45), FAILS), ((50, 45, 40), FAILS)])
def test_a_stability_delay_that_grows(curve, verdict):
    assert claims.daisy_grows(table("8", "stable_ms", {1: 1}, dict(enumerate(curve)), 0)).verdict == verdict


@pytest.mark.parametrize(
    ("flat", "daisy", "verdict"), [(60, 4.8, HOLDS), (60, 5.1, PARTLY), (61, 5, PARTLY), (61, 5.1, FAILS)]
)
def test_the_sizes_of_vectors(flat, daisy, verdict):
    rows = table("7", "integers", {1: flat}, {1: daisy}, 0).rows
    assert claims.sizes(Table(row | {"bytes": 4 * row["integers"]} for row in rows)).verdict == verdict


@pytest.mark.parametrize(
    ("off", "verdict"),
    [(1.5, HOLDS), (1.7, FAILS)],  # t = 4.303: 4.303 / √3 × 1.6 is 4 % of 100
)
def test_intervals_that_are_narrow(off, verdict):
    for column, figure in (("delay_ms", "6"), ("stable_ms", "8")):
        found = table(figure, column, {1: 100}, {1: 100}, off)
        assert claims.narrow(figure, column)(found).verdict == verdict
    wide = table("6", "delay_ms", {1: 100, 2: 100}, {1: 200, 2: 200}, off * 1.4)
    judged = claims.narrow("6", "delay_ms")(wide)
    assert judged.verdict == PARTLY and judged.why.startswith("wider: flat at a load of 1, flat at a load of 2;")
    with pytest.raises(Missing):
        claims.narrow("6", "delay_ms")(Table(wide.rows[:1] + wide.rows[-1:]))


def test_more_processes_were_not_run():
    with pytest.raises(Missing):
        claims.more_processes(Table([]))
