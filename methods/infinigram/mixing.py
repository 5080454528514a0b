"""Mixing n-gram probabilities with a neural LM's (Liu et al., 2024, section 2.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.contracts import LanguageModel

LARGEST = 0.999  # of lambda: at 1 a token that never followed its context would have probability 0


def log_probs(model: LanguageModel, stream: NDArray[np.int64]) -> NDArray[np.float64]:
    """log p_LM of each predicted token of a stream [T]: float64 [T - 1]."""
    parts = [block.log_prob.double().cpu().numpy() for block in model.encode(stream)]
    return np.concatenate([np.empty(0), *parts])


def mixture(
    lm: NDArray[np.float64], infinigram: NDArray[np.float64], lambda_: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    """lambda p_inf + (1 - lambda) p_LM, elementwise."""
    return lambda_ * infinigram + (1 - lambda_) * lm


def best_lambda(lm: NDArray[np.float64], infinigram: NDArray[np.float64]) -> float:
    """The lambda with the least mean -log of the mixture. The loss is convex, so refining a grid finds it."""
    if not len(lm):
        return 0.0
    low, high = 0.0, LARGEST
    for _ in range(4):
        grid = np.linspace(low, high, 13)
        losses = [float(-np.log(mixture(lm, infinigram, value)).mean()) for value in grid]
        where = int(np.argmin(losses))
        low, high = float(grid[max(where - 1, 0)]), float(grid[min(where + 1, 12)])
    return round(float(grid[where]), 4)
