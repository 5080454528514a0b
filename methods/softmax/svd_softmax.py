"""SVD-softmax (Shim et al., 2017): preview all logits by the leading singular directions, refine the best exactly.

W = U S V^T, B = U S. The preview of word i is the dot product of the first w components of its row in B with those of
V^T h, plus the bias. The N best previews are refined with the full row. Only w rows of V^T are needed, since refining
with the original rows gives the same product as refining with B.

Profile (262,144 words, one thread of an Intel Xeon, ms of a preview):

| w | float32 [w, L], BLAS | float32 [L, w], compiled loop | int8 [L, w], compiled loop |
| --- | --- | --- | --- |
| 64 | 2.6 | 3.0 | 1.0 |
| 128 | 7.2 | 9.4 | 1.8 |

Choosing the best previews takes 0.2. Previews in int8 choose other words to refine, and find the best
word as often as those in float32, within 0.001 (2,000 contexts, recipe `heads-layer`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.common.errors import RequestError
from harness.contracts import Artifacts, OutputLayer
from harness.plan.registry import method
from methods.softmax import arrays
from methods.softmax.candidates import costs, read, size
from methods.softmax.completion import principal_directions
from methods.softmax.inputs import checked_layer, checked_training
from methods.softmax.preview import Preview


@method(
    "svd-softmax",
    contract="softmax-screening",
    baseline="exact",
    summary="low-rank preview of all logits, exact refinement of the best (Shim et al., 2017)",
)
class SvdSoftmax(Preview):
    """Knobs: `width` (w, singular directions of the preview) and `refined` (N, words scored exactly). weighted:
    preview with the singular directions of W L, where L L^T is the second moment of the training contexts. No other
    preview of this width has a smaller mean squared error on their logits. Else with those of W, as in the paper.

    numbers: of the preview matrix; int8 has a scale for each word, its largest number over 127.

    Errors as for `Preview`; of `fit`: a width above d.
    """

    width: Annotated[int, Field(ge=1)] = 24
    weighted: bool = False
    numbers: Literal["float32", "int8"] = "float32"

    def fit(
        self, layer: OutputLayer, contexts: NDArray[np.float32], targets: NDArray[np.int64], artifacts: Artifacts
    ) -> None:
        layer = checked_layer(layer)
        if self.width > layer.weight.shape[1]:
            raise RequestError(f"width {self.width} is above the layer's dimension {layer.weight.shape[1]}")

        key = {"layer": arrays.content(layer.weight, layer.bias), "width": self.width, "numbers": self.numbers}
        if self.weighted:
            contexts, _ = checked_training(layer, contexts, targets, 1, "weighted=true")
            key["contexts"] = arrays.content(contexts)

        def build(folder: Path) -> None:
            root = root_of_moment(contexts) if self.weighted else np.eye(layer.weight.shape[1], dtype=np.float32)
            basis = principal_directions(layer.weight @ root)[: self.width]
            directions = np.ascontiguousarray(np.linalg.solve(root.T, basis.T).T)  # of L^-1 h
            preview = basis @ root.T @ layer.weight.T
            if self.numbers == "float32":
                arrays.save(folder, {"directions": directions, "preview": preview})
                return
            rows, scale = arrays.in_int8(np.ascontiguousarray(preview.T))
            arrays.save(folder, {"directions": directions, "preview": rows, "scale": scale})

        artifacts.build("svd-softmax", key, build)

    def open(self, subject: OutputLayer, artifacts: Artifacts) -> None:
        from numba import get_num_threads

        from methods.decoding.engine.kernels import multiply

        self._saved = arrays.load(artifacts.path("svd-softmax"))
        self._directions, self._previews = self._saved["directions"], self._saved["preview"]
        self._multiply, self._threads = multiply, get_num_threads()
        self._open(subject)

    def _preview(self, context: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        reduced = self._directions @ context
        if self.numbers == "float32":
            np.dot(reduced, self._previews, out=out)
            out += self._layer.bias
            return
        parts = (self._previews, self._saved["scale"], self._layer.bias, reduced[None], False, out[None])
        self._multiply(*parts, self._threads)

    def counters(self) -> dict[str, float]:
        words, dimension = self._layer.weight.shape
        held, scored = size(self._saved.values()), self._n * dimension
        previewed = self.width * (dimension + words)
        return costs(previewed + scored, self._n, held, held + read(scored, words + self._n))  # previews have a bias


def root_of_moment(contexts: NDArray[np.float32]) -> NDArray[np.float32]:
    """The Cholesky factor float32 [d, d] of the contexts' second moment, with a millionth of its mean
    diagonal added to the diagonal: other contexts may have directions that these do not have."""
    moment = contexts.T.astype(np.float64) @ contexts.astype(np.float64) / len(contexts)
    least = 1e-6 * np.trace(moment) / len(moment)
    return np.linalg.cholesky(moment + least * np.eye(len(moment))).astype(np.float32)
