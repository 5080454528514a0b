"""What happened in one request or in several: counts, strides, seconds."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, fields

from harness.contracts import Trace


@dataclass(slots=True)
class Record:
    """Seconds are of the main thread unless said otherwise; pairs are (alone, beside a verification), rounds are told
    apart by (steps, whether in the worker). A step's seconds include `begin`, not the guess."""

    sequential: int = 0  # steps taken without speculation
    firsts: int = 0  # of these, a request's first
    asked: int = 0  # guesses beside steps without speculation
    hits: int = 0  # of these, the right ones
    matched: int = 0
    rollbacks: int = 0
    queries: int = 0
    strides: list[int] = field(default_factory=list)  # of every decision, 0 for a step without speculation
    rounds: Counter[tuple[int, bool]] = field(default_factory=Counter)
    clean: Counter[int] = field(default_factory=Counter)  # rounds of so many steps, all of them right
    steps: list[int] = field(default_factory=lambda: [0, 0])  # taken with a guess
    step_s: list[float] = field(default_factory=lambda: [0.0, 0.0])
    verification_s: defaultdict[tuple[int, bool], float] = field(default_factory=lambda: defaultdict(float))
    switches: int = 0  # steps beside a verification that paid for the change of threads
    switch_s: float = 0.0  # contained in step_s
    guess_s: float = 0.0
    sequential_s: float = 0.0
    first_step_s: float = 0.0  # of the first steps; contained in sequential_s
    first_s: float = 0.0  # the same with their searches
    redone_s: float = 0.0  # of steps taken again with the truth
    single_s: float = 0.0  # of single searches
    alike: int = 0  # single searches as sequential retrieval makes them (`Experience.searched`)
    alike_s: float = 0.0
    encode_s: float = 0.0  # of queries; contained in the steps' seconds
    waited_s: float = 0.0  # for searches of either kind

    @property
    def verified(self) -> int:
        """Guesses whose truth was looked at, up to the first mismatch of a round."""
        return self.matched + self.rollbacks

    @property
    def tried(self) -> int:
        """All guesses whose truth was looked at."""
        return self.verified + self.asked

    @property
    def right(self) -> int:
        """Of these, the right ones."""
        return self.matched + self.hits

    @property
    def guess(self) -> float:
        """Mean seconds of a guess."""
        return self.guess_s / max(sum(self.steps) + self.asked, 1)

    @property
    def single(self) -> float:
        """Mean seconds of a single search: of those as sequential retrieval makes them, if there were."""
        if self.alike:
            return self.alike_s / self.alike
        return self.single_s / self.sequential if self.sequential else 0.0

    def took(self, seconds: float, guess_s: float, beside: bool, switches: bool = False) -> None:
        """A step was taken with a guess; `switches`: it paid for a change of threads."""
        self.switches += switches
        self.switch_s += switches * seconds
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

    def began(self) -> None:
        """The step just retrieved for was the request's first."""
        self.firsts += 1
        self.first_step_s = self.sequential_s
        self.first_s = self.sequential_s + self.single_s

    def measured(self, seconds: float) -> None:
        """The search just recorded was as sequential retrieval makes it."""
        self.alike += 1
        self.alike_s += seconds

    def guessed(self, seconds: float, hit: bool) -> None:
        """A guess beside a step without speculation."""
        self.asked += 1
        self.guess_s += seconds
        self.hits += hit

    def verified_round(self, s: int, matched: int, seconds: float, aside: bool) -> None:
        """The queries of s steps were searched together."""
        self.strides.append(s)
        self.rounds[s, aside] += 1
        self.queries += s
        self.matched += matched
        self.rollbacks += matched < s
        if matched == s:
            self.clean[s] += 1
        self.verification_s[s, aside] += seconds

    def step(self, beside: bool) -> float:
        """Mean seconds of a step beside a verification, or alone, first ones, repeated ones and those that switched
        apart; as the other where there was none."""
        number = [self.steps[False] + self.sequential - self.firsts, self.steps[True] - self.switches]
        seconds = [self.step_s[False] + self.sequential_s - self.first_step_s, self.step_s[True] - self.switch_s]
        known = beside if number[beside] else not beside
        return seconds[known] / number[known] if number[known] else 0.0

    def add(self, other: Record) -> None:
        """Make this the record of both, strides apart: a long service would have too many."""
        for one in fields(self):
            ours, theirs = getattr(self, one.name), getattr(other, one.name)
            if one.name == "strides":
                continue
            if isinstance(ours, dict):
                for key, value in theirs.items():
                    ours[key] += value
            elif isinstance(ours, list):
                setattr(self, one.name, [a + b for a, b in zip(ours, theirs, strict=True)])
            else:
                setattr(self, one.name, ours + theirs)

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
