"""Two stored runs: false verdicts are rare, a slowdown is found, and what cannot be compared says why."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest

from harness.cli import main
from harness.contracts.rows import new_row
from harness.measure.evidence import state
from harness.measure.store import RowStore
from harness.show import compare
from harness.show.report import latex
from tests.harness.measure.simulated_timing import Machine

HASHES = {"data": "d", "model": "m", "key": "k"}


def row(processes, cell="method", **changes):
    """A row with these timing processes."""
    found = new_row(
        recipe="demo", scale="small", row=cell, column="", method="m", task="t", seed=1, device="cpu",
        metrics={"exact_match": 1.0}, intervals={"exact_match": [0.9, 1.0]}, hashes=HASHES,
        speed_baseline={"method": "exact", "params": {}}, started="2026-01-01T00:00:00", seconds=1.0,
        timing={"processes": [process.as_dict() for process in processes], "objections": []} if processes else None,
    )  # fmt: skip
    found = {**found, **changes}
    if processes:
        state(found)
    return found


def stored(folder, *rows):
    folder.mkdir(parents=True, exist_ok=True)
    store = RowStore(folder / "rows.jsonl")
    for one in rows:
        store.append(one)
    return folder


def verdicts(kind, slowdown, runs, resamples):
    """Of pairs of simulated runs, the second slower by a factor: how often each verdict on resampled processes, which
    differ more than those of runs do."""
    counts = {"better": 0, "worse": 0, "no difference shown": 0}
    rng = np.random.default_rng(0)
    for seed in range(runs):
        one, other = Machine(kind, seed).cell(10, 3, 4.0), Machine(kind, 1000 + seed).cell(10, 3, 4.0 / slowdown)
        for _ in range(resamples):
            drawn = rng.integers(10, size=10)
            found = compare.speed_change([one[n] for n in drawn], [other[n] for n in drawn])
            change, (low, high) = found
            shown = abs(change - 1) >= compare.LEAST and not low <= 1 <= high
            counts["no difference shown" if not shown else "better" if change > 1 else "worse"] += 1
    return {name: count / (runs * resamples) for name, count in counts.items()}


def test_equal_runs_differ_in_at_most_one_of_twenty():
    found = verdicts("quiet", 1.0, 1000, 1)
    assert found["better"] + found["worse"] <= 0.05


def test_a_slowdown_of_a_tenth_is_found():
    assert verdicts("quiet", 1.1, 300, 1)["worse"] >= 0.95


def test_runs_of_other_items_are_two_samples():
    one, other = Machine("quiet", 1).cell(10, 3, 4.0), Machine("quiet", 2).cell(12, 3, 2.0)
    change, (low, high) = compare.speed_change(one, other)
    assert low <= 0.5 * 1.05 and high >= 0.5 * 0.95 and change == pytest.approx(0.5, rel=0.05)
    assert compare.speed_change(one[:5], other) is None


def test_each_cell_is_better_worse_alike_or_not_comparable(tmp_path, capsys):
    machine = Machine("quiet", 3)
    fast, slow = machine.cell(10, 3, 4.0), machine.cell(10, 3, 2.0)
    before = stored(
        tmp_path / "before", row(fast, "same"), row(fast, "slower"), row(slow, "faster"), row(fast, "gone"),
        row(fast, "failed"), row(fast, "other data"), row([], "worse answers"),
    )  # fmt: skip
    worse = row([], "worse answers", metrics={"exact_match": 0.5}, intervals={"exact_match": [0.4, 0.6]})
    after = stored(
        tmp_path / "after", row(fast, "same"), row(slow, "slower"), row(fast, "faster"), row(fast, "new"),
        row([], "failed", status="failed"), row(fast, "other data", hashes={**HASHES, "data": "e"}), worse,
    )  # fmt: skip
    found = {one.cell: one for one in compare.compare(before, after)}
    assert {name: one.verdict for name, one in found.items()} == {
        "same": "no difference shown", "slower": "worse", "faster": "better", "gone": "not comparable",
        "failed": "not comparable", "other data": "not comparable", "worse answers": "worse", "new": "not comparable",
    }  # fmt: skip
    assert found["gone"].reason == "the second run has no such cell" and "other data" in found["other data"].reason
    assert found["failed"].reason == "it failed in the second run"
    assert found["slower"].changes[0].change == pytest.approx(0.5, rel=0.1)
    for name in compare.FORMATS:
        with pytest.raises(SystemExit) as ended:
            main(["compare", str(before), str(after), "--format", name])
        assert ended.value.code == 1  # something is worse
        text = capsys.readouterr().out
        assert "slower" in text and ("not comparable" in text)
        if name == "json":
            assert len(json.loads(text)) == 8
    with pytest.raises(SystemExit) as ended:
        main(["compare", str(before), str(before)])
    assert ended.value.code == 0


def test_few_processes_give_no_verdict_on_speed(tmp_path):
    few = Machine("quiet", 5).cell(3, 3, 2.0)
    before, after = (stored(tmp_path / name, row(few, metrics={}, intervals={})) for name in ("before", "after"))
    [found] = compare.compare(before, after)
    assert found.verdict == "not comparable" and found.changes[0].metric == "speedup"


def test_places_without_rows_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["compare", str(tmp_path), str(tmp_path)])
    assert ended.value.code == 2 and "holds no rows" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["compare", str(tmp_path), str(tmp_path), "--format", "html"])
    assert ended.value.code == 2


def test_latex_is_escaped():
    assert latex.escaped("50% of A_1 & {B} ×") == r"50\% of A\_1 \& \{B\} $\times$"
    one = compare.Compared("r", "small", "c_d", "worse", "")
    text = compare.as_latex([one])
    assert text.count(r"\\") == 2 and r"c\_d" in text and r"\bottomrule" in text


def test_a_row_is_not_changed_by_comparing(tmp_path):
    one = row(Machine("quiet", 4).cell(10, 3, 2.0))
    kept = copy.deepcopy(one)
    folder = stored(tmp_path, one)
    compare.compare(folder, folder)
    assert one == kept
