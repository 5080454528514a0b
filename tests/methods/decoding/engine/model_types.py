"""A tiny random model of each type of `transformers` that generates text from text."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, GenerationConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

VOCABULARY = 60
WINDOW = 6
_SIZES = {
    VOCABULARY: ("vocab_size", "src_vocab_size", "tgt_vocab_size", "n_vocab", "vocab_size_per_layer_input"),
    32: (
        "hidden_size", "d_model", "n_embd", "embedding_size", "word_embed_proj_dim", "emb_dim", "attention_hidden_size",
        "input_embedding_size", "output_embedding_size", "lru_width", "hidden_size_per_layer_input", "dim_model", "dim",
    ),
    2: (
        "num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers",
        "num_encoder_layers", "num_decoder_layers", "num_key_value_heads", "num_experts_per_tok", "moe_topk",
    ),
    4: (
        "num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads",
        "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts",
    ),
    64: (
        "intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "d_inner", "n_inner", "dim_ff",
        "ffn_hidden_size", "moe_intermediate_size", "shared_expert_intermediate_size", "feed_forward_hidden_size",
    ),
    8: (
        "d_kv", "head_dim", "dim_head", "kv_channels", "rotary_dim", "kv_lora_rank", "q_lora_rank", "qk_rope_head_dim",
        "qk_nope_head_dim", "v_head_dim",
    ),
    128: (
        "max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_encoder_position_embeddings",
        "max_decoder_position_embeddings", "context_length", "seq_length",
    ),
    WINDOW: ("sliding_window", "window_size", "attention_window_size", "attention_chunk_size"),
    0: ("pad_token_id",),
}  # fmt: skip
_SPREAD = ("initializer_range", "init_std", "initializer_factor", "init_method_std")
# what a type needs beyond these sizes
_LATENT = {"num_key_value_heads": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "qk_head_dim": 16}
_WINDOW = {"sliding_window": WINDOW}
_MORE: dict[str, dict[str, Any]] = {
    "deepseek_v2": _LATENT, "deepseek_v3": _LATENT, "youtu": _LATENT,
    "falcon": {"alibi": True}, "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "fsmt": {"langs": ["en", "de"]}, "led": {"attention_window": 8}, "mixtral": _WINDOW, "phi3": _WINDOW,
    "starcoder2": _WINDOW, "prophetnet": {"num_buckets": 8}, "xglm": {"attention_heads": 4, "num_layers": 2},
}  # fmt: skip


def tiny_config(kind: str, **changes: Any) -> Any:
    """The configuration of a type, with every size it knows by one of the usual names made small."""
    default = CONFIG_MAPPING[kind]()
    sizes = [(name, size) for size, names in _SIZES.items() for name in names]
    given: dict[str, Any] = {name: size for name, size in sizes if _takes(default, name, size)}
    given |= {name: 0.4 for name in _SPREAD if hasattr(default, name)}
    if getattr(default, "sliding_window", None) is None:
        given.pop("sliding_window", None)
    given |= {name: number for name, number in (("bos_token_id", 1), ("eos_token_id", 2)) if hasattr(default, name)}
    if default.is_encoder_decoder:
        given["decoder_start_token_id"] = 2
    elif hasattr(default, "is_decoder"):
        given["is_decoder"] = True  # BERT and its kin look ahead otherwise
    return CONFIG_MAPPING[kind](**{**given, **_MORE.get(kind, {}), **changes})


def _takes(config: Any, name: str, value: Any) -> bool:
    """Whether a configuration has a setting of this name that can be set."""
    if not hasattr(config, name) or getattr(type(config), "attribute_map", {}).get(name, name) != name:
        return False
    try:
        setattr(deepcopy(config), name, value)
    except (AttributeError, NotImplementedError, ValueError):
        return False
    return True


def tiny_module(kind: str, seed: int = 0, **changes: Any) -> Any:
    """A random module of the type, float32, in eval mode. changes: of its configuration."""
    config = tiny_config(kind, **changes)
    torch.manual_seed(seed)
    family: Any = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    module = family.from_config(config)
    module.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=2)
    return module.float().eval()
