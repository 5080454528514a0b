"""Compiles functions into a cache on disk that notices a change of any file of this folder.

numba's cache keeps a stamp of the file that holds a function and compiles the function again when that file changes. A
function that it calls from another file is part of the machine code, but a change of that file goes unnoticed. So
functions here are cached under a stamp of all files of this folder. They call no compiled function outside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numba import njit

STAMP = tuple(
    (file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in sorted(Path(__file__).parent.glob("*.py"))
)


def compiled(function: Any) -> Any:
    """`njit` without the global interpreter lock. The stamp is not a public attribute of numba; a test fails if it no
    longer has an effect."""
    made = njit(nogil=True, cache=True, error_model="numpy")(function)
    if hasattr(made, "_cache"):  # not where NUMBA_DISABLE_JIT leaves the function as it is
        made._cache._cache_file._source_stamp = STAMP
    return made
