"""The contexts that a screen learns from: of text that the model reads, and of text that it writes itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from harness.common.progress import Progress
from harness.contracts import GenerationModel, Streams

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from methods.decoding.engine.session import Engine

WINDOW = 256  # tokens of a piece of text that is read
BEGINNING, WRITTEN = 32, 96  # tokens that are read before the model writes, and tokens that it writes
TOGETHER = 16  # pieces that the model continues at a time

Pairs = tuple["NDArray[np.float32]", "NDArray[np.int64]"]


def training_contexts(
    engine: Engine, model: GenerationModel, reference: Streams, read: int, written: int, seed: int
) -> Pairs:  # fmt: skip
    """States float32 [n, d] and the next words int64 [n]: about `read` of pieces of reference text, then about
    `written` of greedy continuations of other pieces. Every piece begins with the model's start token."""
    rng, progress = np.random.default_rng(seed), Progress()
    states: list[NDArray[Any]] = []
    targets: list[list[int]] = []
    with torch.inference_mode():
        done = 0
        for piece in _pieces(reference, WINDOW, -(-read // WINDOW), rng):
            tokens = [model.start_id, *piece]
            session = engine.start([tokens], [1])
            states.append(session.advance([tokens])[:-1].float().numpy())
            targets.append(tokens[1:])
            done += len(piece)
            progress.update("hidden states of reference text", done, read, "tokens")
        done, begun = 0, _pieces(reference, BEGINNING, -(-written // WRITTEN), rng)
        for start in range(0, len(begun), TOGETHER):
            prompts = [[model.start_id, *piece] for piece in begun[start : start + TOGETHER]]
            for own, words in _continued(engine, prompts):
                states.append(own)
                targets.append(words)
            done += WRITTEN * len(prompts)
            progress.update("hidden states of the model's own text", done, written, "tokens")
    return np.concatenate(states), np.concatenate([np.asarray(words, np.int64) for words in targets])


def _pieces(reference: Streams, size: int, count: int, rng: np.random.Generator) -> list[list[int]]:
    """`count` pieces of `size` tokens at random places; fewer where the text is shorter."""
    starts = [
        (number, place) for number, stream in enumerate(reference) for place in range(0, len(stream) - size, size)
    ]
    chosen = rng.permutation(len(starts))[:count]
    return [reference[number][place : place + size].tolist() for number, place in (starts[n] for n in chosen)]


def _continued(engine: Engine, prompts: Sequence[list[int]]) -> list[tuple[NDArray[Any], list[int]]]:
    """Of each prompt (all of the same length) the states [`WRITTEN`, d] from its last token on, and the words."""
    session = engine.start(prompts, [WRITTEN] * len(prompts))
    states, words, tokens = [], [], list(session.first)
    for _ in range(WRITTEN):
        states.append(session.advance(tokens, last=True))
        words.append(session.logits(states[-1]).argmax(-1))
        tokens = [[word] for word in words[-1].tolist()]
    by_row = torch.stack(states, 1).float().numpy()
    return list(zip(by_row, torch.stack(words, 1).tolist(), strict=True))
