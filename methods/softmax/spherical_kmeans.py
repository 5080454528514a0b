"""Screening by spherical k-means (Chen et al., 2019, appendix A.2, Table 4): L2S without learning its clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.plan.registry import method
from methods.softmax.clusters import spherical_kmeans
from methods.softmax.screening import ClusterScreen


@method(
    "spherical-kmeans",
    contract="softmax-screening",
    baseline="exact",
    summary="clusters of contexts by spherical k-means, candidate sets by knapsack",
)
class SphericalKMeans(ClusterScreen):
    """Knob: `budget`, the mean candidates a context. Errors as for `ClusterScreen`."""

    def _key(self) -> dict[str, Any]:
        return {"method": "spherical-kmeans", "iterations": self.iterations, "sample": self.sample}

    def _learn(self, contexts: NDArray[np.float32], labels: NDArray[np.int32], words: int) -> NDArray[np.float32]:
        rng = np.random.default_rng(self.seed)
        return spherical_kmeans(contexts, self.clusters, self.iterations, self.sample, rng)
