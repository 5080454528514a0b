"""The page over everything that is stored, and a stored table in every format: from the committed rows themselves."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from harness.cli import main
from harness.common.errors import RequestError
from harness.common.sources import ROOT
from harness.measure.store import RowStore
from harness.plan import recipe as recipes
from harness.plan.registry import Registry
from harness.publish import docs
from harness.results import frame
from harness.show import claims, forest, markup, overview, page, stored, tables
from harness.show.frame import of_all
from tests.harness.browser import browser, needs_browser
from tests.harness.made import cell_of, numbers_of, stored_of
from tests.harness.rows import new_row, processes

MEASURED = ROOT / "results" / "measured"
RECIPES = ("knnlm-wikitext", "ralmspec-table1")
MACHINE = "Processor (family 6 model 167)"  # of knnlm-wikitext


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """A folder of results with two committed recipes in it."""
    folder = tmp_path_factory.mktemp("results")
    for name in RECIPES:
        shutil.copytree(MEASURED / name, folder / "measured" / name)
    return folder


def call(*arguments) -> int:
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    return int(end.value.code)


class Page(HTMLParser):
    """Anchors, links and what a page would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {given["id"] or ""} if "id" in given else set()
        self.links |= {given["href"] or ""} if tag == "a" else set()
        self.fetched += [given["src"] or ""] if "src" in given else []
        self.fetched += [given["href"] or ""] if tag == "link" else []
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag  # well nested


def test_the_report_is_one_page_that_needs_nothing_else(results, capsys):
    assert call("report", "--results", results) == 0
    assert str(results / "report.html") in capsys.readouterr().out
    text = (results / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not page.open
    files = [f"measured/{name}/small/{file}" for name in RECIPES for file in ("table.md", "rows.jsonl")]
    assert page.links == set(files) and all((results / file).exists() for file in files)
    assert {f"{name}-small" for name in RECIPES} <= page.anchors
    assert len(page.fetched) >= 2 and all(address.startswith("data:") for address in page.fetched)
    assert "prefers-color-scheme: dark" in text and "width=device-width" in text
    for words in ("./reproduce.sh knnlm-wikitext --scale small", "242<small>[218, 269]", "holds", "AMD EPYC", MACHINE):
        assert words in text
    again = text
    assert call("report", "--results", results) == 0
    assert (results / "report.html").read_text(encoding="utf-8") == again  # the same rows, the same bytes


@pytest.mark.slow
def test_the_report_of_all_committed_rows_is_small_and_has_a_section_for_each_paper(tmp_path):
    (tmp_path / "measured").symlink_to(MEASURED)
    call("report", "--results", tmp_path)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert len(text.encode()) < 1e6
    titles = [html.unescape(title) for title in re.findall("<h2>(.*?)</h2>", text)]
    assert titles == list(forest.papers()["titles"].values())
    assert text.index("<img") < text.index("<h2>"), "the picture is first"
    assert text.count("<details id=") == 1 + len(list(MEASURED.glob("*/*/rows.jsonl")))


@needs_browser
def test_the_report_fits_a_phone_and_follows_the_readers_colours(results):
    call("report", "--results", results)
    backs = []
    with browser() as opened:
        for width, scheme in ((390, "light"), (390, "dark"), (1280, "light")):
            seen = opened.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
            seen.goto((results / "report.html").resolve().as_uri())
            assert seen.evaluate("document.documentElement.scrollHeight") < 4000  # what is not asked for is closed
            seen.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
            assert seen.evaluate("document.documentElement.scrollWidth") <= width  # wide tables scroll by themselves
            backs.append(seen.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert backs[0] == backs[2] != backs[1]


def test_the_markdown_report_has_the_overview_and_every_table(results):
    call("report", "--results", results)
    text = (results / "report.md").read_text(encoding="utf-8")
    assert "| knnlm | wikitext-perplexity |" in text and "## knnlm-wikitext, scale small" in text
    assert text.count("\n# ") == 0 and text.startswith("# ")


def test_the_report_writes_the_frame_of_all_its_rows(results):
    call("report", "--results", results)
    written = pd.read_csv(results / "report.csv")
    known = frame(results)
    assert list(written.columns) == [name for name in known.columns if name != "params"]
    assert len(written) == len(known) > 10
    np.testing.assert_allclose(written.value, known.value.astype(float))


def test_without_rows_the_report_says_what_to_run(tmp_path):
    assert call("report", "--results", tmp_path) == 0
    assert "No rows are stored yet" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_broken_row_is_left_out_with_a_warning_and_the_others_are_shown(results, tmp_path):
    shutil.copytree(results, tmp_path, dirs_exist_ok=True)
    broken, unreadable = (tmp_path / "measured" / name / "small" / "rows.jsonl" for name in RECIPES)
    broken.write_text("not a row\n" + broken.read_text())
    unreadable.write_text("not a row\n")
    (tmp_path / "runs" / "no-such-recipe" / "mini").mkdir(parents=True)
    shutil.copy(broken, tmp_path / "runs" / "no-such-recipe" / "mini" / "rows.jsonl")
    with pytest.warns(UserWarning) as warned:
        (found,) = stored.stored(tmp_path, Registry())
    assert found.recipe.name == RECIPES[0]
    assert len(found.rows) == len((results / "measured" / RECIPES[0] / "small" / "rows.jsonl").read_text().splitlines())
    said = [str(w.message) for w in warned]
    assert {words.split(":")[0] for words in said} == {"left out"}
    for words in (f"{broken} line 1", f"{unreadable} line 1", "no-such-recipe"):
        assert any(words in line for line in said)
    with pytest.warns(UserWarning, match="line 1"):
        assert call("table", RECIPES[0], "--scale", "small", "--results", tmp_path) == 0
    assert call("table", RECIPES[1], "--scale", "small", "--results", tmp_path) == 2


@pytest.mark.parametrize(("schema", "told"), [(999, "update shortcut-harness"), (3, "measure it again")])
def test_a_row_of_another_schema_is_refused_by_its_number(results, tmp_path, schema, told):
    shutil.copytree(results, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "measured" / RECIPES[0] / "small" / "rows.jsonl"
    path.write_text(path.read_text().replace('"schema":4', f'"schema":{schema}'))
    with pytest.warns(UserWarning), pytest.raises(RequestError, match=rf"schema {schema}\b.*{told}"):
        stored.of(RECIPES[0], "small", tmp_path, Registry())


@pytest.mark.parametrize("kind", ["text", "md", "csv", "latex"])
def test_a_stored_table_is_printed_in_every_format(results, capsys, kind):
    assert call("table", "knnlm-wikitext", "--scale", "small", "--results", results, "--format", kind) == 0
    shown = capsys.readouterr().out
    assert {"csv": "242.1", "md": "242 [218, 269]"}.get(kind, "242") in shown and "kNN-LM" in shown
    if kind == "latex":
        assert shown.count(r"\begin{tabular}") == shown.count(r"\end{tabular}") == 1
        assert r"perplexity (word) $\downarrow$" in shown and MACHINE in shown and "holds: " in shown


def test_an_unknown_format_recipe_or_scale_is_one_line(results, capsys):
    for wrong in (
        ["knnlm-wikitext", "--scale", "small", "--format", "word"],
        ["knnlm-wikitex", "--scale", "small"],
        ["knnlm-wikitext", "--scale", "huge"],
        ["knnlm-wikitext", "--scale", "mini"],
    ):
        assert call("table", *wrong, "--results", results) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex is installed")
def test_the_latex_table_compiles(results, tmp_path):
    one = stored.of("knnlm-wikitext", "small", results, Registry())
    shown = markup.as_latex(tables.build(one, numbers_of(one), claims.verdicts(one)))
    page = r"\documentclass{article}\usepackage{booktabs,amssymb}\begin{document}" + shown
    (tmp_path / "table.tex").write_text(page + r"\end{document}", encoding="utf-8")
    subprocess.run(["pdflatex", "-halt-on-error", "table.tex"], cwd=tmp_path, check=True, capture_output=True)


# ---------------------------------------------------------------- the overview


def timed(
    method,
    task="ptb-next-word",
    *,
    row="row",
    speedup=2.0,
    shape=(10, 3),
    params=None,
    baseline="exact",
    reference=None,
    scale="small",
    recipe="l2s-table1",
    **metrics,
):
    """A row with a speedup. Baseline and reference: methods, or pairs of a method and its parameters."""
    over, against = (
        one if one is None or isinstance(one, dict) else {"method": one, "params": {}} for one in (baseline, reference)
    )
    return new_row(
        recipe=recipe, scale=scale, row=row, method=method, task=task, metrics=metrics, speed_baseline=over,
        fidelity_baseline=against, params={"method": params or {}, "task": {}},
        processes=processes(speedup, shape=shape),
    )  # fmt: skip


def overview_of(*rows):
    """The overview of rows as if their recipe had a cell for each, but for those called `retired`."""
    recipe = recipes.load(rows[0].recipe, Registry())
    every = []
    for scale in dict.fromkeys(row.scale for row in rows):
        found = [row for row in rows if row.scale == scale]
        cells = [cell_of(row.method, row.task, row=row.row) for row in found if row.row != "retired"]
        every.append(stored_of(recipe, found, scale=scale, cells=cells))
    return overview.overview(of_all(every, Registry()))


def test_a_method_is_represented_by_its_largest_scale_then_by_a_decided_speed_then_by_order():
    def one(scale, row, speedup, **more):
        return timed("l2s", row=row, speedup=speedup, scale=scale, reference="exact", precision_at_1=0.99, **more)

    (found,) = overview_of(one("mini", "A", 9.0), one("small", "B", 3.0), one("small", "C", 3.5)).itertuples()
    assert (found.row, found.scale) == ("B", "small")
    assert found.lost == pytest.approx(0.01) and found.reference == found.baseline
    (found,) = overview_of(one("small", "retired", 9.0), one("small", "C", 5.0)).itertuples()
    assert found.row == "C"
    (found,) = overview_of(one("small", "B", 3.0, shape=(1, 2)), one("small", "C", 5.0)).itertuples()
    assert (found.row, found.decision) == ("C", "faster")


def test_a_cell_that_was_also_measured_elsewhere_has_one_line_of_the_rows_that_lead():
    ours, theirs = (timed("l2s", reference="exact", speedup=s, precision_at_1=p) for s, p in ((2.0, 0.99), (9.0, 0.5)))
    recipe = recipes.load("l2s-table1", Registry())
    one = stored.Stored(recipe, "small", [], [ours], {"another machine": [theirs]})
    numbers = of_all([one], Registry()).assign(planned=True)
    (found,) = overview.overview(numbers).itertuples()
    assert (found.value, found.lost) == (pytest.approx(2), pytest.approx(0.01))


def test_what_a_user_chooses_between_has_a_line_of_its_own():
    """CTranslate2 in float32 and in int8 are two engines, of which the slower one must not stand for both."""
    found = overview_of(*(
        timed("ctranslate2", "conll-gec", row=f"{compute} {threads}", speedup=speedup, baseline="beam",
              reference="greedy", recipe="iad-table1", exact_match=1.0,
              params={"beam": 1, "compute": compute, "intra_threads": threads})
        for compute, threads, speedup in (("float32", 2, 1.5), ("int8", 1, 3.4), ("int8", 2, 3.3))
    ))  # fmt: skip
    assert found[["name", "row"]].to_numpy().tolist() == [
        ["ctranslate2 (beam=1, compute=float32)", "float32 2"], ["ctranslate2 (beam=1, compute=int8)", "int8 1"],
    ]  # fmt: skip


def test_quality_lost_is_of_answers_or_of_perplexity_against_the_fidelity_baseline():
    def lost(reference="exact", method="knnlm", **metrics):
        (found,) = overview_of(timed(method, reference=reference, **metrics)).itertuples()
        return found.lost, found.lost_of, found.reference

    assert lost(precision_at_1=0.9) == (pytest.approx(0.1), "answers", "exact")
    assert lost(perplexity=55.0, perplexity_difference=5.0) == (pytest.approx(0.1), "perplexity", "exact")
    assert lost("knnlm", perplexity=45.0, perplexity_difference=-5.0)[:2] == (pytest.approx(-0.1), "perplexity")
    assert pd.isna(lost(bleu=30.0)[0]) and pd.isna(lost(None, exact_match=1.0)[0])
    int8 = {"method": "greedy", "params": {"engine": "int8"}}
    assert lost(int8, "iad", exact_match=1.0)[2] == "greedy (engine=int8)", "its variant is told"


def test_a_method_over_itself_is_named_by_what_differs():
    params, exact = {"k": 4, "foss": 0.6}, {"method": "knnlm", "params": {"k": 4, "foss": 0.0}}
    rows = [timed("knnlm", row=str(n), params=params, baseline=over) for n, over in enumerate((exact, "lm"))]
    assert set(overview_of(*rows)[["name", "baseline"]].itertuples(index=False, name=None)) == {
        ("knnlm (foss=0.6)", "knnlm"), ("knnlm", "lm"),
    }  # fmt: skip


def line(lost, lost_of="answers", reference="exact", baseline="exact"):
    """What a line of the overview says of changed answers."""
    return SimpleNamespace(lost=lost, lost_of=lost_of, reference=reference, baseline=baseline)


def test_quality_against_another_baseline_than_the_timed_one_says_so():
    lines = [
        line(0.0, reference="greedy", baseline="beam"),
        line(0.0017),
        line(0.0),
        line(None),
        line(0.02, "perplexity"),
    ]
    changed = [overview.changed(one) for one in lines]
    assert changed == ["none (against greedy)", "0.17%", "none", "", "perplexity +2%"]


def test_a_label_is_text_and_no_markup():
    one = stored_of(recipes.load("l2s-table1", Registry()), [new_row(row="<script>alert(1)</script>", scale="mini")])
    section = page.Section(one, tables.build(one, numbers_of(one), claims.Verdicts()), "", [])
    text = page.as_html(numbers_of(one), [section])
    assert "<script>" not in text and "&lt;script&gt;" in text


@pytest.mark.parametrize(
    ("columns", "heading", "above"),
    [
        (("2x200 <LSTM>",) * 2, False, '<p class="soft">All rows: 2x200 &lt;LSTM&gt;</p>'),
        (("batch", "Batch"), True, ""),
        (("", ""), False, ""),
        (("2x200 LSTM",), True, ""),
    ],
)
def test_a_column_that_says_the_same_in_every_row_is_said_once(columns, heading, above):
    rows = [new_row(row=f"row {n}", column=column, scale="mini") for n, column in enumerate(columns)]
    one = stored_of(recipes.load("l2s-table1", Registry()), rows)
    numbers = numbers_of(one)
    lead = tables.build(one, numbers, claims.Verdicts())
    text = page.as_html(numbers, [page.Section(one, lead, "", [])])
    text = text[text.index('<details id="l2s-table1') :]
    assert (">column</th>" in text) == heading and (above in text) and ("All rows" in text) == bool(above)


def test_committed_rows_are_those_of_recipes_that_are_still_there():
    """Nothing under results/measured is orphaned: each folder is a recipe's, and its rows can be read."""
    names = {path.parent.parent.name for path in MEASURED.glob("*/*/rows.jsonl")}
    found = docs.committed(ROOT / "results")[0].values()
    assert {one.recipe.name for one in found} == names
    assert all(RowStore(MEASURED / one.recipe.name / one.scale / "rows.jsonl").rows() for one in found)
