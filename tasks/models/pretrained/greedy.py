"""Greedy outputs by `transformers.generate`, kept in the cache: what tasks know of a model before any method runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from harness.files import digest
from harness.measure.artifacts import Cache
from tasks.models.pretrained.generation import TextGenerator

_BATCH = 32


def greedy_outputs(
    generator: TextGenerator, sources: Sequence[Sequence[int]], limit: int, cache: Cache, progress: Any
) -> list[list[int]]:
    """Ids of the model's output for each source, at most `limit` of them and no more than its window has room for.

    As the decoding methods understand greedy search: of the model's generation configuration only suppressed tokens
    count. Sources must fit the window.
    """
    key = {
        "model": generator.hash, "sources": digest([list(source) for source in sources]), "limit": limit,
        "device": generator.device,
    }  # fmt: skip

    def build(folder: Path) -> None:
        outputs: list[list[int]] = [[] for _ in sources]
        done = 0
        for numbers, room in _batches(generator, sources, limit):
            if room > 0:
                made = _generated(generator, [sources[number] for number in numbers], room)
                for number, ids in zip(numbers, made, strict=True):
                    outputs[number] = ids
            done += len(numbers)
            progress.update("greedy outputs, to sort sentences by", done, len(sources), "sentences")
        (folder / "outputs.json").write_text(json.dumps(outputs))

    folder = cache.build("greedy-outputs", key, build)
    outputs: list[list[int]] = json.loads((folder / "outputs.json").read_text())
    return outputs


def until_end(ids: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Ids up to the first end token, with it."""
    stop = next((place + 1 for place, token in enumerate(ids) if token in ends), len(ids))
    return list(ids[:stop])


def _batches(
    generator: TextGenerator, sources: Sequence[Sequence[int]], limit: int
) -> Iterator[tuple[list[int], int]]:  # fmt: skip
    """Numbers of sources of about the same length that have the same room to grow, and that room."""

    def room(number: int) -> int:
        # of a causal model's window the source takes a part; the last token of an output is never fed
        taken = max(len(sources[number]), 1) - 1 if generator.kind == "causal" else 0
        return min(limit, generator.window - taken)

    order = sorted(range(len(sources)), key=lambda number: (room(number), len(sources[number])))
    for space, group in groupby(order, room):
        numbers = list(group)
        for start in range(0, len(numbers), _BATCH):
            yield numbers[start : start + _BATCH], space


def _generated(generator: TextGenerator, sources: Sequence[Sequence[int]], room: int) -> list[list[int]]:
    """Outputs of one padded batch; a causal model's sources are padded on the left, where they do not part source and
    output."""
    causal = generator.kind == "causal"
    rows = [list(source) or [generator.start_id] for source in sources] if causal else [list(s) for s in sources]
    longest = max(map(len, rows))
    pad = generator.eos_ids[0] if generator.eos_ids else 0
    blanks = [longest - len(row) for row in rows]
    ids = [[pad] * n + row if causal else row + [pad] * n for row, n in zip(rows, blanks, strict=True)]
    real = [[1] * len(row) for row in rows]
    mask = [[0] * n + ones if causal else ones + [0] * n for ones, n in zip(real, blanks, strict=True)]
    config = GenerationConfig(
        max_new_tokens=room, do_sample=False, num_beams=1, eos_token_id=list(generator.eos_ids) or None,
        pad_token_id=pad, bos_token_id=generator.start_id if causal else None,
        decoder_start_token_id=None if causal else generator.start_id,
        suppress_tokens=list(generator.suppressed) or None,
    )  # fmt: skip
    module = generator.module
    own, module.generation_config = module.generation_config, config  # else what is None here is filled from it
    try:
        with torch.inference_mode():
            made = module.generate(
                torch.tensor(ids, device=generator.device),
                attention_mask=torch.tensor(mask, device=generator.device),
                generation_config=config,
            ).tolist()
    finally:
        module.generation_config = own
    first = longest if causal else 1
    return [until_end(row[first : first + room], generator.eos_ids) for row in made]
