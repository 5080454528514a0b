"""A sample of the automaton tells its states and transitions as they are."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from harness.common.cache import Cache, CellArtifacts
from harness.common.errors import CellFailedError, RequestError
from harness.common.progress import Progress
from methods.retomaton.sample import AutomatonSample, sample, transitions
from methods.retomaton.states import States
from tests.methods.knnlm.conftest import artifacts, model, store_of, text

__all__ = ["artifacts", "model"]  # fixtures

QUIET = Progress(quiet=True)


def chain(folder, values, state_of, offsets):
    """A datastore of these values, and its states."""
    store = store_of(folder, np.zeros((len(values), 2)), np.array(values), offsets)
    return store, States.of(np.array(state_of))


def test_transitions_go_where_successors_are_and_stop_at_the_end_of_a_stream(tmp_path):
    values = [7, 1, 7, 1, 7, 1, 7]
    store, states = chain(tmp_path, values, [0, 1, 0, 2, 0, 1, 0], [0, 7])
    found = [(one.token, one.end, one.entries) for one in transitions(store, states, 0)]
    assert found == [(7, 1, 2), (7, 2, 1)]  # of its four entries the last has no successor
    assert [(one.token, one.end, one.entries) for one in transitions(store, states, 1)] == [(1, 0, 2)]


def test_a_sample_holds_the_nearest_states_and_transitions_between_them_alone(tmp_path):
    rng = np.random.default_rng(0)
    values, state_of = rng.integers(0, 6, 200).tolist(), rng.integers(0, 20, 200).tolist()
    store, states = chain(tmp_path, values, state_of, [0, 80, 200])
    found = sample(store, states, 4, shown=7, branches=3)
    assert len(found) == 7 and next(iter(found)) == 4
    for state, leading in found.items():
        assert len(leading) <= 3 and set(leading) <= set(transitions(store, states, state))
        assert all(one.start == state and one.end in found for one in leading)
    assert all(any(one.end == state for others in found.values() for one in others) for state in list(found)[1:])


def test_the_analysis_names_states_by_what_stands_before_them(model, tmp_path):
    reference = text(1, 200, 150)
    setting = SimpleNamespace(model=model, reference=reference, text=lambda ids: " ".join(f"w{i}" for i in ids))
    run = AutomatonSample(clusters=12, shown=5, least=10)
    measured = run(setting, CellArtifacts(Cache(tmp_path)), QUIET)
    assert measured["states"].value == 12
    assert measured["entries_a_state"].value == pytest.approx((199 + 149) / 12)
    told = run.examples()
    assert 1 <= len(told) <= 5
    names = {one["state"] for one in told}
    assert all(end in names for one in told for label, end in one.items() if label != "state")
    pairs = {pair for stream in reference for pair in pairwise(stream.tolist())}
    for name in names:
        words = [int(word[1:]) for word in name.split("…")[1].split(" (")[0].split()]
        assert set(pairwise(words)) <= pairs  # they stand in the text one behind the other


def test_what_cannot_be_drawn_is_refused(model, tmp_path):
    setting = SimpleNamespace(model=model, reference=text(1, 60), text=None)
    with pytest.raises(RequestError, match="no text for ids"):
        AutomatonSample()(setting, CellArtifacts(Cache(tmp_path)), QUIET)
    setting.text = str
    with pytest.raises(CellFailedError, match="no state has 1000 entries"):
        AutomatonSample(clusters=4, least=1000)(setting, CellArtifacts(Cache(tmp_path)), QUIET)
    with pytest.raises(CellFailedError, match="no more than 4 states have 1 entries"):
        AutomatonSample(clusters=4, least=1, begin=4)(setting, CellArtifacts(Cache(tmp_path)), QUIET)
