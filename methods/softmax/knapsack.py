"""Candidate sets for fixed clusters: the greedy knapsack of L2S (section 3, optimisation)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def candidate_sets(
    assigned: NDArray[np.int64], labels: NDArray[np.int32], clusters: int, words: int, budget: float, lambda_: float
) -> NDArray[np.bool_]:
    """c bool [clusters, words] with mean candidate-set size mean_i |c_{z_i}| <= budget.

    assigned [n] is z_i, labels int32 [n, 5] the words with y_is = 1. Item (t, s) has value
    `sum_{i: z_i = t} y_is - lambda (1 - y_is)`, the loss in Eq. 6 without it, and weight N_t / N. Items are taken by
    descending value / weight until the next does not fit.

    - Items of negative value are left out.
    - With budget >= words every set is the vocabulary.
    - A cluster without contexts gets no candidates.
    - Ties: the lower (t, s). Sums are integers, so the same input gives the same sets everywhere.
    """
    if budget >= words:
        return np.ones((clusters, words), bool)
    sizes = np.bincount(assigned, minlength=clusters)
    pairs, hits = np.unique((assigned[:, None] * words + labels).ravel(), return_counts=True)
    owner = pairs // words
    value = hits - lambda_ * (sizes[owner] - hits)
    worth = np.flatnonzero(value >= 0)
    order = worth[np.argsort(-(value[worth] / sizes[owner[worth]]), kind="stable")]
    weight = np.cumsum(sizes[owner[order]])  # in contexts: N times the mean candidate-set size
    taken = order[: np.searchsorted(weight, budget * len(assigned), side="right")]
    sets = np.zeros(clusters * words, bool)
    sets[pairs[taken]] = True
    return sets.reshape(clusters, words)


def mean_size(assigned: NDArray[np.int64], sets: NDArray[np.bool_]) -> float:
    """Lbar = mean_i |c_{z_i}|, the candidates scored for an average context."""
    return float(sets.sum(axis=1)[assigned].mean())


def recall(assigned: NDArray[np.int64], labels: NDArray[np.int32], sets: NDArray[np.bool_]) -> float:
    """Share of the labels that lie in the candidate set of their context's cluster."""
    return float(np.mean([sets[assigned, column].mean() for column in labels.T]))
