"""Answers that cannot be, refused before anything is made of them.

Each function raises `RequestError` naming the method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from harness.common.errors import RequestError
from harness.contracts import Decoded
from harness.plan.registry import label

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROUNDING = 1e-6  # by so much a log-probability may exceed 0, in float32 arithmetic


def counted(method: Any, given: int, wanted: int, what: str) -> None:
    if given != wanted:
        raise RequestError(f"{label(method)} answered {given} of {wanted} {what}")


def probable(method: Any, log_probs: NDArray[Any], impossible: bool = False) -> None:
    """Refuse what no log-probability can be. impossible: a word may have no probability at all (-inf)."""
    refused = ~np.isfinite(log_probs) & ~(np.isneginf(log_probs) & impossible)
    if refused.any():
        raise RequestError(f"{label(method)} gives a log-probability that is not a number: {log_probs[refused][0]}")
    if log_probs.size and log_probs.max() > ROUNDING:
        raise RequestError(f"{label(method)} gives a log-probability above 0: {log_probs.max():.4g}")


def possible(method: Any, setting: Any, answer: Decoded) -> Decoded:
    """The answer, unless no output can be so: too long, or with ids outside the vocabulary."""
    ids, words = answer.ids, setting.model.vocabulary_size
    if len(ids) > setting.limit:
        raise RequestError(f"{label(method)} gives {len(ids)} tokens where {setting.limit} are the limit")
    if ids and not (min(ids) >= 0 and max(ids) < words):
        raise RequestError(f"{label(method)} gives an id outside of 0 to {words - 1}")
    return answer
