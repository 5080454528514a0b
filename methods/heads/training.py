"""The contexts that a screen learns from: of text that the model reads, and of text that it writes itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.contracts import GenerationModel, Streams
from methods.decoding.engine.session import Engine

WINDOW = 256  # most tokens of a piece of text that is read
BEGINNING, WRITTEN = 32, 96  # most tokens that are read before the model writes, and that it writes
TOGETHER = 16  # pieces that the model continues at a time

Pairs = tuple["NDArray[np.float32]", "NDArray[np.int64]"]


def training_contexts(
    engine: Engine, model: GenerationModel, reference: Streams, read: int, written: int, seed: int
) -> Pairs:  # fmt: skip
    """States float32 [n, d] and the next words int64 [n]: `read` of reference text, then at most `written` of what the
    model writes greedily after beginnings drawn from the same text. Every piece follows the model's start token.

    Raises `RequestError` for a text without a piece of that length.
    """
    rng, progress = np.random.default_rng(seed), Progress()
    size, begin = min(WINDOW, model.window), min(BEGINNING, model.window // 4)
    length = min(WRITTEN, model.window - begin)
    pieces, beginnings = (
        _pieces(reference, tokens, -(-wanted // each), rng)
        for tokens, wanted, each in ((size, read, size), (begin, written, length))
    )
    if not pieces:
        raise RequestError(f"the reference text has no document of {size} tokens for a screen to learn from: give more")
    states: list[NDArray[Any]] = []
    targets: list[list[int]] = []
    with torch.inference_mode():
        for piece in pieces:
            session = engine.start([[model.start_id]], [size])
            states.append(session.advance([[model.start_id, *piece[:-1]]]).float().numpy())
            targets.append(piece)
            progress.update("hidden states of reference text", len(states) * size, read, "tokens")
        for start in range(0, len(beginnings), TOGETHER):
            prompts = [[model.start_id, *piece] for piece in beginnings[start : start + TOGETHER]]
            for own, words in _continued(engine, prompts, length):
                count = next((place + 1 for place, word in enumerate(words) if word in model.eos_ids), length)
                states.append(own[:count])
                targets.append(words[:count])
            progress.update("hidden states of the model's own text", (start + TOGETHER) * length, written, "tokens")
    return np.concatenate(states), np.concatenate([np.asarray(words, np.int64) for words in targets])


def _pieces(reference: Streams, size: int, count: int, rng: np.random.Generator) -> list[list[int]]:
    """`count` pieces of `size` tokens at random places; fewer where the text is shorter."""
    starts = [
        (number, place) for number, stream in enumerate(reference) for place in range(0, len(stream) - size + 1, size)
    ]
    chosen = rng.permutation(len(starts))[:count]
    return [reference[number][place : place + size].tolist() for number, place in (starts[n] for n in chosen)]


def _continued(engine: Engine, prompts: Sequence[list[int]], length: int) -> list[tuple[NDArray[Any], list[int]]]:
    """Of each prompt (all as long) the states [length, d] from its last token on, and the words after them."""
    session = engine.start(prompts, [length] * len(prompts))
    states, words, tokens = [], [], list(session.first)
    for _ in range(length):
        states.append(session.advance(tokens, last=True))
        words.append(session.logits(states[-1]).argmax(-1))
        tokens = [[word] for word in words[-1].tolist()]
    by_row = torch.stack(states, 1).float().numpy()
    return list(zip(by_row, torch.stack(words, 1).tolist(), strict=True))
