"""Speculation strides: fixed, or the optimal speculation stride scheduler OS3 (Zhang et al., 2024, section 4).

Symbols as in the paper: a, seconds of one speculation step; b, seconds of one verification; gamma, the probability
that a speculated retrieval is the true one; s, the stride, steps between verifications.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection

LONGEST = 64  # strides considered


def expected_matches(gamma: float, s: int) -> float:
    """Retrievals settled by a verification of s steps, sum of gamma^i for i < s: the matched ones and the corrected
    one (section 4, first display)."""
    return float(s) if gamma >= 1 else (1 - gamma**s) / (1 - gamma)


def latency(a: float, b: float, gamma: float, s: int, asynchronous: bool) -> float:
    """Expected seconds of s steps and their verification; asynchronously the last step hides in it, if all match."""
    if not asynchronous:
        return s * a + b
    hit = gamma**s
    return hit * ((s - 1) * a + max(a, b)) + (1 - hit) * (s * a + b)


def best_stride(a: float, b: float, gamma: float, asynchronous: bool = False, longest: int = LONGEST) -> int:
    """The s in 1..longest with the most settled retrievals per second; the smallest of equal ones."""
    return max(
        range(1, longest + 1), key=lambda s: (expected_matches(gamma, s) / latency(a, b, gamma, s, asynchronous), -s)
    )


class Strides(ABC):
    """Decides the stride of every round and hears what came of it. Seconds are wall-clock."""

    @abstractmethod
    def next(self) -> int:
        """Steps to speculate before the next verification; 0: retrieve for this step instead of speculating."""

    def stepped(self, seconds: float) -> None:  # noqa: B027 - a fixed stride hears nothing
        """A speculation step took so long (a)."""

    def verified(self, s: int, matched: int, seconds: float) -> None:  # noqa: B027
        """A verification of s steps took so long (b); the first `matched` steps had the true retrieval."""

    def searched(self, seconds: float, hit: bool | None) -> None:  # noqa: B027
        """A single search without speculation took so long; `hit`: whether speculation would have been right."""


class Fixed(Strides):
    """The same stride throughout (s = 3 in the paper when OS3 is off)."""

    def __init__(self, s: int = 3) -> None:
        self.s = s

    def next(self) -> int:
        return self.s


class OS3(Strides):
    """Maximises the paper's objective with a, b and gamma estimated from the last rounds; starts at s = 1.

    gamma is the windowed maximum-likelihood estimate: matches over matches and mismatches of the last w verifications,
    at most gamma_max. Speculation is given up (s = 0) while it cannot pay: where its best expected rate, with the step
    that a mismatch costs on top (`redo`; the paper's objective leaves it out), does not exceed that of sequential
    retrieval, 1 / (a + b of a single search). Meanwhile each search tells whether the cache would have been right.
    """

    def __init__(self, *, asynchronous: bool, redo: bool, window: int = 5, gamma_max: float = 0.6) -> None:
        self.asynchronous = asynchronous
        self.redo = redo
        self.gamma_max = gamma_max
        self.rounds: deque[tuple[int, bool]] = deque(maxlen=window)  # (matched, whether a mismatch ended it)
        self.a: deque[float] = deque(maxlen=4 * window)
        self.b: deque[tuple[int, float]] = deque(maxlen=window)  # (s, seconds)
        self.single: deque[float] = deque(maxlen=window)

    @property
    def gamma(self) -> float:
        """The estimate, gamma_max before there is any."""
        matched = sum(m for m, _ in self.rounds)
        missed = sum(miss for _, miss in self.rounds)
        return min(matched / (matched + missed), self.gamma_max) if matched + missed else self.gamma_max

    def next(self) -> int:
        if not self.a:
            return 1
        gamma, single = self.gamma, _mean(self.single)
        a, b = self.costs()
        s = best_stride(a, b, gamma, self.asynchronous)
        seconds = latency(a, b, gamma, s, self.asynchronous) + self.redo * (1 - gamma**s) * _mean(self.a)
        if self.single and expected_matches(gamma, s) / seconds <= 1 / (_mean(self.a) + single):
            self.b.clear()  # what a verification costs is learnt anew when speculation is tried again
            return 0
        return s if self.b else 1

    def costs(self) -> tuple[float, float]:
        """a with what a verification costs for each query, and b without it, by least squares over the last rounds."""
        points = [*self.b] if self.asynchronous and self.b else [*self.b, *((1, seconds) for seconds in self.single)]
        if not points:
            return _mean(self.a), 0.0
        s, seconds = _mean([s for s, _ in points]), _mean([t for _, t in points])
        spread = sum((x - s) ** 2 for x, _ in points)
        slope = sum((x - s) * (t - seconds) for x, t in points) / spread if spread else 0.0
        slope = min(max(slope, 0.0), seconds / s)
        return _mean(self.a) + slope, seconds - slope * s

    def stepped(self, seconds: float) -> None:
        self.a.append(seconds)

    def verified(self, s: int, matched: int, seconds: float) -> None:
        self.rounds.append((matched, matched < s))
        self.b.append((s, seconds))

    def searched(self, seconds: float, hit: bool | None) -> None:
        self.single.append(seconds)
        if hit is not None:
            self.rounds.append((int(hit), not hit))


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values) if values else 0.0
