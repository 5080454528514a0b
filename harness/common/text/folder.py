"""Text in local folders.

Layout, under each data root in order (`HARNESS_DATA`, several separated by `:`; the first that has the data set wins):

    <root>/<dataset>/train.txt  valid.txt | validation.txt  test.txt     WikiText's form: articles under ` = Title = `
    <root>/<dataset>/<dataset>.train.txt ...                             the same, as Penn Treebank's files are called
    <root>/<dataset>/train.jsonl ...  or .jsonl.gz                       one object a line, document in field `text`
    <root>/<path to one file>.txt | .jsonl | .jsonl.gz                   a collection, split by document here (80/10/10)

A `.txt` file without level-1 headings is one document.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.common.errors import RequestError
from harness.common.files import find_data
from harness.common.text import Source, Split, split_of
from harness.common.text.articles import articles

_STEMS: dict[Split, tuple[str, ...]] = {
    "train": ("train",),
    "validation": ("valid", "validation", "dev"),
    "test": ("test",),
}
_ENDINGS = (".txt", ".jsonl", ".jsonl.gz")


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
            raise RequestError(f"{file} holds no document for the split {split}")
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
    try:
        with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else open(file, encoding="utf-8") as lines:
            if file.suffix == ".txt":
                yield from articles(line.removesuffix("\n") for line in lines)
                return
            for number, line in enumerate(lines, 1):
                text = json.loads(line)["text"] if line.strip() else ""
                if not isinstance(text, str):
                    raise ValueError(f"field text of line {number} is not a string")
                if text.strip():
                    yield text.rstrip() + "\n"
    except KeyError as error:
        raise RequestError(f"{file}: a line has no field {error}; each needs a JSON object with `text`") from error
    except (OSError, EOFError, ValueError, TypeError) as error:  # truncated gzip, not UTF-8, not JSON, no permission
        raise RequestError(f"{file} cannot be read as text: {error}; fetch it again") from error
