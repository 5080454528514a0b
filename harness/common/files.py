"""Files: the folders of cache and data, hashes of keys, atomic writes, files of the system."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.common.errors import writing

if TYPE_CHECKING:
    from numpy.typing import NDArray


def default_cache() -> Path:
    """The user's cache folder: $HARNESS_CACHE, or `shortcut-harness` under $XDG_CACHE_HOME or ~/.cache."""
    if explicit := os.environ.get("HARNESS_CACHE"):
        return Path(explicit)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shortcut-harness"


def data_roots() -> tuple[Path, ...]:
    """The data folders of $HARNESS_DATA, separated by the path separator."""
    return tuple(Path(p).expanduser() for p in os.environ.get("HARNESS_DATA", "").split(os.pathsep) if p)


def digest(key: Any) -> str:
    """Hex SHA-256 (20 characters) of a JSON-able value, independent of the order of keys."""
    text = json.dumps(key, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def arrays_digest(*arrays: NDArray[Any]) -> str:
    """Hex SHA-256 (20 characters) over the bytes of arrays."""
    import numpy as np

    state = hashlib.sha256()
    for array in arrays:
        state.update(np.ascontiguousarray(array).data)
    return state.hexdigest()[:20]


def contents(path: str | Path) -> str:
    """The text of a file of the system; empty where there is none or it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all. Raises `MachineError` when the disk is full or the folder not writable."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        partial.replace(path)
