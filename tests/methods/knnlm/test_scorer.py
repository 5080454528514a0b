"""kNN-LM end to end on random models: against plain Python, alone and together, live and from shared results."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.common.cache import Cache, CellArtifacts, SharedResults
from harness.common.errors import RequestError
from harness.common.phases import NoPhases, PhaseTimer
from methods.knnlm import base
from methods.knnlm.lm import Lm
from methods.knnlm.positions import full_batches, read, read_shared, searched
from methods.knnlm.scorer import KnnLm

from .conftest import text

REFERENCE = text(1, 120, 90, 60)
VALIDATION = text(2, 80)
EVALUATION = text(3, 70, 45, 2, 30)
FIXED = {"lambda_": 0.3, "temperature": 20.0, "k": 16}
NO_PHASES = NoPhases()


@pytest.fixture
def fitted(model, artifacts):
    def fit(**parameters) -> KnnLm:
        method = KnnLm(**parameters)
        method.fit(model, REFERENCE, VALIDATION, artifacts)
        return method

    return fit


def plain(model, k: int, lambda_: float, temperature: float) -> list[list[float]]:
    """Eq. 2 and 3, one entry at a time."""
    entries = []
    for stream in REFERENCE:
        for block in model.encode(stream, key="last_ffn_input"):
            keys = block.keys.numpy().astype(np.float16).astype(float)
            entries += list(zip(keys, block.targets.tolist(), strict=True))
    answers = []
    for stream in EVALUATION:
        answers.append([])
        for block in model.encode(stream, key="last_ffn_input"):
            columns = (block.keys.tolist(), block.targets.tolist(), block.log_prob.tolist())
            for query, target, log_lm in zip(*columns, strict=True):
                near = sorted((float(((key - np.asarray(query)) ** 2).sum()), value) for key, value in entries)[:k]
                weights = [(math.exp(-(d - near[0][0]) / temperature), value) for d, value in near]
                p = sum(w for w, value in weights if value == target) / sum(w for w, _ in weights)
                answers[-1].append(math.log(lambda_ * p + (1 - lambda_) * math.exp(log_lm)))
    return answers


@pytest.mark.parametrize("k", [1, 16, 1024])
def test_scores_agree_with_plain_python(model, fitted, k):
    answers = fitted(**FIXED | {"k": k}).score(model, EVALUATION, NO_PHASES)
    for answer, expected in zip(answers, plain(model, k, 0.3, 20.0), strict=True):
        np.testing.assert_allclose(answer.log_probs, expected, rtol=0, atol=1e-6)
        assert answer.log_probs.dtype == np.float64


def test_streams_together_and_batches_of_queries_score_as_one_by_one(model, fitted):
    method, single = fitted(**FIXED, foss=0.4), fitted(**FIXED, foss=0.4, batch=1)
    together = method.score(model, EVALUATION, NO_PHASES)
    for stream, answer in zip(EVALUATION, together, strict=True):
        for alone in (method, single):
            np.testing.assert_array_equal(alone.score(model, [stream], NO_PHASES)[0].log_probs, answer.log_probs)


@pytest.mark.parametrize("changed", [{"lambda_": 0.0}, {"foss": 1.0}])
def test_with_lambda_zero_or_without_searches_it_is_the_lm(model, fitted, changed):
    lm = Lm().score(model, EVALUATION, NO_PHASES)
    for ours, theirs in zip(fitted(**FIXED | changed).score(model, EVALUATION, NO_PHASES), lm, strict=True):
        np.testing.assert_allclose(ours.log_probs, theirs.log_probs, rtol=0, atol=1e-6)
        assert "foss" not in changed or ours.counters["searches"] == 0


@given(st.integers(1, 300), st.floats(0, 1), st.floats(0, 1), st.integers(0, 50))
@settings(max_examples=60, deadline=None)
def test_foss_is_exact_and_a_higher_one_skips_a_superset(length, one, other, seed):
    stream = text(seed, length)[0]
    low, high = sorted((one, other))
    fewer, more = searched(stream, low, seed), searched(stream, high, seed)
    assert (~fewer).sum() == math.floor(low * (length - 1) + 0.5)
    assert not np.any(more & ~fewer)


def test_the_tokens_left_out_depend_on_the_seed_and_not_on_the_last_one_which_is_predicted():
    stream = text(0, 200)[0]
    mask = searched(stream, 0.5, 0)
    assert not np.array_equal(mask, searched(stream, 0.5, 1))
    assert all(np.array_equal(searched(np.append(stream[:-1], word), 0.5, 0), mask) for word in range(5))


@given(st.sampled_from([0.0, 0.25, 0.8, 1.0]), st.sampled_from([5, 1024]), st.integers(0, 3))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_shared_neighbours_give_the_same_answers(model, tmp_path_factory, foss, k, seed):
    cache = Cache(tmp_path_factory.mktemp("cache"))
    method = KnnLm(**FIXED | {"k": k}, foss=foss, seed=seed)
    method.fit(model, REFERENCE, VALIDATION, CellArtifacts(cache))
    live = method.score(model, EVALUATION, NO_PHASES)
    for _ in range(2):  # computed, then read
        shared = method.score(model, EVALUATION, NO_PHASES, SharedResults(cache))
        for one, other in zip(live, shared, strict=True):
            np.testing.assert_allclose(one.log_probs, other.log_probs, rtol=0, atol=1e-9)
            assert one.counters.keys() - other.counters.keys() == {"bytes_read"}  # nothing is read for a shared result
            assert other.counters.items() <= one.counters.items()


class _Counted:
    """Counts what an index is asked, and the seconds of its searches, which may be made slower."""

    bytes_read = 0

    def __init__(self, index, pause=0.0) -> None:
        self.index, self.pause, self.bytes, self.load = index, pause, index.bytes, index.load
        self.calls: list[int] = []
        self.seconds = 0.0

    def search(self, queries, k):
        self.calls.append(len(queries))
        started = time.perf_counter()
        time.sleep(self.pause)
        answer = self.index.search(queries, k)
        self.seconds += time.perf_counter() - started
        return answer


def test_variants_of_one_index_search_the_evaluation_once(model, fitted, artifacts):
    shared = SharedResults(artifacts.cache)
    asked = []
    for variant in ({}, {"foss": 0.5}, {"lambda_": 0.6}, {"temperature": 5.0}, {"k": 8}):
        method = fitted(**FIXED | variant)
        method.opened.index = _Counted(method.opened.index)
        method.score(model, EVALUATION, NO_PHASES, shared)
        asked.append(sum(method.opened.index.calls))
    positions = sum(len(s) - 1 for s in EVALUATION)
    assert asked == [positions, 0, 0, 0, positions]


def parameters(module, *without):
    return sum(p.numel() * p.element_size() for name, p in module.named_parameters() if not name.endswith(without))


@pytest.mark.parametrize(("foss", "batch"), [(0.5, 1), (0.0, 1024)])
def test_a_text_reads_the_model_once_a_block_and_every_entry_once_a_search(model, fitted, foss, batch):
    """GPT-2's output layer shares the table of words; that of positions is looked up."""
    method = fitted(**FIXED, foss=foss, batch=batch)
    weights = parameters(model.module, "wpe.weight")
    blocks = [len(list(model.encode(stream))) for stream in EVALUATION]
    alone = [one.counters["bytes_read"] for one in Lm().score(model, EVALUATION, NO_PHASES)]
    assert alone == [weights * n for n in blocks]
    answers = method.score(model, EVALUATION, NO_PHASES)
    entry = method.opened.store.dimension * method.opened.index.scores.dtype.itemsize + 4  # a key and its norm
    searches = sum(one.counters["searches"] for one in answers)
    scans = searches if batch == 1 else 1
    found = sum(one.counters["bytes_read"] for one in answers) - weights * sum(blocks)
    assert found == pytest.approx(scans * 267 * entry + searches * 16 * 4)  # and the values of 16 neighbours


def test_tuned_weights_are_kept_and_reused(model, fitted, artifacts, monkeypatch):
    method = fitted(k=16)
    assert artifacts.values["validation_perplexity"] <= artifacts.values["validation_lm_perplexity"]
    figures = method.counters()
    assert 0 < figures["lambda"] < 1 and figures["temperature"] > 0 and figures["k"] == 16
    assert figures["entries"] == 267 and figures["datastore_bytes"] > 267 * 36
    other = CellArtifacts(artifacts.cache)
    monkeypatch.setattr(base, "_tuned", None)  # fitting must not search the validation text again
    KnnLm(k=16, foss=0.5).fit(model, REFERENCE, VALIDATION, other)
    assert other.values == artifacts.values


def test_weights_that_are_given_are_kept_and_k_is_at_most_all_entries(fitted):
    assert fitted(k=16, temperature=7.0).counters()["temperature"] == 7.0
    assert fitted(k=1024, lambda_=0.15).counters().items() >= {"k": 267, "lambda": 0.15}.items()


@pytest.mark.parametrize("index", ["faiss-flat", "ivf-sq8", "ivf-pq", "hnsw"])
@pytest.mark.parametrize("distance", ["exact", "approximate"])
def test_approximate_search_scores_near_exact_search(model, fitted, index, distance):
    exact = fitted(**FIXED).score(model, EVALUATION, NO_PHASES)
    close = fitted(**FIXED, index=index, distance=distance, nlist=2, nprobe=2).score(model, EVALUATION, NO_PHASES)
    tolerance = 1e-4 if index == "faiss-flat" else 0.2
    for a, b in zip(exact, close, strict=True):
        assert np.abs(a.log_probs - b.log_probs).mean() < tolerance


def test_the_phases_of_a_timed_pass_are_named(model, fitted):
    phases = PhaseTimer()
    fitted(**FIXED, index="ivf-sq8", nlist=2, batch=50).score(model, EVALUATION, phases)
    assert {"lm", "search", "distance", "interpolate"} == set(phases.record(1)["seconds"])


@pytest.mark.parametrize("batch", [10, 1024])
def test_the_time_of_a_search_is_booked_as_search(model, fitted, batch):
    method, phases = fitted(**FIXED, foss=0.5, batch=batch), PhaseTimer()
    method.opened.index = index = _Counted(method.opened.index, pause=0.02)
    method.score(model, EVALUATION, phases)
    assert index.seconds >= 0.02 * math.ceil(70 / batch)
    assert phases.record(1)["seconds"]["search"] >= index.seconds


@pytest.mark.parametrize("foss", [0.0, 0.6, 0.9])
@pytest.mark.parametrize("batch", [1, 7, 10, 64])
def test_searches_are_full_batches_over_windows_and_streams(model, fitted, foss, batch):
    """Windows of the model predict 16 tokens and then 8 each: no search may be as small as those are."""
    method = fitted(**FIXED, foss=foss, batch=batch)
    method.opened.index = index = _Counted(method.opened.index)
    answers = method.score(model, EVALUATION, NO_PHASES)
    searches = int(sum(answer.counters["searches"] for answer in answers))
    assert index.calls == [batch] * (searches // batch) + [searches % batch] * (searches % batch > 0)


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 12))
def test_full_batches_hold_less_than_a_batch_and_one_part(lengths, size):
    edges = np.cumsum([0, *lengths])
    given_out = 0

    def parts():
        nonlocal given_out
        for low, high in itertools.pairwise(edges.tolist()):
            given_out = high
            yield np.arange(low, high), np.arange(low, high, dtype=np.float32)[:, None]

    seen: list[int] = []
    for places, queries in full_batches(parts(), size):
        assert given_out - len(seen) < size + max(lengths)
        assert len(places) == size or len(seen) + len(places) == edges[-1]
        assert places.tolist() == queries[:, 0].tolist()
        seen += places.tolist()
    assert seen == list(range(edges[-1]))


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=5), st.floats(0, 1), st.integers(0, 5), st.integers(1, 90),
    st.lists(st.booleans(), min_size=4, max_size=4),
)  # fmt: skip
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_batch_and_any_grouping_of_streams_gives_what_single_searches_give(
    model, tmp_path_factory, lengths, foss, seed, batch, cuts
):
    """Against the mixture position by position: one window encoded, one query searched, one probability mixed."""
    method = KnnLm(**FIXED, foss=foss, seed=seed, batch=batch)
    method.fit(model, REFERENCE, VALIDATION, CellArtifacts(Cache(tmp_path_factory.mktemp("cache"))))
    streams = [text(seed + number, length)[0] for number, length in enumerate(lengths)]
    expected = []
    for stream in streams:
        mask, place = searched(stream, foss, seed), 0
        expected.append([])
        for block in model.encode(stream, key="last_ffn_input"):
            columns = (block.keys.numpy(), block.targets.tolist(), block.log_prob.tolist())
            for query, target, log_lm in zip(*columns, strict=True):
                p = math.exp(log_lm)
                if mask[place]:
                    near, ids = method.opened.index.search(query[None], 16)
                    weights = np.exp((near[0, 0] - near[0]) / 20.0)
                    agree = weights[method.opened.store.values[ids[0]] == target].sum() / weights.sum()
                    p = 0.3 * agree + 0.7 * p
                expected[-1].append(math.log(p))
                place += 1
    groups: list[list[np.ndarray]] = [[]]
    for stream, cut in zip(streams, [False, *cuts], strict=False):
        groups.append([stream]) if cut else groups[-1].append(stream)
    answers = [answer for group in groups for answer in method.score(model, group, NO_PHASES)]
    for answer, stream, one in zip(answers, streams, expected, strict=True):
        np.testing.assert_allclose(answer.log_probs, one, rtol=0, atol=1e-6)
        tokens, searches = max(len(stream) - 1, 0), searched(stream, foss, seed).sum()
        assert (answer.counters["tokens"], answer.counters["searches"]) == (tokens, searches)


def test_no_streams_and_streams_without_predictions_are_scored(model, fitted):
    method = fitted(**FIXED)
    assert method.score(model, [], NO_PHASES) == []
    answers = method.score(model, [text(1, 1)[0], text(2, 5)[0], text(3, 1)[0]], NO_PHASES)
    assert [len(answer.log_probs) for answer in answers] == [0, 4, 0]


class _Agreeing:
    """All neighbours hold what the LM is sure of."""

    bytes = bytes_read = 0

    def load(self) -> None:
        pass

    def search(self, queries, k):
        rng = np.random.default_rng(0)
        return np.sort(rng.random((len(queries), k), np.float32) * 50, 1), np.zeros((len(queries), k), np.int64)


@pytest.mark.parametrize("lambda_", [0.1, 0.3, 0.7, 0.9])
def test_log_probabilities_never_exceed_zero(model, fitted, lambda_, monkeypatch):
    method = fitted(**FIXED | {"lambda_": lambda_})
    method.opened.index = _Agreeing()
    value = int(method.opened.store.values[0])
    real = model.encode

    def sure(stream, **options):
        for block in real(stream, **options):
            block.log_prob = block.log_prob * 0
            yield block

    monkeypatch.setattr(model, "encode", sure)
    [answer] = method.score(model, [np.full(300, value)], NO_PHASES)
    np.testing.assert_allclose(answer.log_probs, 0, rtol=0, atol=1e-12)
    assert answer.log_probs.max() <= 0


CHILD = """
import json, sys
from pathlib import Path
from harness.common.cache import Cache, CellArtifacts
from harness.common.phases import NoPhases
from methods.knnlm.scorer import KnnLm
from tasks.models.pretrained.language import CausalLM
import numpy as np
given = json.loads(sys.argv[1])
model = CausalLM.load(given["model"], window=16, stride=8)
method = KnnLm(**given["parameters"])
method.open(model, CellArtifacts(Cache(Path(given["cache"])), **given["manifest"]))
answers = method.score(model, [np.asarray(s) for s in given["streams"]], NoPhases())
print(json.dumps([a.log_probs.tolist() for a in answers]))
"""


def test_another_process_opens_what_was_fitted_and_gives_the_same_answers(model, fitted, artifacts):
    parameters = {"k": 16, "index": "ivf-sq8", "nlist": 2, "foss": 0.25}
    here = fitted(**parameters).score(model, EVALUATION, NO_PHASES)
    given = {
        "model": model.name, "parameters": parameters, "cache": str(artifacts.cache.root),
        "manifest": artifacts.manifest(), "streams": [s.tolist() for s in EVALUATION],
    }  # fmt: skip
    out = subprocess.run([sys.executable, "-c", CHILD, json.dumps(given)], capture_output=True, text=True, check=True)
    for one, other in zip(here, json.loads(out.stdout), strict=True):
        np.testing.assert_allclose(one.log_probs, other, rtol=0, atol=1e-6)


def test_opening_with_another_model_is_refused(fitted, artifacts, other_model):
    fitted(**FIXED)
    with pytest.raises(RequestError, match="built with model"):
        KnnLm(**FIXED).open(other_model, artifacts)


def test_tuning_without_validation_text_is_refused(model, artifacts):
    with pytest.raises(RequestError, match="no validation text to tune"):
        KnnLm(k=4).fit(model, REFERENCE, [], artifacts)


def test_positions_carry_entropy_and_the_largest_log_probability_when_asked(model, tmp_path):
    """Read block by block and from shared results: what the model's distributions say."""
    shared, key = SharedResults(Cache(tmp_path)), "last_ffn_input"
    for stream, whole in zip(EVALUATION, read_shared(model, EVALUATION, key, shared, statistics=True), strict=True):
        rows = [block.log_distribution(torch.arange(len(block.targets))) for block in model.encode(stream)]
        log_p = torch.cat(rows).double() if rows else torch.empty(0, 40)
        entropy = -(log_p.exp() * log_p).sum(1).numpy()
        parts = list(read(model, stream, key, NO_PHASES, statistics=True))
        for found in (whole, *([parts[0]] if len(parts) == 1 else [])):
            np.testing.assert_allclose(found.entropy, entropy, rtol=1e-4)
            np.testing.assert_allclose(found.max_log_prob, log_p.max(1).values.numpy(), rtol=1e-4)
        for name in ("entropy", "max_log_prob", "log_prob", "queries"):
            np.testing.assert_array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))
    assert read_shared(model, EVALUATION, key, shared)[0].entropy is None
    assert next(read(model, EVALUATION[0], key, NO_PHASES)).max_log_prob is None
