"""Rows survive whatever ends the process that writes them."""

import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.common.errors import MachineError, RequestError
from harness.contracts.rows import SCHEMA, Row, new_row
from harness.measure.store import RowStore, migrate
from tests.harness.rows import with_samples


def row(name: str = "LM", **known) -> Row:
    return new_row(recipe="r", row=name, scale="mini", method="lm", task="t", **known)


@pytest.fixture
def store(tmp_path: Path) -> RowStore:
    return RowStore(tmp_path / "runs" / "rows.jsonl")


def test_every_key_is_present_and_unknown_ones_are_refused():
    made = row(column="FoSS=0")
    assert set(made) == set(Row.__annotations__) and made["cell"] == "LM / FoSS=0" and made["schema"] == SCHEMA
    with pytest.raises(TypeError, match="metric"):
        new_row(metric=1)


@settings(deadline=None, max_examples=30)
@given(
    text=st.text(),
    number=st.floats(allow_nan=False, allow_infinity=False),
    facts=st.dictionaries(st.text(), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists)),
)
def test_what_is_written_is_read_back(tmp_path_factory, text, number, facts):
    store = RowStore(tmp_path_factory.mktemp("s") / "rows.jsonl")
    written = row(text or "x", metrics={"perplexity": number}, facts=facts, error={"message": text, "log": "\r\n\x85"})
    store.append(written)
    store.append(written)
    assert store.rows() == [written, written]


def test_numbers_json_cannot_say_become_null_and_the_file_stays_strict_json(store):
    store.append(row(metrics={"perplexity": float("inf"), "x": float("nan")}, intervals={"x": (1.0, 2.0)}))
    raw = json.loads(store.path.read_text(), parse_constant=pytest.fail)
    assert raw["metrics"] == {"perplexity": None, "x": None} and raw["intervals"] == {"x": [1.0, 2.0]}


def test_the_newest_row_of_a_cell_counts_and_cells_keep_their_order(store):
    for name, seconds in (("a", 1.0), ("b", 2.0), ("a", 3.0)):
        store.append(row(name, seconds=seconds))
    assert [(name, r["seconds"]) for name, r in store.latest().items()] == [("a", 3.0), ("b", 2.0)]


def test_only_a_good_row_with_the_same_key_counts_as_finished(store):
    store.append(row(status="failed", hashes={"key": "k1"}))
    store.append(row(hashes={"key": "k2"}, seconds=5.0))
    assert store.finished("k1") is None and store.finished("k3") is None
    assert store.finished("k2")["seconds"] == 5.0


@pytest.mark.parametrize("cut", [1, 20, 100])
def test_a_torn_last_line_is_ignored_with_a_warning_and_cut_off_by_the_next_append(store, cut):
    store.append(row("a"))
    store.append(row("bü" * 200_000))  # longer than the block in which the end of the file is read
    content = store.path.read_bytes()
    store.path.write_bytes(content[:-cut])
    if cut == 1:  # only the line end is missing: the row is whole
        assert len(store.rows()) == 2
    else:
        with pytest.warns(UserWarning, match="cut off"):
            assert [r["row"] for r in store.rows()] == ["a"]
    store.append(row("c"))
    assert [r["row"][0] for r in store.rows()] == (["a", "b", "c"] if cut == 1 else ["a", "c"])


def test_a_broken_line_in_the_middle_is_named(store):
    store.append(row("a"))
    with store.path.open("a") as file:
        file.write('{"schema": 1, "rec\n')
    store.append(row("b"))
    with pytest.raises(RequestError, match=r"rows\.jsonl line 2 is not a row"):
        store.rows()


def test_a_line_that_lacks_keys_or_is_no_object_is_refused(store):
    store.path.parent.mkdir()
    store.path.write_text("[1]\n")
    with pytest.raises(RequestError, match="line 1 is not a row: an object is expected"):
        store.rows()
    store.path.write_text('{"schema": 1}\n')
    with pytest.raises(RequestError, match="it lacks cell"):
        store.rows()


def test_rows_of_older_schemas_are_migrated_step_by_step_and_newer_ones_refused():
    steps = {7: lambda r: {**r, "speed": r["speedup"]}, 8: lambda r: {**r, "speed": r["speed"] * 2}}
    assert migrate({"schema": 7, "speedup": 3}, "f", steps, newest=9)["speed"] == 6
    with pytest.raises(RequestError, match="f has schema 10, this version reads up to 9"):
        migrate({"schema": 10}, "f", steps, newest=9)
    with pytest.raises(RequestError, match="no migration leads from 0 to 1"):
        migrate({"schema": 0}, "f", steps, newest=9)
    with pytest.raises(RequestError, match="no schema number"):
        migrate({}, "f")


def test_an_edited_row_is_refused_by_name(store):
    made = with_samples(row(speed_baseline={"method": "lm", "params": {}}), 1.5)
    store.append(made)
    assert store.rows() == [made]
    made["timing"]["decision"], made["metrics"]["speedup"] = "faster", 1.6
    store.append(made)
    with pytest.raises(RequestError, match=r"line 2: speedup of LM do not follow from the row's samples; .* measure"):
        store.rows()


def test_a_row_s_samples_are_looked_through_once_however_often_it_is_read(store, monkeypatch):
    checked = []
    monkeypatch.setattr("harness.measure.store.altered", lambda row: checked.append(row["row"]) or [])
    for name in ("LM", "kNN-LM"):
        store.append(with_samples(row(name), 2.0))
        assert store.rows() == store.rows()
    assert checked == ["LM", "kNN-LM"]


def test_a_speedup_without_samples_is_refused(store):
    store.append(row(metrics={"speedup": 9.0}, speed_baseline={"method": "lm", "params": {}}))
    with pytest.raises(RequestError, match="speedup of LM do not follow"):
        store.rows()
    store.path.unlink()
    store.append(row(metrics={"speedup": 9.0}))  # an analysis counts as it likes
    assert store.rows()[0]["metrics"] == {"speedup": 9.0}


@pytest.mark.parametrize("schema", [2, SCHEMA])
@pytest.mark.parametrize(
    "samples",
    [
        {"processes": []}, {"processes": [{"pairs": [{}]}], "objections": []}, {"processes": 3, "objections": []},
        {"processes": [{"pairs": [], "noise": []}], "objections": []},
    ],
)  # fmt: skip
def test_samples_that_cannot_be_read_are_refused_in_one_line(store, samples, schema):
    store.append(row(timing=samples, schema=schema))
    with pytest.raises(RequestError, match=r"rows.jsonl line 1 is not a row: its samples cannot be read") as caught:
        store.rows()
    assert "\n" not in str(caught.value)


def test_repeats_under_one_key_count_as_one_row_of_all_their_processes(store):
    for number, speedup in enumerate((2.0, 3.0)):
        made = row(hashes={"key": "k"}, seconds=float(number), speed_baseline={"method": "lm", "params": {}})
        store.append(with_samples(made, speedup, first=10 * number))
    store.append(row("b", hashes={"key": "other"}))
    store.append(row(status="failed", hashes={"key": "k"}))
    finished = store.finished("k")
    assert finished["metrics"]["speedup"] == pytest.approx(2.5, rel=0.01) and finished["timing"]["repeats"] == 2
    assert finished["seconds"] == 1.0 and len(store.rows()) == 4


def test_a_row_of_the_first_schema_gets_empty_series_and_examples():
    old = {name: value for name, value in row().items() if name not in ("series", "examples")} | {"schema": 1}
    assert migrate(old, "f") == row()


def test_a_full_disk_ends_in_one_line_and_loses_no_row(store):
    store.append(row("a"))
    limit = store.path.stat().st_size + 50  # room for a part of the next row: a torn write for real
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            store.append(row("b"))
            os._exit(9)
        except MachineError as error:
            os._exit(0 if "rows already written are kept" in str(error) and "\n" not in str(error) else 8)
        finally:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert store.path.stat().st_size == limit - 50
    store.append(row("c"))
    assert [r["row"] for r in store.rows()] == ["a", "c"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_file_system_ends_in_one_line_and_loses_no_row(tmp_path):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path], capture_output=True).returncode:
        pytest.skip("mounting is not permitted")
    try:
        store = RowStore(tmp_path / "rows.jsonl")
        written = 0
        with pytest.raises(MachineError, match="No space left on device"):
            while written < 100:
                store.append(row("x" * 9000))
                written += 1
        assert written > 2 and len(store.rows()) == written
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_rows_survive_kill_9_in_the_middle_of_writing(store):
    code = (
        "import sys; from pathlib import Path; from harness.contracts.rows import new_row\n"
        "from harness.measure.store import RowStore\n"
        "s = RowStore(Path(sys.argv[1]))\n"
        "for n in range(10**6):\n"
        "    s.append(new_row(recipe='r', row=f'{n} ' + 'x' * 50000, scale='mini', method='m', task='t'))\n"
        "    print(n, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, store.path], stdout=subprocess.PIPE, text=True)
    for _ in range(20):
        last = int(process.stdout.readline())
    process.kill()
    last = int((process.stdout.read().split() or [last])[-1])
    process.wait()
    store.append(row("after"))
    numbers = [r["row"].split()[0] for r in store.rows()]
    assert numbers[: last + 1] == [str(n) for n in range(last + 1)] and numbers[-1] == "after"


def _append_many(path: Path, name: str) -> None:
    for number in range(20):
        RowStore(path).append(row(f"{name}{number}" + "y" * 20_000))


def test_processes_that_append_at_once_do_not_mix_lines(store):
    workers = [multiprocessing.Process(target=_append_many, args=(store.path, name)) for name in "ab"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(store.latest()) == 40
