"""A first-order dependence between the tokens of a block: the Markov head of DSpark (Cheng et al., 2026).

A non-autoregressive drafter fills each mask without knowing which tokens it writes in the others. The head adds to the
logits of a mask what the token before it says: a matrix [V, V] of low rank, with a row for each token before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from safetensors.numpy import load_file
from safetensors.torch import save_file
from torch import nn

from methods.decoding.engine.kernels import FAST
from methods.decoding.engine.selection import largest

Tables = tuple[NDArray[np.float32], NDArray[np.float32]]
CANDIDATES = 16
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


@njit(**FAST)
def likeliest(logits, after, before):  # type: ignore[no-untyped-def]
    """The best of the `CANDIDATES` best tokens of logits float32 [V] once the head has added to them, and its
    probability among them. after: the head's table [V, rank]. before: its row [rank] of the token before."""
    scores, tokens, _ = largest(logits, min(CANDIDATES, len(logits)))
    for place, token in enumerate(tokens):
        scores[place] += (after[token] * before).sum()
    best = scores.argmax()
    return tokens[best], 1 / np.exp(scores - scores[best]).sum()


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
