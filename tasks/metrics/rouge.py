"""ROUGE F-measures by the package rouge-score, with intervals over summaries."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from rouge_score.rouge_scorer import RougeScorer

from harness.common import statistics
from harness.common.errors import RequestError
from harness.contracts.tasks import Measure

_TYPES = {"rouge1": "rouge1", "rouge2": "rouge2", "rougeL": "rougeLsum"}  # R-L in papers is over whole summaries
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def rouge(summaries: Sequence[str], references: Sequence[str]) -> dict[str, Measure]:
    """Mean F-measures (0-100) `rouge1`, `rouge2` and `rougeL` with Porter stemming, against one reference each.

    `rougeL` is the union longest common subsequence over sentences (`rougeLsum`). Each line of a text counts as a
    sentence; a text without line breaks is split into sentences. Words are runs of ASCII letters and digits. Raises
    `RequestError` if fewer than half of all letters of the references are ASCII letters.
    """
    letters = [letter for text in references for letter in text if letter.isalpha()]
    known = sum(map(str.isascii, letters))
    if 2 * known < len(letters):
        raise RequestError(
            f"ROUGE counts words of ASCII letters, and only {known} of {len(letters)} letters of the references are "
            "such: take references in a language of Latin script"
        )
    scorer = RougeScorer(list(_TYPES.values()), use_stemmer=True)
    found = [
        scorer.score(_lines(reference), _lines(summary))
        for summary, reference in zip(summaries, references, strict=True)
    ]
    measures = {}
    for name, kind in _TYPES.items():
        values = 100 * np.array([scores[kind].fmeasure for scores in found])
        measures[name] = Measure.of(values.mean(), statistics.mean_interval(values))
    return measures


def _lines(text: str) -> str:
    return text if "\n" in text else _SENTENCE_END.sub("\n", text)
