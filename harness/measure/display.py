"""What a person sees while a run goes on: two bars on a terminal, a line per step elsewhere (CI, a log file)."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from harness.common.progress import summary


class Display:
    """Shows which cell runs, which step of it, and how far the step and the whole invocation are. cells: of all
    recipes."""

    def __init__(self, console: Console, cells: int) -> None:
        self.console = console
        self._last = 0.0
        self._step = ""
        self._bars = Progress(
            _Name("{task.description}", style="bold", markup=False, table_column=Column(no_wrap=False)),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._overall = self._bars.add_task("", total=cells, note="")
        self._current = self._bars.add_task("", total=None, note="")

    def __enter__(self) -> Display:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._bars.stop()

    def begin(self, title: str) -> None:
        """Another recipe starts: what the bar of the whole is called from now on."""
        self._bars.update(self._overall, description=title)

    def step(self, name: str) -> None:
        """A step of a cell starts."""
        self._step = name
        self._bars.reset(self._current, description=f"  {name}", total=None, note="")

    def report(self, update: dict[str, Any]) -> None:
        """Progress inside the step, as `harness.common.progress` sends it."""
        total = update["total"]
        self._bars.update(
            self._current,
            description=f"  {self._step}: {update['stage']}",
            completed=int(update["done"]),
            total=int(total) if total else None,
            note=update["note"],
        )
        if self._bars.disable and time.monotonic() - self._last > 10:
            self._last = time.monotonic()
            self.console.print(f"    {summary(update)}", highlight=False, markup=False)

    def line(self, text: str, style: str = "") -> None:
        """A line that stays. A long one is left whole, for a path in it to be copied."""
        self.console.print(text, style=style or None, highlight=False, markup=False, soft_wrap=True)

    def advance(self) -> None:
        """A cell is finished."""
        self._bars.advance(self._overall)


class _Name(TextColumn):
    """What a bar is called: the one column that gives way where the terminal is narrow, cut and never broken."""

    def render(self, task: Task) -> Text:
        name = super().render(task)
        name.no_wrap, name.overflow = True, "ellipsis"
        return name
