"""`harness report`: all stored rows on one page, as HTML that needs no server and as Markdown."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from harness.common.files import write_atomically
from harness.common.progress import Progress
from harness.plan.registry import Registry
from harness.show import claims, figure, forest, frame, markup, overview, tables
from harness.show.stored import KINDS, Stored, stored

TITLE = "Shortcuts in language-model inference, measured"


class Section(NamedTuple):
    """What the page says of one recipe at one scale. figure: a `data:` address, or nothing; files: further tables and
    rows, relative to the page."""

    one: Stored
    table: tables.Table
    figure: str
    files: Sequence[str]


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
            sections.append(_section(one, frame.part(numbers, one), results))
        except Exception as error:  # of one recipe, whatever it is: the others are shown
            told = f"{type(error).__name__}: {error}"
            warnings.warn(f"left out: {one.recipe.name} ({one.scale}) cannot be shown, {told}", stacklevel=2)
    pages = {results / "report.html": as_html(numbers, sections), results / "report.md": as_markdown(numbers, sections)}
    if sections:
        pages[results / "report.csv"] = frame.exported(numbers).drop(columns="params").to_csv(index=False)
    for path, text in pages.items():
        write_atomically(path, text)
    return list(pages)


def as_html(numbers: pd.DataFrame, sections: Sequence[Section]) -> str:
    """The page as one HTML file: figures are in it. numbers: the frame."""
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    titles: dict[str, str] = forest.papers()["titles"]
    papers: dict[str, list[Section]] = {title: [] for title in titles.values()}
    for section in sections:
        paper = section.one.recipe.paper
        papers.setdefault(titles.get(paper, paper or "Single runs"), []).append(section)
    claimed = forest.lines(numbers)
    page: str = environment.get_template("page.html.jinja").render(
        title=TITLE, papers={title: found for title, found in papers.items() if found},
        picture="" if claimed.empty else _address(forest.draw(claimed), "svg+xml"),
        header=overview.HEADER, lines=overview.table(overview.overview(numbers)),
        words=tables.WORDS, setting=tables.SETTING, sections_of=tables.sections, shades=claims.SHADES,
        counted=claims.counted, zip=zip,
    )  # fmt: skip
    return page


def as_markdown(numbers: pd.DataFrame, sections: Sequence[Section]) -> str:
    """The overview, then each recipe's table as `table.md` has it, a level deeper."""
    lines = overview.table(overview.overview(numbers))
    parts = [f"# {TITLE}", "## Overview", markup.markdown_table(overview.HEADER, lines)]
    for section in sections:
        page = markup.markdown(section.table)
        parts.append("\n".join(f"#{line}" if line.startswith("#") else line for line in page.rstrip().splitlines()))
        parts.append(f"To measure it again: `{section.one.command}`")
    return "\n\n".join(parts) + "\n"


def _section(one: Stored, numbers: pd.DataFrame, results: Path) -> Section:
    drawn = figure.images(one, numbers, "webp")
    folders = [Path(kind, one.recipe.name, one.scale) for kind in KINDS]
    files = [folder / name for folder in folders for name in ("table.md", "rows.jsonl")]
    return Section(
        one, tables.build(one, numbers, claims.verdicts(one)), _address(drawn["webp"], "webp") if drawn else "",
        [path.as_posix() for path in files if (results / path).exists()],
    )  # fmt: skip


def _address(image: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"
