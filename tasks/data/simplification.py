"""Simplified sentences: TurkCorpus and ASSET as tokens, and generated pairs.

TurkCorpus is lower-case and tokenised, ASSET is neither. Both are tokenised by `tasks.data.corruption.tokens`, each in
its own case. Training texts are the tune part of TurkCorpus and the validation part of ASSET, which simplify the same
2,000 sentences, without sentences of a test set.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tasks.data.corruption import tokens
from tasks.data.files import aligned_lines, find_file

Corpus = Literal["turkcorpus", "asset"]
Sentence = list[str]
REFERENCES: dict[Corpus, int] = {"turkcorpus": 8, "asset": 10}
_NAMES = {
    ("turkcorpus", "train"): ("tune.norm", "tune.turk."),
    ("turkcorpus", "test"): ("test.norm", "test.turk."),
    ("asset", "train"): ("valid.orig", "valid.simp."),
    ("asset", "test"): ("test.orig", "test.simp."),
}
_BRACKETS = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "``": '"', "''": '"'}

# The simpler words of the generator of scale `mini`.
_PLAIN = {
    "purchase": "buy", "discover": "find", "receive": "get", "require": "need", "prepare": "make", "ancient": "old",
    "modern": "new", "large": "big", "difficult": "hard", "expensive": "dear", "important": "big", "repair": "mend",
    "visitor": "guest", "children": "kids", "several": "some", "another": "one", "people": "men",
}  # fmt: skip
_DISPENSABLE = frozenset(
    {"very", "quickly", "slowly", "carefully", "often", "usually", "quietly", "suddenly", "really", "always", "easily"}
)


def read_corpus(corpus: Corpus, part: Literal["train", "test"], roots: Sequence[Path]) -> list[list[Sentence]]:
    """Per sentence, the source, then its references, as tokens. Raises `RequestError` when files are missing."""
    source, reference = _NAMES[corpus, part]
    names = [f"{corpus}/{source}", *(f"{corpus}/{reference}{n}" for n in range(REFERENCES[corpus]))]
    files = [find_file(name, roots) for name in names]
    cut = _tokenised if corpus == "turkcorpus" else tokens
    return [[cut(line) for line in lines] for lines in zip(*aligned_lines(files), strict=True)]


def training_texts(roots: Sequence[Path]) -> list[list[list[Sentence]]]:
    """The training parts of both corpora without the sentences of either test set."""
    names: tuple[Corpus, ...] = ("turkcorpus", "asset")
    tests = {letters(text[0]) for corpus in names for text in read_corpus(corpus, "test", roots)}
    texts = [read_corpus(corpus, "train", roots) for corpus in names]
    if len(texts[0]) == len(texts[1]):  # the same sentences in the same order: drop a sentence from both
        kept = [n for n, pair in enumerate(zip(*texts, strict=True)) if not tests & {letters(text[0]) for text in pair}]
        return [[text[n] for n in kept] for text in texts]
    return [[text for text in corpus if letters(text[0]) not in tests] for corpus in texts]


def letters(sentence: Sentence) -> str:
    """A sentence's letters and digits in lower case, independent of its tokenisation."""
    return "".join(character for character in "".join(sentence).lower() if character.isalnum())


def _tokenised(line: str) -> Sentence:
    return [_BRACKETS.get(token, token) for token in line.split()]


def simplified(sentence: Sentence) -> Sentence:
    """The generator's simplification: plain words, without `very`, common adverbs and a clause after a comma and
    `but`."""
    words = [_PLAIN.get(word, word) for word in sentence if word not in _DISPENSABLE]
    text = re.sub(r" , but .* \.$", " .", " ".join(words))
    return text.split()


def generated(sentences: Sequence[Sentence]) -> list[list[Sentence]]:
    """Per sentence, the source, the simplification, and a second reference that only replaces words."""
    return [[s, simplified(s), [_PLAIN.get(word, word) for word in s]] for s in sentences]
