"""LSTM encoder-decoder with global attention (Luong et al., 2015), trained here: the translator of L2S's section 4.

As in OpenNMT's default there are two layers, a bidirectional encoder whose last states start the decoder, and "general"
attention (Luong, Eq. 8). The softmax layer's input ("context" in L2S) is the attentional state of Eq. 5, h~ = tanh(W_c
[c; h]). There is no input feeding, so a training step is a few large products.

Sentences are read in groups of equal source length, without padding or masks on that side. A model folder holds
`config.json`, `source_types.json`, `target_types.json`, `model.safetensors` and `training.json` (the record).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.files import digest
from harness.common.progress import Progress
from harness.common.training.loop import Plan, record, train, warmup_cosine
from harness.common.training.precision import fast_precision
from tasks.data.sentences import END, UNKNOWN
from tasks.models.folder import load, save

if TYPE_CHECKING:
    from tasks.models.translator.sizes import Size

Ids = Sequence[int]
Pairs = Sequence[tuple[Ids, Ids]]  # source and target sentences, without an end mark
State = tuple[torch.Tensor, torch.Tensor]
Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # source [s, b], decoder input [t, b], targets [t, b]
_IGNORED = -100  # target at padding
_READ = 64  # pairs read at a time outside of training
_SHAPE = ("width", "layers", "dropout")  # fields of a size that shape the module


class Translator(nn.Module):
    """Encoder, decoder, attention, output layer; dropout on everything that is not recurrent."""

    def __init__(self, source_words: int, target_words: int, *, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.source_embedding = nn.Embedding(source_words, width)
        self.target_embedding = nn.Embedding(target_words, width)
        self.encoder = nn.LSTM(width, width // 2, layers, dropout=dropout, bidirectional=True)
        self.decoder = nn.LSTM(width, width, layers, dropout=dropout)
        self.score = nn.Linear(width, width, bias=False)
        self.combine = nn.Linear(2 * width, width, bias=False)
        self.output = nn.Linear(width, target_words)
        self.dropout = nn.Dropout(dropout)

    def encode(self, source: torch.Tensor) -> tuple[torch.Tensor, State]:
        """Memory [b, s, d] and the decoder's first state, two of [layers, b, d], for source int64 [s, b]."""
        memory, (hidden, cell) = self.encoder(self.dropout(self.source_embedding(source)))
        return memory.transpose(0, 1), (_joined(hidden), _joined(cell))

    def decode(self, words: torch.Tensor, memory: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """Contexts [t, b, d] after each of words int64 [t, b], and the next state."""
        hidden, state = self.decoder(self.dropout(self.target_embedding(words)), state)
        hidden = hidden.transpose(0, 1)
        weights = torch.softmax(self.score(hidden) @ memory.transpose(1, 2), dim=-1)  # [b, t, s]
        context = torch.tanh(self.combine(torch.cat([weights.to(memory.dtype) @ memory, hidden], dim=-1)))
        return self.dropout(context).transpose(0, 1), state

    def forward(self, source: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Contexts [t, b, d] under teacher forcing."""
        memory, state = self.encode(source)
        return self.decode(words, memory, state)[0]


def trained_translator(
    name: str,
    size: Size,
    source_types: Sequence[str],
    target_types: Sequence[str],
    training: Pairs,
    validation: Pairs,
    cache: Cache,
    *,
    device: str = "cpu",
    seed: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Folder of the model of the size `name`, trained on pairs of ids unless the cache has it. `source_types` and
    `target_types` begin with the marks of `tasks.data.sentences`.

    Interrupted training is resumed. Raises `RequestError` without pairs.
    """
    if not training or not validation:
        raise RequestError(f"no pairs to train {name} on ({len(training)}, {len(validation)} held out)")
    key = {
        "training": _hash(training), "validation": _hash(validation), "size": asdict(size), "seed": seed,
        "types": [list(source_types), list(target_types)], "precision": str(fast_precision(device)),
    }  # fmt: skip

    def build(folder: Path) -> None:
        types = {"source": list(source_types), "target": list(target_types)}
        _train(size, name, types, training, validation, folder, device, seed, progress or Progress())

    return cache.build("translation-lstm", key, build)


def load_translator(folder: Path, device: str = "cpu") -> tuple[Translator, list[str], list[str]]:
    """The model in eval mode, source and target vocabulary. Raises `RequestError` if the folder is not such a model."""

    def shaped(size: Any, source_words: int, target_words: int) -> Translator:
        return Translator(source_words, target_words, **{name: size.get(name) for name in _SHAPE})

    model, [source, target] = load(folder, "a translator", ["source_types", "target_types"], shaped, device)
    return model, source, target


def by_length(sources: Sequence[Ids], size: int, order: Sequence[int] | None = None) -> list[list[int]]:
    """Positions of sentences in groups of equal length and at most `size`, shortest first, in the given order."""
    groups: dict[int, list[int]] = {}
    for position in range(len(sources)) if order is None else order:
        groups.setdefault(len(sources[position]), []).append(position)
    return [
        groups[length][start : start + size]
        for length in sorted(groups)
        for start in range(0, len(groups[length]), size)
    ]


def source_tensor(sources: Sequence[Ids], device: torch.device | str) -> torch.Tensor:
    """Sentences of equal length as int64 [s + 1, b], the end mark last (so an empty sentence has one word)."""
    return torch.tensor([[*source, END] for source in sources], device=device).T


def teacher_forced(sources: Sequence[Ids], targets: Sequence[Ids], device: torch.device | str) -> Batch:
    """Encoder input, decoder input (the end mark, then the words), and the words to predict."""
    longest = max(map(len, targets)) + 1
    read = [[END, *target] + [END] * (longest - 1 - len(target)) for target in targets]
    wanted = [[*target, END] + [_IGNORED] * (longest - 1 - len(target)) for target in targets]
    inputs, outputs = torch.tensor(read, device=device).T, torch.tensor(wanted, device=device).T
    return source_tensor(sources, device), inputs, outputs


@torch.no_grad()
def decoder_states(
    model: Translator, pairs: Pairs, progress: Progress, stage: str
) -> Iterator[tuple[int, NDArray[np.float32], NDArray[np.int64]]]:
    """(position of the pair, contexts float32 [t, d], next words int64 [t]) of all pairs, t = target length + 1."""
    device = model.output.weight.device
    done = 0
    for group in by_length([source for source, _ in pairs], _READ):
        batch = teacher_forced([pairs[p][0] for p in group], [pairs[p][1] for p in group], device)
        contexts = model(*batch[:2]).float().cpu().numpy()
        targets = batch[2].cpu().numpy()
        for column, position in enumerate(group):
            length = len(pairs[position][1]) + 1
            yield position, contexts[:length, column], targets[:length, column]
        done += len(group)
        progress.update(stage, done, len(pairs), "pairs")


@torch.no_grad()
def mean_loss(model: Translator, pairs: Pairs) -> float:
    """Mean negative log-likelihood (nats per target word, including end marks)."""
    device, total, words = model.output.weight.device, 0.0, 0
    for group in by_length([source for source, _ in pairs], _READ):
        batch = teacher_forced([pairs[p][0] for p in group], [pairs[p][1] for p in group], device)
        total += float(_summed_loss(model, batch))
        words += int((batch[2] != _IGNORED).sum())
    return total / words


def _summed_loss(model: Translator, batch: Batch) -> torch.Tensor:
    source, inputs, targets = batch
    real = targets != _IGNORED
    logits = model.output(model(source, inputs)[real])
    return F.cross_entropy(logits.float(), targets[real], reduction="sum")


def _train(
    size: Size, name: str, types: dict[str, list[str]], training: Pairs, validation: Pairs, folder: Path, device: str,
    seed: int, progress: Progress,
) -> None:  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        shape = {field: getattr(size, field) for field in _SHAPE}
        model = Translator(len(types["source"]), len(types["target"]), **shape).to(device)
    per_epoch, batches = _batches(training, len(types["source"]), size, seed, device)
    steps = size.epochs * per_epoch
    words = sum(len(target) + 1 for _, target in training) / per_epoch

    def loss(module: nn.Module, batch: Batch) -> torch.Tensor:
        # divided by the mean batch size, not this one's: a group of one long sentence must not weigh a full step
        return _summed_loss(model, batch) / words

    plan = Plan(
        steps=steps, schedule=warmup_cosine(steps, size.warmup, floor=0.02), clip=size.clip,
        autocast=fast_precision(device), seed=seed, tokens_per_step=round(words), evaluate_every=per_epoch,
        stage=f"training the translator {name}",
    )  # fmt: skip
    checkpoint = folder / "training.pt"
    history = train(
        model, loss, batches, torch.optim.Adam(model.parameters(), lr=size.learning_rate, fused=True), plan,
        evaluate=lambda _: mean_loss(model, validation), checkpoint=checkpoint, progress=progress,
    )  # fmt: skip
    made = {
        "size": name,
        "pairs": len(training),
        "words_per_epoch": round(words * per_epoch),
        "validation_perplexity": [[step // per_epoch, math.exp(value)] for step, value in history.evaluations],
        **record(history, device, plan.autocast),
    }
    save(folder, model, asdict(size), made, source_types=types["source"], target_types=types["target"])
    checkpoint.unlink(missing_ok=True)


def _batches(pairs: Pairs, source_words: int, size: Size, seed: int, device: str) -> tuple[int, Callable[[int], Batch]]:
    """Steps per epoch, and the batch of a step, a function of the step alone. Every epoch has other batches."""
    sources = [source for source, _ in pairs]
    once = np.bincount(np.concatenate([np.asarray(s, np.int64) for s in sources]), minlength=source_words) == 1
    per_epoch = len(by_length(sources, size.batch))
    epoch_of: dict[int, list[list[int]]] = {}

    def cut(epoch: int) -> list[list[int]]:
        rng = np.random.default_rng([seed, epoch])
        groups = by_length(sources, size.batch, rng.permutation(len(pairs)).tolist())
        return [groups[number] for number in rng.permutation(len(groups))]

    def batch(step: int) -> Batch:
        epoch, number = divmod(step, per_epoch)
        if epoch not in epoch_of:
            epoch_of.clear()
            epoch_of[epoch] = cut(epoch)
        group = epoch_of[epoch][number]
        source, inputs, targets = teacher_forced([pairs[p][0] for p in group], [pairs[p][1] for p in group], "cpu")
        hidden = np.random.default_rng([seed, step, 1]).random(source.shape) < size.unknown
        source[torch.from_numpy(once[source.numpy()] & hidden)] = UNKNOWN
        return source.to(device), inputs.to(device), targets.to(device)

    return per_epoch, batch


def _joined(state: torch.Tensor) -> torch.Tensor:
    """[2 * layers, b, d / 2] -> [layers, b, d], concatenating the directions of each layer."""
    layers, batch, half = state.shape
    return state.view(layers // 2, 2, batch, half).transpose(1, 2).reshape(layers // 2, batch, 2 * half)


def _hash(pairs: Pairs) -> str:
    return digest([[list(source), list(target)] for source, target in pairs])
