"""Schedulers: a fixed stride, and the optimal speculation stride scheduler OS3 (Zhang et al., 2024, section 4), with
what it measures.

Symbols as in the paper: a, seconds of a speculation step; b, seconds of a verification; gamma, the probability that a
guess is right; s, the stride. Here a verification of s queries takes b + slope s seconds (slope 0 in the paper).
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from statistics import fmean, median_low  # the lower of two: accidents are slow

RECENT = 20  # measurements of a median, and guesses of a request's gamma
FEW = 3  # verifications of a kind from which their times count
PRIOR = 4.0  # weight of the gamma of all requests in that of a request, in guesses
GAIN = 1.04  # least expected speedup at which speculation is tried
CREDIT = 3.0  # of either kind of round at first, in sequential steps
BACK = 0.01  # what a step or round without verification of a kind adds to its credit, up to `CREDIT`
RISK = 0.75  # share of the credit that one round may lose; times `CREDIT` at least 2, so that a round of two fits
FLOOR = -CREDIT  # lowest credit: a loss beyond it, such as that of an accident, is forgiven
STALE = 150  # steps after which verification times that are not used are dropped
ASK = 0.002  # share of the time that guesses without speculation may cost
OLD = 400  # steps after which a search or a guess is measured again, whatever it took
GRID = (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64)  # strides considered


def expected_matches(gamma: float, s: int) -> float:
    """Expected retrievals settled by a verification of s steps, sum of gamma^i for i < s (section 4)."""
    return float(s) if gamma >= 1 else (1 - gamma**s) / (1 - gamma)


def pipelined(a: float, b: float, gamma: float, s: int) -> float:
    """Expected seconds of s steps and their verification in the worker. If all match, as many steps of the next round
    as fit (in the paper, one) ran meanwhile. A mismatch is noticed half a step late, and one step is lost."""
    hit = gamma**s
    return hit * max(s * a, b) + (1 - hit) * (s * a + max(a, b + a / 2))


@dataclass(frozen=True, slots=True)
class Decision:
    """s: steps until the next verification; 0: a step without speculation. asynchronous: verified in the worker."""

    s: int
    asynchronous: bool = False


class Fixed:
    """The same stride throughout (s = 3 in the paper when OS3 is off). OS3 hears how rounds went; this does not."""

    def __init__(self, s: int = 3, asynchronous: bool = False) -> None:
        self.decision = Decision(s, asynchronous)

    def next(self, left: int) -> Decision:
        """The next round. left: steps still to be verified or taken before the output ends, at most."""
        return self.decision

    def asks(self) -> bool:
        """Called as a step without speculation begins: whether to guess in it, only to see if the guess is right."""
        return False

    def took(self, what: str, seconds: float) -> None:
        """One measurement: a `step` alone, a step `overlapped` with a verification in the worker, a `guess`, a `search`
        as sequential retrieval makes it, or one `asked`, after a guess in the same step and with prefetching."""

    def guessed(self, right: int, wrong: int) -> None:
        """Guesses were compared with the truth."""

    def verified(self, s: int, seconds: float, worker: bool) -> None:
        """A verification of s queries, in the worker or not, took `seconds`."""

    def settled(self, spent: float, steps: float, overlapped: int, retrievals: int, worker: bool) -> None:
        """A round took `spent` seconds for `retrievals`. `overlapped` of its steps ran during a verification; the
        others took `steps` seconds. worker: it was verified there."""


class OS3(Fixed):
    """The stride with the most settled retrievals per second by the paper's objective; s = 0 where none gains.

    gamma is that of the last guesses, at most gamma_max, which bounds s (0.6 in the paper). Rounds in the worker and in
    this thread are compared at their own a and b. Either kind has a credit in sequential steps. Rounds add what they
    gain, up to 3 `CREDIT`, and take what they lose. A round whose first guess is wrong is to lose `RISK` of the credit
    at most. So in the long run either kind loses little more than `BACK` of the time. What was measured outlasts a
    request.
    """

    def __init__(self, *, asynchronous: bool, redo: bool, gamma_max: float = 0.98) -> None:
        """redo: whether a wrong guess costs a step. Dicts are by False, this thread, and True, the worker."""
        self.kinds, self.redo, self.gamma_max = (False, True)[: 1 + asynchronous], redo, gamma_max
        self.seconds: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=RECENT))
        self.batches: dict[bool, dict[int, deque[float]]] = {False: {}, True: {}}
        self.hits: deque[bool] = deque(maxlen=10 * RECENT)
        self.credit, self.unused = {False: CREDIT, True: CREDIT}, {False: 0, True: 0}
        self.unasked = self.unmeasured = 0

    def median(self, name: str) -> float:
        return median_low(self.seconds[name] or [0.0])

    @property
    def gamma(self) -> float:
        recent, overall = list(self.hits)[-RECENT:], (sum(self.hits) + PRIOR) / (len(self.hits) + PRIOR + 1)
        return (sum(recent) + PRIOR * overall) / (len(recent) + PRIOR)

    def timed(self, worker: bool) -> dict[int, deque[float]]:
        """Seconds of verifications by stride; empty until there are `FEW`: a first one may be slow by accident."""
        found = self.batches[worker]
        return found if sum(map(len, found.values())) >= FEW else {}

    def verification(self, worker: bool) -> tuple[float, float]:
        """(b, slope), least squares through the median of each stride. A worker is as fast as all cores at first."""
        known = (worker and self.timed(True)) or {1: self.seconds["search"], **self.timed(False)}
        points = {s: median_low(times) for s, times in known.items()}
        s, seconds = fmean(points), fmean(points.values())
        spread = sum((x - s) ** 2 for x in points) or 1.0
        slope = min(max(sum((x - s) * t for x, t in points.items()) / spread, 0.0), seconds / s)
        return seconds - slope * s, slope

    def passed(self, *kinds: bool) -> None:
        """A round or step without verification of these kinds. Times that are not used any more are dropped."""
        for worker in kinds:
            self.credit[worker] = max(self.credit[worker], min(self.credit[worker] + BACK, CREDIT))
            self.unused[worker] += 1
            self.batches[worker] = self.batches[worker] if self.unused[worker] % STALE else {}

    def next(self, left: int) -> Decision:
        step, search = self.median("step"), self.median("search")
        unsure = len(self.seconds["search"]) < 2 or self.unmeasured >= OLD
        if unsure or step + search < GAIN * (step + self.median("guess")):  # no gain even if searches were free
            return Decision(0)
        best, decision = GAIN / (step + search), Decision(0)
        for worker in self.kinds:
            s, rate = self._planned(worker, left)
            if rate > best:  # the first rounds are short ones
                best, decision = rate, Decision(s if self.timed(worker) else min(s, 2), worker)
        return decision

    def _planned(self, worker: bool, left: int) -> tuple[int, float]:
        """(s, settled retrievals per second) of the best round that the credit allows; (0, 0) if it allows none."""
        step, search = self.median("step"), self.median("search")
        a = ((worker and self.median("overlapped")) or step) + self.median("guess")
        gamma, (b, slope) = self.gamma, self.verification(worker)
        sequential = step + search
        most = (1 + RISK * self.credit[worker]) * sequential - self.redo * step  # seconds of a round that settles one

        def rate(s: int, gamma: float) -> float:
            redone = (1 - gamma**s) * self.redo * step
            seconds = pipelined(a, b + slope * s, gamma, s) if worker else s * (a + slope) + b + redone
            return expected_matches(gamma, s) / seconds

        fits = [s for s in {min(s, left) for s in GRID} if s + worker > 1 and s * (a + slope) + b <= most]
        s = max(sorted(fits), key=lambda s: rate(s, min(gamma, self.gamma_max)), default=0)
        s = s if worker or not s else -(-left // -(-left // s))  # no short round at the end
        return s, rate(s, gamma) if s else 0.0

    def asks(self) -> bool:
        self.passed(False, True)
        self.unasked += 1
        slower = min(self.seconds["asked"], default=0.0) - self.median("search")  # at least that by a guess
        cost = self.median("guess") + max(slower, 0.0)
        cheap = self.unasked >= min(cost / (ASK * (self.median("step") + self.median("search")) or 1.0), OLD)
        asked = cheap and not self.unmeasured and len(self.seconds["search"]) > 1
        self.unasked *= not asked
        return asked

    def took(self, what: str, seconds: float) -> None:
        self.seconds[what].append(seconds)
        self.unmeasured *= what != "search"

    def guessed(self, right: int, wrong: int) -> None:
        self.hits.extend([True] * right + [False] * wrong)

    def verified(self, s: int, seconds: float, worker: bool) -> None:
        self.batches[worker].setdefault(s, deque(maxlen=5)).append(seconds)
        self.unused[worker] = 0
        self.passed(not worker)

    def settled(self, spent: float, steps: float, overlapped: int, retrievals: int, worker: bool) -> None:
        step, search = self.median("step"), self.median("search")
        self.unmeasured += retrievals
        gain = (steps + overlapped * step + retrievals * search - spent) / (step + search)
        self.credit[worker] = min(max(self.credit[worker] + gain, FLOOR), 3 * CREDIT)
