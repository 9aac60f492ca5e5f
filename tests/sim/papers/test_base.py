"""What all papers share: confidence intervals, by the table of any book."""

import pytest

from mombroker.sim.papers.base import interval, power, student


@pytest.mark.parametrize(
    ("free", "quantile"),
    [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (10, 2.228), (11, 2.201), (19, 2.093), (30, 2.042), (120, 1.980)],
)
def test_the_quantiles_of_student(free, quantile):
    """Those of ten and more degrees of freedom are not in the code."""
    assert student(free) == pytest.approx(quantile, abs=0.001)


def test_the_interval_of_a_mean():
    """A deviation of 1: the quantile over the root of how many."""
    assert interval([7.0]) == 0 and interval([3.0, 3.0, 3.0]) == 0
    assert interval([1.0, 2.0, 3.0]) == pytest.approx(4.303 / 3**0.5)
    assert interval([9.0, 11.0] * 5 + [10.0]) == pytest.approx(2.228 / 11**0.5, rel=0.001)


def test_the_power_of_a_curve_and_its_interval():
    """In logarithms 0, 1, 2 against 0, 3, 3: the slope 1.5, what is left -0.5, 1, -0.5."""
    assert power({n: 7 * n**1.5 for n in (1, 3, 10, 50)}) == pytest.approx((1.5, 0), abs=1e-9)
    e = 2.718281828459045
    assert power({1: 1, e: e**3, e**2: e**3}) == pytest.approx((1.5, 12.706 * (1.5 / 2) ** 0.5))
