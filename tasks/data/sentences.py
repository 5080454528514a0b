"""Sentences as words and back, for word-level translators: a tokenisation, its inverse, a vocabulary.

- Case is kept.
- A word is a run of letters and digits, with hyphens inside or after it (`T-shirt`, `Zwei-`).
- A number keeps its inner marks (`1,000`).
- An apostrophe inside a word and the rest of the word are a word of their own (`man` `'s`).
- Any other mark is a word.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

MARKS = ("</s>", "<unk>")
END, UNKNOWN = range(len(MARKS))  # ids; the end mark is also the decoder's first input

_WORD = re.compile(r"\d+(?:[.,:]\d+)+|\w+(?:-\w+)*-?|(?<=\w)['’]\w+|[^\w\s]")
_CLOSING = frozenset(".,;:!?)]}%…”»'’")  # no blank between them and the word before
_OPENING = frozenset("([{#$€£„«")  # no blank between them and the word after


def tokenised(sentence: str) -> list[str]:
    """Words of a sentence; empty for a blank one."""
    return _WORD.findall(sentence)


def detokenised(words: Iterable[str]) -> str:
    """A sentence from words, spaced like text: no blank before closing marks, after opening marks, or inside quotes. A
    straight quote opens and closes in turn; `“` closes after `„`."""
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
    """The marks, then the `limit` most frequent types (None: all), ties in alphabetical order."""
    counts = Counter(word for sentence in sentences for word in tokenised(sentence))
    kept = sorted(counts, key=lambda word: (-counts[word], word))
    return [*MARKS, *kept[: None if limit is None else max(0, limit - len(MARKS))]]


class Vocabulary:
    """Ids of types; other words become `<unk>`."""

    def __init__(self, types: Sequence[str]) -> None:
        self.types = list(types)
        self._ids = {word: number for number, word in enumerate(self.types) if number >= len(MARKS)}

    def __len__(self) -> int:
        return len(self.types)

    def ids(self, sentence: str) -> list[int]:
        """Ids of a sentence's words, without an end mark."""
        return [self._ids.get(word, UNKNOWN) for word in tokenised(sentence)]

    def text(self, ids: Iterable[int]) -> str:
        """The sentence of ids up to the first end mark, with `<unk>` as text."""
        words = []
        for number in ids:
            if number == END:
                break
            words.append(self.types[number])
        return detokenised(words)
