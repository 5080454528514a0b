"""What the paper's latency formula allows for the requests that a service has served: speedup at the best stride."""

from __future__ import annotations

from dataclasses import dataclass

from methods.ralmspec.experience import line
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
    others."""

    def __init__(self) -> None:
        self.total = Record()
        self._requests: list[_Request] = []
        self._number = 0

    def add(self, record: Record) -> None:
        """A request was served."""
        if self._number == 1:
            self.total = Record()
            self._requests = []
        self._number += 1
        self.total.add(record)
        steps = record.sequential + record.verified - record.firsts
        self._requests.append(_Request(record.first_s, steps, record.tried, record.right))

    def allowed(self, asynchronous: bool) -> float | None:
        """The speedup over sequential retrieval if every request had been served by the stride that is best for it.

        Seconds per settled retrieval are (s a + b) / sum of gamma^i for i < s (section 4), with `asynchronous` also
        those of the paper's formula for that and of `pipelined`, what A does here, where more than one step may
        overlap, and a + b of a single search for s = 0; the least of them counts, over all s up to `LONGEST` and the
        request's length. a (a step and its guess, alone or beside a verification), b (a
        line through the strides taken and the single search) and a, b of a single search without speculation are means
        over all requests; a kind of verification that never ran is taken to cost what the other one does. gamma is each
        request's own, of all guesses that were looked at, also beside steps without speculation, smoothed by `PRIOR`
        guesses of all requests, and not cut at gamma_max. The step that a mismatch makes necessary again is no part of
        the paper's formula, only of `pipelined`. The strides taken play no part but as the places where a, b and gamma
        were measured.

        None when nothing was generated. Where no guess was ever looked at gamma is unknown and taken to be 1, the most
        that it can be; a guess that was never made costs nothing, and a batch never searched as much as one query.
        """
        if not self._requests:
            return None
        total = self.total
        sequential = total.step(False) + total.single
        kinds = {aside: self._rounds(aside) for aside in ([False, True] if asynchronous else [False])}
        ours = theirs = 0.0
        for request in self._requests:
            theirs += request.first_s + request.steps * sequential
            best = sequential
            if request.steps:
                likely = total.right / total.tried if total.tried else 1.0
                gamma = (request.right + PRIOR * likely) / (request.tried + PRIOR)
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
        total = self.total
        points = {s: (n, total.verification_s[s, aside] / n) for (s, kind), n in total.rounds.items() if kind == aside}
        if aside and not points:
            alone = self._rounds(False)
            return _Rounds(total.step(True) + total.guess, alone.b, alone.slope)
        if not aside and total.sequential:
            n, seconds = points.get(1, (0, 0.0))
            both = n + total.sequential
            points[1] = (both, (n * seconds + total.single_s) / both)
        return _Rounds(total.step(aside) + total.guess, *line(points))
