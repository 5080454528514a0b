"""Where speculated neighbours of kNN-LM come from: entries that are at hand without a search of the datastore.

A source names entries; how near they are to a query is computed from the stored keys by the caller, as for entries
that a search found. Guesses may be taken back, so a source that follows the output can return to an earlier state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from methods.knnlm.datastore import Datastore

if TYPE_CHECKING:
    from numpy.typing import NDArray


class SpeculationSource(ABC):
    """Entries of a datastore that may be neighbours of the next query."""

    @abstractmethod
    def entries(self) -> NDArray[np.int64]:
        """Ids [m], ascending and each once; none where nothing is known."""

    @abstractmethod
    def searched(self, ids: NDArray[np.int64]) -> None:
        """Neighbours [k] that a search of the datastore found, nearest first, -1 where it found fewer."""

    def followed(self, ids: NDArray[np.int64], token: int) -> None:  # noqa: B027 - a cache does not follow the output
        """The output went on with `token`. ids: what a search found for its step [k'], or the neighbours [k] that were
        used instead; -1 for none."""

    def state(self) -> Any:
        """What `restore` needs to undo every `followed` from here on."""
        return None

    def restore(self, state: Any) -> None:  # noqa: B027
        """Return to a state; what was learnt from searches stays."""


class LocalityCache(SpeculationSource):
    """Entries found by earlier searches of this request and the `following` ones after each in the text (section 5.3,
    kNN-LM serving: n = 10): if a passage is being repeated, its next words are there.

    nearest: so many of a search's neighbours are remembered; searches: so many of the last searches are. Without the
    two bounds a request with k = 1024 would soon rank more cached entries than a search looks at. Of 16 prompts of
    WikiText-2 (2.7 million entries, k = 1, verified every 8 steps) guesses were right: with the nearest neighbour
    alone 94.8%, with 32 of 64 searches 98.0% (4,100 entries ranked on average), with 64 of 32 98.2% (6,000), with 128
    of 16 98.2% (7,900).
    """

    def __init__(self, store: Datastore, following: int = 10, nearest: int = 64, searches: int = 32) -> None:
        self.store = store
        self.nearest = nearest
        self.found: deque[NDArray[np.int64]] = deque(maxlen=searches)
        self._steps = np.arange(following + 1)
        self._entries: NDArray[np.int64] | None = np.empty(0, np.int64)

    def entries(self) -> NDArray[np.int64]:
        if self._entries is None:  # made when it is asked for: without speculation it never is
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
    """The automaton without clusters (Alon et al., 2022, section 3.3): of the neighbours that were used, and of the
    entries pointed to before, those whose value the output went on with point to the entries behind them in the text.
    Where no entry agreed there is none, and the language model guesses alone."""

    def __init__(self, store: Datastore) -> None:
        self.store = store
        self._pointed = np.empty(0, np.int64)

    def entries(self) -> NDArray[np.int64]:
        return self._pointed

    def searched(self, ids: NDArray[np.int64]) -> None:
        """What a search found counts once the output is known: see `followed`."""

    def followed(self, ids: NDArray[np.int64], token: int) -> None:
        known = np.union1d(self._pointed, ids[ids >= 0])
        following = self.store.successors(known[self.store.values[known] == token])
        self._pointed = following[following >= 0]

    def state(self) -> NDArray[np.int64]:
        return self._pointed

    def restore(self, state: NDArray[np.int64]) -> None:
        self._pointed = state
