"""What the paper's latency formula allows for the requests that a service has served: speedup at the best stride."""

from __future__ import annotations

from dataclasses import dataclass

from methods.ralmspec.experience import line, scaled
from methods.ralmspec.record import Record
from methods.ralmspec.scheduler import LONGEST, PRIOR, expected_matches, latency, pipelined


@dataclass(frozen=True, slots=True)
class _Request:
    first_s: float  # of the first step and its search, which every request takes without speculation
    steps: int  # after it
    tried: int  # guesses whose truth was looked at
    right: int


@dataclass(frozen=True, slots=True)
class _Rounds:
    """Of one kind: a, seconds of a step with its guess; b + slope s, of a verification of s queries."""

    a: float
    b: float
    slope: float

    def seconds(self, gamma: float, s: int, steps: int, aside: bool) -> float:
        """Expected seconds per settled retrieval by the paper's formula, aside the least of it and of `pipelined`. By
        the latter the steps of a request's first round overlap nothing: spread over all `steps` of it."""
        b = self.b + self.slope * s
        settled = expected_matches(gamma, s)
        seconds = latency(self.a, b, gamma, s, aside) / settled
        if not aside:
            return seconds
        return min(seconds, pipelined(self.a, b, gamma, s) / settled + min(s * self.a, b) / steps)


class Served:
    """All requests since a service was opened, but for the first one, which pays for what is cold, once there are
    others that tell the same."""

    def __init__(self) -> None:
        self.total = Record()
        self._all = Record()
        self._requests: list[_Request] = []
        self._number = 0

    def add(self, record: Record) -> None:
        """A request was served."""
        if self._number == 1:
            self.total = Record()
            self._requests = []
        self._number += 1
        self.total.add(record)
        self._all.add(record)
        steps = record.sequential + record.verified - record.firsts
        self._requests.append(_Request(record.first_s, steps, record.tried, record.right))

    def allowed(self, asynchronous: bool) -> float | None:
        """The speedup over sequential retrieval if every request had been served by the stride that is best for it.

        Seconds per settled retrieval are (s a + b) / sum of gamma^i for i < s (section 4), with `asynchronous` also
        those of the paper's formula for that and of `pipelined`, what A does here, where more than one step may
        overlap, and a + b of a single search for s = 0; the least of them counts, over all s up to `LONGEST` and the
        request's length. a (a step and its guess, alone or beside a verification), b (see `_rounds`) and a, b of a
        single search without speculation are means over all requests. gamma is each request's own, (right + 2 pooled) /
        (tried + 2) over all guesses that were looked at, also beside steps without speculation, where pooled = (right +
        1) / (tried + 1) over all requests; it is not cut at gamma_max. The step that a mismatch makes necessary again
        is no part of the paper's formula, only of `pipelined`. The strides taken play no part but as the places where
        a, b and gamma were measured.

        Guesses and rounds of the first request count where no other had any, cold as they may be. Where it had none
        either, gamma is 1 and a guess costs nothing: that is in the limit's favour, as is a stride of one kind alone,
        by which a longer batch costs no more. Where no search was like the baseline's own, with a fixed stride, the
        first of each request stands for it, which follows a prompt and is slower. None when nothing was generated.
        """
        if not self._requests:
            return None
        total = self.total
        sequential = total.step(False) + total.single
        kinds = {aside: self._rounds(aside) for aside in ([False, True] if asynchronous else [False])}
        tried = total if total.tried else self._all
        pooled = (tried.right + 1) / (tried.tried + 1)
        ours = theirs = 0.0
        for request in self._requests:
            theirs += request.first_s + request.steps * sequential
            best = sequential
            if request.steps:
                gamma = (request.right + PRIOR * pooled) / (request.tried + PRIOR)
                best = min(
                    sequential,
                    *(
                        rounds.seconds(gamma, s, request.steps, aside)
                        for aside, rounds in kinds.items()
                        for s in range(1, min(LONGEST, request.steps) + 1)
                    ),
                )
            ours += request.first_s + request.steps * best
        return theirs / ours if ours else None

    def _rounds(self, aside: bool) -> _Rounds:
        """b and slope by least squares over the strides taken. A kind that took a single stride, or none, while the
        other took more is as many times as slow as it for any stride."""
        points, others = self._points(aside), self._points(not aside)
        if not points:
            b, slope = line(others)
        elif len(points) == 1 and len(others) > 1:
            ((s, (_, seconds)),) = points.items()
            b, slope = scaled(line(others), s, seconds)
        else:
            b, slope = line(points)
        guessed = self.total if self.total.guess else self._all
        return _Rounds(self.total.step(aside) + guessed.guess, b, slope)

    def _points(self, aside: bool) -> dict[int, tuple[float, float]]:
        """Seconds of a verification by its stride, with their number; a single search is one of stride 1, that after a
        prompt or a guess only where there was no other."""
        total = self.total
        told = total if total.rounds else self._all
        points = {
            s: (float(n), told.verification_s[s, aside] / n) for (s, kind), n in told.rounds.items() if kind == aside
        }
        if not aside and (single := total.alike or total.sequential):
            n, seconds = points.get(1, (0.0, 0.0))
            points[1] = (n + single, (n * seconds + single * total.single) / (n + single))
        return points
