"""The answers of methods: scores of tokens, top-k words, outputs with their traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NEAR_TIE = 1e-4  # how far below the best a logit may be for kernels with other rounding to choose it
# the same of models in 16 bits: two steps between logits of 16 to 32, which are rounded to 8 or 11 bits
NEAR_TIES = {"bfloat16": 0.25, "float16": 1 / 32}


def near_tie(model: Any) -> float:
    """How far below the best logit rounding may choose another, by the type of the numbers in `model.module`."""
    return NEAR_TIES.get(str(getattr(getattr(model, "module", None), "dtype", "")).removeprefix("torch."), NEAR_TIE)


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
    """The iterations that made a sequence.

    iterations: of the model. accepted: tokens accepted per iteration. drafts: drafted ids per iteration ([] for an
    ordinary step); all accepted tokens but the last are a prefix of them, the last may be the model's own. Empty for a
    method that does not draft. others: positions in the output of accepted drafted tokens that were not the model's
    first choice. counters: deterministic totals. timing_counters: totals that depend on timing by design (they never
    gate). series: numbers along the steps.
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
    """One output: token ids without the start token, with the end token if it was generated."""

    ids: list[int]
    trace: Trace = field(default_factory=Trace)


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common prefix."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
