"""Files of data sets under the data roots, and files of lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.errors import RequestError
from harness.text.roots import find


def find_file(name: str, roots: Sequence[Path]) -> Path:
    """`name` (such as `jfleg/test.src`) under the first root that has it, or itself where it is the path of a file.

    Raises `RequestError` naming the places tried.
    """
    itself = Path(name).expanduser()
    if itself.is_file():
        return itself
    return find(f"file {name}", [name], roots, is_it=Path.is_file, folder=f"{Path(name).parent}/")


def read_lines(file: Path) -> list[str]:
    """The lines of a text file, without blanks around them. Raises `RequestError` when it cannot be read."""
    try:
        return [line.strip() for line in file.read_text(encoding="utf-8").removesuffix("\n").split("\n")]
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{file} cannot be read as text: {error}; fetch it again") from error


def aligned_lines(names: Sequence[str], roots: Sequence[Path]) -> list[list[str]]:
    """Lines of several files that belong together line by line. Raises `RequestError` when their numbers differ."""
    files = [find_file(name, roots) for name in names]
    columns = [read_lines(file) for file in files]
    for file, column in zip(files, columns, strict=True):
        if len(column) != len(columns[0]):
            raise RequestError(f"{file} has {len(column)} lines and {files[0]} has {len(columns[0])}; fetch them again")
    return columns
