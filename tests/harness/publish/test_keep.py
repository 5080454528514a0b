"""Only whole, clean, sufficient runs are kept, and without this machine's paths."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.common.errors import MachineError, RequestError
from harness.groups import by_cell
from harness.measure import environment
from harness.measure.store import RowStore
from harness.plan.cell import Named
from harness.plan.recipe import parse
from harness.plan.schema import Fidelity, Figure, Timing
from harness.publish.keep import keep, known_folders, scrubbed
from tests.harness.made import cell_of
from tests.harness.rows import new_row, with_samples

RECIPE = parse("{name: demo, title: t, paper: p, source: s, task: {name: t}, cells: [{row: LM, method: lm}]}", "demo")
ENVIRONMENT = environment.capture()


LM = cell_of("m", "t", row="LM")
CELLS = [LM, replace(LM, row="kNN-LM", speed_baseline=Named("lm", {"sizes": (1, 2)}))]


def row(name, *, speedup=2.0, shape=(10, 3), first=0, dirty=False, revision="r1", machine="CPU", **known):
    before = ENVIRONMENT | {"cpu": {"model": machine}}
    compared = name != "LM"
    made = new_row(**({
        "recipe": "demo", "row": name, "scale": "small", "method": "m", "task": "t", "seed": 1,
        "code": {"revision": revision, "dirty": dirty}, "environment": {"before": before, "after": before},
        "speed_baseline": {"method": "lm", "params": {"sizes": [1, 2]}} if compared else None,
        "hashes": {"cell": CELLS[compared].hash, "key": f"key of {name}"},
    } | known))  # fmt: skip
    return with_samples(made, speedup, shape=shape, first=first, single=made.speed_baseline is None)


@pytest.fixture
def run(tmp_path):
    """Write rows as a run and try to keep it."""

    def attempt(*rows, recipe=RECIPE, cells=CELLS, scale="small"):
        folder = tmp_path / "results" / "runs" / "demo" / scale
        folder.mkdir(parents=True, exist_ok=True)
        store = RowStore(folder / "rows.jsonl")
        for one in rows:
            store.append(one)
        (folder / "table.md").write_text("a table of an earlier run")
        results = tmp_path / "results"
        return keep(recipe, scale, results / "runs", results / "measured", cells)

    return attempt


def test_the_newest_row_of_each_cell_is_kept_with_a_table(run):
    target = run(row("LM"), row("kNN-LM", status="failed"), row("gone"), row("kNN-LM", shape=(6, 4)))
    assert sorted(path.name for path in target.iterdir()) == ["rows.jsonl", "table.csv", "table.md"]
    kept = RowStore(target / "rows.jsonl").rows()
    assert [(one.cell, one.status) for one in kept] == [("LM", "ok"), ("kNN-LM", "ok")]
    again = run(row("LM", seconds=9.0), row("kNN-LM"))
    assert by_cell(RowStore(again / "rows.jsonl").rows())["LM"].seconds == 9.0
    assert [path.name for path in again.parent.iterdir()] == ["small"]


def test_a_cell_that_was_skipped_for_an_absent_package_is_kept_with_its_reason(run):
    why = {"message": "the toy shop is not installed", "log": ""}
    absent = replace(row("kNN-LM", status="skipped", error=why), processes=())
    target = run(row("LM"), absent)
    assert [one.status for one in RowStore(target / "rows.jsonl").rows()] == ["ok", "skipped"]
    table = (target / "table.md").read_text()
    assert "SKIPPED" in table and "kNN-LM: skipped, the toy shop is not installed" in table


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([], "has no rows to keep: run `harness reproduce demo --scale small`"),
        ([row("LM")], "no row for kNN-LM"),
        ([row("LM"), row("kNN-LM", status="timeout")], r"not finished: kNN-LM \(timeout\)"),
        ([row("LM"), row("kNN-LM", dirty=True)], "uncommitted changes .*--scale small --fresh`"),
        ([row("LM"), row("kNN-LM", dirty=None)], "uncommitted changes or outside git"),
        ([row("LM"), row("kNN-LM", revision="r2")], "2 different revisions"),
        ([row("LM"), row("kNN-LM", machine="B")], "different machines"),
        ([row("LM"), row("kNN-LM", shape=(9, 3))], r"6 x 4 or 10 x 3 needed: kNN-LM \(9 x 3\)"),
        ([row("LM"), row("kNN-LM", shape=(5, 40))], r"kNN-LM \(5 x 40\)"),
    ],
)
def test_what_may_not_be_kept_is_refused_with_the_reason(run, tmp_path, rows, reason):
    with pytest.raises(RequestError, match=reason):
        run(*rows)
    assert not (tmp_path / "results" / "measured").exists()


def test_a_timed_analysis_needs_the_samples_of_a_claim_too(run):
    """It compares two times without a speed baseline."""
    cells = [LM, replace(LM, row="waiting", kind="analysis")]
    few, enough = (
        with_samples(row("waiting", hashes={"cell": cells[1].hash, "key": "k"}, speed_baseline=None), shape=shape)
        for shape in ((9, 3), (10, 3))
    )
    with pytest.raises(RequestError, match=r"6 x 4 or 10 x 3 needed: waiting \(9 x 3\)"):
        run(row("LM"), few, cells=cells)
    assert run(row("LM"), replace(enough, hashes={**enough.hashes, "key": "l"}), cells=cells).exists()


def test_the_kept_table_and_figure_show_the_kept_rows(run):
    figure = RECIPE.model_copy(update={"figure": Figure(x="foss", y="speedup")})
    target = run(row("LM"), row("kNN-LM", speedup=3.75, metrics={"foss": 0.5}), recipe=figure)
    table = (target / "table.md").read_text()
    assert "3.75" in table and "earlier" not in table
    assert (target / "figure.svg").stat().st_size and (target / "figure.png").stat().st_size


def test_a_later_run_with_overrides_does_not_hide_the_rows_that_may_be_kept(run):
    target = run(row("LM"), row("kNN-LM"), row("kNN-LM", params={"method": {"k": 9}, "task": {}}))
    assert by_cell(RowStore(target / "rows.jsonl").rows())["kNN-LM"].params["method"] == {}


@pytest.mark.parametrize(
    ("known", "difference"),
    [
        ({"params": {"method": {"k": 9}, "task": {}}}, "kNN-LM: method's k 9 instead of not given"),
        ({"params": {"method": {}, "task": {"model": "gpt2"}}}, "task's model gpt2 instead of not given"),
        ({"method": "other"}, "method other instead of m"),
        ({"speed_baseline": {"method": "lm", "params": {"sizes": [3]}}}, r"sizes \[3\] instead of \[1, 2\]"),
        ({"speed_baseline": None}, "speed baseline none instead of lm"),
        ({"fidelity_baseline": {"method": "lm", "params": {}}}, "fidelity baseline lm instead of none"),
        ({"seed": 2}, "seed 2 instead of 1"),
    ],
)
def test_rows_of_other_settings_than_the_recipes_are_refused(run, known, difference):
    with pytest.raises(RequestError, match=f"other settings than the recipe's.*{difference}"):
        run(row("LM"), row("kNN-LM", **known))


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (
            {"fidelity": Fidelity(**{"is": "exact_match at least 0.9"})},
            "other labels, fidelity, timing",
        ),
        ({"timing": Timing(threads=2)}, "other labels, fidelity, timing"),
        ({"timing": Timing(processes=12)}, "other labels, fidelity, timing"),
        ({"timed": False}, "other labels, fidelity, timing"),
        ({"row": "kNN", "column": "LM"}, "other labels, fidelity, timing"),  # the same name, cut elsewhere
        ({"task": Named("t", {"timed": 5})}, "task's timed not given instead of 5"),  # the length of a sample
    ],
)
def test_rows_measured_before_the_recipe_changed_are_refused(run, change, difference):
    before = replace(CELLS[1], row="kNN / LM", fidelity=Fidelity(**{"is": "exact_match at least 1"}))
    rows = [row("LM"), row(before.name, hashes={"cell": before.hash, "key": "k"})]
    assert run(*rows, cells=[LM, before])
    with pytest.raises(RequestError, match=f"other settings than the recipe's.*kNN / LM: {difference}"):
        run(*rows, cells=[LM, replace(before, **change)])


def test_a_row_of_another_label_is_no_row_of_the_cell(run):
    with pytest.raises(RequestError, match="no row for kNN-LM, k=8"):
        run(row("LM"), row("kNN-LM"), cells=[LM, replace(CELLS[1], row="kNN-LM, k=8")])


def test_longer_patience_voids_nothing(run):
    assert run(row("LM"), row("kNN-LM"), cells=[LM, replace(CELLS[1], timing=Timing(timeout=9))])


def test_all_repeats_are_kept_and_the_table_shows_them_pooled(run):
    target = run(
        row("LM"), row("kNN-LM", speedup=2.0), row("kNN-LM", status="failed"), row("kNN-LM", speedup=4.0, first=10)
    )
    kept = RowStore(target / "rows.jsonl").rows()
    assert [(one.cell, one.speedup) for one in kept] == [
        ("LM", None), ("kNN-LM", pytest.approx(2)), ("kNN-LM", pytest.approx(4)),
    ]  # fmt: skip
    line = next(line for line in (target / "table.md").read_text().splitlines() if line.startswith("| kNN-LM"))
    assert "3.00 [2.56, 3.52]" in line


@pytest.mark.parametrize("known", [{"dirty": True}, {"revision": "r0"}])
def test_an_earlier_measurement_of_another_state_of_the_code_is_no_repeat_and_stands_in_no_ones_way(run, known):
    target = run(row("LM"), row("kNN-LM", **known), row("kNN-LM", first=10))
    kept = RowStore(target / "rows.jsonl").rows()
    assert [(one.cell, one.code["dirty"], one.code["revision"]) for one in kept] == [
        ("LM", False, "r1"), ("kNN-LM", False, "r1"),
    ]  # fmt: skip


def test_a_measurement_under_another_key_is_no_repeat(run):
    other = row("kNN-LM", speedup=2.0, hashes={"cell": CELLS[1].hash, "key": "of older code"})
    target = run(row("LM"), other, row("kNN-LM", speedup=4.0))
    kept = RowStore(target / "rows.jsonl").rows()
    assert [one.speedup for one in kept] == [None, pytest.approx(4)]


def test_paths_of_this_machine_do_not_reach_the_kept_files(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HARNESS_CACHE", str(Path.home() / "cache"))
    params = {"method": {"k": 8}, "task": {"model": "/srv/models/gpt2", "index": str(Path.home() / "cache" / "x")}}
    facts = {"corpus": str(tmp_path / "data" / "wikitext-2"), "home": str(Path.home() / "notes"), "ratio": "a/b, 1/2/3"}
    cells = [replace(LM, method=Named("m", params["method"]), task=Named("t", params["task"])), CELLS[1]]
    own = row("LM", params=params, facts=facts, hashes={"cell": cells[0].hash, "key": "LM"})
    target = run(own, row("kNN-LM"), cells=cells)
    content = "".join(path.read_text() for path in target.iterdir() if path.suffix != ".svg")
    assert str(tmp_path) not in content and str(Path.home()) not in content and "/srv" not in content
    kept = json.loads((target / "rows.jsonl").read_text().splitlines()[0])
    assert kept["params"]["task"] == {"model": "<path>/gpt2", "index": "$HARNESS_CACHE/x"}
    assert kept["facts"] == {"corpus": "$HARNESS_DATA/wikitext-2", "home": "~/notes", "ratio": "a/b, 1/2/3"}


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("WikiText-103 / FoSS=0", "WikiText-103 / FoSS=0"),
        ("https://huggingface.co/openai/gpt2", "https://huggingface.co/openai/gpt2"),
        ("openai/gpt2 at 3/4", "openai/gpt2 at 3/4"),
        ("cannot read '/mnt/a b/x': no", "cannot read '<path>/a b/x': no"),
        ("file:///mnt/d/m.db", "<path>/m.db"),
    ],
)
def test_only_absolute_paths_are_replaced(tmp_path, text, clean):
    assert scrubbed(text, known_folders(tmp_path)) == clean


def test_sentences_of_a_data_set_are_not_kept_but_what_an_analysis_found_in_it_is(run):
    example = {"source": "A sentence of others .", "output": "It ."}
    kept = run(row("LM", examples=[example]), row("kNN-LM", examples=[example]))
    assert "sentence of others" not in "".join(path.read_text() for path in kept.iterdir())
    cells = [replace(CELLS[0], kind="analysis"), CELLS[1]]
    found = row("LM", examples=[{"output": "of the"}], hashes={"cell": cells[0].hash, "key": "k"}, seconds=9.0)
    kept = run(found, row("kNN-LM", examples=[example]), cells=cells)
    assert [one.examples != [] for one in RowStore(kept / "rows.jsonl").rows()] == [True, False]
    generated = run(row("LM", examples=[example]), row("kNN-LM", examples=[example]), scale="mini")
    assert "sentence of others" in (generated / "rows.jsonl").read_text(), "at mini every sentence is generated"


def test_when_writing_fails_what_was_kept_before_stays(run, monkeypatch):
    target = run(row("LM"), row("kNN-LM"))
    before = (target / "rows.jsonl").read_text()
    blocker = target.with_name(".small.new")
    blocker.write_text("a file where the new folder should be made")
    with pytest.raises(MachineError, match="what was there is unchanged"):
        run(row("LM", seconds=1.0), row("kNN-LM"))
    assert (target / "rows.jsonl").read_text() == before
