"""Statistics against cases worked by hand."""

import math

import numpy as np
import pytest

from harness.common import statistics


def test_mad_is_the_median_distance_from_the_median():
    assert statistics.mad([1, 2, 3, 4, 100]) == 1


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


def test_the_interval_over_processes_switches_to_the_bootstrap_at_ten():
    values = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9]
    assert statistics.interval_over_processes(values[:9]) == (1.1, 1.7)
    low, high = statistics.interval_over_processes(values)
    assert 1.0 < low < 1.45 < high < 1.9
    assert statistics.interval_over_processes(values) == (low, high)  # seeded


def test_the_order_statistic_interval_covers_the_median_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(2000):
        low, high = statistics.order_statistic_interval(rng.exponential(size=8).tolist())
        hits += low <= math.log(2) <= high
    assert hits / 2000 > 0.94


def test_block_bootstrap_of_a_constant_is_the_constant():
    ones = np.ones(3000)
    assert statistics.block_jackknife([ones], lambda m: m) == (1.0, 1.0)


def test_block_bootstrap_needs_ten_blocks():
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


def test_the_interval_over_processes_does_not_depend_on_their_order():
    values = [1.9, 1.0, 1.4, 1.1, 1.7, 1.2, 1.3, 1.8, 1.5, 1.6]
    assert statistics.interval_over_processes(values) == statistics.interval_over_processes(sorted(values))


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
    assert statistics.share_interval(np.repeat([1, 0], [81, 182])) == statistics.wilson(81, 263)
    assert statistics.share_interval(np.ones(9)) is None


def test_shares_that_are_fractions_have_a_bootstrap_interval_and_equal_ones_wilsons():
    values = np.random.default_rng(0).choice([0.4, 0.6, 0.8, 1.0], 500)
    low, high = statistics.share_interval(values)
    assert low < values.mean() < high and high - low < 0.06
    assert (low, high) == statistics.share_interval(values)  # seeded
    assert statistics.share_interval(np.full(50, 0.8)) == pytest.approx(statistics.wilson(40, 50))


def test_the_interval_of_a_share_covers_it_as_often_as_it_says():
    rng = np.random.default_rng(1)
    held = [low <= 0.97 <= high for low, high in (statistics.wilson(n, 200) for n in rng.binomial(200, 0.97, 4000))]
    assert 0.93 < np.mean(held) < 0.98


def test_geometric_mean_of_reciprocal_ratios_is_one():
    assert statistics.geometric_mean([4, 0.25]) == pytest.approx(1)
