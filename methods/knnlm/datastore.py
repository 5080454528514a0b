"""The datastore on disk: one entry (key, value) per predicted token of the reference text, in text order.

| file | content |
| --- | --- |
| `keys.npy` | float16 [N, d], the model's representation f(c_i) of the context of token i |
| `values.npy` | int32 [N], token i |
| `offsets.npy` | int64 [S + 1]: stream s holds the entries offsets[s] .. offsets[s + 1] - 1 |
| `metadata.json` | what it was built from and with, sizes and checksums; written last |

The pointer of RetoMaton (Alon et al., 2022, section 3.1) is implicit: entry i is followed by entry i + 1, except at the
end of a stream. Arrays are memory-mapped; `methods.knnlm.builder` writes them.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.contracts import KeyKind, LanguageModel, Streams
from methods.nearest.vectors import Vectors, longest

FORMAT = 1  # of the files
FILES = ("keys.npy", "values.npy", "offsets.npy")
DTYPES = {"keys": np.float16, "values": np.int32, "offsets": np.int64}
METADATA = (
    "built_from", "model_name", "vocabulary_size", "entries", "dimension", "streams", "largest_norm", "bytes", "crc32",
)  # fmt: skip
CHUNK = 1 << 24  # bytes read at once when checking


def corpus_hash(streams: Streams) -> str:
    """Hex SHA-256 (20 characters) of the token ids and the lengths of the streams."""
    state = hashlib.sha256(np.asarray([len(stream) for stream in streams], np.int64).tobytes())
    for stream in streams:
        state.update(np.ascontiguousarray(stream, np.int64).data)
    return state.hexdigest()[:20]


def datastore_key(model: LanguageModel, reference: Streams, key: KeyKind) -> dict[str, Any]:
    """Everything that determines a datastore's content, JSON-able: the key of its artifact."""
    return {"model": model.hash, "tokenizer": model.tokenizer_hash, "corpus": corpus_hash(reference), "key": key}


@dataclass(frozen=True, slots=True)
class Datastore(Vectors):
    """An opened datastore: the keys that an index searches, and their values. Arrays are memory-mapped, read-only."""

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]
    metadata: dict[str, Any]

    @property
    def bytes(self) -> int:
        """Size on disk of the arrays."""
        return sum(self.metadata["bytes"].values())

    def successors(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The next entry of each entry's stream, -1 at its end. Same shape as ids."""
        following = np.asarray(ids, np.int64) + 1
        ends = self.offsets[np.searchsorted(self.offsets, following)] == following
        return np.where(ends, -1, following)

    @classmethod
    def open(cls, folder: Path, expected: Mapping[str, Any] | None = None) -> Datastore:
        """Memory-map the datastore in `folder`. expected: items of `datastore_key` that it must have been built with.

        Raises `RequestError` when it is incomplete, truncated, of another format, or built from something else.
        """
        metadata = _metadata(folder)
        for name, value in (expected or {}).items():
            built = metadata["built_from"].get(name)
            if built != value:
                label = f" ({metadata['model_name']})" if name == "model" else ""
                raise RequestError(
                    f"{folder}: the datastore was built with {name} {built!r}{label}, this run has {name} {value!r}; "
                    "build one for this run"
                )
        shapes = {
            "keys": (metadata["entries"], metadata["dimension"]),
            "values": (metadata["entries"],),
            "offsets": (metadata["streams"] + 1,),
        }
        arrays = {name: _map(folder / f"{name}.npy", shape, DTYPES[name], metadata) for name, shape in shapes.items()}
        return cls(folder=folder, metadata=metadata, largest_norm=float(metadata["largest_norm"]), **arrays)

    def verify(self, progress: Progress | None = None) -> None:
        """Read everything: checksums, values inside the vocabulary, offsets in order, no key longer than
        `largest_norm`, on which exact search relies. Raises `RequestError`."""
        progress = progress or Progress(quiet=True)
        total, done = self.bytes, 0
        for name in FILES:
            checksum = 0
            with open(self.folder / name, "rb") as file:
                while part := file.read(CHUNK):
                    checksum = zlib.crc32(part, checksum)
                    done += len(part)
                    progress.update("verify", done / 1e6, total / 1e6, "MB", name)
            if checksum != self.metadata["crc32"][name]:
                raise RequestError(
                    f"{self.folder / name}: its content changed since it was built; {_anew(self.folder)}"
                )
        words = self.metadata["vocabulary_size"]
        for start in range(0, self.entries, CHUNK):
            some = self.values[start : start + CHUNK]
            if some.min() < 0 or some.max() >= words:
                raise RequestError(
                    f"{self.folder}: values outside the vocabulary of {words} tokens; {_anew(self.folder)}"
                )
        if longest(self.keys) > self.largest_norm:
            raise RequestError(
                f"{self.folder}: a key is longer than largest_norm = {self.largest_norm}; {_anew(self.folder)}"
            )
        if self.offsets[0] != 0 or self.offsets[-1] != self.entries or np.any(np.diff(self.offsets) < 0):
            raise RequestError(
                f"{self.folder}: stream offsets do not cover the {self.entries} entries; {_anew(self.folder)}"
            )


def _metadata(folder: Path) -> dict[str, Any]:
    path = folder / "metadata.json"
    if not folder.is_dir():
        raise RequestError(f"no datastore at {folder}: no such folder; make one with `harness datastore build`")
    if not path.exists():
        raise RequestError(f"{folder} holds no complete datastore (no metadata.json); {_anew(folder)}")
    try:
        metadata: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = metadata["format"]
        lacking = [name for name in METADATA if name not in metadata] if found == FORMAT else []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RequestError(f"{path} cannot be read as a datastore's metadata ({error}); {_anew(folder)}") from error
    if found != FORMAT:
        raise RequestError(f"{folder}: datastore format {found}, this version reads format {FORMAT}; {_anew(folder)}")
    if lacking:
        raise RequestError(f"{path} lacks {', '.join(lacking)}; {_anew(folder)}")
    return metadata


def _anew(folder: Path) -> str:
    """Advice about a damaged datastore. A folder in the cache counts as built as long as it exists."""
    return f"delete the folder {folder} and run again to build it again"


def _map(path: Path, shape: tuple[int, ...], dtype: Any, metadata: Mapping[str, Any]) -> NDArray[Any]:
    size = path.stat().st_size if path.exists() else 0
    expected = metadata["bytes"][path.name]
    if size != expected:
        raise RequestError(
            f"{path}: {size:,} bytes where its metadata says {expected:,}; truncated; {_anew(path.parent)}"
        )
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r")
    except (ValueError, OSError) as error:
        raise RequestError(f"{path} is not a readable array ({error}); {_anew(path.parent)}") from error
    if array.shape != shape or array.dtype != dtype:
        raise RequestError(
            f"{path}: {array.dtype} {array.shape} where its metadata says {np.dtype(dtype)} {shape}; "
            f"{_anew(path.parent)}"
        )
    return array
