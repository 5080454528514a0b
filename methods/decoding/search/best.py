"""The best of rows of scores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness.common.errors import RequestError
from harness.common.generate import NOT_FINITE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch

Best = tuple[list[float], list[int]]


def check_finite(scores: Iterable[float], model: str, read: Iterable[int]) -> None:
    """Raise `RequestError` if one of the best scores is not a number: no token can be chosen by it. read: tokens that
    the decoder has read in each row."""
    for score, tokens in zip(scores, read, strict=False):
        if not math.isfinite(score):
            raise RequestError(NOT_FINITE.format(model, tokens))


def best(row: torch.Tensor, count: int) -> Best:
    """The `count` largest of scores [n], best first, and their indices.

    A compiled search is used, because `topk` of torch takes longer than a step of a small model. `topk` is used for
    ties, for types other than float32, and on devices other than a CPU.
    """
    import torch

    from methods.decoding.engine.selection import largest

    if row.device.type == "cpu" and row.dtype == torch.float32:
        values, places, tied = largest(row.numpy(), count)
        if not tied:
            return values.tolist(), places.tolist()
    found = row.topk(count)
    return found.values.tolist(), found.indices.tolist()


def best_of_rows(rows: torch.Tensor, count: int) -> Callable[[int], Best]:
    """A function from a row's number to `best` of that row of scores [m, n]. On a CPU rows are searched on demand, on
    other devices all at once, with one copy from the device."""
    if rows.device.type == "cpu":
        return lambda number: best(rows[number], count)
    return copied(rows, count).__getitem__


def copied(rows: torch.Tensor, count: int) -> list[Best]:
    """`best` of every row, in one copy from the device."""
    found = rows.topk(count)
    return list(zip(found.values.tolist(), found.indices.tolist(), strict=True))
