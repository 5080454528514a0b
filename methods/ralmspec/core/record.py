"""What happened in one request: counts, strides, seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.contracts import Trace

ALONE = (0, 0)  # the round of a step without speculation


@dataclass(slots=True)
class Record:
    """Seconds are the main thread's unless noted. A step's seconds include `begin` but not the guess.

    rounds: of every decision the steps, and those of them that were right before the first that was wrong; `ALONE` for
    a step without speculation.
    """

    rounds: list[tuple[int, int]] = field(default_factory=list)
    steps: int = 0  # taken with a guess
    step_s: float = 0.0  # of these
    verification_s: float = 0.0  # of either thread
    guess_s: float = 0.0
    sequential_s: float = 0.0
    redone_s: float = 0.0  # of steps taken again with the truth
    encode_s: float = 0.0  # of queries; contained in the steps' seconds
    waited_s: float = 0.0  # for single and batched searches

    def trace(self, by_time: bool) -> Trace:
        """The trace of a request. `by_time`: counts depend on timing and go to `timing_counters`. `verified`: guesses
        compared with the truth, in each round up to and including the first mismatch."""
        sequential, matched = self.rounds.count(ALONE), sum(right for _, right in self.rounds)
        rollbacks = sum(right < s for s, right in self.rounds)
        steps = self.steps + sequential + rollbacks
        counts = {
            "searches": len(self.rounds), "queries": sum(s for s, _ in self.rounds) + sequential,
            "speculated": self.steps, "rollbacks": rollbacks, "verified": matched + rollbacks, "matched": matched,
            "sequential": sequential,
        }  # fmt: skip
        counted = {name: float(value) for name, value in counts.items()}
        generation_s = self.step_s + self.guess_s + self.sequential_s + self.redone_s - self.encode_s
        seconds = {"generation_s": generation_s, "retrieval_s": self.waited_s + self.encode_s}
        return Trace(
            iterations=0 if by_time else steps,
            counters={} if by_time else counted,
            timing_counters=seconds | (counted | {"steps": float(steps)} if by_time else {}),
            series={"strides": [float(s) for s, _ in self.rounds]},
        )
