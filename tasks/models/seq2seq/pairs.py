"""Pairs of texts as ids of a shared subword vocabulary, to train a model on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.common.cache import Cache
from harness.common.progress import Progress
from harness.common.training.pairs import Pair, Pairs

_TOGETHER = 10_000  # pairs tokenized in one call


def encoded_pairs(
    name: str,
    key: Mapping[str, Any],
    texts: Callable[[], list[tuple[str, str]]],
    tokenizer_folder: Path,
    cache: Cache,
    progress: Progress,
) -> Pairs:
    """Ids of pairs of texts, including end tokens, cached under `name` and `key`.

    key: everything that determines the texts and the tokenizer, JSON-able. texts: called if the cache has no such
    pairs.
    """

    def build(folder: Path) -> None:
        from transformers import AutoTokenizer

        tokenizer, lines = AutoTokenizer.from_pretrained(tokenizer_folder), texts()

        def pairs() -> Iterator[Pair]:
            for start in range(0, len(lines), _TOGETHER):
                sides = (
                    tokenizer(list(side))["input_ids"] for side in zip(*lines[start : start + _TOGETHER], strict=True)
                )
                yield from zip(*sides, strict=True)
                progress.update("tokenizing", min(start + _TOGETHER, len(lines)), len(lines), "pairs")

        Pairs.write(folder, pairs())

    return Pairs.open(cache.build(name, key, build))
