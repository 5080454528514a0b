"""A table as LaTeX, for the package booktabs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.show.report.claims import told
from harness.show.report.render import WORDS
from harness.show.report.tables import Table

MARKS = {
    "holds": r"\checkmark{}", "does not hold": r"$\times$", "no difference shown": r"$\approx$", "not settled": "?",
    "not tested": "--",
}  # fmt: skip
_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "×": r"$\times$", "∞": r"$\infty$",
    "↑": r"$\uparrow$", "↓": r"$\downarrow$", "µ": r"$\mu$", "≥": r"$\geq$", "≤": r"$\leq$", "λ": r"$\lambda$",
    "β": r"$\beta$", "τ": r"$\tau$", "γ": r"$\gamma$", "∆": r"$\Delta$", "Δ": r"$\Delta$",
}  # fmt: skip


def as_latex(table: Table) -> str:
    """A `table` with the leading columns of the rows that lead, a verdict's mark before each claim, and a caption with
    scale, machine, sample and revision. The preamble needs `booktabs` and `amssymb`."""
    grid = table.lead
    ours = [line for section in grid.sections[:1] for line in section.lines]
    labelled = any(line[1] for line in ours)
    kept = [place for place, head in enumerate(grid.header) if head != "column" or labelled]
    header = [grid.header[i] for i in kept]
    lines = [[[line[i] for i in kept] for line in ours]]
    columns = "".join("l" if head in WORDS else "r" for head in header)
    here = [verdict for group in (table.verdicts.claims, table.verdicts.targets) for verdict in told(group)[0]]
    judged = [f"{MARKS[verdict.outcome]} {escaped(verdict.sentence)}" for verdict in here]
    facts = " ".join(f"{name}: {text}." for name, text in table.facts.items())
    below = [r"\par\smallskip\raggedright\footnotesize " + r" \\ ".join(judged)] if judged else []
    return floating(f"{table.title}. {facts}", [tabular(header, lines, columns), *below])


def tabular(header: Sequence[str], groups: Iterable[Iterable[Sequence[str]]], columns: str) -> str:
    """A `tabular` with a rule between groups of lines. columns: its argument, a letter for each column."""
    bodies = ["\n".join(map(_line, lines)) for lines in groups]
    body = "\n\\midrule\n".join(body for body in bodies if body)
    return (
        "\\begin{tabular}{" + columns + "}\n\\toprule\n" + _line(header) + "\n\\midrule\n" + body
        + "\n\\bottomrule\n\\end{tabular}"
    )  # fmt: skip


def floating(caption: str, parts: Sequence[str]) -> str:
    """A `table` with a caption above these parts."""
    return "\n".join([r"\begin{table}", r"\caption{" + escaped(caption) + "}", *parts, r"\end{table}"])


def escaped(text: str) -> str:
    """Text as LaTeX writes it."""
    return "".join(_SPECIAL.get(character, character) for character in text)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(map(escaped, cells)) + r" \\"
