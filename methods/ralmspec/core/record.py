"""What happened in one request: counts, strides, seconds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from harness.contracts import Trace


@dataclass(slots=True)
class Record:
    """Seconds are the main thread's unless noted. Pairs are (alone, during a verification in the worker). A step's
    seconds include `begin` but not the guess."""

    sequential: int = 0  # steps taken without speculation
    matched: int = 0
    rollbacks: int = 0
    queries: int = 0
    strides: list[int] = field(default_factory=list)  # of every decision, 0 for a step without speculation
    rounds: int = 0
    clean: Counter[int] = field(default_factory=Counter)  # steps of a round -> rounds in which all were right
    steps: list[int] = field(default_factory=lambda: [0, 0])  # taken with a guess
    step_s: list[float] = field(default_factory=lambda: [0.0, 0.0])
    verification_s: float = 0.0  # of either thread
    guess_s: float = 0.0
    sequential_s: float = 0.0
    redone_s: float = 0.0  # of steps taken again with the truth
    encode_s: float = 0.0  # of queries; contained in the steps' seconds
    waited_s: float = 0.0  # for single and batched searches

    @property
    def verified(self) -> int:
        """Guesses compared with the truth: in each round up to and including the first mismatch."""
        return self.matched + self.rollbacks

    def took(self, seconds: float, guess_s: float, overlapped: bool) -> None:
        """A step was taken with a guess."""
        self.steps[overlapped] += 1
        self.step_s[overlapped] += seconds
        self.guess_s += guess_s

    def retrieved(self, seconds: float, search_s: float) -> None:
        """A step was taken with the result of its own search."""
        self.sequential += 1
        self.queries += 1
        self.strides.append(0)
        self.sequential_s += seconds
        self.waited_s += search_s

    def verified_round(self, s: int, matched: int, seconds: float) -> None:
        """The queries of s steps were searched in one batch."""
        self.strides.append(s)
        self.rounds += 1
        self.queries += s
        self.matched += matched
        self.rollbacks += matched < s
        if matched == s:
            self.clean[s] += 1
        self.verification_s += seconds

    def trace(self, by_time: bool) -> Trace:
        """The trace of a request. `by_time`: counts depend on timing and go to `timing_counters`."""
        steps = sum(self.steps) + self.sequential + self.rollbacks
        counts = {
            "searches": self.sequential + self.rounds, "queries": self.queries, "speculated": sum(self.steps),
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
