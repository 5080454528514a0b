"""Builds an index (`methods.infinigram.layout`) shard by shard.

All documents are written to files first, as they come, then split into shards. A shard's suffixes are sorted in memory,
in at most `PEAK` bytes per token and `TABLE` bytes per entry of the vocabulary; a shard has fewer than 2^31 tokens.
Shards are built in parallel, one core each, if memory allows; on a cluster (`harness.common.parts`) on the cores of its
nodes. The folder gets its name when it is complete.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from numpy.typing import NDArray

from harness.common.cores import usable_cores
from harness.common.errors import MachineError, RequestError, reason
from harness.common.memory import memory
from harness.common.parts import HERE, Parts
from harness.common.progress import Progress
from methods.infinigram.ids import whole
from methods.infinigram.kernels.searching import count_firsts, sample
from methods.infinigram.layout import (
    FILES,
    FORMAT,
    TOKENIZER,
    mapped,
    pointer_width,
    sizes_and_checksums,
    token_type,
    write_metadata,
)
from methods.infinigram.suffixes import suffix_array

PEAK = {2: 12, 4: 18}  # bytes of a stored token -> most bytes of memory per token for building a shard
TABLE = {2: 0, 4: 8}  # the same per entry of the vocabulary; with 16-bit tokens less than a megabyte in all
FREE = 0.5  # share of the free memory that a build takes if no limit is given
LONGEST_SHARD = (1 << 31) - 1  # tokens and separators; a longer shard would need twice the memory per token
_CHUNK = 1 << 18  # suffixes packed at once
_KILLED = 24 * 3600.0  # seconds without writes after which another machine's build counts as dead
_SPOOLED = ("tokens", "documents", "metadata", "metadata.offsets", "lines")  # of all shards, until they are built


class Part(NamedTuple):
    """A document, or with `more` a part of one, which goes on with the next part. tokens: ids. metadata: a JSON-able
    value, read from the first part. lines: indices, ascending, of the tokens with which a further line begins."""

    tokens: Sequence[int] | NDArray[np.integer]
    metadata: Any = None
    lines: Sequence[int] | NDArray[np.integer] = ()
    more: bool = False


def build_index(
    documents: Iterable[Sequence[int] | NDArray[np.integer] | Part],
    directory: Path | str,
    *,
    vocabulary_size: int,
    shards: int = 1,
    memory_limit: int | None = None,
    tokenizer_hash: str | None = None,
    tokenizer: Callable[[Path], object] | None = None,
    progress: Progress | None = None,
    parts: Parts = HERE,
) -> Path:
    """Index documents of tokens below `vocabulary_size`. Returns the folder.

    shards: minimum number; there are more if one would be too long or need too much memory.
    memory_limit: bytes that the shards that are sorted at a time may take; by default half of the memory that is free.
    Documents are read one at a time and written to disk, so nothing else grows with the text.
    tokenizer: writes the tokenizer into a folder. tokenizer_hash: the index can be opened only with this one.

    Raises `RequestError` for a folder that is not empty, for tokens that are outside the vocabulary or not integers,
    for metadata that are not JSON-able, without documents, for more shards than documents, and for a `memory_limit` too
    small for the longest document. Raises `MachineError` if files cannot be written.
    """
    directory = Path(directory)
    vocabulary_size, shards = whole("vocabulary_size", vocabulary_size, 1), whole("shards", shards, 1)
    if vocabulary_size >= (1 << 32) - 1:
        raise RequestError(f"vocabulary_size = {vocabulary_size}: give one below {(1 << 32) - 1}")
    if not isinstance(documents, Iterable):
        raise RequestError(f"documents are {type(documents).__name__}: give sequences of token ids")
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
        tokenizer_files = _tokenizer_in(partial / TOKENIZER, tokenizer)
        longest = _spool(partial, documents, vocabulary_size, progress)
        offsets = mapped(partial / "documents", np.int64)
        cuts, together = _plan(offsets, vocabulary_size, shards, memory_limit, longest)
        total = int(offsets[-1])
        progress.update("sorting suffixes", 0, total, "tokens")
        work = [(str(partial), number, first, last) for number, (first, last) in enumerate(pairwise(cuts))]
        with ThreadPoolExecutor(together, "infinigram-build") as pool:
            facts, done = [], 0
            made = (
                parts.each(_built, work, vocabulary_size) if parts.side_by_side() > 1
                else pool.map(lambda one: _built(vocabulary_size, *one), work)
            )  # fmt: skip
            for found in made:
                facts.append(found)
                done += found["tokens"] + found["documents"]
                progress.update("sorting suffixes", done, total, "tokens")
        metadata = {
            "format": FORMAT,
            "vocabulary_size": vocabulary_size,
            "tokenizer_hash": tokenizer_hash,
            "tokens": total - (len(offsets) - 1),
            "documents": len(offsets) - 1,
            "shards": facts,
            "tokenizer": tokenizer_files,
            "versions": {"python": platform.python_version(), "numpy": np.__version__},
        }
        for name in _SPOOLED:
            (partial / name).unlink()
        write_metadata(partial, metadata)
        if directory.exists():
            directory.rmdir()
        partial.rename(directory)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        if (directory / "metadata.json").exists():
            raise RequestError(f"{directory} holds an index, which another process built meanwhile: use it") from error
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
    return process.isdecimal() and len(process) < 10 and psutil.pid_exists(int(process))


def _tokenizer_in(folder: Path, write: Callable[[Path], object] | None) -> dict[str, Any]:
    """Let the tokenizer be written into a folder. Returns sizes and checksums of its files."""
    if write is not None:
        folder.mkdir()
        try:
            write(folder)
        except OSError:
            raise
        except Exception as error:  # a full disk is a plain Exception of the Rust library
            raise OSError(reason(error)) from error
    return sizes_and_checksums(
        folder, [str(file.relative_to(folder)) for file in sorted(folder.rglob("*")) if file.is_file()]
    )


def _spool(folder: Path, documents: Iterable[Any], vocabulary_size: int, progress: Progress) -> int:
    """Write all documents to the files `_SPOOLED`: tokens, each document followed by a separator; offsets of the
    documents int64 [D + 1]; metadata as lines, if there are any, and their offsets; lines int64. Returns the length of
    the longest document with its separator."""
    dtype = token_type(vocabulary_size)
    separator = np.full(1, np.iinfo(dtype).max, dtype)
    number = at = begin = written = longest = 0
    described, more = False, False
    with ExitStack() as stack:
        tokens, offsets, metadata, metadata_offsets, lines = (
            stack.enter_context(open(folder / name, "wb")) for name in _SPOOLED
        )
        for edges in (offsets, metadata_offsets):
            edges.write(np.int64(0).tobytes())
        for given in documents:
            part = given if isinstance(given, Part) else Part(given)
            ids = _checked(part.tokens, number, vocabulary_size)
            if not more:
                described |= part.metadata is not None
                try:
                    written += metadata.write(json.dumps(part.metadata).encode() + b"\n")
                except (TypeError, ValueError) as error:
                    raise RequestError(f"the metadata of document {number} are no JSON: {reason(error)}") from error
                metadata_offsets.write(np.int64(written).tobytes())
            lines.write((np.asarray(part.lines, np.int64) + at).tobytes())
            tokens.write(ids.astype(dtype).tobytes())
            at, more = at + len(ids), part.more
            if not more:
                tokens.write(separator.tobytes())
                at, number = at + 1, number + 1
                offsets.write(np.int64(at).tobytes())
                longest, begin = max(longest, at - begin), at
                progress.update("reading documents", number, None, "documents", f"{at:,} tokens")
    if more:
        raise RequestError(f"document {number} has no end: give its last part with more=False")
    if not number:
        raise RequestError("there is no document to index; give one or more")
    if not described:
        (folder / "metadata").write_bytes(b"")
    return longest


def _checked(document: Any, number: int, vocabulary_size: int) -> NDArray[Any]:
    """The ids of a document. Raises `RequestError` if they are not ids."""
    try:
        tokens = np.asarray(document)
    except ValueError as error:
        raise RequestError(f"document {number} is not a sequence of token ids: {reason(error)}") from error
    if tokens.ndim != 1:
        raise RequestError(f"document {number} has {tokens.ndim} dimensions: give one sequence of token ids each")
    if len(tokens) and tokens.dtype.kind not in "iu":
        raise RequestError(f"document {number} holds {tokens.dtype}, not integers: give token ids")
    if len(tokens) and not (tokens.min() >= 0 and tokens.max() < vocabulary_size):
        wrong = int(tokens[(tokens < 0) | (tokens >= vocabulary_size)][0])
        raise RequestError(
            f"document {number} has token {wrong}, outside the vocabulary of {vocabulary_size}: give the "
            "tokenizer's size"
        )
    return tokens


def _plan(
    offsets: NDArray[np.int64], vocabulary_size: int, shards: int, limit: int | None, longest: int
) -> tuple[list[int], int]:
    """The cuts of `_cuts`, and how many shards are sorted at a time. limit: bytes, by default `FREE` of the memory."""
    size = np.dtype(token_type(vocabulary_size)).itemsize
    limit = int(FREE * memory()["available"]) if limit is None else limit
    table = TABLE[size] * vocabulary_size
    cuts = _cuts(offsets, shards, limit, longest, PEAK[size], table)
    largest = PEAK[size] * max(int(offsets[last] - offsets[first]) for first, last in pairwise(cuts)) + table
    return cuts, min(max(1, limit // largest), usable_cores())


def _cuts(offsets: NDArray[np.int64], shards: int, limit: int, longest: int, peak: int, table: int) -> list[int]:
    """First document of each shard, then the number of documents. Shards have about equal lengths; if these would be
    too long or need more memory than `limit`, each shard takes as many documents as fit. longest: tokens of a document.
    peak: bytes per token. table: bytes for each shard."""
    documents = len(offsets) - 1
    if shards > documents:
        raise RequestError(f"{shards} shards for {documents} documents: a shard needs one or more; give fewer shards")
    if limit < peak * longest + table:
        raise RequestError(
            f"memory_limit = {limit} bytes is too little for the longest document of {longest} tokens: give "
            f"{peak * longest + table} or more (by default it is half of the free memory)"
        )
    if longest > LONGEST_SHARD:
        raise RequestError(f"a document of {longest} tokens is too long for a shard of {LONGEST_SHARD}: cut it")
    room = min((limit - table) // peak, LONGEST_SHARD)
    cuts = _equal(offsets, shards)
    if max(int(offsets[last] - offsets[first]) for first, last in pairwise(cuts)) <= room:
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


def _built(vocabulary_size: int, partial: str, number: int, first: int, last: int) -> dict[str, Any]:
    """Write one shard from the spooled documents `first` .. `last` - 1. Returns its entry in the index's metadata."""
    spooled, folder = Path(partial), Path(partial) / f"shard{number}"
    folder.mkdir(exist_ok=True)
    offsets = mapped(spooled / "documents", np.int64)[first : last + 1]
    begin, end = offsets[[0, -1]]
    text, names = mapped(spooled / "metadata", np.uint8), [*FILES]
    if len(text):
        edges = mapped(spooled / "metadata.offsets", np.int64)[first : last + 1]
        text[edges[0] : edges[-1]].tofile(folder / "metadata.text")
        (edges - edges[0]).tofile(folder / "metadata.bin")
        names += ["metadata.text", "metadata.bin"]
    lines = mapped(spooled / "lines", np.int64)
    lines = lines[np.searchsorted(lines, begin) : np.searchsorted(lines, end)]
    if len(lines):
        (lines - begin).tofile(folder / "lines.bin")
        names += ["lines.bin"]
    (offsets - begin).tofile(folder / "documents.bin")  # before sorting, for which the memory is needed
    tokens = mapped(spooled / "tokens", token_type(vocabulary_size))[begin:end]
    facts = _shard(folder, tokens, last - first, vocabulary_size)
    return facts | sizes_and_checksums(folder, names)


def _shard(folder: Path, tokens: NDArray[Any], count: int, vocabulary_size: int) -> dict[str, Any]:
    """Write the files `FILES` of one shard with `count` documents, without `documents.bin`. Returns its facts."""
    separator = np.iinfo(tokens.dtype).max
    tokens.tofile(folder / "tokens.bin")
    width = pointer_width(len(tokens))
    if tokens.dtype.itemsize == 2:
        order = suffix_array(np.asarray(tokens), 1 << 16)
    else:  # a smaller separator, to avoid a table of 2^32 counts
        text = np.where(tokens == separator, np.uint32(vocabulary_size), tokens).astype(np.uint32, copy=False)
        order = suffix_array(text, vocabulary_size + 1)
        del text
    order = order[: len(tokens) - count]  # separators sort last
    with open(folder / "suffixes.bin", "wb") as file:
        for start in range(0, len(order), _CHUNK):
            part = np.ascontiguousarray(order[start : start + _CHUNK].astype("<i8"))
            file.write(part.view(np.uint8).reshape(-1, 8)[:, :width].tobytes())
    sample(tokens, order, 8 * tokens.dtype.itemsize).tofile(folder / "samples.bin")
    firsts = np.zeros(vocabulary_size + 1, np.int64)
    count_firsts(tokens, separator, firsts)
    np.cumsum(firsts, out=firsts)
    firsts.tofile(folder / "firsts.bin")
    return {"tokens": len(tokens) - count, "documents": count, "pointer_bytes": width}
