"""Prompts for a causal model: where they come from, how they are cut, what is refused."""

from __future__ import annotations

import json

import pytest
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer

from harness.common.errors import RequestError
from harness.common.progress import Progress
from tasks import causal_generation
from tasks.causal_generation import CausalGeneration
from tasks.metrics.repetition import repetition
from tasks.models.pretrained.generation import TextGenerator
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


def test_reference_text_is_cut_to_the_tokens_that_are_asked_for(place, questions):
    setting = task_of(place, file=questions, reference_tokens=200).prepare(place[0], QUIET)
    assert 190 <= sum(len(stream) - 1 for stream in setting.reference()) <= 200


def test_beginnings_of_held_out_text_are_prompts(place):
    setting = task_of(place, prompts="text", evaluation=5).prepare(place[0], QUIET)
    assert len(setting.evaluation) == 5 and {len(prompt) for prompt in setting.evaluation} == {6}


TEMPLATE = "{% for one in messages %}w8 {{ one.content }} w9{% endfor %}"


@pytest.fixture
def tokenizer(place):
    """The tokenizer in the model's folder, to be changed and saved."""
    return AutoTokenizer.from_pretrained(place[1])


def test_prompts_begin_with_bos_where_the_tokenizer_adds_it(place, questions, tokenizer):
    plain = task_of(place, file=questions).prepare(place[0], QUIET)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", tokenizer.bos_token_id)]
    )
    tokenizer.save_pretrained(place[1])
    setting = task_of(place, file=questions).prepare(place[0], QUIET)
    assert setting.facts["bos"] == "in front of every prompt" and "bos" not in plain.facts
    for prompt, without in zip(setting.evaluation, plain.evaluation, strict=True):
        assert prompt == [tokenizer.bos_token_id, *without[-5:]]


def test_a_chat_prompt_is_cut_inside_the_users_turn(place, questions, tokenizer):
    with pytest.raises(RequestError, match="has no chat template"):
        task_of(place, file=questions, chat=True).prepare(place[0], QUIET)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(place[1])
    plain = task_of(place, file=questions, chat=False).prepare(place[0], QUIET)
    assert "chat" not in plain.facts
    setting = task_of(place, file=questions).prepare(place[0], QUIET)  # a chat model gets its template
    assert setting.facts["chat"] and setting.evaluation != plain.evaluation
    assert setting.evaluation == task_of(place, file=questions, chat=True).prepare(place[0], QUIET).evaluation
    for prompt in setting.evaluation:
        text = tokenizer.decode(prompt)
        assert len(prompt) <= 6 and text.startswith("w8 ") and text.endswith(" w9") and "w1 w2" not in text
    assert "chat" not in task_of(place, prompts="text").prepare(place[0], QUIET).facts
    task = task_of(place, file=questions, chat=True)
    task.prompt_tokens = 2
    with pytest.raises(RequestError, match="fills prompt_tokens=2"):
        task.prepare(place[0], QUIET)
    with pytest.raises(RequestError, match="chat=true needs prompts=spec-bench"):
        task_of(place, prompts="text", chat=True)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"categories": ["poems"]}, "has no category 'poems'; it has math, qa"),
        ({"limit": 30}, "exceed the model's window of 32"),
        ({"file": "nothing.jsonl"}, "file nothing.jsonl"),
        ({"assistant": "train:serving-tni"}, r"in task\.assistant: did you mean 'train:serving-tiny'"),
    ],
)
def test_bad_requests_are_refused(place, questions, parameters, message):
    task = task_of(place, file=questions)
    for name, value in parameters.items():
        setattr(task, name, value)
    with pytest.raises(RequestError, match=message):
        task.prepare(place[0], QUIET)


def test_lines_of_another_form_are_refused(place):
    (place[0].data[0] / "other.jsonl").write_text('{"question": "q"}\n')
    with pytest.raises(RequestError, match="no object with category and turns"):
        task_of(place, file="other.jsonl").prepare(place[0], QUIET)
    (place[0].data[0] / "other.jsonl").write_text('{"category": "qa", "turns": [""]}\n')
    with pytest.raises(RequestError, match="has no prompt"):
        task_of(place, file="other.jsonl").prepare(place[0], QUIET)


def test_there_are_enough_prompts_for_passes_of_whole_batches(place, monkeypatch):
    asked = []
    monkeypatch.setattr(causal_generation, "enough", lambda sample: asked.append(sample) or 20)
    setting = task_of(place, prompts="text", evaluation=2, batch=8).prepare(place[0], QUIET)
    assert asked == [8] and setting.sample == 8 and len(setting.timed) == 20


def test_decoding_needs_no_probabilities_row_by_row(place, questions, monkeypatch):
    def refused(self):
        raise RequestError("capped logits")

    monkeypatch.setattr(TextGenerator, "language_model", property(refused))
    setting = task_of(place, file=questions).prepare(place[0], QUIET)
    with pytest.raises(RequestError, match="capped"):
        setting.reference()


def test_repetition_by_hand():
    assert repetition([[1, 2, 1, 2, 1, 2]], 2).value == pytest.approx(1 - 2 / 5)
    assert repetition([[1, 2, 3], []], 2).value == 0
