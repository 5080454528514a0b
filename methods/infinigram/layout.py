"""An index on disk: a folder of shards.

| file | content |
| --- | --- |
| `metadata.json` | format, vocabulary, tokenizer, counts, sizes and checksums; written last |
| `shardN/tokens.bin` | the documents' tokens, each document followed by a separator |
| `shardN/suffixes.bin` | positions of the suffixes in lexicographic order, without those of separators |
| `shardN/firsts.bin` | int64 [V + 1], a table: suffixes firsts[t] .. firsts[t + 1] - 1 begin with token t |
| `shardN/samples.bin` | uint64, a table: the first 64 bits of tokens of every 32nd suffix |
| `shardN/documents.bin` | int64 [D + 1], offsets of the documents in `tokens.bin`, and its length |
| `shardN/metadata.text` | the documents' metadata, one JSON value per line; absent if none were given |
| `shardN/metadata.bin` | int64 [D + 1], offsets of these lines in bytes |
| `shardN/lines.bin` | int64, ascending: where in `tokens.bin` a line of a text file begins, but no document's first |
| `tokenizer/` | the tokenizer, if one was given |

All numbers are little-endian. Tokens are u16 for vocabularies below 65,535, else u32; the separator has all bits 1. The
position of a suffix takes the fewest whole bytes that address the shard. Files are memory-mapped: opening reads the
metadata, `firsts.bin` and `documents.bin`, which must ascend.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.common.errors import RequestError
from harness.common.progress import Progress
from methods.infinigram.kernels.columns import STEP

FORMAT = 3
WIDEST_NARROW = 65_535  # vocabularies below it fit u16 with a separator
FILES = ("tokens.bin", "suffixes.bin", "firsts.bin", "samples.bin", "documents.bin")
TABLES = ("firsts.bin", "samples.bin", "documents.bin")  # all files but tokens and suffixes
TOKENIZER = "tokenizer"
_CHUNK = 1 << 24


def token_type(vocabulary_size: int) -> Any:
    """Little-endian dtype of the tokens of a vocabulary."""
    return np.dtype("<u2") if vocabulary_size < WIDEST_NARROW else np.dtype("<u4")


def pointer_width(length: int) -> int:
    """The fewest bytes that address `length` tokens."""
    return max(1, ((length - 1).bit_length() + 7) // 8) if length else 1


@dataclass(frozen=True, slots=True)
class Shard:
    """One opened shard. tokens: u16 or u32 [n]; suffixes: uint8 [m * width]; firsts: int64 [V + 1]; samples:
    uint64; documents: int64 [D + 1]; metadata: uint8, and offsets of its lines int64 [D + 1]; lines: int64. The last
    three are empty if none were given."""

    folder: Path
    tokens: NDArray[np.unsignedinteger]
    suffixes: NDArray[np.uint8]
    firsts: NDArray[np.int64]
    samples: NDArray[np.uint64]
    documents: NDArray[np.int64]
    metadata: NDArray[np.uint8]
    metadata_offsets: NDArray[np.int64]
    lines: NDArray[np.int64]
    width: int

    @property
    def count(self) -> int:
        """Number of suffixes, which is that of tokens without separators."""
        return len(self.suffixes) // self.width

    def line(self, document: int) -> Any:
        """Metadata of a document; None if none were given."""
        if not len(self.metadata):
            return None
        begin, end = self.metadata_offsets[document : document + 2].tolist()
        try:
            return json.loads(self.metadata[begin:end].tobytes().decode())
        except ValueError as error:
            raise RequestError(f"{self.folder}: the metadata are damaged; build the index again") from error


class Opened(NamedTuple):
    """A shard of an engine: shard `number` of the index in `folder`. sign: 1, or -1 if it is subtracted."""

    folder: Path
    number: int
    sign: int
    shard: Shard


def write_metadata(folder: Path, metadata: dict[str, Any]) -> None:
    """Write `metadata.json` with a checksum of itself."""
    whole = {**metadata, "crc32": _checksum(metadata)}
    (folder / "metadata.json").write_text(json.dumps(whole, indent=1), encoding="utf-8")


def _checksum(metadata: dict[str, Any]) -> int:
    without = {name: value for name, value in metadata.items() if name != "crc32"}
    return zlib.crc32(json.dumps(without, sort_keys=True).encode())


def read_metadata(folder: Path) -> dict[str, Any]:
    """Metadata of the index in a folder. Raises `RequestError` if there is none, or one of another format."""
    file = folder / "metadata.json"
    if not folder.is_dir():
        raise RequestError(f"no index at {folder}: no such folder; make one with `harness infinigram build`")
    if not file.exists():
        raise RequestError(f"{folder} holds no complete index (no metadata.json); build it again")
    try:
        metadata: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        found, shards = metadata["format"], metadata["shards"]
        int(metadata["vocabulary_size"]), len(shards)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RequestError(f"{file} cannot be read as the metadata of an index ({error}); build it again") from error
    if found != FORMAT:
        raise RequestError(f"{folder}: index of format {found}, this version reads format {FORMAT}; build it again")
    if metadata.get("crc32") != _checksum(metadata):
        raise RequestError(f"{file}: its content changed since it was built; build the index again")
    return metadata


def open_shard(folder: Path, facts: dict[str, Any], vocabulary_size: int) -> Shard:
    """Memory-map one shard. Raises `RequestError` for a file that is missing, has another size, or does not belong to
    the others."""
    check_sizes(folder, facts)
    tokens = mapped(folder / "tokens.bin", token_type(vocabulary_size))
    firsts, documents, offsets, lines = (
        mapped(folder / name, np.int64) for name in ("firsts.bin", "documents.bin", "metadata.bin", "lines.bin")
    )
    found = Shard(
        folder, tokens, mapped(folder / "suffixes.bin", np.uint8), firsts, mapped(folder / "samples.bin", np.uint64),
        documents, mapped(folder / "metadata.text", np.uint8), offsets, lines, int(facts["pointer_bytes"]),
    )  # fmt: skip
    belong = (
        len(firsts) == vocabulary_size + 1
        and firsts[0] == 0
        and bool((firsts[1:] >= firsts[:-1]).all())
        and firsts[-1] * found.width == len(found.suffixes)
        and len(found.samples) == -(-firsts[-1] // STEP)
        and documents[0] == 0
        and bool((documents[1:] > documents[:-1]).all())
        and documents[-1] == len(tokens)
        and (not len(tokens) or tokens[-1] == np.iinfo(tokens.dtype).max)
    )
    if not belong:  # searches would read outside the files
        raise RequestError(f"{folder}: its files are not of one shard; build the index again")
    return found


def mapped(file: Path, dtype: Any) -> NDArray[Any]:
    """A file's content, memory-mapped; empty if there is no such file."""
    if not file.exists() or not file.stat().st_size:
        return np.empty(0, dtype)
    return np.asarray(np.memmap(file, dtype, "r"))  # slices of it are made faster than those of a memmap


def verify(folder: Path, progress: Progress | None = None) -> None:
    """Read everything and compare checksums. Raises `RequestError` with the first file that differs."""
    metadata, progress = read_metadata(folder), progress or Progress(quiet=True)
    parts = {folder / f"shard{number}": facts for number, facts in enumerate(metadata["shards"])}
    for place, facts in parts.items():
        open_shard(place, facts, metadata["vocabulary_size"])
    parts[folder / TOKENIZER] = metadata["tokenizer"]
    check_sizes(folder / TOKENIZER, metadata["tokenizer"])
    total = sum(sum(facts["bytes"].values()) for facts in parts.values())
    done = 0
    for place, facts in parts.items():
        for name, expected in facts["crc32"].items():
            found = 0
            with open(place / name, "rb") as file:
                while part := file.read(_CHUNK):
                    found = zlib.crc32(part, found)
                    done += len(part)
                    progress.update("verify", done / 1e6, total / 1e6, "MB", f"{place.name}/{name}")
            if found != expected:
                raise RequestError(f"{place / name}: its content changed since it was built; build the index again")


def sizes_and_checksums(folder: Path, names: Iterable[str]) -> dict[str, dict[str, int]]:
    """Of these files: `bytes` and `crc32` by name."""
    found: dict[str, dict[str, int]] = {"bytes": {}, "crc32": {}}
    for name in names:
        total = 0
        with open(folder / name, "rb") as file:
            while part := file.read(_CHUNK):
                total = zlib.crc32(part, total)
        found["bytes"][name], found["crc32"][name] = (folder / name).stat().st_size, total
    return found


def check_sizes(folder: Path, facts: dict[str, Any]) -> None:
    """Raise `RequestError` for a file that is missing or has another size."""
    for name, size in facts["bytes"].items():
        file = folder / name
        if not file.exists():
            raise RequestError(f"{file} is missing; restore it, or build the index again")
        if file.stat().st_size != size:
            raise RequestError(f"{file} has {file.stat().st_size} bytes instead of {size}; build the index again")
