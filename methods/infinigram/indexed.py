"""The index of a task's reference text, built once and opened by all its users."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.common.files import arrays_digest, digest
from harness.contracts import Artifacts
from methods.infinigram.build import build_index
from methods.infinigram.engine import Engine, open_index
from methods.infinigram.layout import verify

if TYPE_CHECKING:
    from numpy.typing import NDArray

ARTIFACT = "infinigram-index"


def streams_hash(streams: Sequence[NDArray[np.int64]]) -> str:
    """Hash of the ids and lengths of streams."""
    return digest([arrays_digest(stream) for stream in streams])


def index_reference(
    artifacts: Artifacts, reference: Sequence[NDArray[np.int64]], vocabulary_size: int, tokenizer_hash: str | None
) -> dict[str, Any]:
    """Build the artifact `infinigram-index` and return its key. Streams are indexed with their first tokens."""
    key = {"reference": streams_hash(reference), "vocabulary_size": vocabulary_size, "tokenizer": tokenizer_hash}

    def fill(folder: Path) -> None:
        for left in folder.iterdir():  # files of an interrupted build
            shutil.rmtree(left)
        build_index(reference, folder / "index", vocabulary_size=vocabulary_size, tokenizer_hash=tokenizer_hash)
        verify(folder / "index")

    artifacts.build(ARTIFACT, key, fill)
    return key


def opened_reference(artifacts: Artifacts, tokenizer_hash: str | None) -> Engine:
    """An engine over the artifact `infinigram-index`."""
    return open_index(artifacts.path(ARTIFACT) / "index", tokenizer_hash=tokenizer_hash)
