"""Builds an index (`methods.infinigram.layout`) shard by shard.

All documents are written to one file first, then split into shards. A shard's suffixes are sorted in memory, in at most
`PEAK` bytes per token; a shard has fewer than 2^31 tokens. Shards are built in parallel, one core each, if memory
allows; on a cluster (`harness.common.parts`) on the cores of its nodes. The folder gets its name when it is complete.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.common.cores import usable_cores
from harness.common.errors import MachineError, RequestError, reason
from harness.common.parts import HERE, Parts
from harness.common.progress import Progress
from methods.infinigram.kernels.searching import sample
from methods.infinigram.layout import FILES, FORMAT, pointer_width, token_type, write_metadata
from methods.infinigram.suffixes import suffix_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

PEAK = {2: 12, 4: 18}  # bytes of a stored token -> most bytes of memory per token for building a shard
LONGEST_SHARD = (1 << 31) - 1  # tokens and separators; a longer shard would need twice the memory per token
_CHUNK = 1 << 18  # suffixes packed at once
_KILLED = 24 * 3600.0  # seconds without writes after which another machine's build counts as dead


def build_index(
    documents: Iterable[Sequence[int] | NDArray[np.integer]],
    directory: Path | str,
    *,
    vocabulary_size: int,
    shards: int = 1,
    memory_limit: int | None = None,
    tokenizer_hash: str | None = None,
    document_metadata: Iterable[Any] | None = None,
    progress: Progress | None = None,
    parts: Parts = HERE,
) -> Path:
    """Index documents of tokens below `vocabulary_size`. Returns the folder.

    shards: minimum number; there are more if one would be too long or need more than `memory_limit` bytes.
    memory_limit: for sorting, over all shards built at a time; documents and metadata are not counted.
    document_metadata: a JSON-able value for each document. tokenizer_hash: the index can be opened only with this one.

    Raises `RequestError` for a folder that is not empty, for tokens that are outside the vocabulary or not integers,
    without documents, for more shards than documents, for a `memory_limit` too small for the longest document, and if
    the number of metadata is not that of documents. Raises `MachineError` if files cannot be written.
    """
    directory = Path(directory)
    if not 1 <= vocabulary_size < (1 << 32) - 1:
        raise RequestError(f"vocabulary_size = {vocabulary_size}: give one from 1 to {(1 << 32) - 2}")
    if shards < 1:
        raise RequestError(f"shards = {shards}: give 1 or more")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        kind = "not empty" if directory.is_dir() else "a file"
        raise RequestError(f"{directory} is {kind}: give a new folder, or delete what is in it")
    progress = progress or Progress()
    host = platform.node() or "host"
    for left in directory.parent.glob(f"{directory.name}.partial-*"):
        if _abandoned(left, host):
            shutil.rmtree(left, ignore_errors=True)
    # another process may build the same folder, perhaps on another machine
    partial = directory.with_name(f"{directory.name}.partial-{host}-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        offsets, lines = _spool(partial, documents, vocabulary_size, document_metadata, progress)
        dtype = token_type(vocabulary_size)
        cuts = _cuts(offsets, shards, memory_limit, PEAK[np.dtype(dtype).itemsize])
        largest = PEAK[np.dtype(dtype).itemsize] * int(np.diff(offsets[cuts]).max())
        together = usable_cores() if memory_limit is None else max(1, memory_limit // max(largest, 1))

        total = int(offsets[-1])
        progress.update("sorting suffixes", 0, total, "tokens")
        work = [
            (str(partial), number, offsets[first : last + 1], None if lines is None else lines[first:last])
            for number, (first, last) in enumerate(pairwise(cuts))
        ]
        with ThreadPoolExecutor(min(together, usable_cores()), "infinigram-build") as pool:
            facts, done = [], 0
            made = (
                parts.each(_built, work, vocabulary_size) if parts.side_by_side() > 1
                else pool.map(lambda one: _built(vocabulary_size, *one), work)
            )  # fmt: skip
            for found in made:
                facts.append(found)
                done += found["tokens"] + found["documents"]
                progress.update("sorting suffixes", done, total, "tokens")
        (partial / "spool").unlink()
        metadata = {
            "format": FORMAT,
            "vocabulary_size": vocabulary_size,
            "tokenizer_hash": tokenizer_hash,
            "tokens": int(offsets[-1]) - (len(offsets) - 1),
            "documents": len(offsets) - 1,
            "shards": facts,
            "versions": {"python": platform.python_version(), "numpy": np.__version__},
        }
        write_metadata(partial, metadata)
        if directory.exists():
            directory.rmdir()
        partial.rename(directory)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        if error.filename is not None and not Path(str(error.filename)).is_relative_to(directory.parent):
            raise  # an error of the documents, which the caller reads
        raise MachineError(
            f"the index {directory} cannot be written: {reason(error)}; free space or give another folder"
        ) from error
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return directory


def _abandoned(partial: Path, host: str) -> bool:
    """Whether the build of this folder was killed: its process is gone, or it ran on another machine and wrote nothing
    for a day."""
    owner, _, process = partial.name.rpartition(".partial-")[2].rpartition("-")
    if owner == host:
        return not _running(process)
    try:
        newest = max(path.stat().st_mtime for path in (partial, *partial.rglob("*")))
    except FileNotFoundError:  # it is being written
        return False
    return time.time() - newest > _KILLED


def _running(process: str) -> bool:
    """Whether a process with this id runs."""
    try:
        os.kill(int(process), 0)
    except (ValueError, OverflowError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


def _spool(
    folder: Path, documents: Iterable[Any], vocabulary_size: int, metadata: Iterable[Any] | None, progress: Progress
) -> tuple[NDArray[np.int64], list[str] | None]:
    """Write all documents, each followed by a separator. Returns their offsets int64 [D + 1], and the metadata as
    lines."""
    dtype = token_type(vocabulary_size)
    separator = np.full(1, np.iinfo(dtype).max, dtype)
    offsets, lines = [0], None if metadata is None else [json.dumps(value) for value in metadata]
    with open(folder / "spool", "wb") as file:
        for number, document in enumerate(documents):
            try:
                tokens = np.asarray(document)
            except ValueError as error:
                raise RequestError(f"document {number} is not a sequence of token ids: {reason(error)}") from error
            if tokens.ndim != 1:
                raise RequestError(
                    f"document {number} has {tokens.ndim} dimensions: give one sequence of token ids each"
                )
            if len(tokens) and tokens.dtype.kind not in "iu":
                raise RequestError(f"document {number} holds {tokens.dtype}, not integers: give token ids")
            if len(tokens) and not (tokens.min() >= 0 and tokens.max() < vocabulary_size):
                wrong = int(tokens[(tokens < 0) | (tokens >= vocabulary_size)][0])
                raise RequestError(
                    f"document {number} has token {wrong}, outside the vocabulary of {vocabulary_size}: give the "
                    "tokenizer's size"
                )
            file.write(tokens.astype(dtype).tobytes())
            file.write(separator.tobytes())
            offsets.append(offsets[-1] + len(tokens) + 1)
            progress.update("reading documents", number + 1, None, "documents", f"{offsets[-1]:,} tokens")
    if len(offsets) == 1:
        raise RequestError("there is no document to index; give one or more")
    if lines is not None and len(lines) != len(offsets) - 1:
        raise RequestError(f"{len(lines)} metadata for {len(offsets) - 1} documents: give one for each")
    return np.array(offsets, np.int64), lines


def _cuts(offsets: NDArray[np.int64], shards: int, memory_limit: int | None, peak: int) -> list[int]:
    """First document of each shard, then the number of documents. Shards have about equal lengths; if these would be
    too long or need too much memory, each shard takes as many documents as fit. peak: bytes per token."""
    documents = len(offsets) - 1
    if shards > documents:
        raise RequestError(f"{shards} shards for {documents} documents: a shard needs one or more; give fewer shards")
    longest = int(np.diff(offsets).max())
    if memory_limit is not None and memory_limit < peak * longest:
        raise RequestError(
            f"memory_limit = {memory_limit} bytes is too little for the longest document of {longest} tokens: give "
            f"{peak * longest} or more"
        )
    if longest > LONGEST_SHARD:
        raise RequestError(f"a document of {longest} tokens is too long for a shard of {LONGEST_SHARD}: cut it")
    room = LONGEST_SHARD if memory_limit is None else min(memory_limit // peak, LONGEST_SHARD)
    cuts = _equal(offsets, shards)
    if int(np.diff(offsets[cuts]).max()) <= room:
        return cuts
    cuts = [0]
    while cuts[-1] < documents:
        cuts.append(int(np.searchsorted(offsets, offsets[cuts[-1]] + room, side="right")) - 1)
    return cuts


def _equal(offsets: NDArray[np.int64], shards: int) -> list[int]:
    """First documents of shards of about equal length, then the number of documents."""
    documents, total = len(offsets) - 1, int(offsets[-1])
    targets = [total * number // shards for number in range(1, shards)]
    cuts = [0]
    for left, target in zip(range(shards - 1, 0, -1), targets, strict=True):
        nearest = int(np.searchsorted(offsets, target))
        cuts.append(min(max(nearest, cuts[-1] + 1), documents - left))
    return [*cuts, documents]


def _built(
    vocabulary_size: int, partial: str, number: int, offsets: NDArray[np.int64], lines: Sequence[str] | None
) -> dict[str, Any]:
    """Write one shard from the spooled documents. offsets: of its documents, then its end. lines: their metadata.
    Returns its entry in the index's metadata."""
    folder = Path(partial) / f"shard{number}"
    folder.mkdir(exist_ok=True)
    if lines is not None:
        (folder / "metadata.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    spooled = np.memmap(Path(partial) / "spool", token_type(vocabulary_size), "r")
    return _shard(folder, spooled[offsets[0] : offsets[-1]], offsets - offsets[0], vocabulary_size)


def _shard(folder: Path, tokens: NDArray[Any], documents: NDArray[np.int64], vocabulary_size: int) -> dict[str, Any]:
    """Write one shard's files. Returns its entry in the metadata."""
    separator, count = np.iinfo(tokens.dtype).max, len(documents) - 1
    tokens.tofile(folder / "tokens.bin")
    documents.tofile(folder / "documents.bin")
    width = pointer_width(len(tokens))
    if tokens.dtype.itemsize == 2:
        order = suffix_array(np.asarray(tokens), 1 << 16)
    else:  # a smaller separator, to avoid a table of 2^32 counts
        text = np.where(tokens == separator, np.uint32(vocabulary_size), tokens).astype(np.uint32)
        order = suffix_array(text, vocabulary_size + 1)
        del text
    order = order[: len(tokens) - count]  # separators sort last
    with open(folder / "suffixes.bin", "wb") as file:
        for start in range(0, len(order), _CHUNK):
            part = np.ascontiguousarray(order[start : start + _CHUNK].astype("<i8"))
            file.write(part.view(np.uint8).reshape(-1, 8)[:, :width].tobytes())
    sample(tokens, order, 8 * tokens.dtype.itemsize).tofile(folder / "samples.bin")
    counts = np.zeros(vocabulary_size, np.int64)
    for start in range(0, len(tokens), _CHUNK):
        some = tokens[start : start + _CHUNK]
        counts += np.bincount(some[some != separator], minlength=vocabulary_size)
    np.concatenate([[0], np.cumsum(counts)]).astype(np.int64).tofile(folder / "firsts.bin")
    names = [*FILES, *(name for name in ("metadata.jsonl",) if (folder / name).exists())]
    return {
        "tokens": len(tokens) - count,
        "documents": count,
        "pointer_bytes": width,
        "bytes": {name: (folder / name).stat().st_size for name in names},
        "crc32": {name: _checksum(folder / name) for name in names},
    }


def _checksum(path: Path) -> int:
    total = 0
    with open(path, "rb") as file:
        while part := file.read(1 << 24):
            total = zlib.crc32(part, total)
    return total
