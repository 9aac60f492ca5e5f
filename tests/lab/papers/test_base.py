"""What all papers share: confidence intervals, by the table of any book."""

from math import inf, log

import pytest

from mombroker.lab.papers.base import (
    CONTROL,
    FAILS,
    FORETOLD,
    HOLDS,
    ONE_RUN,
    PARTLY,
    UNKNOWN,
    Claim,
    Judgement,
    Missing,
    Table,
    Value,
    constant,
    every,
    halves,
    judge,
    means,
    power,
    reasons,
    some,
    spread_of,
    straight,
    student,
    verdict,
)


@pytest.mark.parametrize(
    ("free", "quantile"),
    [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (10, 2.228), (11, 2.201), (19, 2.093), (30, 2.042), (120, 1.980)],
)
def test_the_quantiles_of_student(free, quantile):
    """Those of ten and more degrees of freedom are not in the code."""
    assert student(free) == pytest.approx(quantile, abs=0.001)


def interval(*curve):
    """Of the first of these points, each with the values of its runs."""
    rows = ({"figure": "3", "setting": "a", "x": x, "seed": seed, "delay": value}
            for x, values in enumerate(curve) for seed, value in enumerate(values))  # fmt: skip
    return Table(rows).intervals("3", "a", "delay")[0]


def test_the_interval_of_a_mean():
    """A deviation of 1: the quantile over the root of how many."""
    assert interval([7.0]) == 0 and interval([3.0, 3.0, 3.0]) == 0
    assert interval([1.0, 2.0, 3.0]) == pytest.approx(4.303 / 3**0.5)
    assert interval([9.0, 11.0] * 5 + [10.0]) == pytest.approx(2.228 / 11**0.5, rel=0.001)
    assert interval([1.0, 2.0, 3.0], [9.0, 9.0]) == interval([1.0, 2.0, 3.0])


def test_the_interval_of_a_few_runs_is_told_by_those_of_the_other_points():
    """A deviation of 0.1 of the mean, of 1, 3 and 1 degrees of freedom."""
    pair = [20 * (1 - 0.1 * 0.5**0.5), 20 * (1 + 0.1 * 0.5**0.5)]
    assert interval(pair) == pytest.approx(12.706 * 2 / 2**0.5)
    assert interval(pair, [45.0, 50.0, 55.0]) == pytest.approx(3.182 * 2 / 2**0.5)
    assert interval([20.0], pair) == pytest.approx(12.706 * 2)


def test_what_chance_leaves_open():
    assert [Value(1, of).below(Value(2, 0.4)) for of in (0.5, 0.7)] == [True, None]
    assert [Value(2, of).below(1) for of in (0.9, 1.1)] == [False, None] and Value(1).below(1) is False
    ratio = Value(8, 0.8) / Value(4, 0.3)
    assert ratio.mean == 2 and ratio.of == pytest.approx(2 * (0.1**2 + 0.075**2) ** 0.5)
    assert [ratio.within(*each) for each in ((1, 3), (1.8, 3), (0, 1), (0, 2.1))] == [True, None, False, None]
    assert [every(each) for each in ([True, True], [True, None], [None, False])] == [True, None, False]
    assert [some(each) for each in ([True, None], [False, None], [False], [])] == [True, None, False, False]
    assert [verdict(each) for each in ([True, None], [False, None], [None], [True, False, None], [True])] == [
        PARTLY, FAILS, UNKNOWN, PARTLY, HOLDS,
    ]  # fmt: skip
    assert reasons({"a": True, "b": None}, "why") == "within chance, by 95 % intervals: b; why"
    assert reasons({"a": True, "b at n = 2": False, "b at n = 3": False, "c": False}) == "not so: b at n = 2 / 3, c"
    assert reasons({"a": False, "b": None}) == "within chance, by 95 % intervals: b; not so: a"
    assert (reasons({"a": False, "b": False}), reasons({"a": True})) == ("so of none", "")
    assert reasons({"a": False}, "why") == "why"


def test_zeros_are_compared_as_well():
    assert [Value(a) / Value(0) for a in (0, 2)] == [Value(1), Value(inf)]
    assert [(Value(2) / Value(0)).below(each) for each in (1, 1e9)] == [False, False]
    assert [spread_of(each) for each in ([0, 0], [0, 1], [2, 3])] == [0, inf, 50]
    assert constant([Value(0), Value(0)], 1) is True and constant([Value(0), Value(1)], 1) is False


def test_that_values_are_constant_is_not_left_open_by_chance():
    """Which can only make them look less so."""
    assert constant([Value(1, 0.5), Value(1.09, 0.5)], 10) is True
    assert constant([Value(1, 0.1), Value(1.15, 0.1)], 10) is None
    assert constant([Value(1, 0.01), Value(1.15, 0.01)], 10) is False


def test_the_power_of_a_curve_and_its_interval():
    """In logarithms 0, 1, 2 against 0, 3, 3: the slope 1.5, what is left -0.5, 1, -0.5."""
    assert power({n: 7 * n**1.5 for n in (1, 3, 10, 50)}) == pytest.approx((1.5, 0), abs=1e-9)
    e = 2.718281828459045
    assert power({1: 1, e: e**3, e**2: e**3}) == pytest.approx((1.5, 12.706 * (1.5 / 2) ** 0.5))


def test_how_straight_a_curve_is():
    """1, 2, 4 over 1, 2, 3: a covariance of 1.5 by two deviations of 1 and of √(7/3), squared."""
    assert straight({1: 1, 2: 2, 3: 4}) == pytest.approx(1.5**2 / (7 / 3))
    assert straight({x: 5 + log(x) for x in (1, 10, 1000)}, log) == pytest.approx(1)
    assert [straight({x: curve(x) for x in (1, 2, 3)}) for curve in (lambda x: 7, lambda x: -x)] == [0, 0]


@pytest.mark.parametrize("fit", [power, straight])
def test_a_curve_of_few_points_has_no_course(fit):
    with pytest.raises(Missing, match="3 points"):
        fit({1: 1, 2: 2})
    with pytest.raises(Missing, match="above 0"):
        power({1: 0, 2: 1, 3: 2})


def drawn(values, seed, control=None, error=0.0):
    """Runs of one point, each (value, what was foretold of it); and the mean of what is foretold."""
    rows = [
        {"figure": "3", "setting": "a", "x": 1, "seed": seed, "delay": value, FORETOLD + "delay": foretold}
        for value, foretold in values
    ]  # fmt: skip
    if control is not None:
        rows.append({"figure": CONTROL, "setting": "a", "x": 1, "seed": seed, "delay": control, "delay_error": error})
    return rows


def test_a_value_is_corrected_by_what_its_draw_was_off():
    """Twice what was foretold, exactly: then the mean is twice the mean of all draws, whatever was drawn."""
    table = Table(drawn([(2, 1), (8, 4)], 1, control=3))
    assert table.values("3", "a", "delay") == {1: [6, 6]}
    assert table.errors("3", "a", "delay") == {1: 0}
    assert Table(drawn([(2, 1), (8, 4)], 1)).values("3", "a", "delay") == {1: [2, 8]}


def test_the_error_of_a_mean_has_that_of_the_draws_in_it():
    exact = Table(drawn([(2, 1), (8, 4)], 1, control=3, error=0.3))
    assert exact.errors("3", "a", "delay")[1] == pytest.approx(6 * 0.1)
    two = Table(drawn([(2, 1)], 1, control=3, error=0.3) + drawn([(8, 4)], 2, control=3, error=0.3))
    assert two.errors("3", "a", "delay")[1] == pytest.approx(6 * 0.1 / 2**0.5)
    rough = Table(drawn([(1, 1), (3, 1)], 1, control=1, error=0.5))
    assert rough.errors("3", "a", "delay")[1] == pytest.approx((1 + 1) ** 0.5)
    (row,) = means(rough, "3", ["delay"])
    assert (row["runs"], row["mean"]) == (2, 2) and row["interval_95"] == pytest.approx(12.706 * 2**0.5)


def test_halves_are_of_seeds_and_each_has_its_own_control():
    rows = drawn([(2, 1), (8, 4)], 1, control=3) + drawn([(3, 1), (3, 1)], 2, control=2)
    (row,) = halves(Table(rows), "3", "delay", 1)
    assert (row["one"], row["two"], row["off_pct"]) == (6, 6, 0)
    assert halves(Table(rows), "3", "delay", 2) == []


def test_one_run_of_each_point_tells_nothing_of_chance():
    """Where it is drawn by chance: then a claim is judged by value, and says so; a second run of one point tells."""
    rows = [{"figure": "3", "setting": "a", "x": x, "seed": 1, "delay": x} for x in (1, 2)]
    claims = [Claim("3", "", "rises", lambda table: Judgement(
        verdict([table.measured("3", "a", "delay")[1].below(table.measured("3", "a", "delay")[2])]), "", "as printed"
    )), Claim("3", "", "is there", lambda table: Judgement(HOLDS, str(table.curve("3", "a", "delay"))))]  # fmt: skip

    def told(table):
        (row, _), (rises, there) = means(table, "3", ["delay"]), judge(claims, "3", table)
        assert there["why"] == rises["why"].partition("as printed")[0].rstrip("; ") and rises["verdict"] == HOLDS
        return row["standard_error"], row["interval_95"], rises["why"]

    assert told(Table(rows)) == (0, 0, "as printed")
    drawn = [("3", "a")]
    assert told(Table(rows, drawn)) == (None, None, f"{ONE_RUN}; as printed")
    more = Table([*rows, rows[0] | {"seed": 2}], drawn)
    assert told(more) == (0, 0, "as printed")


def test_the_error_of_cpu_time_is_not_known():
    """Nothing is drawn by chance there, and yet it is no exact value."""
    (row,) = means(Table([{"figure": "V", "setting": "a", "x": 0, "seed": 1, "cpu_us": 5.0}]), "V", ["cpu_us"])
    assert (row["mean"], row["standard_error"], row["interval_95"]) == (5, None, None)
