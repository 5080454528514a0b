"""From neighbours to probabilities: kNN-LM's distribution and its mixture with the language model.

Equations as numbered in Alon et al. (2022). Everything is float64 and in log space: otherwise `exp(-distance)`
underflows for distances of a thousand at temperature one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def log_weights(
    distances: NDArray[np.floating], temperature: float, log_counts: NDArray[np.floating] | float = 0.0
) -> NDArray[np.float64]:
    """log softmax(log count - distance / temperature) over the last axis, in the shape of distances. Rows without an
    entry (all distances infinite) are NaN. log_counts [..., k]: of how often an entry counts."""
    if distances.shape[-1] == 0:
        return np.empty(distances.shape, np.float64)
    scores = np.asarray(distances, np.float64) / -temperature + log_counts
    largest = scores.max(-1, keepdims=True)
    with np.errstate(invalid="ignore"):  # -inf - -inf gives the NaN of "no entry"
        scores -= largest
        scores -= np.log(np.exp(scores).sum(-1, keepdims=True))
    return scores


def log_knn(
    distances: NDArray[np.floating],
    hits: NDArray[np.bool_],
    temperature: float,
    log_counts: NDArray[np.floating] | float = 0.0,
) -> NDArray[np.float64]:
    """log p_kNN(target) [n] (Eq. 2): the weight of the entries whose value is the target.

    distances [n, k] squared L2, `inf` for missing entries; hits [n, k], whether the entry's value is the target;
    log_counts: see `log_weights`. The result is `-inf` if no entry agrees, and NaN if there is no entry (`interpolate`
    then takes the LM).
    """
    if distances.shape[-1] == 0:
        return np.full(distances.shape[:-1], np.nan)
    weights = log_weights(distances, temperature, log_counts)
    agreeing = np.where(hits, np.exp(weights), 0.0).sum(-1)
    with np.errstate(divide="ignore"):
        result: NDArray[np.float64] = np.log(agreeing)
    result[np.isnan(weights[..., 0])] = np.nan
    return result


def knn_distribution(
    distances: NDArray[np.floating],
    values: NDArray[np.integer],
    temperature: float,
    vocabulary_size: int,
    log_counts: NDArray[np.floating] | float = 0.0,
) -> NDArray[np.float64]:
    """p_kNN over the vocabulary [n, V] (Eq. 2) of neighbours with distances [n, k] and values [n, k]. An entry listed
    twice counts twice. log_counts: see `log_weights`."""
    n = len(distances)
    weights = np.exp(log_weights(distances, temperature, log_counts))
    cells = np.arange(n)[:, None] * vocabulary_size + np.where(np.isinf(distances), 0, values)
    flat: NDArray[np.float64] = np.bincount(cells.ravel(), weights.ravel(), n * vocabulary_size).astype(np.float64)
    return flat.reshape(n, vocabulary_size)


def interpolate(
    log_lm: NDArray[np.floating], log_knn_: NDArray[np.floating], lambda_: float | NDArray[np.float64]
) -> NDArray[np.float64]:
    """log(lambda p_kNN + (1 - lambda) p_LM), elementwise (Eq. 3); log p_LM where log p_kNN is NaN (no entries). lambda:
    one for all or one each. Clipped at 0, which sums of rounded weights may exceed slightly."""
    with np.errstate(divide="ignore", invalid="ignore"):
        mixed = np.logaddexp(np.log(lambda_) + log_knn_, np.log1p(-lambda_) + log_lm)
    return np.minimum(np.where(np.isnan(log_knn_), np.asarray(log_lm, np.float64), mixed), 0.0)
