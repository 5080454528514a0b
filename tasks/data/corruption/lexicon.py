"""Word relations derived from a vocabulary: number pairs of nouns, forms of verbs, derived families, look-alikes.

There is no tagger. A word counts as a noun if its plural occurs, as a verb if its past and -ing forms occur, and as
both in proportion to the frequencies of these forms.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tasks.data.corruption import morphology
from tasks.data.corruption.word_lists import FUNCTION, IRREGULAR_VERBS, UNCOUNTABLE


@dataclass(slots=True)
class Lexicon:
    """Confusable forms of lower-case words, derived from word frequencies in clean text.

    `nouns`: form -> form of the other number. `verbs`: form -> slot name (`base`, `third`, `past`, `participle`,
    `gerund`) -> form. `verbal`: assumed share of verbal uses of a form, in [0, 1]. `families`: word -> derived words.
    `lookalikes`: word -> words one letter away. `common`: words usually written in lower case.
    """

    nouns: dict[str, str] = field(default_factory=dict)
    verbs: dict[str, dict[str, str]] = field(default_factory=dict)
    verbal: dict[str, float] = field(default_factory=dict)
    families: dict[str, tuple[str, ...]] = field(default_factory=dict)
    lookalikes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    common: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, sentences: Iterable[Sequence[str]], limit: int = 30_000, least: int = 3) -> Lexicon:
        """From tokenised clean sentences: the `limit` most frequent words with at least `least` occurrences."""
        return cls.from_counts(Counter(word for sentence in sentences for word in sentence), limit, least)

    @classmethod
    def from_counts(cls, counts: Mapping[str, int], limit: int = 30_000, least: int = 1) -> Lexicon:
        """From the number of occurrences of each cased word."""
        lower: Counter[str] = Counter()
        for word, count in counts.items():
            if word.isascii() and word.isalpha() and word.islower():
                lower[word] += count
        ranked = sorted(lower, key=lambda word: (-lower[word], word))[:limit]
        kept = {word: lower[word] for word in ranked if lower[word] >= least}
        # A name that is sometimes written in lower case ("Paris") is not a common word.
        kept = {word: count for word, count in kept.items() if count >= counts.get(word.capitalize(), 0) / 4}
        lexicon = cls(common=set(kept) | FUNCTION)
        open_class = [word for word in kept if word not in FUNCTION and len(word) > 2]
        for word in open_class:
            lexicon._add_verb(word, kept)
        for word in open_class:
            lexicon._add_noun(word, kept)
        for word in open_class:
            for form in morphology.derivations(word):
                if form != word and form not in FUNCTION and _near(kept.get(form, 0), kept[word]):
                    lexicon._relate(word, form)
        lexicon._add_lookalikes(open_class, kept)
        return lexicon

    def _add_verb(self, base: str, counts: Mapping[str, int]) -> None:
        slots = {
            "base": base,
            "third": morphology.third_person(base),
            "past": morphology.past(base),
            "participle": morphology.participle(base),
            "gerund": morphology.gerund(base),
        }
        known = base in IRREGULAR_VERBS
        if not known and (slots["past"] not in counts or slots["gerund"] not in counts):
            return
        verbal = counts.get(slots["past"], 0) + counts.get(slots["gerund"], 0)
        share = min(1.0, 2 * verbal / (verbal + counts[base] + counts.get(slots["third"], 0)))
        for name, form in slots.items():
            if form in counts and form not in self.verbs:
                self.verbs[form] = slots
                self.verbal[form] = share if name in {"base", "third"} else 1.0

    def _add_noun(self, singular: str, counts: Mapping[str, int]) -> None:
        if singular.endswith(("ss", "us", "ly", "ing")) and singular not in UNCOUNTABLE:
            return
        several = morphology.plural(singular)
        if several not in counts and singular not in UNCOUNTABLE:
            return
        if singular in self.verbs and self.verbs[singular]["base"] != singular:
            return  # `used` -> `useds`
        self.nouns.setdefault(singular, several)
        if several in counts:
            self.nouns.setdefault(several, singular)

    def _relate(self, one: str, other: str) -> None:
        for word, form in ((one, other), (other, one)):
            known = self.families.get(word, ())
            self.families[word] = known if form in known else (*known, form)

    def _add_lookalikes(self, words: Sequence[str], counts: Mapping[str, int]) -> None:
        """Pairs that become equal if one letter is dropped from one or both (`form`, `from`)."""
        buckets: defaultdict[str, list[str]] = defaultdict(list)
        for word in words:
            if len(word) >= 4 and counts[word] >= 10:
                for key in {word, *(word[:i] + word[i + 1 :] for i in range(len(word)))}:
                    buckets[key].append(word)
        found: defaultdict[str, set[str]] = defaultdict(set)
        for group in buckets.values():
            for one in group:
                found[one].update(other for other in group if other != one and other[0] == one[0])
        for word, others in found.items():
            related = {*self.verbs.get(word, {}).values(), self.nouns.get(word), *self.families.get(word, ())}
            likely = sorted(others - related, key=lambda other: (-counts[other], other))[:4]
            if likely:
                self.lookalikes[word] = tuple(likely)


def _near(one: int, other: int) -> bool:
    """Whether two counts are within a factor of 300: `moth` is not in the family of `mother`."""
    return 300 * min(one, other) >= max(one, other)
