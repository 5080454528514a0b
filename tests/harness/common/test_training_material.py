"""What a decoding method gets to learn from: only what its `needs` name, made only then."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from harness.common.errors import RequestError
from harness.contracts import Decoded, Trace
from harness.measure.drivers import DRIVERS

DRIVER = DRIVERS["sequence-decoding"]


class Learner:
    """Keeps what it was given."""

    def fit(self, model, reference, training, artifacts):
        self.given = reference, training


def made(*needs, **material):
    learner = Learner()
    DRIVER.fit(learner, SimpleNamespace(model=None, **{"reference": None, "training": None, **material}), None, needs)
    return learner.given


def never():
    raise AssertionError("made without being needed")


def test_only_what_is_needed_is_made():
    streams, pairs = [[1, 2]], [([1], [2])]
    assert made(reference=never, training=never) == ((), ())
    assert made("causal", "training-pairs", reference=never, training=lambda: pairs) == ((), pairs)
    assert made("reference-text", reference=lambda: streams, training=never) == (streams, ())
    both = made("training-pairs", "reference-text", reference=lambda: streams, training=lambda: pairs)
    assert both == (streams, pairs)


def test_a_setting_without_what_its_task_provides_is_refused():
    with pytest.raises(RequestError, match="Learner needs training-pairs, which the task's setting does not hold"):
        made("training-pairs", "reference-text", reference=list)


@pytest.mark.parametrize(
    ("name", "streams", "pairs"), [("toy-drafter", 0, 7), ("toy-lookup", 2, 0), ("toy-greedy", 0, 0)]
)
def test_a_cell_fits_by_the_needs_of_the_decorator(toys, cache_home, name, streams, pairs):
    from harness.measure import steps

    request = {
        "scale": "mini", "device": "cpu", "seed": 0, "cache": str(cache_home), "libraries": {},
        "fidelity_baseline": None, "baseline_code": "",
        "task": {"name": "toy-translation", "params": {}}, "method": {"name": name, "params": {}}, "fit": 0,
        "answers": str(cache_home / "answers.npz"),
    }  # fmt: skip
    response = steps.fit(request)
    counters = response["counters"]
    assert (counters.get("streams", 0), counters.get("pairs", 0)) == (streams, pairs)


def test_what_was_drafted_becomes_a_counter_and_a_series():
    decoded = [
        Decoded([1, 2, 3], Trace(2, accepted=[1, 2], drafts=[[], [2, 9, 9]])),
        Decoded([4], Trace(1, accepted=[1], drafts=[[5]])),
    ]
    assert DRIVER.counters(decoded)["drafted"] == 4
    assert DRIVER.series(decoded)["drafted"] == [0, 3, 1]
    plain = [Decoded([1], Trace(1, accepted=[1]))]
    assert "drafted" not in DRIVER.counters(plain) and "drafted" not in DRIVER.series(plain)
