"""Running text to sentences and tokens in the style of the Penn Treebank, as in CoNLL-2013/14 and JFLEG.

Each mark is a token. Contractions are split before the apostrophe (`do n't`, `it 's`, `dogs '`). Hyphenated words and
numbers such as `1,000.5` stay whole. Quotes are the straight `"`. A full stop is a separate token only at the end of a
sentence (`U.S.` and `Mr.` keep theirs).
"""

# ruff: noqa: SIM905 (word lists read better as running text)
from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST = 60  # tokens; longer "sentences" of encyclopaedic text are mostly lists

_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "‘": "'", "’": "'", "\u00a0": " "})
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st jr sr gen col lt sgt capt rev hon pres gov sen rep vs etc inc ltd co corp no vol pp ed eds "
    "al fig approx ca cf c viz jan feb mar apr jun jul aug sep sept oct nov dec mt ft dept univ est".split()
)
_BOUNDARY = re.compile(r"(?<=[.!?])(?:[\"')\]]{0,2})\s+(?=[\"'(\[]?[A-Z0-9])")
_TOKEN = re.compile(
    r"""
      \d+(?:[.,:]\d+)*(?:st|nd|rd|th|s)?(?:-\w+)*        # 1,000.5  19th  10-year
    | (?:[A-Z]\.){2,}                                    # U.S.
    | \w+(?:[-&]\w+)+                                    # well-known  AT&T
    | \w+(?='(?:s|re|ve|ll|d|m)\b) | '(?:s|re|ve|ll|d|m)\b
    | \w+(?=n't\b) | n't\b
    | \w+
    | \.{2,} | --+
    | \S
    """,
    re.VERBOSE | re.IGNORECASE,
)
_NEGATED = re.compile(r"(\w+?)(n't)$", re.IGNORECASE)


def tokens(sentence: str) -> list[str]:
    """Tokens of one sentence of running text; empty for blank text."""
    found: list[str] = []
    for chunk in sentence.translate(_QUOTES).split():
        match = _NEGATED.match(chunk.rstrip(".,;:!?\"')")) if "n't" in chunk.lower() else None
        if match:
            found += [match[1], match[2], *_TOKEN.findall(chunk[match.end() :])]
            continue
        pieces = _TOKEN.findall(chunk)
        if len(pieces) > 1 and pieces[-1] == "." and pieces[-2].lower() in _ABBREVIATIONS:
            pieces[-2:] = [pieces[-2] + "."]
        found += pieces
    if found and len(found[-1]) > 1 and found[-1].endswith(".") and found[-1].strip("."):
        found[-1:] = [found[-1], "."] if found[-1].count(".") > 1 else [found[-1][:-1], "."]
    return found


def split(paragraph: str) -> Iterator[str]:
    """Sentences of one paragraph: split after `.`, `!` or `?` before a capital or a digit, not after abbreviations."""
    start = 0
    for match in _BOUNDARY.finditer(paragraph):
        before = paragraph[start : match.start()].rstrip("\"')]")
        last = before.rsplit(None, 1)[-1] if before.strip() else ""
        bare = last.strip("(\"'[").removesuffix(".")
        if last.endswith(".") and (
            bare.lower() in _ABBREVIATIONS or (len(bare) == 1 and bare.isalpha()) or "." in bare
        ):
            continue
        yield paragraph[start : match.end()].strip()
        start = match.end()
    if paragraph[start:].strip():
        yield paragraph[start:].strip()


def sentences(text: str) -> Iterator[list[str]]:
    """Tokenised sentences of an article that are suitable for training, in order. A line is a paragraph. Left out are:

    - headings (short lines of one sentence)
    - sentences of fewer than 4 or more than `LONGEST` tokens, or without a final mark
    - sentences damaged by markup removal (empty or open brackets, doubled commas)
    - sentences that are mostly not English letters
    """
    for paragraph in text.splitlines():
        found = [tokens(sentence) for sentence in split(paragraph)]
        if len(found) == 1 and len(found[0]) < 10:
            continue
        yield from filter(_whole, found)


def _whole(words: list[str]) -> bool:
    if not 4 <= len(words) <= LONGEST or words[-1] not in {".", "!", "?", '"'}:
        return False
    if words.count("(") != words.count(")") or words.count('"') % 2 or not (words[0][0].isupper() or words[0] == '"'):
        return False
    joined = " ".join(words)
    if "( )" in joined or ", ," in joined or ", ." in joined or "( ," in joined:
        return False
    return sum(word.isascii() and word.isalpha() for word in words) * 10 >= 6 * len(words)
