"""Word-level LSTM language models (Zaremba et al., 2014), trained here: the models of L2S's next-word experiments.

A model folder holds `config.json`, `vocabulary.json`, `model.safetensors` and `training.json` (the record, with the
curve). A softmax task uses only the output layer's weights and the hidden states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.files import arrays_digest
from harness.common.progress import Progress
from harness.common.training.loop import Plan, record, train, warmup_cosine
from harness.common.training.precision import fast_precision
from tasks.models.folder import load, save
from tasks.models.lstm.recurrence import unrolled

if TYPE_CHECKING:
    from tasks.models.lstm.sizes import Size

State = tuple[torch.Tensor, torch.Tensor]
_STREAMS = 20  # streams read in parallel when hidden states are written
_CHUNK = 200  # words of each stream at a time
_WARMUP = 100  # steps of Adam
_SHAPE = ("width", "layers", "dropout", "tied")  # fields of a size that shape the module


class WordLSTM(nn.Module):
    """Embedding, LSTM, output layer; dropout on everything that is not recurrent."""

    def __init__(self, words: int, *, width: int, layers: int, dropout: float, tied: bool | None = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, layers, dropout=dropout)
        self.output = nn.Linear(width, words)
        self.dropout = nn.Dropout(dropout)
        if tied:
            self.output.weight = self.embedding.weight

    def forward(
        self, words: torch.Tensor, state: State | None = None, precision: torch.dtype | None = None
    ) -> tuple[torch.Tensor, State]:
        """Top hidden states [t, b, d] after each of words int64 [t, b], and the next state.

        precision: of products and hidden states, if not that of the weights; it requires `state`.
        """
        inputs = self.dropout(self.embedding(words))
        if precision is None or state is None:
            hidden, state = self.lstm(inputs, state)
        else:
            hidden, state = unrolled(self.lstm, inputs, state, precision)
        return self.dropout(hidden), state

    def zero_state(self, batch: int) -> torch.Tensor:
        """State before any word: float32 [2, layers, batch, d]."""
        return torch.zeros(2, self.lstm.num_layers, batch, self.lstm.hidden_size, device=self.output.weight.device)


class TruncatedBackpropagation(nn.Module):
    """A model in training with the current state of its streams, a buffer, so that a checkpoint holds it."""

    state: torch.Tensor

    def __init__(self, model: WordLSTM, batch: int) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("state", model.zero_state(batch))


def trained_lstm(
    name: str,
    size: Size,
    types: Sequence[str],
    training: NDArray[Any],
    validation: NDArray[Any],
    cache: Cache,
    *,
    device: str = "cpu",
    seed: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Folder of the model of the size `name`, trained on ids [T] of words `types` unless the cache has it.

    Interrupted training is resumed. Raises `RequestError` for too little text.
    """
    if len(training) < size.batch * (size.bptt + 1) or len(validation) < 2 * _STREAMS:
        raise RequestError(
            f"{len(training)} words, {len(validation)} held out, are too few to train {name}; give more text"
        )
    key = {
        "training": arrays_digest(training), "validation": arrays_digest(validation), "types": list(types),
        "size": size.stated(), "seed": seed,
        "precision": str(fast_precision(device)),
    }  # fmt: skip

    def build(folder: Path) -> None:
        _train(size, name, types, training, validation, folder, device, seed, progress or Progress())

    return cache.build("word-lstm", key, build)


def load_lstm(folder: Path, device: str = "cpu") -> tuple[WordLSTM, list[str]]:
    """The model in eval mode and its vocabulary. Raises `RequestError` when the folder is not such a model."""

    def shaped(size: Any, words: int) -> WordLSTM:
        return WordLSTM(words, **{name: size.get(name) for name in _SHAPE})

    model, [types] = load(folder, "an LSTM", ["vocabulary"], shaped, device)
    return model, types


def side_by_side(ids: NDArray[Any], streams: int) -> torch.Tensor:
    """Ids [T] as int64 [T // streams, streams]: column c is the c-th contiguous piece of the text."""
    length = len(ids) // streams
    pieces = ids[: length * streams].astype(np.int64).reshape(streams, length)
    return torch.from_numpy(np.ascontiguousarray(pieces.T))


@torch.no_grad()
def hidden_states(
    model: WordLSTM, ids: NDArray[Any], streams: int, progress: Progress, stage: str
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]]:
    """Top hidden states of ids [T] read as `streams` pieces of n + 1 = T // streams words.

    Yields (rows int64 [streams, t], states float32 [streams, t, d], next words int64 [streams, t]). rows: numbers of
    the states among all streams * n, piece after piece.
    """
    columns = side_by_side(ids, streams).to(model.output.weight.device)
    n = len(columns) - 1
    state: State | None = None
    for start in range(0, n, _CHUNK):
        stop = min(start + _CHUNK, n)
        hidden, state = model(columns[start:stop], state)
        rows = n * np.arange(streams)[:, None] + np.arange(start, stop)
        yield rows, hidden.transpose(0, 1).float().cpu().numpy(), columns[start + 1 : stop + 1].T.cpu().numpy()
        progress.update(stage, stop * streams, n * streams, "words")


@torch.no_grad()
def mean_loss(model: WordLSTM, ids: NDArray[Any], streams: int) -> float:
    """Mean negative log-likelihood (nats per word) of ids [T], read as `streams` pieces with one state each."""
    columns = side_by_side(ids, streams).to(model.output.weight.device)
    total, state = 0.0, None
    for start in range(0, len(columns) - 1, _CHUNK):
        targets = columns[start + 1 : start + _CHUNK + 1]
        hidden, state = model(columns[start : start + len(targets)], state)
        total += float(F.cross_entropy(model.output(hidden).flatten(0, 1), targets.flatten(), reduction="sum"))
    return total / (columns.numel() - columns.shape[1])


def _train(
    size: Size, name: str, types: Sequence[str], training: NDArray[Any], validation: NDArray[Any], folder: Path,
    device: str, seed: int, progress: Progress,
) -> None:  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = WordLSTM(len(types), **{field: getattr(size, field) for field in _SHAPE})
        for parameter in model.parameters():
            nn.init.uniform_(parameter, -size.initial, size.initial)
    module = TruncatedBackpropagation(model.to(device), size.batch)
    columns = side_by_side(training, size.batch).to(device)
    per_epoch = -(-(len(columns) - 1) // size.bptt)
    precision = fast_precision(device)
    recurrence = precision if size.peak and columns.device.type == "cpu" else None
    optimizer, schedule, clip = _optimiser(model, size, per_epoch)

    def batches(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = step % per_epoch * size.bptt
        targets = columns[start + 1 : start + size.bptt + 1]
        if start == 0:  # an epoch begins with an empty state
            module.state.zero_()
        return columns[start : start + len(targets)], targets

    def loss(_: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        inputs, targets = batch
        begin = module.state.clone()  # the graph keeps its input; the buffer is overwritten
        hidden, state = model(inputs, (begin[0], begin[1]), recurrence)
        module.state.copy_(torch.stack(state).detach())
        # with SGD the recurrence stays in float32; most of the work is the output layer
        with torch.autocast(columns.device.type, precision, enabled=precision is not None):
            logits = model.output(hidden)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    def held_out() -> float:
        with torch.autocast(columns.device.type, precision, enabled=recurrence is not None):
            return mean_loss(model, validation, _STREAMS)

    plan = Plan(
        steps=size.epochs * per_epoch, schedule=schedule, clip=clip, seed=seed, evaluate_every=per_epoch,
        tokens_per_step=size.batch * size.bptt, stage=f"training the LSTM {name}",
    )  # fmt: skip
    checkpoint = folder / "training.pt"
    history = train(
        module, loss, batches, optimizer, plan,
        evaluate=lambda _: held_out(), checkpoint=checkpoint, progress=progress,
    )  # fmt: skip
    made = {
        "size": name,
        "train_words": len(training),
        "validation_perplexity": [[step // per_epoch, math.exp(value)] for step, value in history.evaluations],
        **record(history, device, precision),
    }
    save(folder, model, size.stated(), made, vocabulary=types)
    checkpoint.unlink(missing_ok=True)


def _optimiser(
    model: WordLSTM, size: Size, per_epoch: int
) -> tuple[torch.optim.Optimizer, Callable[[int], float], float]:
    """Optimiser, factor of its rate by step, and largest norm of the gradient of the mean loss over words."""
    if size.peak:
        adam = torch.optim.Adam(model.parameters(), lr=size.peak, fused=True)
        return adam, warmup_cosine(size.epochs * per_epoch, _WARMUP, floor=0.02), size.clip
    if size.steady is None or size.decay is None:
        raise RequestError("a size of LSTM needs either `peak` or both `steady` and `decay`")
    steady, decay = size.steady, size.decay
    # the paper's loss is a sum over `bptt` words, ours a mean: rate and clip change by a factor `bptt`
    sgd = torch.optim.SGD(model.parameters(), lr=float(size.bptt))
    return sgd, lambda step: decay ** -max(0, step // per_epoch - steady + 1), size.clip / size.bptt
