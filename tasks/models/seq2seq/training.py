"""Encoder-decoder Transformers trained here: Marian's architecture (post-norm, sinusoidal positions, tied embeddings).

Training does not begin with random weights alone: a new model is a copier (`tasks.models.seq2seq.copier`). The result
is a model folder in the hub's layout (`save_pretrained`, safetensors, tokenizer), in the cache, keyed by the content of
the pairs, the tokenizer and everything below that shapes the weights. `training.json` tells how it was made.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F

from harness.errors import RequestError
from harness.measure.artifacts import Cache
from harness.progress import Progress
from harness.training.loop import Plan, decayed, record, train, warmup_cosine
from harness.training.pairs import Pair, Pairs, length_batches, padded
from harness.training.precision import fast_precision
from tasks.models.pretrained.checkpoints import tokenizer_hash
from tasks.models.seq2seq.copier import start_as_copier

if TYPE_CHECKING:
    from tasks.models.seq2seq.sizes import Size

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
_HELD_OUT_PAIRS = 256
COPIER = "a copier over random weights"  # how `training.json` calls them


def trained_encoder_decoder(
    size: Size,
    training: Pairs,
    held_out: Pairs,
    tokenizer_folder: Path,
    cache: Cache,
    *,
    start: Path | None = None,
    device: str = "cpu",
    seed: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Folder of the model trained on pairs of ids, unless the cache has it; an interrupted training resumes.

    Both sides end in the tokenizer's end token. start: a model folder of this cache to go on from, with the same
    tokenizer; its shape then counts instead of the size's.
    Raises `RequestError` when no pair is short enough.
    """
    key = {
        "training": training.hash, "held_out": held_out.hash, "size": asdict(size), "seed": seed,
        "tokenizer": tokenizer_hash(tokenizer_folder), "precision": str(fast_precision(device) or torch.float32),
        "start": None if start is None else start.name,  # a cached folder is named by its content
    }  # fmt: skip

    def build(folder: Path) -> None:
        shutil.copytree(tokenizer_folder, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("key.json"))
        _train(size, training, held_out, folder, start, device, seed, progress or Progress())

    return cache.build("encoder-decoder", key, build)


def new_module(size: Size, vocabulary: int, pad: int, end: int) -> Any:
    """A Marian module that repeats its source, over random weights. The pad token is the decoder's first input."""
    from transformers import GenerationConfig, MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=vocabulary, d_model=size.width, encoder_layers=size.encoder_layers,
        decoder_layers=size.decoder_layers, encoder_ffn_dim=size.feed_forward, decoder_ffn_dim=size.feed_forward,
        encoder_attention_heads=size.heads, decoder_attention_heads=size.heads,
        max_position_embeddings=size.positions, activation_function="relu", dropout=size.dropout,
        attention_dropout=0.0, scale_embedding=True, share_encoder_decoder_embeddings=True, tie_word_embeddings=True,
        pad_token_id=pad, eos_token_id=end, decoder_start_token_id=pad, bos_token_id=None, forced_eos_token_id=None,
    )  # fmt: skip
    module = MarianMTModel(config)
    start_as_copier(module)
    module.generation_config = GenerationConfig(pad_token_id=pad, eos_token_id=end, decoder_start_token_id=pad)
    return module


def initial_module(size: Size, tokenizer: Any, start: Path | None) -> Any:
    """What training begins with: the model in `start` under the size's dropout, else a new one."""
    if start is None:
        return new_module(size, len(tokenizer), tokenizer.pad_token_id, tokenizer.eos_token_id)
    from transformers import AutoModelForSeq2SeqLM

    # layers take their dropout when they are made: setting it in the configuration afterwards would change nothing
    return AutoModelForSeq2SeqLM.from_pretrained(start, dtype=torch.float32, dropout=size.dropout)


def _train(
    size: Size, training: Pairs, held_out: Pairs, folder: Path, start: Path | None, device: str, seed: int,
    progress: Progress,
) -> None:  # fmt: skip
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    pad: int = tokenizer.pad_token_id
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = initial_module(size, tokenizer, start)
    module.to(device)
    precision = fast_precision(device)
    first = module.config.decoder_start_token_id
    try:
        numbers = length_batches(training.lengths, size.batch_ids, size.longest, seed)
        numbers(0)
    except ValueError as error:
        raise RequestError(f"no training pair fits the model: {error}; give other text or a larger size") from error

    def batches(step: int) -> Batch:
        return _tensors([training[int(n)] for n in numbers(step)], pad, first, device)

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        return mean_loss(model, batch, pad, size.smoothing)

    checked = [pair for pair in held_out[:_HELD_OUT_PAIRS] if max(map(len, pair)) <= size.longest]

    @torch.no_grad()
    def evaluate(model: Any) -> float:
        parts = (_tensors(checked[n : n + 32], pad, first, device) for n in range(0, len(checked), 32))
        with torch.autocast(torch.device(device).type, precision, enabled=precision is not None):
            losses = [float(mean_loss(model, batch, pad, 0.0)) for batch in parts]
        return float(np.mean(losses)) if losses else float("nan")

    checkpoint = folder / "training.pt"
    plan = Plan(
        steps=size.steps, schedule=warmup_cosine(size.steps, size.warmup, floor=0.05), autocast=precision, seed=seed,
        tokens_per_step=size.batch_ids, evaluate_every=max(1, size.steps // 20),
        stage=f"training a {size.encoder_layers}+{size.decoder_layers} encoder-decoder",
    )  # fmt: skip
    optimizer = torch.optim.AdamW(decayed(module, 0.01), lr=size.learning_rate, betas=(0.9, 0.98), fused=True)
    history = train(
        module, loss, batches, optimizer, plan,
        evaluate=evaluate, checkpoint=checkpoint, progress=progress,
    )  # fmt: skip
    module.save_pretrained(folder)
    made = {
        "size": asdict(size),
        "initial_weights": COPIER if start is None else f"the model {start.name}",
        "pairs": len(training),
        "parameters": sum(p.numel() for p in module.parameters()),
        "evaluations": history.evaluations,
        **record(history, device, precision),
    }
    (folder / "training.json").write_text(json.dumps(made, indent=1))
    checkpoint.unlink(missing_ok=True)


def mean_loss(module: Any, batch: Batch, pad: int, smoothing: float) -> torch.Tensor:
    """Cross-entropy (nats a target id) of a batch: sources [n, s], decoder inputs [n, t], targets [n, t]."""
    sources, inputs, targets = batch
    logits = module(
        input_ids=sources, attention_mask=(sources != pad).long(), decoder_input_ids=inputs, use_cache=False
    ).logits
    real = targets != pad
    return F.cross_entropy(logits[real].float(), targets[real], label_smoothing=smoothing)


def _tensors(pairs: Sequence[Pair], pad: int, first: int, device: str) -> Batch:
    """Sources, decoder inputs (targets moved on by one, opened by `first`) and targets, padded."""
    sources, targets = (torch.from_numpy(padded(side, pad)) for side in zip(*pairs, strict=True))
    inputs = torch.cat([torch.full_like(targets[:, :1], first), targets[:, :-1]], dim=1)
    return sources.to(device), inputs.to(device), targets.to(device)
