"""Queries of `harness infinigram` as text or ids, and answers as lines or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from harness.common.errors import RequestError, reason

if TYPE_CHECKING:
    from methods.infinigram.answers import Document

OR = "||"
_PLACES = ("line", "row")  # of a document in its file


class Asked:
    """An engine with the tokenizer of its first index."""

    def __init__(self, index: list[Path], subtract: list[Path] | None) -> None:
        from methods.infinigram.engine import open_index
        from methods.infinigram.layout import TOKENIZER

        self.engine = open_index(index, subtract or ())
        place = index[0] / TOKENIZER
        self._coder: Any = opened_tokenizer(str(place)) if place.is_dir() else None

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *exception: object) -> None:
        self.engine.close()

    def ids(self, text: str, ids: str) -> list[int]:
        """The tokens of a query given as text or as ids."""
        if text and ids:
            raise RequestError("--text and --ids are two queries: give one")
        if not ids:
            if text and self._coder is None:
                raise RequestError("this index holds no tokenizer: give the query as --ids 1,2,3")
            try:
                text.encode()
            except UnicodeEncodeError:
                raise RequestError("--text holds bytes that are not UTF-8: give the query as --ids 1,2,3") from None
            found: list[int] = self._coder(text, add_special_tokens=False)["input_ids"] if text else []
            return found
        try:
            found = [int(part) for part in ids.split(",")]
        except ValueError as error:
            raise RequestError(f"--ids {ids}: give token ids with commas between them") from error
        self.engine.checked(found)
        return found

    def cnf(self, texts: list[str] | None, ids: list[str] | None) -> list[list[list[int]]]:
        """Queries that must all be held, each with alternatives. Without any, the empty n-gram."""
        if texts and ids:
            raise RequestError("--text and --ids are two queries: give one")
        clauses = [[self.ids(one, "") for one in text.split(OR)] for text in texts or ()]
        clauses += [[self.ids("", one) for one in part.split(OR)] for part in ids or ()]
        if not all(all(clause) for clause in clauses):
            raise RequestError(
                f"a query, or one side of a {OR}, has no token, so every document would hold it: leave it out; a {OR} "
                "of the text itself is given by --ids"
            )
        return clauses or [[[]]]

    def elsewhere(self, texts: list[str] | None) -> dict[str, dict[str, int]]:
        """For texts that do not occur: how often they do with or without a blank before them and in another case."""
        found: dict[str, int] = {}
        for text in (one for several in texts or () for one in several.split(OR)):
            bare = text.strip()
            if not bare or self.engine.count(self.ids(text, "")):
                continue
            likely = self._likeliest(bare)
            found |= self._occurring([*_cases(bare), likely, likely[:1].upper() + likely[1:]])
        return {"occurs_as": found} if found else {}

    def _likeliest(self, text: str) -> str:
        """A text with each of its words in the case in which it occurs most often after a blank."""
        words = []
        for word in text.split():
            forms = self._occurring(_cases(word))
            words.append(max(forms, key=forms.__getitem__, default=word).strip())
        return " ".join(words)

    def _occurring(self, texts: Iterable[str]) -> dict[str, int]:
        """Those of the texts, with and without a blank before them, that occur, with their counts."""
        forms = {tuple(self.ids(form, "")): form for one in texts for form in (one, f" {one}")}  # some are one n-gram
        return {form: number for ids, form in forms.items() if (number := self.engine.count(ids))}

    def found(self, document: Document) -> dict[str, Any]:
        """A document's facts for output; `line` of its metadata is that of the match."""
        source = document.metadata
        if isinstance(source, dict) and "line" in source:
            source = {**source, "line": source["line"] + document.lines}
        return {
            "index": str(document.index), "shard": document.shard, "document": document.number, "source": source,
            "tokens": document.length, "matches": document.matches, "begin": document.window,
            "text": self.shown(document.tokens), "shown": len(document.tokens),
        }  # fmt: skip

    def shown(self, ids: list[int]) -> Any:
        """Tokens as text if there is a tokenizer."""
        return self._coder.decode(ids) if self._coder is not None else ids


def _cases(text: str) -> list[str]:
    return [text, text.lower(), text[:1].upper() + text[1:], text.title(), text.upper()]


def opened_tokenizer(name: str) -> Any:
    """A tokenizer by folder or hub id. Raises `RequestError` when there is none."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # a broken tokenizer.json is a plain Exception of the Rust library
        raise RequestError(f"no tokenizer {name}: {reason(error)}; give a folder or a hub id") from error


def place_of(one: dict[str, Any]) -> str:
    """Where a document comes from, in words."""
    source = one["source"]
    if not isinstance(source, dict) or "file" not in source:
        number = f"{one['index']}, shard {one['shard']}, document {one['document']}"
        return number if source is None else f"{number}: {json.dumps(source)}"
    place = ", ".join([source["file"], *(f"{name} {source[name]}" for name in _PLACES if name in source)])
    about = ", ".join(f"{name} {value}" for name, value in source.items() if name not in ("file", *_PLACES))
    return f"{place} ({about})" if about else place


def quoted(one: dict[str, Any]) -> str:
    """The text shown of a document, on one line."""
    before, after = one["begin"] > 0, one["begin"] + one["shown"] < one["tokens"]
    text = " ".join(one["text"].split()) if isinstance(one["text"], str) else one["text"]
    return f"{'… ' * before}{text}{' …' * after}"


def printed(facts: dict[str, Any], as_json: bool, lines: Sequence[str] = ()) -> None:
    """Print facts as JSON or as lines; `lines` stand for the facts that are lists."""
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
        return
    for line in lines:
        typer.echo(line)
    for name, value in facts.items():
        if isinstance(value, dict):
            for key, number in value.items():
                typer.echo(f"{name.replace('_', ' ')} {json.dumps(key)}: {times(number)}")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            if not lines:
                for number, part in enumerate(value, 1):
                    typer.echo(f"{name} {number}: " + ", ".join(f"{key} {_shown(one)}" for key, one in part.items()))
        elif not lines:
            typer.echo(f"{name:<16} {_shown(value)}")


def times(number: int) -> str:
    return f"{number:,} time{'s' * (number != 1)}"


def _shown(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return json.dumps(value) if isinstance(value, str) else f"{value}"
