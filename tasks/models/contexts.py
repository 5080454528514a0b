"""A folder of arrays: contexts of an output layer, the next words, and the layer. Reading it needs no torch.

contexts.npy float32 [n, d] and targets.npy int64 [n] are from the training text, test_contexts.npy and test_targets.npy
from the test text; weight.npy float32 [L, d]; bias.npy float32 [L]; facts.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ARRAYS = ("contexts", "targets", "test_contexts", "test_targets", "weight", "bias")


def write_contexts(
    folder: Path, prefix: str, shape: tuple[int, int],
    blocks: Iterable[tuple[Any, NDArray[np.float32], NDArray[np.int64]]],
) -> None:  # fmt: skip
    """Contexts of `shape` [n, d] and their targets, from blocks (rows, contexts, targets) that cover all rows.

    prefix: `test_` for the test text, else empty.
    """
    contexts = np.lib.format.open_memmap(folder / f"{prefix}contexts.npy", "w+", np.float32, shape)
    targets = np.empty(len(contexts), np.int64)
    for rows, found, words in blocks:
        contexts[rows], targets[rows] = found, words
    contexts.flush()
    np.save(folder / f"{prefix}targets.npy", targets)


def write_layer(folder: Path, head: Any, **facts: Any) -> None:
    """Weight and bias (zeros if there is none) of a torch module, and facts, with `words` L and `dimension` d."""
    weight, bias = head.weight.detach().float().cpu().numpy(), getattr(head, "bias", None)
    np.save(folder / "weight.npy", weight)
    np.save(folder / "bias.npy", np.zeros(len(weight), np.float32) if bias is None else bias.detach().float().cpu())
    facts = {"words": weight.shape[0], "dimension": weight.shape[1], **facts}
    (folder / "facts.json").write_text(json.dumps(facts))


def read_contexts(folder: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays by name, memory-mapped, and facts."""
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in _ARRAYS}
    return arrays, json.loads((folder / "facts.json").read_text())
