"""Two stored runs: false verdicts are rare, a slowdown is found, and what cannot be compared says why."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from harness.cli import main
from harness.contracts.metrics import Metric, described
from harness.measure.store import RowStore
from harness.show import compare
from tests.harness.measure.simulated_timing import Machine
from tests.harness.rows import new_row

HASHES = {"data": "d", "model": "m", "key": "k"}


def simulated(machine, count, pairs, ratio):
    """Timing processes as a row has them."""
    return [asdict(process) for process in machine.cell(count, pairs, ratio)]


def row(processes, cell="method", **changes):
    """A row with these timing processes."""
    found = new_row(
        row=cell, metrics={"exact_match": 1.0}, intervals={"exact_match": [0.9, 1.0]}, hashes=HASHES,
        speed_baseline={"method": "exact", "params": {}}, processes=processes,
    )  # fmt: skip
    return replace(found, **changes)


def stored(folder, *rows):
    folder.mkdir(parents=True, exist_ok=True)
    store = RowStore(folder / "rows.jsonl")
    for one in rows:
        store.append(one)
    return folder


def verdicts(kind, slowdown, runs, processes=10):
    """Of pairs of simulated runs, the second slower by a factor: the share of each verdict. processes: of the second;
    another number than 10 makes them two samples."""
    counts = {"better": 0, "worse": 0, "no difference shown": 0}
    for seed in range(runs):
        one = simulated(Machine(kind, seed), 10, 3, 4.0)
        other = simulated(Machine(kind, 1000 + seed), processes, 3, 4.0 / slowdown)
        change, (low, high) = compare.speed_change(one, other)
        shown = abs(change - 1) >= compare.LEAST and not low <= 1 <= high
        counts["no difference shown" if not shown else "better" if change > 1 else "worse"] += 1
    return {name: count / runs for name, count in counts.items()}


@pytest.mark.parametrize("processes", [10, 12])
@pytest.mark.parametrize("kind", ["quiet", "heavy tails", "drift"])
def test_equal_runs_differ_in_at_most_one_of_fifty(kind, processes):
    found = verdicts(kind, 1.0, 500, processes)
    assert found["better"] + found["worse"] <= 0.02


@pytest.mark.parametrize(
    ("kind", "slowdown", "least"), [("quiet", 1.1, 0.95), ("drift", 1.1, 0.9), ("heavy tails", 1.2, 0.7)]
)
def test_a_slowdown_is_found(kind, slowdown, least):
    assert verdicts(kind, slowdown, 200)["worse"] >= least


def test_runs_of_other_items_are_two_samples():
    one, other = simulated(Machine("quiet", 1), 10, 3, 4.0), simulated(Machine("quiet", 2), 12, 3, 2.0)
    change, (low, high) = compare.speed_change(one, other)
    assert low <= 0.5 * 1.05 and high >= 0.5 * 0.95 and change == pytest.approx(0.5, rel=0.05)
    assert compare.speed_change(one[:5], other) is None


def test_each_cell_is_better_worse_alike_or_not_comparable(tmp_path, capsys):
    machine = Machine("quiet", 3)
    fast, slow = simulated(machine, 10, 3, 4.0), simulated(machine, 10, 3, 2.0)
    before = stored(
        tmp_path / "before", row(fast, "same"), row(fast, "slower"), row(slow, "faster"), row(fast, "gone"),
        row(fast, "failed"), row(fast, "other data"), row([], "worse answers"),
    )  # fmt: skip
    worse = row([], "worse answers", metrics={"exact_match": 0.5}, intervals={"exact_match": [0.4, 0.6]})
    after = stored(
        tmp_path / "after", row(fast, "same"), row(slow, "slower"), row(fast, "faster"), row(fast, "new"),
        row([], "failed", status="failed"), row(fast, "other data", hashes={**HASHES, "data": "e"}), worse,
    )  # fmt: skip
    compared = compare.compare(before, after)
    found = {cell: lines.iloc[0] for cell, lines in compared.groupby("cell")}
    assert {name: one.cell_verdict for name, one in found.items()} == {
        "same": "no difference shown", "slower": "worse", "faster": "better", "gone": "not comparable",
        "failed": "not comparable", "other data": "not comparable", "worse answers": "worse", "new": "not comparable",
    }  # fmt: skip
    assert found["gone"].change == "the second run has no such cell" and "other data" in found["other data"].change
    assert found["failed"].change == "it failed in the second run"
    assert found["slower"].metric == "speedup" and found["slower"].change.startswith("0.5")
    assert found["worse answers"][["metric", "before", "after"]].tolist() == [
        "exact_match", "1.00 [0.90, 1.00]", "0.500 [0.400, 0.600]",
    ]  # fmt: skip
    for name in compare.FORMATS:
        with pytest.raises(SystemExit) as ended:
            main(["compare", str(before), str(after), "--format", name])
        assert ended.value.code == 1  # something is worse
        text = capsys.readouterr().out
        assert "slower" in text and ("not comparable" in text)
        if name == "json":
            assert {one["cell"] for one in json.loads(text)} == set(found)
        else:
            assert "8 cells: 2 worse, 1 better, 1 no difference shown, 4 not comparable" in text
        if name == "github":
            told, _, folded = text.partition("<details>")
            assert "slower" in told and "faster" in told and "failed" in told
            assert ": same |" not in told and ": same |" in folded
    with pytest.raises(SystemExit) as ended:
        main(["compare", str(before), str(before)])
    assert ended.value.code == 0


def test_few_processes_give_no_verdict_on_speed(tmp_path):
    few = row(simulated(Machine("quiet", 5), 3, 3, 2.0), metrics={}, intervals={})
    before, after = (stored(tmp_path / name, few) for name in ("before", "after"))
    speed = compare.compare(before, after).iloc[0]
    assert (speed.metric, speed.cell_verdict) == ("speedup", "not comparable")


def test_rates_are_notes_and_so_are_times_of_a_cell_without_a_speedup(tmp_path):
    known = described(
        Metric("tokens_per_second", unit="tokens/s", better="higher", kind="time"),
        Metric("query_s", unit="s", better="lower", kind="time"),
    )

    def measured(processes, rate, **changes):
        values = {"tokens_per_second": rate, "query_s": 1 / rate}
        spans = {name: [0.98 * value, 1.02 * value] for name, value in values.items()}
        return row(processes, metrics=values, intervals=spans, described=known, **changes)

    ran = simulated(Machine("quiet", 5), 10, 3, 2.0)
    for number, (processes, changes, told) in enumerate(
        [(ran, {}, {"tokens_per_second"}), ([], {"speed_baseline": None}, {"tokens_per_second", "query_s"})]
    ):
        before = stored(tmp_path / f"before-{number}", measured(processes, 100.0, **changes))
        after = stored(tmp_path / f"after-{number}", measured(processes, 50.0, **changes))
        notes = compare.compare(before, after).query("metric != '' and verdict == 'note'")
        assert set(notes.metric) == told and not compare.is_worse(compare.compare(before, after))
        assert notes.set_index("metric").change["tokens_per_second"] == "0.5 times"
        assert not compare.compare(before, before).metric.isin(told).any()


def test_what_a_reader_of_a_verdict_must_know_has_a_line_of_its_own(tmp_path):
    timed = row(simulated(Machine("quiet", 5), 10, 3, 2.0))
    before = stored(tmp_path / "before", timed)
    after = stored(tmp_path / "after", replace(timed, params={"method": {"k": 9}, "task": {}}, processes=()))
    compared = compare.compare(before, after)
    alike, note, apart = compared.itertuples()
    assert (alike.verdict, note.verdict, note.cell_verdict) == ("no difference shown", "note", "no difference shown")
    assert (note.change, apart.change) == ("other parameters", "timed in the first run alone")
    assert apart.verdict == "not comparable", "a speed that cannot be compared is no pass where it is asked for"
    assert compare.is_worse(compared, strict=True) and not compare.is_worse(compared)


def test_baselines_are_the_same_where_the_parameters_agree_that_both_have(tmp_path):
    ran = simulated(Machine("quiet", 5), 10, 3, 2.0)
    older = row(ran, speed_baseline={"method": "exact", "params": {"k": 5, "gone": False}})
    newer = row(ran, speed_baseline={"method": "exact", "params": {"k": 5}})
    other = row(ran, speed_baseline={"method": "exact", "params": {"k": 6}})
    places = [stored(tmp_path / str(number), one) for number, one in enumerate((older, newer, other))]
    assert not compare.is_worse(compare.compare(*places[:2]), strict=True)
    assert compare.is_worse(compare.compare(*places[1:]), strict=True)


def test_places_without_rows_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["compare", str(tmp_path), str(tmp_path)])
    assert ended.value.code == 2 and "holds no rows" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["compare", str(tmp_path), str(tmp_path), "--format", "html"])
    assert ended.value.code == 2
