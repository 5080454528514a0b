"""RetoMaton on random models: against plain Python from the equations, against kNN-LM, alone and together."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.common.cache import Cache, CellArtifacts, SharedResults
from harness.common.errors import RequestError
from harness.common.phases import NoPhases
from methods.bandwidth import weights_of
from methods.knnlm.scorer import KnnLm
from methods.nearest.distances import exact_distances
from methods.retomaton.scorer import BASES, RUNS, RetoMaton, runs
from methods.retomaton.states import ARTIFACT, States
from methods.retomaton.walk import Walk
from tests.methods.knnlm.conftest import artifacts, model, other_model, text

__all__ = ["artifacts", "model", "other_model"]  # fixtures

REFERENCE = text(1, 120, 90, 60)
VALIDATION = text(2, 80)
EVALUATION = text(3, 70, 45, 2, 1, 30)
FIXED = {"lambda_": 0.3, "temperature": 20.0, "k": 8}
NO_PHASES = NoPhases()
QUICK = settings(max_examples=16, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return Cache(tmp_path_factory.mktemp("cache"))


def fitted(model, cache, **parameters):
    method = RetoMaton(**{**FIXED, **parameters})
    method.fit(model, REFERENCE, VALIDATION, CellArtifacts(cache))
    return method


def plain(model, method):
    """The equations, entry by entry. With clusters only for `max_knns` that nothing reaches: others draw at random."""
    store, state_of = method.automaton.store, method.automaton.states.state_of.tolist()
    alone = method.clustering == "none"
    keys, values = store.keys.astype(float), store.values.tolist()
    ends = set(store.offsets.tolist())
    lambda_, temperature = FIXED["lambda_"], FIXED["temperature"]
    answers, searches = [], 0
    for stream in EVALUATION:
        answers.append([])
        reached, pointed = set(), {}  # pointed: entry -> count, the successor of the nearest first
        for block in model.encode(stream, key="last_ffn_input") if len(stream) > 1 else ():
            columns = (block.keys.tolist(), block.targets.tolist(), block.log_prob.tolist())
            for query, target, log_lm in zip(*columns, strict=True):
                distances = ((keys - np.asarray(query)) ** 2).sum(1).tolist()
                near, states, most = [], reached, method.max_knns
                if method.tau == "inf" or len(reached) < method.tau:
                    near = sorted(range(len(keys)), key=lambda entry: (distances[entry], entry))[: method.k]
                    states = reached | {state_of[entry] for entry in near}
                    searches += 1
                members = [] if alone else [entry for entry in range(len(keys)) if state_of[entry] in reached]
                if method.counts == "runs":  # a list with repeats
                    taken = [entry for entry, count in pointed.items() for _ in range(count)][:most] + members
                    chosen = [(entry, 1) for entry in [*near, *taken]]
                else:
                    base = method.automaton.base if method.counts == "weighted" else 1
                    chosen = [(entry, base**count) for entry, count in list(pointed.items())[:most]]
                    chosen += [(entry, 1) for entry in [*near, *(set(members) - set(pointed))]]
                total = math.fsum(count * math.exp(-distances[entry] / temperature) for entry, count in chosen)
                right = math.fsum(
                    count * math.exp(-distances[entry] / temperature)
                    for entry, count in chosen if values[entry] == target
                )  # fmt: skip
                p_auto = right / total if chosen else None
                p = math.exp(log_lm) if p_auto is None else lambda_ * p_auto + (1 - lambda_) * math.exp(log_lm)
                answers[-1].append(math.log(p))
                followed = sorted((e for e, _ in chosen if values[e] == target), key=distances.__getitem__)
                if method.transitions == "full":
                    more = pointed if alone else [e for e in range(len(keys)) if state_of[e] in states]
                    followed += [e for e in more if values[e] == target]
                listed = Counter([*near, *members])
                if method.counts == "runs" and method.transitions == "capped":
                    counts = Counter(entry for entry, _ in chosen)
                elif method.counts == "runs":  # as without a cap; members of the neighbours' states count once
                    counts = {entry: max(pointed.get(entry, 0) + listed[entry], 1) for entry in followed}
                else:
                    counts = {entry: pointed.get(entry, 0) + 1 for entry in followed}
                pointed = {entry + 1: counts[entry] for entry in dict.fromkeys(followed) if entry + 1 not in ends}
                reached = {state_of[entry] for entry in pointed}
    return answers, searches


@given(
    tau=st.sampled_from([1, 2, 5, "inf"]),
    clustering=st.sampled_from(["kmeans", "greedy", "none"]),
    transitions=st.sampled_from(["full", "capped"]),
    counts=st.sampled_from(["runs", "once", "weighted"]),
    clusters=st.integers(1, 200),
    max_knns=st.sampled_from([1, 3, 1024]),
)
@QUICK
def test_scores_agree_with_the_equations(model, cache, tau, clustering, transitions, counts, clusters, max_knns):
    most = max_knns if clustering == "none" else 100_000
    method = fitted(
        model, cache, tau=tau, clustering=clustering, transitions=transitions, counts=counts, base=1.5,
        clusters=clusters, max_knns=most,
    )  # fmt: skip
    expected, searches = plain(model, method)
    answers = method.score(model, EVALUATION, NO_PHASES)
    for answer, wanted in zip(answers, expected, strict=True):
        np.testing.assert_allclose(answer.log_probs, wanted, rtol=0, atol=1e-5)
    assert sum(answer.counters["searches"] for answer in answers) == searches


@given(
    tau=st.sampled_from([1, 3, "inf"]), clusters=st.sampled_from([3, 40]), streams=st.integers(1, 4),
    max_knns=st.sampled_from([1, 7, 1024]),
)  # fmt: skip
@QUICK
def test_streams_together_score_as_one_by_one(model, cache, tau, clusters, streams, max_knns):
    given = {"tau": tau, "clusters": clusters, "max_knns": max_knns}
    together = fitted(model, cache, **given, streams=streams).score(model, EVALUATION, NO_PHASES)
    method = fitted(model, cache, **given)
    shared = method.score(model, EVALUATION, NO_PHASES, SharedResults(cache))
    for stream, answer, other in zip(EVALUATION, together, shared, strict=True):
        [alone] = method.score(model, [stream], NO_PHASES)
        np.testing.assert_array_equal(alone.log_probs, answer.log_probs)
        for one in (alone, answer, other):
            one.counters.pop("bytes_read", None)  # streams that search together read the datastore together
        assert alone.counters == answer.counters == other.counters
        np.testing.assert_allclose(other.log_probs, answer.log_probs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("k", [1, 8, 1024])
def test_without_pointers_and_clusters_it_is_knnlm(model, cache, k):
    method = fitted(model, cache, clustering="none", pointers=False, k=k)
    knnlm = KnnLm(**FIXED | {"k": k})
    knnlm.fit(model, REFERENCE, VALIDATION, CellArtifacts(cache))
    pairs = zip(*(m.score(model, EVALUATION, NO_PHASES) for m in (method, knnlm)), strict=True)
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours.log_probs, theirs.log_probs, rtol=0, atol=1e-5)
        assert ours.counters["searches"] == theirs.counters["searches"] == len(ours.log_probs)


def test_the_base_of_the_weights_is_the_best_on_validation_text(model, cache):
    given = {"tau": 3, "clusters": 20, "counts": "weighted"}
    method = fitted(model, cache, **given)
    losses = {}
    for base in BASES:
        [answer] = fitted(model, cache, **given, base=base).score(model, VALIDATION, NO_PHASES)
        losses[base] = -answer.log_probs.mean()
    assert len({round(loss, 6) for loss in losses.values()}) == len(BASES)
    assert method.automaton.base == method.counters()["base"] == min(losses, key=losses.get)
    with pytest.raises(RequestError, match="no validation text to tune base on"):
        RetoMaton(**FIXED | given).fit(model, REFERENCE, [], CellArtifacts(cache))


def test_a_higher_tau_searches_more(model, cache):
    taus = [1, 2, 4, 8, 1000, "inf"]
    searches = []
    for tau in taus:
        answers = fitted(model, cache, tau=tau, clusters=30).score(model, EVALUATION, NO_PHASES)
        searches.append(sum(answer.counters["searches"] for answer in answers))
    tokens = sum(max(len(stream) - 1, 0) for stream in EVALUATION)
    assert searches[-1] == searches[-2] == tokens
    assert 0 < searches[0] < tokens
    assert all(low <= high for low, high in pairwise(searches))


def test_the_last_token_changes_no_earlier_probability(model, cache):
    """It is predicted, so entries drawn at random may not depend on it."""
    method = fitted(model, cache, tau=1, clusters=3, max_knns=2)
    streams = [np.append(EVALUATION[0][:-1], token) for token in range(6)]
    first, *others = [one.log_probs[:-1] for one in method.score(model, streams, NO_PHASES)]
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_the_seed_chooses_among_entries(model, cache):
    given = {"tau": 1, "clusters": 4, "max_knns": 5, "clustering": "greedy"}
    one, same, other = (
        [a.log_probs for a in fitted(model, cache, **given, seed=seed).score(model, EVALUATION, NO_PHASES)]
        for seed in (0, 0, 1)
    )
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("tau", [1, "inf"])
def test_a_walk_reads_the_model_every_entry_of_a_search_and_the_entries_pointed_to(model, cache, tau):
    method = fitted(model, cache, tau=tau, streams=1)
    answers = method.score(model, EVALUATION, NO_PHASES)
    total = {name: sum(one.counters[name] for one in answers) for name in ("bytes_read", "searches", "candidates")}
    blocks = sum(len(list(model.encode(stream))) for stream in EVALUATION if len(stream) > 1)
    key, entries = 16, 267
    scanned = total["searches"] * (entries * (key * method.opened.index.scores.dtype.itemsize + 4) + 8 * 4)
    pointed = (total["candidates"] - 8 * total["searches"]) * (key * 2 + 4)  # a key in float16 and a value
    assert total["bytes_read"] == pytest.approx(blocks * weights_of(model).each_pass + scanned + pointed)
    assert pointed > 0 and (tau == "inf") == (total["searches"] == sum(one.counters["tokens"] for one in answers))


def test_runs_without_a_search_are_counted(model, cache):
    assert runs(np.array([True, False, True, True, True, False, False, True])) == [1, 3, 1]
    assert runs(np.array([], bool)) == runs(np.array([False])) == []
    for answer in fitted(model, cache, tau=1, clusters=30).score(model, EVALUATION, NO_PHASES):
        predicted = ~answer.series["searched"] & (answer.series["p_auto"] > 0)
        counted = Counter(f"runs_of_{1 << (length.bit_length() - 1)}" for length in runs(predicted))
        told = {name: count for name, count in answer.counters.items() if name.startswith("runs_of_")}
        assert list(told) == [f"runs_of_{size}" for size in RUNS] and +Counter(told) == counted


# ---------------------------------------------------------------- bad input


def test_more_clusters_than_entries_are_refused(model, cache):
    with pytest.raises(RequestError, match="clusters = 999 is more than the 267 entries"):
        fitted(model, cache, clusters=999)
    assert len(fitted(model, cache, clusters=999, clustering="none").automaton.states) == 267  # clusters are not used


def test_states_of_another_datastore_are_refused(model, cache, tmp_path):
    method = fitted(model, cache, clusters=5)
    other = RetoMaton(**FIXED, clusters=5)
    elsewhere = CellArtifacts(cache)
    other.fit(model, text(9, 90), VALIDATION, elsewhere)
    with pytest.raises(RequestError, match="built on another datastore"):
        States.open(elsewhere.path(ARTIFACT), method.automaton.store)
    with pytest.raises(RequestError, match="holds no complete clustering"):
        States.open(tmp_path, method.automaton.store)
    method.automaton.states.save(tmp_path, {"datastore": method.automaton.store.metadata["built_from"]})
    assert len(States.open(tmp_path, method.automaton.store)) == 5
    np.save(tmp_path / "members.npy", method.automaton.states.members[:-1])
    with pytest.raises(RequestError, match="different lengths"):
        States.open(tmp_path, method.automaton.store)


def test_a_query_that_is_not_finite_is_an_error_even_without_a_search(model, cache, monkeypatch):
    method = fitted(model, cache, tau=1, clusters=5)
    encode = model.encode

    def broken(stream, **asked):
        for block in encode(stream, **asked):
            block.keys[-1] = float("nan")
            yield block

    monkeypatch.setattr(model, "encode", broken)
    with pytest.raises(RequestError, match="finite"):
        method.score(model, [EVALUATION[0]], NO_PHASES)


def test_the_cap_hides_no_entry_pointed_to(model, cache):
    """Without clusters the entries pointed to are the states: all of them are followed, however few are looked at."""
    given = {"tau": 1, "clustering": "none", "k": 40}
    methods = [fitted(model, cache, **given, max_knns=most) for most in (1, 1024)]
    few, many = (sum(a.counters["searches"] for a in m.score(model, EVALUATION, NO_PHASES)) for m in methods)
    assert few == many


def test_empty_streams_and_streams_of_one_token_have_no_scores(model, cache):
    method = fitted(model, cache, tau=2)
    short, empty = np.array([3]), np.array([], np.int64)
    answers = method.score(model, [short, EVALUATION[0], empty], NO_PHASES)
    assert [len(answer.log_probs) for answer in answers] == [0, 69, 0]
    assert method.score(model, [], NO_PHASES) == []


@pytest.mark.parametrize("index", [{"index": "ivf-pq", "code_size": 2}, {"index": "ivf-sq8"}, {"index": "hnsw"}])
def test_approximate_distances_are_the_index_s_own_for_entries_pointed_to_as_well(model, cache, index):
    method = fitted(model, cache, tau="inf", clusters=10, distance="approximate", **index, nprobe=64)
    exact = fitted(model, cache, tau="inf", clusters=10, **index, nprobe=64)
    query = np.random.default_rng(0).normal(size=16).astype(np.float32)
    automaton, every = method.automaton, np.arange(30)
    walk = Walk(automaton, 0, every, np.ones(30, np.int64), np.unique(automaton.states.state_of[every]))
    distances, ids = (column[0] for column in method.opened.search(query[None], NO_PHASES))
    taken = walk.candidates(query, (distances, ids))
    found = dict(zip(taken.ids[taken.found :].tolist(), taken.distances[taken.found :].tolist(), strict=True))
    both = [at for at, entry in enumerate(ids.tolist()) if entry in found]
    np.testing.assert_allclose([found[int(ids[at])] for at in both], distances[both], rtol=1e-3)
    mapped = method.opened.index.bytes - exact.opened.index.bytes
    assert mapped == 8 * automaton.store.entries * index["index"].startswith("ivf")
    assert both and exact.automaton.search.own is None
    if index["index"] == "ivf-sq8":  # the others hold keys, or as many centres as there are entries
        stored = exact_distances(automaton.store, query[None], ids[both][None])[0]
        assert not np.allclose(distances[both], stored, rtol=1e-4)
