"""Tiny GGUF files for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType
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
    write(path, module, [*bytes_to_unicode().values(), *ENDS], ["a b"], ends=2, numbers=numbers)
    return module


def write(
    path: Path, module: Any, tokens: Sequence[str], merges: Sequence[str], *, ends: int = 1, numbers: str = "F32",
    architecture: str = "qwen2",
) -> Path:  # fmt: skip
    """A Qwen2 as a GGUF file with a byte-level tokenizer. Its last `ends` tokens end an output: the end token, and the
    end of a turn. numbers: type of the matrices. architecture: what the file says that it is."""
    writer, config = GGUFWriter(path, architecture), module.config
    writer.add_file_type(LlamaFileType[f"{'ALL' if numbers == 'F32' else 'MOSTLY'}_{numbers}"])
    writer.add_license("mit")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(list(tokens))
    writer.add_token_types([TokenType.NORMAL] * (len(tokens) - ends) + [TokenType.CONTROL] * ends)
    writer.add_token_merges(list(merges))
    writer.add_eos_token_id(len(tokens) - ends)
    if ends > 1:
        writer.add_eot_token_id(len(tokens) - ends + 1)
    writer.add_add_bos_token(False)
    for name, weight in module.state_dict().items():
        if name != "lm_head.weight" or not config.tie_word_embeddings:
            kind = GGMLQuantizationType[numbers if weight.ndim > 1 else "F32"]
            writer.add_tensor(_named(name), quantize(weight.numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


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
