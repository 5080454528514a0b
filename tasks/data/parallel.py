"""Parallel text: sentence pairs per split."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from harness.common.cache import Cache
from harness.common.documents import content_hash
from harness.common.sources import built_by
from tasks.data.text import Split

Pair = tuple[str, str]  # a sentence and its translation


class ParallelSource(ABC):
    """Pairs per split. `source` and `target` are language codes."""

    name: str
    source: str
    target: str

    @abstractmethod
    def fingerprint(self, split: Split) -> Mapping[str, Any]:
        """Everything that determines the split's pairs, JSON-able and found without reading them."""

    @abstractmethod
    def pairs(self, split: Split) -> list[Pair]:
        """The split's pairs in a fixed order. Raises `RequestError` when they are missing or unreadable."""

    def identity(self, split: Split) -> dict[str, Any]:
        """The fingerprint, and the code that reads or makes the pairs."""
        return {**self.fingerprint(split), "code": built_by(type(self))}


def pairs_hash(source: ParallelSource, split: Split, cache: Cache) -> str:
    """SHA-256 (20 hex digits) of a split's pairs, cached under its `identity`."""
    key = {**source.identity(split), "split": split}
    return str(
        cache.value("pairs-hash", key, lambda: content_hash(side for pair in source.pairs(split) for side in pair))
    )
