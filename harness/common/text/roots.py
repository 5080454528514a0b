"""Finds files and folders of data under the data roots (`HARNESS_DATA`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from harness.common.errors import RequestError


def find(
    what: str,
    names: Sequence[str],
    roots: Sequence[Path],
    *,
    accepts: Callable[[Path], bool] = Path.exists,
    folder: str,
    otherwise: str = "",
) -> Path:
    """The first of `names` under the first root in which `accepts` is true of one.

    For the error message: what: what is searched; folder: what a root must contain; otherwise: an alternative. Raises
    `RequestError` with the places tried.
    """
    tried = [root / name for root in roots for name in names]
    for path in tried:
        if accepts(path):
            return path
    places = ", ".join(map(str, tried)) or "no folder, because HARNESS_DATA is not set"
    raise RequestError(f"no {what}; tried {places}; point HARNESS_DATA at the folder that holds {folder}{otherwise}")
