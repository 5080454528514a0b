"""The optimizers of training: AdamW, or Muon for the matrices of a Transformer with AdamW for the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import nn

from harness.common.training.precision import fast_precision

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


class Float32Muon(torch.optim.Muon):
    """torch's Muon with its matrix products in float32. torch's are of bfloat16, which on a CPU without instructions
    for it take 26 times as long at 128 x 128 and 100 times at 512 x 2,048 (AMD EPYC, AVX2, two threads): three quarters
    of a training step of a 2x128 model. State and options are torch's; `adjust_lr_fn` has to be `match_rms_adamw`."""

    def __init__(self, params: Sequence[torch.Tensor], **options: Any) -> None:
        """Raises `ValueError` for another `adjust_lr_fn`."""
        if options.get("adjust_lr_fn") != "match_rms_adamw":
            raise ValueError(f"adjust_lr_fn has to be match_rms_adamw (given: {options.get('adjust_lr_fn')})")
        super().__init__(params, **options)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Raises `TypeError` for a closure."""
        if closure is not None:
            raise TypeError("a closure is not supported")
        for group in self.param_groups:
            for matrix in group["params"]:
                if (gradient := matrix.grad) is None:
                    continue
                momentum = self.state[matrix].setdefault("momentum_buffer", torch.zeros_like(gradient))
                momentum.lerp_(gradient, 1 - group["momentum"])
                direction = gradient.lerp(momentum, group["momentum"]) if group["nesterov"] else momentum
                update = _orthogonal(direction, group["ns_coefficients"], group["ns_steps"], group["eps"])
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.add_(update, alpha=-group["lr"] * 0.2 * max(matrix.shape) ** 0.5)


def _orthogonal(matrix: torch.Tensor, polynomial: Sequence[float], steps: int, least: float) -> torch.Tensor:
    """The matrix with singular values near 1, by Newton-Schulz iterations of degree 5 (Jordan et al., 2024). least: of
    the norm that it is divided by."""
    a, b, c = polynomial
    tall = matrix.shape[0] > matrix.shape[1]
    found = matrix.float().T if tall else matrix.float()
    found = found / found.norm().clamp(min=least)
    for _ in range(steps):
        gram = found @ found.T
        found = torch.addmm(found, torch.addmm(gram, gram, gram, beta=b, alpha=c), found, beta=a)
    return found.T if tall else found


def muon(module: nn.Module, learning_rate: float, weight_decay: float) -> Together:
    """Muon (Jordan et al., 2024) for matrices other than embeddings; AdamW without decay for embeddings, the output
    layer tied to them, biases and norms. Muon's steps are scaled to the size of AdamW's (Liu et al., 2025, "Muon is
    scalable", section 2.2), so one learning rate serves both.
    """
    embeddings = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    matrices = [p for p in trained if p.dim() == 2 and id(p) not in embeddings]
    chosen = {id(p) for p in matrices}
    kind = Float32Muon if fast_precision(next(module.parameters()).device.type) is None else torch.optim.Muon
    return Together(
        [
            kind(matrices, lr=learning_rate, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"),
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
