"""Rows on disk: one JSON object per line, append-only, with a schema version.

A cell that is run again gets a further row; the newest counts. Nothing already written is ever changed, with one
exception: the torn last line that `kill -9` or a full disk leaves is cut off before the next append.
"""

from __future__ import annotations

import json
import os
import warnings
from io import FileIO
from pathlib import Path

from harness.common.cache import exclusive
from harness.common.errors import RequestError, writing
from harness.groups import newest
from harness.rows import SCHEMA, Row


class RowStore:
    """The rows of one file, `rows.jsonl`. Several processes may append at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: dict[bytes, Row] = {}  # line -> row: a run reads its file for each cell

    def append(self, row: Row) -> None:
        """Write one row and wait until it is on the disk.

        Raises `MachineError` when that fails (disk full, no permission): the file is then as it was before.
        """
        otherwise = "rows already written are kept, free space or choose another --results and start again to continue"
        with writing(f"a row to {self.path}", otherwise), exclusive(self.path) as file:
            _write_at_end(file, as_line(row).encode())

    def rows(self) -> list[Row]:
        """All rows, oldest first; none when there is no file.

        Raises `RequestError` naming file and line for a line that is not a row or has another version's schema.
        """
        return [self._row(line, where) for line, where in self._lines()]

    def legible_rows(self) -> list[Row]:
        """As `rows`, for showing them: a line that `rows` refuses is left out with a warning that names it, and so are
        older rows of its cell, whose place it may have taken.

        Raises `RequestError` where no line is left.
        """
        found: list[Row] = []
        refused: list[RequestError] = []
        for line, where in self._lines():
            try:
                found.append(self._row(line, where))
            except RequestError as error:
                refused.append(error)
                found = [row for row in found if (row.row, row.column) != _labels_of(line)]
        if refused and not found:
            raise refused[0]
        for reason in refused:
            warnings.warn(f"left out: {reason}", stacklevel=2)
        return found

    def _lines(self) -> list[tuple[bytes, str]]:
        """Every whole line of the file, and what to call it."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RequestError(f"cannot read {self.path}: {error.strerror or error}") from error
        sound = content[: _sound_length(content)]
        if len(sound) < len(content):
            warnings.warn(f"{self.path}: the last row was cut off while it was written; ignored", stacklevel=3)
        return [
            (line, f"{self.path} line {number}") for number, line in enumerate(sound.splitlines(), 1) if line.strip()
        ]

    def _row(self, line: bytes, where: str) -> Row:
        if line not in self._read:
            self._read[line] = _parsed(line, where)
        return self._read[line]

    def finished(self, key: str) -> Row | None:
        """The newest row that ended well under this resume key (`hashes["key"]`), pooled with its repeats, or None."""
        found = [row for row in self.rows() if row.status == "ok" and row.hashes.get("key") == key]
        return newest(found) if found else None


def as_line(row: Row) -> str:
    """A row as its line of the file."""
    return json.dumps(row.as_json(), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def _parsed(line: bytes, where: str) -> Row:
    try:
        stored = json.loads(line)
    except ValueError as error:
        raise RequestError(
            f"{where} is not a row ({error}): remove the line, or move the file away to start over"
        ) from None
    if not isinstance(stored, dict) or not isinstance(version := stored.get("schema"), int):
        raise RequestError(f"{where} is not a row: an object with a schema number is expected")
    if version > SCHEMA:
        raise RequestError(
            f"{where} has schema {version}, this version reads {SCHEMA}: update shortcut-harness or choose another "
            "folder (--results DIR)"
        )
    if version < SCHEMA:
        raise RequestError(
            f"{where} was written by an older version (schema {version}, this one reads {SCHEMA}): measure it again in "
            "another folder (--results DIR), or move the file away"
        )
    try:
        return Row.of(stored)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise RequestError(
            f"{where} is not a row ({type(error).__name__}: {error}); remove the line and measure again"
        ) from error


def _labels_of(line: bytes) -> tuple[str, str] | None:
    """Row and column that a line names, whatever else is wrong with it."""
    try:
        stored = json.loads(line)
        return stored["row"], stored["column"]
    except (ValueError, LookupError, TypeError):
        return None


def _sound_length(content: bytes) -> int:
    """Bytes up to the end of the last whole row. A last line without line end counts when it is whole."""
    end = content.rfind(b"\n") + 1
    try:
        json.loads(content[end:])
    except ValueError:
        return end
    return len(content)


def _write_at_end(file: FileIO, line: bytes) -> None:
    """Append a line after the last whole one of a file and sync it; on failure leave the file as it was."""
    file.seek(0)
    content = file.readall()
    end = _sound_length(content)
    file.truncate(end)
    if end and content[end - 1 : end] != b"\n":
        line = b"\n" + line
    try:
        while line:
            line = line[file.write(line) :]
        os.fsync(file)
    except OSError:
        file.truncate(end)
        raise
