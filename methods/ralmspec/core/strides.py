"""The interface of schedulers, the fixed stride, and what a stride settles and takes.

Symbols as in the paper: a, seconds of a speculation step; b, seconds of a verification; gamma, the probability that a
guess is right; s, the stride. Here a verification of s queries takes b + slope s seconds (slope 0 in the paper).
"""

from __future__ import annotations

from dataclasses import dataclass


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
        """Whether to make a guess in this step without speculation, only to see if it is right."""
        return False

    def took(self, what: str, seconds: float) -> None:
        """One measurement: a `step` alone, a step `overlapped` with a verification in the worker, a `guess`, a `search`
        as sequential retrieval makes it, or a search `disturbed` by a prompt or a guess before it."""

    def guessed(self, right: int, wrong: int) -> None:
        """Guesses were compared with the truth."""

    def verified(self, s: int, seconds: float, worker: bool) -> None:
        """A verification of s queries, in the worker or not, took `seconds`."""

    def settled(self, spent: float, steps: float, overlapped: int, retrievals: int, worker: bool) -> None:
        """A round took `spent` seconds for `retrievals`. `overlapped` of its steps ran during a verification; the
        others took `steps` seconds. worker: it was verified there."""
