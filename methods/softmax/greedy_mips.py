"""Greedy-MIPS (Yu et al., 2017): candidates by the largest single products w_ij h_j, within a budget.

Every dimension keeps its words sorted by weight. A query merges the d lists, each read from its better end, with a heap
on w_ij h_j, and takes the first `budget` distinct words; these are scored exactly. The bias is one more dimension.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.common.errors import RequestError
from harness.contracts import Artifacts, OutputLayer
from harness.plan.registry import method
from methods.softmax import arrays
from methods.softmax.candidates import CandidateSearch, by_frequency, saved_counters
from methods.softmax.inputs import checked_layer, checked_training


@method(
    "greedy-mips",
    contract="softmax-screening",
    baseline="exact",
    summary="candidates by the largest single products, within a budget (Yu et al., 2017)",
)
class GreedyMips(CandidateSearch):
    """Knob: `budget`, the words scored exactly. Errors as for `CandidateSearch`; of `fit`: a budget above L."""

    budget: Annotated[int, Field(ge=1)] = 1500

    def fit(
        self, layer: OutputLayer, contexts: NDArray[np.float32], targets: NDArray[np.int64], artifacts: Artifacts
    ) -> None:
        layer = checked_layer(layer)
        if self.budget > len(layer.weight):
            raise RequestError(f"budget {self.budget} is above the vocabulary's {len(layer.weight)} words")
        contexts, targets = checked_training(layer, contexts, targets, 1, "greedy-mips")

        def build(folder: Path) -> None:
            items = np.column_stack([layer.weight, layer.bias]).T  # [d + 1, L]
            order = np.argsort(-items, axis=1, kind="stable")
            lists = {"ids": order.astype(np.int32), "values": np.take_along_axis(items, order, axis=1)}
            arrays.save(folder, {**lists, "frequent": by_frequency(targets, len(layer.weight))})

        key = {"layer": arrays.content(layer.weight, layer.bias), "targets": arrays.content(targets)}
        artifacts.build("greedy-mips", key, build)

    def open(self, subject: OutputLayer, artifacts: Artifacts) -> None:
        from methods.softmax.merge import greedy_candidates

        self._lists = arrays.load(artifacts.path("greedy-mips"))
        self._prepare(subject, self._lists.pop("frequent"))
        words, dimension = self._layer.weight.shape
        self._merge = greedy_candidates
        self._query = np.ones(dimension + 1, np.float32)
        self._heap = np.empty(dimension + 1, np.float32), np.empty((2, dimension + 1), np.int32)
        self._seen, self._turn = np.zeros(words, np.int64), 0
        self.topk(np.zeros(dimension, np.float32), 1)

    def _find(self, context: NDArray[np.float32]) -> int:
        self._query[:-1] = context
        self._turn += 1
        count: int = self._merge(
            self._lists["ids"], self._lists["values"], self._query, self.budget, *self._heap, self._seen, self._turn,
            self._ids,
        )  # fmt: skip
        return count

    def counters(self) -> dict[str, float]:
        """multiply_adds counts the candidates' products; each candidate costs a heap step of log2(d) on top."""
        return saved_counters(float(self.budget * self._layer.weight.shape[1]), float(self.budget), self._lists)
