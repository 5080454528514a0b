"""Documents cut into passages of a fixed number of words, stored as spans of one file, so overlaps take no space."""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from harness.common.cache import Cache
from harness.common.documents import word_pattern
from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.common.sequences import ReadSequence
from tasks.data.text import Source, split_hash

_WORD = re.compile(word_pattern(r"\s"))


class Passages(ReadSequence[str]):
    """Passages by id, read from a memory-mapped file on access. `hash` is of the text and their positions in it."""

    def __init__(self, folder: Path) -> None:
        facts = json.loads((folder / "facts.json").read_text())
        self.hash: str = facts["hash"]
        self._text = np.memmap(folder / "text.bin", np.uint8, "r")
        self._spans = np.load(folder / "spans.npy", mmap_mode="r")

    def __len__(self) -> int:
        return len(self._spans)

    def item(self, number: int) -> str:
        begin, end = self._spans[number]
        return bytes(self._text[begin:end]).decode()


def passages(
    sources: Sequence[Source], cache: Cache, *, words: int = 100, stride: int | None = None,
    progress: Progress | None = None,
) -> Passages:  # fmt: skip
    """All passages of the sources' train splits: one of `words` words every `stride` words (at most `words`; default:
    without overlap). A document's last passage may be shorter.

    Raises `RequestError` when there is no passage.
    """
    stride = stride or words
    key = {"texts": [split_hash(source, "train", cache) for source in sources], "words": words, "stride": stride}

    def build(folder: Path) -> None:
        documents = (text for source in sources for text in source.documents("train"))
        _write(folder, documents, words, stride, progress or Progress())

    return Passages(cache.build("passages", key, build))


def spans(text: str, words: int, stride: int) -> Iterator[tuple[int, int]]:
    """Character spans of the passages of one document; they cover it."""
    found = [(match.start(), match.end()) for match in _WORD.finditer(text)]
    for first in range(0, len(found), stride):
        last = min(first + words, len(found)) - 1
        yield found[first][0], found[last][1]
        if last == len(found) - 1:
            return


def _write(folder: Path, documents: Iterable[str], words: int, stride: int, progress: Progress) -> None:
    places = array("q")  # alternating begin and end of each passage: a whole Wikipedia has tens of millions
    state = hashlib.sha256()
    at = 0
    with open(folder / "text.bin", "wb") as file:
        for number, document in enumerate(documents, 1):
            encoded = document.encode()
            # spans are in bytes; for single-byte characters these are the text's positions
            offsets = None if len(encoded) == len(document) else _byte_offsets(document)
            for begin, end in spans(document, words, stride):
                places.extend((at + begin, at + end) if offsets is None else (at + offsets[begin], at + offsets[end]))
            file.write(encoded)
            state.update(encoded)
            at += len(encoded)
            progress.update("passages", number, None, "documents", f"{len(places) // 2:,} passages")
    if not places:
        raise RequestError("the knowledge base has no passage; its documents are empty")
    np.save(folder / "spans.npy", np.frombuffer(places, np.int64).reshape(-1, 2))
    state.update(places)
    (folder / "facts.json").write_text(json.dumps({"hash": state.hexdigest()[:20]}))


def _byte_offsets(text: str) -> list[int]:
    sizes = np.fromiter((len(character.encode()) for character in text), np.int64, len(text))
    return [0, *np.cumsum(sizes).tolist()]
