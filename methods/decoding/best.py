"""The best of a row of scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def best(row: torch.Tensor, count: int) -> tuple[list[float], list[int]]:
    """The `count` largest of scores [n], best first, and their places.

    `topk` of torch takes longer than a step of a small model does; it decides where scores are equal, for other types
    than float32, and elsewhere than on a CPU.
    """
    import torch

    from methods.decoding.kernels import largest

    if row.device.type == "cpu" and row.dtype == torch.float32:
        values, places, tied = largest(row.numpy(), count)
        if not tied:
            return values.tolist(), places.tolist()
    found = row.topk(count)
    return found.values.tolist(), found.indices.tolist()
