"""L2S, learning to screen (Chen et al., 2019): a learned clustering of contexts picks the words worth scoring.

`fit`: spherical k-means -> alternate knapsack (candidate sets) and straight-through Gumbel-softmax (clusters), see
`learning` -> quantise the clusters, final knapsack. `topk`: one fused compiled call, see `screening`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.plan.registry import method
from methods.softmax.clusters import spherical_kmeans
from methods.softmax.learning import Objective, Schedule, learn
from methods.softmax.screening import ClusterScreen


@method(
    "l2s",
    contract="softmax-screening",
    baseline="exact",
    summary="learned clusters of contexts, candidate sets by knapsack (Chen et al., 2019)",
)
class L2S(Schedule, ClusterScreen):
    """Knob: `budget` (B), the mean candidates a context; `clusters` (r) trades with it. Errors as for `ClusterScreen`.

    gamma: Eq. 8. The rest is the schedule of learning and its start by k-means.
    """

    gamma: Annotated[float, Field(ge=0)] = 10.0

    def _key(self) -> dict[str, Any]:
        learning = {field.name: getattr(self, field.name) for field in fields(Schedule)}
        return {"method": "l2s", "gamma": self.gamma, "iterations": self.iterations, "sample": self.sample, **learning}

    def _learn(self, contexts: NDArray[np.float32], labels: NDArray[np.int32], words: int) -> NDArray[np.float32]:
        rng = np.random.default_rng(self.seed)
        start = spherical_kmeans(contexts, self.clusters, self.iterations, self.sample, rng)
        objective = Objective(self.budget, self.lambda_, self.gamma)
        return learn(contexts, labels, words, start, objective, self, rng)
