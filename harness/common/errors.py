"""The errors a user can act on; each is one line saying what was wrong, where, and what to do.

The exit code of the command line follows from the class: 1 a cell failed or a claim does not hold,
2 the request cannot be carried out as given, 3 environment error, 130 interrupted.
"""

from __future__ import annotations

import difflib
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class HarnessError(Exception):
    """Base of all errors that end a command with one line and no traceback."""

    exit_code = 1


class CellFailedError(HarnessError):
    """A cell cannot be measured; its row says why."""


class NotInstalledError(CellFailedError):
    """A cell is skipped because an optional package is not installed. Its row says so; other cells are not affected."""


class RequestError(HarnessError):
    """The request cannot be carried out as given: usage, an unknown name, missing or unreadable data."""

    exit_code = 2


class MachineError(HarnessError):
    """An environment error: the disk is full, a permission is missing, a device does not exist."""

    exit_code = 3


@contextmanager
def writing(what: object, otherwise: str = "free space or choose another folder") -> Iterator[None]:
    """Raises `MachineError` for an `OSError` inside: the disk is full, or a permission is missing."""
    try:
        yield
    except OSError as error:
        raise MachineError(f"cannot write {what}: {error.strerror or error}; {otherwise}") from error


def reason(error: BaseException) -> str:
    """The first line of an error's text, at most 200 characters, or the name of its class if there is no text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def unknown(kind: str, name: str, known: Iterable[str], where: str = "") -> RequestError:
    """A `RequestError` for an unregistered name, with the nearest valid one."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names) or 'none'}"
    return RequestError(f"unknown {kind} {name!r}{f' in {where}' if where else ''}: {hint}")


def place(error: BaseException, packages: Iterable[str]) -> str:
    """`file.py:12`: the line that raised an error, or the line that called the library that raised it.

    packages: packages or modules that do not count as libraries, wherever they are installed.
    """
    frames = traceback.extract_tb(error.__traceback__)
    folders = [sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")]
    ours = tuple(f"{folder}/{package.partition('.')[0]}/" for folder in folders for package in packages)
    library = (*(f"{folder}/" for folder in folders), "<")
    own = (f for f in reversed(frames) if f.filename.startswith(ours) or not f.filename.startswith(library))
    frame = next(own, frames[-1])
    file, line = frame.filename, frame.lineno
    if isinstance(error, SyntaxError) and error.filename:
        file, line = error.filename, error.lineno
    return f"{file}:{line}".removeprefix(f"{Path.cwd()}/").replace(str(Path.home()), "~")
