"""Each claim of paper 003 by a table that holds and by one that does not."""

import pytest

from mombroker.lab.papers import groups_claims as claims
from mombroker.lab.papers.base import FAILS, HOLDS, PARTLY, UNKNOWN, Missing, Table, judge
from mombroker.lab.papers.groups_claims import CORE, EAGER, FIELDS, LAZY, PRINTED, RPC, SIZES, STREAM, L, M, S


def table(figure, column, **curves):
    return Table(
        {"figure": figure, "setting": setting, "x": x, column: value}
        for setting, curve in curves.items()
        for x, value in curve.items()
    )


def calls(**factors):
    """The printed times, or so many times as long."""
    return table(
        RPC, "ms", **{size: {n: ms * factors.get(size, 1) for n, ms in enumerate(PRINTED[size], 1)} for size in SIZES}
    )


def test_seven_replies_cost_less_than_seven_calls_of_another_system():
    """24.5 ms, whatever the model's own calls cost."""
    assert claims.cheaper_than_calls(calls()).verdict == HOLDS
    assert claims.cheaper_than_calls(calls(**{S: 24.4 / 22.9})).verdict == HOLDS
    assert claims.cheaper_than_calls(calls(**{S: 24.6 / 22.9})).verdict == FAILS


NS = range(1, 8)


@pytest.mark.parametrize(
    ("curve", "verdict"),
    [
        (lambda n: 5 + 2 * n, HOLDS), (lambda n: 2 * n, HOLDS), (lambda n: 5 + (n > 3) * 0.1 * n**4, FAILS),
        (lambda n: 5 + n % 2, FAILS), (lambda n: n**2, FAILS), (lambda n: 100 + n**2, FAILS),
        (lambda n: n**1.14, HOLDS), (lambda n: n**1.16, FAILS), (lambda n: 5 + n**0.5, FAILS), (lambda n: 7, FAILS),
        (lambda n: 30 - 2 * n, FAILS),
        (lambda n: 5 + n + 0.99 * max(n - 4, 0), HOLDS), (lambda n: 5 + n + 1.01 * max(n - 4, 0), FAILS),
        (lambda n: 5 + n - 0.29 * max(n - 4, 0), HOLDS), (lambda n: 5 + n - 0.31 * max(n - 4, 0), FAILS),
    ],
)  # fmt: skip
def test_a_cost_that_grows_linearly(curve, verdict):
    found = claims.linear(table(RPC, "ms", **{size: {n: curve(n) for n in NS} for size in SIZES}))
    assert found.verdict == verdict and "0.95 at least, 1.15 at most, 0.7 to 2" in found.why


def test_the_printed_times_grow_roughly_linearly():
    assert claims.linear(calls()).verdict == HOLDS


def test_two_groups_tell_nothing_of_a_course():
    for rule, column in ((claims.linear, "ms"), (claims.printed, "ms")):
        with pytest.raises(Missing):
            rule(table(RPC, column, **{size: {1: 7, 2: 9} for size in SIZES}))
    with pytest.raises(Missing):
        claims.drops(table(STREAM, "per_s", **{S: {1: 1019}}))


@pytest.mark.parametrize(
    ("factors", "verdict"),
    [({}, HOLDS), ({S: 1.19, M: 0.81}, HOLDS), ({L: 1.21}, PARTLY), ({S: 1.21, M: 0.79, L: 2}, FAILS)],
)
def test_the_printed_times(factors, verdict):
    assert claims.printed(calls(**factors)).verdict == verdict


@pytest.mark.parametrize(
    ("null", "large", "verdict"), [(1, 1, HOLDS), (1.19, 0.81, HOLDS), (3, 1, PARTLY), (1, 0.7, PARTLY), (3, 2, FAILS)]
)
def test_the_printed_rates(null, large, verdict):
    columns = {"per_s": null, "kb_per_s": large}
    rows = [
        row
        for column, (size, values) in claims.STREAMED.items()
        for row in table(
            STREAM, column, **{size: {n: value * columns[column] for n, value in enumerate(values, 1)}}
        ).rows
    ]
    assert claims.printed_rates(Table(rows)).verdict == verdict


def test_the_size_dominates_where_large_packets_take_more_than_twice_as_long():
    for factor, verdict in ((1, HOLDS), (0.1, FAILS), (0.7, PARTLY)):
        assert claims.size_dominates(calls(**{L: factor})).verdict == verdict
    for times, verdict in ((2.01, HOLDS), (1.99, FAILS)):
        found = claims.size_dominates(table(RPC, "ms", **{S: dict.fromkeys(NS, 5), L: dict.fromkeys(NS, 5 * times)}))
        assert found.verdict == verdict and "more than 2 times" in found.why


@pytest.mark.parametrize(("share", "verdict"), [(0.49, HOLDS), (0.51, FAILS), (0.99, FAILS), (1, FAILS), (2, FAILS)])
def test_the_bytes_of_a_vector_are_much_fewer(share, verdict):
    """Of n destinations and the sender."""
    found = claims.vector_bytes(table(RPC, "stamp_bytes", **{S: {n: share * (40 + 4 * (n + 1)) for n in NS}}))
    assert found.verdict == verdict and f"{share:.2f} of 40" in found.measured and "less than 0.5" in found.why


@pytest.mark.parametrize(
    ("rates", "verdict"), [((551, 749), HOLDS), ((549, 650), PARTLY), ((650, 751), PARTLY), ((500, 1200), FAILS)]
)
def test_what_all_destinations_get(rates, verdict):
    found = claims.throughput(table(STREAM, "total_kb_per_s", **{L: dict(enumerate(rates, 1))}))
    assert found.verdict == verdict and ("the wire alone" in found.why) == (verdict != HOLDS)


@pytest.mark.parametrize(
    ("rates", "verdict"),
    [
        ((1019, 572, 567, 447, 352, 305, 253), HOLDS), ((1000, 999.999, 999.998, 999.997, 999.996, 999.995, 999.993),
        PARTLY), ((1000, 400, 500, 300), PARTLY), ((1000, 500), HOLDS), ((1000, 501), PARTLY), ((1, 2, 3), FAILS),
    ],
)  # fmt: skip
def test_a_rate_that_drops_rapidly(rates, verdict):
    assert claims.drops(table(STREAM, "per_s", **{S: dict(enumerate(rates, 1))})).verdict == verdict


@pytest.mark.parametrize(("last", "verdict"), [(0, HOLDS), (0.001, FAILS), (6, FAILS)])
def test_a_stamp_of_one_field(last, verdict):
    """However many bytes it has, and in any group."""
    fields, sizes = (
        table(STREAM, column, **{size: {1: first, 7: at_last} for size in SIZES})
        for column, first, at_last in (("fields", 0, last), ("stamp_bytes", 400, 400))
    )
    found = claims.one_field(Table(one | other for one, other in zip(fields.rows, sizes.rows, strict=True)))
    assert found.verdict == verdict and f"0 to {last:g} others" in found.measured


@pytest.mark.parametrize(
    ("eager", "lazy", "verdict"), [(50, 24, HOLDS), (50, 26, FAILS), (110, 51, FAILS), (110, 49, HOLDS)]
)
def test_bursts_that_are_compressed(eager, lazy, verdict):
    found = table(FIELDS, "fields_pct", **{EAGER: {3: eager, 8: eager}, LAZY: {3: lazy, 8: lazy}})
    assert claims.compressed(found).verdict == verdict and "less than 0.5 of all" in claims.compressed(found).why


@pytest.mark.parametrize(("lazy", "verdict"), [(10, HOLDS), (20, UNKNOWN), (30, UNKNOWN), (40, FAILS)])
def test_bursts_that_may_be_compressed(lazy, verdict):
    """By three runs each, ± 5: half of what is carried without bursts is 25 ± 2.5."""
    found = claims.compressed(Table(
        row | {"seed": seed, "fields_pct": row["fields_pct"] + off}
        for seed, off in ((1, -2), (2, 0), (3, 2))
        for row in table(FIELDS, "fields_pct", **{EAGER: {3: 50}, LAZY: {3: lazy}}).rows
    ))  # fmt: skip
    assert found.verdict == verdict and ("within chance" in found.why) == (verdict == UNKNOWN)


def test_what_is_not_here_is_not_judged():
    told = {row["claim"]: row for figure in (RPC, STREAM, CORE) for row in judge(claims.CLAIMS, figure, Table([]))}
    for text, why in (("Self", "to itself"), ("TCP, 550", "no TCP"), ("Amoeba", "no Amoeba")):
        (found,) = (row for claim, row in told.items() if text in claim)
        assert found["verdict"] == UNKNOWN and why in found["why"]


def test_the_share_of_the_causal_part_is_told_and_not_judged():
    rows = [{"figure": CORE, "setting": "a pair", "x": 0, "cpu_vector_us": 11.0, "cpu_fifo_us": 3.0}]
    for rule in (claims.causal_share, claims.causal_part):
        assert rule(Table(rows)).verdict == UNKNOWN and "11.0" in rule(Table(rows)).measured
    assert "8.0 of 11.0" in claims.causal_part(Table(rows)).measured
