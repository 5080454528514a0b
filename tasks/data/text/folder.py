"""Text in local folders: a data set by its name under a data root (`HARNESS_DATA`, several separated by `:`; the first
that has it wins), in the layout of docs/data.md. A single file is a collection, split by document here (80/10/10); text
without level-1 headings is one document.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.common.errors import RequestError
from tasks.data.files import find_data
from tasks.data.text import EmptySplitError, Source, Split, split_of
from tasks.data.text.articles import articles

_STEMS: dict[Split, tuple[str, ...]] = {
    "train": ("train",),
    "validation": ("valid", "validation", "dev"),
    "test": ("test",),
}
_ENDINGS = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz")
_KNOWN = (*_ENDINGS, ".md")


class Folder(Source):
    """A data set found by name under the data roots. Raises `RequestError` naming the paths tried."""

    def __init__(self, dataset: str, roots: Sequence[Path]) -> None:
        if not dataset:
            raise RequestError("source folder needs the name of a data set; give --set task.dataset=wikitext-2")
        self.name = dataset
        self.path = find_data(
            f"data set {dataset!r}", [dataset], roots, folder=f"{dataset}/", otherwise=", or use --set task.source=hub"
        )

    def fingerprint(self, split: Split) -> Mapping[str, Any]:
        file = self._file(split)
        stat = file.stat()
        stamp = {"size": stat.st_size, "changed": stat.st_mtime_ns}
        return {"source": "folder", "file": str(file.resolve()), **stamp}

    def documents(self, split: Split) -> Sequence[str]:
        file = self._file(split)
        found = list(_read(file))
        if self.path.is_file():
            found = [text for text in found if split_of(text) == split]
        if not found:
            raise EmptySplitError(f"{file} holds no document for the split {split}")
        return found

    def _file(self, split: Split) -> Path:
        if self.path.is_file():
            return self.path
        stems = [f"{prefix}{stem}" for stem in _STEMS[split] for prefix in ("", f"{self.path.name}.")]
        tried = [self.path / f"{stem}{ending}" for stem in stems for ending in _ENDINGS]
        for file in tried:
            if file.is_file():
                return file
        names = ", ".join(file.name for file in tried)
        raise RequestError(f"the data set folder {self.path} has no {split} split; expected one of {names}")


def _read(file: Path) -> Iterator[str]:
    """The documents of a file, whose ending says what it is, in any case. A byte order mark is skipped.

    Raises `RequestError` for an ending of another kind, and, with file and line, for what is not an object with text,
    and for half of a surrogate pair, which no tokenizer reads.
    """
    name = file.name.lower()
    if not name.endswith(_KNOWN):
        raise RequestError(f"{file} is neither text nor JSON lines by its name; endings known: {', '.join(_KNOWN)}")
    try:
        with (gzip.open if name.endswith(".gz") else open)(file, "rt", encoding="utf-8-sig") as lines:
            if name.removesuffix(".gz").endswith(".jsonl"):
                yield from _texts(file, lines)
            else:
                yield from articles(line.removesuffix("\n") for line in lines)
    except (OSError, EOFError, ValueError, zlib.error) as error:  # damaged gzip, not UTF-8, no permission
        raise RequestError(f"{file} cannot be read as text: {error}; fetch it again") from error


def _texts(file: Path, lines: Iterable[str]) -> Iterator[str]:
    """The texts of JSON lines."""
    for number, line in enumerate(lines, 1):
        try:
            text = json.loads(line)["text"] if line.strip() else ""
            if not isinstance(text, str):
                raise TypeError("`text` is not a string")
            text.encode()
        except KeyError:
            raise RequestError(f"{file}:{number} has no field `text`") from None
        except (ValueError, TypeError) as error:
            raise RequestError(f"{file}:{number} cannot be read as an object with `text`: {error}") from error
        if text.strip():
            yield text.rstrip() + "\n"
