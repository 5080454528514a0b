"""Input checks of the softmax methods: complete at `fit` and `open`, cheap at every call.

- Weights and biases of any floating type (float16 included) are converted once to C-contiguous float32. All products
  run in float32.
- A missing bias (None) is a bias of zeros.
- Contexts are converted to float32 in the same way.
- Training contexts that are zero have no direction and are not learned from.
- NaN and infinity are refused everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.common.errors import RequestError
from harness.contracts import OutputLayer

BLOCK = 8192  # contexts checked at once; bounds the memory beyond the contexts themselves


def checked_layer(layer: OutputLayer) -> OutputLayer:
    """The layer as C-contiguous float32 arrays, not copied when it already is.

    Raises `RequestError` for a weight that is not a non-empty floating [L, d], a bias that is not [L], or values that
    are not finite.
    """
    weight = np.asarray(layer.weight)
    if weight.ndim != 2 or not weight.size or weight.dtype.kind != "f":
        raise RequestError(
            f"output layer: weight must be a non-empty floating array [L, d], given {weight.dtype} {list(weight.shape)}"
        )
    weight = np.ascontiguousarray(weight, np.float32)
    given = np.zeros(len(weight), np.float32) if layer.bias is None else np.asarray(layer.bias)
    if given.shape != (len(weight),) or given.dtype.kind != "f":
        raise RequestError(
            f"output layer: bias must be a floating array [{len(weight)}], given {given.dtype} {list(given.shape)}"
        )
    bias = np.ascontiguousarray(given, np.float32)
    for name, array in (("weight", weight), ("bias", bias)):
        if not np.isfinite(array).all():
            raise RequestError(f"output layer: the {name} holds NaN or infinity; is the checkpoint broken?")
    return OutputLayer(weight, bias)


def checked_training(
    layer: OutputLayer, contexts: NDArray[Any], targets: NDArray[Any], least: int, what: str
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Training contexts float32 [n, d] without zero rows, and their targets int64 [n].

    Raises `RequestError` when shapes do not fit the layer, a context holds NaN or infinity, a target is no word of the
    layer, or fewer than `least` contexts (needed for `what`) are left.
    """
    words, dimension = layer.weight.shape
    contexts, targets = np.asarray(contexts), np.asarray(targets)
    if contexts.ndim != 2 or contexts.shape[1] != dimension or contexts.dtype.kind != "f":
        raise RequestError(
            f"training contexts must be floating [n, {dimension}], given {contexts.dtype} {list(contexts.shape)}"
        )
    if targets.shape != (len(contexts),) or targets.dtype.kind not in "iu":
        raise RequestError(
            f"training targets must be integers [{len(contexts)}], given {targets.dtype} {list(targets.shape)}"
        )
    if len(targets) and (targets.min() < 0 or targets.max() >= words):
        raise RequestError(f"training targets must lie in 0..{words - 1}, given {targets.min()}..{targets.max()}")
    usable = np.ones(len(contexts), bool)
    for start in range(0, len(contexts), BLOCK):
        norms = np.linalg.norm(contexts[start : start + BLOCK].astype(np.float64), axis=1)
        if not np.isfinite(norms).all():
            row = start + int(np.flatnonzero(~np.isfinite(norms))[0])
            raise RequestError(f"training context {row} holds NaN or infinity; the model's hidden states are broken")
        usable[start : start + len(norms)] = norms > 0
    if usable.sum() < least:
        raise RequestError(
            f"{what} needs at least {least} training contexts other than zero, given {usable.sum()}; "
            "give more text or lower it"
        )
    if not usable.all():
        contexts, targets = contexts[usable], targets[usable]
    return np.ascontiguousarray(contexts, np.float32), np.ascontiguousarray(targets, np.int64)


def checked_query(context: NDArray[Any], k: int, words: int, dimension: int) -> NDArray[np.float32]:
    """One context as contiguous float32 [d], with k in 1..L; the cold path of every `topk`.

    Raises `RequestError` for another shape or type, or k out of range.
    """
    context = np.asarray(context)
    if context.shape != (dimension,) or context.dtype.kind != "f":
        raise RequestError(f"a context must be floating [{dimension}], given {context.dtype} {list(context.shape)}")
    if not 1 <= k <= words:
        raise RequestError(f"k must lie in 1..{words} (the vocabulary), given {k}")
    return np.ascontiguousarray(context, np.float32)


def checked_target(target: int, words: int) -> None:
    """Raises `RequestError` for a number that is no word of the layer."""
    if not 0 <= target < words:
        raise RequestError(f"target must lie in 0..{words - 1}, given {target}")


def not_finite() -> RequestError:
    """The error for a context with NaN or infinity, noticed in its logits without a scan of the context."""
    return RequestError("the context holds NaN or infinity, or its logits overflow; is the model broken?")
