"""Language models fine-tuned on the text of another domain, with their own tokenizer."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.common.training.loop import Plan, record, train, warmup_cosine
from harness.common.training.optimizers import adamw
from harness.common.training.precision import fast_precision
from tasks.data.text import Source, Split, split_hash
from tasks.models.lm.training import flat, training_windows
from tasks.models.pretrained.checkpoints import tokenizer_hash, weights_hash
from tasks.models.pretrained.opening import positions

WINDOW = 1024  # most tokens of a window


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuning:
    """Parameters of fine-tuning: AdamW, linear warm-up over a twentieth of the steps, then half a cosine."""

    steps: int = 600
    batch: int = 8  # windows per step
    learning_rate: float = 5e-4


def fine_tuned(
    start: Path, source: Source, how: FineTuning, cache: Cache, *, device: str = "cpu",
    progress: Progress | None = None,
) -> Path:  # fmt: skip
    """Folder of the causal model in `start`, fine-tuned on the source's train split unless the cache has it, in windows
    of `WINDOW` tokens, or of its positions if these are fewer.

    Raises `RequestError` for too little text, and for a tokenizer with neither a token that begins nor one that ends a
    text.
    """
    key = {
        "start": weights_hash(start, cache), "tokenizer": tokenizer_hash(start), "how": asdict(how),
        "precision": str(fast_precision(device)),
        "train": split_hash(source, "train", cache), "validation": split_hash(source, "validation", cache),
    }  # fmt: skip

    def build(folder: Path) -> None:
        _train(start, source, how, folder, device, progress or Progress())

    return cache.build("fine-tuned", key, build)


def _train(
    start: Path, source: Source, how: FineTuning, folder: Path, device: str, progress: Progress
) -> None:  # fmt: skip
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(start, trust_remote_code=False)
    module = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32, trust_remote_code=False).to(device)
    longest = positions(module.config.get_text_config(), module, "max_position_embeddings", "max_seq_len")
    window = min(longest or WINDOW, WINDOW)
    begins = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    if begins is None:
        raise RequestError(f"the tokenizer of {start} has no token that begins or ends a text; give another model")
    splits: tuple[Split, ...] = ("train", "validation")
    tokens, held_out = (flat(source.documents(split), tokenizer, begins, progress) for split in splits)
    try:
        windows = training_windows(tokens, window, how.batch, seed=0)
    except ValueError as error:
        raise RequestError(f"the train split of {source.name} is too small to train on: {error}") from error

    def loss(model: Any, batch: torch.Tensor) -> torch.Tensor:
        logits = model(input_ids=batch[:, :-1], use_cache=False).logits
        return F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())

    @torch.no_grad()
    def evaluate(model: Any) -> float:
        count = min(32, max(1, (len(held_out) - 1) // window))
        rows = torch.from_numpy(
            np.stack([held_out[n * window : (n + 1) * window + 1] for n in range(count)]).astype(int)
        )
        return float(loss(model, rows.to(device)))

    plan = Plan(
        steps=how.steps, schedule=warmup_cosine(how.steps, max(1, how.steps // 20), floor=0.05),
        autocast=fast_precision(device), seed=0, tokens_per_step=how.batch * window,
        evaluate_every=max(1, how.steps // 10), stage="fine-tuning the language model",
    )  # fmt: skip
    optimizer = adamw(module, how.learning_rate, 0.1)
    checkpoint = folder / "training.pt"
    history = train(
        module, loss, lambda step: torch.from_numpy(windows(step)).to(device), optimizer, plan,
        evaluate=evaluate, checkpoint=checkpoint, progress=progress,
    )  # fmt: skip
    module.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    made = {"data": source.name, "evaluations": history.evaluations, **record(history, device, plan.autocast)}
    (folder / "training.json").write_text(json.dumps(made, indent=1))
    checkpoint.unlink(missing_ok=True)
