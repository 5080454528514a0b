"""The errors of each word and their rates per occurrence, by CoNLL-2013's error types.

The rates were fitted by hand to the development set CoNLL-2013 (`revised`, 117 edits in 1,000 tokens): 1,000 clean
tokens of an encyclopaedia get about the same number of errors of each common type, 102 in all. The rate of misspellings
is between that of this set (4) and that of JFLEG's development set (37). No test set was used.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from tasks.data.corruption import word_lists as lists
from tasks.data.corruption.lexicon import Lexicon
from tasks.data.corruption.morphology import over_regular

START = "<s>"
_STRAY = ("about", "of", "to", "for", "in", "on", "with")


class Rule(NamedTuple):
    """One way to corrupt a word. `words` replace it (empty: the word is dropped); `*spelling` misspells it, `*swap`
    swaps it with the next. `after`: one of these words must come before it."""

    kind: str
    rate: float
    words: tuple[str, ...]
    after: frozenset[str] | None = None


class Rules(NamedTuple):
    """The rules of one word with their cumulative rates. One draw decides whether and how it is corrupted."""

    total: float
    cumulative: list[float]
    rules: list[Rule]

    def pick(self, draw: float) -> Rule:
        """The rule that `draw` in [0, total) selects."""
        return self.rules[bisect(self.cumulative, draw)]


class ErrorModel(dict[str, Rules]):
    """word -> its rules, computed on first use."""

    def __init__(self, lexicon: Lexicon) -> None:
        super().__init__()
        self.lexicon = lexicon
        self._confusions = _groups(lists.CONFUSIONS)
        self._verb_forms = frozenset(lexicon.verbs)
        self._openings = self._verb_forms | lists.PREPOSITIONS | lists.CONJUNCTIONS | {START, ",", *lists.BE, "be"}

    def __missing__(self, word: str) -> Rules:
        rules = [rule for rule in self._rules(word) if rule.rate > 0]
        cumulative = list(accumulate(rule.rate for rule in rules))
        self[word] = made = Rules(cumulative[-1] if cumulative else 0.0, cumulative, rules)
        return made

    def _rules(self, word: str) -> Iterator[Rule]:
        if word == "I":
            yield Rule("Mec", 0.02, ("i",))
        if not word.isalpha():
            yield from _marks(word)
            return
        if word not in self.lexicon.common:
            if word.istitle() and len(word) > 2:
                yield Rule("Mec", 0.008, (word.lower(),))
            return  # else names and rare words, which a model could not correct
        if word in lists.ARTICLES:
            yield from _articles(word)
        yield from _function_word(word, self._verb_forms)
        yield from self._noun(word)
        yield from self._verb(word)
        yield from _spread("Wform", 0.035, self.lexicon.families.get(word, ()))
        yield from _spread("Wci", 0.07, self._confusions.get(word, ()))
        yield from _spread("Wci", 0.007, self.lexicon.lookalikes.get(word, ()))
        yield Rule("Mec", 0.03 if len(word) > 5 else 0.012 if len(word) > 3 else 0.0006, ("*spelling",))
        yield Rule("Rloc-", 0.0018, (word, word))
        yield from (Rule("Rloc-", 0.004 / len(lists.EXTRA), (extra, word)) for extra in lists.EXTRA)
        yield Rule("Others", 0.0015, ())
        yield Rule("WOinc", 0.002, ("*swap",))
        yield Rule("Mec", 0.001, (",", word))

    def _noun(self, word: str) -> Iterator[Rule]:
        other = self.lexicon.nouns.get(word)
        if other is None:
            return
        nominal = 1.0 - 0.95 * self.lexicon.verbal.get(word, 0.0)
        yield Rule("Nn", 0.07 * nominal, (other,))
        article = "an" if word[0] in "aeiou" else "a"
        yield Rule("ArtOrDet", 0.3 * nominal, ("the", word), self._openings)
        yield Rule("ArtOrDet", 0.02 * nominal, (article, word), self._openings)
        yield from (Rule("Prep", 0.014, (extra, word), self._verb_forms) for extra in _STRAY)

    def _verb(self, word: str) -> Iterator[Rule]:
        slots = self.lexicon.verbs.get(word)
        if slots is None:
            return
        share = self.lexicon.verbal.get(word, 1.0)
        base, third, past, participle = slots["base"], slots["third"], slots["past"], slots["participle"]
        gerund = slots["gerund"]
        if word in (base, third):
            yield Rule("SVA", 0.075 * share, (third if word == base else base,), None)
            yield from _spread("Vt", 0.04 * share, {past} - {word})
            yield from _spread("Vform", 0.04 * share, {gerund, participle} - {word})
        elif word == gerund:
            yield from _spread("Vform", 0.05, {base, past})
        else:
            yield from _spread("Vt", 0.04, {base, third} - {word})
            yield from _spread("Vform", 0.025, {base, gerund, past, participle} - {word})
            yield Rule("Vt", 0.006, ("has", word))
            yield Rule("Vform", 0.006, ("was", word))
            if over_regular(base) != past:
                yield Rule("Vform", 0.008, (over_regular(base),))


def _articles(word: str) -> Iterator[Rule]:
    yield Rule("ArtOrDet", 0.1 if word == "the" else 0.12, ())
    yield from _spread("ArtOrDet", 0.02 if word == "the" else 0.03, [a for a in lists.ARTICLES if a != word])


def _function_word(word: str, verb_forms: frozenset[str]) -> Iterator[Rule]:
    if word in lists.DETERMINERS:
        yield from (Rule("Prep", 0.014, (extra, word), verb_forms) for extra in _STRAY)
    if word in lists.PREPOSITION_CONFUSIONS:
        yield from _ranked("Prep", 0.055, lists.PREPOSITION_CONFUSIONS[word].split())
        yield Rule("Prep", 0.012, ())
    if word in lists.PRONOUN_CONFUSIONS:
        yield from _ranked("Pref", 0.035, lists.PRONOUN_CONFUSIONS[word].split())
    if word in {"is", "are", "was", "were"}:
        agreeing = {"is": "are", "are": "is", "was": "were", "were": "was"}[word]
        tense = {"is": "was", "are": "were", "was": "is", "were": "are"}[word]
        yield Rule("SVA", 0.05, (agreeing,))
        yield Rule("Vt", 0.05, (tense,))
        yield Rule("V0", 0.018, ())
        yield from _spread("Vform", 0.01, ("be", "been", "being"))
    if word in {"has", "have", "had"}:
        yield Rule("SVA", 0.04, ({"has": "have", "have": "has", "had": "has"}[word],))
        yield Rule("Vt", 0.06, ())
    if word in {"be", "been", "being"}:
        yield Rule("Vform", 0.04, ())
        yield from _spread("Vform", 0.03, {"be", "been", "being"} - {word})
    if word == "cannot":
        yield Rule("Mec", 0.15, ("can", "not"))
    if word in {"do", "does"}:
        yield Rule("SVA", 0.06, ("does" if word == "do" else "do",))
    if word in lists.MODALS:
        near = lists.MODAL_CONFUSIONS[word].split()
        yield from _ranked("Vm", 0.22, near)
        yield Rule("Vm", 0.02, ())
    if word in lists.CONJUNCTIONS or word in {"also", "therefore", "thus", "moreover"}:
        yield from _spread("Trans", 0.035, set(lists.LINKING) - {word})
        yield Rule("Trans", 0.04, ())


def _marks(word: str) -> Iterator[Rule]:
    if word == ",":
        yield Rule("Mec", 0.065, ())
    elif word == ";":
        yield Rule("Srun", 0.4, (",",))
    elif word == ".":
        yield Rule("Mec", 0.004, ())
    elif word == "?":
        yield Rule("Mec", 0.05, (".",))
    elif word in {"'s", "'"}:
        yield Rule("Npos", 0.07, ())
    elif word == "n't":
        yield Rule("Vform", 0.01, ("not",))
    elif "-" in word and word.replace("-", "").isalpha():
        yield Rule("Mec", 0.04, tuple(part for part in word.split("-") if part))


def _spread(kind: str, rate: float, words: Iterable[str]) -> list[Rule]:
    """One rate shared equally by several replacements (in a fixed order)."""
    options = sorted(set(words))
    return [Rule(kind, rate / len(options), (word,)) for word in options]


def _ranked(kind: str, rate: float, words: list[str]) -> list[Rule]:
    """One rate shared by replacements in proportion to 1 / rank."""
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    return [Rule(kind, rate * weight / sum(weights), (word,)) for word, weight in zip(words, weights, strict=True)]


def _groups(lines: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for group in (line.split() for line in lines):
        for word in group:
            found.setdefault(word, []).extend(other for other in group if other != word)
    return found
