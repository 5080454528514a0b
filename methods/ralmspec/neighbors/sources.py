"""Sources of speculated kNN-LM neighbours: entries available without a search of the datastore.

A source names entries. The caller computes their distances to a query, of the kind that a search gives. Guesses may be
rolled back, so a source that follows the output can return to an earlier state.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from methods.knnlm.datastore import Datastore


class SpeculationSource:
    """Entries of a datastore that may be neighbours of the next query. This one has none, as in the baseline."""

    def entries(self) -> NDArray[np.int64]:
        """Ids [m], ascending and unique; m = 0 if there are none."""
        return np.empty(0, np.int64)

    def searched(self, ids: NDArray[np.int64]) -> None:
        """A search of the datastore found these neighbours [k], nearest first, -1 for none."""

    def followed(self, ids: NDArray[np.int64], token: int) -> None:
        """`token` was appended to the output. ids: the neighbours of its step, those of a search [k'] or the guessed
        ones [k]; -1 for none."""

    def state(self) -> Any:
        """What `restore` needs to undo later calls of `followed`."""
        return None

    def restore(self, state: Any) -> None:
        """Return to a state. What was learnt from searches stays."""


class LocalityCache(SpeculationSource):
    """Entries found by earlier searches of this request, and the `following` entries after each in the text (section
    5.3, kNN-LM serving: n = 10). If the output repeats a passage, its next words are among them.

    nearest: neighbours kept of each search. searches: searches kept. Without these bounds a request with k = 1024 would
    soon rank more cached entries than a search looks at. Of 16 prompts of WikiText-2 (k = 1, verified every 8 steps)
    64 neighbours of 32 searches guess 98.2% right, the nearest neighbour alone 94.8%.
    """

    def __init__(self, store: Datastore, following: int = 10, nearest: int = 64, searches: int = 32) -> None:
        self.store = store
        self.nearest = nearest
        self.found: deque[NDArray[np.int64]] = deque(maxlen=searches)
        self._steps = np.arange(following + 1)
        self._entries: NDArray[np.int64] | None = np.empty(0, np.int64)

    def entries(self) -> NDArray[np.int64]:
        if self._entries is None:  # computed on demand: without speculation never
            start = np.concatenate(self.found)
            start = np.unique(start[start >= 0])
            offsets = self.store.offsets
            ends = offsets[np.searchsorted(offsets, start, side="right")]  # of the stream of each
            reached = start[:, None] + self._steps
            self._entries = np.unique(reached[reached < ends[:, None]])
        return self._entries

    def searched(self, ids: NDArray[np.int64]) -> None:
        self.found.append(ids[: self.nearest].astype(np.int64))
        self._entries = None


class Pointers(SpeculationSource):
    """The automaton without clusters (Alon et al., 2022, section 3.3). The used neighbours and the entries pointed to
    before are filtered by the output's token, once it is known: those with this value point to the next entries in the
    text. If none has it, there are no entries and the language model guesses alone."""

    def __init__(self, store: Datastore) -> None:
        self.store = store
        self._pointed = np.empty(0, np.int64)

    def entries(self) -> NDArray[np.int64]:
        return self._pointed

    def followed(self, ids: NDArray[np.int64], token: int) -> None:
        known = np.union1d(self._pointed, ids[ids >= 0])
        following = self.store.successors(known[self.store.values[known] == token])
        self._pointed = following[following >= 0]

    def state(self) -> NDArray[np.int64]:
        return self._pointed

    def restore(self, state: NDArray[np.int64]) -> None:
        self._pointed = state
