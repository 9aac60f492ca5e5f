"""Each claim of paper 003 by a table that holds and by one that does not."""

from mombroker.sim.papers import groups_claims as claims
from mombroker.sim.papers.base import FAILS, HOLDS, Table
from mombroker.sim.papers.groups_claims import PRINTED, RPC, SIZES, S


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
