"""Sources of text: one interface for Python's own documentation, local folders and the Hugging Face hub.

A source yields documents per split. What is made from them (token ids, a trained model) is cached under the split's
content hash, so a process that finds everything cached opens no text.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from harness.common.cache import Cache
from harness.common.documents import content_hash
from harness.common.errors import RequestError
from harness.common.sources import built_by

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


class EmptySplitError(RequestError):
    """A split that exists and holds no document, as of a small collection."""


class Source(ABC):
    """Documents per split, with a name for messages and rows."""

    name: str

    @abstractmethod
    def fingerprint(self, split: Split) -> Mapping[str, Any]:
        """Everything that determines the split's documents, JSON-able and found without reading them (paths, sizes,
        versions).

        Raises `RequestError` with the places searched when the split is not found.
        """

    @abstractmethod
    def documents(self, split: Split) -> Sequence[str]:
        """The split's documents in a fixed order. Raises `RequestError` when they are missing or unreadable; a folder's
        raises `EmptySplitError` where a split is there and empty."""

    def identity(self, split: Split) -> dict[str, Any]:
        """The fingerprint, and the code that reads the documents."""
        return {**self.fingerprint(split), "code": built_by(type(self))}


def split_hash(source: Source, split: Split, cache: Cache) -> str:
    """`content_hash` of a split, cached under its fingerprint and the code that reads it."""
    key = {**source.identity(split), "split": split}
    return str(cache.value("split-hash", key, lambda: content_hash(source.documents(split))))


def split_of(identity: str) -> Split:
    """The split of a document in a collection without splits: 80% train, 10% validation, 10% test, by hash."""
    share = hashlib.sha256(f"0:{identity}".encode()).digest()[0] / 256
    return "train" if share < 0.8 else "validation" if share < 0.9 else "test"
