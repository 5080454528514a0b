"""Cells of tests, run through the runner's own processes without a display."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.measure.display import Display
from harness.measure.runner import Result, Runner
from harness.plan.cell import Cell
from harness.plan.registry import Registry
from harness.rows import Row


class Heard:
    """Remembers the rows that a run reports: those measured, and those found finished."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.known: list[Row] = []

    def __call__(self, row: Row, known: bool) -> None:
        (self.known if known else self.rows).append(row)


def runner(registry: Registry, folder: Path, heard: Heard | None = None, **options: Any) -> Runner:
    """A runner that prints nothing."""
    display = Display(Console(file=io.StringIO()), 1)
    return Runner(folder, "cpu", registry, display, heard or Heard(), **options)


def run(registry: Registry, folder: Path, cells: Sequence[Cell], heard: Heard | None = None, **options: Any) -> Result:
    """The rows of these cells and the exit code."""
    return runner(registry, folder, heard, **options).run(cells)
