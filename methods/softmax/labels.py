"""The training labels of the screening methods: the exact top-5 words of every training context (L2S, section 3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.common.progress import Progress
from harness.contracts import Artifacts, OutputLayer
from methods.softmax import arrays
from methods.softmax.inputs import not_finite

TOGETHER = 256  # contexts of one matrix-matrix product; only their logits are held


def training_labels(
    layer: OutputLayer, contexts: NDArray[np.float32], k: int, artifacts: Artifacts
) -> tuple[NDArray[np.int32], dict[str, Any]]:
    """Ids int32 [n, k] of the k largest logits of contexts [n, d], best first, computed once for all methods that learn
    from them, and the key of the data. Every artifact learned from the labels must depend on the key (hashes of layer
    and contexts). Raises `RequestError` for NaN logits.
    """
    data = {"layer": arrays.content(layer.weight, layer.bias), "contexts": arrays.content(contexts)}

    def build(folder: Path) -> None:
        from methods.softmax import kernels

        ids, progress = np.empty((len(contexts), k), np.int32), Progress()
        for start in range(0, len(contexts), TOGETHER):
            logits = contexts[start : start + TOGETHER] @ layer.weight.T
            logits += layer.bias
            if not kernels.select_rows(logits, ids[start : start + TOGETHER]):
                raise not_finite()
            progress.update(f"exact top-{k} of training contexts", start + len(logits), len(contexts), "contexts")
        np.save(folder / "labels.npy", ids)

    folder = artifacts.build("softmax-labels", {**data, "k": k}, build)
    return np.load(folder / "labels.npy"), data
