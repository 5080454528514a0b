"""The layer in numbers of fewer bits, and exact logits of the best words.

The exact layer is bound by the bytes it reads. bfloat16 halves them and int8 quarters them; `refined` words are then
scored with the float32 weights, so that rounding changes an answer only where a best word is not among them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.contracts import Artifacts, OutputLayer
from harness.plan.registry import method
from methods.softmax import arrays
from methods.softmax.candidates import costs, read, size
from methods.softmax.inputs import checked_layer
from methods.softmax.preview import Preview


@method(
    "quantized",
    contract="softmax-screening",
    baseline="exact",
    summary="all logits by weights in int8 or bfloat16, exact refinement of the best",
)
class Quantized(Preview):
    """numbers: the weights of the preview; int8 has a scale for each word, its largest weight over 127. Errors as for
    `Preview`."""

    numbers: Literal["int8", "bfloat16"] = "int8"
    refined: Annotated[int, Field(ge=1)] = 50

    def fit(
        self, layer: OutputLayer, contexts: NDArray[np.float32], targets: NDArray[np.int64], artifacts: Artifacts
    ) -> None:
        layer = checked_layer(layer)

        def build(folder: Path) -> None:
            if self.numbers == "int8":
                weight, scale = arrays.in_int8(layer.weight)
            else:
                import torch

                scale = np.ones(len(layer.weight), np.float32)
                weight = torch.from_numpy(layer.weight).bfloat16().view(torch.uint16).numpy()
            arrays.save(folder, {"weight": weight, "scale": scale})

        key = {"layer": arrays.content(layer.weight, layer.bias), "numbers": self.numbers}
        artifacts.build("quantized", key, build)

    def open(self, subject: OutputLayer, artifacts: Artifacts) -> None:
        from numba import get_num_threads

        from methods.decoding.engine.kernels import multiply

        saved = arrays.load(artifacts.path("quantized"))
        self._weight, self._scale = saved["weight"], saved["scale"]
        self._multiply, self._threads = multiply, get_num_threads()
        self._open(subject)

    def _preview(self, context: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        parts = (self._weight, self._scale, self._layer.bias, context[None], False, out[None])
        self._multiply(*parts, self._threads)

    def counters(self) -> dict[str, float]:
        words, dimension = self._layer.weight.shape
        held, scored = size((self._weight, self._scale)), self._n * dimension
        return costs(words * dimension + scored, self._n, held, held + read(scored, words + self._n))
