"""Prompts for a causal model: where they come from, how they are cut, what is refused."""

from __future__ import annotations

import json

import pytest

from harness.common.errors import RequestError
from harness.common.progress import Progress
from tasks.causal_generation import CausalGeneration
from tasks.metrics.repetition import repetition
from tests.tasks.test_wikitext_perplexity import place

__all__ = ["place"]  # a fixture

QUIET = Progress(quiet=True)


@pytest.fixture
def questions(place):
    context, _ = place
    rows = [
        {"category": category, "turns": [f"w1 w2 w3 {category} {n}", "and then ?"]}
        for n in range(6) for category in ("qa", "math")
    ]  # fmt: skip
    (context.data[0] / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return "questions.jsonl"


def task_of(place, **parameters):
    return CausalGeneration(
        source="folder", dataset="wiki", model=place[1], prompt_tokens=6, limit=10, timed=1, **parameters
    )


def test_first_turns_are_prompts_cut_to_their_ends(place, questions):
    setting = task_of(place, file=questions, categories=["qa"]).prepare(place[0], QUIET)
    assert len(setting.evaluation) == 6
    assert all(1 <= len(prompt) <= 6 for prompt in setting.evaluation)
    for prompt in setting.evaluation:
        assert "w2" not in setting.model.tokenizer.decode(prompt) or len(prompt) == 6
    assert len(task_of(place, file=questions).prepare(place[0], QUIET).evaluation) == 12
    assert sum(map(len, setting.reference())) > 1000


def test_beginnings_of_held_out_text_are_prompts(place):
    setting = task_of(place, prompts="text", evaluation=5).prepare(place[0], QUIET)
    assert len(setting.evaluation) == 5 and {len(prompt) for prompt in setting.evaluation} == {6}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"categories": ["poems"]}, "has no category 'poems'; it has math, qa"),
        ({"limit": 30}, "exceed the model's window of 32"),
        ({"file": "nothing.jsonl"}, "file nothing.jsonl"),
    ],
)
def test_bad_requests_are_refused(place, questions, parameters, message):
    task = task_of(place, file=questions)
    for name, value in parameters.items():
        setattr(task, name, value)
    with pytest.raises(RequestError, match=message):
        task.prepare(place[0], QUIET)


def test_repetition_by_hand():
    assert repetition([[1, 2, 1, 2, 1, 2]], 2).value == pytest.approx(1 - 2 / 5)
    assert repetition([[1, 2, 3], []], 2).value == 0
