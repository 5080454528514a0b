"""`harness report`: all stored rows on one page, as HTML that needs no server and as Markdown."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from harness.common.files import write_atomically
from harness.common.progress import Progress
from harness.contracts.tasks import SCALES
from harness.machine import describe
from harness.plan.registry import Registry
from harness.rows import Row
from harness.show import claims, figure, frame, markup, overview, scatter, tables
from harness.show.formats import number
from harness.show.stored import Stored, stored

TITLE = "Shortcuts in language-model inference, measured"
GOOD, BAD = ("holds", "faster"), ("does not hold", "slower", "FAILED", "TIMEOUT", "KILLED")
OPEN = ("no difference shown", "not settled", "no claim", "exploratory", "not run")


class Section(NamedTuple):
    """What the page says of one recipe at one scale. figure: a `data:` address, or nothing."""

    name: str
    scale: str
    anchor: str
    command: str
    table: tables.Table
    figure: str
    environment: dict[str, str]


def write(results: Path, registry: Registry, progress: Progress) -> list[Path]:
    """Write `report.html`, `report.md` and `report.csv` (all numbers) over all rows under `results`; return the paths.

    Raises `MachineError` when a file cannot be written.
    """
    progress.update("reading rows", 0, None)
    every = stored(results, registry)
    numbers = frame.of_all(every, registry)
    sections = []
    for place, one in enumerate(every):
        progress.update("tables and figures", place, len(every))
        try:
            sections.append(_section(one, frame.part(numbers, one)))
        except Exception as error:  # of one recipe, whatever it is: the others are shown
            told = f"{type(error).__name__}: {error}"
            warnings.warn(f"left out: {one.recipe.name} ({one.scale}) cannot be shown, {told}", stacklevel=2)
    lines = overview.overview(numbers)
    pages = {results / "report.html": as_html(lines, sections), results / "report.md": as_markdown(lines, sections)}
    if sections:
        pages[results / "report.csv"] = frame.exported(numbers).drop(columns="params").to_csv(index=False)
    for path, text in pages.items():
        write_atomically(path, text)
    return list(pages)


def as_html(lines: pd.DataFrame, sections: Sequence[Section]) -> str:
    """The page as one HTML file: figures are in it. lines: of the overview."""
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    drawn = bool(overview.panels(lines))
    page: str = environment.get_template("page.html.jinja").render(
        title=TITLE, recipes=sections, matrices=[_matrix(*group) for group in lines.groupby("contract", sort=False)],
        overview_figure=_address(scatter.draw(lines)) if drawn else "", words=tables.WORDS, setting=tables.SETTING,
        shade=_shade, sections_of=tables.sections,
        scales=[scale for scale in reversed(SCALES) if any(one.scale == scale for one in sections)],
    )  # fmt: skip
    return page


def as_markdown(lines: pd.DataFrame, sections: Sequence[Section]) -> str:
    """The overview, then each recipe's table as `table.md` has it, a level deeper."""
    parts = [f"# {TITLE}", "## Overview", markup.markdown_table(overview.HEADER, overview.table(lines))]
    for one in sections:
        page = markup.markdown(one.table)
        parts.append("\n".join(f"#{line}" if line.startswith("#") else line for line in page.rstrip().splitlines()))
        parts.append(f"To measure it again: `{one.command}`")
    return "\n\n".join(parts) + "\n"


def _section(one: Stored, numbers: pd.DataFrame) -> Section:
    drawn = figure.images(one, numbers, "svg")
    return Section(
        name=one.recipe.name, scale=one.scale, anchor=_anchor(one.recipe.name, one.scale), command=one.command,
        table=tables.build(one, numbers, claims.verdicts(one)),
        figure=_address(drawn["svg"]) if drawn else "", environment=_environment(one.rows),
    )  # fmt: skip


def _address(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def _environment(rows: Sequence[Row]) -> dict[str, str]:
    before: dict[str, Any] = rows[-1].environment.get("before") or {} if rows else {}
    if not before:
        return {"machine": "unknown"}
    versions = ", ".join(f"{name} {version}" for name, version in sorted(before.get("libraries", {}).items()))
    threads = ", ".join(f"{name}={value}" for name, value in sorted(before.get("threads", {}).items()))
    system = f"{before.get('os')}, kernel {before.get('kernel')}, Python {before.get('python')}"
    facts = {"machine": describe(before), "system": system, "libraries": versions, "variables": threads}
    return {name: text for name, text in facts.items() if text}


def _matrix(contract: str, lines: pd.DataFrame) -> dict[str, Any]:
    """Methods down, tasks across, in each place the lines of the overview."""
    tasks = list(lines.task.unique())
    shown = {name: [[] for _ in tasks] for name in lines.name.unique()}  # type: ignore[var-annotated]
    for line in lines.itertuples(index=False, name="Line"):
        shown[line.name][tasks.index(line.task)].append(_shown(line))
    return {"contract": contract.replace("-", " "), "tasks": tasks, "lines": list(shown.items())}


def _shown(line: Any) -> dict[str, Any]:
    bounds = overview.interval(line)
    return {
        "speedup": f"{number(line.value, 3)}×", "baseline": line.baseline, "decision": line.decision,
        "interval": f"[{', '.join(number(bound, 3) for bound in bounds)}]" if bounds else "",
        "row": f"{line.recipe}: {line.cell}", "scale": line.scale, "others": line.others,
        "anchor": _anchor(line.recipe, line.scale),
        "lost": "" if pd.isna(line.lost) else f"answers changed: {overview.changed(line)}",
    }  # fmt: skip


def _anchor(recipe: str, scale: str) -> str:
    return f"{recipe}-{scale}"


def _shade(text: str) -> str:
    return "good" if text in GOOD else "bad" if text in BAD else "open" if text in OPEN else ""
