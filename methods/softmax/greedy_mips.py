"""Greedy-MIPS (Yu et al., 2017): candidates by the largest single products w_ij h_j, within a budget.

Every dimension keeps its words sorted by weight. A query merges the d lists, each read from its better end, with a heap
on w_ij h_j, and takes the first `budget` distinct words; these are scored exactly. The bias is one more dimension.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.common.errors import RequestError
from harness.contracts import OutputLayer
from harness.plan.registry import method
from methods.softmax.candidates import SavedSearch
from methods.softmax.merge import greedy_candidates


@method(
    "greedy-mips",
    contract="softmax-screening",
    baseline="exact",
    summary="candidates by the largest single products, within a budget (Yu et al., 2017)",
)
class GreedyMips(SavedSearch):
    """Knob: `budget`, the words scored exactly. Errors as for `CandidateSearch`; of `fit`: a budget above L."""

    name = "greedy-mips"

    budget: Annotated[int, Field(ge=1)] = 1500

    def _made(self, layer: OutputLayer) -> dict[str, NDArray[Any]]:
        items = np.column_stack([layer.weight, layer.bias]).T  # [d + 1, L]
        order = np.argsort(-items, axis=1, kind="stable")
        return {"ids": order.astype(np.int32), "values": np.take_along_axis(items, order, axis=1)}

    def _check(self, words: int, dimension: int) -> None:
        if self.budget > words:
            raise RequestError(f"budget {self.budget} is above the vocabulary's {words} words")

    def _scratch_of(self, words: int, dimension: int) -> None:
        self._query = np.ones(dimension + 1, np.float32)
        self._heap = np.empty(dimension + 1, np.float32), np.empty((2, dimension + 1), np.int32)
        self._seen, self._turn = np.zeros(words, np.int64), 0

    def _find(self, context: NDArray[np.float32]) -> int:
        self._query[:-1] = context
        self._turn += 1
        count: int = greedy_candidates(
            self._saved["ids"], self._saved["values"], self._query, self.budget, *self._heap, self._seen, self._turn,
            self._ids,
        )  # fmt: skip
        return count

    def counters(self) -> dict[str, float]:
        """multiply_adds counts the candidates' products; each candidate costs a heap step of log2(d) on top."""
        return self._counted(0.0)
