"""Paper 003: ABCAST, flushes and several groups: what is measured, and each claim by a table that holds and others."""

import pytest

from mombroker.lab.papers import groups
from mombroker.lab.papers import groups_total_claims as claims
from mombroker.lab.papers.base import FAILS, HOLDS, PARTLY, UNKNOWN, Missing, Table, judge
from mombroker.lab.papers.groups_claims import PRINTED, RPC, SIZES, L, M, S
from mombroker.lab.papers.groups_total_claims import (
    CAUSAL_1K,
    FLUSH,
    FOLLOWS,
    ORDER,
    ORDERED_1K,
    PRINTED_TOTAL,
    SEVEN,
    STAYS,
    STREAMED_TOTAL,
    STYLE,
    TOTAL_RPC,
    TOTAL_STREAM,
    WAITING,
)

NS = range(1, 8)


def run(kind, n, **more):
    common = {"rounds": 20, "bytes": 0, "seed": 1, "batch": 1, "follow": False}
    return groups.run(common | {"kind": kind, "n": n} | more)


def rows(figure, column, **curves):
    return [
        {"figure": figure, "setting": setting, "x": x, column: value}
        for setting, curve in curves.items()
        for x, value in curve.items()
    ]


def by_number(values, factor=1):
    return {n: factor * value for n, value in enumerate(values, 1)}


# -- what is measured --------------------------------------------------------------------------------------------------


def test_an_abcast_takes_longer_than_a_cbcast_and_longer_with_more_destinations():
    one, four = run(TOTAL_RPC, 1)["ms"], run(TOTAL_RPC, 4)["ms"]
    causal = groups.run({"kind": RPC, "n": 4, "rounds": 20, "bytes": 0, "seed": 1})["ms"]
    assert one < causal < four < 2 * causal and run(TOTAL_RPC, 4, bytes=7168)["ms"] > four


def test_a_stream_of_abcasts_slows_with_destinations():
    one, five = (run(TOTAL_STREAM, n, rounds=100)["per_s"] for n in (1, 5))
    assert one > five > 0 and run(TOTAL_STREAM, 1, rounds=20, bytes=1024)["kb_per_s"] > 0


@pytest.mark.parametrize(("batch", "follow", "cost"), [(1, False, 2), (4, False, 1.25), (1, True, 1.05)])
def test_multicasts_of_an_abcast(batch, follow, cost):
    assert run(ORDER, 5, batch=batch, follow=follow)["multicasts"] == pytest.approx(cost)


def test_a_flush_of_eight():
    assert run(FLUSH, 8, coordinator=False) == {"flushes": 56, "packets": 64}
    assert run(FLUSH, 8, coordinator=True) == {"flushes": 14, "packets": 22}


def test_fields_by_styles():
    found = {style: run(STYLE, 4, style=style, rounds=150)["fields"] for style in groups.STYLES}
    assert found == {"peers": 7, "one group for all clients": 7, "a group for each client": 16, "diffusion": 3,
                     "a hierarchy": 4}  # fmt: skip


def test_the_conservative_rule_waits():
    free, safe = (run(WAITING, 4, rounds=60, rule=rule, stays=0)["ms"] for rule in ("all", "conservative"))
    assert safe > 2 * free


# -- how claims are judged ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "verdict"), [(1, HOLDS), (1.19, HOLDS), (1.21, FAILS), (0.5, FAILS)])
def test_the_printed_times_and_rates(factor, verdict):
    times = rows(TOTAL_RPC, "ms", **{size: by_number(PRINTED_TOTAL[size], factor) for size in SIZES})
    assert claims.printed(Table(times)).verdict == verdict
    rates = [
        row
        for column, (size, values) in STREAMED_TOTAL.items()
        for row in rows(TOTAL_STREAM, column, **{size: by_number(values, factor)})
    ]
    found = claims.printed_rates(Table(rates))
    assert found.verdict == verdict and "352" in found.why


@pytest.mark.parametrize(("speed", "verdict"), [(0.5, HOLDS), (0.41, HOLDS), (0.39, FAILS), (0.68, FAILS), (1, FAILS)])
def test_half_the_speed(speed, verdict):
    table = Table(
        rows(RPC, "ms", **{S: by_number(PRINTED[S])}) + rows(TOTAL_RPC, "ms", **{S: by_number(PRINTED[S], 1 / speed)})
    )
    assert claims.half_the_speed(table).verdict == verdict


def test_figure_seven_beside_what_is_printed():
    for factor, verdict in ((1, HOLDS), (1.19, HOLDS), (0.6, FAILS)):
        ordered = by_number(PRINTED_TOTAL[M], factor)
        found = claims.figure_seven(Table(rows(SEVEN, "ms", **{CAUSAL_1K: by_number(PRINTED[M]), ORDERED_1K: ordered})))
        assert found.verdict == verdict and "1.78 / 1.95" in found.why


@pytest.mark.parametrize(("large", "verdict"), [(1.5, HOLDS), (2.5, FAILS)])
def test_the_larger_the_packets_the_less_the_order_costs(large, verdict):
    flat = dict.fromkeys(NS, 10.0)
    causal = rows(RPC, "ms", **{S: flat, L: flat})
    ordered = rows(TOTAL_RPC, "ms", **{S: dict.fromkeys(NS, 20.0), L: dict.fromkeys(NS, 10 * large)})
    assert claims.size_matters_less(Table(causal + ordered)).verdict == verdict


def test_multicasts_of_an_abcast_are_judged():
    held = rows(ORDER, "multicasts", **{STAYS: {1: 2, 5: 1.2}, FOLLOWS: {1: 1.01, 5: 1.0}})
    assert claims.one_and_a_batch(Table(held)).verdict == claims.one_where_the_token_is(Table(held)).verdict == HOLDS
    off = rows(ORDER, "multicasts", **{STAYS: {1: 2, 5: 1.3}, FOLLOWS: {1: 1.1, 5: 2}})
    assert claims.one_and_a_batch(Table(off)).verdict == PARTLY
    assert claims.one_where_the_token_is(Table(off)).verdict == FAILS


def test_flushes_are_judged_exactly():
    held = rows(FLUSH, "flushes", **{claims.EACH_OTHER: {8: 56, 4: 12}, claims.BY_ONE: {8: 14, 4: 6}})
    off = rows(FLUSH, "flushes", **{claims.EACH_OTHER: {8: 57}, claims.BY_ONE: {8: 15}})
    for row in held + off:
        row["packets"] = row["flushes"] + row["x"] * (1 if row in held else 3)
    for judged in (claims.squared, claims.linear, claims.three_n):
        assert judged(Table(held)).verdict == HOLDS and judged(Table(off)).verdict == FAILS


def test_sizes_of_vectors_are_judged_by_style():
    curves = {claims.PEERS: {4: 7}, claims.COLLAPSED: {4: 7}, claims.DIFFUSION: {4: 3}, claims.HIERARCHY: {4: 4, 8: 8}}
    table = Table(rows(STYLE, "fields", **curves, **{claims.SEPARATE: {4: 16}}))
    assert claims.styles(table).verdict == claims.collapsing(table).verdict == HOLDS
    off = Table(rows(STYLE, "fields", **curves | {claims.DIFFUSION: {4: 7}}, **{claims.SEPARATE: {4: 7}}))
    assert claims.styles(off).verdict == PARTLY and claims.collapsing(off).verdict == FAILS


@pytest.mark.parametrize(
    ("near", "far", "verdict"), [(1.1, 4, HOLDS), (1.3, 4, PARTLY), (1.1, 1.2, PARTLY), (1.3, 1.2, FAILS)]
)
def test_locality_decides_what_the_conservative_rule_costs(near, far, verdict):
    free = {0: 10.0, 0.99: 10.0}
    safe = {0: 10 * far, 0.99: 10 * near}
    found = claims.locality(Table(rows(WAITING, "ms", **{claims.RULE_ALL: free, claims.RULE_CONSERVATIVE: safe})))
    assert found.verdict == verdict


def test_what_cannot_be_judged_says_why():
    told = [row for figure in groups.PAPER.figures for row in judge(claims.CLAIMS, figure, Table([]))]
    assert {row["verdict"] for row in told} == {UNKNOWN} and all(row["why"] for row in told)
    with pytest.raises(Missing):
        claims.figure_seven(Table([]))
