"""Causal models for the lean engine: rotary positions, keys shared by queries, norms around each sub-layer, windows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

TYPES = (
    "Gemma3ForCausalLM", "GPT2LMHeadModel", "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
)  # fmt: skip
_CHANGING = ("dynamic", "longrope")  # rotations that depend on the length of the text


def known(module: Any) -> bool:
    """Whether the lean engine computes this module."""
    config = module.config
    if type(module).__name__ not in TYPES or getattr(config, "add_cross_attention", False):
        return False
    ropes = getattr(config, "rope_parameters", None) or {}
    plain = {name: value for name, value in ropes.items() if not isinstance(value, dict)}
    kinds = [rope.get("rope_type", "default") for rope in (plain, *(r for r in ropes.values() if isinstance(r, dict)))]
    return (
        not any(kind in _CHANGING for kind in kinds)
        and not getattr(config, "use_bidirectional_attention", False)
        and getattr(config, "attn_logit_softcapping", None) is None
        and getattr(config, "final_logit_softcapping", None) is None
        and not getattr(config, "scale_attn_by_inverse_layer_idx", False)
    )


class Rotations:
    """Cosines and sines of rotary positions (Su et al., 2021, section 3.4.2), one table for each type of layer, from
    the module's own frequencies."""

    def __init__(self, stack: Any, kinds: list[str | None]) -> None:
        self._module, self._kinds = stack.rotary_emb, kinds
        self._table = torch.empty(0)

    def __call__(self, places: int, device: str) -> torch.Tensor:
        """[types, at least `places`, 2, size / 2], float32."""
        if self._table.dim() == 1 or places > self._table.shape[1]:
            positions, number = torch.arange(max(2 * places, 256), device=device)[None], torch.empty(0, device=device)
            tables = [
                torch.stack(self._module(number, positions, *([] if kind is None else [kind])), 2)[0]
                for kind in self._kinds
            ]
            self._table = torch.stack(tables)[..., : tables[0].shape[-1] // 2].float().contiguous()
        return self._table


def stack_of(module: Any) -> Any:
    """The blocks of a causal module with the attribute names of Marian's decoder, and `rotations`."""
    stack = module.get_decoder()
    if type(module).__name__ == "GPT2LMHeadModel":
        return SimpleNamespace(
            embed_tokens=stack.wte, embed_positions=stack.wpe, embed_scale=1.0, layer_norm=stack.ln_f, rotations=None,
            layers=[_gpt2_layer(block) for block in stack.h],
        )  # fmt: skip
    types = [getattr(layer.self_attn, "layer_type", None) for layer in stack.layers]
    several = isinstance(getattr(stack.rotary_emb, "rope_type", None), dict)  # Gemma's rotation depends on the layer
    kinds: list[str | None] = list(dict.fromkeys(types)) if several else [None]
    table = stack.embed_tokens
    return SimpleNamespace(
        embed_tokens=table, embed_positions=None, layer_norm=stack.norm,
        embed_scale=float(table.embed_scale.to(table.weight.dtype)) if hasattr(table, "embed_scale") else 1.0,
        layers=[
            _layer(layer, module.config, kinds.index(kind) if several else 0)
            for layer, kind in zip(stack.layers, types, strict=True)
        ],
        rotations=Rotations(stack, kinds),
    )  # fmt: skip


def _layer(layer: Any, config: Any, turned: int) -> Any:
    own, inner = layer.self_attn, layer.mlp
    around = hasattr(layer, "pre_feedforward_layernorm")  # norms before and after a sub-layer
    return SimpleNamespace(
        self_attn=SimpleNamespace(
            projections=(own.q_proj, own.k_proj, own.v_proj), out_proj=own.o_proj,
            num_heads=own.q_proj.out_features // own.head_dim, scale=own.scaling,
            q_norm=getattr(own, "q_norm", None), k_norm=getattr(own, "k_norm", None),
            window=config.sliding_window if config.model_type == "mistral" else getattr(own, "sliding_window", None),
            turned=turned,
        ),
        self_attn_layer_norm=layer.input_layernorm,
        self_attn_after=layer.post_attention_layernorm if around else None,
        fc1=(inner.gate_proj, inner.up_proj), fc2=inner.down_proj, activation_fn=inner.act_fn,
        final_layer_norm=layer.pre_feedforward_layernorm if around else layer.post_attention_layernorm,
        final_after=layer.post_feedforward_layernorm if around else None,
    )  # fmt: skip


def _gpt2_layer(block: Any) -> Any:
    own = block.attn
    return SimpleNamespace(
        self_attn=SimpleNamespace(
            projections=(_linear(own.c_attn),), out_proj=_linear(own.c_proj),
            num_heads=own.num_heads, scale=own.scaling,
        ),
        self_attn_layer_norm=block.ln_1, final_layer_norm=block.ln_2,
        fc1=_linear(block.mlp.c_fc), fc2=_linear(block.mlp.c_proj), activation_fn=block.mlp.act,
    )  # fmt: skip


def _linear(layer: Any) -> Any:
    """A layer of GPT-2, whose matrix is [in, out], with the matrix [out, in] that a linear layer has. The layer's own
    becomes a view of it."""
    with torch.inference_mode(False):  # the layer may be trained later
        weight = layer.weight.detach().t().contiguous()
        layer.weight.data = weight.t()
    return SimpleNamespace(weight=weight, bias=layer.bias)
