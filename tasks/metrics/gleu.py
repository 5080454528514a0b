"""GLEU of corrected sentences against several references, as in the JFLEG release.

Napoles et al. 2015, "Ground Truth for Grammatical Error Correction Metrics", in the form of Napoles et al. 2016, "GLEU
Without Tuning": BLEU's precision over n-grams up to 4, minus the n-grams of the hypothesis that are in the source but
not in the reference. One reference is drawn for each sentence, 500 times, and the corpus scores are averaged.

The release's script draws with `random.randint`, which gives different references in Python 2 and Python 3 for the same
seeds. The scores differ slightly (JFLEG's test sources: 40.54 and 40.47). Published numbers are mostly from Python 2.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness.common.errors import RequestError
from harness.contracts.tasks import Measure

ORDER = 4
DRAWS = 500
Tokens = Sequence[str]
Randint = Literal["python2", "python3"]


def gleu(
    sources: Sequence[Tokens],
    hypotheses: Sequence[Tokens],
    references: Sequence[Sequence[Tokens]],
    randint: Randint = "python2",
) -> Measure:
    """Corpus GLEU from 0 to 100, mean over `DRAWS` draws of references, with a bootstrap interval over sentences.

    All sentences are tokens. references[i] holds the references of sentence i; all sentences have the same number.
    randint: the Python whose `randint` draws the references of the value, with the release's seeds. The interval draws
    sentences and references with a fixed seed. Raises `RequestError` when the numbers of sentences or references
    differ.
    """
    table = _statistics(sources, hypotheses, references)
    if not len(table):
        raise RequestError("GLEU of no sentences; give at least one")
    sentences, choices, _ = table.shape
    every = np.arange(sentences)
    value = float(np.mean([_score(table[every, draw].sum(axis=0)) for draw in _draws(sentences, choices, randint)]))
    rng = np.random.default_rng(0)
    resampled = [
        _score(table[rng.integers(sentences, size=sentences), rng.integers(choices, size=sentences)].sum(axis=0))
        for _ in range(DRAWS)
    ]
    low, high = (100 * np.quantile(resampled, [0.025, 0.975])).tolist()
    return Measure.of(100 * value, (low, high) if sentences >= 10 else None)


def _draws(sentences: int, choices: int, randint: Randint) -> NDArray[np.int64]:
    """int64 [draws, sentences]: the reference of each sentence, draw j seeded with 101 j as in the release."""
    rows = np.empty((DRAWS, sentences), np.int64)
    for draw in range(DRAWS):
        source = random.Random(draw * 101)
        if randint == "python2":
            rows[draw] = [int(source.random() * choices) for _ in range(sentences)]
        else:
            rows[draw] = [source.randint(0, choices - 1) for _ in range(sentences)]
    return rows


def _statistics(
    sources: Sequence[Tokens], hypotheses: Sequence[Tokens], references: Sequence[Sequence[Tokens]]
) -> NDArray[np.float64]:
    """float64 [sentences, references, 2 + 2 * ORDER]: lengths of hypothesis and reference, then credit and n-grams."""
    if not len(sources) == len(hypotheses) == len(references) or len({len(several) for several in references}) > 1:
        raise RequestError(
            f"{len(hypotheses)} hypotheses and {len(references)} sets of references for {len(sources)} sources; "
            "give one hypothesis and the same number of references for each"
        )
    rows = []
    for source, hypothesis, several in zip(sources, hypotheses, references, strict=True):
        grams = [(_ngrams(source, n), _ngrams(hypothesis, n)) for n in range(1, ORDER + 1)]
        row = []
        for reference in several:
            values = [len(hypothesis), len(reference)]
            for n, (before, after) in enumerate(grams, 1):
                wanted = _ngrams(reference, n)
                missed = Counter({gram: count for gram, count in before.items() if gram not in wanted})
                values.append(max((after & wanted).total() - (after & missed).total(), 0))
                values.append(max(len(hypothesis) + 1 - n, 0))
            row.append(values)
        rows.append(row)
    return np.asarray(rows, np.float64)


def _score(statistics: NDArray[np.float64]) -> float:
    """GLEU from 0 to 1 of summed statistics; 0 if any of them is 0."""
    if not statistics.all():
        return 0.0
    length, wanted = statistics[:2]
    precision = np.log(statistics[2::2] / statistics[3::2]).mean()
    return float(np.exp(min(0.0, 1 - wanted / length) + precision))


def _ngrams(tokens: Tokens, n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) + 1 - n))
