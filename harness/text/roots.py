"""Where data lie: the first of several names that a data root has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from harness.errors import RequestError


def find(
    what: str,
    names: Sequence[str],
    roots: Sequence[Path],
    *,
    is_it: Callable[[Path], bool] = Path.exists,
    folder: str,
    otherwise: str = "",
) -> Path:
    """The first of `names` under the first root that has one of them.

    what: what is looked for, for the message; folder: what a root has to hold; otherwise: what else to do. Raises
    `RequestError` naming the places tried.
    """
    tried = [root / name for root in roots for name in names]
    for path in tried:
        if is_it(path):
            return path
    places = ", ".join(map(str, tried)) or "no folder, because HARNESS_DATA is not set"
    raise RequestError(f"no {what}; tried {places}; point HARNESS_DATA at the folder that holds {folder}{otherwise}")
