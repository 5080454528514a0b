"""The datastore: one entry per predicted token, resumable, and never opened when it is not what is asked for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.common.errors import MachineError, RequestError
from harness.common.parts import Parts
from harness.common.progress import Progress
from methods.knnlm.builder import CHECKPOINT, build_datastore
from methods.knnlm.datastore import FILES, Datastore, datastore_key

from .conftest import text

QUIET = Progress(quiet=True)


def build(folder: Path, model, streams, key="last_ffn_input", **options) -> Datastore:
    folder.mkdir(parents=True, exist_ok=True)
    build_datastore(folder, model, streams, key, progress=QUIET, **options)
    return Datastore.open(folder)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5).filter(lambda ls: max(ls) > 1))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_entries_are_the_predicted_tokens_in_text_order(model, tmp_path_factory, lengths):
    streams = text(1, *lengths)
    store = build(tmp_path_factory.mktemp("store"), model, streams)
    assert store.entries == sum(len(s) - 1 for s in streams)
    np.testing.assert_array_equal(store.values, np.concatenate([s[1:] for s in streams]))
    assert store.offsets.tolist() == np.cumsum([0, *(len(s) - 1 for s in streams)]).tolist()
    ids = np.arange(store.entries)
    last = set((store.offsets[1:] - 1).tolist())
    assert store.successors(ids).tolist() == [-1 if i in last else i + 1 for i in ids]
    store.verify()


def test_keys_are_the_models_in_half_precision(model, tmp_path):
    streams = text(2, 50, 9)
    for kind in ("last_ffn_input", "last_hidden"):
        store = build(tmp_path / kind, model, streams, kind)
        expected = [block.keys.numpy() for s in streams for block in model.encode(s, key=kind)]
        np.testing.assert_array_equal(store.keys, np.concatenate(expected).astype(np.float16))
        norms = np.linalg.norm(store.keys.astype(np.float64), axis=1)
        assert norms.max() <= store.largest_norm <= norms.max() * 1.001


class _Interrupted:
    """The model, until it has encoded a number of streams."""

    def __init__(self, model, streams: int) -> None:
        self._model = model
        self._left = streams
        self.encoded = 0

    def __getattr__(self, name: str):
        return getattr(self._model, name)

    def encode(self, stream, **options):
        for number, block in enumerate(self._model.encode(stream, **options)):
            if self._left == 0 and number == 1:  # in the middle of a stream
                raise KeyboardInterrupt
            yield block
        self._left -= 1
        self.encoded += 1


def test_an_interrupted_build_continues_behind_the_last_complete_stream(model, tmp_path):
    streams = text(3, 40, 30, 20, 25)
    whole = build(tmp_path / "whole", model, streams)
    partial = tmp_path / "partial"
    with pytest.raises(KeyboardInterrupt):
        build(partial, _Interrupted(model, 2), streams, checkpoint_seconds=0)
    with pytest.raises(RequestError, match="holds no complete datastore"):
        Datastore.open(partial)
    second = _Interrupted(model, -1)
    resumed = build(partial, second, streams)
    assert second.encoded == 2
    resumed.verify()
    assert resumed.metadata == whole.metadata
    for name in FILES:
        assert (partial / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not (partial / CHECKPOINT).exists()


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=9).filter(lambda ls: max(ls) > 1), count=st.integers(2, 6)
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_datastore_built_in_parts_is_the_same(model, tmp_path_factory, lengths, count):
    folder, streams = tmp_path_factory.mktemp("stores"), text(5, *lengths)
    whole = build(folder / "whole", model, streams)
    store = build(folder / "parts", model, streams, parts=_Several(count))
    store.verify()
    assert {**store.metadata, "largest_norm": 0} == {**whole.metadata, "largest_norm": 0}
    assert store.largest_norm == pytest.approx(whole.largest_norm, rel=1e-6)
    for name in FILES:
        assert (folder / "parts" / name).read_bytes() == (folder / "whole" / name).read_bytes()
    assert not list((folder / "parts").glob("part*"))


class _Several(Parts):
    """So many at a time, as a cluster has."""

    def __init__(self, count):
        self.side_by_side = lambda: count


def test_parts_that_an_interrupted_build_left_are_not_built_again(model, tmp_path):
    streams, made = text(5, 30, 30, 30), []

    def each(make, work, shared):
        for part in work:
            if len(made) == 2:
                raise KeyboardInterrupt
            made.append(part[0])
            yield make(shared, *part)

    interrupted = _Several(3)
    interrupted.each = each
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "store", model, streams, parts=interrupted)
    (tmp_path / "store" / "part2").mkdir()
    build_datastore(tmp_path / "store" / "part2", model, streams[2:], "last_ffn_input", progress=QUIET)
    encoding = _Interrupted(model, 99)
    store = build(tmp_path / "store", encoding, streams, parts=_Several(3))
    store.verify()
    assert encoding.encoded == 2  # the third was there; the first two were copied and removed


def test_a_checkpoint_of_another_text_starts_over(model, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, _Interrupted(model, 1), text(3, 40, 30), checkpoint_seconds=0)
    store = build(tmp_path, model, text(4, 40, 30))
    store.verify()
    np.testing.assert_array_equal(store.values, np.concatenate([s[1:] for s in text(4, 40, 30)]))


CHILD = """
import sys
from pathlib import Path
from harness.common.parts import Parts
from harness.common.progress import Progress
from methods.knnlm.builder import build_datastore
from tasks.models.pretrained.language import CausalLM
import numpy as np
folder, model, corpus = sys.argv[1:]
streams = np.split(np.load(corpus), 120)
build_datastore(Path(folder), CausalLM.load(model, window=16, stride=8), streams, "last_ffn_input",
                progress=Progress(quiet=True), checkpoint_seconds=0)
"""


@pytest.mark.slow
def test_a_build_killed_in_its_process_is_finished_by_the_next(model, tmp_path):
    corpus = text(5, 120 * 60)[0]
    np.save(tmp_path / "corpus.npy", corpus)
    folder = tmp_path / "store"
    folder.mkdir()
    command = [sys.executable, "-c", CHILD, str(folder), model.name, str(tmp_path / "corpus.npy")]
    child = subprocess.Popen(command)
    deadline = time.monotonic() + 60
    while not (folder / CHECKPOINT).exists() and time.monotonic() < deadline and child.poll() is None:
        time.sleep(0.005)
    child.kill()
    assert child.wait() == -9
    assert not (folder / "metadata.json").exists()
    begun = json.loads((folder / CHECKPOINT).read_text())["done"]["streams"]
    assert 0 < begun < 120
    rest = _Interrupted(model, -1)
    store = build(folder, rest, np.split(corpus, 120))
    assert rest.encoded == 120 - begun
    store.verify()
    assert store.entries == 120 * 59


def test_a_truncated_file_is_refused(model, tmp_path):
    build(tmp_path, model, text(6, 60))
    keys = tmp_path / "keys.npy"
    keys.write_bytes(keys.read_bytes()[:-2])
    with pytest.raises(RequestError, match=r"keys\.npy: 2,014 bytes where .* says 2,016; truncated") as caught:
        Datastore.open(tmp_path)
    assert f"delete the folder {tmp_path} and run again" in str(caught.value)


@pytest.mark.parametrize("name", FILES)
def test_verify_finds_a_changed_byte(model, tmp_path, name):
    build(tmp_path, model, text(6, 60))
    content = bytearray((tmp_path / name).read_bytes())
    content[-3] ^= 1
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RequestError, match=f"{name}: its content changed"):
        Datastore.open(tmp_path).verify()


def test_verify_finds_a_bound_that_a_key_exceeds(model, tmp_path):
    build(tmp_path, model, text(6, 60))
    Datastore.open(tmp_path).verify()
    file = tmp_path / "metadata.json"
    metadata = json.loads(file.read_text())
    file.write_text(json.dumps({**metadata, "largest_norm": 0.99 * metadata["largest_norm"]}))
    with pytest.raises(RequestError, match="a key is longer than largest_norm"):
        Datastore.open(tmp_path).verify()


def test_a_datastore_of_another_model_or_text_is_refused_by_both_names(model, other_model, tmp_path):
    streams = text(7, 60)
    build(tmp_path, model, streams)
    Datastore.open(tmp_path, datastore_key(model, streams, "last_ffn_input"))
    with pytest.raises(RequestError, match=f"built with model '{model.hash}'.* has model '{other_model.hash}'"):
        Datastore.open(tmp_path, datastore_key(other_model, streams, "last_ffn_input"))
    with pytest.raises(RequestError, match=r"built with corpus '\w+', this run has corpus '\w+'"):
        Datastore.open(tmp_path, datastore_key(model, text(8, 60), "last_ffn_input"))
    with pytest.raises(RequestError, match="built with key 'last_ffn_input', this run has key 'last_hidden'"):
        Datastore.open(tmp_path, datastore_key(model, streams, "last_hidden"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read as a datastore's metadata"),
        ('{"format": 99}', "datastore format 99, this version reads"),
        ('{"format": 1, "entries": 3}', "lacks built_from, model_name"),
    ],
)
def test_foreign_metadata_is_refused(tmp_path, content, message):
    (tmp_path / "metadata.json").write_text(content)
    with pytest.raises(RequestError, match=message):
        Datastore.open(tmp_path)


def test_a_text_without_predicted_tokens_is_refused(model, tmp_path):
    with pytest.raises(RequestError, match="no token to predict"):
        build(tmp_path, model, text(1, 1, 1))


@pytest.mark.parametrize(
    ("factor", "reason"), [(1e6, "last_ffn_input exceeds float16"), (float("nan"), "not a number")]
)
def test_keys_that_half_precision_cannot_hold_are_refused(model, tmp_path, factor, reason):
    class Loud(_Interrupted):
        def encode(self, stream, **options):
            for block in self._model.encode(stream, **options):
                block.keys *= factor
                yield block

    with pytest.raises(RequestError, match=reason):
        build(tmp_path, Loud(model, -1), text(1, 30))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_ends_in_one_line_and_leaves_no_datastore(model, tmp_path, artifacts):
    def onto_full_disk(folder: Path) -> None:
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "values.npy").symlink_to("/dev/full")
        build_datastore(folder, model, text(1, 30), "last_ffn_input", progress=QUIET)

    with pytest.raises(MachineError, match="No space left on device"):
        artifacts.build("datastore", {"a": 1}, onto_full_disk)
    assert not list(artifacts.cache.root.glob("datastore/*/metadata.json"))
