"""Open-domain questions of the retrieval papers, in local folders or on the hub."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.common.errors import RequestError
from harness.common.files import find_data
from harness.common.text.hub import HubAddress
from tasks.data.json_lines import json_lines

# set -> (files under a data root, tried in order; hub id with an optional config after a colon; split; column)
SETS: Mapping[str, tuple[tuple[str, ...], str, str, str]] = {
    "natural-questions": (("nq-open/dev.jsonl",), "google-research-datasets/nq_open", "validation", "question"),
    "web-questions": (("webquestions/test.json",), "stanfordnlp/web_questions", "test", "question"),
    "trivia-qa": (("triviaqa/test.jsonl",), "mandarjoshi/trivia_qa:rc.nocontext", "validation", "question"),
    "wiki-qa": (("wiki-qa/test.jsonl", "wikiqa/test.jsonl"), "microsoft/wiki_qa", "test", "question"),
}
_FIELDS = ("question", "qText")


def questions(name: str, roots: Sequence[Path], hub: bool) -> list[str]:
    """The questions of a set, without duplicates, in its order. Raises `RequestError` with the places tried."""
    files, identity, split, column = SETS[name]
    if hub:
        return _unique(_from_hub(identity, split, column))
    return _unique(_from_file(find_data(f"questions {name!r}", files, roots, accepts=Path.is_file, folder=files[0])))


def _from_file(path: Path) -> list[str]:
    try:
        if path.suffix == ".json":
            rows = json.loads(path.read_text(encoding="utf-8-sig"))
        else:
            rows = [row for _, row in json_lines(path)]
        return [_text(next(row[field] for field in _FIELDS if field in row)) for row in rows]
    except (OSError, ValueError, TypeError, StopIteration) as error:
        raise RequestError(f"{path} cannot be read as questions ({type(error).__name__}: {error}); fetch it") from error


def _from_hub(dataset: str, split: str, column: str) -> list[str]:
    rows = HubAddress(dataset).rows(split)
    try:
        return [_text(question) for question in rows[column]]
    except (KeyError, ValueError) as error:
        raise RequestError(f"the {split} split of {dataset} has no questions in column {column!r}: {error}") from error


def _text(question: object) -> str:
    if not isinstance(question, str):
        raise ValueError(f"the question {question!r} is not text")
    return question


def _unique(found: list[str]) -> list[str]:
    return list(dict.fromkeys(text.strip() for text in found if text.strip()))
