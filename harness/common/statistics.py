"""Statistics that fail closed: intervals over processes, robust spreads, bootstraps over tokens and items.

Plain functions on sequences of numbers; every random choice is seeded. An interval is None if there is too little data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist, median, stdev
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Interval = tuple[float, float]
LEVEL = 0.95
RESAMPLES = 2000
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)  # 97.5%, 1 to 10 degrees of freedom


def mad(values: Sequence[float]) -> float:
    """Median absolute deviation from the median (not scaled)."""
    centre = median(values)
    return median(abs(v - centre) for v in values)


def outliers(values: Sequence[float], factor: float = 5.0) -> int:
    """Number of values more than `factor` scaled MADs (1.4826 MAD) from the median. They are only counted, not
    dropped."""
    spread = 1.4826 * mad(values)
    centre = median(values)
    return sum(abs(v - centre) > factor * spread for v in values) if spread > 0 else 0


def order_statistic_interval(values: Sequence[float]) -> Interval | None:
    """Distribution-free interval for the median: the k-th smallest and k-th largest value with
    1 - 2 P(Binomial(n, 1/2) < k) >= 0.95, for the largest such k. None for fewer than 6 values."""
    n = len(values)
    below = 0.0
    rank = 0
    for k in range(n // 2 + 1):
        below += math.comb(n, k) / 2**n  # P(Binomial <= k)
        if 1 - 2 * below < LEVEL:
            break
        rank = k + 1
    if rank == 0:
        return None
    ordered = sorted(values)
    return ordered[rank - 1], ordered[n - rank]


def bootstrap_interval(values: Sequence[float], resamples: int = 10_000) -> Interval:
    """Percentile bootstrap interval of the median of `values`, independent of their order."""
    data = np.sort(np.asarray(values, dtype=np.float64))
    draws = np.random.default_rng(0).integers(len(data), size=(resamples, len(data)))
    return _ends(np.median(data[draws], axis=1))


def _ends(statistics: NDArray[np.float64]) -> Interval:
    """The percentiles between which 95% of resampled statistics lie."""
    low, high = np.quantile(statistics, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def interval_over_processes(ratios: Sequence[float]) -> Interval | None:
    """Interval for the median ratio, one ratio per process: order statistics below 10 processes, else a bootstrap."""
    return bootstrap_interval(ratios) if len(ratios) >= 10 else order_statistic_interval(ratios)


def interval_over_fits(ratios: Sequence[float], fits: Sequence[int]) -> Interval | None:
    """Interval for the median of positive ratios whose processes opened different random fits (`fits`, one number per
    process).

    It is the interval over processes, widened to include Student's interval of the fits' median log ratios around the
    median. Processes of one fit share its randomness, so three fits of ten processes are three samples of it.
    """
    over_processes = interval_over_processes(ratios)
    numbers = sorted(set(fits))
    if over_processes is None or len(numbers) < 2:
        return over_processes
    medians = [median(r for r, fit in zip(ratios, fits, strict=True) if fit == number) for number in numbers]
    half = _student(len(medians) - 1) * stdev(map(math.log, medians)) / math.sqrt(len(medians))
    centre = median(ratios)
    return min(over_processes[0], centre * math.exp(-half)), max(over_processes[1], centre * math.exp(half))


def _student(freedom: int) -> float:
    """The 97.5% quantile of Student's t."""
    return STUDENT[min(freedom, len(STUDENT)) - 1]


def shift(differences: Sequence[float], level: float = LEVEL) -> tuple[float, Interval] | None:
    """The centre of symmetric differences and its interval, by ranks: the median of the means of all pairs, and the
    order statistics of these means by Wilcoxon's signed-rank test. None for fewer than 6.

    Source: Hodges and Lehmann 1963, Annals of Mathematical Statistics 34, section 5.
    """
    values = np.asarray(differences, np.float64)
    n = len(values)
    if n < 6:
        return None
    rows, columns = np.triu_indices(n)
    means = np.sort((values[rows] + values[columns]) / 2)
    return _by_ranks(means, math.sqrt(n * (n + 1) * (2 * n + 1) / 24), level)


def shift_between(
    before: Sequence[float], after: Sequence[float], level: float = LEVEL
) -> tuple[float, Interval] | None:
    """The shift from the first of two independent samples to the second, and its interval, by the differences of all
    pairs and the rank-sum test of Mann and Whitney. None for fewer than 6 of either. Source: as for `shift`, section
    6."""
    one, other = np.asarray(before, np.float64), np.asarray(after, np.float64)
    n, m = len(one), len(other)
    if min(n, m) < 6:
        return None
    every = np.sort((other[:, None] - one[None, :]).ravel())
    return _by_ranks(every, math.sqrt(n * m * (n + m + 1) / 12), level)


def _by_ranks(ordered: NDArray[np.float64], deviation: float, level: float) -> tuple[float, Interval]:
    """Median and interval of sorted values. The test's statistic counts the values below a shift; `deviation` is its
    standard deviation if there is no shift."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    rank = max(math.floor(len(ordered) / 2 - z * deviation), 1)
    return float(np.median(ordered)), (float(ordered[rank - 1]), float(ordered[-rank]))


def block_bootstrap(
    columns: Sequence[NDArray[np.float64]],
    statistic: Callable[..., NDArray[np.float64]],
    block: int = 256,
) -> Interval | None:
    """Interval for a statistic of means of paired per-token values, resampling blocks of consecutive tokens.

    columns: float64 arrays [T] of equal length (for example the log-probabilities of two methods on the same tokens).
    statistic: takes the resampled mean of each column, arrays [2000], and gives the statistic, [2000].
    None with fewer than 10 blocks.
    """
    length = len(columns[0])
    starts = np.arange(0, length, block)
    if len(starts) < 10:
        return None
    sizes = np.diff(np.append(starts, length)).astype(np.float64)
    draws = np.random.default_rng(0).integers(len(starts), size=(RESAMPLES, len(starts)))
    totals = sizes[draws].sum(axis=1)
    means = [np.add.reduceat(column, starts)[draws].sum(axis=1) / totals for column in columns]
    return _ends(statistic(*means))


def mean_interval(values: NDArray[np.float64]) -> Interval | None:
    """Bootstrap interval of the mean over independent items [n]; None with fewer than 10 items."""
    return block_bootstrap([np.asarray(values, np.float64)], lambda m: m, block=1)


def share_interval(values: NDArray[np.float64]) -> Interval | None:
    """Interval of the mean over independent items [n] of values between 0 and 1, such as hits or precisions.

    By Wilson's score if every value is 0 or 1, else by a bootstrap. A sample without a miss (or hit) does not prove
    that there is none: Wilson's lower end is then n / (n + z^2). None with fewer than 10 items.
    Source: Wilson 1927, Journal of the American Statistical Association 22, section on the corrected formula.
    """
    data = np.asarray(values, np.float64)
    if len(data) < 10:
        return None
    if np.isin(data, (0.0, 1.0)).all() or data.min() == data.max():
        return wilson(float(data.sum()), len(data))
    return mean_interval(data)


def wilson(hits: float, n: int, level: float = LEVEL) -> Interval:
    """Wilson's score interval of a share: `hits` of `n` items."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = hits / n
    centre = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = (centre - half) / (1 + z * z / n), (centre + half) / (1 + z * z / n)
    return (0.0 if hits == 0 else low), (1.0 if hits == n else high)


def geometric_mean(ratios: Sequence[float]) -> float:
    """Geometric mean of positive ratios, the only mean used for speedups."""
    return math.exp(sum(math.log(r) for r in ratios) / len(ratios))
