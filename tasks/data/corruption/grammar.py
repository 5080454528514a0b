"""A seeded grammar of English sentences: clean text for scale `mini`, without download.

As in real text, the rest of a sentence determines the right form: the time expression the tense, the subject the verb's
number, each verb and adjective its preposition, the following sound `a` or `an`; mass nouns have no article and no
plural. So a tiny model can learn to correct errors.
"""

# ruff: noqa: SIM905 (word lists read better as running text)
from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from tasks.data.corruption import morphology
from tasks.data.corruption.word_lists import FUNCTION

if TYPE_CHECKING:
    import numpy as np

PEOPLE = (
    "student teacher doctor farmer driver child woman man artist engineer lawyer nurse officer writer visitor friend "
    "neighbour manager worker singer scientist customer player captain parent person citizen"
).split()
THINGS = (
    "book letter house garden car bridge picture machine table window river school hospital market village city road "
    "computer phone story question answer problem plan report song game ticket map garage apple orange egg umbrella "
    "idea office island engine animal horse dog cat bird tree flower cake meal room door key box system device "
    "building church museum station train ship newspaper lesson country area town street park company"
).split()
MASS = (
    "water information advice music knowledge food money equipment furniture traffic research energy education weather"
).split()
PLACES = "school station park market museum hospital village city office library church harbour island".split()
TRANSITIVE = (
    "build buy carry clean close describe discover draw explain find follow help keep like love make move need notice "
    "open paint prepare protect read receive remember repair see sell send show study take use visit want watch write "
    "choose change check collect compare create design enjoy finish improve include produce provide share support"
).split()
WITH_PREPOSITION = (
    "listen:to look:at wait:for depend:on talk:about belong:to think:about agree:with pay:for believe:in laugh:at "
    "work:for learn:from ask:for worry:about care:for suffer:from turn:into point:at rely:on"
).split()
INTRANSITIVE = "arrive live sleep work play sing stay walk run swim fall sit stand stop grow travel rest".split()
ADJECTIVES = (
    "old young new small large beautiful expensive cheap important famous quiet noisy empty modern ancient useful "
    "difficult easy strange happy tired honest angry hungry strong clever local English open early heavy interesting"
).split()
SELECTING = (
    "interested:in afraid:of proud:of famous:for good:at responsible:for angry:with different:from full:of".split()
)
ADVERBS = "quickly slowly carefully often usually quietly suddenly really always never easily".split()
PAST = "yesterday|last week|two years ago|last summer|in 1998|a month ago".split("|")
PRESENT = "every day|every morning|now|at the moment|these days|on Mondays".split("|")
FUTURE = "tomorrow|next week|next year|in the future|soon".split("|")
NAMES = "Anna Peter Maria John Sarah David Emma Paul Laura Tom Alice George".split()
CLAUSES = "because when although while after before if".split()


@cache
def inflected() -> frozenset[str]:
    """Every lower-case word form of the grammar."""
    verbs = [*TRANSITIVE, *INTRANSITIVE, *(entry.split(":")[0] for entry in WITH_PREPOSITION)]
    forms: set[str] = {*MASS, *ADVERBS, *PLACES, *map(str.lower, ADJECTIVES), *FUNCTION, *CLAUSES}
    for noun in (*PEOPLE, *THINGS, *PLACES):
        forms |= {noun, morphology.plural(noun)}
    for verb in verbs:
        forms |= {verb, morphology.third_person(verb), morphology.past(verb)}
        forms |= {morphology.participle(verb), morphology.gerund(verb)}
    forms |= {word for entry in SELECTING for word in entry.split(":")}
    forms |= {word for phrase in (*PAST, *PRESENT, *FUTURE) for word in phrase.split() if word.isalpha()}
    return frozenset(form for form in forms if form.islower())


def clean_sentences(seed: int, count: int) -> Iterator[list[str]]:
    """`count` tokenised sentences of 5 to about 30 tokens. The same seed gives the same sentences."""
    import numpy as np

    grammar = Grammar(np.random.default_rng(seed))
    for _ in range(count):
        yield grammar.sentence()


class Grammar:
    """Writes sentences. All random choices come from `rng`."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._draws: list[float] = []

    def sentence(self) -> list[str]:
        """One sentence of one or two clauses, capitalised, with its final mark."""
        tense = self._pick(("past", "present", "future"))
        words = self._clause(tense)
        time = self._pick({"past": PAST, "present": PRESENT, "future": FUTURE}[tense]).split()
        words = [*time, ",", *words] if self._chance(0.35) else [*words, *time]
        if self._chance(0.3):
            joint = self._pick(CLAUSES)
            second = self._clause("past" if tense == "past" else "present")
            words = [joint, *second, ",", *words] if self._chance(0.4) else [*words, joint, *second]
        elif self._chance(0.25):
            words = [*words, ",", self._pick(("and", "but")), *self._clause(tense)]
        return [words[0][0].upper() + words[0][1:], *words[1:], "."]

    def _clause(self, tense: str) -> list[str]:
        subject, plural = self._subject()
        return [*subject, *self._predicate(tense, plural)]

    def _subject(self) -> tuple[list[str], bool]:
        kind = self._draw()
        if kind < 0.15:
            return [self._pick(NAMES)], False
        if kind < 0.3:
            pronoun = self._pick(("he", "she", "we", "they", "it"))
            return [pronoun], pronoun in {"we", "they"}
        if kind < 0.38:
            return [self._pick(NAMES), "and", self._pick(NAMES)], True
        plural = self._chance(0.45)
        words = self._noun_phrase(self._pick(PEOPLE), plural)
        if self._chance(0.2):
            words += [self._pick(("in", "from", "near")), "the", self._pick(PLACES)]
        elif self._chance(0.15):
            words += ["who", *self._predicate("present", plural, simple=True)]
        return words, plural

    def _predicate(self, tense: str, plural: bool, simple: bool = False) -> list[str]:
        kind = self._draw()
        if kind < 0.2:
            return [*self._be(tense, plural), *self._complement()]
        if kind < 0.4:
            verb, preposition = self._pick(WITH_PREPOSITION).split(":")
            return [*self._verb(verb, tense, plural), preposition, *self._object()]
        if kind < 0.55:
            place = [self._pick(("in", "near")), "the", self._pick(PLACES)]
            return [*self._verb(self._pick(INTRANSITIVE), tense, plural), *place]
        words = [*self._verb(self._pick(TRANSITIVE), tense, plural), *self._object()]
        if not simple and self._chance(0.25):
            words += [self._pick(("in", "near", "behind")), "the", self._pick(PLACES)]
        elif not simple and self._chance(0.15):
            words += ["and", *self._object()]
        return words

    def _verb(self, verb: str, tense: str, plural: bool) -> list[str]:
        adverb = [self._pick(ADVERBS)] if self._chance(0.15) else []
        kind = self._draw()
        if kind < 0.1:
            modal = self._pick(("must", "should", "can")) if tense != "past" else "could"
            return [modal, *adverb, verb]
        if tense == "future":
            return ["will", *(["not"] if kind < 0.2 else adverb), verb]
        if kind < 0.22:
            helper = "did" if tense == "past" else "do" if plural else "does"
            return [helper, "n't", verb]
        if kind < 0.35:
            return [*self._be(tense, plural), *adverb, morphology.gerund(verb)]
        if tense == "past":
            return [*adverb, morphology.past(verb)]
        if kind < 0.5:
            return ["have" if plural else "has", *adverb, morphology.participle(verb)]
        return [*adverb, verb if plural else morphology.third_person(verb)]

    def _be(self, tense: str, plural: bool) -> list[str]:
        if tense == "future":
            return ["will", "be"]
        return [("were" if plural else "was") if tense == "past" else ("are" if plural else "is")]

    def _complement(self) -> list[str]:
        if self._chance(0.5):
            adjective, preposition = self._pick(SELECTING).split(":")
            return [adjective, preposition, *self._object()]
        return [*(["very"] if self._chance(0.4) else []), self._pick(ADJECTIVES)]

    def _object(self) -> list[str]:
        if self._chance(0.15):
            return [*([self._pick(ADJECTIVES)] if self._chance(0.3) else []), self._pick(MASS)]
        return self._noun_phrase(self._pick(PEOPLE if self._chance(0.2) else THINGS), self._chance(0.4))

    def _noun_phrase(self, noun: str, plural: bool) -> list[str]:
        adjective = [self._pick(ADJECTIVES)] if self._chance(0.35) else []
        named = [*adjective, morphology.plural(noun) if plural else noun]
        kind = self._draw()
        if plural:
            many = self._pick(("many", "some", "these", "those", "two", "three", "several"))
            return ["the", *named] if kind < 0.45 else [many, *named] if kind < 0.75 else named
        if kind < 0.4:
            return ["an" if named[0][0].lower() in "aeiou" and named[0] != "useful" else "a", *named]
        if kind < 0.75:
            return ["the", *named]
        return [self._pick(("this", "that", "every", "another", "my", "her", "their")), *named]

    def _draw(self) -> float:
        if not self._draws:  # draw many at once: a single draw takes as long as writing a word
            self._draws = self._rng.random(1024).tolist()
        return self._draws.pop()

    def _chance(self, probability: float) -> bool:
        return self._draw() < probability

    def _pick(self, options: list[str] | tuple[str, ...]) -> str:
        return options[int(self._draw() * len(options))]
