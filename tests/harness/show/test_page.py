"""The page over everything that is stored, and a stored table in every format: from the committed rows themselves."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import uuid
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.cli import main
from harness.common.errors import RequestError
from harness.common.sources import ROOT
from harness.contracts.rows import new_row
from harness.measure.store import RowStore
from harness.plan.cell import Cell, Named
from harness.plan.recipe import Timing
from harness.plan.registry import Registry
from harness.results import frame
from harness.show import overview, page, scatter, stored
from harness.show.report import every_eval, latex
from tests.harness.browser import browser, needs_browser
from tests.harness.rows import with_samples

MEASURED = ROOT / "results" / "measured"
RECIPES = ("knnlm-wikitext", "ralmspec-table2")


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
    assert page.links <= {f"#{anchor}" for anchor in page.anchors}
    assert {f"{name}-small" for name in RECIPES} <= page.anchors
    assert len(page.fetched) >= 2 and all(address.startswith("data:") for address in page.fetched)
    assert "prefers-color-scheme: dark" in text and "width=device-width" in text
    for words in ("./reproduce.sh knnlm-wikitext --scale small", "241.5<small>[218.2, 267.2]", "holds", "AMD EPYC"):
        assert words in text
    again = text
    assert call("report", "--results", results) == 0
    assert (results / "report.html").read_text(encoding="utf-8") == again  # the same rows, the same bytes


@needs_browser
def test_the_report_fits_a_phone_and_follows_the_readers_colours(results):
    call("report", "--results", results)
    backs = []
    with browser() as opened:
        for width, scheme in ((390, "light"), (390, "dark"), (1280, "light")):
            seen = opened.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
            seen.goto((results / "report.html").resolve().as_uri())
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
    assert list(written.columns) == list(known.columns) and len(written) == len(known) > 10
    np.testing.assert_allclose(written["speedup"], known["speedup"].astype(float))


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


def test_a_row_of_a_newer_schema_is_refused_by_name(results, tmp_path):
    shutil.copytree(results, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "measured" / RECIPES[0] / "small" / "rows.jsonl"
    path.write_text(path.read_text().replace('"schema":3', '"schema":999'))
    with pytest.raises(RequestError, match="999"):
        stored.of(RECIPES[0], "small", tmp_path, Registry())


@pytest.mark.parametrize("kind", ["text", "md", "csv", "latex"])
def test_a_stored_table_is_printed_in_every_format(results, capsys, kind):
    assert call("table", "knnlm-wikitext", "--scale", "small", "--results", results, "--format", kind) == 0
    shown = capsys.readouterr().out
    assert "241.5" in shown and "kNN-LM" in shown
    if kind == "latex":
        assert shown.count(r"\begin{tabular}") == shown.count(r"\end{tabular}") == 1
        assert r"\checkmark{}" in shown and r"perplexity (word) $\downarrow$" in shown and "AMD EPYC" in shown


def test_the_records_of_every_eval_ever_have_what_the_schema_demands(results, capsys):
    """The demands are spelled out; the schema's own package validates all records in a slow test."""
    assert call("table", "knnlm-wikitext", "--scale", "small", "--results", results, "--format", "eee") == 0
    records = json.loads(capsys.readouterr().out)
    kinds = {record["source_metadata"]["source_type"] for record in records}
    assert kinds == {"evaluation_run", "documentation"}
    assert len({record["evaluation_id"] for record in records}) == len(records)
    for record in records:
        assert {
            "schema_version", "evaluation_id", "retrieved_timestamp", "source_metadata", "model_info", "eval_library",
            "evaluation_results",
        } <= record.keys()  # fmt: skip
        assert {"deployment_type", "model_availability"} <= record["model_info"]["additional_details"].keys()
        assert {"name", "id"} <= record["model_info"].keys() and {"name", "version"} <= record["eval_library"].keys()
        for one in record["evaluation_results"]:
            assert {"evaluation_name", "source_data", "metric_config", "score_details"} <= one.keys()
            config, score = one["metric_config"], one["score_details"]
            assert config["min_score"] <= score["score"] <= config["max_score"]
            assert all(isinstance(text, str) for text in score["details"].values())
    (exact,) = [r for r in records if r["evaluation_id"].startswith("knnlm-wikitext/kNN-LM / FoSS=0/small")]
    (speed,) = [one for one in exact["evaluation_results"] if one["evaluation_name"].endswith("speedup")]
    assert speed["score_details"]["details"]["baseline"] == "lm" and not speed["metric_config"]["lower_is_better"]
    interval = speed["score_details"]["uncertainty"]["confidence_interval"]
    assert interval["lower"] < speed["score_details"]["score"] < interval["upper"]


def _python_of_every_eval_ever() -> str | None:
    for name in ("python3.14", "python3.13", "python3.12"):
        if (found := shutil.which(name)) and not subprocess.run([found, "-c", ""], capture_output=True).returncode:
            return found
    return None


@pytest.mark.slow
def test_every_eval_evers_own_validator_accepts_the_records_of_all_committed_recipes(tmp_path):
    """The package needs Python 3.12 and an older `rich` than ours, so it gets an environment of its own."""
    if (python := _python_of_every_eval_ever()) is None:
        pytest.skip("every-eval-ever needs Python 3.12 or newer, and none is installed")
    subprocess.run([python, "-m", "venv", tmp_path / "env"], check=True)
    own = tmp_path / "env" / "bin" / "python"
    pip = [own, "-m", "pip", "install", "--quiet", f"every-eval-ever=={every_eval.SCHEMA}"]
    if (done := subprocess.run(pip, capture_output=True, text=True)).returncode:
        pytest.skip(f"every-eval-ever cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    files = []
    for one in stored.stored(ROOT / "results", Registry(), ("measured",)):
        for record in every_eval.records(one.recipe, one.newest(), one.numbers.numbers):
            files.append(f"data/{every_eval.ORGANISATION}/{record['model_info']['id']}/{uuid.uuid4()}.json")
            (tmp_path / files[-1]).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / files[-1]).write_text(json.dumps(record))
    assert len(files) > 100
    command = [own, "-m", "every_eval_ever", "validate", "--format", "json", *files]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    judged = json.loads(done.stdout)
    said = [problem for one in judged for problem in (*one["errors"], *one["warnings"])]
    assert said == [] and done.returncode == 0 and len(judged) == len(files)


def test_names_of_models_become_identities_that_differ_as_the_names_do():
    names = ["GAD", "GAD++", "GAD, k=25", "GAD++, k=25", "∞-gram LM", "n-gram LM", "train:mini on embedded"]
    found = [every_eval._identity("paper", name) for name in names]
    assert len(set(found)) == len(names) and all(re.fullmatch(r"paper/[A-Za-z0-9.-]+", one) for one in found), found
    assert every_eval._identity("paper", "openai-community/gpt2") == "openai-community/gpt2"


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
    table = stored.of("knnlm-wikitext", "small", results, Registry()).table()
    page = r"\documentclass{article}\usepackage{booktabs,amssymb}\begin{document}" + latex.as_latex(table)
    (tmp_path / "table.tex").write_text(page + r"\end{document}", encoding="utf-8")
    subprocess.run(["pdflatex", "-halt-on-error", "table.tex"], cwd=tmp_path, check=True, capture_output=True)


def test_the_frame_has_a_line_for_each_cell_with_intervals_and_published_numbers(results):
    found = frame(results)
    exact = found[(found.recipe == "knnlm-wikitext") & (found.row == "kNN-LM") & (found.column == "FoSS=0")].iloc[0]
    assert exact.word_perplexity == pytest.approx(197.9, abs=0.05)
    assert exact.word_perplexity_low < exact.word_perplexity < exact.word_perplexity_high
    assert exact.word_perplexity_published == 16.65 and exact.decision == "slower"
    assert frame(results, kinds=["runs"]).empty


# ---------------------------------------------------------------- the overview


def mark(method="l2s", speedup=2.0, lost=0.01, decision="faster", scale="small", contract="softmax-screening"):
    given = {
        "contract": contract, "method": method, "task": "t", "baseline": "exact", "declared": True, "recipe": "r",
        "scale": scale, "label": "row", "column": "", "speedup": speedup, "interval": (speedup - 0.1, speedup + 0.1),
        "decision": decision, "lost": None if lost is None else overview.Lost(lost, "answers", "exact"),
    }  # fmt: skip
    return overview.Mark(**given)


def marks_of(name, rows):
    """The marks of rows as if the recipe expanded to a cell for each, but for those called `retired`."""
    recipe = stored.recipes.load(name, Registry())
    every = []
    for scale in ("small", "mini"):
        found = [row for row in rows if row["scale"] == scale]
        cells = [
            Cell(
                recipe=name, row=row["row"], column="", scale=scale, kind="pair", method=Named(row["method"]),
                task=Named(row["task"]), speed_baseline=None, fidelity_baseline=None, fidelity=None, timing=Timing(),
                timed=True, seed=1,
            )
            for row in found if row["row"] != "retired"
        ]  # fmt: skip
        if found:
            every.append(stored.Stored(recipe, scale, found, cells, stored.published.of(recipe)))
    return overview.marks(every, Registry())


def test_a_method_is_represented_by_its_largest_scale_then_by_a_decided_speed_then_by_order():
    def one(scale, row, speedup, shape=(10, 3)):
        return with_samples(
            new_row(
                recipe="l2s-table1", scale=scale, row=row, method="l2s", task="ptb-next-word", seed=1, device="cpu",
                metrics={"precision_at_1": 0.99}, fidelity={"metric": "precision_at_1", "holds": True},
                speed_baseline={"method": "exact", "params": {}}, fidelity_baseline={"method": "exact", "params": {}},
            ),
            speedup, shape=shape,
        )  # fmt: skip

    def chosen(*rows):
        return marks_of("l2s-table1", rows)

    (found,) = chosen(one("mini", "A", 9.0), one("small", "B", 3.0), one("small", "C", 5.0))
    assert (found.label, found.others, found.scale) == ("B", 2, "small")
    assert found.lost is not None and found.lost.share == pytest.approx(0.01) and found.comparable
    (found,) = chosen(one("small", "retired", 9.0), one("small", "C", 5.0))
    assert found.label == "C" and found.others == 0
    (found,) = chosen(one("small", "B", 3.0, shape=(1, 2)), one("small", "C", 5.0))
    assert (found.label, found.decision) == ("C", "faster")


def test_what_a_user_chooses_between_has_a_mark_of_its_own():
    """CTranslate2 in float32 and in int8 are two engines, of which the slower one must not stand for both."""
    rows = [
        with_samples(
            new_row(
                recipe="iad-table1", scale="small", row=f"{compute} {threads}", method="ctranslate2",
                task="conll-gec", seed=1, device="cpu", metrics={"exact_match": 1.0},
                fidelity={"metric": "exact_match", "holds": True},
                params={"method": {"beam": 1, "compute": compute, "intra_threads": threads}, "task": {}},
                speed_baseline={"method": "beam", "params": {}}, fidelity_baseline={"method": "greedy", "params": {}},
            ),
            speedup,
        )
        for compute, threads, speedup in (("float32", 2, 1.5), ("int8", 1, 3.4), ("int8", 2, 3.3))
    ]  # fmt: skip
    found = marks_of("iad-table1", rows)
    assert [(mark.name, mark.others) for mark in found] == [
        ("ctranslate2 (beam=1, compute=float32)", 0),
        ("ctranslate2 (beam=1, compute=int8)", 1),
    ]


def test_quality_lost_is_of_answers_or_of_perplexity_against_the_fidelity_baseline():
    def lost(baseline="exact", **metrics):
        against = {"method": baseline, "params": {"k": 8}}
        params = {"method": {"k": 4}, "task": {}}
        row = new_row(method="knnlm", params=params, metrics=metrics, fidelity_baseline=against)
        return overview.lost(row, Registry())

    assert lost(precision_at_1=0.9) == overview.Lost(pytest.approx(0.1), "answers", "exact")
    assert lost(perplexity=55.0, perplexity_difference=5.0).share == pytest.approx(0.1)
    better = lost("knnlm", perplexity=45.0, perplexity_difference=-5.0)
    assert better == overview.Lost(pytest.approx(-0.1), "perplexity", "knnlm")
    assert lost(bleu=30.0) is None and overview.lost(new_row(metrics={"exact_match": 1.0}), Registry()) is None
    int8 = {"method": "greedy", "params": {"engine": "int8"}}
    row = new_row(method="iad", metrics={"exact_match": 1.0}, fidelity_baseline=int8)
    assert overview.lost(row, Registry()).against == "greedy (engine=int8)", "its variant is told"


def test_a_method_over_itself_is_named_by_what_differs():
    params = {"method": {"k": 4, "foss": 0.6}, "task": {}}
    exact = {"method": "knnlm", "params": {"k": 4, "foss": 0.0}}
    row = new_row(method="knnlm", params=params, speed_baseline=exact)
    assert overview._variant(row, exact, Registry()) == "foss=0.6"
    assert overview._baseline(exact, Registry()) == "knnlm"
    assert overview._variant(row, {"method": "lm", "params": {}}, Registry()) == ""


def test_quality_against_another_baseline_than_the_timed_one_says_so():
    other = replace(mark("iad"), lost=overview.Lost(0.0, "answers", "greedy"), baseline="beam")
    assert page.lost(other) == "none (against greedy)"
    assert page.lost(mark(lost=0.0017)) == "0.17%" and page.lost(mark(lost=0.0)) == "none"
    worse = replace(mark(), lost=overview.Lost(0.02, "perplexity", "exact"))
    assert page.lost(worse) == "perplexity +2%"


def test_a_label_is_text_and_no_markup(results):
    rows = [new_row(recipe="r", row="<script>alert(1)</script>", scale="mini", metrics={"bleu": 1.0})]
    recipe = stored.recipes.load("l2s-table1", Registry())
    table = stored.tables.build(recipe, "mini", [{**row, "recipe": recipe.name} for row in rows], stored.Published([]))
    section = page.Section("n", "mini", "a", "c", table, "", {})
    text = page.as_html([], [section])
    assert "<script>" not in text and "&lt;script&gt;" in text


def test_the_front_has_no_mark_that_another_beats_in_both():
    marks = [mark("a", 2, 0.0), mark("b", 5, 0.01), mark("c", 4, 0.02), mark("d", 9, 0.1), mark("e", 99, None)]
    assert [one.method for one in overview.pareto(marks)] == ["a", "b", "d"]


def test_the_overview_figure_is_the_same_bytes_and_needs_compared_answers():
    marks = [mark(), mark("svd-softmax", 1.5, 0.0), mark("iad", 6, 0.0, contract="sequence-decoding")]
    assert scatter.draw(marks) == scatter.draw(marks)
    assert list(overview.panels(marks)) == ["sequence-decoding", "softmax-screening"]
    with pytest.raises(ValueError, match="compared"):
        scatter.draw([mark(lost=None)])


def test_a_panel_has_the_baseline_and_the_reference_that_most_methods_share():
    """Over beam search with answers compared with greedy decoding's: greedy decoding is a mark with nothing lost, not
    one that changes what beam search writes."""

    def of(method, baseline, against, **given):
        lost = overview.Lost(given.pop("share", 0.0), "answers", against)
        return replace(mark(method, **given), baseline=baseline, lost=lost)

    exact = "greedy (engine=float32)"
    marks = [
        of("iad", exact, exact, speedup=1.4),
        of("iad", "beam", exact, speedup=3.0),
        replace(of("greedy", "beam", "beam", share=0.3, speedup=2.0), variant="engine=float32"),
        replace(of("greedy", "beam", exact, share=0.1, speedup=4.0), variant="engine=int8"),
        replace(of("iad", "beam", exact, scale="mini", speedup=9.0), variant="engine=int8"),
        replace(of("greedy", "beam", "beam", share=0.4, speedup=5.0), variant="engine=int4"),
    ]
    (panel,) = overview.panels(marks).values()
    assert (panel.task, panel.baseline, panel.against) == ("t", "beam", exact)
    assert [(one.name, one.speedup, one.lost.share) for one in panel.marks] == [
        ("iad", 3.0, 0.0), ("greedy (engine=int8)", 4.0, 0.1), (exact, 2.0, 0.0),
    ], "another variant of the reference is no reference"  # fmt: skip
    (panel,) = overview.panels(marks[:2]).values()
    assert panel.baseline == exact, "of equals the one whose baseline is the reference"
    other = replace(marks[0], task="u", method="spec", headline=True)
    (panel,) = overview.panels([marks[0], other]).values()
    assert panel.task == "u", "and of these the headline recipe's"


def test_committed_rows_are_those_of_recipes_that_are_still_there():
    """Nothing under results/measured is orphaned: each folder is a recipe's, and its rows can be read."""
    names = {path.parent.parent.name for path in MEASURED.glob("*/*/rows.jsonl")}
    found = stored.stored(ROOT / "results", Registry(), kinds=["measured"])
    assert {one.recipe.name for one in found} == names
    assert all(RowStore(MEASURED / one.recipe.name / one.scale / "rows.jsonl").rows() for one in found)
