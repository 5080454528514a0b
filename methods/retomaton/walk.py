"""Walking the automaton from token to token (Alon et al., 2022, section 3.3).

A walk holds the entries pointed to and the states that contain them. The candidates for the next token are:

- The neighbours, if there was a search. An entry that is also among the others counts for both.
- At most `max_knns` entries of the states. Those pointed to come first; members of the states are drawn at random.

Candidates whose value is the observed token (with `full` transitions, all such entries of the states) point to their
successors in the text. The states of these are reached next.

How often an entry pointed to counts (`counts`):

- `runs`, as in the authors' code: as often as its predecessors were candidates, or with `full` transitions would be
  without the cap. Pointers are never made unique, and the members of a state contain the entries pointed to again. So
  an entry counts once more with every token that it has matched.
- `once`: once, as Eq. 5 to 9 are about sets.
- `weighted`: base^n times, n the number of tokens in a row that it has matched (not in the paper).

Random draws depend on the seed, the stream and the position in it, so a stream's walk does not depend on the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from methods.knnlm.datastore import Datastore
from methods.knnlm.search import DatastoreSearch
from methods.retomaton.states import States

Transitions = Literal["full", "capped"]
Counts = Literal["runs", "once", "weighted"]
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Automaton:
    """A datastore with its states and the parameters of walks: see `methods.retomaton.scorer`. search: of the
    datastore, whose distances are used. pointers: whether pointers are followed; without them every token is searched,
    which is kNN-LM. base: of `weighted`."""

    search: DatastoreSearch
    states: States
    max_knns: int = 1024
    transitions: Transitions = "full"
    pointers: bool = True
    counts: Counts = "runs"
    base: float = 1.0
    # plain arrays: they are faster to read than memory maps
    values: NDArray[np.integer] = field(init=False, repr=False)  # of the entries
    ordered: NDArray[np.integer] = field(init=False, repr=False)  # values of the members, in their order
    last: NDArray[np.uint8] = field(init=False, repr=False)  # a bit per entry, lowest first: it ends a stream

    def __post_init__(self) -> None:
        arrays = {name: np.asarray(getattr(self.states, name)) for name in ("members", "offsets", "state_of")}
        object.__setattr__(self, "states", replace(self.states, **arrays))
        object.__setattr__(self, "values", np.asarray(self.store.values))
        object.__setattr__(self, "ordered", self._ordered())
        ends = np.zeros(self.store.entries + 1, np.bool_)
        ends[self.store.offsets] = True  # where the next stream begins
        object.__setattr__(self, "last", np.packbits(ends[1:], bitorder="little"))

    @property
    def store(self) -> Datastore:
        return self.search.store

    def _ordered(self) -> NDArray[np.integer]:
        """[N], uint16 for small vocabularies; empty if each entry is a state. Walks scan whole states: in this order
        their values are contiguous and take a fifth of the time that they take in the store's order."""
        if self.alone:
            return _NONE
        largest = int(self.store.values.max(initial=0))
        narrow: Any = np.uint16 if largest < 1 << 16 else np.int32
        ordered: NDArray[np.integer] = self.store.values.astype(narrow)[self.states.members]
        return ordered

    @property
    def alone(self) -> bool:
        """Whether each entry is a state."""
        return len(self.states) == self.store.entries

    def log_counts(self, counts: NDArray[np.int64]) -> NDArray[np.floating]:
        """The logarithm of how often candidates with these `Candidates.counts` count, same shape."""
        if self.counts == "runs":
            return np.log(counts)
        return counts * (math.log(self.base) if self.counts == "weighted" else 0.0)


@dataclass(slots=True)
class Candidates:
    """Candidates for the next token: ids int64 [c], with repeats, the `found` neighbours of a search first; squared L2
    distances float32 [c]; values [c]; counts int64 [c]. searched: whether there was a search.

    A count is, with `runs`, how often a candidate counts; with `weighted`, the number of tokens in a row that it has
    matched, 0 if nothing points to it; with `once`, 0.
    """

    ids: NDArray[np.int64]
    distances: NDArray[np.float32]
    values: NDArray[np.integer]
    counts: NDArray[np.int64]
    searched: bool
    found: int


@dataclass(slots=True)
class Walk:
    """One stream in the automaton. pointed: ids int64 of the entries pointed to, successors of candidates first, in
    order of distance. counts: int64, of each of them, as in `Candidates`. states: int32, sorted, the states reached.
    draws: seed of the random numbers. place: tokens walked."""

    automaton: Automaton
    draws: int
    pointed: NDArray[np.int64] = field(default_factory=lambda: _NONE)
    counts: NDArray[np.int64] = field(default_factory=lambda: _NONE)
    states: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    place: int = 0

    @property
    def reached(self) -> int:
        """Number of states reached."""
        return len(self.states)

    def candidates(
        self, query: NDArray[np.float32], found: tuple[NDArray[np.float32], NDArray[np.integer]] | None
    ) -> Candidates:
        """The candidates for the token after query [d]. found: distances and ids [k] of a search; None: no search."""
        automaton = self.automaton
        repeated, most = automaton.counts == "runs", automaton.max_knns
        pointed, counts = self.pointed[:most], self.counts[:most]
        if repeated:  # the cap is on the list with repeats
            before = np.cumsum(counts) - counts
            counts = np.minimum(counts, most - before)[before < most]
            pointed = pointed[: len(counts)]
        members = _NONE
        if not automaton.alone:
            members = draw(
                self.states, automaton.states.members, automaton.states.offsets, _NONE if repeated else pointed,
                most - (counts.sum() if repeated else len(pointed)), np.uint64(mixed(self.draws, self.place)),
            )  # fmt: skip
        taken = np.concatenate([pointed, members])
        near, distances = _NONE, automaton.search.distances(query, taken)
        if found is not None:
            real = found[1] >= 0
            near, distances = found[1][real].astype(np.int64), np.concatenate([found[0][real], distances])
        ids = np.concatenate([near, taken])
        tallied = np.full(len(ids), int(repeated))
        tallied[len(near) : len(near) + len(counts)] = counts
        return Candidates(ids, distances, automaton.values[ids], tallied, found is not None, len(near))

    def advance(self, token: int, candidates: Candidates) -> None:
        """Follow the observed token."""
        automaton = self.automaton
        self.place += 1
        if not automaton.pointers:
            return
        agreeing = np.flatnonzero(candidates.values == token)
        nearest = candidates.ids[agreeing[np.argsort(candidates.distances[agreeing], kind="stable")]]
        others = _NONE
        if automaton.transitions == "full" and not automaton.alone:
            states = self.states  # they contain the entries pointed to
            if candidates.searched:
                states = np.union1d(states, automaton.states.state_of[candidates.ids[: candidates.found]])
            others = having(states, automaton.states.members, automaton.states.offsets, automaton.ordered, token)
            others = self._shuffled(others)
        elif automaton.transitions == "full":  # the states are the entries pointed to, the cap aside
            others = self.pointed[automaton.values[self.pointed] == token]
        following = followers(nearest, others, automaton.last)
        self.counts = self._counted(following - 1, agreeing, token, candidates)
        self.pointed = following
        self.states = np.unique(automaton.states.state_of[self.pointed])

    def _counted(
        self, entries: NDArray[np.int64], agreeing: NDArray[np.intp], token: int, candidates: Candidates
    ) -> NDArray[np.int64]:
        """The counts of the successors of entries that have matched the token. agreeing: places of the candidates that
        have. `full` transitions count as if there were no cap."""
        automaton, plus = self.automaton, 1
        if automaton.counts == "once":
            return np.zeros(len(entries), np.int64)
        again = automaton.values[self.pointed] == token
        ids, counts = self.pointed[again], self.counts[again]
        if automaton.counts == "runs" and automaton.transitions == "capped":
            ids, counts, plus = candidates.ids[agreeing], candidates.counts[agreeing], 0
        elif automaton.counts == "runs":
            plus = 0 if automaton.alone else 1  # every entry as a member
            found = candidates.ids[agreeing[agreeing < candidates.found]]
            ids = np.concatenate([ids, found])
            # a found one counts again if it is a member of a state reached as well; else `plus` has counted it
            members = among(automaton.states.state_of[found], self.states) | automaton.alone
            counts = np.concatenate([counts, members])
        result: NDArray[np.int64] = counted(entries, ids, counts, plus)
        return result

    def _shuffled(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """In random order if more than `max_knns`, so that the cap does not favour a part of the text."""
        if len(ids) <= self.automaton.max_knns:
            return ids
        return np.random.default_rng(mixed(self.draws, self.place)).permutation(ids)


def mixed(seed: int, place: int) -> int:
    """A well-mixed 64-bit number from a seed and a place (SplitMix64)."""
    return int(scrambled(np.uint64((seed + 0x9E3779B97F4A7C15 * (place + 1)) & ((1 << 64) - 1))))


@njit(nogil=True, cache=True)
def followers(nearest, others, last):  # type: ignore[no-untyped-def]
    """Successors int64 of `nearest` (may contain repeats), then of `others` (unique), without duplicates, in order of
    first appearance. Entries whose bit is set in `last` end a stream and have no successor."""
    known = np.sort(nearest)
    seen = np.zeros(len(known), np.bool_)
    near = np.zeros(4096, np.bool_)  # filter on the lowest 12 bits: most of `others` need no binary search in `known`
    for entry in known:
        near[entry & 4095] = True
    following = np.empty(len(nearest) + len(others), np.int64)
    count = 0
    for entry in nearest:
        at = np.searchsorted(known, entry)
        if not seen[at] and not (last[entry >> 3] >> (entry & 7)) & 1:
            following[count] = entry + 1
            count += 1
        seen[at] = True
    for entry in others:
        if near[entry & 4095]:
            at = np.searchsorted(known, entry)
            if at < len(known) and known[at] == entry:
                continue
        if not (last[entry >> 3] >> (entry & 7)) & 1:
            following[count] = entry + 1
            count += 1
    return following[:count]


@njit(nogil=True, cache=True)
def having(states, members, offsets, values, token):  # type: ignore[no-untyped-def]
    """Members int64 of these states with the value `token`, state by state. values: in the order of `members`."""
    counts = np.empty(len(states), np.int64)
    for number, state in enumerate(states):
        count = 0
        for at in range(offsets[state], offsets[state + 1]):
            count += values[at] == token
        counts[number] = count
    found = np.empty(counts.sum(), np.int64)
    count = 0
    for number, state in enumerate(states):
        if counts[number] > 0:
            for at in range(offsets[state], offsets[state + 1]):
                if values[at] == token:
                    found[count] = members[at]
                    count += 1
    return found


@njit(nogil=True, cache=True)
def among(values, known):  # type: ignore[no-untyped-def]
    """Whether each of `values` is among the sorted `known`: bool [n]. `np.isin` takes 0.1 ms for ten values."""
    result = np.zeros(len(values), np.bool_)
    for number, value in enumerate(values):
        at = np.searchsorted(known, value)
        result[number] = at < len(known) and known[at] == value
    return result


@njit(nogil=True, cache=True)
def counted(entries, ids, counts, plus):  # type: ignore[no-untyped-def]
    """`plus` and the sum of the counts int64 [n] of ids int64 [n] equal to an entry, for each of the entries."""
    order = np.argsort(ids)
    known = ids[order]
    near = np.zeros(4096, np.bool_)  # as in `followers`
    for entry in known:
        near[entry & 4095] = True
    sums = np.full(len(entries), plus, np.int64)
    for number, entry in enumerate(entries):
        if near[entry & 4095]:
            at = np.searchsorted(known, entry)
            while at < len(known) and known[at] == entry:
                sums[number] += counts[order[at]]
                at += 1
    return sums


@njit(nogil=True, cache=True)
def draw(states, members, offsets, without, most, draws):  # type: ignore[no-untyped-def]
    """Members of the states that are not in `without`: int64 [at most `most`], unique. If there are more, they are
    drawn at random. draws: uint64, the seed.

    With many members, single ones are drawn and repeats rejected; with few, all are listed. Listing a thousand states
    of 270 members takes ten times as long as drawing 1,024 of them.
    """
    if most <= 0:
        return np.empty(0, np.int64)
    ends, total = np.empty(len(states), np.int64), 0
    for number, state in enumerate(states):
        total += offsets[state + 1] - offsets[state]
        ends[number] = total
    known = set(without)
    if total >= 4 * (most + len(without)):
        chosen, count = np.empty(most, np.int64), 0
        while count < most:
            draws += np.uint64(0x9E3779B97F4A7C15)
            place = np.int64(scrambled(draws) % np.uint64(total))
            which = np.searchsorted(ends, place, side="right")
            member = np.int64(members[offsets[states[which] + 1] - (ends[which] - place)])
            if member not in known:
                known.add(member)
                chosen[count] = member
                count += 1
        return chosen
    others, left = np.empty(total, np.int64), 0
    for state in states:
        for at in range(offsets[state], offsets[state + 1]):
            member = np.int64(members[at])
            if member not in known:
                others[left] = member
                left += 1
    wanted = min(most, left)
    if wanted < left:
        for number in range(wanted):  # a step of the Fisher-Yates shuffle
            draws += np.uint64(0x9E3779B97F4A7C15)
            other = number + np.int64(scrambled(draws) % np.uint64(left - number))
            others[number], others[other] = others[other], others[number]
    return others[:wanted]


@njit(nogil=True, cache=True)
def scrambled(value):  # type: ignore[no-untyped-def]
    """The output of SplitMix64 for a state, uint64."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
