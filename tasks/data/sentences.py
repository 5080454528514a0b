"""Sentences as words and back, for word-level translators: a stated tokenisation, its inverse, a vocabulary.

Case is kept. A word is a run of letters and digits, with hyphens inside it or after it (`T-shirt`, `Zwei-`); a number
keeps its inner marks (`1,000`); an apostrophe and what follows it inside a word is a word of its own (`man` `'s`); any
other mark is one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

MARKS = ("</s>", "<unk>")
END, UNKNOWN = range(len(MARKS))  # ids; the decoder starts from the end mark as well

_WORD = re.compile(r"\d+(?:[.,:]\d+)+|\w+(?:-\w+)*-?|(?<=\w)['’]\w+|[^\w\s]")
_CLOSING = frozenset(".,;:!?)]}%…”»'’")  # no blank between them and the word before
_OPENING = frozenset("([{#$€£„«")  # no blank between them and the word after


def tokenised(sentence: str) -> list[str]:
    """Words of a sentence; an empty list for a blank one."""
    return _WORD.findall(sentence)


def detokenised(words: Iterable[str]) -> str:
    """A sentence from words, spaced as text is: no blank before closing marks, after opening ones, or inside quotes
    (a straight quote opens and closes in turn; `“` closes where `„` stood before it)."""
    text, close, quoted, low = "", True, False, False
    for word in words:
        opens, closes = word in _OPENING, word in _CLOSING or (len(word) > 1 and word[0] in "'’")
        if word == '"':
            opens, closes, quoted = not quoted, quoted, not quoted
        elif word == "“":
            opens, closes, low = not low, low, False
        elif word == "/":
            opens = closes = True
        low = low or word == "„"
        text += word if close or closes else f" {word}"
        close = opens
    return text


def types_of(sentences: Iterable[str], limit: int | None = None) -> list[str]:
    """The marks, then the `limit` most frequent types (all without one), ties in alphabetical order."""
    counts = Counter(word for sentence in sentences for word in tokenised(sentence))
    kept = sorted(counts, key=lambda word: (-counts[word], word))
    return [*MARKS, *kept[: None if limit is None else max(0, limit - len(MARKS))]]


class Vocabulary:
    """Ids of types; words that are none become `<unk>`."""

    def __init__(self, types: Sequence[str]) -> None:
        self.types = list(types)
        self._ids = {word: number for number, word in enumerate(self.types) if number >= len(MARKS)}

    def __len__(self) -> int:
        return len(self.types)

    def ids(self, sentence: str) -> list[int]:
        """Ids of a sentence's words, no end mark."""
        return [self._ids.get(word, UNKNOWN) for word in tokenised(sentence)]

    def text(self, ids: Iterable[int]) -> str:
        """The sentence of ids up to the first end mark; `<unk>` is written as such."""
        words = []
        for number in ids:
            if number == END:
                break
            words.append(self.types[number])
        return detokenised(words)
