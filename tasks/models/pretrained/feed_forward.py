"""Finds the last feed-forward block of any causal Transformer, by structure, not by class name.

The keys of a kNN-LM datastore are activations at that block (Khandelwal et al. 2020, section 2 and table 5).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from harness.common.errors import RequestError
from harness.contracts import KeyKind

_USUAL_NAMES = ("mlp", "ffn", "feed_forward", "feedforward", "ff", "moe")


def last_feed_forward(model: nn.Module, model_type: str) -> tuple[nn.Module, nn.Module]:
    """Modules (first, last) of the last block's feed-forward part: its input enters one, its output leaves the other.

    Most models have one submodule for the part, which is then both; OPT-like blocks have two bare linear layers. In a
    mixture of experts the part is the router with its experts: its input is that of router and experts, its output the
    weighted sum of the experts' outputs.
    Raises `RequestError` with the model type if the last block has no such part.
    """
    block = _last_block(model)
    if block is not None:
        children = list(block.named_children())
        rest = [(name, child) for name, child in children if not _is_attention(name, child)]
        attends = len(rest) < len(children)
        parts = [(name, child) for name, child in rest if _holds_feed_forward(child)]
        usual = [(name, child) for name, child in parts if name in _USUAL_NAMES]
        if not attends:  # the mixer of a state-space model looks like a feed-forward part: require the name
            parts = usual
        elif len(parts) > 1:
            parts = usual or parts[-1:]
        if parts:
            return parts[0][1], parts[0][1]
        if attends:
            linear = [(child, widths) for _, child in rest if (widths := _widths(child))]
            for position, (first, (narrow, wide)) in enumerate(linear):
                for last, widths in linear[position + 1 :]:
                    if wide > narrow and widths == (wide, narrow):
                        return first, last
    raise RequestError(
        f"a model of type {model_type!r} has no feed-forward part in its last block that can give keys; "
        "use key: last_hidden, or a GPT-2-, LLaMA- or OPT-like model"
    )


@contextmanager
def captured(parts: tuple[nn.Module, nn.Module], key: KeyKind) -> Iterator[list[torch.Tensor]]:
    """Collect the input or output of the feed-forward part during forward passes. Hooks are removed afterwards."""
    seen: list[torch.Tensor] = []

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append(args[0] if args else next(iter(kwargs.values())))

    def after(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        seen.append(output[0] if isinstance(output, tuple) else output)

    first, last = parts
    if key == "last_ffn_input":
        handle = first.register_forward_pre_hook(before, with_kwargs=True)
    else:
        handle = last.register_forward_hook(after)
    try:
        yield seen
    finally:
        handle.remove()


def _last_block(model: nn.Module) -> nn.Module | None:
    """The last element of the longest module list that is not inside another one, as experts are."""
    lists = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.ModuleList)]
    outer = [module for name, module in lists if not any(name.startswith(f"{other}.") for other, _ in lists)]
    longest = max(outer, key=len, default=None)
    return longest[-1] if longest is not None and len(longest) else None


def _is_attention(name: str, module: nn.Module) -> bool:
    return "attn" in name.lower() or "attention" in name.lower() or "attention" in type(module).__name__.lower()


def _holds_feed_forward(module: nn.Module) -> bool:
    return not _widths(module) and any(_widths(child) or _holds_experts(child) for child in module.modules())


def _holds_experts(module: nn.Module) -> bool:
    """Whether the weights of all experts are stacked in parameters of the module itself, [experts, inputs, outputs] or
    [experts, outputs, inputs] per projection, as in transformers 5. A convolution has only one such parameter."""
    stacked = [parameter for parameter in module.parameters(recurse=False) if parameter.ndim == 3]
    return len(stacked) > 1 and len({len(parameter) for parameter in stacked}) == 1


def _widths(module: nn.Module) -> tuple[int, int] | None:
    """(inputs, outputs) of a linear layer, or None. transformers' Conv1D is one with transposed weight."""
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    if type(module).__name__ == "Conv1D" and isinstance(getattr(module, "weight", None), torch.Tensor):
        weight: torch.Tensor = module.weight  # type: ignore[assignment]
        return weight.shape[0], weight.shape[1]
    return None
