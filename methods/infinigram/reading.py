"""Text files as documents of an index. Each document knows its file, and its line or row there.

Files end in `.txt`, `.md`, `.jsonl` or `.parquet`; text and JSON lines may be packed (`.gz`). A text file is one
document, or one for each WikiText article (` = Title = `); a line of JSON or a row of Parquet is one document, whose
text is in a field.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from harness.common.documents import is_title
from harness.common.errors import RequestError, reason
from methods.infinigram.build import Part

ENDINGS = (".txt", ".txt.gz", ".md", ".jsonl", ".jsonl.gz", ".parquet")
DESCRIBED = ("id", "url", "title")  # fields of a record that are kept as metadata
PIECE = 1 << 16  # most characters of a text that are read or tokenized at once
CONTEXT = 1 << 8  # characters on each side with which a piece is tokenized
_ROWS = 16  # rows of Parquet that are read at once
_BATCH = 1 << 18  # characters tokenized in one call; 160 bytes of memory for each


class Text(NamedTuple):
    """A document's text, or its next piece, which has no metadata. lines: whether its lines are those of its file."""

    string: str
    metadata: dict[str, Any] | None = None
    lines: bool = False


def files_of(places: Sequence[Path]) -> list[Path]:
    """These files, and those in these folders and the folders in them, each once. A folder that holds an index is
    left out. Raises `RequestError` for a folder without any and for a file of another kind."""
    found: dict[Path, Path] = {}
    for place in places:
        inside = sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
        indexes = {path.parents[1] for path in inside if path.match("shard0/tokens.bin")}
        some = [
            file for file in inside
            if file.name.lower().endswith(ENDINGS) and indexes.isdisjoint(file.parents)
        ]  # fmt: skip
        if not some:
            raise RequestError(f"{place} is no text: give files that end in {', '.join(ENDINGS)}, or folders of them")
        for file in some:
            found.setdefault(file.resolve(), file)
    return list(found.values())


def texts_of(files: Iterable[Path], field: str = "text") -> Iterator[Text]:
    """The documents of files, in pieces. field: of JSON and Parquet, with the text. Raises `RequestError` that names
    file and line for what cannot be read."""
    for file in files:
        kind = file.name.lower().removesuffix(".gz").rpartition(".")[2]
        if kind in ("txt", "md"):
            yield from _plain(file)
            continue
        for where, record in _rows(file, field) if kind == "parquet" else _json_lines(file):
            place = f"{file}, {' '.join(map(str, *where.items()))}"
            text = record.get(field) if isinstance(record, dict) else None
            if not isinstance(text, str):
                raise RequestError(f"{place}: {_lacks(record, field)}")
            kept = {name: record[name] for name in DESCRIBED if record.get(name) is not None}
            metadata = {name: one if isinstance(one, str | int | float) else str(one) for name, one in kept.items()}
            yield from _pieces(text, {"file": str(file), **where, **metadata}, place)


def _pieces(text: str, metadata: dict[str, Any], place: str) -> Iterator[Text]:
    """A document in pieces of at most `PIECE` characters, none if it is empty. Raises `RequestError` that names `place`
    for half of a surrogate pair."""
    for at in range(0, len(text), PIECE):
        piece = text[at : at + PIECE]
        try:
            piece.encode()
        except UnicodeEncodeError as error:
            raise RequestError(f"{place}: half of a surrogate pair, {error.object[error.start]!r}") from error
        yield Text(piece, None if at else metadata)


def _lacks(record: Any, field: str) -> str:
    """Why a record has no text in a field, in words."""
    if not isinstance(record, dict):
        return f"a {type(record).__name__} instead of an object with fields"
    if field not in record:
        return f"no field {field!r} (it has {', '.join(record)}); name the one with the text by --field"
    kind = "null" if record[field] is None else f"no text but {type(record[field]).__name__}"
    return f"`{field}` is {kind}; name the field with the text by --field, or mend the file"


def _plain(file: Path) -> Iterator[Text]:
    first, blank = True, True
    for number, string in _lines(file):
        title = {"title": string.strip()[2:-2]} if blank and is_title(string) else {}
        about = {"file": str(file), "line": number, **title}
        yield Text(string, about if first or title else None, lines=True)
        first, blank = False, not string.strip()


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Numbers of lines, from 1, and the lines with their ends, long ones in pieces."""
    number, decoder = 1, codecs.getincrementaldecoder("utf-8-sig")()
    try:
        with _opened(file) as content:
            while piece := content.readline(PIECE):
                yield number, decoder.decode(piece).replace("\r\n", "\n")
                number += piece.endswith(b"\n")
            decoder.decode(b"", final=True)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:  # no permission, bad gzip, no UTF-8
        raise RequestError(f"{file}, line {number}: {reason(error)}") from error


def _json_lines(file: Path) -> Iterator[tuple[dict[str, int], Any]]:
    number = 1
    try:
        with _opened(file) as content:
            while line := content.readline():
                if line.strip():
                    yield {"line": number}, json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
                number += 1
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise RequestError(f"{file}, line {number}: {reason(error)}") from error


def _opened(file: Path) -> Any:
    return gzip.open(file, "rb") if file.name.lower().endswith(".gz") else open(file, "rb")


def _rows(file: Path, field: str) -> Iterator[tuple[dict[str, int], Mapping[str, Any]]]:
    """Numbers of rows, from 0, and the rows."""
    from pyarrow import ArrowException, parquet  # type: ignore[import-untyped]

    number = 0
    try:
        with parquet.ParquetFile(file) as content:
            names = content.schema_arrow.names
            if field not in names:
                raise RequestError(f"{file}: {_lacks(dict.fromkeys(names), field)}")
            columns = [name for name in names if name in (field, *DESCRIBED)]
            for batch in content.iter_batches(_ROWS, columns=columns):
                for row in batch.to_pylist():
                    yield {"row": number}, row
                    number += 1
    except (OSError, ValueError, ArrowException) as error:
        raise RequestError(f"{file}, row {number}: {reason(error)}") from error


class _Window(NamedTuple):
    """Characters begin .. end - 1 of a string, to be tokenized with what is around them. more: as in `Part`."""

    string: str
    begin: int
    end: int
    metadata: dict[str, Any] | None
    lines: bool
    more: bool


def tokenized(texts: Iterable[Text], coder: Any) -> Iterator[Part]:
    """The tokens of documents. Long ones are tokenized in pieces of `PIECE` characters with `CONTEXT` on each side, so
    tokens are those of the whole text, unless a tokenizer looks further than that. Memory does not grow with a text.
    Raises `RequestError` for a tokenizer that does not say which characters a token stands for."""
    if not coder.is_fast:
        raise RequestError(f"the tokenizer {type(coder).__name__} has no fast form; take one that has a tokenizer.json")
    batch: list[_Window] = []
    size = 0
    for window in _windows(texts):
        batch.append(window)
        size += len(window.string)
        if size >= _BATCH:
            yield from _encoded(batch, coder)
            batch, size = [], 0
    yield from _encoded(batch, coder)


def _windows(texts: Iterable[Text]) -> Iterator[_Window]:
    string, begin, lines, started = "", 0, False, False
    metadata: dict[str, Any] | None = None
    for text in texts:
        if text.metadata is not None:
            if started:
                yield _Window(string, begin, len(string), metadata, lines, False)
            string, begin, metadata, started = "", 0, text.metadata, True
        string += text.string  # in place, as it has one name here
        lines = text.lines
        while len(string) >= begin + PIECE + CONTEXT:
            end = begin + PIECE
            yield _Window(string[: end + CONTEXT], begin, end, metadata, lines, True)
            string, begin, metadata = string[end - CONTEXT :], CONTEXT, None
    if started:
        yield _Window(string, begin, len(string), metadata, lines, False)


def _encoded(batch: Sequence[_Window], coder: Any) -> Iterator[Part]:
    if not batch:
        return
    found = coder([window.string for window in batch], add_special_tokens=False, verbose=False).encodings
    for (string, begin, end, metadata, lines, more), encoding in zip(batch, found, strict=True):
        ids = np.array(encoding.ids, np.int64)
        if not lines and (begin, end) == (0, len(string)):
            yield Part(ids, metadata)
            continue
        starts = np.array(encoding.offsets, np.int64).reshape(-1, 2)[:, 0]
        inside = (starts >= begin) & (starts < end)
        ends = [begin + one.end() for one in re.finditer("\n", string[begin:end])] if lines else []
        yield Part(ids[inside], metadata, np.searchsorted(starts[inside], ends), more)
