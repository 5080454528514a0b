"""Statistics against cases worked by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.common import statistics


def test_outliers_are_counted_and_a_constant_sample_has_none():
    assert statistics.outliers([10, 11, 9, 10.5, 9.5, 100]) == 1
    assert statistics.outliers([5, 5, 5]) == 0


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5])
def test_fewer_than_six_values_give_no_interval(n):
    assert statistics.order_statistic_interval(list(range(n))) is None


def test_six_values_give_their_range():
    # 1 - 2 / 2**6 = 0.96875 with the extremes; the next pair would cover only 0.78
    assert statistics.order_statistic_interval([3, 1, 2, 6, 5, 4]) == (1, 6)


def test_nine_values_give_the_second_from_each_end():
    # 1 - 2 (1 + 9) / 2**9 = 0.961
    assert statistics.order_statistic_interval(list(range(1, 10))) == (2, 8)


def test_a_ratio_of_totals_is_worked_by_hand():
    # deviations 1/6 - 1/3, ... of totals 12 and 6: +-1/6 four times and 0 twice; t(5) = 2.571
    value, (low, high) = statistics.ratio_of_totals([2, 2, 2, 2, 2, 2], [0.5, 1.5, 0.5, 1.5, 1, 1])
    half = 2.571 * math.sqrt(6 / 5 * 4 * (0.5 / 6) ** 2)
    assert value == 2
    assert (low, high) == pytest.approx((2 * math.exp(-half), 2 * math.exp(half)))
    assert statistics.ratio_of_totals([1, 3], [1, 1]) == (2, None)


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=6, max_size=12))
def test_the_interval_of_a_ratio_is_the_same_when_the_sides_swap_and_in_any_order(pairs):
    of, per = ([pair[side] for pair in pairs] for side in (0, 1))
    value, (low, high) = statistics.ratio_of_totals(of, per)
    swapped, (below, above) = statistics.ratio_of_totals(per, of)
    assert (1 / swapped, 1 / above, 1 / below) == pytest.approx((value, low, high))
    turned = statistics.ratio_of_totals(of[::-1], per[::-1])
    assert (turned[0], *turned[1]) == pytest.approx((value, low, high))
    assert low <= value <= high


def test_a_ratio_that_may_be_negative_has_an_interval_around_it():
    value, (low, high) = statistics.ratio_of_totals([-1, 1, -1, 1, 0, 0], [1] * 6)
    assert value == 0 and low == pytest.approx(-high) and high == pytest.approx(2.571 * math.sqrt(6 / 5 * 4 / 36))


@pytest.mark.parametrize("freedom", [1, 5, 9, 11, 30, 1000])
def test_students_quantile_is_that_of_scipy(freedom):
    stats = pytest.importorskip("scipy.stats")
    assert statistics.student(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), abs=1e-3)


def test_the_order_statistic_interval_covers_the_median_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(2000):
        low, high = statistics.order_statistic_interval(rng.exponential(size=8).tolist())
        hits += low <= math.log(2) <= high
    assert hits / 2000 > 0.94


def test_the_jackknife_of_a_constant_is_the_constant():
    ones = np.ones(3000)
    assert statistics.block_jackknife([ones], lambda m: m) == pytest.approx((1.0, 1.0))


def test_the_jackknife_needs_ten_blocks():
    assert statistics.block_jackknife([np.ones(2304)], lambda m: m, block=256) is None
    assert statistics.block_jackknife([np.ones(2305)], lambda m: m, block=256) is not None


def test_paired_differences_are_narrower_than_their_parts():
    rng = np.random.default_rng(1)
    a = rng.normal(size=20_000)
    b = a + 0.01
    difference = statistics.block_jackknife([a, b], lambda x, y: y - x)
    alone = statistics.block_jackknife([a], lambda x: x)
    assert difference == pytest.approx((0.01, 0.01))
    assert alone[1] - alone[0] > 0.01


def test_the_jackknife_of_a_mean_is_students_interval():
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(3).exponential(size=40)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert statistics.mean_interval(values) == pytest.approx((expected.low, expected.high), abs=1e-3)


def test_a_statistic_without_a_finite_spread_has_no_interval():
    assert statistics.mean_interval(np.append(np.ones(20), -np.inf)) is None


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (1, 10), (7, 10), (200, 200), (81, 263), (15, 148)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_wilsons_interval_is_that_of_scipy(hits, n, level):
    stats = pytest.importorskip("scipy.stats")
    expected = stats.binomtest(hits, n).proportion_ci(level, method="wilson")
    assert statistics.wilson(hits, n, level) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilsons_interval_of_published_examples():
    # Newcombe 1998, Statistics in Medicine 17, table I, method 3
    assert statistics.wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert statistics.wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert statistics.wilson(0, 20) == pytest.approx((0, 0.1611), abs=5e-5)


def test_shares_of_hits_have_wilsons_interval_and_perfect_ones_do_not_shrink_to_a_point():
    assert statistics.share_interval(np.ones(200)) == pytest.approx((0.981, 1.0), abs=5e-4)
    assert statistics.share_interval(np.zeros(200)) == pytest.approx((0.0, 0.019), abs=5e-4)
    assert statistics.share_interval(np.repeat([1, 0], [81, 182])) == pytest.approx(statistics.wilson(81, 263))
    assert statistics.share_interval(np.ones(9)) is None


def test_shares_that_are_fractions_are_narrower_than_hits_and_equal_ones_have_wilsons_interval():
    values = np.random.default_rng(0).choice([0.4, 0.6, 0.8, 1.0], 500)
    low, high = statistics.share_interval(values)
    hits = statistics.wilson(values.sum(), 500)
    assert hits[0] < low < values.mean() < high < hits[1]
    assert statistics.share_interval(np.full(50, 0.8)) == pytest.approx(statistics.wilson(40, 50))


def test_the_interval_of_a_share_covers_it_as_often_as_it_says():
    rng = np.random.default_rng(1)
    held = [low <= 0.97 <= high for low, high in (statistics.wilson(n, 200) for n in rng.binomial(200, 0.97, 4000))]
    assert 0.93 < np.mean(held) < 0.98
