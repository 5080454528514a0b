"""llama.cpp on GGUF files: with the same weights its greedy outputs are ours, with or without drafts."""

from __future__ import annotations

import math
import runpy
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.common.cache import Cache, CellArtifacts
from harness.common.errors import CellFailedError, NotInstalledError, RequestError
from harness.common.phases import NoPhases
from harness.plan.registry import construct
from methods.decoding.peers import llama_cpp
from methods.decoding.peers.gguf_copies import static_lookup_cache, with_numbers
from methods.decoding.peers.llama_cpp import LlamaCpp, LlamaCppLookup
from methods.decoding.search.greedy import Greedy

pytest.importorskip("xllamacpp")
gguf = pytest.importorskip("gguf")

SOURCES = [[1, 2, 3], [65, 66, 67, 65, 66], [200] * 9, []]
LIMIT = 24


@pytest.fixture(scope="module")
def files():
    return runpy.run_path(str(Path(__file__).parents[3] / "gguf_files.py"))


@pytest.fixture
def make(tiny, files, tmp_path):
    """A model and its file. ends: ids at which our outputs end."""

    def made(name="model", ends=(256,), **options):
        path = tmp_path / f"{name}.gguf"
        module = files["tiny"](path, **options)
        return tiny.Model(module, 256, ends, 128, "causal", name=name, vocabulary_size=258, gguf=path)

    return made


def ready(method, model, folder, reference=()):
    artifacts = CellArtifacts(Cache(folder))
    method.fit(model, reference, (), artifacts)
    method.open(model, artifacts)
    return method


def outputs(method, model, limit=LIMIT):
    return [answer.ids for answer in method.decode(model, SOURCES, limit, NoPhases())]


@pytest.mark.parametrize("numbers", ["file", "F32"])
def test_plain_outputs_are_greedy_decoding_s(numbers, make, tmp_path):
    model = make()
    peer = ready(LlamaCpp(numbers=numbers), model, tmp_path / "peer")
    found = peer.decode(model, SOURCES, LIMIT, NoPhases())
    assert [answer.ids for answer in found] == outputs(Greedy(), model)
    assert [answer.trace.iterations for answer in found] == [len(answer.ids) for answer in found]
    assert outputs(peer, model, 0) == [[]] * 4


@pytest.mark.parametrize(
    "drafts",
    [
        {"draft": "ngram-simple", "match": 1, "tokens": 4},
        {"draft": "ngram-map-k", "match": 1, "tokens": 4},
        {"draft": "ngram-map-k4v", "match": 1, "tokens": 4},
        {"draft": "ngram-mod", "match": 2, "least": 1, "tokens": 4},
        {"draft": "draft-simple", "tokens": 4},
    ],
)
def test_drafts_save_iterations_and_leave_outputs_as_they_were(drafts, make, tmp_path):
    """Random models in float32 have no ties that another order of sums would decide."""
    model = make()
    model.assistant = model
    wanted = outputs(Greedy(), model)
    peer = ready(LlamaCpp(numbers="F32", **drafts), model, tmp_path / "peer")
    peer.decode(model, [[*SOURCES[0], *wanted[0]]], 1, NoPhases())  # ngram-mod drafts short outputs from earlier ones
    found = peer.decode(model, SOURCES, LIMIT, NoPhases())
    assert [answer.ids for answer in found] == wanted
    assert sum(answer.trace.iterations for answer in found) < sum(len(answer.ids) for answer in found)
    for answer in found:
        assert answer.trace.counters["drafted"] >= answer.trace.counters["accepted_drafts"]


def test_a_static_cache_drafts_what_reference_text_goes_on_with(make, tmp_path):
    model = make()
    wanted = outputs(Greedy(), model)
    reference = [np.asarray([*source, *ids], np.int64) for source, ids in zip(SOURCES, wanted, strict=True)] * 3
    peer = ready(LlamaCppLookup(numbers="F32"), model, tmp_path / "peer", reference)
    found = peer.decode(model, SOURCES, LIMIT, NoPhases())
    assert [answer.ids for answer in found] == wanted
    assert sum(answer.trace.counters["accepted_drafts"] for answer in found) > LIMIT
    assert peer.counters() == {"index_bytes": next(tmp_path.glob("peer/lookup/*/cache.bin")).stat().st_size}


def test_the_static_cache_counts_what_follows_a_pair(tmp_path):
    static_lookup_cache([np.asarray(ids) for ids in ([1, 2, 3, 1, 2, 4], [1, 2, 3], [7])], 10, tmp_path / "cache")
    pairs = [[1, 2, -1, -1, 2, 3, 2, 4, 1], [2, 3, -1, -1, 1, 1, 1], [3, 1, -1, -1, 1, 2, 1]]
    assert np.fromfile(tmp_path / "cache", np.int32).tolist() == [number for pair in pairs for number in pair]


def test_outputs_end_where_ours_end(make, tmp_path):
    """At any end token of the model; an end token of the file alone (257) does not end them."""
    plain = outputs(Greedy(), make())
    model = make("ending", ends=(256, plain[0][5]))
    wanted = outputs(Greedy(), model)
    assert 0 < len(wanted[0]) <= 6
    assert outputs(ready(LlamaCpp(), model, tmp_path / "ours"), model) == wanted
    model.module.generation_config.suppress_tokens = [token for token in range(256) if token % 8]
    wanted = outputs(Greedy(), model)
    peer = ready(LlamaCpp(), model, tmp_path / "theirs")
    assert outputs(peer, model) == wanted
    file_alone = [ids for ids in wanted if 257 in ids[:-1]]
    assert file_alone, "no output goes on after the end token of the file"


def test_weights_are_written_in_the_type_asked_for(make, tmp_path):
    model = make(numbers="Q8_0")
    given = {one.name: one for one in gguf.GGUFReader(model.gguf).tensors}
    for numbers, bound in (("F32", 0.0), ("BF16", 2**-8)):
        with_numbers(model.gguf, tmp_path / numbers, numbers)
        written = gguf.GGUFReader(tmp_path / numbers)
        assert [one.name for one in written.tensors] == list(given)
        for one in written.tensors:
            assert one.tensor_type.name == (numbers if len(one.shape) > 1 else "F32")
            wanted = gguf.quants.dequantize(given[one.name].data, given[one.name].tensor_type)
            found = gguf.quants.dequantize(one.data, one.tensor_type)
            assert (np.abs(found - wanted) <= bound * np.abs(wanted)).all()


def test_the_gap_is_that_of_plain_decoding(make, tmp_path):
    model = make()
    ids = list(range(128, 256))  # what is left is text, of which llama.cpp tells log-probabilities
    model.module.generation_config.suppress_tokens = ids
    peer = ready(LlamaCpp(numbers="F32", draft="ngram-simple"), model, tmp_path / "peer")
    wanted = outputs(Greedy(), model)[0]
    other = [*wanted[:7], (wanted[7] + 1) % 128, *wanted[8:]]
    with torch.inference_mode():
        chances = model.module(torch.tensor([[*SOURCES[0], *wanted[:7]]])).logits[0, -1].log_softmax(-1)
    gap = float(chances[wanted[7]] - chances[other[7]])
    assert peer.gap(model, SOURCES[0], other, wanted, LIMIT) == pytest.approx(gap, abs=1e-4)
    assert peer.gap(model, SOURCES[0], [*other[:9], (other[9] + 1) % 128], other, LIMIT) is None
    assert peer.gap(model, SOURCES[0], wanted[:9], wanted, LIMIT) == math.inf


def test_requests_that_it_cannot_answer_are_refused(tiny, make, tmp_path, monkeypatch):
    model = make()
    with pytest.raises(RequestError, match="no parameter 'match'"):
        construct(LlamaCpp, {"draft": "draft-simple", "match": 2})
    with pytest.raises(RequestError, match="no model drafts for model"):
        ready(LlamaCpp(draft="draft-simple"), model, tmp_path / "alone")
    with pytest.raises(RequestError, match=r"give a \.gguf file as task\.model"):
        LlamaCpp().fit(tiny.make("gpt2", 0), (), (), CellArtifacts(Cache(tmp_path)))
    peer = ready(LlamaCpp(context=20), model, tmp_path / "short")
    with pytest.raises(RequestError, match=r"source 0 .* room for 20: raise method\.context"):
        outputs(peer, model)
    model.module.generation_config.no_repeat_ngram_size = 2
    with pytest.raises(RequestError, match=r"no_repeat_ngram_size 2.*llama\.cpp does not know"):
        outputs(peer, model, 4)
    model.gguf.write_bytes(b"no model")
    with pytest.raises(CellFailedError, match=r"llama\.cpp"):
        ready(LlamaCpp(), model, tmp_path / "broken")

    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(llama_cpp, "version", missing)
    with pytest.raises(NotInstalledError, match="xllamacpp is not installed"):
        LlamaCpp().fit(model, (), (), CellArtifacts(Cache(tmp_path)))
