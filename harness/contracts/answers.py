"""What methods answer: scores of tokens, top-k words, outputs and how they came about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
    """How a sequence came about: model iterations, tokens accepted per iteration, deterministic counters,
    counters that depend on timing by design (never gate), and a text per step where a worked example shows it."""

    iterations: int = 0
    accepted: list[int] = field(default_factory=list)
    counters: dict[str, float] = field(default_factory=dict)
    timing_counters: dict[str, float] = field(default_factory=dict)
    series: dict[str, list[float]] = field(default_factory=dict)


@dataclass(slots=True)
class Decoded:
    """One output: token ids without the start token, with the end token when it was generated."""

    ids: list[int]
    trace: Trace = field(default_factory=Trace)
