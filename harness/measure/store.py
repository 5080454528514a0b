"""Rows on disk: one JSON object per line, append-only, with a schema version.

A row (`Row`) says everything about one cell at one time. A cell that is run again gets a further row; the newest
counts. Nothing already written is ever changed, with one exception: the torn last line that `kill -9` or a
full disk leaves is cut off before the next append.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from harness.common.errors import MachineError, RequestError
from harness.contracts.rows import SCHEMA, Row
from harness.measure import migrations
from harness.measure.evidence import altered, pooled, repeats

Migration = Callable[[dict[str, Any]], dict[str, Any]]

MIGRATIONS: Mapping[int, Migration] = {
    1: lambda row: {**row, "series": {}, "examples": []},
    2: lambda row: {**migrations.restated(row), "described": {}},
}
"""Schema n -> the function that turns a row of schema n into one of schema n + 1."""


class RowStore:
    """The rows of one file, `rows.jsonl`. Several processes may append at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sound: set[bytes] = set()  # hashes of lines already checked: that takes milliseconds

    def append(self, row: Row) -> None:
        """Write one row and wait until it is on the disk.

        Raises `MachineError` when that fails (disk full, no permission): the file is then as it was before.
        """
        line = json.dumps(_finite(row), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path) as file:
                _write_at_end(file, line)
        except OSError as error:
            raise MachineError(
                f"cannot write a row to {self.path}: {error.strerror or error}; rows already written are kept, "
                "free space or choose another folder (--results DIR) and start again to continue"
            ) from error

    def rows(self) -> list[Row]:
        """All rows, oldest first, in the current schema; none when there is no file.

        Raises `RequestError` naming file and line for a line that is not a row, a schema newer than this version's, or
        a row whose speedup or decision does not follow from its samples.
        """
        return [self._row(line, where) for line, where in self._lines()]

    def legible_rows(self) -> list[Row]:
        """As `rows`, for showing them: a line that `rows` refuses is left out with a warning that names it, and so are
        older rows of the cell that it names, which it may stand in the place of.

        Raises `RequestError` where no line is left.
        """
        found: list[Row] = []
        refused: list[RequestError] = []
        for line, where in self._lines():
            try:
                found.append(self._row(line, where))
            except RequestError as error:
                refused.append(error)
                found = [row for row in found if row["cell"] != _cell_of(line)]
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
        row, known = migrate(_parse(line, where), where), hashlib.sha256(line).digest()
        if known not in self._sound:
            _refuse_altered(row, where)
            self._sound.add(known)
        return row

    def latest(self) -> dict[str, Row]:
        """Cell name -> its newest row, in the order in which cells first appeared."""
        return {row["cell"]: row for row in self.rows()}

    def finished(self, key: str) -> Row | None:
        """The newest row that ended well under this resume key (`hashes["key"]`), pooled with its repeats, or None."""
        found = [row for row in self.rows() if row["status"] == "ok" and row["hashes"].get("key") == key]
        return pooled(repeats(found)) if found else None


def migrate(raw: dict[str, Any], where: str, steps: Mapping[int, Migration] = MIGRATIONS, newest: int = SCHEMA) -> Row:
    """A row of any older schema in the newest one. Raises `RequestError` for a newer schema or a missing key."""
    version = raw.get("schema")
    if not isinstance(version, int) or isinstance(version, bool):
        raise RequestError(f"{where} is not a row: it has no schema number")
    if version > newest:
        raise RequestError(
            f"{where} has schema {version}, this version reads up to {newest}: update shortcut-harness or "
            "choose another folder (--results DIR)"
        )
    for step in range(version, newest):
        if step not in steps:
            raise RequestError(f"{where} has schema {version}, and no migration leads from {step} to {step + 1}")
        with _legible(where):
            raw = {**steps[step](raw), "schema": step + 1}
    if newest == SCHEMA and (absent := Row.__annotations__.keys() - raw.keys()):
        raise RequestError(f"{where} is not a row: it lacks {', '.join(sorted(absent))}")
    return cast(Row, raw)


def _refuse_altered(row: Row, where: str) -> None:
    """Refuse a row that states something of its samples that does not follow from them."""
    with _legible(where):
        names = altered(row)
    if names:
        raise RequestError(
            f"{where}: {', '.join(names)} of {row['cell']} do not follow from the row's samples; the row was edited, "
            "remove it and measure again"
        )


@contextmanager
def _legible(where: str) -> Iterator[None]:
    """What is missing from a row's samples ends in one line that names the place."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise RequestError(
            f"{where} is not a row: its samples cannot be read ({type(error).__name__}: {error}); remove the line and "
            "measure again"
        ) from error


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise RequestError(
            f"{where} is not a row ({error}): remove the line, or move the file away to start over"
        ) from None
    if not isinstance(value, dict):
        raise RequestError(f"{where} is not a row: an object is expected, found {type(value).__name__}")
    return value


def _cell_of(line: bytes) -> str | None:
    """The cell that a line names, whatever else is wrong with it."""
    try:
        return cast(str | None, json.loads(line).get("cell"))
    except (ValueError, AttributeError):
        return None


def _finite(value: Any) -> Any:
    """The value with NaN and infinities as None, which strict JSON can say."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(v) for v in value]
    if not isinstance(value, str) and hasattr(value, "item"):  # a NumPy scalar
        return _finite(value.item())
    return value


def _sound_length(content: bytes) -> int:
    """Bytes up to the end of the last whole row. A last line without line end counts when it is whole."""
    end = content.rfind(b"\n") + 1
    try:
        json.loads(content[end:])
    except ValueError:
        return end
    return len(content)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)  # releases the lock


def _write_at_end(file: int, line: bytes) -> None:
    """Append a line after the last whole one and sync it; on failure leave the file as it was."""
    length = os.fstat(file).st_size
    end = length - _torn_bytes(file, length)
    if end < length:
        os.ftruncate(file, end)
    if end and os.pread(file, 1, end - 1) != b"\n":
        line = b"\n" + line
    try:
        written = 0
        while written < len(line):
            written += os.pwrite(file, line[written:], end + written)
        os.fsync(file)
    except OSError:
        os.ftruncate(file, end)
        raise


def _torn_bytes(file: int, length: int, block: int = 1 << 16) -> int:
    """Bytes after the last whole row, reading backwards from the end only as far as the last line reaches."""
    start = length
    tail = b""
    while start > 0 and b"\n" not in tail:
        size = min(block, start)
        start -= size
        tail = os.pread(file, size, start) + tail
    return len(tail) - _sound_length(tail)
