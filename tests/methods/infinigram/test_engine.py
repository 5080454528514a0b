"""The engine against a scan of the documents: tiny alphabets, many documents, several shards, subtracted indexes."""

from __future__ import annotations

import math
import pickle
import random
import sys
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.common.errors import RequestError
from methods.infinigram.documents import text_of
from methods.infinigram.engine import open_index
from methods.infinigram.kernels.searching import pointer
from tests.methods.infinigram.conftest import ALPHABET, built

TOKENS = st.integers(0, ALPHABET - 1)
DOCUMENTS = st.lists(st.lists(TOKENS, max_size=12), min_size=1, max_size=8)
NGRAMS = st.lists(st.lists(TOKENS, max_size=5), min_size=1, max_size=8)
SIZES = st.sampled_from([ALPHABET, 70_000])  # u16 and u32
SETTINGS = settings(deadline=None, max_examples=60)


def occurrences(documents, ngram):
    """(document, place) of an n-gram, which the empty one has before every token."""
    size = len(ngram)
    return [
        (number, at)
        for number, document in enumerate(documents)
        for at in range(len(document) - size + 1 if size else len(document))
        if list(document[at : at + size]) == list(ngram)
    ]


def following(documents, context):
    """How often each token follows a context."""
    size = len(context)
    return Counter(
        documents[number][at + size]
        for number, at in occurrences(documents, context)
        if at + size < len(documents[number])
    )


def longest(documents, context, most=None):
    """The longest suffix of a context that something follows."""
    sizes = range(min(len(context), len(context) if most is None else most), -1, -1)
    return next((size for size in sizes if following(documents, context[len(context) - size :])), 0)


class Case:
    """Documents under several indexes, some subtracted, and what a scan says of them."""

    def __init__(self, place, documents, removed, vocabulary_size, shards):
        self.documents = documents
        folders = [place(), place()]
        everything = [*documents, *removed]
        built(folders[0], everything, vocabulary_size, shards=min(shards, len(everything)))
        if removed:
            built(folders[1], removed, vocabulary_size)
        self.engine = open_index(folders[0], folders[1:] if removed else ())

    def prob(self, context, token):
        counts = following(self.documents, context)
        return counts[token], sum(counts.values())


CASES = st.fixed_dictionaries({
    "documents": DOCUMENTS, "removed": st.lists(st.lists(TOKENS, max_size=12), max_size=3), "vocabulary_size": SIZES,
    "shards": st.integers(1, 3),
})  # fmt: skip


@given(CASES, NGRAMS)
@SETTINGS
def test_counts_equal_a_scan(place, given_, ngrams):
    case = Case(place, **given_)
    expected = [len(occurrences(case.documents, ngram)) for ngram in ngrams]
    assert [case.engine.count(ngram) for ngram in ngrams] == expected
    assert case.engine.count_many(ngrams).tolist() == expected
    assert case.engine.count([]) == sum(map(len, case.documents))


@given(CASES, st.lists(TOKENS, max_size=6), TOKENS)
@SETTINGS
def test_probabilities_equal_a_scan(place, given_, context, token):
    case = Case(place, **given_)
    found = case.engine.ngram_prob(context, token)
    count, total = case.prob(context, token)
    assert (found.count, found.context_count) == (count, total)
    assert math.isnan(found.probability) if not total else found.probability == count / total
    size = longest(case.documents, context)
    suffix = context[len(context) - size :]
    every = following(case.documents, suffix)
    backed = case.engine.infinigram_prob(context, token)
    assert (backed.n, backed.count, backed.context_count) == (size + 1, every[token], sum(every.values()))
    assert backed.sparse == (len(every) == 1)
    for distribution, counts in (
        (case.engine.ngram_distribution(context), following(case.documents, context)),
        (case.engine.infinigram_distribution(context), every),
    ):
        assert dict(zip(distribution.tokens.tolist(), distribution.counts.tolist(), strict=True)) == counts
        assert distribution.probabilities.sum() == pytest.approx(1 if counts else 0)


@given(CASES, st.lists(st.lists(TOKENS, max_size=15), min_size=1, max_size=3), st.sampled_from([None, 0, 1, 3]))
@SETTINGS
def test_a_scan_of_texts_equals_asking_token_by_token(place, given_, texts, most):
    case = Case(place, **given_)
    for text, scores in zip(texts, case.engine.score_many(texts, most), strict=True):
        for at, token in enumerate(text):
            size = longest(case.documents, text[:at], most)
            counts = following(case.documents, text[at - size : at])
            found = (scores.n[at], scores.counts[at], scores.context_counts[at], scores.sparse[at])
            assert found == (size + 1, counts[token], sum(counts.values()), len(counts) == 1)


@given(CASES, st.lists(TOKENS, max_size=6), st.integers(0, 5), st.integers(0, 3), st.sampled_from([0.0, 0.6, 1.0]))
@SETTINGS
def test_a_context_goes_on_with_the_most_frequent_tokens(place, given_, context, most, least, share):
    case, expected = Case(place, **given_), []
    size = longest(case.documents, context)
    ids = context[len(context) - size :]
    while size >= least and len(expected) < most and (counts := following(case.documents, ids)):
        token = min(counts, key=lambda token: (-counts[token], token))
        if counts[token] < share * sum(counts.values()):
            break
        expected.append(token)
        ids = [*ids, token]
    assert case.engine.continuation(context, most, least, share) == expected


@given(CASES, st.lists(NGRAMS, min_size=1, max_size=3), st.integers(0, 3))
@SETTINGS
def test_documents_found_hold_the_query(place, given_, cnf, limit):
    case = Case(place, **given_)
    holding = [
        document
        for document in case.documents
        if all(any(occurrences([document], n) for n in clause) for clause in cnf)
    ]
    assert case.engine.count_cnf(cnf).documents == len(holding)
    assert not case.engine.count_cnf(cnf).approximate
    found = case.engine.documents(cnf, limit=limit, window=50)
    assert len(found) == min(limit, len(holding))
    for document in found:
        assert document.tokens in holding and document.window == 0  # the window has room for all of it
        ngrams = [ngram for clause in cnf for ngram in clause]
        if document.window == 0 and document.length == len(document.tokens):
            expected = {at for ngram in ngrams if ngram for _, at in occurrences([document.tokens], ngram)}
            assert document.matches == sorted(expected)


@given(CASES, st.lists(TOKENS, max_size=12), st.integers(1, 4))
@SETTINGS
def test_spans_are_the_maximal_ones(place, given_, text, least):
    case = Case(place, **given_)
    known = {
        (begin, end)
        for begin in range(len(text))
        for end in range(begin + 1, len(text) + 1)
        if occurrences(case.documents, text[begin:end])
    }
    maximal = {
        (begin, end) for begin, end in known
        if end - begin >= least and not any((a, b) != (begin, end) and a <= begin and end <= b for a, b in known)
    }  # fmt: skip
    found = case.engine.attribute(text, least)
    assert {(span.begin, span.end) for span in found} == maximal
    for span in found:
        assert span.count == len(occurrences(case.documents, text[span.begin : span.end])) and len(span.documents) == 1


@pytest.mark.parametrize(
    ("vocabulary_size", "alphabet", "shards"),
    [(300, 2, 1), (300, 300, 3), (65_534, 5, 1), (65_535, 2, 1), (65_535, 300, 3), (70_000, 5, 3)],
)
def test_long_documents_have_samples(place, vocabulary_size, alphabet, shards):
    """Searches go by a table of every 32nd suffix, of which short documents have one; the last tokens of u16 and u32
    are next to the separator."""
    rng = np.random.default_rng(alphabet)

    def tokens(size):
        return (vocabulary_size - 1 - rng.integers(0, alphabet, size)).tolist()

    documents, removed = [tokens(size) for size in (40_000, 1, 29_000, 0)], [tokens(9000)] * (shards > 1)
    documents[2][:700] = documents[0][90:790]
    whole = built(place(), [*documents, *removed], vocabulary_size, shards=shards)
    engine = open_index(whole, [built(place(), removed, vocabulary_size)] if removed else ())
    counts = {size: Counter() for size in range(1, 7)}
    for document in documents:
        for size, every in counts.items():
            every.update(zip(*(document[start:] for start in range(size)), strict=False))
    seen = [list(ngram) for every in counts.values() for ngram, _ in islice(every.items(), 0, 4000, 13)]
    unseen = [tokens(size) for size in range(1, 7) for _ in range(60)]
    copied = documents[0][90:790]
    ngrams = [*seen, *unseen, copied, documents[0][90:791]]
    expected = [counts[len(ngram)][tuple(ngram)] for ngram in ngrams[:-2]]
    expected += [2, 1 + (documents[0][790] == documents[2][700])]
    assert [engine.count(ngram) for ngram in ngrams] == expected
    assert engine.count_many(ngrams).tolist() == expected
    for size in range(1, 7):
        rows = np.array([ngram for ngram in ngrams if len(ngram) == size])
        assert engine.count_many(rows).tolist() == [counts[size][tuple(row)] for row in rows.tolist()]
    for ngram in [[], *seen[::40], *unseen[::30]]:
        if len(ngram) < 6:
            found = engine.ngram_distribution(ngram)
            after = counts[len(ngram) + 1]
            wanted = {last: count for (*context, last), count in after.items() if context == ngram}
            assert dict(zip(found.tokens.tolist(), found.counts.tolist(), strict=True)) == wanted
    text = [*tokens(40), *copied, *tokens(40)]  # behind a long match the context gets much shorter at once
    scores = engine.score(text)
    for at in range(len(text)):
        found = engine.infinigram_prob(text[:at], text[at])
        assert (scores.n[at], scores.counts[at], scores.context_counts[at], scores.sparse[at]) == (
            found.n, found.count, found.context_count, found.sparse,
        )  # fmt: skip


@pytest.mark.parametrize("period", [1, 7, 300])
def test_runs_longer_than_any_in_the_index_are_scored_token_by_token(place, period):
    rng = np.random.default_rng(period)
    cycle = rng.integers(0, ALPHABET, period).tolist()
    run = (cycle * 400)[: max(3 * period, 200)]
    engine = open_index(built(place(), [run, [*run[:90], 1, *run[5:60]]]))
    text = [*run, *cycle, *run[: period // 2 + 3], 2, 1, *run, *run]
    for most in (None, 100):
        scores = engine.score(text, most)
        for at in range(len(text)):
            found = engine.infinigram_prob(text[max(at - (most or at), 0) : at], text[at])
            assert (scores.n[at], scores.counts[at], scores.context_counts[at], scores.sparse[at]) == (
                found.n, found.count, found.context_count, found.sparse,
            )  # fmt: skip


def test_documents_of_many_matches_are_all_found_and_drawn_by_them(place):
    documents = [[1] * 5000, [0, 1], [2], *[[3, 1, 1]] * 40]
    engine = open_index(built(place(), documents, shards=2))
    assert [len(engine.documents([1], limit, seed)) for limit in (0, 2, 41, 42, 90) for seed in (0, 1)] == [
        0, 0, 2, 2, 41, 41, 42, 42, 42, 42,
    ]  # fmt: skip
    first = Counter(engine.documents([[[1], [2]]], 1, seed)[0].length for seed in range(60))
    assert first[5000] > 50
    shown = engine.documents([[[1], [2]]], 3, window=2)[0]
    assert shown.length == 5000 and shown.matches == list(range(shown.window, shown.window + len(shown.tokens)))
    assert [one.length for one in engine.documents([1], None)] == [5000, 2, *[3] * 40]
    assert len(engine.documents([1], 10**18)) == 42


def test_a_sample_finds_no_subtracted_document(place):
    documents = [[1, number % 4, number // 4 % 4, number // 16 % 4] for number in range(64)]
    engine = open_index(built(place(), documents, shards=2), [built(place(), documents[::2])])
    for seed in range(5):
        found, approximate = engine.find_cnf([[[1]]], max_clause_freq=9, seed=seed)
        kept = [text_of(engine.shards[row].shard, number).tolist() for row, number in found]
        assert approximate and kept and all(text in documents[1::2] for text in kept)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone counts the first uses of pages by thread")
def test_after_preloading_no_query_touches_a_page_for_the_first_time(place):
    resource = pytest.importorskip("resource")
    rng = np.random.default_rng(0)
    text = rng.integers(0, 1000, 500_000)
    folder = built(place(), np.split(text, 50), 1000)
    starts = rng.integers(0, len(text) - 3, 100)
    open_index(folder).count(text[:3])  # compiles

    def touched(preloaded: bool) -> int:
        with open_index(folder) as engine:
            if preloaded:
                engine.preload()
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
            for start in starts:
                engine.count(text[start : start + 3])
            return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

    cold = touched(preloaded=False)
    if cold < 20:
        pytest.skip(f"this system counts {cold} first uses of pages where there are dozens")
    assert touched(preloaded=True) < cold / 2
    open_index(built(place(), [[], []])).preload()  # nothing to read


def test_an_engine_is_not_copied(place):
    with pytest.raises(TypeError, match="open the index again"):
        pickle.dumps(open_index(built(place(), [[0, 1]])))


@pytest.mark.parametrize("width", range(1, 7))
def test_pointers_of_any_width_are_read(width):
    values = [0, 1, (1 << 8 * width) - 1, (1 << 8 * width) // 3]
    packed = np.frombuffer(b"".join(value.to_bytes(width, "little") for value in values), np.uint8)
    assert [pointer(packed, width, number) for number in range(4)] == values


def test_a_sample_of_a_frequent_clause_says_so(place):
    engine = open_index(built(place(), [[1, 2]] * 200))
    answer = engine.count_cnf([[[1]]], max_clause_freq=20)
    assert answer.approximate and 0 < answer.documents <= 20
    assert engine.count_cnf([[[1]]], max_clause_freq=200).documents == 200


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda e: e.count([4]), "token 4 is outside the vocabulary of 4"),
        (lambda e: e.count([1, -1]), "token -1 is outside"),
        (lambda e: e.count([0xFFFF]), "token 65535 is outside"),
        (lambda e: e.count_many([[0], [1, 9]]), "token 9 is outside"),
        (lambda e: e.count([0.5]), "float64 and 1 dimensions is not a sequence of token ids"),
        (lambda e: e.count("abc"), "is not a sequence of token ids"),
        (lambda e: e.count([[1]]), "2 dimensions"),
        (lambda e: e.ngram_prob([0], 7), "token 7 is outside"),
        (lambda e: e.infinigram_prob([9], 0), "token 9 is outside"),
        (lambda e: e.documents([0], limit=-1), "limit = -1"),
        (lambda e: e.ngram_prob([0], 0.5), "is not a token id"),
        (lambda e: e.ngram_prob([0], 2**70), "is not a token id"),
        (lambda e: e.ngram_prob([0], -(2**70)), "is not a token id"),
        (lambda e: e.ngram_prob([0], "0"), "is not a token id"),
        (lambda e: e.documents(np.array([[1, 2], [0, 1]])), "is not a sequence of token ids"),
        (lambda e: e.documents([[]]), "every clause an n-gram"),
        (lambda e: e.find_cnf([[[0]]], max_clause_freq=0), "max_clause_freq = 0"),
        (lambda e: e.score([0], longest=-1), "longest = -1"),
        (lambda e: e.attribute([0], min_length=0), "min_length = 0"),
        (lambda e: e.continuation([0], -1), "most = -1"),
        (lambda e: e.continuation([0], 1.5), "most = 1.5: give a whole number"),
        (lambda e: e.continuation([0], 1, share=math.nan), "share = nan"),
        (lambda e: e.suffix_counts([0], -1), "most = -1"),
        (lambda e: e.documents(None), "is not a sequence of token ids"),
        (lambda e: e.documents([0], 2.5), "limit = 2.5: give a whole number"),
        (lambda e: e.documents([0], seed=-1), "seed = -1"),
        (lambda e: e.find_cnf([1, 2]), "an AND of ORs of n-grams"),
        (lambda e: e.find_cnf(None), "an AND of ORs of n-grams"),
    ],
)
def test_bad_queries_are_refused(small, ask, message):
    with pytest.raises(RequestError, match=message):
        ask(open_index(small))


def test_a_closed_engine_answers_nothing(small):
    engine = open_index(small)
    engine.close()
    for ask in (lambda: engine.count([0]), lambda: engine.score([0]), lambda: engine.documents([0])):
        with pytest.raises(RequestError, match="the engine is closed"):
            ask()


def test_too_much_subtracted_is_refused_by_every_count(place):
    engine = open_index(built(place(), [[0, 1, 2]]), subtract=[built(place(), [[0, 1, 2], [0, 1, 3]])])
    for ask in (
        lambda: engine.count([0, 1]), lambda: engine.count_many([[0], [1]]), lambda: engine.ngram_prob([1], 3),
        lambda: engine.ngram_distribution([1]), lambda: engine.suffix_counts([0, 1, 2], 2),
        lambda: engine.attribute([0, 1]),
    ):  # fmt: skip
        with pytest.raises(RequestError, match="more is subtracted than was added"):
            ask()


def test_threads_may_share_an_engine(place):
    from concurrent.futures import ThreadPoolExecutor

    rng = random.Random(0)
    documents = [[rng.randrange(4) for _ in range(200)] for _ in range(20)]
    engine = open_index(built(place(), documents))
    ngrams = [[rng.randrange(4) for _ in range(3)] for _ in range(64)]
    expected = [engine.count(ngram) for ngram in ngrams]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(10):
            assert list(pool.map(engine.count, ngrams)) == expected
