"""Each claim of paper 000 by a table that holds and by one that does not."""

import pytest

from mombroker.ordering.hypercube import flood, hypercube
from mombroker.sim.papers import overlay_claims as claims
from mombroker.sim.papers.base import FAILS, HOLDS, PARTLY, Table, judge
from mombroker.sim.papers.overlay_claims import MULTICAST, OVERLAY, SUSTAINED, UNICASTS

NS = (100, 200)


def table(column, figures, **more):
    """figure -> (Overlay, unicasts, multicast): a value of all sizes, or one of each."""
    return Table(
        {"figure": figure, "setting": setting, "x": n, column: value[at] if isinstance(value, tuple) else value,
         "per_ms": 10, "burst_ms": 1} | more
        for figure, values in figures.items()
        for setting, value in zip((OVERLAY, UNICASTS, MULTICAST), values, strict=True)
        for at, n in enumerate(NS)
    )  # fmt: skip


def all_of(*columns):
    """Tables with the same rows, as one."""
    return Table(
        {k: v for row in rows for k, v in row.items()} for rows in zip(*(t.rows for t in columns), strict=True)
    )


def verdict(text, figure, found):
    chosen = [claim for claim in claims.CLAIMS if text in claim.text and claim.figure == figure]
    (row,) = judge(chosen, figure, found)
    return row["verdict"]


LESS = (1, 2, 2), (2, 1, 1), (1, 2, 0.5)  # by Overlay; by Timestamp; by Overlay only beside unicasts


@pytest.mark.parametrize(
    ("text", "figure", "columns", "verdicts"),
    [
        ("delivers much faster", "3", ["delay_ms", "delay_max_ms"], (HOLDS, FAILS, PARTLY)),
        ("faster for small messages", "4", ["delay_ms"], (HOLDS, FAILS, PARTLY)),
        ("Timestamp becomes faster", "5", ["delay_ms", "delay_max_ms"], (FAILS, HOLDS, PARTLY)),
        ("Timestamp sends fewer messages", "6", ["messages"], (FAILS, HOLDS, FAILS)),
        ("Timestamp sends fewer messages", "7", ["messages"], (FAILS, HOLDS, FAILS)),
        ("Timestamp sends fewer messages", "8", ["messages"], (FAILS, HOLDS, FAILS)),
        ("without data Overlay sends fewer", "6", ["bytes"], (HOLDS, FAILS, HOLDS)),
        ("even with 100 bytes", "7", ["bytes"], (HOLDS, FAILS, HOLDS)),
        ("sends more bytes", "8", ["bytes"], (FAILS, HOLDS, FAILS)),
        ("fewer hops", "9", ["hops"], (FAILS, HOLDS, PARTLY)),
        ("fewer hops", "10", ["hops"], (FAILS, HOLDS, PARTLY)),
        ("fewer hops", "11", ["hops"], (FAILS, HOLDS, PARTLY)),
        ("larger mean queues", "15", ["queue", "queue_bytes"], (HOLDS, FAILS, PARTLY)),
        ("greatest queues are", "15", ["queue_most", "queue_most_bytes"], (FAILS, HOLDS, PARTLY)),
    ],
)  # fmt: skip
def test_who_has_less(text, figure, columns, verdicts):
    for values, expected in zip(LESS, verdicts, strict=True):
        found = all_of(*(table(column, {figure: values}) for column in columns))
        assert verdict(text, figure, found) == expected
    mixed = all_of(*(table(column, {figure: ((1, 2), 1.5, 1.5)}) for column in columns))
    assert verdict(text, figure, mixed) == PARTLY


@pytest.mark.parametrize(
    ("large", "expected"), [((1, 1.5, 2), HOLDS), ((1, 0.6, 1.2), HOLDS), ((1, 2.5, 2), PARTLY), ((1, 9, 9), FAILS)]
)
def test_a_gap_that_shrinks(large, expected):
    """Twice and three times without data."""
    assert verdict("difference decreases", "4", table("delay_ms", {"3": (1, 2, 3), "4": large})) == expected


@pytest.mark.parametrize(("large", "expected"), [((20, 10, 10), HOLDS), ((20, 30, 10), PARTLY), ((20, 30, 30), FAILS)])
def test_whose_delay_grows_more(large, expected):
    assert verdict("more influenced", "5", table("delay_ms", {"3": (1, 1, 1), "5": large})) == expected


@pytest.mark.parametrize(("sends", "off", "expected"), [(100, 0, HOLDS), (300, 0, HOLDS), (100, 1, PARTLY)])
def test_a_flood(sends, off, expected):
    floods = tuple(sends * flood(hypercube(n)) + off for n in NS)
    for figure in "678":
        found = table("messages", {figure: (floods, 99, 99)}, sends=sends)
        assert verdict("n log n", figure, found) == expected
        too_many = table("messages", {figure: ((sends * 9000, sends * 9000), 99, 99)}, sends=sends)
        assert verdict("n log n", figure, too_many) == FAILS


@pytest.mark.parametrize(
    ("few", "some", "many", "expected"),
    [(2, 0.5, 0.5, HOLDS), (2, 2, 0.5, PARTLY), (0.5, 2, 2, FAILS)],
)
def test_where_fewer_bytes_are_sent(few, some, many, expected):
    """Printed is a limit of 17 bytes for 100 nodes and of 29 for 200."""
    figures = {figure: (1, ratio, ratio) for figure, ratio in (("6", few), ("7", some), ("8", many))}
    assert verdict("d < n", "8", table("bytes", figures)) == expected
    found = claims.crossover(table("bytes", figures))
    assert "below" in found.why and "below" not in found.measured
    assert ("leaves out" in found.why) == (expected != HOLDS)


@pytest.mark.parametrize("figure", ["12", "13", "14"])
def test_queues_that_are_empty_and_others_that_are_not(figure):
    for values, empty, kept in (((0, 1, 1), HOLDS, HOLDS), ((1, 0, 1), FAILS, PARTLY), (((0, 1), 0, 0), FAILS, FAILS),
                                ((0, (1, 0), (1, 0)), HOLDS, PARTLY), ((0, 0.04, 0), HOLDS, FAILS)):  # fmt: skip
        found = table("held_most_here", {figure: values})
        assert verdict("always empty", figure, found) == empty
        assert verdict("keeps messages", figure, found) == kept
        assert ("10 messages a ms for 1 ms" in claims.timestamp_queues(figure)(found).why) == (kept != HOLDS)


@pytest.mark.parametrize(("last", "expected"), [((5, 5), HOLDS), ((5, 6), PARTLY), ((6, 0), FAILS)])
def test_data_that_has_little_effect(last, expected):
    found = table("held_most_here", {"12": (0, 0, 3), "13": (0, 0, 4), "14": (0, 0, last)})
    assert verdict("little effect", "13", found) == expected


@pytest.mark.parametrize(
    ("slow", "expected"),
    [((1, 2), HOLDS), ((2, 1), FAILS), ((2, 2), FAILS)],
)
def test_queues_that_become_longer(slow, expected):
    """By the lower rate alone: in a burst there are hardly any at any size."""
    rows = table("held", {"12": (0, 0, 0.06)}).rows + table("held", {SUSTAINED: (0, 0, slow)}, per_ms=0.1).rows
    assert verdict("longer with more nodes", "12", Table(rows)) == expected
    assert "0.1 messages a ms for 1 ms" in claims.queues_grow(Table(rows)).measured


@pytest.mark.parametrize(("large", "expected"), [((2, 2, 2), HOLDS), ((2, 6, 2), PARTLY), ((1, 4, 4), FAILS)])
def test_link_queues_that_increase_in_comparison(large, expected):
    found = all_of(*(table(column, {"15": (1, 2, 3), "17": large}) for column in ("queue_bytes", "queue_most_bytes")))
    assert verdict("link queues increase", "17", found) == expected


def test_queues_whose_means_are_not_sure_are_not_judged():
    def rows(seed, slow):
        found = table("held", {"12": (0, 0, 0.06)}).rows + table("held", {SUSTAINED: (0, 0, slow)}, per_ms=0.1).rows
        return [row | {"seed": seed} for row in found]

    far = Table([*rows(1, (1, 2)), *rows(2, (1.1, 2.1)), *rows(3, (0.9, 1.9))])
    near = Table([*rows(1, (1, 2)), *rows(2, (3, 2)), *rows(3, (1, 3))])
    assert verdict("longer with more nodes", "12", far) == HOLDS
    assert verdict("longer with more nodes", "12", near) == "cannot be judged"
