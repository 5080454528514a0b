"""Rows of different lengths, packed: linear layers see [N, f] without padding, attention [rows, longest, f]."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

import torch


class Ragged:
    """The layout of rows that are packed one after the other.

    counts: tokens per row. row, slot: int64 [N], each token's row and its index in the row.
    """

    def __init__(self, counts: Sequence[int], device: str) -> None:
        self.counts = list(counts)
        self.device = device
        self.longest = max(self.counts, default=0)
        self.uniform = self.counts.count(self.longest) == len(self.counts)

    @classmethod
    def packed(cls, tokens: Sequence[Sequence[int]], device: str) -> tuple[Ragged, torch.Tensor]:
        """The layout of these rows, and their ids int64 [N], one row after the other."""
        ids = torch.tensor([token for row in tokens for token in row], dtype=torch.int64, device=device)
        return cls([len(row) for row in tokens], device), ids

    @cached_property
    def row(self) -> torch.Tensor:
        return torch.tensor([r for r, count in enumerate(self.counts) for _ in range(count)], device=self.device)

    @cached_property
    def slot(self) -> torch.Tensor:
        return torch.tensor([s for count in self.counts for s in range(count)], device=self.device)

    def pad(self, x: torch.Tensor) -> torch.Tensor:
        """[N, f] -> [rows, longest, f], zeros where a row has ended."""
        if self.uniform:
            return x.view(len(self.counts), self.longest, x.shape[1])
        padded = x.new_zeros(len(self.counts), self.longest, x.shape[1])
        padded[self.row, self.slot] = x
        return padded

    def pack(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, longest, f] -> [N, f]."""
        return x.reshape(-1, x.shape[2]) if self.uniform else x[self.row, self.slot]

    def mask(self, dtype: torch.dtype) -> torch.Tensor | None:
        """Additive mask [rows, 1, 1, longest] for attention to the rows: `-inf` after a row's end; None if all rows are
        equally long. In a row without tokens the first position is not masked."""
        if self.uniform:
            return None
        ends = torch.tensor([max(count, 1) for count in self.counts], device=self.device)
        beyond = torch.arange(self.longest, device=self.device) >= ends[:, None]
        mask = torch.zeros(beyond.shape, dtype=dtype, device=self.device)
        return mask.masked_fill_(beyond, float("-inf"))[:, None, None]

    def last(self, x: torch.Tensor) -> torch.Tensor:
        """[N, f] -> [rows, f], the last token of each row."""
        if self.longest == 1 and self.uniform:
            return x
        ends = [end - 1 for end in accumulate(self.counts)]
        return x[-1:] if len(ends) == 1 else x[torch.tensor(ends, device=x.device)]


def move(tensor: torch.Tensor, axis: int, order: Sequence[int]) -> None:
    """Along the axis, move index order[i] to i, in place, copying only what changes."""
    changed = [place for place, origin in enumerate(order) if place != origin]
    if not changed or not tensor.numel():
        return
    origins = torch.tensor([order[place] for place in changed], device=tensor.device)
    tensor.index_copy_(axis, torch.tensor(changed, device=tensor.device), tensor.index_select(axis, origins))
