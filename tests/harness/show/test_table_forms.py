"""A table on a terminal, in Markdown, CSV and LaTeX."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from harness.common.sources import ROOT
from harness.publish import docs
from harness.show import frame, markup, tables, terminal
from harness.show.claims import Verdicts, verdicts
from tests.harness.made import stored_of
from tests.harness.show.test_tables import CELLS, RECIPE, build, lines_of, planned, published, row, rows, text


@pytest.mark.parametrize("width", [80, 90, 100, 160])
def test_a_narrow_terminal_keeps_whole_numbers_and_names_what_it_leaves_out(width):
    shown = text(build(numbers=[published()], cells=planned()), width)
    assert all(len(line) <= width for line in shown.splitlines())
    for words in ("85.0", "[84.0, 86.0]", "1.80", "[1.73, 1.87]", "faster", "FoSS=0.5"):
        assert words in shown
    assert ("Not enough room for: " in shown) == (width <= 90)


@pytest.fixture(scope="module")
def committed():
    found, numbers = docs.committed(ROOT / "results")
    return [tables.build(one, frame.part(numbers, one), Verdicts()) for one in found.values()]


@pytest.mark.parametrize("width", [80, 90, 100, 120, 160, 200])
def test_no_committed_table_has_a_number_cut_or_broken(width, committed):
    assert len(committed) > 30
    for table in committed:
        console = Console(file=io.StringIO(), width=width)
        terminal.show(table, console)
        shown = console.file.getvalue()
        left_out = re.findall(r"Not enough room for: (.*); table.md", " ".join(shown.split()))
        assert "…" not in shown.partition("Example 1")[0], (table.title, width)
        for place, head in enumerate(table.lead):
            if head not in (*tables.WORDS, *", ".join(left_out).split(", ")):
                cells = [part for cell in table.lead.iloc[:, place] for part in cell.replace(" [", "\n[").split("\n")]
                assert not [part for part in cells if part not in shown], (table.title, width, head)


def test_a_metric_that_no_row_has_is_said():
    misspelt = RECIPE.replace("metrics: [perplexity, foss]", "metrics: [perplexty, foss]")
    assert "misspelt): perplexty." in text(build(recipe=misspelt))
    assert "misspelt)" not in text(build())


def test_markdown_csv_and_verdicts_are_written(tmp_path: Path):
    table = build(rows()[:2], [published()], cells=planned())
    markdown, comma = markup.write(table, tmp_path / "new" / "folder")
    page = markdown.read_text()
    claims, targets = page.split("## Claims of the paper")[1].split("## Targets of this bench")
    assert "| holds | kNN-LM is better (section 4)" in claims and "| does not hold | kNN-LM is far better" in targets
    shown = text(table)
    assert shown.index("Claims of the paper") < shown.index("kNN-LM is better") < shown.index("Targets of this bench")
    assert "| kNN-LM | FoSS=0 | 85.0 [84.0, 86.0] | 16.650 |" in page
    records = {(line["row"], line["metric"]): line for line in csv.DictReader(comma.open())}
    found = records["kNN-LM", "perplexity"]
    assert [float(found[name]) for name in ("value", "low", "high", "paper")] == [85, 84, 86, 16.65]
    assert found["decision"] == "faster" and found["ratio"] == ""
    assert not list(markdown.parent.glob("*.partial"))


def test_worked_examples_of_the_same_matter_stand_together():
    first = row(CELLS[0], 92.0, examples=[{"source": "ein Haus", "output": "a house"}])
    others = [{"source": "ein Haus", "output": "one | house"}, {"source": "ja", "output": "yes"}]
    table = build([first, row(CELLS[1], 85.0, examples=others)])
    assert table.examples == [
        ({"source": "ein Haus"}, {"LM": "a house", "kNN-LM / FoSS=0": "one | house"}),
        ({"source": "ja"}, {"kNN-LM / FoSS=0": "yes"}),
    ]
    assert "| kNN-LM / FoSS=0 | one \\| house |" in markup.markdown(table)
    assert "Example 2" in text(table)


def test_latex_has_the_leading_rows_with_their_verdicts():
    shown = markup.as_latex(build(cells=planned()))
    assert shown.count(r"\begin{tabular}") == shown.count(r"\end{tabular}") == 1 and r"\toprule" in shown
    assert "holds: kNN-LM is better" in shown and "not run" in shown
    assert markup.escaped("50% of A_1 & {B} ×") == r"50\% of A\_1 \& \{B\} $\times$"


def test_a_run_of_several_recipes_ends_with_a_line_for_each():
    judged = verdicts(stored_of(RECIPE, rows(), cells=planned()))
    console = Console(width=120, file=io.StringIO(), force_terminal=False)
    stated = [replace(one, claim=one.claim.model_copy(update={"scales": ["paper"]})) for one in judged.claims]
    elsewhere = replace(judged, claims=stated, targets=[])
    terminal.show_summary([("first", judged), ("second", elsewhere)], console)
    first, second = (line.split("  ") for line in console.file.getvalue().splitlines()[-2:])
    assert [part.strip() for part in first if part.strip()] == ["first", "holds: 1", "does not hold: 1"]
    assert [part.strip() for part in second if part.strip()] == ["second", "none at this scale", "none"]


def test_an_empty_run_is_still_a_table():
    table = build([], cells=planned())
    assert [line[2] for line in lines_of(table)] == ["not run"] * 4
    assert "nothing has been measured yet" in text(table)
