"""`harness report`: all stored rows on one page, as HTML that needs no server and as Markdown."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.common.files import write_atomically
from harness.common.progress import Progress
from harness.contracts.rows import Row
from harness.contracts.tasks import SCALES
from harness.measure.environment import describe
from harness.plan.registry import Registry
from harness.show import scatter
from harness.show.overview import Mark, marks, panels
from harness.show.report import figure, render
from harness.show.report.claims import told
from harness.show.report.formats import number, with_interval
from harness.show.report.layout import SETTING
from harness.show.report.tables import Table
from harness.show.stored import Stored, as_frame, stored

TITLE = "Shortcuts in language-model inference, measured"
GOOD, BAD = ("holds", "faster"), ("does not hold", "slower", "FAILED", "TIMEOUT", "KILLED")
OPEN = ("no difference shown", "not settled", "no claim", "exploratory", "not run")


@dataclass(frozen=True, slots=True)
class Section:
    """What the page says of one recipe at one scale. figure: a `data:` address, or nothing."""

    name: str
    scale: str
    anchor: str
    command: str
    table: Table
    figure: str
    environment: dict[str, str]


def write(results: Path, registry: Registry, progress: Progress) -> list[Path]:
    """Write `report.html`, `report.md` and `report.csv` (all numbers) over all rows under `results`; return the paths.

    Raises `MachineError` when a file cannot be written.
    """
    progress.update("reading rows", 0, None)
    every = stored(results, registry)
    sections = []
    for place, one in enumerate(every):
        progress.update("tables and figures", place, len(every))
        try:
            sections.append(_section(one))
        except Exception as error:  # of one recipe, whatever it is: the others are shown
            told = f"{type(error).__name__}: {error}"
            warnings.warn(f"left out: {one.recipe.name} ({one.scale}) cannot be shown, {told}", stacklevel=2)
    found = marks(every, registry)
    pages = {results / "report.html": as_html(found, sections), results / "report.md": as_markdown(found, sections)}
    if sections:
        pages[results / "report.csv"] = as_frame([one.table for one in sections]).to_csv(index=False)
    for path, text in pages.items():
        write_atomically(path, text)
    return list(pages)


def as_html(found: Sequence[Mark], sections: Sequence[Section]) -> str:
    """The page as one HTML file: figures are in it."""
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    drawn = bool(panels(found))
    scales = [scale for scale in reversed(SCALES) if any(one.scale == scale for one in sections)]
    page: str = environment.get_template("page.html.jinja").render(
        title=TITLE, recipes=sections, matrices=[_matrix(name, found) for name in _contracts(found)],
        overview_figure=_address(scatter.draw(found), "svg+xml") if drawn else "", words=render.WORDS,
        published_header=render.PUBLISHED_HEADER, shade=_shade, told=told, setting=SETTING, scales=scales,
    )  # fmt: skip
    return page


def as_markdown(found: Sequence[Mark], sections: Sequence[Section]) -> str:
    """The overview, then each recipe's table as `table.md` has it, a level deeper."""
    parts = [f"# {TITLE}", "## Overview", overview_table(found)]
    for one in sections:
        page = render.markdown(one.table)
        parts.append("\n".join(f"#{line}" if line.startswith("#") else line for line in page.rstrip().splitlines()))
        parts.append(f"To measure it again: `{one.command}`")
    return "\n\n".join(parts) + "\n"


def overview_table(found: Sequence[Mark]) -> str:
    """A Markdown table with a line for each method, variant, task and baseline."""
    header = ["method", "task", "speedup", "over", "decision", "answers changed", "paper's speedup", "row"]
    lines = [
        [
            mark.name, mark.task, with_interval(mark.speedup, mark.interval), mark.baseline, mark.decision,
            lost(mark), number(mark.published) if mark.published is not None else "", _row(mark),
        ]
        for mark in found
    ]  # fmt: skip
    return render.markdown_table(header, lines)


def lost(mark: Mark) -> str:
    """How many of a mark's answers are other ones, in words: `none`, `0.17%`, `perplexity -14%`; with the baseline that
    they were compared with, where another one was timed. Nothing where answers were not compared."""
    if (found := mark.lost) is None:
        return ""
    share = f"{number(100 * found.share, 2)}%"
    by_kind = {"answers": share, "perplexity": f"perplexity {'+' * (found.share > 0)}{share}"}
    words = "none" if found.share == 0 else by_kind[found.of]
    return words if mark.comparable else f"{words} (against {found.against})"


def _section(one: Stored) -> Section:
    rows = one.newest()
    return Section(
        name=one.recipe.name, scale=one.scale, anchor=_anchor(one.recipe.name, one.scale), command=one.command,
        table=one.table(), figure=_figure(one), environment=_environment(rows),
    )  # fmt: skip


def _figure(one: Stored) -> str:
    drawn = figure.drawing(one.recipe, one.scale, one.rows, one.numbers, cells=one.cells, machine=one.machine)
    return _address(figure.as_bytes(drawn, "svg"), "svg+xml") if drawn is not None else ""


def _address(content: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _environment(rows: Sequence[Row]) -> dict[str, str]:
    before: dict[str, Any] = rows[-1]["environment"].get("before") or {} if rows else {}
    if not before:
        return {"machine": "unknown"}
    versions = ", ".join(f"{name} {version}" for name, version in sorted(before.get("libraries", {}).items()))
    threads = ", ".join(f"{name}={value}" for name, value in sorted(before.get("threads", {}).items()))
    system = f"{before.get('os')}, kernel {before.get('kernel')}, Python {before.get('python')}"
    facts = {"machine": describe(before), "system": system, "libraries": versions, "variables": threads}
    return {name: text for name, text in facts.items() if text}


def _contracts(found: Sequence[Mark]) -> list[str]:
    return list(dict.fromkeys(mark.contract for mark in found))


def _matrix(contract: str, found: Sequence[Mark]) -> dict[str, Any]:
    """Methods down, tasks across."""
    ours = [mark for mark in found if mark.contract == contract]
    tasks, methods = (list(dict.fromkeys(getattr(mark, side) for mark in ours)) for side in ("task", "name"))
    lines = [
        (method, [[_shown(m) for m in ours if (m.name, m.task) == (method, task)] for task in tasks])
        for method in methods
    ]
    return {"contract": contract.replace("-", " "), "tasks": tasks, "lines": lines}


def _shown(mark: Mark) -> dict[str, Any]:
    return {
        "speedup": f"{number(mark.speedup, 3)}×", "interval": _interval(mark), "baseline": mark.baseline,
        "decision": mark.decision,
        "row": _row(mark), "scale": mark.scale, "others": mark.others, "anchor": _anchor(mark.recipe, mark.scale),
        "lost": f"answers changed: {lost(mark)}" if mark.lost is not None else "",
    }  # fmt: skip


def _interval(mark: Mark) -> str:
    return f"[{', '.join(number(bound, 3) for bound in mark.interval)}]" if mark.interval else ""


def _row(mark: Mark) -> str:
    return f"{mark.recipe}: " + " / ".join(part for part in (mark.label, mark.column) if part)


def _anchor(recipe: str, scale: str) -> str:
    return f"{recipe}-{scale}"


def _shade(text: str) -> str:
    return "good" if text in GOOD else "bad" if text in BAD else "open" if text in OPEN else ""
