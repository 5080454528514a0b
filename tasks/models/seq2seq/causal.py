"""Causal Transformers that edit: they read a source and its end token, then write the output.

They have Llama's architecture (pre-norm, rotary positions), because every engine and peer supports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tasks.models.seq2seq.sizes import Size


def new_causal_module(size: Size, vocabulary: int, pad: int, end: int) -> Any:
    """A Llama module over random weights; source and output share its positions."""
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=size.width, intermediate_size=size.feed_forward,
        num_hidden_layers=size.decoder_layers, num_attention_heads=size.heads, num_key_value_heads=size.heads,
        max_position_embeddings=2 * size.positions, tie_word_embeddings=True, attention_dropout=size.dropout,
        initializer_range=0.6 / size.width**0.5,  # narrow models learn faster from larger weights
        pad_token_id=pad, bos_token_id=end, eos_token_id=end,
    )  # fmt: skip
    module = LlamaForCausalLM(config)
    module.generation_config = GenerationConfig(pad_token_id=pad, bos_token_id=end, eos_token_id=end)
    return module
