"""What methods answer: scores of tokens, top-k words, outputs and how they came about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NEAR_TIE = 1e-4  # gap of the two best logits within which kernels that round differently may choose differently


@dataclass(slots=True)
class TokenScores:
    """Natural-log probability of each predicted token of one stream.

    log_probs: float64 [T-1]. counters: deterministic totals (`searches`, `tokens`, ...). series: per-token arrays.
    """

    log_probs: NDArray[np.float64]
    counters: dict[str, float] = field(default_factory=dict)
    series: dict[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(slots=True)
class TopK:
    """Best-first ids int64 [k] or [n, k], logits float32 of the same shape, log_normalizer float or float32 [n]
    (log-sum-exp of the logits over the method's candidate set)."""

    ids: NDArray[np.int64]
    logits: NDArray[np.float32]
    log_normalizer: Any


@dataclass(slots=True)
class Trace:
    """How a sequence came about.

    iterations: of the model. accepted: tokens accepted per iteration. drafts: tokens (ids) drafted per iteration, of
    which the accepted ones are a prefix as far as the model agrees; none for an ordinary step. Empty for a method that
    does not draft. others: places in the output of drafted tokens that were accepted though another one was the model's
    first choice. counters: deterministic totals. timing_counters: those that depend on timing by design (they never
    gate). series: figures along the steps.
    """

    iterations: int = 0
    accepted: list[int] = field(default_factory=list)
    drafts: list[list[int]] = field(default_factory=list)
    others: list[int] = field(default_factory=list)
    counters: dict[str, float] = field(default_factory=dict)
    timing_counters: dict[str, float] = field(default_factory=dict)
    series: dict[str, list[float]] = field(default_factory=dict)


@dataclass(slots=True)
class Decoded:
    """One output: token ids without the start token, with the end token when it was generated."""

    ids: list[int]
    trace: Trace = field(default_factory=Trace)


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with: the place where they first differ, or the shorter one's length."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
