"""Language models trained here: a byte-level BPE tokenizer and a GPT-2-like Transformer, for machines without the hub.

The result is a model folder in the hub's layout (`save_pretrained`, safetensors) in the cache, keyed by the content of
the text and everything below that affects the weights. `training.json` next to the weights records the training.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.common.training.loop import History, Plan, record, train, warmup_cosine
from harness.common.training.optimizers import optimizer
from harness.common.training.precision import fast_precision
from tasks.data.text import Source, split_hash
from tasks.data.tokens import token_ids
from tasks.models.bpe import byte_level_bpe
from tasks.models.lm.loss import output_loss

if TYPE_CHECKING:
    from tasks.models.lm.sizes import Size

END = "<|endoftext|>"  # begins every stream and separates documents in training
_HELD_OUT_WINDOWS = 64


def trained_model(
    name: str,
    size: Size,
    source: Source,
    cache: Cache,
    *,
    device: str = "cpu",
    seed: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Folder of the model of the size `name`, trained on the source's train split unless the cache has it.

    Interrupted training resumes from its last checkpoint. Raises `RequestError` for missing or too little data.
    """
    tokenizer_folder = trained_tokenizer(size.vocabulary, source, cache)
    key = {
        "train": split_hash(source, "train", cache),
        "validation": split_hash(source, "validation", cache),
        "size": asdict(size),
        "seed": seed,
        "precision": str(fast_precision(device)),
    }

    def build(folder: Path) -> None:
        shutil.copytree(tokenizer_folder, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("key.json"))
        _train(size, name, source, folder, device, seed, progress or Progress())

    return cache.build("language-model", key, build)


def trained_tokenizer(vocabulary: int, source: Source, cache: Cache) -> Path:
    """Folder of a byte-level BPE tokenizer of the train split: any text round-trips, without an unknown token."""
    key = {"train": split_hash(source, "train", cache), "vocabulary": vocabulary}

    def build(folder: Path) -> None:
        from transformers import PreTrainedTokenizerFast

        tokenizer = byte_level_bpe(source.documents("train"), vocabulary, (END,), blank_in_front=False)
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END).save_pretrained(folder)

    return cache.build("tokenizer", key, build)


def training_windows(tokens: NDArray[Any], window: int, batch: int, seed: int) -> Callable[[int], NDArray[np.int64]]:
    """Batches by step: int64 [batch, window + 1]. Each epoch cuts the text at another offset and shuffles the parts."""
    per_epoch = (len(tokens) - window - 1) // window // batch
    if per_epoch < 1:
        raise ValueError(f"{len(tokens)} tokens are too few for batches of {batch} windows of {window}")

    def at(step: int) -> NDArray[np.int64]:
        epoch, position = divmod(step, per_epoch)
        rng = np.random.default_rng([seed, epoch])
        offset = int(rng.integers(window))
        order = rng.permutation((len(tokens) - 1 - offset) // window)
        rows = offset + window * order[position * batch : (position + 1) * batch]
        cut: NDArray[np.int64] = tokens[rows[:, None] + np.arange(window + 1)].astype(np.int64)
        return cut

    return at


def _train(size: Size, name: str, source: Source, folder: Path, device: str, seed: int, progress: Progress) -> None:
    from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

    tokenizer = AutoTokenizer.from_pretrained(folder)
    end = tokenizer.bos_token_id
    tokens = flat(source.documents("train"), tokenizer, end, progress)
    held_out = flat(source.documents("validation"), tokenizer, end, progress)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=size.window, n_embd=size.width, n_layer=size.layers,
        n_head=max(1, size.width // 64), resid_pdrop=size.dropout, embd_pdrop=size.dropout, attn_pdrop=0.0,
        # GPT-2's 0.02 suits widths of 768 and more; narrow models learn markedly faster from larger weights
        initializer_range=0.6 / size.width**0.5, bos_token_id=end, eos_token_id=end,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = GPT2LMHeadModel(config).to(device)
    try:
        windows = training_windows(tokens, size.window, size.batch, seed)
    except ValueError as error:
        raise RequestError(
            f"the train split of {source.name} is too small for the model train:{name}: {error}; "
            "give more text, or a ready model by --set task.model=PATH"
        ) from error

    def loss(model: Any, batch: torch.Tensor) -> torch.Tensor:
        states = model.base_model(input_ids=batch[:, :-1], use_cache=False).last_hidden_state
        return output_loss(states.flatten(0, 1), model.get_output_embeddings().weight, batch[:, 1:].flatten())

    def batches(step: int) -> torch.Tensor:
        return torch.from_numpy(windows(step)).to(device)

    @torch.no_grad()
    def evaluate(model: Any) -> float:
        count = max(1, min(_HELD_OUT_WINDOWS, (len(held_out) - 1) // size.window))
        rows = [held_out[n * size.window : (n + 1) * size.window + 1].astype(np.int64) for n in range(count)]
        losses = [loss(model, torch.from_numpy(row)[None].to(device)) for row in rows]
        return float(torch.stack(losses).mean())

    checkpoint = folder / "training.pt"
    plan = Plan(
        steps=size.steps, schedule=warmup_cosine(size.steps, max(1, size.steps // 20), floor=0.05),
        autocast=fast_precision(device), seed=seed, tokens_per_step=size.batch * size.window,
        evaluate_every=max(1, size.steps // 10), stage=f"training the {name} language model",
    )  # fmt: skip
    history = train(
        module, loss, batches, optimizer(size.optimizer, module, size.learning_rate, 0.1), plan,
        evaluate=evaluate, checkpoint=checkpoint, progress=progress,
    )  # fmt: skip
    module.save_pretrained(folder)
    (folder / "training.json").write_text(json.dumps(_record(size, source, tokens, history, plan, device), indent=1))
    checkpoint.unlink(missing_ok=True)


def flat(documents: Sequence[str], tokenizer: Any, end: int, progress: Progress) -> NDArray[Any]:
    """One array of all documents, each after the token `end`."""
    parts: list[NDArray[Any]] = []
    for start in range(0, len(documents), 64):
        ids = token_ids(tokenizer, documents[start : start + 64])
        parts += [np.asarray([end, *one], np.int32) for one in ids]
        progress.update("tokenizing", start + len(ids), len(documents), "documents")
    return np.concatenate(parts)


def _record(
    size: Size, source: Source, tokens: NDArray[Any], history: History, plan: Plan, device: str
) -> dict[str, Any]:
    return {
        "size": asdict(size),
        "data": source.name,
        "train_tokens": len(tokens),
        "seen_tokens": history.tokens,
        "tokens_per_second": round(history.tokens / history.seconds),
        "held_out_loss": history.evaluations[-1][1],
        "evaluations": history.evaluations,
        **record(history, device, plan.autocast),
    }
