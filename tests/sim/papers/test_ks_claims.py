"""Each claim of paper 002 by a table that holds and by one that does not."""

import pytest

from mombroker.sim.papers import ks_claims
from mombroker.sim.papers.base import FAILS, HOLDS, PARTLY, UNKNOWN, Table, judge

SETTINGS = ("S1", "S2", "S3", "S4")


def rows(figure, curves, **more):
    """setting -> x -> a value of all columns, or one of each."""
    found = []
    for setting, curve in curves.items():
        for x, value in curve.items():
            columns = value if isinstance(value, dict) else {"ks": value}
            columns = {"ks_bare": columns["ks"], "ks_bitmap": columns["ks"] / 2, "sends": 30_000} | columns
            found.append({"figure": figure, "setting": setting, "x": x, "seed": 1} | columns | more)
    return found


def alike(curve):
    return dict.fromkeys(SETTINGS, curve)


def judged(text, found):
    """The verdict of the only claim whose text has this in it."""
    figures = {row["figure"] for row in found if row["figure"] != ks_claims.FLOOR}
    (row,) = [each for name in figures for each in judge(ks_claims.CLAIMS, name, Table(found)) if text in each["claim"]]
    return row


def test_a_curve_that_levels_off_does_so_on_any_grid():
    """It rises to 40 at 600 and no further; the other rises by the same factor in each decade."""
    steady, rising = (lambda x: min(40.0, 30 * (x / 20) ** 0.1)), (lambda x: 30 * (x / 20) ** 0.15)
    coarse, fine = (20, 200, 1000, 6000), (20, 50, 100, 200, 400, 800, 1500, 3000, 4500, 6000)
    for curve, verdict in ((steady, HOLDS), (rising, FAILS)):
        for grid in (coarse, fine):
            found = judged("steady state", rows("4", alike({x: curve(x) for x in grid})))
            assert found["verdict"] == verdict, found
    assert ks_claims.last_decade({x: rising(x) for x in coarse}) == pytest.approx(100 * (10**0.15 - 1), rel=0.03)
    mixed = rows("4", alike({x: steady(x) for x in fine}) | {"S3": {x: rising(x) for x in fine}})
    assert judged("steady state", mixed)["verdict"] == PARTLY
    assert judged("steady state", rows("4", alike({1000: 3, 6000: 4})))["verdict"] == UNKNOWN
