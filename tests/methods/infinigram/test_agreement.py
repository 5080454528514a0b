"""Agreement with text, counted by hand."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from harness.common.cache import Cache, CellArtifacts
from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.common.statistics import wilson
from methods.infinigram.agreement import (
    FEWEST,
    GeneratedAgreement,
    InfinigramAgreement,
    TokenChoice,
    agreement,
)
from methods.infinigram.answers import Scores
from methods.infinigram.mixing import log_probs
from tests.methods.infinigram.test_engine import following, longest
from tests.methods.knnlm.conftest import model, text

__all__ = ["model"]  # a fixture

QUIET = Progress(quiet=True)
REFERENCE, EVALUATION = text(1, 300, 200), text(3, *[60] * 12)


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    cache = Cache(tmp_path_factory.mktemp("cache"))
    return lambda: CellArtifacts(cache)


def setting(model):
    return SimpleNamespace(model=model, reference=REFERENCE, evaluation=EVALUATION)


@cache
def tokens(most=None):
    """(effective n, context's count, whether sparse, whether it agrees, stream, place) of every predicted token."""
    documents, found = [stream.tolist() for stream in REFERENCE], []
    for number, stream in enumerate(EVALUATION):
        ids = stream.tolist()
        for at in range(1, len(ids)):
            size = longest(documents, ids[:at], most)
            counts = following(documents, ids[at - size : at])
            total = sum(counts.values())
            found.append((size + 1, total, len(counts) == 1, counts[ids[at]] / total > 0.5, number, at))
    return found


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, lambda n, count, sparse: True),
        ({"sparse": True}, lambda n, count, sparse: sparse),
        ({"n": "2-3"}, lambda n, count, sparse: 2 <= n <= 3),
        ({"n": "2+", "context_count": "1-2"}, lambda n, count, sparse: n >= 2 and 1 <= count <= 2),
        ({"longest": 1}, lambda n, count, sparse: True),
    ],
)
def test_agreement_is_the_share_of_tokens_with_more_than_half_of_the_probability(model, artifacts, options, wanted):
    found = InfinigramAgreement(**options)(setting(model), artifacts(), QUIET)
    every = tokens(options.get("longest"))
    chosen = [agrees for n, count, sparse, agrees, *_ in every if wanted(n, count, sparse)]
    assert found["tokens"].value == len(chosen) > 0
    assert found["agreement"].value == pytest.approx(np.mean(chosen))
    assert found["share_of_tokens"].value == pytest.approx(len(chosen) / len(every))
    assert (found["share_of_tokens"].low, found["share_of_tokens"].high) == wilson(len(chosen), len(every))
    assert found["agreement"].low <= found["agreement"].value <= found["agreement"].high
    lengths = [n for n, count, sparse, *_ in every if wanted(n, count, sparse)]
    if "n" in options:
        assert found["n"].value == pytest.approx(np.mean(lengths))
    else:
        assert found["mean_effective_n"].value == pytest.approx(np.mean(lengths))
        assert found["median_effective_n"].value == np.median(lengths)


def test_tokens_are_chosen_by_what_the_neural_model_gives_them(model, artifacts):
    given = [np.exp(log_probs(model, stream)) for stream in EVALUATION]
    edge = float(np.median(np.concatenate(given)))
    found = InfinigramAgreement(lm=[edge, 1.1])(setting(model), artifacts(), QUIET)
    chosen = [agrees for *_, agrees, number, at in tokens() if given[number][at - 1] >= edge]
    assert found["agreement"].value == pytest.approx(np.mean(chosen))
    above = np.concatenate(given)
    assert found["lm_probability"].value == pytest.approx(above[above >= edge].mean())


def test_what_cannot_be_chosen_is_refused(model, artifacts):
    with pytest.raises(RequestError, match="n = 'x': give a count"):
        TokenChoice(n="x")
    with pytest.raises(RequestError, match="lower bound"):
        InfinigramAgreement(lm=[0.4, 0.4])
    nothing = InfinigramAgreement(n="900+", lm=[0.0, 1.0])(setting(model), artifacts(), QUIET)
    assert {name: found.value for name, found in nothing.items()} == {"share_of_tokens": 0, "tokens": 0}
    text = Scores(*(np.array(values * (FEWEST // 2)) for values in ([1, 2], [4, 4], [1, 3], [False, True])))
    found = agreement([text], [np.full(FEWEST, True)])
    assert found["agreement"].low is None and found["tokens"].value == FEWEST  # one text gives no interval
    fewer = agreement([text], [np.arange(FEWEST) > 0])
    assert set(fewer) == {"share_of_tokens", "tokens"} and fewer["tokens"].value == FEWEST - 1


class Writer:
    """A causal model that is asked for text."""

    def __init__(self, reader):
        self.language_model = reader
        self.vocabulary_size, self.hash = reader.vocabulary_size, reader.hash


@pytest.mark.parametrize("search", ["greedy", "nucleus"])
def test_generated_text_is_scored_behind_its_prompt(model, artifacts, monkeypatch, search):
    continued = {tuple(stream[:10].tolist()): stream[10:].tolist() for stream in EVALUATION}
    monkeypatch.setattr(
        GeneratedAgreement, "_written", lambda self, model, prompt, limit, number: continued[tuple(prompt)]
    )
    given = SimpleNamespace(
        model=Writer(model), reference=lambda: REFERENCE, evaluation=[list(prompt) for prompt in continued], limit=50
    )
    found = GeneratedAgreement(search=search)(given, artifacts(), QUIET)
    chosen = [agrees for *_, agrees, _, at in tokens() if at >= 10]
    assert found["tokens"].value == len(chosen)
    assert found["agreement"].value == pytest.approx(np.mean(chosen))
    given.reference = None
    with pytest.raises(RequestError, match="use causal-generation"):
        GeneratedAgreement()(given, artifacts(), QUIET)
