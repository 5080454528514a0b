"""Only whole, clean, sufficient runs are kept, and without this machine's paths."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import environment
from harness.errors import MachineError, RequestError
from harness.keep import Scrubber, keep
from harness.recipe import parse
from harness.store import RowStore, new_row

RECIPE = parse("{name: demo, title: t, paper: p, source: s, task: {name: t}, cells: [{row: LM, method: lm}]}", "demo")
ENVIRONMENT = environment.capture()


@dataclass(frozen=True)
class Cell:
    name: str


CELLS = [Cell("LM"), Cell("kNN-LM")]


def row(name, *, shape=(10, 3), dirty=False, revision="r1", machine="CPU", **known):
    processes = [{"pairs": [{}] * shape[1]} for _ in range(shape[0])]
    before = ENVIRONMENT | {"cpu": {"model": machine}}
    compared = name != "LM"
    return new_row(**({
        "recipe": "demo", "row": name, "scale": "small", "method": "m", "task": "t",
        "code": {"revision": revision, "dirty": dirty}, "environment": {"before": before, "after": before},
        "timing": {"processes": processes}, "metrics": {"speedup": 2.0} if compared else {},
        "speed_baseline": {"method": "lm", "params": {}} if compared else None,
    } | known))  # fmt: skip


@pytest.fixture
def run(tmp_path):
    """Write rows as a run and try to keep it."""

    def attempt(*rows, files=("table.md", "table.csv", "figure.svg")):
        folder = tmp_path / "results" / "runs" / "demo" / "small"
        folder.mkdir(parents=True, exist_ok=True)
        store = RowStore(folder / "rows.jsonl")
        for one in rows:
            store.append(one)
        for name in files:
            (folder / name).write_text(f"{name} from {folder}")
        results = tmp_path / "results"
        return keep(RECIPE, "small", results / "runs", results / "measured", CELLS)

    return attempt


def test_the_newest_row_of_each_cell_is_kept_with_table_and_figure(run):
    target = run(row("LM"), row("kNN-LM", status="failed"), row("gone"), row("kNN-LM", shape=(6, 4)))
    assert sorted(path.name for path in target.iterdir()) == ["figure.svg", "rows.jsonl", "table.csv", "table.md"]
    kept = RowStore(target / "rows.jsonl").rows()
    assert [(one["cell"], one["status"]) for one in kept] == [("LM", "ok"), ("kNN-LM", "ok")]
    again = run(row("LM", seconds=9.0), row("kNN-LM"))
    assert RowStore(again / "rows.jsonl").latest()["LM"]["seconds"] == 9.0
    assert [path.name for path in again.parent.iterdir()] == ["small"]


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
        ([row("LM"), row("kNN-LM", timing=None)], r"kNN-LM \(0 x 0\)"),
    ],
)
def test_what_may_not_be_kept_is_refused_with_the_reason(run, tmp_path, rows, reason):
    with pytest.raises(RequestError, match=reason):
        run(*rows)
    assert not (tmp_path / "results" / "measured").exists()


def test_a_run_without_its_table_is_refused(run):
    with pytest.raises(RequestError, match=r"table\.csv missing"):
        run(row("LM"), row("kNN-LM"), files=("table.md",))


def test_paths_of_this_machine_do_not_reach_the_kept_files(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HARNESS_CACHE", str(Path.home() / "cache"))
    params = {"method": {"k": 8}, "task": {"model": "/srv/models/gpt2", "index": str(Path.home() / "cache" / "x")}}
    facts = {"corpus": str(tmp_path / "data" / "wikitext-2"), "home": str(Path.home() / "notes"), "ratio": "a/b, 1/2/3"}
    target = run(row("LM", params=params, facts=facts), row("kNN-LM"))
    content = "".join(path.read_text() for path in target.iterdir() if path.suffix != ".svg")
    assert str(tmp_path) not in content and str(Path.home()) not in content and "/srv" not in content
    kept = json.loads((target / "rows.jsonl").read_text().splitlines()[0])
    assert kept["params"]["task"] == {"model": "<path>/gpt2", "index": "$HARNESS_CACHE/x"}
    assert kept["facts"] == {"corpus": "$HARNESS_DATA/wikitext-2", "home": "~/notes", "ratio": "a/b, 1/2/3"}


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        ("WikiText-103 / FoSS=0", "WikiText-103 / FoSS=0"),
        ("https://huggingface.co/openai/gpt2", "https://huggingface.co/openai/gpt2"),
        ("openai/gpt2 at 3/4", "openai/gpt2 at 3/4"),
        ("cannot read '/mnt/a b/x': no", "cannot read '<path>/a b/x': no"),
        ("file:///mnt/d/m.db", "<path>/m.db"),
    ],
)
def test_only_absolute_paths_are_replaced(text, scrubbed):
    assert Scrubber().text(text) == scrubbed


def test_when_writing_fails_what_was_kept_before_stays(run, monkeypatch):
    target = run(row("LM"), row("kNN-LM"))
    before = (target / "rows.jsonl").read_text()
    blocker = target.with_name(".small.new")
    blocker.write_text("a file where the new folder should be made")
    with pytest.raises(MachineError, match="what was there is unchanged"):
        run(row("LM", seconds=1.0), row("kNN-LM"))
    assert (target / "rows.jsonl").read_text() == before
