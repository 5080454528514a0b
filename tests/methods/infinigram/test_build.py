"""Building an index: its files, shards, and what is refused or left alone."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from harness.common.errors import MachineError, RequestError
from harness.common.progress import PIPE, Progress
from methods.infinigram import build
from methods.infinigram.build import Part, build_index
from methods.infinigram.engine import open_index
from methods.infinigram.layout import pointer_width, verify
from tests.methods.infinigram.conftest import built


def test_layout_is_as_small_as_stated(place):
    rng = np.random.default_rng(0)
    folder = built(place(), [rng.integers(0, 500, 1000) for _ in range(30)], 500)
    engine = open_index(folder)
    assert engine.bytes == 2 * 30 * 1001 + 2 * 30 * 1000
    numbers = (0, 1, 256, 257, 65536, 65537, 1 << 24, (1 << 24) + 1)
    assert list(map(pointer_width, numbers)) == [1, 1, 1, 2, 2, 3, 3, 4]
    with open_index(folder) as same:
        assert same.count([]) == 30_000
    verify(folder)


@pytest.mark.parametrize("shards", [1, 2, 7])
def test_shards_share_the_documents(place, shards):
    documents = [[n % 4] * (n % 5) for n in range(7)]
    engine = open_index(built(place(), documents, shards=shards))
    assert all(len(shard.documents) > 1 for *_, shard in engine.shards)
    assert sum(len(shard.documents) - 1 for *_, shard in engine.shards) == 7
    assert len(engine.shards) == shards


def test_shards_that_nodes_build_are_the_same(place):
    documents = [Part([n % 4] * (n % 5), n, [0, n % 5]) for n in range(20)]
    one = built(place(), documents, shards=3)
    asked = []

    def each(make, work, shared):
        asked.extend(part[1] for part in work)
        return (make(shared, *part) for part in work)

    there = SimpleNamespace(side_by_side=lambda: 4, each=each)
    other = built(place(), documents, shards=3, parts=there)
    assert asked == [0, 1, 2]
    files = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert [(other / name).read_bytes() for name in files] == [(one / name).read_bytes() for name in files]


def test_a_memory_limit_makes_shards(place):
    documents = [[1, 2, 3] * 30 for _ in range(10)]
    assert len(open_index(built(place(), documents, memory_limit=14 * 200)).shards) > 4
    with pytest.raises(RequestError, match="memory_limit = 100 bytes is too little"):
        built(place(), documents, memory_limit=100)


def test_foreign_and_damaged_folders_are_refused(small, place, tmp_path):
    with pytest.raises(RequestError, match="no such folder"):
        open_index(tmp_path / "nothing")
    with pytest.raises(RequestError, match=r"no complete index \(no metadata.json\)"):
        open_index(tmp_path)
    with pytest.raises(RequestError, match=r"built with another tokenizer \(one\) than this one \(two\)"):
        open_index(small, tokenizer_hash="two")
    with pytest.raises(RequestError, match="vocabulary of 9 tokens, the others 4"):
        open_index([small, built(place(), [[8]], 9)])
    with pytest.raises(RequestError, match="no index to open"):
        open_index([])
    for damage, message in ((cut, "bytes instead of"), (lose, "is missing"), (flip, "its content changed")):
        copy = tmp_path / damage.__name__
        shutil.copytree(small, copy)
        damage(copy / "shard0" / "suffixes.bin")
        with pytest.raises(RequestError, match=message):
            verify(copy)
    metadata = json.loads((small / "metadata.json").read_text())
    for wrong, message in ((metadata | {"format": 99}, "format 99"), ({}, "cannot be read as the metadata")):
        (small / "metadata.json").write_text(json.dumps(wrong))
        with pytest.raises(RequestError, match=message):
            open_index(small)


def test_what_is_damaged_is_refused_before_it_is_read(small, tmp_path, place):
    shutil.copytree(small, tmp_path / "copy")
    for name in ("firsts.bin", "documents.bin"):
        file = tmp_path / "copy" / "shard0" / name
        intact = file.read_bytes()
        for at, wrong in ((0, -8), (1, 1 << 40)):
            numbers = np.frombuffer(intact, np.int64).copy()
            numbers[at] = wrong
            numbers.tofile(file)
            with pytest.raises(RequestError, match="its files are not of one shard"):
                open_index(tmp_path / "copy")
        file.write_bytes(intact)
    assert open_index(tmp_path / "copy").count([0]) == 1
    described = built(place(), [Part([1], {"file": "a"})])
    flip(described / "shard0" / "metadata.text")
    with pytest.raises(RequestError, match="the metadata are damaged"):
        open_index(described).documents([1])


def test_the_tokenizer_belongs_to_what_is_complete(tmp_path):
    def write(folder):
        (folder / "tokenizer.json").write_text("{}")

    def fail(folder):
        write(folder)
        raise Exception("No space left on device (os error 28)")  # as the Rust library does

    unread = (pytest.fail("a document was read first") for _ in range(1))
    with pytest.raises(MachineError, match=r"cannot be written: No space left.*; free space"):
        built(tmp_path / "index", unread, tokenizer=fail)
    assert not list(tmp_path.iterdir())
    flip(built(tmp_path / "index", [[0]], tokenizer=write) / "tokenizer" / "tokenizer.json")
    with pytest.raises(RequestError, match=r"tokenizer.json: its content changed"):
        verify(tmp_path / "index")


def test_the_second_of_two_builders_is_told_that_the_index_is_there(tmp_path):
    def documents():
        yield [0, 1]
        built(tmp_path / "index", [[0]])

    with pytest.raises(RequestError, match="holds an index, which another process built meanwhile: use it"):
        built(tmp_path / "index", documents())
    assert open_index(tmp_path / "index").count([]) == 1


def test_a_document_may_come_in_parts(place):
    parts = [Part([0, 1], "a", [1], more=True), Part([2, 3], None, [0, 2], more=True), Part([], more=True), Part([1])]
    engine = open_index(built(place(), [[3], *parts, [1, 2]]))
    assert engine.count([0, 1, 2, 3, 1]) == 1 and engine.count([3, 0]) == 0
    assert [engine.documents(ngram)[0].lines for ngram in ([0], [2, 3], [3, 1])] == [0, 2, 2]
    assert [one.metadata for one in engine.documents([1], limit=None)] == ["a", None]


def test_without_a_limit_a_build_takes_half_of_the_free_memory(place, monkeypatch):
    monkeypatch.setattr(build, "memory", lambda: {"available": 2 * 12 * 200})
    assert len(open_index(built(place(), [[1, 2, 3] * 30 for _ in range(10)])).shards) > 4


def cut(file):
    file.write_bytes(file.read_bytes()[:-1])


def lose(file):
    file.unlink()


def flip(file):
    content = bytearray(file.read_bytes())
    content[0] ^= 1
    file.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("documents", "options", "message"),
    [
        ([], {}, "there is no document to index"),
        ([[4]], {}, "document 0 has token 4, outside the vocabulary of 4"),
        ([[0], [0.5]], {}, "document 1 holds float64, not integers"),
        ([[0]], {"shards": 2}, "2 shards for 1 documents"),
        ([[0]], {"shards": 0}, "shards = 0"),
        ([[0]], {"vocabulary_size": 0}, "vocabulary_size = 0"),
        ([Part([0], {1, 2})], {}, "the metadata of document 0 are no JSON"),
        ([Part([0], more=True)], {}, "document 0 has no end"),
        (None, {}, "documents are NoneType"),
        ([[0]], {"vocabulary_size": 4.5}, "vocabulary_size = 4.5: give a whole number"),
    ],
)
def test_bad_documents_are_refused_and_leave_nothing(tmp_path, documents, options, message):
    with pytest.raises(RequestError, match=message):
        build_index(documents, tmp_path / "index", **{"vocabulary_size": 4, **options})
    assert not list(tmp_path.iterdir())


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(RequestError, match="is not empty"):
        built(tmp_path, [[0]])
    assert [file.name for file in tmp_path.iterdir()] == ["notes"]


def test_a_build_that_was_killed_is_started_over(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = tmp_path / f"index.partial-{platform.node()}-{ended.pid}"
    left.mkdir()
    (left / "spool").write_bytes(b"half")
    assert open_index(built(tmp_path / "index", [[0, 1]])).count([0, 1]) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["index"]


def test_a_build_that_still_runs_is_left_alone(tmp_path):
    for name in (f"{platform.node()}-{os.getppid()}", "another-machine-1"):
        other = tmp_path / f"index.partial-{name}"
        other.mkdir()
        (other / "spool").write_bytes(b"half")
        assert open_index(built(tmp_path / "index", [[0, 1]])).count([0, 1]) == 1
        assert (other / "spool").read_bytes() == b"half"
        shutil.rmtree(tmp_path / "index")
    for path in (other / "spool", other):  # nothing has been written there for two days
        os.utime(path, (time.time() - 2 * 86400,) * 2)
    built(tmp_path / "index", [[0, 1]])
    assert not other.exists()


def test_what_cannot_be_a_document_or_a_place_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RequestError, match="is a file: give a new folder"):
        built(tmp_path / "file", [[0]])
    with pytest.raises(RequestError, match="document 1 is not a sequence"):
        built(tmp_path / "index", [[0], [1, [2, 3]]])
    (tmp_path / "folder").mkdir()
    assert open_index(built(str(tmp_path / "folder"), [[0, 1]])).count([0]) == 1


def test_a_build_reports_what_a_runner_can_read(place, monkeypatch):
    """A process of the runner sends its progress as JSON through a pipe."""
    reader, writer = os.pipe()
    monkeypatch.setenv(PIPE, str(writer))
    built(place(), [[0, 1, 2], [1], [3, 2]], shards=2, progress=Progress())
    os.close(writer)
    with os.fdopen(reader) as lines:
        reports = [json.loads(line) for line in lines]
    assert {report["stage"] for report in reports} == {"reading documents", "sorting suffixes"}
    assert reports[-1]["done"] == reports[-1]["total"] == 9
