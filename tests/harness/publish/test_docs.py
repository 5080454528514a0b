"""Numbers in the documentation are those of the committed rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.common.errors import RequestError
from harness.common.sources import ROOT
from harness.publish import docs
from harness.show.figure import as_bytes

RESULTS = ROOT / "results"
TOLD = "run `python -m harness.publish.docs`"


def test_no_page_table_or_figure_is_stale():
    for path, text in docs.texts(docs.pages(), RESULTS):
        assert path.read_text(encoding="utf-8") == text, f"{path}: {TOLD}"
    for path, drawn in docs.figures(RESULTS):
        assert path.with_suffix(".svg").read_bytes() == as_bytes(drawn, "svg"), f"{path}.svg: {TOLD}"


def test_no_line_of_a_page_begins_with_a_number():
    """Markdown takes such a line for HTML: it ends the paragraph, and links in the line are not made."""
    for page in docs.pages():
        lines = page.read_text(encoding="utf-8").splitlines()
        assert not [line for line in lines if line.lstrip().startswith("<!-- value")], page


def test_every_committed_recipe_is_linked_from_the_results():
    text = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "results").glob("*.md"))
    for folder in sorted((RESULTS / "measured").glob("*/*")):
        assert f"../results/measured/{folder.parent.name}/{folder.name}/table.md" in text, folder


def test_a_table_has_the_asked_for_rows_and_columns_and_the_papers():
    wanted = '<!-- table knnlm-wikitext small rows="kNN-LM / *" columns="perplexity (word)|speedup" -->old<!-- end -->'
    lines = [line for line in docs.filled(wanted, RESULTS).splitlines() if line.startswith("|")]
    assert lines[0] == "| row | column | perplexity (word) ↓ | paper | speedup |"
    assert [line.split(" | ")[1] for line in lines[2:]] == ["FoSS=0", "FoSS=0.6", "FoSS=0.3", "FoSS=0.9"]
    assert "old" not in "".join(lines)


def test_a_value_stands_in_its_sentence_and_filling_twice_changes_nothing():
    wanted = (
        'saves <!-- value knnlm-wikitext small cell="kNN-LM / FoSS=0.6" metric=saved_share digits=2 --><!-- end -->.'
    )
    once = docs.filled(wanted, RESULTS)
    assert "-->0.97<!-- end -->." in once and docs.filled(once, RESULTS) == once


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ("table knnlm-wikitex small", "line 2: .*knnlm-wikitext"),
        ("table knnlm-wikitext huge", "small"),
        ("table knnlm-wikitext small rows=nothing columns=speedup", "nothing"),
        ("table knnlm-wikitext small", "line 2: a table names its columns"),
        ('table knnlm-wikitext small columns="speed"', "speedup"),
        ('value knnlm-wikitext small cell="kNN-LM / FoSS=0.6" metric=sped', "metric"),
        ("value knnlm-wikitext small cell=LMM", "LM"),
    ],
)
def test_what_is_not_there_is_refused_by_file_and_line(block, told):
    with pytest.raises(RequestError, match=told):
        docs.filled(f"first line\n<!-- {block} --><!-- end -->", RESULTS, "page.md")


@pytest.mark.parametrize("text", ["<!-- verdict knnlm-wikitext small --><!-- end -->", "<!-- overview -->\n"])
def test_a_mark_without_its_end_or_of_another_kind_is_refused_by_its_line(text):
    with pytest.raises(RequestError, match=r"page\.md line 4: a mark without its .* of a kind other than table, value"):
        docs.filled(f"<!-- overview -->\n\n<!-- end -->\n{text}", RESULTS, "page.md")


def test_stale_files_are_written_and_named(tmp_path: Path, capsys, monkeypatch):
    page, table = tmp_path / "page.md", tmp_path / "table.md"
    block = "<!-- verdicts knnlm-wikitext small of=claims -->\n<!-- end -->"

    def texts(every, results):  # all committed rows are shown and compared above
        yield page, docs.filled(page.read_text(), results)
        yield table, "a table"

    monkeypatch.setattr(docs, "texts", texts)
    monkeypatch.setattr(docs, "figures", lambda results: iter(()))
    page.write_text(block)
    docs.main([])
    assert f"filled: {page}, {table}" in capsys.readouterr().out
    assert page.read_text().count("- **holds**") == 3 and table.read_text() == "a table"
    docs.main([])
    assert capsys.readouterr().out == ""
    with pytest.raises(RequestError, match="unknown argument 'README\\.md'"):
        docs.main(["README.md"])
