"""Lambda and temperature that minimise the validation loss of Eq. 2 and 3, by a grid refined around its best point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from methods.knnlm.mixture import log_knn

LARGEST_LAMBDA = 0.999  # at 1 a token that no neighbour agrees with would have probability 0
ROWS = 1024  # positions whose weights are held at once


@dataclass(frozen=True, slots=True)
class Tuned:
    """loss, lm_loss: mean negative log probability (nats) of kNN-LM and of the LM on validation text."""

    lambda_: float
    temperature: float
    loss: float
    lm_loss: float


def tune(
    log_lm: NDArray[np.floating],
    distances: NDArray[np.float32],
    hits: NDArray[np.bool_],
    *,
    lambda_: float | None = None,
    temperature: float | None = None,
) -> Tuned:
    """The best lambda and temperature; one given is kept.

    log_lm [n]: log p_LM(target); distances [n, k]: squared L2 of the neighbours; hits [n, k]: whether a neighbour's
    value is the target. Temperatures are tried one at a time, so memory beyond `distances` is a fixed number of rows.
    """
    log_base: NDArray[np.float64] = np.asarray(log_lm, np.float64)
    lm_loss = -float(log_base.mean())
    best: dict[float, tuple[float, float]] = {}  # temperature -> (loss, lambda)

    def loss_at(t: float) -> float:
        if t not in best:
            found = np.concatenate([
                log_knn(distances[i : i + ROWS], hits[i : i + ROWS], t) for i in range(0, len(log_base), ROWS)
            ])  # fmt: skip
            best[t] = tune_lambda(log_base, found, lambda_)
        return best[t][0]

    if temperature is None:
        scale = _scale(distances)
        temperature = _refine(loss_at, [scale * 2.0**power for power in range(-8, 7)], rounds=4)
    loss_at(temperature)
    return Tuned(best[temperature][1], temperature, best[temperature][0], lm_loss)


def tune_lambda(
    log_lm: NDArray[np.float64], found: NDArray[np.float64], lambda_: float | None = None
) -> tuple[float, float]:
    """(loss, lambda) of the lambda given, or of the best. found: log p_kNN(target) [n], NaN without an entry.

    The loss is convex in lambda, so repeatedly refining the grid around its best point finds the minimum.
    """
    # p / p_LM = 1 + lambda (ratio - 1)
    excess = np.expm1(np.minimum(np.nan_to_num(found - log_lm, nan=0.0, neginf=-np.inf, posinf=700.0), 700.0))
    base = -float(log_lm.mean())

    def losses(grid: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray([base - float(np.log1p(value * excess).mean()) for value in grid])

    if lambda_ is not None:
        with np.errstate(divide="ignore"):
            return float(losses(np.asarray([lambda_]))[0]), lambda_
    low, high = 0.0, LARGEST_LAMBDA
    for _ in range(4):
        grid = np.linspace(low, high, 13)
        at = losses(grid)
        where = int(at.argmin())
        low, high = float(grid[max(where - 1, 0)]), float(grid[min(where + 1, 12)])
    return float(at[where]), round(float(grid[where]), 4)


def _scale(distances: NDArray[np.float32]) -> float:
    """Median difference between a query's farthest and nearest distance: the unit in which temperatures are tried."""
    sample = distances[:: max(len(distances) // 4096, 1)]
    if sample.shape[1] == 0:
        return 1.0
    finite = np.where(np.isfinite(sample), sample, np.nan)
    rows = np.isfinite(finite).any(1)
    if not rows.any():
        return 1.0
    spread = float(np.median(np.nanmax(finite[rows], 1) - np.nanmin(finite[rows], 1)))
    return spread or float(np.median(np.nanmax(finite[rows], 1))) or 1.0


def _refine(loss: Callable[[float], float], grid: list[float], rounds: int) -> float:
    """The best point of a geometric grid, refined: each round takes the square root of its ratio."""
    best = min(grid, key=loss)
    ratio = grid[1] / grid[0]
    for _ in range(rounds):
        ratio = ratio**0.5
        best = min((best, best / ratio, best * ratio), key=loss)
    return best
