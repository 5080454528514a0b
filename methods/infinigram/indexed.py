"""The index of a task's reference text, built once and opened by all its users."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from harness.common.files import arrays_digest, digest
from harness.contracts import Artifacts, Streams
from methods.infinigram.build import build_index
from methods.infinigram.engine import Engine, open_index
from methods.infinigram.layout import verify

ARTIFACT = "infinigram-index"


def streams_hash(streams: Streams) -> str:
    """Hash of the ids and lengths of streams."""
    return digest([arrays_digest(stream) for stream in streams])


def index_reference(
    artifacts: Artifacts, reference: Streams, vocabulary_size: int, tokenizer_hash: str | None
) -> dict[str, Any]:
    """Build the artifact `infinigram-index` and return its key. Streams are indexed with their first tokens."""
    key = {"reference": streams_hash(reference), "vocabulary_size": vocabulary_size, "tokenizer": tokenizer_hash}

    def fill(folder: Path) -> None:
        for left in folder.glob("index*"):  # of an interrupted build
            shutil.rmtree(left, ignore_errors=True)
        build_index(
            reference, folder / "index", vocabulary_size=vocabulary_size, tokenizer_hash=tokenizer_hash,
            parts=artifacts.parts,
        )  # fmt: skip
        verify(folder / "index")

    artifacts.build(ARTIFACT, key, fill)
    return key


def opened_reference(artifacts: Artifacts, tokenizer_hash: str | None) -> Engine:
    """An engine over the artifact `infinigram-index`."""
    return open_index(artifacts.path(ARTIFACT) / "index", tokenizer_hash=tokenizer_hash)
