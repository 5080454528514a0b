"""A parallel text without download: English sentences of a small grammar, translated into an invented language.

The invented language has its own lexicon (syllables drawn with the seed). Verbs come last, adjectives and adpositions
after their nouns. There is no indefinite article. Endings mark plural and tense. Adjectives and articles agree with one
of three noun classes. A translator must look up, reorder and inflect words; an attention model learns this in about a
minute. Words are drawn by Zipf's law and compounds are written as one word, so the vocabulary grows with the text as in
real text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tasks.data.parallel import Pair, ParallelSource
from tasks.data.text import SPLITS, Split


def _words(text: str) -> list[str]:
    return text.split()


NOUNS = _words(
    """man dog child girl boy river house stone bridge horse garden market street ship boat hill forest tower
window door table letter wagon farmer sailor teacher baker hunter singer cook rope wheel lamp basket barrel drum flag
ladder mirror candle bottle apple carpet mountain island harbour school kitchen station village palace engine train
field wall road tree bell clock coat hammer blanket"""
)
ADJECTIVES = _words(
    """old young small large red green blue white black tall quiet bright heavy narrow broken wooden golden
empty clean proud friendly tired lonely strange silver rusty gentle noisy"""
)
VERBS = _words(
    """follow lift paint help clean visit order count mark open join load guard kick pull push turn mention remember
attack cover gather repair protect collect return destroy"""
)
PLACES = _words("near behind under above beside inside beyond around")
TIMES = _words("today yesterday often rarely sometimes again soon tonight")
NUMBERS = _words("two three four five six seven eight nine")
SYLLABLES = _words("ba ko ti ru me sa no li du pe gra fi to va zu ne sho ki la mo re yu do che wa")
SIZES: Mapping[Split, int] = {"train": 9000, "validation": 400, "test": 300}


@dataclass(frozen=True, slots=True)
class _Phrase:
    """A noun phrase: its words in both languages, and whether it is plural."""

    english: list[str]
    invented: list[str]
    plural: bool


class InventedLanguage(ParallelSource):
    """Pairs (invented, English), no sentence twice; a function of the seed alone."""

    name, source, target = "invented language", "invented", "en"

    def __init__(self, seed: int = 0, sizes: Mapping[Split, int] = SIZES) -> None:
        self.seed, self.sizes = seed, dict(sizes)

    def fingerprint(self, split: Split) -> Mapping[str, Any]:
        return {"source": "invented", "seed": self.seed, "sizes": self.sizes}

    def pairs(self, split: Split) -> list[Pair]:
        writer = _Writer(np.random.default_rng(self.seed))
        unique: dict[Pair, None] = {}
        while len(unique) < sum(self.sizes.values()):
            unique[writer.sentence()] = None
        found = list(unique)
        start = sum(self.sizes[earlier] for earlier in SPLITS[: SPLITS.index(split)])
        return found[start : start + self.sizes[split]]


class _Writer:
    """Draws sentences; the lexicon is drawn first."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        stems = [*NOUNS, *ADJECTIVES, *VERBS, *PLACES, *TIMES, *NUMBERS]
        self.lexicon: dict[str, str] = {}
        taken: set[str] = set()
        for stem in stems:
            word = ""
            while not word or word in taken:
                word = "".join(SYLLABLES[i] for i in rng.integers(len(SYLLABLES), size=int(rng.integers(2, 4))))
            taken.add(word)
            self.lexicon[stem] = word
        self.classes = {noun: "oai"[int(i)] for noun, i in zip(NOUNS, rng.integers(3, size=len(NOUNS)), strict=True)}

    def sentence(self) -> Pair:
        subject, thing = self._phrase(), self._phrase()
        verb, past = self._drawn(VERBS), self._chance(0.4)
        english = [*subject.english, verb + ("ed" if past else "" if subject.plural else "s"), *thing.english]
        invented = [*subject.invented, *thing.invented]
        if self._chance(0.45):
            place, where = self._drawn(PLACES), self._phrase()
            english += [place, *where.english]
            invented += [*where.invented, self.lexicon[place]]
        invented.append(self.lexicon[verb] + ("ta" if past else "n") + ("k" if subject.plural else ""))
        if self._chance(0.35):
            time = self._drawn(TIMES)
            english.append(time)
            invented.insert(0, self.lexicon[time])
        return _written(invented), _written(english)

    def _phrase(self) -> _Phrase:
        head = self._drawn(NOUNS)
        noun, word = head, self.lexicon[head] + self.classes[head]
        if self._chance(0.25):  # a compound: its class is that of its head, which English puts last
            first = self._drawn(NOUNS)
            noun, word = first + head, self.lexicon[head] + self.lexicon[first] + self.classes[head]
        adjectives = [self._drawn(ADJECTIVES) for _ in range(int(self.rng.choice(3, p=(0.5, 0.4, 0.1))))]
        behind = [self.lexicon[adjective] + self.classes[head] for adjective in adjectives]
        if self._chance(0.3):
            number = self._drawn(NUMBERS)
            english = [number, *adjectives, _plural(noun)]
            return _Phrase(english, [word + "k", *behind, self.lexicon[number]], True)
        if self._chance(0.5):
            return _Phrase(["the", *adjectives, noun], ["l" + self.classes[head], word, *behind], False)
        article = "an" if (adjectives or [noun])[0][0] in "aeiou" else "a"
        return _Phrase([article, *adjectives, noun], [word, *behind], False)

    def _drawn(self, words: Sequence[str]) -> str:
        """A word by Zipf's law over its rank."""
        weights = 1 / (2 + np.arange(len(words)))
        return words[int(self.rng.choice(len(words), p=weights / weights.sum()))]

    def _chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)


def _plural(noun: str) -> str:
    if noun.endswith("child"):
        return noun + "ren"
    return noun[:-3] + "men" if noun.endswith("man") else noun + ("es" if noun.endswith("ch") else "s")


def _written(words: Sequence[str]) -> str:
    text = " ".join(words)
    return text[0].upper() + text[1:] + "."
