"""What a person sees while a run goes on."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from harness.measure.display import Display


@pytest.mark.parametrize("width", [80, 120])
def test_a_long_name_gives_way_to_the_counts_and_times(width):
    console = Console(width=width, file=io.StringIO(), force_terminal=True, get_time=lambda: 0.0)
    with Display(console, 52) as display:
        display.begin("5/5 iad-table1 (mini)")
        display.step("Prompt lookup, 2+2 Transformer of width 128 / generated sentences, process 1 of 1")
        display.report({"stage": "timing", "done": 3, "total": 4, "note": ""})
        plain = Console(width=width, file=io.StringIO())
        plain.print(display._bars.get_renderable())
    whole, cell = plain.file.getvalue().rstrip("\n").splitlines()
    assert whole.startswith("5/5 iad-table1 (mini)") and " 0/52 0:00:00 " in whole
    assert cell.startswith("  Prompt lookup") and "…" in cell and " 3/4 " in cell and "0:00:00" in cell
    assert len(whole) <= width and len(cell) <= width


def test_a_label_in_brackets_is_shown_as_it_is():
    console = Console(width=120, file=io.StringIO(), force_terminal=True)
    with Display(console, 1) as display:
        display.begin("1/1 [bold]x")
        display.step("[/data/x]")
        display.report({"stage": "timing", "done": 1, "total": 2, "note": "[/]"})
        plain = Console(width=120, file=io.StringIO())
        plain.print(display._bars.get_renderable())
    shown = plain.file.getvalue()
    assert "1/1 [bold]x" in shown and "  [/data/x]: timing" in shown and "[/]" in shown


def test_without_a_terminal_there_are_lines_and_nothing_else():
    console = Console(width=120, file=io.StringIO(), force_terminal=False)
    with Display(console, 1) as display:
        display.begin("1/1 toy")
        display.step("fitting")
        display.report({"stage": "training", "done": 1, "total": 2, "unit": "", "note": ""})
        display.line("a line that stays")
        display.advance()
    first, second = console.file.getvalue().splitlines()
    assert first.startswith("    training") and second == "a line that stays"
