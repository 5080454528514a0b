"""Tiny GGUF files for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from gguf import GGMLQuantizationType, GGUFWriter, TokenType
from gguf.quants import quantize
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.convert_slow_tokenizer import bytes_to_unicode

ENDS = ("<end>", "<turn>")  # tokens after the 256 bytes; the first is the end token, llama.cpp ends at both
VOCABULARY = 256 + len(ENDS)


def tiny(path: Path, seed: int = 0, numbers: str = "F32") -> Any:
    """Write a random Qwen2 of two layers and width 32 over bytes and two end tokens, and return its module. numbers:
    type of the matrices in the file."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=128, initializer_range=0.3, tie_word_embeddings=False,
        bos_token_id=None, eos_token_id=256,
    )  # fmt: skip
    module = Qwen2ForCausalLM(config).eval()
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if name.endswith("bias"):
                weight.normal_(std=0.3)
    writer = GGUFWriter(path, "qwen2")
    writer.add_context_length(128)
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*bytes_to_unicode().values(), *ENDS])
    writer.add_token_types([TokenType.NORMAL] * 256 + [TokenType.CONTROL] * len(ENDS))
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(256)
    writer.add_eot_token_id(257)
    writer.add_add_bos_token(False)
    for name, weight in module.state_dict().items():
        kind = GGMLQuantizationType[numbers if weight.ndim > 1 else "F32"]
        writer.add_tensor(_named(name), quantize(weight.numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return module


def _named(name: str) -> str:
    """A tensor's name in GGUF."""
    for ours, theirs in (
        ("model.layers.", "blk."), ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output"), ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down"), ("post_attention_layernorm", "ffn_norm"),
        ("input_layernorm", "attn_norm"), ("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"),
        ("lm_head", "output"),
    ):  # fmt: skip
        name = name.replace(ours, theirs)
    return name
