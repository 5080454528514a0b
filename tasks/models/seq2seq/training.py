"""Transformers trained here to write one text from another: encoder-decoders of Marian's architecture (post-norm,
sinusoidal positions, tied embeddings), or causal models (`tasks.models.seq2seq.causal`).

Unless its size says otherwise, a new encoder-decoder starts as a copier of its source
(`tasks.models.seq2seq.copier`). The result is a model folder in the hub's layout (`save_pretrained`, safetensors,
tokenizer) in the cache, keyed by the content of the pairs, the tokenizer and everything below that affects the weights.
`training.json` records the training.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.common.training.loop import Plan, record, train, warmup_cosine
from harness.common.training.optimizers import optimizer
from harness.common.training.pairs import Pair, Pairs, length_batches, padded
from harness.common.training.precision import fast_precision
from tasks.metrics.spans import edits
from tasks.models.pretrained.checkpoints import tokenizer_hash
from tasks.models.seq2seq.causal import new_causal_module
from tasks.models.seq2seq.copier import start_as_copier

if TYPE_CHECKING:
    from tasks.models.seq2seq.sizes import Size

_HELD_OUT_PAIRS = 256
COPIER, RANDOM = "a copier over random weights", "random weights"  # their names in `training.json`


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded ids, int64: sources [n, s], decoder inputs [n, t] (targets shifted by one), targets [n, t]. weights:
    float32 [n, t], of the targets in the loss; 0 for padding. For a causal model, sources are None: source and target
    are one text, in which source ids have weight 0."""

    sources: torch.Tensor | None
    inputs: torch.Tensor
    targets: torch.Tensor
    weights: torch.Tensor


def trained_seq2seq(
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
    """Folder of the model trained on pairs of ids, unless the cache has it. Interrupted training is resumed.

    Both sides end with the tokenizer's end token. start: a model folder of this cache to start from, with the same
    tokenizer; its shape replaces that of the size.
    Raises `RequestError` when no pair is short enough.
    """
    key = {
        "training": training.hash, "held_out": held_out.hash, "size": asdict(size), "seed": seed,
        "tokenizer": tokenizer_hash(tokenizer_folder), "precision": str(fast_precision(device) or torch.float32),
        "start": None if start is None else start.name,  # a cached folder's name is its key's hash
    }  # fmt: skip

    def build(folder: Path) -> None:
        shutil.copytree(tokenizer_folder, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("key.json"))
        _train(size, training, held_out, folder, start, device, seed, progress or Progress())

    return cache.build("seq2seq", key, build)


def new_module(size: Size, vocabulary: int, pad: int, end: int) -> Any:
    """A Marian module with random weights, made a copier if the size says so. The padding token is the decoder's first
    input."""
    from transformers import GenerationConfig, MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=vocabulary, d_model=size.width, encoder_layers=size.encoder_layers,
        decoder_layers=size.decoder_layers, encoder_ffn_dim=size.feed_forward, decoder_ffn_dim=size.feed_forward,
        encoder_attention_heads=size.heads, decoder_attention_heads=size.heads,
        max_position_embeddings=size.positions, activation_function="relu", dropout=size.dropout,
        attention_dropout=0.0, scale_embedding=True, share_encoder_decoder_embeddings=True, tie_word_embeddings=True,
        pad_token_id=pad, eos_token_id=end, decoder_start_token_id=pad, bos_token_id=None, forced_eos_token_id=None,
        init_std=0.02 if size.copies else 0.6 / size.width**0.5,  # narrow models learn faster from larger weights
    )  # fmt: skip
    module = MarianMTModel(config)
    if size.copies:
        start_as_copier(module)
    module.generation_config = GenerationConfig(pad_token_id=pad, eos_token_id=end, decoder_start_token_id=pad)
    return module


def initial_module(size: Size, tokenizer: Any, start: Path | None) -> Any:
    """The model before training: that in `start` with the size's dropout, else a new one."""
    if start is None:
        make = new_module if size.encoder_layers else new_causal_module
        return make(size, len(tokenizer), tokenizer.pad_token_id, tokenizer.eos_token_id)
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    # layers copy the dropout when they are made: setting it in the configuration afterwards would have no effect
    if not size.encoder_layers:  # Llama has dropout only in attention
        return AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32, attention_dropout=size.dropout)
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
    if torch.device(device).type == "cpu":
        # for short sentences and heads, the backward pass of torch's fused attention takes 30% of a step; with plain
        # products a step of the `small` corrector takes 0.53 of its time
        module.set_attn_implementation("eager")
    precision = fast_precision(device)
    first = module.config.decoder_start_token_id if module.config.is_encoder_decoder else None
    try:
        numbers = length_batches(training.lengths, size.batch_ids, size.longest, seed)
    except ValueError as error:
        raise RequestError(f"no training pair fits the model: {error}; give other text or a larger size") from error

    def batches(step: int) -> Batch:
        return batch_of([training[int(n)] for n in numbers(step)], pad, first, device, size.edit_weight)

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        return mean_loss(model, batch, pad, size.smoothing)

    checked = [pair for pair in held_out[:_HELD_OUT_PAIRS] if max(map(len, pair)) <= size.longest]

    @torch.no_grad()
    def evaluate(model: Any) -> float:
        parts = (batch_of(checked[n : n + 32], pad, first, device) for n in range(0, len(checked), 32))
        with torch.autocast(torch.device(device).type, precision, enabled=precision is not None):
            losses = [float(mean_loss(model, batch, pad, 0.0)) for batch in parts]
        return float(np.mean(losses)) if losses else float("nan")

    checkpoint = folder / "training.pt"
    plan = Plan(
        steps=size.steps, schedule=warmup_cosine(size.steps, size.warmup, floor=0.05), autocast=precision, seed=seed,
        tokens_per_step=size.batch_ids, evaluate_every=max(1, size.steps // 20),
        stage=f"training a {size.shape} model",
    )  # fmt: skip
    history = train(
        module, loss, batches, optimizer(size.optimizer, module, size.learning_rate, 0.01, (0.9, 0.98)), plan,
        evaluate=evaluate, checkpoint=checkpoint, progress=progress,
    )  # fmt: skip
    module.save_pretrained(folder)
    made = {
        "size": asdict(size),
        "initial_weights": _initial(size, start),
        "pairs": len(training),
        "parameters": sum(p.numel() for p in module.parameters()),
        "evaluations": history.evaluations,
        **record(history, device, precision),
    }
    if start is not None and (start / "training.json").exists():
        made["start"] = json.loads((start / "training.json").read_text())
    (folder / "training.json").write_text(json.dumps(made, indent=1))
    checkpoint.unlink(missing_ok=True)


def _initial(size: Size, start: Path | None) -> str:
    return f"the model {start.name}" if start is not None else COPIER if size.encoder_layers and size.copies else RANDOM


def mean_loss(module: Any, batch: Batch, pad: int, smoothing: float) -> torch.Tensor:
    """Weighted mean of the cross-entropy (nats) of a batch's targets.

    Logits are computed only for targets with weight: this saves a tenth of a step, and half of a causal model's. The
    modules made here have no bias on their logits.
    """
    if batch.sources is None:
        states = module.base_model(input_ids=batch.inputs, use_cache=False).last_hidden_state
    else:
        states = module.base_model(
            input_ids=batch.sources, attention_mask=(batch.sources != pad).long(), decoder_input_ids=batch.inputs,
            use_cache=False,
        ).last_hidden_state  # fmt: skip
    real = batch.weights > 0
    logits = module.get_output_embeddings()(states[real]).float()
    losses = F.cross_entropy(logits, batch.targets[real], label_smoothing=smoothing, reduction="none")
    weights = batch.weights[real]
    return (losses * weights).sum() / weights.sum()


def batch_of(pairs: Sequence[Pair], pad: int, first: int | None, device: str, edit_weight: float = 1.0) -> Batch:
    """Pairs of ids as a batch. first: the first decoder input; None: a causal model. edit_weight: weight of edited
    targets."""
    if first is None:
        whole = torch.from_numpy(padded([[*source, *target] for source, target in pairs], pad))
        sources, inputs, targets = None, whole[:, :-1].to(device), whole[:, 1:]
        begins = [len(source) - 1 for source, _ in pairs]
    else:
        reading, targets = (torch.from_numpy(padded(side, pad)) for side in zip(*pairs, strict=True))
        inputs = torch.cat([torch.full_like(targets[:, :1], first), targets[:, :-1]], dim=1).to(device)
        sources, begins = reading.to(device), [0] * len(pairs)
    weights = torch.zeros(targets.shape)
    for row, begin, (source, target) in zip(weights, begins, pairs, strict=True):
        row[begin : begin + len(target)] = 1.0
        if edit_weight != 1.0:
            row[[begin + place for place in edited(source, target)]] = edit_weight
    return Batch(sources, inputs, targets.to(device), weights.to(device))


def edited(source: Sequence[int], target: Sequence[int]) -> list[int]:
    """Positions of the target at which continuing the source would be wrong: inserted or replaced ids, and the first id
    after a deletion."""
    places = [place for start, end in edits(source, target) for place in range(start, max(end, start + 1))]
    return [place for place in places if place < len(target)]
