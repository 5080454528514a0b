"""Beam search against a naive one, greedy decoding and exhaustive search, on a model made of random numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.contracts import TopK
from tasks.models.beam_search import Clock, Hypothesis, Search, beam_search

END, WORDS, WIDTH = 0, 6, 5


class RandomModel:
    """A context for every source and prefix, drawn from their hash; a state is the list of (source, prefix)."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.weight = np.random.default_rng(seed).normal(0, 1.5, (WORDS, WIDTH)).astype(np.float32)

    def context(self, source, prefix):
        return np.random.default_rng([self.seed, *source, 99, *prefix]).normal(size=WIDTH).astype(np.float32)

    def start(self, sources):
        return [(tuple(source), None) for source in sources]

    def step(self, state, rows, words):
        after = []
        for row, word in zip(rows, words, strict=True):
            source, prefix = state[row]
            after.append((source, () if prefix is None else (*prefix, int(word))))  # the first word is the end mark
        return np.stack([self.context(*one) for one in after]), after

    def log_probs(self, source, prefix):
        logits = (self.weight @ self.context(source, prefix)).astype(np.float64)
        return logits - np.logaddexp.reduce(logits)

    def softmax(self, context, k):
        logits = self.weight @ context
        ids = np.argsort(-logits, kind="stable")[:k]
        return TopK(ids, logits[ids], np.logaddexp.reduce(logits.astype(np.float64)))


def naive(model, source, beam, limit, penalty):
    """The same search over plain lists with full distributions."""
    live, closed = [((), 0.0)], []
    for _ in range(limit):
        every = [
            (total + logp, prefix, word)
            for prefix, total in live
            for word, logp in enumerate(model.log_probs(source, prefix))
        ]
        best = sorted(every, key=lambda e: -e[0])[: beam - len(closed)]
        closed += [(prefix, total, len(prefix) + 1) for total, prefix, word in best if word == END]
        live = [((*prefix, word), total) for total, prefix, word in best if word != END]
    finished = [*closed, *((prefix, total, len(prefix)) for prefix, total in live)]
    return max(finished, key=lambda f: f[1] / max(1, f[2]) ** penalty)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10_000),
    st.integers(1, 7),
    st.integers(0, 6),
    st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=1, max_size=4),
)
def test_every_source_gets_what_a_naive_search_of_it_alone_finds(seed, beam, limit, penalty, sources):
    model = RandomModel(seed)
    found = beam_search(model, sources, model.softmax, Search(beam=beam, limit=limit, length_penalty=penalty), END)
    for source, hypothesis in zip(sources, found, strict=True):
        words, total, _ = naive(model, tuple(source), beam, limit, penalty)
        assert hypothesis.words == words
        assert hypothesis.log_prob == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_beam_that_holds_everything_finds_the_best_of_all_sentences(penalty):
    model, limit = RandomModel(3), 3
    found = beam_search(
        model, [[1]], model.softmax, Search(beam=WORDS**limit, limit=limit, length_penalty=penalty), END
    )
    scores = []
    for length in range(limit + 1):
        for words in itertools.product(range(1, WORDS), repeat=length):
            spoken = [*words, END][:limit]  # a sentence at the limit stays open
            total = sum(model.log_probs((1,), spoken[:n])[word] for n, word in enumerate(spoken))
            scores.append(total / len(spoken) ** penalty)
    assert found[0].score(penalty) == pytest.approx(max(scores), abs=1e-5)


def test_the_length_penalty_divides_by_the_length_with_the_end_mark():
    assert Hypothesis((4, 5, 6), -8.0, ended=True).score(1.0) == -2
    assert Hypothesis((4, 5, 6), -8.0, ended=True).score(0.5) == -4
    assert Hypothesis((4, 5, 6, 7), -8.0).score(1.0) == -2
    assert Hypothesis((), 0.0).score(1.0) == 0


def test_a_word_outside_the_candidate_set_is_never_spoken():
    model = RandomModel(5)

    def screened(context, k):
        logits = (model.weight @ context)[[0, 2, 4]]
        order = np.argsort(-logits)
        missing = k - 3  # a method may fill up with words of probability 0
        ids = np.concatenate([np.array([0, 2, 4])[order], [1] * max(0, missing)])[:k]
        filled = np.concatenate([logits[order], [-np.inf] * max(0, missing)])[:k]
        return TopK(ids, filled.astype(np.float32), np.logaddexp.reduce(logits))

    for beam in (1, 2, 5):
        found = beam_search(model, [[n] for n in range(10)], screened, Search(beam=beam, limit=8), END)
        assert {word for hypothesis in found for word in hypothesis.words} <= {2, 4}


def test_where_no_word_has_a_probability_the_search_ends_with_what_it_has():
    model = RandomModel(5)

    def silent(context, k):
        return TopK(np.arange(k), np.full(k, -np.inf, np.float32), 0.0)

    assert beam_search(model, [[1]], silent, Search(beam=2, limit=5), END) == [Hypothesis((), 0.0)]


def test_the_clock_counts_every_context_asked():
    model, clock, asked = RandomModel(2), Clock(), []

    def counted(context, k):
        asked.append(k)
        return model.softmax(context, k)

    beam_search(model, [[1], [2]], counted, Search(beam=3, limit=5), END, clock)
    assert clock.contexts == len(asked) > 2
    assert set(asked) == {3}
    assert clock.softmax_s > 0 and clock.model_s > 0


def test_no_sources_and_no_words():
    model = RandomModel(1)
    assert beam_search(model, [], model.softmax, Search(beam=2, limit=5), END) == []
    assert beam_search(model, [[1], []], model.softmax, Search(beam=2, limit=0), END) == [Hypothesis((), 0.0)] * 2
