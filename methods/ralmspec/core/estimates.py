"""What requests have told about the machine: seconds of steps and searches, and how speculation paid."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from statistics import fmean, median

RECENT = 20  # steps that estimates look back on
REPEATS = 5  # verifications of one stride that are kept
SURE = 2  # single searches that are enough to go by
IDLE = 500  # steps without speculation after which verifications and guesses are too old to tell what one costs
CALM = 4  # steps alone that the mean of overlapped ones counts: a few unlucky ones do not tell
PATIENCE = 8  # rounds and steps without speculation until the worker, where it lost, is tried again; doubled each time
MEMORY = 0.99  # of gamma over all requests, per step


class Estimates:
    """What requests have told, and the credit of speculation; both outlast a request.

    credit: in sequential steps (a + b of a single search each); starts at `full`, is refilled to it by `refill` a step,
    and grows beyond it, up to `most`, by what speculation gains. Below zero it does not fall, and after `IDLE` steps
    without speculation verifications and guesses no longer count: one that a hiccup of the machine made slow would end
    speculation for good.
    """

    full = 3.0
    most = 10.0
    refill = 0.002

    def __init__(self) -> None:
        self.guess = 0.0  # seconds of a guess, 0 while none is known
        self.single = 0.0  # seconds of a search for one query, as sequential retrieval makes it
        self.credit = self.full
        self.gamma = 0.5  # of all requests, the older the less
        self.seen = 0  # guesses that gamma is of
        self.batches: dict[bool, dict[int, deque[float]]] = {False: {}, True: {}}
        self.rounds: deque[tuple[int, bool]] = deque()  # the last: (matched, whether a mismatch ended it)
        self.unasked = 0  # steps without speculation since the last one with a guess
        self.unmeasured = 0  # retrievals since the last search that tells `single`
        self.unguessed = 0  # steps since the last guess
        self.idle = 0  # steps without speculation since the last round
        self.in_a_row = 0  # verifications in the worker since the last one in the caller
        self.overlapped = 0  # steps during verifications in the worker since it was forgotten
        self.unseen = 0  # rounds and steps without speculation since the last verification in the worker
        self.patience = PATIENCE
        self._steps: dict[bool, deque[float]] = {overlapped: deque(maxlen=RECENT) for overlapped in (False, True)}
        self._step: dict[bool, float | None] = {False: None, True: None}
        self._guesses: deque[float] = deque(maxlen=RECENT)
        self._singles: deque[float] = deque(maxlen=RECENT)  # searches that tell `single`
        self._asked: deque[float] = deque(maxlen=RECENT)  # searches after a guess, for a step without speculation
        self._others: deque[float] = deque(maxlen=REPEATS)
        self._lines: dict[bool, tuple[float, float] | None] = {False: None, True: None}

    @property
    def empty(self) -> bool:
        """Whether no step is known."""
        return self._step[False] is None and self._step[True] is None

    @property
    def unsure(self) -> bool:
        """Whether `single` is known from too few searches."""
        return len(self._singles) < SURE

    @property
    def stale(self) -> bool:
        """Whether the last guess is too long ago to tell what one costs."""
        return self.unguessed >= IDLE

    @property
    def disturbance(self) -> float:
        """Seconds that any search takes longer after a guess, at least."""
        return max(min(self._asked, default=0.0) - self.single, 0.0)

    @property
    def sequential(self) -> float:
        """Seconds of a step with its search, without speculation."""
        return self.step(False) + self.single

    def step(self, overlapped: bool) -> float:
        """Seconds of generating a step, `overlapped` with a verification (at first as much as alone) or alone; as the
        other where it is not known."""
        known, other = self._step[overlapped], self._step[not overlapped]
        if known is None:
            return other or 0.0
        if overlapped and other is not None:
            return (self.overlapped * known + CALM * other) / (self.overlapped + CALM)
        return known

    def verification(self, asynchronous: bool) -> tuple[float, float]:
        """(b, slope): a verification of s queries takes b + slope s seconds, by least squares over the strides tried.
        Without a longer batch a search costs what a single one does; in the worker, as much as on all cores."""
        if asynchronous and not self.batches[True]:
            return self.verification(False)
        if (line := self._lines[asynchronous]) is None:
            line = self._lines[asynchronous] = self._fitted(asynchronous)
        return line

    def _fitted(self, asynchronous: bool) -> tuple[float, float]:
        points = {s: (float(len(seconds)), median(seconds)) for s, seconds in self.batches[asynchronous].items()}
        if not asynchronous and self.single:
            points[1] = (float(REPEATS), self.single)
        if asynchronous and len(points) == 1:  # as many times as slow as all cores for any stride
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
        """A step went without speculation, its search took so long.

        undisturbed: between the search before and this one was what sequential retrieval does, no prompt and no guess.
        For `single` others count only until there is one: what has been read in between, thousands of cached entries or
        a prompt, leaves the processor's caches without what a search walks through. asked: there was a guess, to see if
        it is right; such searches tell the `disturbance`, too.
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
        """A verification took so long. What is known of the worker is forgotten when it has had none for long: its few
        may have been slow by chance, and the first one always is. Until the next one the worker counts as fast as all
        cores."""
        self.batches[asynchronous].setdefault(s, deque(maxlen=REPEATS)).append(seconds)
        self._lines = {False: None, True: None}
        if asynchronous:
            self.in_a_row += 1
            if self.in_a_row > PATIENCE:  # it won
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
        """A round took `spent` seconds for so many retrievals. `overlapped` of their steps were taken during a
        verification, the others took `steps` seconds."""
        self.idle = 0
        self.unmeasured += retrievals
        if not self.empty and self.sequential:
            worth = steps + overlapped * self.step(False) + retrievals * self.single
            gain = (worth - spent) / self.sequential
            self.credit = max(min(self.credit + gain, self.most), 0.0)

    def saw(self, hits: Collection[bool]) -> None:
        """Guesses were right or wrong."""
        for hit in hits:
            self.seen += 1
            weight = max(1 - MEMORY, 1 / (self.seen + 1))  # a mean at first, with one guess half right before it
            self.gamma += weight * (hit - self.gamma)


def line(points: Mapping[int, tuple[float, float]]) -> tuple[float, float]:
    """(b, slope) of b + slope s by least squares, from s: (weight, seconds); slope 0 for one point, both for none."""
    total = sum(weight for weight, _ in points.values())
    if not total:
        return 0.0, 0.0
    s = sum(weight * x for x, (weight, _) in points.items()) / total
    seconds = sum(weight * t for weight, t in points.values()) / total
    spread = sum(weight * (x - s) ** 2 for x, (weight, _) in points.items())
    slope = sum(weight * (x - s) * (t - seconds) for x, (weight, t) in points.items()) / spread if spread else 0.0
    slope = min(max(slope, 0.0), seconds / s)  # noise apart, a longer batch costs no less, and no query twice
    return seconds - slope * s, slope


def scaled(line: tuple[float, float], s: int, seconds: float) -> tuple[float, float]:
    """(b, slope), both multiplied so that a verification of s queries takes `seconds`."""
    b, slope = line
    known = b + slope * s
    return (b * seconds / known, slope * seconds / known) if known else (seconds, 0.0)
