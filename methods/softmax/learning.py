"""Learning to screen (Chen et al., 2019, section 3): clusters and candidate sets learned together.

Symbols of the paper: contexts h_i, labels y_i (exact top-5), clusters v_t, candidate sets c_t, cluster of a context
z_i, budget B, mean candidate-set size Lbar. Contexts are normalised so that all have the same influence; a positive
factor on h does not change z(h). v_t . h is scaled by `sharpness`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.common.progress import Progress
from methods.softmax.clusters import assign, unit
from methods.softmax.knapsack import candidate_sets, recall

MEMORY = 0.9  # of the moving average used as Lbar between two knapsacks (Eq. 8 in mini-batches)


@dataclass(kw_only=True)
class Schedule:
    """The schedule of learning: `rounds` alternations of `batches` steps on `batch` contexts each."""

    rounds: Annotated[int, Field(ge=0)] = 12
    batches: Annotated[int, Field(ge=0)] = 200
    batch: Annotated[int, Field(ge=1)] = 1024
    learning_rate: Annotated[float, Field(gt=0)] = 0.005  # of Adam
    temperature: Annotated[float, Field(gt=0)] = 1.0  # T of Eq. 5
    sharpness: Annotated[float, Field(gt=0)] = 10.0


@dataclass(frozen=True, slots=True)
class Objective:
    """Eq. 7 and 8: lambda weighs unneeded candidates, gamma the excess over the budget B."""

    budget: float
    lambda_: float = 0.0003
    gamma: float = 10.0


def learn(
    contexts: NDArray[np.float32],
    labels: NDArray[np.int32],
    words: int,
    clusters: NDArray[np.float32],
    objective: Objective,
    schedule: Schedule,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """Clusters float32 [r, d] learned from contexts [n, d] and labels int32 [n, 5], starting from `clusters` [r, d].

    Alternates (a) the greedy knapsack for fixed clusters and (b) stochastic steps on the clusters for fixed sets.
    Returns the clusters, the initial ones included, whose knapsack sets cover most labels; ties: the first.
    """
    best, best_recall = clusters, -1.0
    adam = Adam(clusters.shape, schedule.learning_rate)
    progress = Progress()
    for turn in range(schedule.rounds + 1):
        clusters, assigned = _without_empty(contexts, clusters, rng)
        sets = candidate_sets(assigned, labels, len(clusters), words, objective.budget, objective.lambda_)
        covered = recall(assigned, labels, sets)
        progress.update("learning to screen", turn, schedule.rounds, "rounds", f"label recall {covered:.4f}")
        if covered > best_recall:
            best, best_recall = clusters, covered
        if turn < schedule.rounds:
            clusters = _descend(contexts, labels, clusters, sets, objective, schedule, adam, rng)
    return best


def _descend(
    contexts: NDArray[np.float32],
    labels: NDArray[np.int32],
    clusters: NDArray[np.float32],
    sets: NDArray[np.bool_],
    objective: Objective,
    schedule: Schedule,
    adam: Adam,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """`schedule.batches` steps on Eq. 8 with respect to the clusters."""
    sizes = sets.sum(axis=1).astype(np.float32)
    members = np.ascontiguousarray(sets.T)  # [L, r]: which clusters hold a word
    shared = sets.astype(np.float32) @ sets.T.astype(np.float32)  # [r, r]: |c_t and c_u|
    average = objective.budget
    for _ in range(schedule.batches):
        rows = rng.integers(0, len(contexts), schedule.batch)
        normal = unit(contexts[rows])
        noisy = schedule.sharpness * (normal @ clusters.T) + rng.gumbel(size=(len(rows), len(clusters)))
        chosen = noisy.argmax(axis=1)  # Eq. 4; log P(t|h) differs from the logits by a constant
        relaxed = np.exp((noisy - noisy.max(axis=1, keepdims=True)) / schedule.temperature)
        relaxed /= relaxed.sum(axis=1, keepdims=True)  # Eq. 5
        held = members[labels[rows]]  # [n, 5, r]: y_is = 1 and c_ts = 1
        gradient = loss_gradient(held, chosen, shared, objective.lambda_)
        average = MEMORY * average + (1 - MEMORY) * float(sizes[chosen].mean())
        if average > objective.budget:
            gradient += objective.gamma * (1 - MEMORY) / len(rows) * sizes
        # straight-through: the loss saw the one-hot choice, its gradient goes to the relaxed one
        pull = relaxed * (gradient - (relaxed * gradient).sum(axis=1, keepdims=True)) / schedule.temperature
        clusters = adam.step(clusters, schedule.sharpness * (pull.T.astype(np.float32) @ normal))
    return clusters


def loss_gradient(
    held: NDArray[np.bool_], chosen: NDArray[np.int64], shared: NDArray[np.float32], lambda_: float
) -> NDArray[np.float32]:
    """Gradient [n, r] of Eq. 6 with respect to the one-hot z_i, where c_{z_i} = sum_t z_it c_t.

    held bool [n, 5, r] says which clusters hold each label, chosen [n] is z_i, shared [r, r] counts common candidates.
    """
    rows = np.arange(len(chosen))
    has = held[rows, :, chosen]  # [n, 5]: c_{z_i, s}
    missed = np.einsum("ns,nsr->nr", (~has).astype(np.float32), held.astype(np.float32))
    both = np.einsum("ns,nsr->nr", has.astype(np.float32), held.astype(np.float32))
    return np.asarray(2 * lambda_ * (shared[chosen] - both) - 2 * missed, np.float32)


def _without_empty(
    contexts: NDArray[np.float32], clusters: NDArray[np.float32], rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Clusters with the empty ones moved to random contexts, and the assignment of all contexts."""
    assigned = assign(contexts, clusters)
    empty = np.flatnonzero(np.bincount(assigned, minlength=len(clusters)) == 0)
    if len(empty):
        clusters = clusters.copy()
        length = np.float32(np.linalg.norm(clusters, axis=1).mean())
        clusters[empty] = length * unit(contexts[rng.integers(0, len(contexts), len(empty))])
        assigned = assign(contexts, clusters)
    return clusters, assigned


class Adam:
    """Adam (Kingma and Ba, 2015) with the usual constants, for one array."""

    def __init__(self, shape: tuple[int, ...], learning_rate: float) -> None:
        self.mean, self.square = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.learning_rate, self.steps = learning_rate, 0

    def step(self, value: NDArray[np.float32], gradient: NDArray[np.float32]) -> NDArray[np.float32]:
        """The value after one step against the gradient."""
        self.steps += 1
        self.mean += 0.1 * (gradient - self.mean)
        self.square += 0.001 * (gradient * gradient - self.square)
        mean, square = self.mean / (1 - 0.9**self.steps), self.square / (1 - 0.999**self.steps)
        moved = value - self.learning_rate * mean / (np.sqrt(square) + 1e-8)
        return np.asarray(moved, np.float32)
