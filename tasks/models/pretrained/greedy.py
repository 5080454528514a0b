"""Cached greedy outputs by `transformers.generate`, for tasks that need a model's outputs before any method runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from harness.common.cache import Cache
from harness.common.files import digest
from harness.common.generate import generate, maximum_new_tokens
from tasks.models.pretrained.generation import TextGenerator

_BATCH = 32


def greedy_outputs(
    generator: TextGenerator, sources: Sequence[Sequence[int]], limit: int, cache: Cache, progress: Any
) -> list[list[int]]:
    """Ids of the model's output for each source, at most `limit` ids and at most what its window allows.

    Greedy search is that of the decoding methods, with the constraints of the model's generation configuration that
    they honour. Sources must fit the window.
    """
    key = {
        "model": generator.hash, "sources": digest([list(source) for source in sources]), "limit": limit,
        "device": generator.device,
    }  # fmt: skip

    def build(folder: Path) -> None:
        outputs: list[list[int]] = [[] for _ in sources]
        done = 0
        for numbers, new in _batches(generator, sources, limit):
            if new > 0:
                made = generate(generator, [sources[number] for number in numbers], new, num_beams=1)
                for number, ids in zip(numbers, made, strict=True):
                    outputs[number] = ids
            done += len(numbers)
            progress.update("greedy outputs, to sort sentences by", done, len(sources), "sentences")
        (folder / "outputs.json").write_text(json.dumps(outputs))

    folder = cache.build("greedy-outputs", key, build)
    outputs: list[list[int]] = json.loads((folder / "outputs.json").read_text())
    return outputs


def _batches(
    generator: TextGenerator, sources: Sequence[Sequence[int]], limit: int
) -> Iterator[tuple[list[int], int]]:  # fmt: skip
    """Numbers of sources of similar length with the same maximum of new tokens, and that maximum."""

    def new_tokens(number: int) -> int:
        return maximum_new_tokens(generator, sources[number], limit)

    order = sorted(range(len(sources)), key=lambda number: (new_tokens(number), len(sources[number])))
    for new, group in groupby(order, new_tokens):
        numbers = list(group)
        for start in range(0, len(numbers), _BATCH):
            yield numbers[start : start + _BATCH], new
