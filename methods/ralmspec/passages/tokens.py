"""Passages as token ids, truncated to what is prepended to a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.common.progress import Progress
from harness.contracts import Artifacts, GenerationModel

CHUNK = 1024  # passages tokenised at once


class Passages:
    """The first `longest` token ids of each passage."""

    def __init__(self, folder: Path) -> None:
        self.ids = np.load(folder / "ids.npy", mmap_mode="r")
        self.offsets = np.load(folder / "offsets.npy")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def tokens(self, passage: int, most: int | None = None) -> list[int]:
        """The first `most` ids of one passage; empty for -1 (no passage)."""
        if passage < 0:
            return []
        ids: list[int] = self.ids[self.offsets[passage] : self.offsets[passage + 1]][:most].tolist()
        return ids


def build_passages(
    model: GenerationModel, texts: Sequence[str], text_hash: str, longest: int, artifacts: Artifacts
) -> None:
    """Build the artifact `passage-tokens`."""

    def build(folder: Path) -> None:
        progress = Progress()
        parts: list[NDArray[np.int32]] = []
        lengths = [0]
        for start in range(0, len(texts), CHUNK):
            encoded = model.tokenizer(list(texts[start : start + CHUNK]), add_special_tokens=False)["input_ids"]
            cut = [ids[:longest] for ids in encoded]
            parts.append(np.asarray([token for ids in cut for token in ids], np.int32))
            lengths += map(len, cut)
            progress.update("tokenizing passages", start + len(cut), len(texts), "passages")
        np.save(folder / "ids.npy", np.concatenate(parts))
        np.save(folder / "offsets.npy", np.cumsum(lengths, dtype=np.int64))

    artifacts.build("passage-tokens", {"passages": text_hash, "model": model.hash, "longest": longest}, build)
