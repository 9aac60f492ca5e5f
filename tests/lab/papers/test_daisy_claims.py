"""Each claim of paper 001 by a table that holds and by one that does not."""

import pytest

from mombroker.lab.papers import daisy_claims as claims
from mombroker.lab.papers import daisy_groups
from mombroker.lab.papers.base import FAILS, HOLDS, PARTLY, UNKNOWN, Missing, Table, judge
from mombroker.lab.papers.daisy_claims import DAISY, FLAT


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


def test_the_delay_of_figure_6_is_judged_over_three_hops_too():
    """Of messages for another building it is lower, of those alone that take three hops in the daisy it is not."""
    columns = {"delay_ms": ({1: 15, 10: 22}, {1: 16, 10: 25}), "delay_three_ms": ({1: 17, 10: 26}, {1: 16, 10: 25})}
    rows = zip(*(table("6", column, *curves).rows for column, curves in columns.items()), strict=True)
    found = judge(claims.CLAIMS, "6", Table(one | other for one, other in rows))
    assert [row["verdict"] for row in found] == [HOLDS, FAILS, HOLDS]


def waiting(flat, daisy, kb, off=0.0):
    """Messages by load, and kB of each: of flat so many, of the daisy 1."""
    counts = table("7", "buffered", flat, daisy, off).rows
    return Table(row | {"buffered_kb": row["buffered"] * (kb if row["setting"] == FLAT else 1)} for row in counts)


@pytest.mark.parametrize(("kb", "verdict"), [(2.01, HOLDS), (1.99, FAILS), (0.4, FAILS)])
def test_what_the_memory_is_for(kb, verdict):
    """Twice as many messages, and so many times as large."""
    found = claims.mainly_control(waiting({5: 2, 10: 4}, {5: 1, 10: 2}, kb))
    assert found.verdict == verdict and bool(found.why) == (verdict == FAILS)
    assert "2.0 to 2.0 times as many" in found.measured


def test_what_the_memory_is_for_is_left_open_where_the_numbers_are_not_sure():
    """A mean of 200 ± 25 beside one of 100 ± 25: a ratio of 2 ± 0.56."""
    for kb, verdict in ((3, HOLDS), (2.5, UNKNOWN), (1.5, UNKNOWN), (1.4, FAILS)):
        found = claims.mainly_control(waiting({5: 200}, {5: 100}, kb, 10))
        assert found.verdict == verdict and ("within chance" in found.why) == (verdict == UNKNOWN)


def test_what_the_memory_is_for_where_nothing_waits():
    """In one group: then it is the number. In both: nothing is told."""
    assert claims.mainly_control(waiting({5: 2, 10: 2}, {5: 0, 10: 1}, 3)).verdict == PARTLY
    assert claims.mainly_control(waiting({5: 2}, {5: 0}, 3)).verdict == FAILS
    assert claims.mainly_control(waiting({5: 0}, {5: 2}, 3)).verdict == FAILS
    assert claims.mainly_control(waiting({5: 0, 10: 2}, {5: 0, 10: 1}, 3)).verdict == HOLDS
    with pytest.raises(Missing):
        claims.mainly_control(waiting({5: 0}, {5: 0}, 3))


def test_flat_that_needs_less_does_not_need_more_for_its_control():
    """A third of the messages, twice as large."""
    assert claims.mainly_control(waiting({5: 1}, {5: 3}, 2)).verdict == FAILS
    assert claims.mainly_control(waiting({5: 1}, {5: 3}, 4)).verdict == HOLDS


@pytest.mark.parametrize(("last", "verdict"), [(60.5, HOLDS), (60.7, FAILS), (59.2, FAILS)])
def test_a_stability_delay_that_is_constant(last, verdict):
    """Within a per cent."""
    found = claims.flat_constant(table("8", "stable_ms", {1: 60, 10: last}, {1: 1}, 0))
    assert found.verdict == verdict and "1 %" in found.why


@pytest.mark.parametrize(("off", "verdict"), [(0.1, FAILS), (0.2, UNKNOWN)])
def test_a_stability_delay_may_be_constant_by_chance(off, verdict):
    """60 and 61.2 are 2 % apart, each ± 0.25 or 0.5: 0.6 or 1.2 % of their ratio, beside the per cent that is over."""
    assert claims.flat_constant(table("8", "stable_ms", {1: 60, 10: 61.2}, {1: 1}, off)).verdict == verdict


def test_one_load_tells_nothing_of_a_course():
    for rule in (claims.flat_constant, claims.daisy_grows):
        with pytest.raises(Missing):
            rule(table("8", "stable_ms", {1: 60}, {1: 40}))


def test_a_stability_delay_that_may_grow():
    """Each ± 2.5."""
    for last, verdict in ((46, HOLDS), (44, UNKNOWN), (36, UNKNOWN), (34, FAILS)):
        found = claims.daisy_grows(table("8", "stable_ms", {1: 1}, {1: 30, 5: 40, 10: last}, 1))
        assert found.verdict == verdict
        assert ("within chance, by 95 % intervals: 5 and 10" in found.why) == (verdict == UNKNOWN)
        assert (" always up" in found.measured) == (verdict != UNKNOWN)


@pytest.mark.parametrize(("curve", "verdict"), [((40, 45, 50), HOLDS), ((40, 50, 45), FAILS), ((50, 45, 40), FAILS)])
def test_a_stability_delay_that_grows(curve, verdict):
    assert claims.daisy_grows(table("8", "stable_ms", {1: 1}, dict(enumerate(curve)), 0)).verdict == verdict


@pytest.mark.parametrize(
    ("flat", "daisy", "verdict"), [(60, 4.8, HOLDS), (60, 5.1, PARTLY), (61, 5, PARTLY), (61, 5.1, FAILS)]
)
def test_the_sizes_of_vectors(flat, daisy, verdict):
    rows = table("7", "integers", {1: flat}, {1: daisy}, 0).rows
    assert claims.sizes(Table(row | {"bytes": 4 * row["integers"]} for row in rows)).verdict == verdict


def test_the_longest_vector_is_judged_and_not_the_mean(monkeypatch):
    rows = table("7", "integers", {1: 60}, {1: 4.8}, 0).rows
    found = Table(row | {"bytes": 4 * row["integers"]} for row in rows)
    assert "of 5 in the largest group" in claims.sizes(found).measured
    monkeypatch.setattr(daisy_groups, "LAN", 10)
    assert claims.sizes(found).verdict == PARTLY and "of 10 in the largest group" in claims.sizes(found).measured


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
    assert claims.narrow("6", "delay_ms")(table("6", "delay_ms", {1: 0}, {1: 0}, 0)).verdict == HOLDS
    with pytest.raises(Missing):
        claims.narrow("6", "delay_ms")(Table(wide.rows[:1] + wide.rows[-1:]))


def test_more_processes_were_not_run():
    with pytest.raises(Missing):
        claims.more_processes(Table([]))
