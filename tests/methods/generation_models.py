"""Tiny generation models for tests: random ones of several classes, and two that copy their source with errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
    T5Config,
    T5ForConditionalGeneration,
    UMT5Config,
    UMT5ForConditionalGeneration,
)

VOCABULARY = 40


@dataclass(eq=False)
class Model:
    """See `harness.contracts.GenerationModel`."""

    module: Any
    start_id: int
    eos_ids: tuple[int, ...]
    window: int
    kind: str = "encoder-decoder"
    name: str = "tiny"
    hash: str = "tiny"
    tokenizer: Any = None
    vocabulary_size: int = VOCABULARY
    device: str = "cpu"
    language_model: Any = None
    assistant: Any = None
    gguf: Any = None

    @property
    def longest_source(self) -> int | None:
        return self.window


def make(kind: str, seed: int, dtype: torch.dtype = torch.float64, ending: float = 1.0, **changes: Any) -> Model:
    """A random model. ending: added to the end token's logit by Marian and BART, so that some outputs end before the
    limit; the others have no bias to add it to. changes: of its configuration."""
    torch.manual_seed(seed)
    sizes = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2}
    sizes |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "init_std": 0.4}
    sizes |= {"max_position_embeddings": 32, "vocab_size": VOCABULARY, **changes}
    if kind == "marian":
        ids = {"pad_token_id": 39, "eos_token_id": 0, "decoder_start_token_id": 39, "forced_eos_token_id": None}
        module: Any = MarianMTModel(MarianConfig(scale_embedding=True, **ids, **sizes))
        model = Model(module, 39, (0,), 32)
    elif kind == "bart":  # starts with its end token, as BART does
        module = BartForConditionalGeneration(BartConfig(forced_eos_token_id=None, **sizes))
        model = Model(module, 2, (2,), 32)
    elif kind in ("t5", "umt5"):
        shape = {"vocab_size": VOCABULARY, "d_model": 16, "d_kv": 4, "num_heads": 4, "d_ff": 32, "num_layers": 2}
        config, kept = (
            (T5Config, T5ForConditionalGeneration) if kind == "t5" else (UMT5Config, UMT5ForConditionalGeneration)
        )
        module = kept(config(decoder_start_token_id=0, **shape, **changes))
        model = Model(module, 0, (1,), 512)
    else:
        shape = {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 48}
        module = GPT2LMHeadModel(GPT2Config(bos_token_id=1, eos_token_id=2, initializer_range=0.4, **shape, **changes))
        model = Model(module, 1, (2,), 48, "causal")
    model.module = module.to(dtype).eval()
    if hasattr(module, "final_logits_bias"):
        module.final_logits_bias[0, model.eos_ids[0]] += ending
    return model


def copier(
    seed: int,
    noise: float,
    dtype: torch.dtype = torch.float64,
    *,
    replaced: int = 4,
    shift: int = 0,
    vocabulary: int = VOCABULARY,
    part: int = 24,
    layers: int = 1,
    places: int = 32,
    order: Sequence[int] = (),
) -> Model:
    """A BART that copies its source by position, with some tokens replaced by others and, with `noise`, slips.

    The width has three parts: token code, position code, copied code. In the last layer, attention over the source
    matches positions and carries the token code into the copied part, which the output layer reads; it also reads,
    weakly, the token before. shift: write token t as t + shift, so that the output shares nothing with the source.
    order: write in place n the token in place order[n] of the source; places behind as they are.
    """
    width = 3 * part
    shape = {"vocab_size": vocabulary, "d_model": width, "encoder_layers": layers, "decoder_layers": layers}
    shape |= {"encoder_attention_heads": 1, "decoder_attention_heads": 1, "max_position_embeddings": places}
    shape |= {"encoder_ffn_dim": 4 * width, "decoder_ffn_dim": 4 * width, "forced_eos_token_id": None}
    module = BartForConditionalGeneration(BartConfig(tie_word_embeddings=False, **shape)).to(dtype).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if "norm" not in name:
                weight.zero_()
        codes = _codes(vocabulary, part, generator, dtype)
        positions = _codes(places, part, generator, dtype)
        for stack in (module.model.encoder, module.model.decoder):
            stack.embed_tokens.weight[:, :part] = codes
            stack.embed_positions.weight[2:, part : 2 * part] = positions
        module.model.decoder.embed_positions.weight[2 : 2 + len(order), part : 2 * part] = positions[list(order)]
        attention, eye = module.model.decoder.layers[-1].encoder_attn, torch.eye(part, dtype=dtype)
        attention.q_proj.weight[:part, part : 2 * part] = 30 * eye
        attention.k_proj.weight[:part, part : 2 * part] = eye
        attention.v_proj.weight[:part, :part] = eye
        attention.out_proj.weight[2 * part :, :part] = eye
        head = torch.zeros(vocabulary, width, dtype=dtype)
        head[:, 2 * part :] = _readers(codes, replaced, shift, generator)
        head[:, :part] += noise * torch.randn(vocabulary, part, generator=generator, dtype=dtype)
        module.lm_head.weight.copy_(head)
    return Model(module, 2, (2,), places, vocabulary_size=vocabulary)


def causal_copier(
    seed: int,
    prompt: int,
    dtype: torch.dtype = torch.float64,
    *,
    replaced: int = 4,
    vocabulary: int = VOCABULARY,
    part: int = 24,
    layers: int = 1,
    places: int = 48,
) -> Model:
    """A GPT-2 that continues a prompt of exactly `prompt` tokens with the prompt, some tokens replaced by others.

    The width has four parts: token code, position code, code of the position to copy from, copied code; otherwise as
    `copier`. Codes have mean zero and variance one, so that normalisation only scales them.
    """
    width = 4 * part
    shape = {"vocab_size": vocabulary, "n_embd": width, "n_layer": layers, "n_head": 1, "n_positions": places}
    config = GPT2Config(bos_token_id=1, eos_token_id=2, tie_word_embeddings=False, **shape)
    module = GPT2LMHeadModel(config).to(dtype).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if "ln_" not in name:
                weight.zero_()
        codes = _codes(vocabulary, part, generator, dtype)
        positions = _codes(places, part, generator, dtype)
        stack, eye = module.transformer, torch.eye(part, dtype=dtype)
        stack.wte.weight[:, :part] = codes
        stack.wpe.weight[:, part : 2 * part] = positions
        stack.wpe.weight[prompt - 1 :, 2 * part : 3 * part] = positions[: places - prompt + 1]
        attention = stack.h[-1].attn
        query, key, value = attention.c_attn.weight.split(width, 1)  # [in, out] each
        query[2 * part : 3 * part, :part] = 30 * eye
        key[part : 2 * part, :part] = eye
        value[:part, :part] = eye
        attention.c_proj.weight[:part, 3 * part :] = eye
        module.lm_head.weight[:, 3 * part :] = _readers(codes, replaced, 0, generator)
    return Model(module, 1, (2,), places, "causal", vocabulary_size=vocabulary)


def twins(seed: int, distance: float, dtype: torch.dtype = torch.float32) -> Model:
    """A copier whose output rows come in pairs that differ by no more than `distance`, or not at all."""
    model = copier(seed, 0.5, dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        head = model.module.lm_head.weight
        head[4:40:2] = head[3:39:2] + distance * torch.randn(head[3:39:2].shape, generator=generator)
    return model


def _readers(codes: torch.Tensor, replaced: int, shift: int, generator: torch.Generator) -> torch.Tensor:
    """Output weights that find the token of a code: itself plus `shift`, or another one for the `replaced` tokens."""
    readers, ordinary = codes.clone(), len(codes) - 3
    readers[3:] = codes[3:].roll(shift, 0)
    for token in torch.randperm(ordinary, generator=generator)[:replaced].tolist():
        readers[3 + (token + 7) % ordinary] += 2 * codes[3 + token]  # written instead of it
    return readers


def _codes(count: int, width: int, generator: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
    """Nearly orthogonal codes of mean zero, [count, width]."""
    codes = torch.randn(count, width, generator=generator, dtype=dtype)
    codes -= codes.mean(1, keepdim=True)
    return codes / codes.norm(dim=1, keepdim=True) * width**0.5
