"""A table in files: Markdown, CSV, LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pandas as pd

from harness.common.files import write_atomically
from harness.show.tables import CLAIMS, WORDS, Table, sections

IN_CSV = ("row", "column", "status", "machine", "decision", "metric", "value", "low", "high", "unit", "paper", "ratio")


def write(table: Table, folder: Path) -> list[Path]:
    """Write `table.md` and `table.csv`, each whole or not at all. Raises `MachineError` when the disk is full."""
    files = {folder / "table.md": markdown(table), folder / "table.csv": as_csv(table)}
    for path, text in files.items():
        write_atomically(path, text)
    return list(files)


def as_csv(table: Table) -> str:
    """The recipe's part of the frame, a line for each row and number, without what its rows have in common or in
    `rows.jsonl`."""
    text: str = table.numbers[list(IN_CSV)].to_csv(index=False, lineterminator="\n")
    return text


def markdown(table: Table) -> str:
    """The table as a Markdown page."""
    parts = [f"# {table.title}", "\n".join(f"- {name}: {text}" for name, text in table.above.items())]
    parts += _markdown_grid(table.lead)
    for heading, here, others in table.judged:
        lines = [[v.outcome, v.sentence] for v in here]
        word = "claim" if heading == CLAIMS else "target"
        parts += [f"## {heading}", *[markdown_table(["verdict", word], lines)] * bool(lines), *[others] * bool(others)]
    parts += [f"To settle: `{command}`" for command in table.commands]
    if table.notes:
        parts += ["## Notes", "\n".join(f"- {note}" for note in table.notes)]
    parts += ["## Examples"] * bool(table.examples)
    for place, (given, outputs) in enumerate(table.examples, 1):
        parts.append(markdown_table([str(place), ""], [*given.items(), *outputs.items()]))
    if not table.details.empty:
        parts += ["## Details", *_markdown_grid(table.details)]
    if table.about:
        parts += ["## Task and models", markdown_table(["of", "fact", "value"], table.about)]
    if not table.alone.empty:
        parts += ["## Published only", markdown_table(list(table.alone), table.alone.to_numpy().tolist())]
    return "\n\n".join(parts) + "\n"


def as_latex(table: Table) -> str:
    """The leading table of the rows that lead, for the packages booktabs and amssymb, with verdicts below it."""
    lead = table.lead.loc[[""]] if "" in table.lead.index else table.lead
    lead = lead.loc[:, [head != "column" or lead[head].any() for head in lead]]
    judged = [f"{v.outcome}: {v.sentence}" for _, here, _ in table.judged for v in here]
    caption = f"{table.title}. {' '.join(f'{name}: {text}.' for name, text in table.above.items())}"
    below = [r"\par\smallskip\raggedright\footnotesize " + r" \\ ".join(map(escaped, judged))] if judged else []
    columns = "".join("l" if head in WORDS else "r" for head in lead)
    texts = lead.map(escaped).set_axis(list(map(escaped, lead)), axis=1)
    tabular = texts.to_latex(index=False, escape=False, column_format=columns)
    return "\n".join([r"\begin{table}", r"\caption{" + escaped(caption) + "}", tabular, *below, r"\end{table}"])


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "×": r"$\times$", "∞": r"$\infty$",
    "↑": r"$\uparrow$", "↓": r"$\downarrow$", "µ": r"$\mu$", "≥": r"$\geq$", "≤": r"$\leq$", "λ": r"$\lambda$",
    "β": r"$\beta$", "τ": r"$\tau$", "γ": r"$\gamma$", "∆": r"$\Delta$", "Δ": r"$\Delta$",
}  # fmt: skip


def escaped(text: str) -> str:
    """Text as LaTeX writes it."""
    return "".join(_LATEX.get(character, character) for character in text)


def _markdown_grid(grid: pd.DataFrame) -> Iterator[str]:
    for heading, lines in sections(grid):
        yield from [f"**{heading}**"] * bool(heading)
        yield markdown_table(list(grid), lines)


def markdown_table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the cells' own bars and line breaks are kept out of its way."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return "\n".join([line(header), line(["---"] * len(header)), *map(line, lines)])
