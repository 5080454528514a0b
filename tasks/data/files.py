"""Files of data sets under the data roots, and files of lines."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.common.errors import RequestError


def find_data(
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


def find_file(name: str, roots: Sequence[Path]) -> Path:
    """`name` (such as `jfleg/test.src`) under the first root that has it, or `name` itself if it is a file's path.

    Raises `RequestError` with the places tried.
    """
    itself = Path(name).expanduser()
    if itself.is_file():
        return itself
    return find_data(f"file {name}", [name], roots, accepts=Path.is_file, folder=f"{Path(name).parent}/")


def aligned_lines(files: Sequence[Path]) -> list[list[str]]:
    """Stripped lines of text files (plain or .gz) that are aligned line by line.

    Raises `RequestError` when a file cannot be read or their numbers of lines differ.
    """
    columns = [_lines(file) for file in files]
    for file, column in zip(files, columns, strict=True):
        if len(column) != len(columns[0]):
            raise RequestError(f"{file} has {len(column)} lines and {files[0]} has {len(columns[0])}; fetch them again")
    return columns


def _lines(file: Path) -> list[str]:
    opened = gzip.open if file.suffix == ".gz" else open
    try:
        with opened(file, "rt", encoding="utf-8-sig", newline="\n") as lines:
            return [line.strip() for line in lines]
    except (OSError, EOFError, zlib.error, ValueError) as error:  # damaged gzip, not UTF-8, no permission
        raise RequestError(f"{file} cannot be read as text: {error}; fetch it again") from error
