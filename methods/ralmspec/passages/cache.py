"""The cache of retrieved passages from which guesses are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from methods.ralmspec.passages.retriever import PassageRetriever

if TYPE_CHECKING:
    from numpy.typing import NDArray


class PassageCache:
    """Passages that earlier searches found, ranked by the retriever's scores (section 3, Figure 2)."""

    def __init__(self, retriever: PassageRetriever) -> None:
        self.retriever = retriever
        self._ids: NDArray[np.int64] = np.empty(0, np.int64)
        self._new: list[NDArray[np.int64]] = []  # merged when `ids` is read: without speculation never

    @property
    def ids(self) -> NDArray[np.int64]:
        """All ids, ascending, so that the first of equal scores has the lowest id."""
        if self._new:
            self._ids = np.unique(np.concatenate([self._ids, *self._new]))
            self._new = []
        return self._ids

    def insert(self, found: Sequence[NDArray[np.int64]]) -> None:
        """Add search results."""
        self._new += found

    def best(self, query: Any) -> int:
        """The best cached passage; -1 if none matches."""
        ids = self.ids
        if not len(ids):
            return -1
        scores = self.retriever.score(query, ids)
        best = int(scores.argmax())
        return int(ids[best]) if scores[best] > -np.inf else -1
