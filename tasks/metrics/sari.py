"""SARI of simplified sentences: correctly kept, deleted and added n-grams, by source and references.

Xu et al. 2016, "Optimizing Statistical Machine Translation for Text Simplification", section 4, as in the authors' own
program: n-grams up to 4, F1 of keeping and of adding, precision of deleting, mean over sentences. Other programs sum
over the corpus first, or weigh the recall of keeping by counts; their numbers differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from harness.common import statistics
from harness.common.errors import RequestError
from harness.contracts.tasks import Measure

ORDER = 4
Tokens = Sequence[str]
_Grams = Counter[tuple[str, ...]]


def sari(
    sources: Sequence[Tokens], hypotheses: Sequence[Tokens], references: Sequence[Sequence[Tokens]]
) -> dict[str, Measure]:
    """`sari`, `sari_keep`, `sari_delete`, `sari_add`, from 0 to 100, with intervals over sentences.

    All sentences are tokens, compared in lower case. references[i] holds the references of sentence i. Raises
    `RequestError` when the numbers of sentences differ or a sentence has no reference.
    """
    if not len(sources) == len(hypotheses) == len(references) or not all(references) or not sources:
        raise RequestError(
            f"{len(hypotheses)} hypotheses and {len(references)} sets of references for {len(sources)} sources; "
            "give one hypothesis and at least one reference for each"
        )
    rows = [sentence(*items) for items in zip(sources, hypotheses, references, strict=True)]
    keep, delete, add = 100 * np.asarray(rows, np.float64).T
    named = {"sari": (keep + delete + add) / 3, "sari_keep": keep, "sari_delete": delete, "sari_add": add}
    return {name: Measure.of(values.mean(), statistics.mean_interval(values)) for name, values in named.items()}


def sentence(source: Tokens, hypothesis: Tokens, references: Sequence[Tokens]) -> tuple[float, float, float]:
    """(F1 of keeping, precision of deleting, F1 of adding) of one sentence, from 0 to 1, means over the orders."""
    orders = []
    for n in range(1, ORDER + 1):
        before, after = _ngrams(source, n), _ngrams(hypothesis, n)
        wanted: _Grams = Counter()
        for reference in references:
            wanted.update(_ngrams(reference, n))
        orders.append(_order(before, after, wanted, len(references)))
    keep, delete, add = (sum(values) / ORDER for values in zip(*orders, strict=True))
    return keep, delete, add


def _order(before: _Grams, after: _Grams, wanted: _Grams, references: int) -> tuple[float, float, float]:
    """The three scores for n-grams of one order. Source and hypothesis count once for each reference."""
    before = Counter({gram: count * references for gram, count in before.items()})
    repeated = Counter({gram: count * references for gram, count in after.items()})

    kept, keepable = before & repeated, before & wanted
    right = kept & wanted
    keep = _f1(_shares(right, kept), _shares(right, keepable))

    deleted = before - repeated
    delete = _shares(deleted - wanted, deleted)

    added, addable = set(after) - set(before), set(wanted) - set(before)
    good = len(added & addable)
    add = _f1(good / len(added) if added else 0.0, good / len(addable) if addable else 0.0)
    return keep, delete, add


def _shares(part: _Grams, whole: _Grams) -> float:
    """Mean over the n-grams of `whole` of count in `part` / count in `whole`; 0 if `whole` is empty."""
    return sum(part[gram] / whole[gram] for gram in part) / len(whole) if whole else 0.0


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _ngrams(tokens: Tokens, n: int) -> _Grams:
    lower = [token.lower() for token in tokens]
    return Counter(tuple(lower[i : i + n]) for i in range(len(lower) + 1 - n))
