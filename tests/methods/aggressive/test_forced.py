"""IAD's iterations over outputs that are forced on the model."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from harness.common.errors import CellFailedError, RequestError
from harness.common.phases import NoPhases
from harness.common.progress import Progress
from harness.contracts.tasks import GoldOutput
from methods.aggressive.forced import IadForced, blocks
from methods.aggressive.iad import Iad, IadOptions
from tasks.metrics.spans import edits

QUIET = Progress(quiet=True)
END = 2


def setting(sources, gold):
    """gold: ids of the right outputs of each source, whose edits count as those of words do."""
    model = SimpleNamespace(kind="encoder-decoder", eos_ids=(END,))
    pairs = zip(sources, gold, strict=True)
    outputs = [[GoldOutput(ids, len(edits(source, ids))) for ids in several] for source, several in pairs]
    return SimpleNamespace(model=model, evaluation=sources, limit=64, gold=lambda: outputs)


@pytest.mark.parametrize("kind", ["marian", "bart", "gpt2"])
def test_forcing_what_a_model_writes_gives_its_own_iterations(tiny, kind):
    chosen, model = random.Random(kind), tiny.make(kind, 5)
    method = Iad()
    for _ in range(5):
        source = [chosen.randrange(3, 39) for _ in range(chosen.randrange(1, 12))]
        [first] = method.decode(model, [source], 12, NoPhases())
        source = [*source, *first.ids]  # so that drafts are accepted
        [decoded] = method.decode(model, [source], 12, NoPhases())
        drafter = IadOptions().drafting([source], set(model.eos_ids), model.kind == "encoder-decoder")
        assert [len(block) for block in blocks(drafter, decoded.ids, 12)] == decoded.trace.accepted


def test_a_copy_takes_one_iteration_and_an_edit_a_few_more():
    source = [*range(10, 30), END]
    edited = [*range(10, 15), 99, *range(16, 30), END]
    found = IadForced()(setting([source], [[source, edited]]), None, QUIET)
    # the copy: one block of 21. The edit: 10 to 14 and 99; 16, which no suffix leads to; the rest
    assert found["accepted_tokens"].value == pytest.approx((21 + 21) / (1 + 3))
    assert found["edits"].value == 0.5
    assert found["outputs"].value == 2
    alone = IadForced(edits=1)(setting([source], [[source, edited]]), None, QUIET)
    assert alone["accepted_tokens"].value == pytest.approx(21 / 3)


def test_tokens_behind_the_limit_do_not_count():
    source = [*range(10, 30), END]
    given = setting([source], [[source]])
    given.limit = 8
    assert IadForced()(given, None, QUIET)["accepted_tokens"].value == 8


def test_what_cannot_be_forced_is_refused():
    source = [10, 11, END]
    with pytest.raises(CellFailedError, match="hold no token"):
        IadForced()(setting([source], [[[]]]), None, QUIET)
    with pytest.raises(CellFailedError, match="edits = 5-8: no gold output has that many edits"):
        IadForced(edits="5-8")(setting([source], [[source]]), None, QUIET)
    with pytest.raises(RequestError, match="give a count"):
        IadForced(edits="4-3")
    without = setting([source], [[source]])
    without.gold = None
    with pytest.raises(RequestError, match="needs gold outputs"):
        IadForced()(without, None, QUIET)
