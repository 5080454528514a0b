"""Reference text without documents that overlap the evaluation text (Liu et al., 2024, appendix A.1).

A document is left out if at least four fifths of its 13-grams of words occur in the evaluation text. A document of
fewer words is left out if a document there has the same words. Words are runs of letters and digits, so the
tokenisation of a text does not matter. `<unk>` in the evaluation text stands for any word that this text lacks: in a
document without `<unk>` such words are replaced by it before n-grams are compared.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from harness.common.documents import word_pattern
from harness.common.errors import RequestError
from tasks.data.text import SPLITS, EmptySplitError, Source, Split
from tasks.data.wikitext_style import UNKNOWN

N, SHARE = 13, 0.8
HELD_OUT: tuple[Split, ...] = ("validation", "test")
_WORD = re.compile(word_pattern(r"\W_"))


class Decontaminated(Source):
    """A source whose train split is without documents that overlap its test and validation splits or those of `others`.
    Other splits are unchanged. Words are compared in lower case. share: least share of a document's 13-grams at which
    it is left out.

    dropped: number of documents of the train split that are left out, set when it is read.
    """

    def __init__(self, source: Source, others: Sequence[Source] = (), share: float = SHARE) -> None:
        self.source, self.others, self.share = source, list(others) or [source], share
        self.name = f"{source.name}, decontaminated"
        self.dropped = 0

    def fingerprint(self, split: Split) -> Mapping[str, Any]:
        if split != "train":
            return {"of": self.source.identity(split)}
        against = [other.identity(part) for other in self.others for part in _splits(other, HELD_OUT)]
        return {"decontaminated": self.source.identity(split), "against": against, "n": N, "share": self.share}

    def documents(self, split: Split) -> Sequence[str]:
        found = self.source.documents(split)
        if split != "train":
            return found
        texts = [text for other in self.others for part in _splits(other, HELD_OUT) for text in _documents(other, part)]
        held_out = {ngram for text in texts for ngram in self._ngrams(self._words(text))}
        known = {word for ngram in held_out for word in ngram} if any(UNKNOWN in text for text in texts) else None
        kept = [text for text in found if self._shared(text, held_out, known) < self.share]
        self.dropped = len(found) - len(kept)
        return kept

    def _words(self, text: str) -> list[str]:
        return _WORD.findall(text.lower())

    def _ngrams(self, words: Sequence[str]) -> Iterable[tuple[str, ...]]:
        size = min(N, len(words))
        return (tuple(words[start : start + size]) for start in range(len(words) - size + 1)) if size else ()

    def _shared(self, text: str, held_out: set[tuple[str, ...]], known: Collection[str] | None) -> float:
        """Share of a text's n-grams that occur in the held-out text. known: words of held-out text with `<unk>`."""
        words = self._words(text)
        if known is not None and UNKNOWN not in text:
            words = [word if word in known else UNKNOWN[1:-1] for word in words]
        ngrams = list(self._ngrams(words))
        return sum(ngram in held_out for ngram in ngrams) / len(ngrams) if ngrams else 0.0


def _splits(source: Source, splits: Sequence[Split] = SPLITS) -> list[Split]:
    """Those of the splits that a source has."""
    found = []
    for split in splits:
        try:
            source.fingerprint(split)
        except RequestError:
            continue
        found.append(split)
    return found


def _documents(source: Source, split: Split) -> Sequence[str]:
    """The documents of a split that may be empty."""
    try:
        return source.documents(split)
    except EmptySplitError:
        return ()


class Joined(Source):
    """The concatenated train splits of several sources; other splits are those of the first."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = list(sources)
        self.name = " and ".join(source.name for source in sources)

    def fingerprint(self, split: Split) -> Mapping[str, Any]:
        if split != "train":
            return {"of": self.sources[0].identity(split)}
        return {"joined": [source.identity(split) for source in self.sources]}

    def documents(self, split: Split) -> Sequence[str]:
        if split != "train":
            return self.sources[0].documents(split)
        return [text for source in self.sources for text in source.documents(split)]


class Whole(Source):
    """All splits of a source as one train split, for text without evaluation."""

    def __init__(self, source: Source) -> None:
        self.source, self.name = source, source.name

    def fingerprint(self, split: Split) -> Mapping[str, Any]:
        if split != "train":
            return {"of": self.source.identity(split)}
        return {"whole": [self.source.identity(one) for one in _splits(self.source)]}

    def documents(self, split: Split) -> Sequence[str]:
        if split != "train":
            return self.source.documents(split)
        return [text for one in _splits(self.source) for text in _documents(self.source, one)]
