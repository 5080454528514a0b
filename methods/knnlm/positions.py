"""The positions of a text: their queries, the LM's probabilities, and which of them are searched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.common.files import digest
from harness.common.phases import NoPhases
from harness.contracts import KeyKind, LanguageModel, Phases, Shared, Streams
from methods.knnlm.datastore import corpus_hash

STATISTICS = ("max_log_prob", "entropy")


@dataclass(frozen=True, slots=True)
class Positions:
    """Consecutive predicted tokens of one stream, on the CPU.

    start: index of the first among the stream's predicted tokens (0 is token 1 of the stream). queries float32 [t, d],
    targets int64 [t], log_prob float32 [t] of the LM. max_log_prob, entropy: float32 [t] (nats) of the LM's
    distribution, None unless asked for.
    """

    start: int
    queries: NDArray[np.float32]
    targets: NDArray[np.int64]
    log_prob: NDArray[np.float32]
    max_log_prob: NDArray[np.float32] | None = None
    entropy: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, part: slice) -> Positions:
        """A contiguous part."""
        names = ("queries", "targets", "log_prob", "max_log_prob", "entropy")
        arrays: dict[str, Any] = {name: getattr(self, name) for name in names}
        cut: dict[str, Any] = {name: None if array is None else array[part] for name, array in arrays.items()}
        return Positions(self.start + part.indices(len(self))[0], **cut)


def read(
    model: LanguageModel, stream: NDArray[np.int64], key: KeyKind, phases: Phases, statistics: bool = False
) -> Iterator[Positions]:
    """The positions of a stream, block by block. The model's work is in the phase `lm`. statistics: include entropy and
    largest log-probability."""
    blocks = iter(model.encode(stream, key=key, statistics=statistics))
    while True:
        with phases("lm"):  # the model works when the next block is asked for
            block = next(blocks, None)
            if block is None:
                return
            if block.keys is None:
                raise ValueError(f"{model.name} was asked for keys and gave none")
            positions = Positions(
                block.start - 1,
                block.keys.float().cpu().numpy(),
                block.targets.cpu().numpy(),
                block.log_prob.float().cpu().numpy(),
                *(None if one is None else one.float().cpu().numpy() for one in (block.max_log_prob, block.entropy)),
            )
        yield positions


def read_shared(
    model: LanguageModel, streams: Streams, key: KeyKind, shared: Shared, statistics: bool = False
) -> list[Positions]:
    """One `Positions` per stream, as from `read`, computed once for all cells of a quality pass."""
    empty = {"queries": np.empty((0, model.key_dimension(key)), np.float32), "log_prob": np.empty(0, np.float32)}
    if statistics:
        empty |= {name: np.empty(0, np.float32) for name in STATISTICS}

    def compute() -> dict[str, NDArray[np.float32]]:
        blocks = [block for stream in streams for block in read(model, stream, key, NoPhases(), statistics)]
        return {
            name: np.concatenate([none, *(getattr(block, name) for block in blocks)]) for name, none in empty.items()
        }

    wanted: dict[str, Any] = {"model": model.hash, "key": key, "text": corpus_hash(streams)}
    if statistics:
        wanted["statistics"] = True
    arrays = shared.arrays("positions", wanted, compute)
    return [
        Positions(start=0, targets=stream[1:], **{name: arrays[name][low:high] for name in empty})
        for stream, (low, high) in zip(streams, spans(streams), strict=True)
    ]


def full_batches(
    parts: Iterable[tuple[NDArray[np.intp], NDArray[np.float32]]], size: int
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.float32]]]:
    """(places [n], queries [n, d]) in the same order, in batches of `size`; the last may be smaller. Parts are read
    when they are needed, so at most one part and fewer than `size` other queries are held."""
    held: list[tuple[NDArray[np.intp], NDArray[np.float32]]] = []
    waiting = 0
    for part in parts:
        held.append(part)
        waiting += len(part[0])
        if waiting < size:
            continue
        places, queries = (np.concatenate(columns) for columns in zip(*held, strict=True))
        whole = waiting - waiting % size
        held, waiting = [(places[whole:].copy(), queries[whole:].copy())], waiting - whole
        for start in range(0, whole, size):
            yield places[start : start + size], queries[start : start + size]
    if waiting:
        places, queries = (np.concatenate(columns) for columns in zip(*held, strict=True))
        yield places, queries


def spans(streams: Streams) -> list[tuple[int, int]]:
    """(low, high) of each stream's predicted tokens in the concatenation over all streams."""
    edges = np.cumsum([0, *(max(len(stream) - 1, 0) for stream in streams)]).tolist()
    return list(pairwise(edges))


def searched(stream: NDArray[np.int64], foss: float, seed: int) -> NDArray[np.bool_]:
    """Mask [T - 1] of the predicted tokens that are searched: all except round(foss x tokens) drawn at random.

    The order in which tokens are dropped depends only on the seed and on the stream without its last token. So all
    processes draw the same tokens, a higher FoSS drops all tokens that a lower one drops, and whether the last token is
    searched does not depend on what it is.
    """
    tokens = max(len(stream) - 1, 0)
    rng = np.random.default_rng(int(digest([seed, corpus_hash([stream[:-1]])]), 16))
    mask = np.ones(tokens, np.bool_)
    mask[rng.permutation(tokens)[: int(foss * tokens + 0.5)]] = False
    return mask
