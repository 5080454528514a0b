"""Low-rank logits outside the candidate set: every word has a probability (L2S, appendix A.3; Shim et al., 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.contracts import Artifacts, OutputLayer
from methods.softmax import arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Completion:
    """weight [L, d] ~ left [L, q] right [q, d], the best rank-q approximation; bias [L] stays exact."""

    left: NDArray[np.float32]
    right: NDArray[np.float32]
    bias: NDArray[np.float32]

    @property
    def factors(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.left, self.right

    @staticmethod
    def fit(layer: OutputLayer, rank: int, layer_hash: str, artifacts: Artifacts) -> None:
        """Factor the layer once per rank."""

        def build(folder: Path) -> None:
            directions = principal_directions(layer.weight)[:rank]
            arrays.save(folder, {"left": layer.weight @ directions.T, "right": directions})

        artifacts.build("softmax-completion", {"layer": layer_hash, "rank": rank, "format": 1}, build)

    @staticmethod
    def open(layer: OutputLayer, artifacts: Artifacts) -> Completion:
        factors = arrays.load(artifacts.path("softmax-completion"))
        return Completion(factors["left"], factors["right"], layer.bias)

    def log_prob(
        self, context: NDArray[np.float32], target: int, ids: NDArray[np.int64], logits: NDArray[np.float32]
    ) -> float:
        """log softmax of `target` when words `ids` have exact `logits` and all others the low-rank ones."""
        completed = self.left @ (self.right @ context) + self.bias
        completed[ids] = logits
        peak = completed.max()
        return float(completed[target] - peak - np.log(np.exp(completed - peak).sum(dtype=np.float64)))


def principal_directions(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """Right singular vectors float32 [d, d] of weight [L, d] as rows, largest singular value first.

    By the eigenvectors of W^T W in float64: d is small beside L.
    """
    gram = weight.T.astype(np.float64) @ weight.astype(np.float64)
    _, vectors = np.linalg.eigh(gram)
    return np.ascontiguousarray(vectors[:, ::-1].T, np.float32)
