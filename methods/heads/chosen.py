"""Logits of chosen words, in the numbers of an engine's output layer.

Profile: 16,000 scattered rows of 640 bfloat16 take 1.1 ms on two threads of an Intel Xeon, eight at once; 2.3 ms one by
one, and 1.0 ms if they lie next to each other.

The loops are compiled with `widened` and `to_bfloat16`, definitions of number formats. Numba's cache of this file does
not notice when those change.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit, prange
from numpy.typing import NDArray

from methods.decoding.engine.dense import Dense
from methods.decoding.engine.kernels import FAST, to_bfloat16, widened


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


@njit(parallel=True, **FAST)
def multiply_chosen(weight, scale, bias, x, bfloat16, chosen, result, threads):  # type: ignore[no-untyped-def]
    """`multiply` of one row x [in] for some columns, int32 [m], into result [m]."""
    if bfloat16:
        narrow = np.empty_like(x)
        for place in range(len(x)):
            narrow[place] = to_bfloat16(x[place])
        x = narrow
    for part in prange(threads):
        _chosen(weight, scale, bias, x, bfloat16, chosen, result, part * len(chosen) // threads,
                (part + 1) * len(chosen) // threads)  # fmt: skip


@njit(**FAST)
def _chosen(weight, scale, bias, x, bfloat16, chosen, result, begin, end):  # type: ignore[no-untyped-def]
    """`multiply_chosen` for the columns chosen[begin:end]. Eight at once hide the latency of reading scattered rows."""
    number = begin
    while number + 8 <= end:
        c0, c1, c2, c3 = chosen[number], chosen[number + 1], chosen[number + 2], chosen[number + 3]
        c4, c5, c6, c7 = chosen[number + 4], chosen[number + 5], chosen[number + 6], chosen[number + 7]
        t0 = t1 = t2 = t3 = t4 = t5 = t6 = t7 = np.float32(0)
        for place in range(len(x)):
            factor = x[place]
            t0 += widened(weight[c0, place]) * factor
            t1 += widened(weight[c1, place]) * factor
            t2 += widened(weight[c2, place]) * factor
            t3 += widened(weight[c3, place]) * factor
            t4 += widened(weight[c4, place]) * factor
            t5 += widened(weight[c5, place]) * factor
            t6 += widened(weight[c6, place]) * factor
            t7 += widened(weight[c7, place]) * factor
        for column, total in ((c0, t0), (c1, t1), (c2, t2), (c3, t3), (c4, t4), (c5, t5), (c6, t6), (c7, t7)):
            result[number] = (to_bfloat16(total) if bfloat16 else total) * scale[column] + bias[column]
            number += 1
    while number < end:
        column, total = chosen[number], np.float32(0)
        for place in range(len(x)):
            total += widened(weight[column, place]) * x[place]
        result[number] = (to_bfloat16(total) if bfloat16 else total) * scale[column] + bias[column]
        number += 1
