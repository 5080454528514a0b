"""Both sides of a timed query answer alike, and the peers count as a scan does."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from harness.common.cache import Cache, CellArtifacts
from harness.common.errors import RequestError
from harness.common.progress import Progress
from methods.infinigram import latency, peers
from methods.infinigram.latency import InfinigramLatency
from tests.methods.infinigram.test_engine import following, longest
from tests.methods.knnlm.conftest import model, text

__all__ = ["model"]  # a fixture

QUIET = Progress(quiet=True)
REFERENCE, EVALUATION = text(1, 400, 300, 2), text(1, 700, 530)
INSTALLED = {"infini-gram": "infini_gram", "tokengrams": "tokengrams"}
QUERIES = [
    "count", "count_many", "ngram_prob", "ngram_distribution",
    "infinigram_prob", "infinigram_distribution", "score_many", *(FOUND := ["documents", "count_cnf", "attribute"]),
]  # fmt: skip


class Scan:
    """A peer that looks at every place of the documents."""

    def __init__(self, folder, vocabulary_size):
        tokens = np.fromfile(folder / "tokenized.0", np.uint16)
        self.documents_ = [part.tolist() for part in np.split(*_split(tokens))]

    @staticmethod
    def build(documents, folder, vocabulary_size):
        peers.write_tokens(documents, folder)

    def count(self, ngram):
        return sum(d[at : at + len(ngram)] == ngram for d in self.documents_ for at in range(len(d) - len(ngram) + 1))

    def ngram_prob(self, context, token):
        counts = following(self.documents_, context)
        return counts[token], sum(counts.values())

    def ngram_distribution(self, context):
        return dict(following(self.documents_, context))

    def infinigram_prob(self, context, token):
        return self.ngram_prob(context[len(context) - longest(self.documents_, context, None) :], token)

    def infinigram_distribution(self, context):
        return self.ngram_distribution(context[len(context) - longest(self.documents_, context, None) :])

    def documents(self, ngram, limit):
        return [d for d in self.documents_ if holds(d, ngram)][:limit]

    def count_cnf(self, cnf):
        return [d for d in self.documents_ if all(holds(d, ngram) for [ngram] in cnf)]

    def attribute(self, text, least):
        found, begin = [], 0
        for end in range(1, len(text) + 1):
            while begin < end and not self.count(text[begin:end]):
                begin += 1
            if end - begin >= least and (end == len(text) or not self.count(text[begin : end + 1])):
                found.append((begin, end, self.count(text[begin:end])))
        return found

    def any_found(self, answer):
        return bool(answer)

    def spans(self, answer):
        return answer

    def counted(self, answer):
        return answer[0] if isinstance(answer, tuple) else answer

    def following(self, answer):
        return answer


def holds(document, ngram):
    return any(document[at : at + len(ngram)] == ngram for at in range(len(document) - len(ngram) + 1))


def _split(tokens):
    ends = np.flatnonzero(tokens == peers.SEPARATOR)
    return tokens[tokens != peers.SEPARATOR], ends[1:] - np.arange(1, len(ends))


@pytest.mark.parametrize(("query", "together"), [*((query, 5) for query in QUERIES), ("count_many", 1)])
@pytest.mark.parametrize("peer", ["scan", *INSTALLED])
def test_both_sides_answer_alike(model, tmp_path, monkeypatch, peer, query, together):
    if peer in INSTALLED:
        pytest.importorskip(INSTALLED[peer])
    if peer == "tokengrams" and query in FOUND:
        with pytest.raises(RequestError, match="tokengrams finds no documents"):
            InfinigramLatency(query=query, peer=peer).fit(SimpleNamespace(), None, QUIET)
        return
    monkeypatch.setitem(peers.PEERS, "scan", Scan)
    monkeypatch.setattr(latency, "_TEXT", 40)  # a scan for each token of 512 takes minutes
    setting = SimpleNamespace(model=model, reference=REFERENCE, evaluation=EVALUATION)
    run = InfinigramLatency(query=query, n=3, together=together)
    run.peer = peer  # a scan is no peer that a recipe may name
    run.fit(setting, CellArtifacts(Cache(tmp_path)), QUIET)
    pool, sample = run.items()
    assert 0 < sample <= pool
    same = []
    for given in run.inputs(np.arange(0, pool, max(pool // 12, 1))):
        ours, theirs = run.answers(run.method(given)), run.answers(run.baseline(given))
        assert len(ours) == len(theirs) == run.asked
        same += [list(a) == list(b) for a, b in zip(ours, theirs, strict=True)]
    assert np.mean(same) == 1 if peer == "scan" else np.mean(same) >= 0.98


@pytest.mark.parametrize("peer", ["infini-gram", "tokengrams"])
def test_a_vocabulary_that_a_peer_cannot_hold_is_refused(peer, tmp_path):
    setting = SimpleNamespace(model=SimpleNamespace(vocabulary_size=65_536), reference=REFERENCE)
    with pytest.raises(RequestError, match="has a vocabulary of 65536: take a model of at most 65535"):
        InfinigramLatency(peer=peer).fit(setting, CellArtifacts(Cache(tmp_path)), QUIET)


def test_texts_that_are_too_short_are_refused(model, tmp_path):
    setting = SimpleNamespace(model=model, reference=REFERENCE, evaluation=text(3, 60))
    with pytest.raises(RequestError, match="has 512 tokens"):
        InfinigramLatency(query="score_many").fit(setting, CellArtifacts(Cache(tmp_path)), QUIET)


def test_infini_gram_counts_places_near_each_other_not_documents(tmp_path):
    pytest.importorskip("infini_gram")
    gap = [0] * 150
    documents = [[3, 4, 4, 3], gap, [3, *gap, 4], gap, [1], [2, 1]]
    peers.InfiniGram.build([np.array(ids) for ids in documents], tmp_path, 5)
    peer = peers.InfiniGram(tmp_path, 5)
    found = [peer.count_cnf([[[token]] for token in pair]) for pair in ((3, 4), (1, 2))]
    assert [(answer["count"], answer["approx"]) for answer in found] == [
        (2, False),
        (0, False),
    ]  # its `1` before is not in [2, 1]
