"""The loss of an output layer without holding all logits in memory."""

from __future__ import annotations

from typing import Any

import torch

_ROWS = 256  # logits of 256 positions over 8,192 entries take 8 MB, which stays in a core's cache


def output_loss(states: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy (nats, float32 scalar) of logits `states @ weight.T`, with the gradients of both.

    states: [n, d]. weight: [v, d], an output layer without bias. targets: int64 [n].
    Products use autocast's precision if it is on; softmax and loss are float32. Logits and their gradients are computed
    and dropped for 256 positions at a time. Otherwise, on a CPU, the passes over 134 MB of logits (4,096 positions,
    8,192 entries) take a third of the training step of a language model of 10 million weights.
    `torch.nn.functional.linear_cross_entropy` does the same from torch 2.13 on; the bench supports 2.9.
    """
    loss: torch.Tensor = _OutputLoss.apply(states, weight, targets)
    return loss


class _OutputLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        device = states.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
        wanted = any(ctx.needs_input_grad)
        with torch.autocast(device, enabled=False):
            inputs, matrix = states.to(dtype), weight.to(dtype)
            loss = torch.zeros((), device=states.device)
            of_states, of_weight = torch.empty_like(inputs), torch.zeros_like(weight, dtype=torch.float32)
            for start in range(0, len(inputs), _ROWS):
                rows, right = inputs[start : start + _ROWS], targets[start : start + _ROWS, None]
                logs = torch.log_softmax((rows @ matrix.T).float(), dim=1)
                loss -= logs.gather(1, right).sum()
                if wanted:
                    gradient = logs.exp_().scatter_add_(1, right, torch.full_like(right, -1, dtype=logs.dtype))
                    gradient = (gradient / len(inputs)).to(dtype)
                    of_states[start : start + _ROWS] = gradient @ matrix
                    of_weight += gradient.T @ rows
        ctx.save_for_backward(of_states.to(states.dtype), of_weight.to(weight.dtype))
        return loss / len(inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        of_states, of_weight = ctx.saved_tensors
        return gradients[0] * of_states, gradients[0] * of_weight, None
