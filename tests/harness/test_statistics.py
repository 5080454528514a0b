"""Statistics against cases worked by hand."""

import math

import numpy as np
import pytest

from harness import statistics


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
    assert statistics.block_bootstrap([ones], lambda m: m) == (1.0, 1.0)


def test_block_bootstrap_needs_ten_blocks():
    assert statistics.block_bootstrap([np.ones(2304)], lambda m: m, block=256) is None
    assert statistics.block_bootstrap([np.ones(2305)], lambda m: m, block=256) is not None


def test_paired_differences_are_narrower_than_their_parts():
    rng = np.random.default_rng(1)
    a = rng.normal(size=20_000)
    b = a + 0.01
    difference = statistics.block_bootstrap([a, b], lambda x, y: y - x)
    alone = statistics.block_bootstrap([a], lambda x: x)
    assert difference == pytest.approx((0.01, 0.01))
    assert alone[1] - alone[0] > 0.01


def test_geometric_mean_of_reciprocal_ratios_is_one():
    assert statistics.geometric_mean([4, 0.25]) == pytest.approx(1)
