"""Documents: their hash, their words in any script, and the format of WikiText, a sequence of articles, each opened by
a line ` = Title = ` between blank lines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import pairwise

# Scripts that put no blanks between words: Thai, Lao, Burmese, Khmer, kana, Han.
_UNSPACED = (
    "\u0e01-\u0e5b\u0e81-\u0edf\u1000-\u109f\u1780-\u17ff"
    "\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)


def content_hash(documents: Iterable[str]) -> str:
    """SHA-256 (20 hex digits) over documents and their boundaries."""
    total = hashlib.sha256()
    for document in documents:
        encoded = document.encode()
        total.update(len(encoded).to_bytes(8, "little"))
        total.update(encoded)
    return total.hexdigest()[:20]


def word_pattern(outside: str, least: int = 1) -> str:
    """A regular expression of one word: `least` or more characters outside of the class `outside` (such as `\\s`), or
    one character of a script that puts no blanks between words."""
    return rf"(?:[{_UNSPACED}]|[^{outside}{_UNSPACED}]{{{least},}})"


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


def is_title(line: str) -> bool:
    """Whether a line has the form of a level-1 heading. Blank lines around it are not looked at."""
    bare = line.strip()
    return len(bare) > 4 and bare.startswith("= ") and bare.endswith(" =") and "= =" not in (bare[:3], bare[-3:])
