"""Low-rank logits outside the candidate set: every word has a probability (L2S, appendix A.3; Shim et al., 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.common.errors import RequestError
from harness.contracts import Artifacts, OutputLayer
from methods.softmax import arrays


@dataclass(kw_only=True)
class Completable:
    """The option of methods that may use low-rank logits outside the candidate set; 0: no logits there."""

    completion_rank: Annotated[int, Field(ge=0)] = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """weight [L, d] ~ left^T right with left [q, L] and right [q, d], the best rank-q approximation; bias [L] stays
    exact. `logits` float32 [L] is scratch."""

    right: NDArray[np.float32]
    left: NDArray[np.float32]
    bias: NDArray[np.float32]
    logits: NDArray[np.float32]

    @property
    def factors(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.right, self.left

    @property
    def multiply_adds(self) -> float:
        """Of one context."""
        return float(self.right.size + self.left.size)

    @staticmethod
    def fit(layer: OutputLayer, rank: int, layer_hash: str, artifacts: Artifacts) -> None:
        """Factor the layer once per rank. Raises `RequestError` for a rank above the layer's dimension."""
        if rank > layer.weight.shape[1]:
            raise RequestError(f"completion_rank {rank} is above the layer's dimension {layer.weight.shape[1]}")

        def build(folder: Path) -> None:
            right = principal_directions(layer.weight)[:rank]
            arrays.save(folder, {"left": right @ layer.weight.T, "right": right})

        artifacts.build("softmax-completion", {"layer": layer_hash, "rank": rank}, build)

    @staticmethod
    def open(layer: OutputLayer, artifacts: Artifacts) -> Completion:
        factors = arrays.load(artifacts.path("softmax-completion"))
        return Completion(factors["right"], factors["left"], layer.bias, np.empty(len(layer.bias), np.float32))

    def log_prob(
        self, context: NDArray[np.float32], target: int, ids: NDArray[np.int64], logits: NDArray[np.float32]
    ) -> float:
        """log softmax of `target` when words `ids` have exact `logits` and all others the low-rank ones."""
        completed = (self.right @ context) @ self.left + self.bias
        completed[ids] = logits
        peak = completed.max()
        return float(completed[target] - peak - np.log(np.exp(completed - peak).sum(dtype=np.float64)))


def principal_directions(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """Right singular vectors float32 [d, d] of weight [L, d] as rows, largest singular value first.

    By the eigenvectors of W^T W in float64: d is small compared with L.
    """
    gram = weight.T.astype(np.float64) @ weight.astype(np.float64)
    _, vectors = np.linalg.eigh(gram)
    return np.ascontiguousarray(vectors[:, ::-1].T, np.float32)
