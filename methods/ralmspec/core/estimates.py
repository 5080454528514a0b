"""What OS3 has measured over all requests: seconds of steps, guesses and searches, and what speculation gained."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from statistics import fmean, median

RECENT = 20  # measurements that an estimate averages
REPEATS = 5  # verifications kept per stride
SURE = 2  # undisturbed searches that make `single` reliable
IDLE = 500  # steps without speculation after which times of verifications and guesses are out of date
CALM = 4  # weight, in steps, of the time of a step alone in the mean of overlapped ones: a few slow ones prove nothing
PATIENCE = 8  # rounds and steps without speculation before a worker that lost is tried again; doubled each time
MEMORY = 0.99  # decay of gamma over all requests, per guess


class Estimates:
    """Measurements and the credit of speculation. Both outlast a request.

    credit: how much time speculation may still lose, in sequential steps (a + b of a single search). It starts at
    `full`. Each step without speculation adds `refill`, up to `full`; what a round gains is added, up to `most`, and
    what it loses is taken off, down to zero.

    After `IDLE` steps without speculation, measured verifications and guesses are dropped. Otherwise one slow
    measurement could end speculation for good.
    """

    full = 3.0
    most = 10.0
    refill = 0.002

    def __init__(self) -> None:
        self.guess = 0.0  # seconds of a guess, 0 before the first
        self.single = 0.0  # seconds of a search for one query, as in sequential retrieval
        self.credit = self.full
        self.gamma = 0.5  # over all requests, exponentially weighted
        self.seen = 0  # guesses that gamma counts
        self.batches: dict[bool, dict[int, deque[float]]] = {False: {}, True: {}}
        self.rounds: deque[tuple[int, bool]] = deque()  # the last rounds: (matched, whether a mismatch ended it)
        self.unasked = 0  # steps without speculation since the last one with a guess
        self.unmeasured = 0  # retrievals since the last undisturbed search
        self.unguessed = 0  # steps since the last guess
        self.idle = 0  # steps without speculation since the last round
        self.in_a_row = 0  # verifications in the worker since the last one in the caller
        self.overlapped = 0  # steps during verifications in the worker, since its measurements were last dropped
        self.unseen = 0  # rounds and steps without speculation since the last verification in the worker
        self.patience = PATIENCE
        self._steps: dict[bool, deque[float]] = {overlapped: deque(maxlen=RECENT) for overlapped in (False, True)}
        self._step: dict[bool, float | None] = {False: None, True: None}
        self._guesses: deque[float] = deque(maxlen=RECENT)
        self._singles: deque[float] = deque(maxlen=RECENT)  # undisturbed searches
        self._asked: deque[float] = deque(maxlen=RECENT)  # searches after a guess that only tested speculation
        self._others: deque[float] = deque(maxlen=REPEATS)
        self._lines: dict[bool, tuple[float, float] | None] = {False: None, True: None}

    @property
    def empty(self) -> bool:
        """Whether no step was measured."""
        return self._step[False] is None and self._step[True] is None

    @property
    def unsure(self) -> bool:
        """Whether `single` rests on too few searches."""
        return len(self._singles) < SURE

    @property
    def stale(self) -> bool:
        """Whether the last guess is at least `IDLE` steps ago, so that its time is out of date."""
        return self.unguessed >= IDLE

    @property
    def disturbance(self) -> float:
        """Least seconds by which a guess slows the search after it."""
        return max(min(self._asked, default=0.0) - self.single, 0.0)

    @property
    def sequential(self) -> float:
        """Seconds of a step with its search, without speculation."""
        return self.step(False) + self.single

    def step(self, overlapped: bool) -> float:
        """Seconds of generating a step, alone or `overlapped` with a verification. The time alone counts as `CALM`
        overlapped steps. An unmeasured one equals the other, 0 if neither was measured."""
        known, other = self._step[overlapped], self._step[not overlapped]
        if known is None:
            return other or 0.0
        if overlapped and other is not None:
            return (self.overlapped * known + CALM * other) / (self.overlapped + CALM)
        return known

    def verification(self, asynchronous: bool) -> tuple[float, float]:
        """(b, slope): a verification of s queries takes b + slope s seconds, by least squares over the strides tried.
        Before the first verification this is (`single`, 0). Before the first in the worker, it is that of all cores."""
        if asynchronous and not self.batches[True]:
            return self.verification(False)
        if (line := self._lines[asynchronous]) is None:
            line = self._lines[asynchronous] = self._fitted(asynchronous)
        return line

    def _fitted(self, asynchronous: bool) -> tuple[float, float]:
        points = {s: (float(len(seconds)), median(seconds)) for s, seconds in self.batches[asynchronous].items()}
        if not asynchronous and self.single:
            points[1] = (float(REPEATS), self.single)
        if asynchronous and len(points) == 1:  # the line of all cores, scaled to the one stride measured
            ((s, (_, seconds)),) = points.items()
            return scaled(self.verification(False), s, seconds)
        return line(points)

    def stepped(self, seconds: float, overlapped: bool) -> None:
        """A step was generated."""
        self.overlapped += overlapped
        self._steps[overlapped].append(seconds)
        self._step[overlapped] = fmean(self._steps[overlapped])

    def guessed(self, seconds: float) -> None:
        """A guess was made."""
        if self.stale:
            self._guesses.clear()
        self.unguessed = 0
        self._guesses.append(seconds)
        self.guess = median(self._guesses)

    def searched(self, seconds: float, undisturbed: bool, asked: bool = False) -> None:
        """A step without speculation was taken; its search took `seconds`.

        undisturbed: no prompt was read and no guess was made since the search before. Other searches estimate `single`
        only until there is an undisturbed one: after a prompt or a guess the index is no longer in the processor's
        cache. asked: a guess was made only to see whether it is right. Such searches also measure `disturbance`.
        """
        self.unmeasured = 0 if undisturbed else self.unmeasured + 1
        (self._singles if undisturbed else self._asked if asked else self._others).append(seconds)
        self.single = median(self._singles or self._others or self._asked)
        self._lines = {False: None, True: None}
        self.idle += 1
        self.unguessed += 1
        if self.idle == IDLE:
            self.batches[False].clear()
        self._without_the_worker()
        if self.credit < self.full:
            self.credit = min(self.credit + self.refill, self.full)

    def verified(self, s: int, seconds: float, asynchronous: bool) -> None:
        """A verification of s queries took `seconds`.

        The worker's measurements are dropped after `patience` rounds and steps without it: a few may have been slow by
        chance, and the first always is. Until its next verification the worker counts as fast as all cores.
        """
        self.batches[asynchronous].setdefault(s, deque(maxlen=REPEATS)).append(seconds)
        self._lines = {False: None, True: None}
        if asynchronous:
            self.in_a_row += 1
            if self.in_a_row > PATIENCE:  # the worker keeps winning
                self.patience = PATIENCE
            self.unseen = 0
            return
        self.in_a_row = 0
        self._without_the_worker()

    def _without_the_worker(self) -> None:
        self.unseen += 1
        if self.batches[True] and self.unseen >= self.patience:
            self.patience = min(2 * self.patience, IDLE)
            self.overlapped = 0
            self.batches[True].clear()
            self._steps[True].clear()
            self._step[True] = None

    def settled(self, spent: float, steps: float, retrievals: int, overlapped: int = 0) -> None:
        """A round took `spent` seconds for `retrievals` retrievals. `overlapped` of its steps ran during a
        verification; the others took `steps` seconds."""
        self.idle = 0
        self.unmeasured += retrievals
        if not self.empty and self.sequential:
            worth = steps + overlapped * self.step(False) + retrievals * self.single
            gain = (worth - spent) / self.sequential
            self.credit = max(min(self.credit + gain, self.most), 0.0)

    def saw(self, hits: Collection[bool]) -> None:
        """Update gamma by guesses that were right (True) or wrong."""
        for hit in hits:
            self.seen += 1
            weight = max(1 - MEMORY, 1 / (self.seen + 1))  # a plain mean at first, with a prior of one guess at 0.5
            self.gamma += weight * (hit - self.gamma)


def line(points: Mapping[int, tuple[float, float]]) -> tuple[float, float]:
    """(b, slope) of b + slope s by weighted least squares over `points`, s -> (weight, seconds). One point gives slope
    0, no point (0, 0)."""
    total = sum(weight for weight, _ in points.values())
    if not total:
        return 0.0, 0.0
    s = sum(weight * x for x, (weight, _) in points.items()) / total
    seconds = sum(weight * t for weight, t in points.values()) / total
    spread = sum(weight * (x - s) ** 2 for x, (weight, _) in points.items())
    slope = sum(weight * (x - s) * (t - seconds) for x, (weight, t) in points.items()) / spread if spread else 0.0
    slope = min(max(slope, 0.0), seconds / s)  # slope >= 0 and b >= 0: anything else is noise
    return seconds - slope * s, slope


def scaled(line: tuple[float, float], s: int, seconds: float) -> tuple[float, float]:
    """(b, slope), both scaled so that a verification of s queries takes `seconds`."""
    b, slope = line
    known = b + slope * s
    return (b * seconds / known, slope * seconds / known) if known else (seconds, 0.0)
