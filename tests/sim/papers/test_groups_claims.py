"""Each claim of paper 003 by a table that holds and by one that does not."""

import pytest

from mombroker.sim.papers import groups_claims as claims
from mombroker.sim.papers.base import FAILS, HOLDS, PARTLY, UNKNOWN, Table
from mombroker.sim.papers.groups_claims import CORE, EAGER, FIELDS, LAZY, PRINTED, RPC, SIZES, STREAM, L, M, S


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
    [(lambda n: 5 + 2 * n, HOLDS), (lambda n: 5 + (n > 3) * 0.1 * n**4, FAILS), (lambda n: 5 + n % 2, FAILS)],
)
def test_a_cost_that_grows_linearly(curve, verdict):
    assert claims.linear(table(RPC, "ms", **{size: {n: curve(n) for n in NS} for size in SIZES})).verdict == verdict


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


@pytest.mark.parametrize(("extra", "verdict"), [(-1, HOLDS), (0, FAILS), (9, FAILS)])
def test_the_bytes_of_a_vector(extra, verdict):
    """Of n destinations and the sender."""
    found = table(RPC, "stamp_bytes", **{S: {n: 40 + 4 * (n + 1) + extra for n in NS}})
    assert claims.vector_bytes(found).verdict == verdict


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


@pytest.mark.parametrize(("last", "verdict"), [(4.5, HOLDS), (4.7, FAILS)])
def test_a_stamp_that_is_the_same_in_any_group(last, verdict):
    assert claims.constant_stamp(table(STREAM, "stamp_bytes", **{S: {1: 4, 7: last}})).verdict == verdict


@pytest.mark.parametrize(
    ("eager", "lazy", "verdict"), [(50, 24, HOLDS), (50, 26, FAILS), (110, 51, FAILS), (110, 49, HOLDS)]
)
def test_bursts_that_are_compressed(eager, lazy, verdict):
    found = table(FIELDS, "fields_pct", **{EAGER: {3: eager, 8: eager}, LAZY: {3: lazy, 8: lazy}})
    assert claims.compressed(found).verdict == verdict


def test_the_share_of_the_causal_part_is_told_and_not_judged():
    rows = [{"figure": CORE, "setting": "a pair", "x": 0, "cpu_vector_us": 11.0, "cpu_fifo_us": 3.0}]
    for judge in (claims.causal_share, claims.causal_part):
        assert judge(Table(rows)).verdict == UNKNOWN and "11.0" in judge(Table(rows)).measured
    assert "8.0 of 11.0" in claims.causal_part(Table(rows)).measured
