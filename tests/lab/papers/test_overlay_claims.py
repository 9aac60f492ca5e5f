"""Each claim of paper 000 by a table that holds and by one that does not."""

import pytest

from mombroker.lab.papers import overlay_claims as claims
from mombroker.lab.papers.base import FAILS, HOLDS, PARTLY, UNKNOWN, Missing, Table, judge
from mombroker.lab.papers.overlay_claims import MULTICAST, OVERLAY, SUSTAINED, UNICASTS
from mombroker.ordering.hypercube import flood, hypercube

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


def drawn(*tables):
    """Each of its own seed."""
    return Table(row | {"seed": seed} for seed, each in enumerate(tables) for row in each.rows)


LESS = (1, 2, 2), (2, 1, 1), (1, 2, 0.5)  # by Overlay; by Timestamp; by Overlay only beside unicasts


@pytest.mark.parametrize(
    ("text", "figure", "columns", "verdicts"),
    [
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
    ],
)  # fmt: skip
def test_who_has_less(text, figure, columns, verdicts):
    for values, expected in zip(LESS, verdicts, strict=True):
        found = all_of(*(table(column, {figure: values}) for column in columns))
        assert verdict(text, figure, found) == expected
    mixed = all_of(*(table(column, {figure: ((1, 2), 1.5, 1.5)}) for column in columns))
    assert verdict(text, figure, mixed) == PARTLY


@pytest.mark.parametrize(
    ("values", "expected"),
    [((1, 2.01, 2.01), HOLDS), ((1, 1.99, 1.99), FAILS), ((1, 1.1, 1.1), FAILS), ((1, 9, 1.5), PARTLY), ((2, 1, 1),
     FAILS), ((1, (9, 1), 9), PARTLY)],
)  # fmt: skip
def test_who_is_much_faster(values, expected):
    found = all_of(*(table(column, {"3": values}) for column in ("delay_ms", "delay_max_ms")))
    assert verdict("delivers much faster", "3", found) == expected
    (row,) = judge([claims.CLAIMS[0]], "3", found)
    assert "more than 2 times" in row["why"]


def test_who_may_be_much_faster():
    """A ratio of 2.5 with ± 0.6 or more, of one of 4 that is surely above 2."""

    def run(by, off):
        return all_of(*(table(column, {"3": (1, by + off, 9)}) for column in ("delay_ms", "delay_max_ms")))

    near, far = (drawn(run(by, -0.3), run(by, 0), run(by, 0.3)) for by in (2.5, 4))
    assert verdict("delivers much faster", "3", near) == PARTLY and verdict("delivers much faster", "3", far) == HOLDS


@pytest.mark.parametrize(
    ("large", "expected"),
    [((1, 1.5, 2), HOLDS), ((1, 0.6, 1.2), HOLDS), ((1, 2.5, 2), PARTLY), ((1, 9, 9), FAILS), ((1, 0.51, 0.34), HOLDS),
     ((1, 0.49, 0.32), FAILS), ((1, 0, 1), PARTLY)],
)  # fmt: skip
def test_a_gap_that_shrinks(large, expected):
    """Twice and three times without data: half and a third of it are as far from being the same."""
    assert verdict("difference decreases", "4", table("delay_ms", {"3": (1, 2, 3), "4": large})) == expected


def test_a_gap_that_may_shrink():
    """From 2 to 0.6 ± 0.12: 0.69 and 0.51 ± 0.2 by logarithms."""
    for off, expected in ((0.01, HOLDS), (0.05, UNKNOWN)):
        runs = [table("delay_ms", {"3": (1, 2, 2), "4": (1, 0.6 + by, 0.6 + by)}) for by in (-off, 0, off)]
        assert verdict("difference decreases", "4", drawn(*runs)) == expected


@pytest.mark.parametrize(("large", "expected"), [((20, 10, 10), HOLDS), ((20, 30, 10), PARTLY), ((20, 30, 30), FAILS)])
def test_whose_delay_grows_more(large, expected):
    assert verdict("more influenced", "5", table("delay_ms", {"3": (1, 1, 1), "5": large})) == expected


@pytest.mark.parametrize(("sends", "off", "expected"), [(100, 0, HOLDS), (300, 0, HOLDS), (100, 1, PARTLY)])
def test_a_flood(sends, off, expected):
    floods = tuple(sends * flood(hypercube(n)) + off for n in NS)
    for figure, fragments in (("6", (1, 1)), ("7", (1, 1)), ("8", (1, 2))):
        copies = tuple(sends * (n - 1) * each for n, each in zip(NS, fragments, strict=True))
        found = table("messages", {figure: (floods, copies, copies)}, sends=sends)
        assert verdict("n log n", figure, found) == expected
        squares = tuple(sends * n * n for n in NS)
        assert verdict("n log n", figure, table("messages", {figure: (floods, squares, 1)}, sends=sends)) == PARTLY
        too_many = table("messages", {figure: ((sends * 9000, sends * 9000), 99, 99)}, sends=sends)
        assert verdict("n log n", figure, too_many) == FAILS
        assert "than once to each" in claims.counts(figure)(too_many).why
        with pytest.raises(Missing):
            claims.counts(figure)(table("messages", {figure: (0, 0, 0)}, sends=0))


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


def test_where_fewer_bytes_may_be_sent():
    """With 100 bytes as many, more or less."""
    runs = [table("bytes", {"6": (1, 2, 2), "7": (1, by, by), "8": (1, 0.5, 0.5)}) for by in (0.8, 0.9, 1.2)]
    assert verdict("d < n", "8", drawn(*runs)) == PARTLY
    assert "within chance, by 95 % intervals: 100 bytes at n = 100 / 200" in claims.crossover(drawn(*runs)).why


@pytest.mark.parametrize("figure", ["12", "13", "14"])
def test_queues_that_are_empty_and_others_that_are_not(figure):
    for values, empty, kept in (((0, 1, 1), HOLDS, HOLDS), ((1, 0, 1), FAILS, PARTLY), (((0, 1), 0, 0), FAILS, FAILS),
                                ((0, (1, 0), (1, 0)), HOLDS, PARTLY), ((0, 0.04, 0), HOLDS, FAILS)):  # fmt: skip
        found = table("held_most_here", {figure: values})
        assert verdict("always empty", figure, found) == empty
        assert verdict("keeps messages", figure, found) == kept
        assert "more than 0.05 messages" in claims.timestamp_queues(figure)(found).why
        assert ("10 messages a ms for 1 ms" in claims.timestamp_queues(figure)(found).why) == (kept != HOLDS)


def queues(greatest, mean):
    """Of both readings of Timestamp, with 0, 100 and 1000 bytes."""
    return all_of(*(
        table(column, {figure: (0, value, value) for figure, value in zip(("12", "13", "14"), values, strict=True)})
        for column, values in (("held_most_here", greatest), ("held", mean))
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("greatest", "mean", "expected"),
    [
        ((3, 4, 4.4), (1, 1, 1), HOLDS), ((3, 4, (4.4, 4.6)), (1, 1, 1), PARTLY), ((3, 4, 4.6), (1, 1, 2), FAILS),
        ((3, 3, 3), (0.001, 0.9, 0.9), PARTLY), ((3, 3, 3), (1, 1, 1.6), PARTLY), ((3, 3, 0), (1, 1, 0), FAILS),
        ((3, 3, (3, 0)), (1, 1, (1, 0)), PARTLY), (((3, 0), (3, 0), (3, 0)), ((1, 0), (1, 0), (1, 0)), HOLDS),
    ],
)  # fmt: skip
def test_data_that_has_little_effect(greatest, mean, expected):
    """On the greatest and on the mean queue. Where none are there is nothing to have an effect on."""
    found = queues(greatest, mean)
    assert verdict("little effect", "13", found) == expected
    assert "less than 1.5 times" in claims.sizes_matter_little(found).why
    with pytest.raises(Missing):
        claims.sizes_matter_little(queues((0, 0, 0), (0, 0, 0)))


def test_data_that_has_little_effect_on_one_reading_alone():
    values = [(4, 4, 4), (4, 4, 4), (4, 40, 4)]
    found = all_of(*(
        table(column, dict(zip(("12", "13", "14"), values, strict=True))) for column in ("held_most_here", "held")
    ))  # fmt: skip
    assert verdict("little effect", "13", found) == PARTLY
    assert "not so: greatest as unicasts at n = 100 / 200" in claims.sizes_matter_little(found).why


def test_data_that_may_have_little_effect():
    """A mean of 5 or 9 ± 2.5 beside one of 4: 6 is the limit. And none beside one in three."""
    for last, expected in ((5, UNKNOWN), (9, FAILS)):
        runs = [queues((4, 4, last + off), (4, 4, last + off)) for off in (-1, 0, 1)]
        assert verdict("little effect", "13", drawn(*runs)) == expected
    rare = [queues((of, of, 0), (of, of, 0)) for of in (0, 0, 1)]
    assert verdict("little effect", "13", drawn(*rare)) == UNKNOWN


@pytest.mark.parametrize(
    ("slow", "expected"),
    [((1, 2), HOLDS), ((2, 1), FAILS), ((2, 2), FAILS)],
)
def test_queues_that_become_longer(slow, expected):
    """By the lower rate alone: in a burst there are hardly any at any size."""
    rows = table("held", {"12": (0, 0, 0.06)}).rows + table("held", {SUSTAINED: (0, 0, slow)}, per_ms=0.1).rows
    assert verdict("longer with more nodes", "12", Table(rows)) == expected
    assert "0.1 messages a ms for 1 ms" in claims.queues_grow(Table(rows)).measured


LINKS = "queue", "queue_bytes", "queue_most", "queue_most_bytes"


@pytest.mark.parametrize(("large", "expected"), [((2, 2, 2), HOLDS), ((2, 6, 2), PARTLY), ((1, 4, 4), FAILS)])
def test_link_queues_that_increase_in_comparison(large, expected):
    """From 0 to 100, and from 100 to 1000 bytes."""
    for less, more in (("15", "16"), ("16", "17")):
        found = all_of(*(table(column, {less: (1, 2, 3), more: large}) for column in LINKS))
        assert verdict("link queues increase", more, found) == expected


def test_link_queues_that_may_increase_in_comparison():
    """From a ratio of 2 to one of 1.5 ± 0.1 or 0.75."""
    for off, expected in ((0.04, HOLDS), (0.3, UNKNOWN)):
        runs = [
            all_of(*(table(column, {"15": (1, 2, 2), "16": (1, by, by)}) for column in LINKS))
            for by in (1.5 - off, 1.5, 1.5 + off)
        ]
        assert verdict("link queues increase", "16", drawn(*runs)) == expected


@pytest.mark.parametrize(
    ("greatest", "mean", "expected"),
    [((2, 1, 1), (1, 2, 2), HOLDS), ((2, 1, 1), (2, 1, 1), PARTLY), ((1, 2, 2), (1, 2, 2), PARTLY), ((1, 2, 2), (2, 1,
     1), FAILS), ((2, 1, 1), (1, 2, 0.5), PARTLY), ((0, 0, 0), (0, 0, 0), FAILS)],
)  # fmt: skip
def test_link_queues_with_a_high_maximum_and_a_low_mean(greatest, mean, expected):
    for figure in ("15", "16", "17"):
        found = all_of(*(table(column, {figure: greatest if "most" in column else mean}) for column in LINKS))
        assert verdict("a high maximum and a low mean", figure, found) == expected
        (row,) = judge([claim for claim in claims.CLAIMS if "a high maximum" in claim.text], figure, found)
        assert "on whose links the greatest are, is not measured" in row["why"]


def test_queues_whose_means_are_not_sure_are_not_judged():
    def rows(seed, slow):
        found = table("held", {"12": (0, 0, 0.06)}).rows + table("held", {SUSTAINED: (0, 0, slow)}, per_ms=0.1).rows
        return [row | {"seed": seed} for row in found]

    far = Table([*rows(1, (1, 2)), *rows(2, (1.1, 2.1)), *rows(3, (0.9, 1.9))])
    near = Table([*rows(1, (1, 2)), *rows(2, (3, 2)), *rows(3, (1, 3))])
    one = Table([row for row in far.rows if row["x"] == NS[0]])
    assert verdict("longer with more nodes", "12", one) == UNKNOWN
    assert verdict("longer with more nodes", "12", far) == HOLDS
    assert verdict("longer with more nodes", "12", near) == "cannot be judged"


def test_steps_that_chance_leaves_open_do_not_count_as_growth():
    """Of five one is sure: 1 to 20, each but the first ± 7 and more."""
    slow = (1, 20, 21, 22, 23, 24)

    def rows(seed, off):
        for n, value in zip(range(100, 700, 100), slow, strict=True):
            run = {"setting": MULTICAST, "x": n, "seed": seed, "per_ms": 10, "burst_ms": 1}
            yield run | {"figure": "12", "held": 0}
            yield run | {"figure": SUSTAINED, "held": value + off * (value > 1)}

    found = claims.queues_grow(Table(row for seed, off in enumerate((-3, 0, 3)) for row in rows(seed, off)))
    assert found.verdict == PARTLY
    assert "n = 200 to 300" in found.why and "n = 100 to 200" not in found.why
