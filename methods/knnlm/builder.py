"""Writes a datastore in one pass of the language model over the reference text.

Memory does not grow with the text: blocks go to disk as the model yields them. At the end of a stream, at most once a
second, a checkpoint records how much is safely in the files; an interrupted build continues after it. The metadata is
written last, so a folder without it is never taken for a datastore.

On a cluster (`harness.common.parts`) the text is split between streams into parts of about equal length. Each becomes a
datastore of its own, and these are concatenated.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from harness.common.errors import RequestError
from harness.common.parts import HERE, Parts
from harness.common.progress import Progress
from harness.contracts import Artifacts, EncodedBlock, KeyKind, LanguageModel, Streams
from methods.knnlm.datastore import FILES, FORMAT, Datastore, datastore_key

CHECKPOINT = "checkpoint.json"
ROUNDED_UP = 1 + 1e-5  # the largest norm is a bound
_ROWS = 1 << 16  # entries copied at once


@dataclass(slots=True)
class _Done:
    """Content of a checkpoint: complete streams, their entries, running checksums, the largest ||key||^2 so far."""

    streams: int = 0
    entries: int = 0
    keys_crc: int = 0
    values_crc: int = 0
    largest_square: float = 0.0


def datastore_artifact(
    artifacts: Artifacts, model: LanguageModel, reference: Streams, key: KeyKind, progress: Progress | None = None
) -> Path:
    """The artifact `datastore`, shared by all methods that search one. Raises as `build_datastore` does."""

    def fill(folder: Path) -> None:
        build_datastore(folder, model, reference, key, progress=progress, parts=artifacts.parts)

    return artifacts.build("datastore", datastore_key(model, reference, key), fill)


def build_datastore(
    folder: Path,
    model: LanguageModel,
    reference: Streams,
    key: KeyKind,
    *,
    progress: Progress | None = None,
    checkpoint_seconds: float = 1.0,
    parts: Parts = HERE,
) -> None:
    """Fill `folder` with the datastore of the reference streams [T] (int64 ids). An interrupted build of the same
    datastore is continued.

    Raises `RequestError` when no token is predicted, when the model has no usable last block, or when a key does not
    fit float16; `OSError` when the disk is full.
    """
    identity = datastore_key(model, reference, key)
    counts = [max(len(stream) - 1, 0) for stream in reference]
    total, dimension = sum(counts), model.key_dimension(key)
    if total == 0:
        raise RequestError(f"the reference text has no token to predict ({len(counts)} streams); a datastore needs one")
    shapes: dict[str, tuple[tuple[int, ...], Any]] = {
        "keys.npy": ((total, dimension), np.float16),
        "values.npy": ((total,), np.int32),
    }
    progress = progress or Progress()
    if (count := min(parts.side_by_side(), len(counts))) > 1:
        done = _in_parts(folder, model, reference, key, _equal(counts, count), shapes, progress, parts)
        _finish(folder, model, identity, np.cumsum([0, *counts], dtype=np.int64), dimension, done)
        return
    done = _resume(folder, identity, shapes)
    saved = time.monotonic()
    with open(folder / "keys.npy", "r+b") as keys, open(folder / "values.npy", "r+b") as values:
        keys.seek(0, os.SEEK_END)
        values.seek(0, os.SEEK_END)
        for number in range(done.streams, len(counts)):
            before = done.entries
            for block in model.encode(reference[number], key=key) if counts[number] else ():
                _append(block, keys, values, done, key)
                progress.update("datastore", done.entries, total, "entries")
            if done.entries - before != counts[number]:
                raise ValueError(
                    f"{model.name} predicted {done.entries - before} of {counts[number]} tokens of stream {number}"
                )
            done.streams = number + 1
            if time.monotonic() - saved >= checkpoint_seconds:
                _save(folder, identity, done, keys, values)
                saved = time.monotonic()
        for file in (keys, values):
            file.flush()
            os.fsync(file.fileno())
    _finish(folder, model, identity, np.cumsum([0, *counts], dtype=np.int64), dimension, done)


def _in_parts(
    folder: Path, model: LanguageModel, reference: Streams, key: KeyKind, cuts: Sequence[int],
    shapes: Mapping[str, tuple[tuple[int, ...], Any]], progress: Progress, parts: Parts,
) -> _Done:  # fmt: skip
    """Write keys and values, part by part. cuts: first stream of each part, then the number of streams."""
    done = _started(folder, shapes)
    total = shapes["values.npy"][0][0]
    work = [
        (str(folder / f"part{number}"), [reference[stream] for stream in range(low, high)], key)
        for number, (low, high) in enumerate(pairwise(cuts))
    ]
    with open(folder / "keys.npy", "ab") as keys, open(folder / "values.npy", "ab") as values:
        for made in parts.each(_part, work, model):
            store = Datastore.open(Path(made))
            for start in range(0, store.entries, _ROWS):
                rows = slice(start, start + _ROWS)
                done.keys_crc = _copied(store.keys[rows], keys, done.keys_crc)
                done.values_crc = _copied(store.values[rows], values, done.values_crc)
            done.entries += store.entries
            done.largest_square = max(done.largest_square, (store.largest_norm / ROUNDED_UP) ** 2)
            progress.update("datastore", done.entries, total, "entries")
            shutil.rmtree(made)
        for file in (keys, values):
            file.flush()
            os.fsync(file.fileno())
    return done


def _part(model: LanguageModel, folder: str, streams: Streams, key: KeyKind) -> str:
    """Build the datastore of some streams, unless an interrupted build already did. Returns its folder."""
    place = Path(folder)
    try:
        Datastore.open(place, datastore_key(model, streams, key))
    except RequestError:
        place.mkdir(parents=True, exist_ok=True)
        build_datastore(place, model, streams, key)
    return folder


def _equal(counts: Sequence[int], parts: int) -> list[int]:
    """First streams of parts of about equal length, then the number of streams. Every part has entries."""
    ends = np.cumsum(counts)
    wanted = np.searchsorted(ends, ends[-1] * np.arange(1, parts) / parts, side="right")
    inner = [int(cut) for cut in np.unique(wanted) if cut and 0 < ends[cut - 1] < ends[-1]]
    return [0, *inner, len(counts)]


def _copied(rows: NDArray[Any], file: IO[bytes], crc: int) -> int:
    """Write rows; returns the updated checksum."""
    data = np.ascontiguousarray(rows).data.cast("B")
    file.write(data)
    return zlib.crc32(data, crc)


def _append(block: EncodedBlock, keys: IO[bytes], values: IO[bytes], done: _Done, key: KeyKind) -> None:
    if block.keys is None:
        raise ValueError("the model was asked for keys and gave none")
    half = block.keys.half()
    square = float(half.float().square().sum(1).max()) if len(half) else 0.0
    if np.isnan(square):
        raise RequestError(
            f"a key of kind {key} is not a number; look at the model's weights, or load it with dtype=float32"
        )
    if not np.isfinite(square):
        raise RequestError(f"a key of kind {key} exceeds float16; choose another `key` for this model")
    rows = half.cpu().contiguous().numpy()
    tokens = block.targets.cpu().numpy().astype(np.int32)
    done.keys_crc = zlib.crc32(keys_bytes := rows.data.cast("B"), done.keys_crc)
    done.values_crc = zlib.crc32(tokens.data.cast("B"), done.values_crc)
    keys.write(keys_bytes)
    values.write(tokens.data.cast("B"))
    done.entries += len(tokens)
    done.largest_square = max(done.largest_square, square)


def _header(shape: tuple[int, ...], dtype: Any) -> bytes:
    """The `.npy` header of the complete array, written before its rows."""
    from io import BytesIO

    out = BytesIO()
    descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
    np.lib.format.write_array_header_1_0(out, {"descr": descr, "fortran_order": False, "shape": shape})
    return out.getvalue()


def _resume(folder: Path, identity: Mapping[str, Any], shapes: Mapping[str, tuple[tuple[int, ...], Any]]) -> _Done:
    """Cut the files back to the last checkpoint of the same datastore, or start over."""
    try:
        state = json.loads((folder / CHECKPOINT).read_text())
        done = _Done(**state["done"]) if state["identity"] == dict(identity) else _Done()
    except (OSError, ValueError, KeyError, TypeError):
        done = _Done()
    sizes = {}
    for name, (shape, dtype) in shapes.items():
        row = int(np.prod(shape[1:])) * np.dtype(dtype).itemsize
        sizes[name] = len(_header(shape, dtype)) + done.entries * row
    if any(not (folder / name).exists() or (folder / name).stat().st_size < size for name, size in sizes.items()):
        done = _Done()
    if not done.entries:
        return _started(folder, shapes)
    for name, size in sizes.items():
        os.truncate(folder / name, size)
    return done


def _started(folder: Path, shapes: Mapping[str, tuple[tuple[int, ...], Any]]) -> _Done:
    """Start files that hold only their headers."""
    headers = {name: _header(*shape) for name, shape in shapes.items()}
    for name, header in headers.items():
        (folder / name).write_bytes(header)
    return _Done(keys_crc=zlib.crc32(headers["keys.npy"]), values_crc=zlib.crc32(headers["values.npy"]))


def _save(folder: Path, identity: Mapping[str, Any], done: _Done, *files: IO[bytes]) -> None:
    for file in files:
        file.flush()
    _write_json(folder / CHECKPOINT, {"identity": dict(identity), "done": asdict(done)})


def _finish(
    folder: Path,
    model: LanguageModel,
    identity: Mapping[str, Any],
    offsets: NDArray[np.int64],
    dimension: int,
    done: _Done,
) -> None:
    import torch

    with open(folder / "offsets.npy", "wb") as file:
        np.save(file, offsets)
        file.flush()
        os.fsync(file.fileno())
    (folder / CHECKPOINT).unlink(missing_ok=True)
    metadata = {
        "format": FORMAT,
        "built_from": dict(identity),
        "model_name": model.name,
        "vocabulary_size": model.vocabulary_size,
        "entries": done.entries,
        "dimension": dimension,
        "streams": len(offsets) - 1,
        "largest_norm": float(np.sqrt(done.largest_square) * ROUNDED_UP),
        "bytes": {name: (folder / name).stat().st_size for name in FILES},
        "crc32": {
            "keys.npy": done.keys_crc,
            "values.npy": done.values_crc,
            "offsets.npy": zlib.crc32((folder / "offsets.npy").read_bytes()),
        },
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__},
    }
    _write_json(folder / "metadata.json", metadata)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(value, indent=1, sort_keys=True), encoding="utf-8")
    new.replace(path)
