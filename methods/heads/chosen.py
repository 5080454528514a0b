"""Logits of chosen words, in the numbers of an engine's output layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from methods.decoding.engine.dense import Dense
from methods.decoding.engine.kernels import multiply_chosen


class ChosenWords:
    """The word of the largest logit among some, by the engine's output layer. Ties: the lowest id, as in `argmax`.

    Float32, bfloat16 and int8 are rounded as in the engine's own step, so that drafted words are the exact layer's
    wherever the candidates have it.
    """

    def __init__(self, layer: Dense) -> None:
        assert layer.plain is not None
        self._plain: Any = layer.plain
        self._bfloat16, self._threads = layer.bfloat16, torch.get_num_threads()

    def best(self, state: NDArray[np.float32], ids: NDArray[np.int32]) -> tuple[int, float]:
        """state [d]; ids int32 [m] -> (word, logit); the logit is not finite if no word can be chosen."""
        result = np.empty(len(ids), np.float32)
        multiply_chosen(*self._plain, state, self._bfloat16, ids, result, self._threads)
        largest = result.max()
        return int(ids[result == largest].min(initial=2**31 - 1)), float(largest)
