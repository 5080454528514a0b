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
from harness.measure.store import RowStore
from harness.rows import SCHEMA, Row
from tests.harness.rows import new_row, with_samples


def row(name: str = "LM", **known) -> Row:
    return new_row(row=name, scale="mini", **known)


@pytest.fixture
def store(tmp_path: Path) -> RowStore:
    return RowStore(tmp_path / "runs" / "rows.jsonl")


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
    assert [one.as_json() for one in store.rows()] == [written.as_json()] * 2


def test_numbers_json_cannot_say_become_null_and_the_file_stays_strict_json(store):
    store.append(row(metrics={"perplexity": float("inf"), "x": float("nan")}, intervals={"x": (1.0, 2.0)}))
    raw = json.loads(store.path.read_text(), parse_constant=pytest.fail)
    assert raw["metrics"] == {"perplexity": None, "x": None} and raw["intervals"] == {"x": [1.0, 2.0]}


def test_only_a_good_row_with_the_same_key_counts_as_finished(store):
    store.append(row(status="failed", hashes={"key": "k1"}))
    store.append(row(hashes={"key": "k2"}, seconds=5.0))
    assert store.finished("k1") is None and store.finished("k3") is None
    assert store.finished("k2").seconds == 5.0


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
            assert [one.row for one in store.rows()] == ["a"]
    store.append(row("c"))
    assert [one.row[0] for one in store.rows()] == (["a", "b", "c"] if cut == 1 else ["a", "c"])


def test_a_broken_line_in_the_middle_is_named(store):
    store.append(row("a"))
    with store.path.open("a") as file:
        file.write('{"schema": 1, "rec\n')
    store.append(row("b"))
    with pytest.raises(RequestError, match=r"rows\.jsonl line 2 is not a row"):
        store.rows()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[1]", "an object with a schema number is expected"),
        ("{}", "an object with a schema number is expected"),
        (f'{{"schema": {SCHEMA}}}', "missing .* 'recipe'"),
        (f'{{"schema": {SCHEMA}, "strange": 1}}', "unexpected keyword argument 'strange'"),
    ],
)
def test_a_line_that_lacks_keys_or_is_no_object_is_refused(store, line, reason):
    store.path.parent.mkdir()
    store.path.write_text(f"{line}\n")
    with pytest.raises(RequestError, match=f"line 1 is not a row.*{reason}"):
        store.rows()


@pytest.mark.parametrize(
    ("schema", "words"), [(SCHEMA - 1, "written by an older version .* measure it again"), (SCHEMA + 1, "update")]
)
def test_a_row_of_another_schema_is_refused_in_one_line(store, schema, words):
    store.path.parent.mkdir()
    store.path.write_text(json.dumps(row().as_json() | {"schema": schema}) + "\n")
    with pytest.raises(RequestError, match=words) as caught:
        store.rows()
    reason = str(caught.value)
    assert "rows.jsonl line 1 " in reason and f"schema {schema}, " in reason and f" reads {SCHEMA}" in reason
    assert "\n" not in reason


def test_what_follows_from_samples_is_not_in_a_line_and_an_edit_of_it_has_no_effect(store):
    store.append(with_samples(row(speed_baseline={"method": "lm", "params": {}}), 1.5, shape=(6, 4)))
    text = store.path.read_text()
    assert "speedup" not in text and "decision" not in text
    store.path.write_text(text.replace('"metrics":{}', '"metrics":{"speedup":9.0}'))
    (found,) = store.rows()
    assert found.metrics == {"speedup": 9.0} and found.speedup == pytest.approx(1.5)


def test_a_line_is_read_once_however_often_its_file_is(store):
    for name in ("LM", "kNN-LM"):
        store.append(with_samples(row(name)))
        first, again = store.rows(), store.rows()
        assert all(one is other for one, other in zip(first, again, strict=True))


@pytest.mark.parametrize(
    "processes", [3, [{}], [{"pairs": [{}]}], [{"pairs": []}], [{"pairs": [{"count": 1, "baseline_ns": "a"}]}]]
)
def test_samples_that_cannot_be_read_are_refused_in_one_line(store, processes):
    store.append(row(processes=processes))
    with pytest.raises(RequestError, match=r"rows.jsonl line 1 is not a row \(.*measure again") as caught:
        store.rows()
    assert "\n" not in str(caught.value)


def test_repeats_under_one_key_count_as_one_row_of_all_their_processes(store):
    for number, speedup in enumerate((2.0, 3.0)):
        made = row(hashes={"key": "k"}, seconds=float(number), speed_baseline={"method": "lm", "params": {}})
        store.append(with_samples(made, speedup, first=10 * number))
    store.append(row("b", hashes={"key": "other"}))
    store.append(row(status="failed", hashes={"key": "k"}))
    finished = store.finished("k")
    assert finished.speedup == pytest.approx(2.5, rel=0.01) and len(finished.processes) == 20
    assert finished.seconds == 1.0 and len(store.rows()) == 4


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
    assert [one.row for one in store.rows()] == ["a", "c"]


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
        "import sys; from pathlib import Path; from harness.rows import Row\n"
        "from harness.measure.store import RowStore\n"
        "s = RowStore(Path(sys.argv[1]))\n"
        "for n in range(10**6):\n"
        "    s.append(Row(recipe='r', row=f'{n} ' + 'x' * 50000, scale='mini', method='m', task='t'))\n"
        "    print(n, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, store.path], stdout=subprocess.PIPE, text=True)
    for _ in range(20):
        last = int(process.stdout.readline())
    process.kill()
    last = int((process.stdout.read().split() or [last])[-1])
    process.wait()
    store.append(row("after"))
    numbers = [one.row.split()[0] for one in store.rows()]
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
    assert len({one.cell for one in store.rows()}) == 40
