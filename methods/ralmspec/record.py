"""What happened in one request or in several: counts, strides, seconds, and what the paper's formula makes of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields

from harness.contracts import Trace
from methods.ralmspec.scheduler import expected_matches, latency


@dataclass(slots=True)
class Record:
    """Seconds are of the main thread unless said otherwise; pairs are (alone, beside a verification) or (on all cores,
    in the worker). A step's seconds include `begin`, not the guess."""

    sequential: int = 0  # steps taken without speculation
    matched: int = 0
    rollbacks: int = 0
    queries: int = 0
    strides: list[int] = field(default_factory=list)  # of every decision, 0 for a step without speculation
    rounds: Counter[tuple[int, bool]] = field(default_factory=Counter)  # verifications of (steps, in the worker)
    steps: list[int] = field(default_factory=lambda: [0, 0])  # taken with a guess
    step_s: list[float] = field(default_factory=lambda: [0.0, 0.0])
    verification_s: list[float] = field(default_factory=lambda: [0.0, 0.0])  # of batched searches, wherever they ran
    guess_s: float = 0.0
    sequential_s: float = 0.0
    redone_s: float = 0.0  # of steps taken again with the truth
    single_s: float = 0.0  # of single searches
    encode_s: float = 0.0  # of queries; contained in the steps' seconds
    waited_s: float = 0.0  # for searches of either kind

    @property
    def verified(self) -> int:
        """Guesses whose truth was looked at, up to the first mismatch of a round."""
        return self.matched + self.rollbacks

    @property
    def single(self) -> float:
        """Mean seconds of a single search."""
        return self.single_s / self.sequential if self.sequential else 0.0

    def took(self, seconds: float, guess_s: float, beside: bool) -> None:
        """A step was taken with a guess."""
        self.steps[beside] += 1
        self.step_s[beside] += seconds
        self.guess_s += guess_s

    def retrieved(self, seconds: float, search_s: float) -> None:
        """A step was taken with the truth of a single search."""
        self.sequential += 1
        self.queries += 1
        self.strides.append(0)
        self.sequential_s += seconds
        self.single_s += search_s
        self.waited_s += search_s

    def verified_round(self, s: int, matched: int, seconds: float, aside: bool) -> None:
        """The queries of s steps were searched together."""
        self.strides.append(s)
        self.rounds[s, aside] += 1
        self.queries += s
        self.matched += matched
        self.rollbacks += matched < s
        self.verification_s[aside] += seconds

    def alone(self, seconds: float, beside: bool) -> float:
        """What a step of these seconds takes with no verification beside it: the mean of such steps, where known."""
        return self.step_s[False] / self.steps[False] if beside and self.steps[False] else seconds

    def add(self, other: Record) -> None:
        """Make this the record of both."""
        for one in fields(self):
            ours, theirs = getattr(self, one.name), getattr(other, one.name)
            paired = one.name in ("steps", "step_s", "verification_s")
            setattr(self, one.name, [a + b for a, b in zip(ours, theirs, strict=True)] if paired else ours + theirs)

    def trace(self, by_time: bool) -> Trace:
        """The trace of a request; counts go to `timing_counters` where they depend on timing (`by_time`)."""
        steps = sum(self.steps) + self.sequential + self.rollbacks
        counts = {
            "searches": self.sequential + self.rounds.total(), "queries": self.queries, "speculated": sum(self.steps),
            "rollbacks": self.rollbacks, "verified": self.verified, "matched": self.matched,
            "sequential": self.sequential,
        }  # fmt: skip
        counted = {name: float(value) for name, value in counts.items()}
        generation_s = sum(self.step_s) + self.guess_s + self.sequential_s + self.redone_s - self.encode_s
        seconds = {"generation_s": generation_s, "retrieval_s": self.waited_s + self.encode_s}
        return Trace(
            iterations=0 if by_time else steps,
            counters={} if by_time else counted,
            timing_counters=seconds | (counted | {"steps": float(steps)} if by_time else {}),
            series={"strides": [float(s) for s in self.strides]},
        )

    def limit(self) -> float | None:
        """The speedup that the paper's formula allows for the a, b and gamma measured and the strides taken; None when
        nothing was served. Steps without speculation cost both sides the same."""
        same = self.sequential_s + self.single_s
        if not same:
            return None
        ours = theirs = same
        a = [seconds / number if number else None for seconds, number in zip(self.step_s, self.steps, strict=True)]
        guess = self.guess_s / max(sum(self.steps), 1)
        times = [sum(n for (_, aside), n in self.rounds.items() if aside == kind) for kind in (False, True)]
        b = [seconds / max(number, 1) for seconds, number in zip(self.verification_s, times, strict=True)]
        gamma = self.matched / self.verified if self.verified else 0.0
        for (s, aside), number in self.rounds.items():
            step, plain = (_known(a[kind], a[not kind]) for kind in (aside, False))
            ours += number * latency(step + guess, b[aside], gamma, s, aside)
            theirs += number * expected_matches(gamma, s) * (plain + self.single)
        return theirs / ours


def _known(value: float | None, other: float | None) -> float:
    return value if value is not None else other or 0.0
