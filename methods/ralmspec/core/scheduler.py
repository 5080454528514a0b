"""Speculation strides: fixed, or the optimal speculation stride scheduler OS3 (Zhang et al., 2024, section 4).

Symbols as in the paper: a, seconds of one speculation step; b, seconds of one verification; gamma, the probability
that a speculated retrieval is the true one; s, the stride, steps between verifications.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from methods.ralmspec.core.estimates import Estimates

LONGEST = 64  # largest stride considered
ENDLESS = 1 << 30  # steps of an output whose end is not known
PRIOR = 2.0  # weight of earlier requests in a request's gamma, in steps
NEARLY = 0.95  # strides with this share of the best rate count as equally good
GAIN = 1.1  # least speedup, were all searches free, at which speculation is tried: searches are never free


def expected_matches(gamma: float, s: int) -> float:
    """Expected retrievals settled by a verification of s steps, sum of gamma^i for i < s: the matched ones and the
    corrected one (section 4, first display)."""
    return float(s) if gamma >= 1 else (1 - gamma**s) / (1 - gamma)


def latency(a: float, b: float, gamma: float, s: int, asynchronous: bool) -> float:
    """Expected seconds of s steps and their verification. Asynchronously, if all match, the last step and the
    verification run in parallel."""
    if not asynchronous:
        return s * a + b
    hit = gamma**s
    return hit * ((s - 1) * a + max(a, b)) + (1 - hit) * (s * a + b)


def pipelined(a: float, b: float, gamma: float, s: int) -> float:
    """Expected seconds of s steps and their verification in the worker, as `speculation` runs it.

    - All match: the next round's steps ran during the verification, as many as fit (in the paper, one).
    - A mismatch: it is noticed after the step under way, on average half a step late, and one step is lost: the wrong
      one if generation follows the guess, else the one under way.
    """
    hit = gamma**s
    return hit * max(s * a, b) + (1 - hit) * (s * a + max(a, b + a / 2))


def best_stride(
    a: float,
    b: float,
    gamma: float,
    asynchronous: bool = False,
    slope: float = 0.0,
    least: int = 1,
    longest: int = LONGEST,
    among: Collection[int] | None = None,
) -> int:
    """The s in least..longest, or in `among`, with the most settled retrievals per second; ties: the smallest.

    A verification takes b + slope s seconds (slope 0 in the paper). Any further cost of a mismatch does not change the
    result: it adds the same seconds to every settled retrieval.
    """

    def rate(s: int) -> float:
        return expected_matches(gamma, s) / latency(a, b + slope * s, gamma, s, asynchronous)

    return max(among or range(least, longest + 1), key=lambda s: (rate(s), -s))


@dataclass(frozen=True, slots=True)
class Decision:
    """s: steps to speculate before the next verification; 0: search for this step, without speculation.
    asynchronous: the verification runs in the worker thread."""

    s: int
    asynchronous: bool = False


class Strides(ABC):
    """Decides the stride of every round and is told its outcome. Seconds are wall-clock."""

    @abstractmethod
    def next(self, left: int = ENDLESS) -> Decision:
        """The next round. `left`: steps still to be verified or taken before the output ends, at most."""

    def asks(self) -> bool:
        """Whether to make a guess in this step without speculation, only to see if it is right."""
        return False

    def stepped(self, seconds: float, overlapped: bool) -> None:  # noqa: B027 - a fixed stride hears nothing
        """A step was generated, alone or `overlapped` with a verification in the worker thread."""

    def guessed(self, seconds: float) -> None:  # noqa: B027
        """A guess was made."""

    def verified(self, s: int, matched: int, seconds: float, asynchronous: bool) -> None:  # noqa: B027
        """A verification of s steps took `seconds` (b); the first `matched` guesses were right."""

    def searched(self, seconds: float, hit: bool | None, undisturbed: bool = True) -> None:  # noqa: B027
        """A single search without speculation took `seconds`. `hit`: whether the guess was right, None without one.
        `undisturbed`: see `Estimates.searched`."""

    def settled(self, spent: float, steps: float, retrievals: int, overlapped: int = 0) -> None:  # noqa: B027
        """A round has ended: see `Estimates.settled`."""


class Fixed(Strides):
    """The same stride throughout (s = 3 in the paper when OS3 is off)."""

    def __init__(self, s: int = 3, asynchronous: bool = False) -> None:
        self.decision = Decision(s, asynchronous)

    def next(self, left: int = ENDLESS) -> Decision:
        return self.decision


class OS3(Strides):
    """Maximises the paper's objective with a, b and gamma estimated from the last rounds; starts at s = 1.

    gamma is the windowed maximum-likelihood estimate: matches over matches and mismatches of the last w verifications,
    those of earlier requests included. It is at most gamma_max, which bounds s. The paper leaves open when to give up
    speculation (s = 0) and what to do if a worker thread is slower than all cores:

    - Synchronous rounds split the remaining steps evenly: a short last round would cost a whole search.
    - Synchronous and, if allowed, asynchronous rounds are compared at their own a and b; the faster is taken.
      Asynchronous ones are tried again after 8, 16, 32, ... rounds or steps without them.
    - Asynchronous rounds overlap more than the one step of the paper's formula. Their s maximises the rate by
      `pipelined`, at the gamma of the last steps. gamma_max does not apply: it bounds synchronous rounds, in which
      every step waits for the verification.
    - Speculation pays if its expected rate exceeds 1 / (a + b of a single search). That rate uses the gamma of the
      last steps, smoothed and not bounded. A synchronous round has s >= 2: a round of one step never gains.
    - Losses against sequential retrieval are charged to a small budget (`Estimates.credit`), which gains and steps
      without speculation refill. Without credit there is no speculation; with full credit it is tried even if the
      estimates advise against it.
    - a, b and the credit belong to the machine and outlast a request; the smoothed gamma belongs to the request.
    """

    def __init__(
        self, estimates: Estimates, *, asynchronous: bool, redo: bool, window: int = 5, gamma_max: float = 0.6
    ) -> None:
        self.estimates = estimates
        self.asynchronous = asynchronous
        self.redo = redo
        self.gamma_max = gamma_max
        self.window = window
        self.steps: deque[bool] = deque(maxlen=4 * window)  # whether the last guesses were right

    @property
    def gamma(self) -> float:
        """The paper's estimate; gamma_max before the first verification."""
        matched = sum(m for m, _ in self.estimates.rounds)
        missed = sum(miss for _, miss in self.estimates.rounds)
        return min(matched / (matched + missed), self.gamma_max) if matched + missed else self.gamma_max

    @property
    def likely(self) -> float:
        """gamma of the last steps, smoothed by that of all requests."""
        return (sum(self.steps) + PRIOR * self.estimates.gamma) / (len(self.steps) + PRIOR)

    def next(self, left: int = ENDLESS) -> Decision:
        known = self.estimates
        if known.empty:
            return Decision(0) if known.rounds else Decision(1, self.asynchronous)
        if not self._can_gain() or known.stale:
            return Decision(0)
        expected, s, asynchronous = plan = self._planned(False, left)
        if self.asynchronous:
            other = self._planned(True, left)
            if not known.batches[True]:  # only all cores are measured: a trial is no longer than their round
                other = (other[0], min(other[1], max(s, 1)), True)
            expected, s, asynchronous = max(plan, other)
        pays = expected > 1 / known.sequential
        if not s or not (pays or known.credit >= known.full):
            return Decision(0)
        return Decision(0) if self._to_measure(expected) else Decision(s, asynchronous)

    def _to_measure(self, expected: float) -> bool:
        """Whether to take a few steps without speculation, which alone measure a single search. It takes two, at a cost
        of at most `Estimates.refill` of the time."""
        known = self.estimates
        gain = expected * known.sequential - 1
        return known.unsure or (gain > 0 and known.unmeasured * known.refill > 2 * gain)

    def _can_gain(self) -> bool:
        """Whether speculation could reach `GAIN` if searches were free and only guesses cost time."""
        return self.estimates.sequential >= GAIN * (self.estimates.step(False) + self.estimates.guess)

    def _planned(self, asynchronous: bool, left: int) -> tuple[float, int, bool]:
        """(rate, s, asynchronous) of the best round; (0, 0, asynchronous) if the credit allows none.

        The credit must cover the loss if all guesses are wrong. One round risks at most `full`, even with more credit:
        asynchronous rounds of seven steps over a graph, chosen from noisy measurements, lost nine steps at once and
        turned speculation off for many requests.
        """
        known = self.estimates
        a, (b, slope) = known.step(asynchronous) + known.guess, known.verification(asynchronous)
        least = 1 if asynchronous else 2
        bearable = min(known.credit, known.full) * known.sequential - b + known.single
        longest = min(int(bearable / (a + slope)), LONGEST, left)
        if longest < least:
            return 0.0, 0, asynchronous
        gamma, again = self.likely, self.redo * known.step(False)

        def rate(s: int) -> float:
            """Settled retrievals per second at the gamma of the last steps."""
            if asynchronous:
                return expected_matches(gamma, s) / pipelined(a, b + slope * s, gamma, s)
            return expected_matches(gamma, s) / (latency(a, b + slope * s, gamma, s, False) + (1 - gamma**s) * again)

        if asynchronous:
            # the smallest of nearly equal strides: at a request's beginning and end fewer steps run without overlap
            rates = {s: rate(s) for s in range(least, longest + 1)}
            best = max(rates.values())
            s = min(s for s in rates if rates[s] >= NEARLY * best)
        else:
            s = best_stride(a, b, self.gamma, False, slope, least, longest)
            even = {-(-left // rounds) for rounds in (left // s, -(-left // s)) if rounds}  # no short round at the end
            s = best_stride(a, b, self.gamma, False, slope, among=[n for n in even if least <= n <= longest] or [s])
            if rate(s) <= 1 / known.sequential:  # too long at the gamma of the last steps
                s = max(range(least, longest + 1), key=rate)
        return rate(s), s, asynchronous

    def asks(self) -> bool:
        """Whether to make a guess in this step without speculation.

        - Never twice in a row: a search after a guess does not measure `single`.
        - Always if the last guess is `IDLE` steps ago.
        - Else only if speculation can gain, and so rarely that it costs at most `Estimates.refill` of the time.
        """
        known = self.estimates
        known.unasked += 1
        if known.unsure or known.unmeasured:
            return False
        if known.stale:
            known.unasked = 0
            return True
        if not self._can_gain():
            return False
        if known.unasked * known.refill * known.sequential < known.guess + known.disturbance:
            return False
        known.unasked = 0
        return True

    def stepped(self, seconds: float, overlapped: bool) -> None:
        self.estimates.stepped(seconds, overlapped)

    def guessed(self, seconds: float) -> None:
        self.estimates.guessed(seconds)

    def verified(self, s: int, matched: int, seconds: float, asynchronous: bool) -> None:
        self.estimates.rounds.append((matched, matched < s))
        while len(self.estimates.rounds) > self.window:
            self.estimates.rounds.popleft()
        self._saw([True] * matched + [False] * (matched < s))
        self.estimates.verified(s, seconds, asynchronous)

    def searched(self, seconds: float, hit: bool | None, undisturbed: bool = True) -> None:
        self.estimates.searched(seconds, undisturbed, asked=hit is not None and not undisturbed)
        if hit is not None:
            self._saw([hit])

    def settled(self, spent: float, steps: float, retrievals: int, overlapped: int = 0) -> None:
        self.estimates.settled(spent, steps, retrievals, overlapped)

    def _saw(self, hits: list[bool]) -> None:
        self.steps.extend(hits)
        self.estimates.saw(hits)
