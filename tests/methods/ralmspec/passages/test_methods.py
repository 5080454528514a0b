"""Speculative iterative RaLM against its sequential baseline, token for token."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.common.cache import CellArtifacts
from harness.common.errors import RequestError
from harness.common.phases import NoPhases, PhaseTimer
from harness.measure.drivers import DRIVERS
from methods.bandwidth import weights_of
from methods.ralmspec.passages.generation import IterativeRaLM
from methods.ralmspec.passages.methods import RalmSeq, RalmSpec

from ..conftest import make_model, make_passages

SMALL = {"passage_tokens": 10, "query_tokens": 6, "dimension": 8}
KINDS = ("exact", "hnsw", "bm25")
MODELS = {seed: make_model(seed) for seed in range(3)}
PROMPTS = [[5, 9, 14], [1], [60, 3, 3, 3, 22, 7, 8]]


def plain(model, retriever, passages, prompt, limit, interval, query_tokens):
    """Iterative RaLM without a cache of any kind: every token from a fresh pass over passage and context."""
    import torch

    output = []
    while len(output) < limit and (not output or output[-1] not in model.eos_ids):
        if len(output) % interval == 0:
            text = model.tokenizer.decode([*prompt, *output][-query_tokens:], skip_special_tokens=True)
            (found,) = retriever.search([retriever.encode(text)], 1)
            passage = passages.tokens(int(found[0])) if len(found) else []
        with torch.no_grad():
            logits = model.module(input_ids=torch.tensor([[*passage, *prompt, *output]])).logits[0, -1]
        output.append(int(logits.argmax()))
    return output


def fitted(cls, model, passages, root, **parameters):
    method = cls(**SMALL, **parameters)
    method.fit(model, passages, [], CellArtifacts(root))
    return method


def test_methods_over_one_model_share_its_packed_weights(model, artifacts_root):
    one, other = (fitted(cls, model, make_passages(1, 40), artifacts_root) for cls in (RalmSeq, RalmSpec))
    assert one._engine is other._engine


def test_a_request_reads_the_model_and_every_passage_vector_of_an_exact_search(model, artifacts_root):
    method, weights = fitted(RalmSeq, model, make_passages(1, 40), artifacts_root), weights_of(model).each_pass
    vector = 9 * method.opened.index.scores.dtype.itemsize + 4  # of 8 dimensions and the column of lengths, with a norm
    for prompt in PROMPTS:  # a request counts what it has read itself
        counters = method.generate(model, prompt, 12, NoPhases()).trace.counters
        decoded = method.generate(model, prompt, 12, NoPhases())
        expected = len(decoded.ids) * weights + counters["searches"] * 40 * vector
        assert counters["bytes_read"] == decoded.trace.counters["bytes_read"] == expected
    words = fitted(RalmSeq, model, make_passages(1, 40), artifacts_root, retriever="bm25")
    assert "bytes_read" not in words.generate(model, PROMPTS[0], 12, NoPhases()).trace.counters


@pytest.mark.parametrize("kind", KINDS)
def test_the_baseline_is_iterative_ralm_without_any_cache(model, artifacts_root, kind):
    method = fitted(RalmSeq, model, make_passages(1, 40), artifacts_root, retriever=kind)
    for prompt in PROMPTS:
        expected = plain(model, method.opened, method.passages, prompt, 21, 4, 6)
        answer = method.generate(model, prompt, 21, NoPhases())
        assert answer.ids == expected
        assert answer.trace.counters["searches"] == -(-len(expected) // 4)


@settings(deadline=None, max_examples=30)
@given(
    kind=st.sampled_from(KINDS),
    weights=st.sampled_from(sorted(MODELS)),
    seed=st.integers(0, 4),
    number=st.sampled_from([1, 2, 30]),
    repeats=st.sampled_from([0, 2]),
    prompt=st.lists(st.integers(1, 60), max_size=12),
    limit=st.integers(0, 40),
    interval=st.sampled_from([1, 3, 4]),
    prefetch=st.sampled_from([1, 5, 50]),
    scheduling=st.one_of(
        st.builds(lambda s: {"scheduler": "fixed", "stride": s}, st.integers(0, 9)),
        st.builds(lambda g: {"scheduler": "os3", "gamma_max": g}, st.sampled_from([0.0, 0.6, 0.99])),
    ),
    asynchronous=st.booleans(),
)
def test_speculation_never_changes_a_token(
    artifacts_root, kind, weights, seed, number, repeats, prompt, limit, interval, prefetch, scheduling, asynchronous
):
    model, passages = MODELS[weights], make_passages(seed, number, repeats)
    common = {"retriever": kind, "interval": interval}
    sequential = fitted(RalmSeq, model, passages, artifacts_root, **common)
    speculative = fitted(
        RalmSpec, model, passages, artifacts_root, **common, **scheduling, prefetch=prefetch, asynchronous=asynchronous
    )
    assert (
        speculative.generate(model, prompt, limit, NoPhases()).ids
        == sequential.generate(model, prompt, limit, NoPhases()).ids
    )


def test_mismatches_are_rolled_back_and_matches_saved(artifacts_root, model):
    passages = make_passages(1, 40)
    method = fitted(RalmSpec, model, passages, artifacts_root, stride=3, prefetch=5)
    baseline = fitted(RalmSeq, model, passages, artifacts_root)
    counters = [method.generate(model, prompt, 40, NoPhases()).trace.counters for prompt in PROMPTS]
    searches = sum(baseline.generate(model, prompt, 40, NoPhases()).trace.counters["searches"] for prompt in PROMPTS)
    assert sum(c["rollbacks"] for c in counters) > 0
    assert sum(c["matched"] for c in counters) > 0
    assert sum(c["searches"] for c in counters) < searches


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("eos", range(1, 61, 7))
def test_the_end_token_inside_a_speculative_step_ends_the_output(artifacts_root, model, eos, asynchronous):
    from dataclasses import replace

    ending = replace(model, eos_ids=(eos, eos + 1, eos + 2))
    passages = make_passages(2, 30)
    spec = fitted(RalmSpec, ending, passages, artifacts_root, asynchronous=asynchronous, prefetch=9, stride=4)
    seq = fitted(RalmSeq, ending, passages, artifacts_root)
    for prompt in PROMPTS:
        assert spec.generate(ending, prompt, 40, NoPhases()).ids == seq.generate(ending, prompt, 40, NoPhases()).ids


def test_a_query_that_matches_nothing_generates_without_a_passage(artifacts_root, model):
    passages = ["zzz yyy", "xxx zzz"]  # words that no context can hold
    seq = fitted(RalmSeq, model, passages, artifacts_root, retriever="bm25")
    spec = fitted(RalmSpec, model, passages, artifacts_root, retriever="bm25")
    expected = plain(model, seq.opened, seq.passages, PROMPTS[0], 12, 4, 6)
    assert seq.generate(model, PROMPTS[0], 12, NoPhases()).ids == expected
    assert spec.generate(model, PROMPTS[0], 12, NoPhases()).ids == expected


def test_no_thread_outlives_its_request(artifacts_root, model):
    method = fitted(RalmSpec, model, make_passages(1, 40), artifacts_root, asynchronous=True, scheduler="os3")
    method.generate(model, PROMPTS[0], 20, NoPhases())
    before = set(threading.enumerate())
    timer = PhaseTimer()
    method.generate(model, PROMPTS[0], 40, timer)
    assert set(threading.enumerate()) == before
    assert timer.record(1)["seconds"]["generate"] > 0


class Failing:
    """A retriever whose index is lost after the first search."""

    def __init__(self, inner):
        self.inner, self.searches = inner, 0

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def search(self, queries, k, single_thread=False):
        self.searches += 1
        if self.searches > 1:
            raise OSError(f"the index is gone, single_thread={single_thread}")
        return self.inner.search(queries, k, single_thread)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_error_of_the_retriever_reaches_the_caller_and_leaves_no_thread(artifacts_root, model, asynchronous):
    method = fitted(RalmSpec, model, make_passages(1, 40), artifacts_root, asynchronous=asynchronous)
    method.opened = Failing(method.opened)
    before = set(threading.enumerate())
    with pytest.raises(OSError, match=f"the index is gone, single_thread={asynchronous}"):
        method.generate(model, PROMPTS[0], 40, NoPhases())
    assert set(threading.enumerate()) <= before  # threads of other tests may end meanwhile


def test_asynchronous_verification_runs_during_generation(artifacts_root, model, monkeypatch):
    """A search in the worker ends only after a later step was begun: waiting for it at once would never end."""
    method = fitted(RalmSpec, model, make_passages(1, 40), artifacts_root, asynchronous=True, prefetch=50, stride=2)
    search, begin, begun, later = method.opened.search, IterativeRaLM.begin, [], threading.Event()
    overlapped = []

    def waiting(queries, k, single_thread=False):
        if single_thread and not overlapped:
            assert threading.current_thread() is not threading.main_thread()
            overlapped.append(later.wait(10))
        return search(queries, k, single_thread)

    def counted(self):
        begun.append(1)
        if len(begun) > 3:  # one by a search, two that are being verified
            later.set()
        return begin(self)

    monkeypatch.setattr(method.opened, "search", waiting)
    monkeypatch.setattr(IterativeRaLM, "begin", counted)
    method.generate(model, PROMPTS[2], 40, NoPhases())
    assert overlapped == [True]


def test_a_step_without_speculation_searches_as_the_baseline_does(artifacts_root, model, monkeypatch):
    asked = {}
    for stride in (0, 3):
        method = fitted(RalmSpec, model, make_passages(1, 40), artifacts_root, prefetch=5, stride=stride)
        search, wanted = method.opened.search, asked.setdefault(stride, [])

        def noted(queries, k, single_thread=False, search=search, wanted=wanted):
            wanted.append(k)
            return search(queries, k, single_thread)

        monkeypatch.setattr(method.opened, "search", noted)
        method.generate(model, PROMPTS[0], 40, NoPhases())
    assert asked[0] == [5, *[1] * 9] and set(asked[3]) == {5}


def test_a_cache_shared_across_requests_changes_searches_and_no_token(artifacts_root, model):
    passages = make_passages(1, 40)
    alone = fitted(RalmSpec, model, passages, artifacts_root)
    shared = fitted(RalmSpec, model, passages, artifacts_root, shared=True)
    searches = []
    for method in (alone, shared):
        answers = [method.generate(model, prompt, 40, NoPhases()) for prompt in PROMPTS * 2]
        searches.append(sum(a.trace.counters["searches"] for a in answers[3:]))
        assert [a.ids for a in answers[:3]] == [a.ids for a in answers[3:]]
    assert searches[1] < searches[0]


def test_the_gap_is_that_of_the_lower_token_where_outputs_part(artifacts_root, model):
    import torch

    method = fitted(RalmSpec, model, make_passages(1, 40), artifacts_root)
    expected = method.generate(model, PROMPTS[0], 21, NoPhases()).ids
    for place in (0, 6, 20):
        text = model.tokenizer.decode([*PROMPTS[0], *expected[: place // 4 * 4]][-6:], skip_special_tokens=True)
        (found,) = method.opened.search([method.opened.encode(text)], 1)[0]
        passage = method.passages.tokens(int(found))
        with torch.no_grad():
            ids = torch.tensor([[*passage, *PROMPTS[0], *expected[:place]]])
            logits = model.module(input_ids=ids).logits[0, -1]
        assert int(logits.argmax()) == expected[place]
        other = [*expected[:place], 60 - expected[place], *expected[place + 1 :]]
        gap = method.gap(model, PROMPTS[0], other, expected, 21)
        assert gap == pytest.approx(float(logits.max() - logits[other[place]]))
        assert method.gap(model, PROMPTS[0], expected, other, 21) == gap
        assert method.gap(model, PROMPTS[0], other, expected, 22) == math.inf  # it stopped without an end token


def test_float32_outputs_part_from_the_baseline_only_at_near_ties(artifacts_root):
    import torch

    model = make_model(5, torch.float32)
    model.hash = "float32"
    passages = make_passages(7, 60)
    seq = fitted(RalmSeq, model, passages, artifacts_root)
    spec = fitted(RalmSpec, model, passages, artifacts_root, asynchronous=True, prefetch=20, scheduler="os3")
    for prompt in PROMPTS:
        ours, theirs = (method.generate(model, prompt, 60, NoPhases()).ids for method in (spec, seq))
        assert ours == theirs or spec.gap(model, prompt, ours, theirs, 60) < 1e-4


@pytest.mark.parametrize("dtype", ["float64", "float32"])  # the module's own layers, and compiled ones
def test_a_model_with_a_sliding_window_can_go_back(artifacts_root, model, dtype):
    from dataclasses import replace

    import torch
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(
        vocab_size=61, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, sliding_window=8, max_position_embeddings=96, initializer_range=0.6,
    )  # fmt: skip
    torch.manual_seed(0)
    sliding = replace(model, module=MistralForCausalLM(config).to(getattr(torch, dtype)).eval(), hash=dtype)
    passages = make_passages(1, 40)
    seq = fitted(RalmSeq, sliding, passages, artifacts_root)
    rollbacks = 0
    for asynchronous in (False, True):
        spec = fitted(RalmSpec, sliding, passages, artifacts_root, stride=4, asynchronous=asynchronous)
        for prompt in PROMPTS:
            answer = spec.generate(sliding, prompt, 40, NoPhases())
            assert answer.ids == seq.generate(sliding, prompt, 40, NoPhases()).ids
            rollbacks += (answer.trace.counters | answer.trace.timing_counters)["rollbacks"]
    assert rollbacks > 0


def test_bad_requests_are_refused(artifacts_root, model):
    with pytest.raises(RequestError, match="knowledge base is empty"):
        fitted(RalmSeq, model, [], artifacts_root)
    with pytest.raises(RequestError, match="streams of token ids"):
        fitted(RalmSeq, model, [np.arange(5)], artifacts_root)
    for kind in KINDS:
        with pytest.raises(RequestError, match="no passage holds a word"):
            fitted(RalmSeq, model, ["?!", "."], artifacts_root, retriever=kind)
    method = fitted(RalmSpec, model, make_passages(1, 40), artifacts_root)
    with pytest.raises(RequestError, match=r"a prompt of 80 tokens .* window of 96"):
        method.generate(model, [1] * 80, 20, NoPhases())


def test_the_papers_scheduler_is_os3_with_its_own_bound_of_gamma(artifacts_root, model):
    given = {"scheduler": "paper"}, {"scheduler": "os3", "gamma_max": 0.7}, {"scheduler": "os3"}
    methods = [fitted(RalmSpec, model, make_passages(1, 40), artifacts_root, **one) for one in given]
    assert [method.strides.gamma_max for method in methods] == [0.6, 0.7, 0.98]
    with pytest.raises(RequestError, match=r"scheduler=paper has a gamma_max of its own, 0\.6"):
        RalmSpec(scheduler="paper", gamma_max=0.98)


def test_a_model_whose_rotations_depend_on_the_length_is_refused(artifacts_root):
    model = make_model()
    method = fitted(RalmSeq, model, make_passages(1, 40), artifacts_root)
    model.module.config.rope_parameters = {"rope_type": "longrope", "original_max_position_embeddings": 8}
    with pytest.raises(RequestError, match="longrope"):
        method.generate(model, PROMPTS[0], 12, NoPhases())


@pytest.mark.parametrize("room", [0, 1, 7])
def test_a_prompt_that_leaves_little_room_gets_a_shorter_passage(artifacts_root, model, room):
    prompt = [5, 9, 14] * 25
    limit = model.window - len(prompt) - room
    seq = fitted(RalmSeq, model, make_passages(1, 40), artifacts_root)
    spec = fitted(RalmSpec, model, make_passages(1, 40), artifacts_root, stride=4)
    ids = seq.generate(model, prompt, limit, NoPhases()).ids
    assert spec.generate(model, prompt, limit, NoPhases()).ids == ids and ids
    seq.passage_tokens = room  # all that fits; without it the outputs would differ
    assert seq.generate(model, prompt, limit, NoPhases()).ids == ids


def test_the_start_token_stays_in_front_of_the_passage(artifacts_root, model):
    import torch

    seq = fitted(RalmSeq, model, make_passages(1, 40), artifacts_root)
    prompt = [model.start_id, 5, 9, 14]
    answer = seq.generate(model, prompt, 1, NoPhases())
    found = seq.found(model, prompt, 20)
    passage = seq.passages.tokens(found[0])
    with torch.no_grad():
        logits = model.module(input_ids=torch.tensor([[prompt[0], *passage, *prompt[1:]]])).logits[0, -1]
    assert answer.ids == [int(logits.argmax())] and len(set(found)) == 20


def test_counters_that_depend_on_timing_never_gate(artifacts_root, model):
    driver = DRIVERS["retrieval-generation"]

    def figures(**parameters):
        method = fitted(RalmSpec, model, make_passages(1, 40), artifacts_root, **parameters)
        answers = [method.generate(model, prompt, 40, NoPhases()) for prompt in PROMPTS]
        return driver.counters(answers) | method.counters(), driver.timing_counters(answers), method

    fixed, _, _ = figures()
    assert {"searches", "rollbacks", "matched", "sequential"} <= set(fixed) and fixed["iterations"] > 0
    for parameters in ({"scheduler": "os3"}, {"asynchronous": True}):
        counters, by_time, _ = figures(**parameters)
        assert set(counters) == {"tokens", "passages"}  # iterations depend on time here, too
        assert {"searches", "rollbacks", "generation_s", "retrieval_s", "steps"} <= set(by_time)


@pytest.mark.parametrize("cls", [RalmSeq, RalmSpec])
def test_logits_that_are_no_numbers_are_refused(cls, artifacts_root):
    model = make_model(4)
    method = fitted(cls, model, make_passages(0, 40), artifacts_root)
    model.module.get_output_embeddings().weight.data[7] = float("nan")
    with pytest.raises(RequestError, match=r"the logits of .* are not finite numbers after \d+ tokens"):
        method.generate(model, PROMPTS[0], 12, NoPhases())


def test_a_method_that_is_opened_again_forgets_what_it_has_measured(artifacts_root, model):
    artifacts = CellArtifacts(artifacts_root)
    method = RalmSpec(**SMALL, scheduler="os3")
    method.fit(model, make_passages(1, 40), [], artifacts)
    method.generate(model, PROMPTS[0], 40, NoPhases())
    assert method.strides.seconds["step"]
    method.open(model, artifacts)
    assert not method.strides.seconds["step"]
