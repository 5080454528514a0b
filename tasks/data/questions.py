"""Open-domain questions of the retrieval papers, in local folders or on the hub."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.common.errors import RequestError
from tasks.data.files import find_data
from tasks.data.json_lines import json_lines
from tasks.data.text.hub import HubAddress


@dataclass(frozen=True, slots=True)
class Question:
    """answers: any of them is right, and each has a word; empty if the set gives none."""

    text: str
    answers: tuple[str, ...] = ()


# set -> (files under a data root, tried in order; hub id with an optional config after a colon; split; column)
SETS: Mapping[str, tuple[tuple[str, ...], str, str, str]] = {
    "natural-questions": (("nq-open/dev.jsonl",), "google-research-datasets/nq_open", "validation", "question"),
    "web-questions": (("webquestions/test.json",), "stanfordnlp/web_questions", "test", "question"),
    "trivia-qa": (("triviaqa/test.jsonl",), "mandarjoshi/trivia_qa:rc.nocontext", "validation", "question"),
    "wiki-qa": (("wiki-qa/test.jsonl", "wikiqa/test.jsonl"), "microsoft/wiki_qa", "test", "question"),
}
_FIELDS = ("question", "qText")
_ANSWERS = ("answer", "answers")


def questions(name: str, roots: Sequence[Path], hub: bool) -> list[Question]:
    """The questions of a set, without duplicates, in its order. Raises `RequestError` with the places tried."""
    files, identity, split, column = SETS[name]
    if hub:
        return _unique(_from_hub(identity, split, column))
    return _unique(_from_file(find_data(f"questions {name!r}", files, roots, accepts=Path.is_file, folder=files[0])))


def _from_file(path: Path) -> list[Question]:
    number = 1
    found = []
    try:
        whole = path.suffix == ".json"
        rows = enumerate(json.loads(path.read_text(encoding="utf-8-sig")), 1) if whole else json_lines(path)
        for number, row in rows:  # noqa: B007 - the message has it
            found.append(_question(next(row[field] for field in _FIELDS if field in row), row))
    except (OSError, ValueError, TypeError, StopIteration) as error:
        reason = f"{type(error).__name__}: {error}"
        raise RequestError(f"{path}:{number} cannot be read as questions ({reason}); fetch it") from error
    return found


def _from_hub(dataset: str, split: str, column: str) -> list[Question]:
    rows = HubAddress(dataset).rows(split)
    try:
        return [_question(row[column], row) for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise RequestError(f"the {split} split of {dataset} has no questions in column {column!r}: {error}") from error


def _question(text: object, row: Mapping[str, Any]) -> Question:
    if not isinstance(text, str):
        raise ValueError(f"the question {text!r} is not text")
    answers = next((row[field] for field in _ANSWERS if field in row), ())
    if isinstance(answers, Mapping):  # TriviaQA on the hub
        answers = answers.get("aliases", ())
    if isinstance(answers, str):  # WikiQA's is a candidate that its label judges
        answers = () if "label" in row else (answers,)
    if strange := [answer for answer in answers or () if not isinstance(answer, str)]:
        raise ValueError(f"the answer {strange[0]!r} is not text")
    return Question(text.strip(), tuple(answer for answer in answers or () if re.search(r"\w", answer)))


def _unique(found: list[Question]) -> list[Question]:
    first: dict[str, Question] = {}
    for question in found:
        if question.text:
            first.setdefault(question.text, question)
    return list(first.values())
