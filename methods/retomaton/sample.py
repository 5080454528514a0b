"""A few states of the automaton with the transitions between them, as in Figure 8 of Alon et al. (2022)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.common.errors import CellFailedError, RequestError
from harness.common.progress import Progress
from harness.contracts import Artifacts, KeyKind
from harness.contracts.metrics import Metric
from harness.contracts.tasks import Measure, TokenScoringSetting
from harness.plan.registry import analysis
from methods.knnlm.builder import datastore_artifact
from methods.knnlm.datastore import Datastore
from methods.retomaton.states import ARTIFACT, StateOptions, States, build_states

_CONTEXT = 3  # tokens before an entry that name its state


@dataclass(frozen=True, slots=True)
class Transition:
    """`entries` entries of state `start` have the value `token` and a successor in state `end` (Eq. 5)."""

    start: int
    token: int
    end: int
    entries: int


@analysis("automaton-sample", summary="some states of RetoMaton's automaton and the transitions between them")
class AutomatonSample(StateOptions):
    """shown: states of the sample. branches: transitions followed from each state, those with most entries. least:
    fewest entries of the first state. begin: number of the first state among those, in an order drawn by `seed`. key:
    see `KnnLm`. The others: see `StateOptions`."""

    measures = (
        Metric("states", "states of the automaton", kind="counter"),
        Metric("entries_a_state", "entries a state"),
        Metric("transitions_a_state", "different transitions a state of the sample"),
    )

    shown: Annotated[int, Field(ge=1)] = 10
    branches: Annotated[int, Field(ge=1)] = 2
    least: Annotated[int, Field(ge=1)] = 20
    begin: Annotated[int, Field(ge=0)] = 0
    key: KeyKind = "last_ffn_input"
    seed: Annotated[int, Field(ge=0)] = 0

    def __post_init__(self) -> None:
        self._examples: list[dict[str, str]] = []

    def __call__(self, setting: TokenScoringSetting, artifacts: Artifacts, progress: Progress) -> dict[str, Measure]:
        """Raises `RequestError` if the task cannot turn ids into text, and `CellFailedError` if at most `begin` states
        have `least` entries and a transition."""
        if setting.text is None:
            raise RequestError("automaton-sample names states by words, and this task's setting has no text for ids")
        folder = datastore_artifact(artifacts, setting.model, setting.reference, self.key, progress)
        store = Datastore.open(folder)
        build_states(artifacts, store, self, self.seed)
        states = States.open(artifacts.path(ARTIFACT), store)
        sizes = np.diff(states.offsets)
        large = np.random.default_rng(self.seed).permutation(np.flatnonzero(sizes >= self.least)).tolist()
        begins = islice((state for state in large if transitions(store, states, state)), self.begin, None)
        first = next(begins, None)
        if first is None:
            few = f"no more than {self.begin} states have" if self.begin else "no state has"
            raise CellFailedError(f"{few} {self.least} entries that others follow; give a smaller `least`")
        found = sample(store, states, first, self.shown, self.branches)
        self._examples = worded(found, store, states, setting.text)
        different = [len(transitions(store, states, state)) for state in found]
        return {
            "states": Measure.of(len(states), None),
            "entries_a_state": Measure.of(sizes.mean(), None),
            "transitions_a_state": Measure.of(np.mean(different), None),
        }

    def examples(self) -> list[dict[str, str]]:
        """Each state of the sample, with its transitions by token."""
        return self._examples


def transitions(store: Datastore, states: States, state: int) -> list[Transition]:
    """All transitions of a state, those with most entries first; ties: by token, then end. An entry that ends a stream
    has none."""
    members = np.asarray(states.members[states.offsets[state] : states.offsets[state + 1]], np.int64)
    following = store.successors(members)
    members, following = members[following >= 0], following[following >= 0]
    found = Counter(zip(store.values[members].tolist(), states.state_of[following].tolist(), strict=True))
    every = [Transition(state, token, end, entries) for (token, end), entries in found.items()]
    return sorted(every, key=lambda one: (-one.entries, one.token, one.end))


def sample(store: Datastore, states: States, begin: int, shown: int, branches: int) -> dict[int, list[Transition]]:
    """State -> its transitions within the sample. The sample is the first `shown` states of a breadth-first search from
    `begin` along the `branches` transitions with most entries."""
    found: dict[int, list[Transition]] = {begin: []}
    waiting = deque([begin])
    while waiting:
        state = waiting.popleft()
        for one in transitions(store, states, state)[:branches]:
            if one.end not in found and len(found) < shown:
                found[one.end] = []
                waiting.append(one.end)
            if one.end in found:
                found[state].append(one)
    return found


def worded(
    found: dict[int, list[Transition]], store: Datastore, states: States, text: Callable[[Sequence[int]], str]
) -> list[dict[str, str]]:
    """The sample as text, one row per state: `state`, then for each token the state that it leads to."""
    sizes = np.diff(states.offsets)
    names = {
        state: f"{number}: …{text(_context(store, states, state))} ({sizes[state]})"
        for number, state in enumerate(found, 1)
    }
    rows = []
    for state, leading in found.items():
        row = {"state": names[state]}
        for one in leading:
            label = f"“{text([one.token])}” ({one.entries})"
            while label in row:  # the same label leads to another state
                label += " "
            row[label] = names[one.end]
        rows.append(row)
    return rows


def _context(store: Datastore, states: States, state: int) -> list[int]:
    """The most frequent context before the entries of a state; ties: the lowest token ids."""
    members: NDArray[np.int64] = np.asarray(
        states.members[states.offsets[state] : states.offsets[state + 1]], np.int64
    )  # fmt: skip
    begins = store.offsets[np.searchsorted(store.offsets, members, side="right") - 1]
    seen: Counter[tuple[int, ...]] = Counter(
        tuple(store.values[max(begin, member - _CONTEXT) : member].tolist())
        for begin, member in zip(begins.tolist(), members.tolist(), strict=True)
    )
    commonest = min(seen.items(), key=lambda item: (-item[1], item[0]))
    return list(commonest[0])
