"""Real misspellings: the list of the package `codespell`, collected from real text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from importlib.resources import files


@cache
def misspellings() -> Mapping[str, tuple[str, ...]]:
    """Lower-case word -> its misspellings, in the order of the list; only words of letters."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    text = (files("codespell_lib") / "data" / "dictionary.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        wrong, _, right = line.partition("->")
        for word in (entry.strip() for entry in right.split(",")):
            if wrong.isalpha() and word.isalpha() and word.islower():  # anything else is a remark
                found[word].append(wrong)
    return {word: tuple(several) for word, several in found.items()}


def identity() -> str:
    """The list's identity."""
    return f"codespell {version('codespell')}"
