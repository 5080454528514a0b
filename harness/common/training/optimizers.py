"""The optimizers of training: AdamW, or Muon for the matrices of a Transformer with AdamW for the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import nn

Name = Literal["adamw", "muon"]


class Together(torch.optim.Optimizer):
    """Optimizers of different parameters, stepped together. `param_groups` holds the groups of all."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        self.parts = list(parts)
        super().__init__([group for part in self.parts for group in part.param_groups], {})

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Raises `TypeError` for a closure."""
        if closure is not None:
            raise TypeError("a closure would be called once for each part")
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self.param_groups = [group for part in self.parts for group in part.param_groups]


def muon(module: nn.Module, learning_rate: float, weight_decay: float) -> Together:
    """Muon (Jordan et al., 2024) for matrices other than embeddings; AdamW without decay for embeddings, the output
    layer tied to them, biases and norms. Muon's steps are scaled to the size of AdamW's (Liu et al., 2025, "Muon is
    scalable", section 2.2), so one learning rate serves both.
    """
    embeddings = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    matrices = [p for p in trained if p.dim() == 2 and id(p) not in embeddings]
    chosen = {id(p) for p in matrices}
    return Together(
        [
            torch.optim.Muon(matrices, lr=learning_rate, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(
                [p for p in trained if id(p) not in chosen], lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.0,
                fused=True,
            ),
        ]
    )  # fmt: skip


def adamw(
    module: nn.Module, learning_rate: float, weight_decay: float, betas: tuple[float, float] = (0.9, 0.95)
) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter, 2019) of all trained parameters: matrices decay, biases and norms do not."""
    trained = [p for p in module.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=True)


def optimizer(
    name: Name, module: nn.Module, learning_rate: float, weight_decay: float, betas: tuple[float, float] = (0.9, 0.95)
) -> torch.optim.Optimizer:
    """The optimizer of this name. betas: of AdamW if it trains everything."""
    if name == "muon":
        return muon(module, learning_rate, weight_decay)
    return adamw(module, learning_rate, weight_decay, betas)
