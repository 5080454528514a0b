"""Numbers in the documentation are those of the committed rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.common.errors import RequestError
from harness.common.sources import ROOT
from harness.show import blocks
from harness.show.report.figure import as_bytes

RESULTS = ROOT / "results"
PAGES = ["README.md", "docs/results.md"]


def test_no_number_in_the_documentation_is_stale():
    for name in PAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert blocks.BLOCK.search(text), name
        assert blocks.filled(text, RESULTS, name) == text, f"run `python -m harness.show.blocks {' '.join(PAGES)}`"
    assert blocks.FIGURE.read_text(encoding="utf-8") == blocks.figure(RESULTS)


def test_no_committed_table_or_figure_is_stale():
    told = f"run `python -m harness.show.blocks {' '.join(PAGES)}`"
    for path, text in blocks.tables(RESULTS):
        assert path.read_text(encoding="utf-8") == text, f"{path}: {told}"
    for path, drawn in blocks.figures(RESULTS):
        assert path.with_suffix(".svg").read_bytes() == as_bytes(drawn, "svg"), f"{path}.svg: {told}"


def test_every_committed_recipe_is_linked_from_the_results():
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    for folder in sorted((RESULTS / "measured").glob("*/*")):
        assert f"../results/measured/{folder.parent.name}/{folder.name}/table.md" in text, folder


def test_a_table_has_the_asked_for_rows_and_columns_and_the_papers():
    wanted = '<!-- table knnlm-wikitext small rows="kNN-LM / *" columns="perplexity (word)|speedup" -->old<!-- end -->'
    lines = [line for line in blocks.filled(wanted, RESULTS).splitlines() if line.startswith("|")]
    assert lines[0] == "| row | column | perplexity (word) ↓ | paper | speedup |"
    assert [line.split(" | ")[1] for line in lines[2:]] == ["FoSS=0", "FoSS=0.6", "FoSS=0.3", "FoSS=0.9"]
    assert "old" not in "".join(lines)


def test_the_overview_has_the_asked_for_lines():
    wanted = '<!-- overview rows="l2s / *|iad* / conll-gec / ctranslate2*" --><!-- end -->'
    lines = [line for line in blocks.filled(wanted, RESULTS).splitlines() if line.startswith("|")][2:]
    assert {line.split(" | ")[0].strip("| ").split()[0] for line in lines} == {"iad", "l2s"}
    assert all("ctranslate2" in line or "ptb-next-word" in line for line in lines)
    with pytest.raises(RequestError, match="nothing"):
        blocks.filled(wanted.replace("iad*", "nothing"), RESULTS)


def test_a_value_stands_in_its_sentence_and_filling_twice_changes_nothing():
    wanted = (
        'saves <!-- value knnlm-wikitext small cell="kNN-LM / FoSS=0.6" metric=saved_share digits=2 --><!-- end -->.'
    )
    once = blocks.filled(wanted, RESULTS)
    assert "-->0.94<!-- end -->." in once and blocks.filled(once, RESULTS) == once


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ("table knnlm-wikitex small", "line 2: .*knnlm-wikitext"),
        ("table knnlm-wikitext huge", "small"),
        ("table knnlm-wikitext small rows=nothing", "nothing"),
        ('table knnlm-wikitext small columns="speed"', "speedup"),
        ('value knnlm-wikitext small cell="kNN-LM / FoSS=0.6" metric=sped', "metric"),
        ("value knnlm-wikitext small cell=LMM", "LM"),
        ("overview rows=nothing", "line 2: .*nothing"),
    ],
)
def test_what_is_not_there_is_refused_by_file_and_line(block, told):
    with pytest.raises(RequestError, match=told):
        blocks.filled(f"first line\n<!-- {block} --><!-- end -->", RESULTS, "page.md")


def test_check_names_stale_files_and_writes_nothing(tmp_path: Path, capsys, monkeypatch):
    page, drawn, table = tmp_path / "page.md", tmp_path / "overview.svg", tmp_path / "table.md"
    drawn.write_text("a figure")
    monkeypatch.setattr(blocks, "FIGURE", drawn)
    monkeypatch.setattr(blocks, "figure", lambda results: "a figure")  # all rows: drawn and compared above
    monkeypatch.setattr(blocks, "tables", lambda results: iter([(table, "a table")]))
    monkeypatch.setattr(blocks, "figures", lambda results: iter(()))
    page.write_text("<!-- verdicts knnlm-wikitext small of=claims -->\n<!-- end -->")
    assert blocks.main(["--check", str(page)]) == 1 and "holds" not in page.read_text() and not table.exists()
    assert f"stale: {page}, {table}" in capsys.readouterr().out
    assert blocks.main([str(page)]) == 0 and page.read_text().count("- **holds**") == 3
    assert table.read_text() == "a table" and blocks.main(["--check", str(page)]) == 0
