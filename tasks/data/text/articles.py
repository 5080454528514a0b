"""The format of WikiText: a sequence of articles, each opened by a line ` = Title = ` between blank lines."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from harness.common.documents import is_title


def articles(lines: Iterable[str]) -> list[str]:
    """Split lines (without their line ends) into articles; text without level-1 headings is one document.

    Words are not changed. Blanks at line ends are dropped, every line ends in one newline, and blank lines stay. So the
    usual WikiText word count (words and one end mark per line) is the number of words and newlines.
    """
    trimmed = [line.rstrip() for line in lines]
    starts = [
        number
        for number, line in enumerate(trimmed)
        if is_title(line)
        and (number == 0 or not trimmed[number - 1])
        and (number + 1 == len(trimmed) or not trimmed[number + 1])
    ]
    bounds = [0, *starts[1:], len(trimmed)]  # text before the first title belongs to the first article
    texts = ("".join(f"{line}\n" for line in trimmed[a:b]) for a, b in pairwise(bounds))
    return [text for text in texts if text.strip()]


def count_words(text: str) -> int:
    """Words as WikiText counts them: whitespace-separated tokens and one end mark for every newline."""
    return len(text.split()) + text.count("\n")
