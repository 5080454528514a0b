"""Statistics that fail closed: intervals over processes, tokens and items, robust spreads.

Plain functions on sequences of numbers, without random choices: no seed decides. An interval is None if there is too
little data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from statistics import NormalDist, fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

Interval = tuple[float, float]
LEVEL = 0.95
LEAST_PROCESSES = 6
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)  # 97.5%, 1 to 10 degrees of freedom


def outliers(values: Sequence[float], factor: float = 5.0) -> int:
    """Number of values more than `factor` times 1.4826 median absolute deviations from the median. They are only
    counted, not dropped."""
    distances = np.abs(np.asarray(values) - np.median(values))
    spread = 1.4826 * np.median(distances)
    return int((distances > factor * spread).sum()) if spread > 0 else 0


def order_statistic_interval(values: Sequence[float]) -> Interval | None:
    """Distribution-free interval for the median: the k-th smallest and k-th largest value with
    1 - 2 P(Binomial(n, 1/2) < k) >= 0.95, for the largest such k. None for fewer than 6 values."""
    n, ordered = len(values), sorted(values)
    below = accumulate(math.comb(n, k) / 2**n for k in range(n // 2 + 1))  # P(Binomial <= k)
    rank = sum(1 - 2 * chance >= LEVEL for chance in below)
    return (ordered[rank - 1], ordered[n - rank]) if rank else None


def ratio_of_totals(
    of: Sequence[float] | NDArray[Any], per: Sequence[float] | NDArray[Any], fits: Sequence[int] = ()
) -> tuple[float, Interval | None]:
    """The ratio of two totals over processes, and its 95% interval; the interval is None for fewer than 6 processes.

    of, per: a total of each process, such as its times of baseline and method. The interval is Student's, of the log
    ratio linearised over processes, so that it is the same if the two sides swap names, and covers what differs between
    processes: machine and items. Where a total may be negative it is linearised in the ratio itself.

    fits: the number of the random fit that each process opened. The interval is then widened to hold Student's interval
    of the fits' log ratios: processes of one fit share its randomness, so three fits are three samples of it.

    Source: Cochran 1977, Sampling Techniques, sections 2.11 and 6.4 (ratio estimates from clusters).
    """
    whole, part = np.asarray(of, np.float64), np.asarray(per, np.float64)
    value, n = float(whole.sum() / part.sum()), len(whole)
    if n < LEAST_PROCESSES:
        return value, None
    if whole.min() <= 0:
        half = _half((whole - value * part) / part.sum())
        return value, (value - half, value + half)
    half = _half(whole / whole.sum() - part / part.sum())
    if len(numbers := sorted(set(fits))) > 1:
        chosen = [np.asarray(fits) == number for number in numbers]
        logs = [math.log(whole[one].sum() / part[one].sum()) for one in chosen]
        half = max(half, student(len(logs) - 1) * stdev(logs) / math.sqrt(len(logs)))
    return value, (value * math.exp(-half), value * math.exp(half))


def _half(deviations: NDArray[np.float64]) -> float:
    """Half of the width of Student's interval of a total, from the processes' deviations, which sum to 0."""
    n = len(deviations)
    return student(n - 1) * math.sqrt(n / (n - 1) * float((deviations**2).sum()))


def student(freedom: int) -> float:
    """The 97.5% quantile of Student's t, to 1e-3. Source: Abramowitz and Stegun 1964, 26.7.5, from 11 degrees on."""
    if freedom <= len(STUDENT):
        return STUDENT[freedom - 1]
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2) + third / freedom**3


def block_jackknife(
    columns: Sequence[NDArray[np.float64]],
    statistic: Callable[..., NDArray[np.float64]],
    block: int = 256,
) -> Interval | None:
    """Interval for a statistic of means of paired per-token values: Student's, with the standard error that leaving out
    each block of consecutive tokens in turn gives.

    columns: float64 arrays [T] of equal length (for example the log-probabilities of two methods on the same tokens).
    statistic: takes the mean of each column, arrays [n], and gives the statistic, [n].
    None with fewer than 10 blocks. Source: Efron and Tibshirani 1993, An Introduction to the Bootstrap, section 11.5.
    """
    length = len(columns[0])
    starts = np.arange(0, length, block)
    if (n := len(starts)) < 10:
        return None
    left = np.append(length, length - np.diff(np.append(starts, length)))  # of the whole, then without each
    sums = [np.append(0.0, np.add.reduceat(np.asarray(column, np.float64), starts)) for column in columns]
    with np.errstate(invalid="ignore"):  # infinite values give no interval
        whole, *others = np.asarray(statistic(*((one.sum() - one) / left for one in sums)), np.float64).tolist()
    error = math.sqrt((n - 1) / n * sum((other - fmean(others)) ** 2 for other in others))
    half = student(n - 1) * error
    return (whole - half, whole + half) if math.isfinite(half) else None


def mean_interval(values: NDArray[np.float64]) -> Interval | None:
    """Student's interval of the mean over independent items [n]; None with fewer than 10 items."""
    return block_jackknife([values], lambda m: m, block=1)


def share_interval(values: NDArray[np.float64]) -> Interval | None:
    """Wilson's interval of the mean over independent items [n] of values between 0 and 1, such as hits or precisions.

    Values between 0 and 1 vary less than hits: they count as the number of hits that would vary as much. A sample
    without a miss (or hit) does not prove that there is none: Wilson's lower end is then n / (n + z^2). None with fewer
    than 10 items. Source: Wilson 1927, Journal of the American Statistical Association 22, section on the corrected
    formula.
    """
    data = np.asarray(values, np.float64)
    if (n := len(data)) < 10:
        return None
    mean, variance = float(data.mean()), float(data.var())
    size = mean * (1 - mean) / variance * n if data.min() < data.max() else n
    return wilson(mean * size, size)


def wilson(hits: float, n: float, level: float = LEVEL) -> Interval:
    """Wilson's score interval of a share: `hits` of `n` items."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = hits / n
    centre = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = (centre - half) / (1 + z * z / n), (centre + half) / (1 + z * z / n)
    return (0.0 if hits == 0 else low), (1.0 if hits == n else high)
