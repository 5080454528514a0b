"""L2S, learning to screen (Chen et al., 2019): a learned clustering of contexts picks the words worth scoring.

`fit`: spherical k-means -> alternate knapsack (candidate sets) and straight-through Gumbel-softmax (clusters), see
`learning` -> quantise the clusters, final knapsack. `topk`: one fused compiled call, see `screening`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.plan.registry import method
from methods.softmax.clusters import spherical_kmeans
from methods.softmax.learning import Objective, Schedule, learn
from methods.softmax.screening import ClusterScreen

if TYPE_CHECKING:
    from numpy.typing import NDArray


@method(
    "l2s",
    contract="softmax-screening",
    baseline="exact",
    summary="learned clusters of contexts, candidate sets by knapsack (Chen et al., 2019)",
)
class L2S(ClusterScreen):
    """Knob: `budget` (B), the mean candidates a context; `clusters` (r) trades with it. Errors as for `ClusterScreen`.

    lambda, gamma: Eq. 6 and 8; the rest is the schedule of `learning.Schedule` and of the k-means start.
    """

    def __init__(
        self,
        *,
        clusters: int = 100,
        budget: float = 120,
        lambda_: float = 0.0003,
        gamma: float = 10.0,
        rounds: int = 12,
        batches: int = 200,
        batch: int = 1024,
        learning_rate: float = 0.005,
        temperature: float = 1.0,
        sharpness: float = 10.0,
        iterations: int = 15,
        sample: int = 100_000,
        completion_rank: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__(clusters=clusters, budget=budget, lambda_=lambda_, completion_rank=completion_rank, seed=seed)
        self.gamma, self.iterations, self.sample = gamma, iterations, sample
        self.schedule = Schedule(rounds, batches, batch, learning_rate, temperature, sharpness)

    def _key(self) -> dict[str, Any]:
        start = {"iterations": self.iterations, "sample": self.sample}
        return {"method": "l2s", "gamma": self.gamma, **start, **asdict(self.schedule)}

    def _learn(self, contexts: NDArray[np.float32], labels: NDArray[np.int32], words: int) -> NDArray[np.float32]:
        rng = np.random.default_rng(self.seed)
        start = spherical_kmeans(contexts, self.clusters, self.iterations, self.sample, rng)
        objective = Objective(self.budget, self.lambda_, self.gamma)
        return learn(contexts, labels, words, start, objective, self.schedule, rng)
