"""Clean text with synthetic errors, to train grammatical error correctors on (IAD, section 4.1.1).

Sentences are tokenised like CoNLL-2013/14 and JFLEG. Test sentences are not filtered from the clean text. Compared
letter by letter, the sample of Wikipedia for scale `small` has no source of CoNLL-2013, CoNLL-2014 or JFLEG. It has two
of the 359 sources of ASSET and TurkCorpus, which were taken from Wikipedia, but not their simplifications.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from itertools import chain, repeat
from typing import Any

import numpy as np

from harness.common.cache import Cache
from harness.common.progress import Progress
from harness.common.sources import built_by
from tasks.data.corruption import ErrorModel, Lexicon, annotate, misspellings, sentences
from tasks.data.corruption.errors import default_model
from tasks.data.corruption.grammar import clean_sentences
from tasks.data.text import SPLITS, Source, Split, split_hash
from tasks.metrics.m2 import Annotated
from tasks.metrics.m2_lattice import Gold

_HELD_OUT = 2000  # sentences
_GENERATED: Mapping[Split, int] = {"train": 20_000, "validation": 500, "test": 300}


class CleanText(ABC):
    """Tokenised sentences without errors, per split."""

    def content(self, cache: Cache) -> dict[str, Any]:
        """Everything that determines the sentences and their errors, JSON-able: the text, and the code that splits and
        corrupts it."""
        return {**self.identity(cache), "code": built_by(type(self)), "misspellings": misspellings.identity()}

    @abstractmethod
    def identity(self, cache: Cache) -> dict[str, Any]:
        """The text's identity, JSON-able."""

    @abstractmethod
    def sentences(self, split: Split, progress: Progress) -> list[list[str]]:
        """The sentences of a split, in order."""

    def errors(self, progress: Progress) -> ErrorModel:
        """The error model for the text, over the vocabulary of its training sentences."""
        return ErrorModel(Lexicon.of(self.sentences("train", progress)))


class GrammarText(CleanText):
    """Sentences of the seeded grammar: nothing to download."""

    def identity(self, cache: Cache) -> dict[str, Any]:
        return {"grammar": dict(_GENERATED)}

    def sentences(self, split: Split, progress: Progress) -> list[list[str]]:
        return list(clean_sentences(SPLITS.index(split), _GENERATED[split]))

    def errors(self, progress: Progress) -> ErrorModel:
        return default_model()  # the grammar's words are known without sentences


class ArticleText(CleanText):
    """Sentences of a source's documents. Raises `RequestError` when a split is missing."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._splits: dict[Split, list[list[str]]] = {}

    def identity(self, cache: Cache) -> dict[str, Any]:
        splits: tuple[Split, ...] = ("train", "validation")
        return {"clean": {split: split_hash(self.source, split, cache) for split in splits}}

    def sentences(self, split: Split, progress: Progress) -> list[list[str]]:
        if split not in self._splits:
            documents = progress.track(self.source.documents(split), "splitting text into sentences", unit="documents")
            self._splits[split] = [tokens for document in documents for tokens in sentences(document)]
        return self._splits[split]


def corrupted(
    clean: CleanText, split: Split, seed: int, progress: Progress, versions: int = 1
) -> Iterator[tuple[Annotated, list[str]]]:  # fmt: skip
    """(sentence with errors, annotated with the corrections; clean sentence) for a split (validation: only the first
    ones). All sentences come `versions` times, each time with other errors."""
    model = clean.errors(progress)
    chosen = clean.sentences(split, progress)
    if split == "validation":
        chosen = chosen[:_HELD_OUT]
    total = versions * len(chosen)
    rng = np.random.default_rng([seed, SPLITS.index(split)])
    for done, tokens in enumerate(chain.from_iterable(repeat(chosen, versions)), 1):
        wrong, corrections = annotate(tokens, rng, model)
        edits = [Gold(edit.start, edit.end, (edit.words,)) for edit in corrections]
        yield Annotated(tuple(wrong), {0: edits}), tokens
        if done % 1000 == 0 or done == total:
            progress.update("making errors", done, total, "sentences")
