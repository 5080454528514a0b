"""A first-order dependence between the tokens of a block: the Markov head of DSpark (Cheng et al., 2026).

A non-autoregressive drafter fills each mask without knowing which tokens it writes in the others. The head adds to the
logits of a mask what the token before it says: a matrix [V, V] of low rank, with a row for each token before. Training
adds to all logits; drafting adds to those of the best `CANDIDATES` tokens alone (`methods.decoding.engine.selection`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from safetensors.torch import save_file
from torch import nn

Tables = tuple[NDArray[np.float32], NDArray[np.float32]]
_FILE = "markov.safetensors"


class MarkovHead(nn.Module):
    """before, after: tables [V, rank] of the token before a mask and of the token in its place. A new head adds 0."""

    def __init__(self, vocabulary: int, rank: int) -> None:
        super().__init__()
        self.before, self.after = nn.Embedding(vocabulary, rank), nn.Embedding(vocabulary, rank)
        nn.init.normal_(self.before.weight, std=rank**-0.5)
        nn.init.zeros_(self.after.weight)

    def forward(self, before: torch.Tensor) -> torch.Tensor:
        """What is added to the logits [n, V] of masks after these tokens [n]."""
        added: torch.Tensor = self.before(before) @ self.after.weight.T
        return added


def detach_head(module: Any, folder: Path) -> None:
    """Take the head off a trained drafter and write it to the drafter's folder."""
    if hasattr(module, "markov"):
        save_file(module.markov.state_dict(), folder / _FILE)
        del module.markov


def opened_head(folder: Path, vocabulary: int) -> Tables:
    """The tables `before` and `after` of the head in a drafter's folder; of rank 0 if it was trained without one."""
    if not (folder / _FILE).exists():
        return np.empty((vocabulary, 0), np.float32), np.empty((vocabulary, 0), np.float32)
    weights = load_file(folder / _FILE)
    return weights["before.weight"], weights["after.weight"]
