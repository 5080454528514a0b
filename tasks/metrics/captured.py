"""Sequences that a retrieval method predicted without a search (Alon et al., 2022, Table 2 and Figure 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.contracts import Streams, TokenScores


@dataclass(frozen=True, slots=True)
class Captured:
    """Consecutive tokens of one stream, all without a search. ids: int64. log_p: mean natural log of their probability
    under the retrieved entries."""

    ids: tuple[int, ...]
    log_p: float


def likeliest(streams: Streams, answers: Sequence[TokenScores], length: int) -> list[Captured]:
    """Sequences of `length` tokens without a search, each token with a probability above 0, the likeliest first. Of
    overlapping or equal sequences only the likeliest is kept. A place that is dropped because it overlaps with a
    likelier one does not remove equal sequences elsewhere. The answers have the series `searched` and `p_auto`."""
    found: list[tuple[float, int, int, tuple[int, ...]]] = []
    for number, (stream, answer) in enumerate(zip(streams, answers, strict=True)):
        with np.errstate(divide="ignore"):
            log_p = np.log(np.asarray(answer.series["p_auto"], np.float64))
        bad = np.asarray(answer.series["searched"], bool) | ~np.isfinite(log_p)
        if len(bad) < length:
            continue
        worse, total = (
            np.concatenate([[0.0], np.cumsum(values)]) for values in (bad, np.where(bad, 0.0, log_p))
        )  # fmt: skip
        starts = np.flatnonzero(worse[length:] == worse[:-length])
        for start in starts.tolist():
            ids = tuple(stream[1 + start : 1 + start + length].tolist())
            mean = float(total[start + length] - total[start]) / length
            found.append((-mean, number, start, ids))
    taken: dict[int, list[int]] = {}
    best: dict[tuple[int, ...], float] = {}
    for mean, number, start, ids in sorted(found, key=lambda one: (one[0], one[3])):
        before = taken.setdefault(number, [])
        if all(abs(start - other) >= length for other in before):
            before.append(start)
            best.setdefault(ids, -mean)
    return [Captured(ids, mean) for ids, mean in best.items()]


def longest(streams: Streams, answers: Sequence[TokenScores]) -> tuple[int, ...]:
    """The ids of the longest sequence without a search, each with a probability above 0; ties: the first."""
    found: tuple[int, ...] = ()
    for stream, answer in zip(streams, answers, strict=True):
        free = ~np.asarray(answer.series["searched"], bool) & (np.asarray(answer.series["p_auto"]) > 0)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], free, [False]]).astype(np.int8)))
        for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            if end - start > len(found):
                found = tuple(stream[1 + start : 1 + end].tolist())
    return found


def occurs(ids: Sequence[int], streams: Streams) -> bool:
    """Whether the ids occur contiguously in one of the streams."""
    wanted = np.asarray(ids, np.int64).tobytes()
    return any(_aligned(np.ascontiguousarray(stream, np.int64).tobytes(), wanted) for stream in streams)


def _aligned(text: bytes, wanted: bytes) -> bool:
    """Whether `wanted` occurs in `text` at a multiple of eight bytes."""
    place = text.find(wanted)
    while place >= 0 and place % 8:
        place = text.find(wanted, place + 1)
    return place >= 0
