"""Accuracy of next words: the share of true words among the words answered."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from harness.common import statistics
from harness.contracts import TopK
from harness.contracts.metrics import Metric
from harness.contracts.tasks import Measure

MEASURES = (Metric("accuracy_at_*", "accuracy@*", better="higher"),)


def accuracy(answers: Sequence[TopK], targets: NDArray[np.int64], k: int) -> dict[str, Measure]:
    """`accuracy_at_1` and `accuracy_at_k`: share of positions whose target [n] is the first id answered, or among the
    first k."""
    hits = np.stack([answer.ids[:k] for answer in answers]) == targets[:, None]
    measures = {}
    for depth in sorted({1, k}):
        found = hits[:, :depth].any(axis=1).astype(float)
        measures[f"accuracy_at_{depth}"] = Measure.of(found.mean(), statistics.share_interval(found))
    return measures
