"""Learner errors in clean, tokenised English, with the corrections that undo them.

These are training pairs for grammatical error correction as in the paper (Ge et al., Lossless Acceleration for Seq2seq
Generation with Aggressive Decoding, section 4.1.1, after Grundkiewicz et al. 2019): words are inserted, deleted,
replaced and swapped, here by the rules of `tasks.data.corruption.rules`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from tasks.data.corruption.lexicon import Lexicon
from tasks.data.corruption.misspellings import misspellings
from tasks.data.corruption.rules import START, ErrorModel, Rule

if TYPE_CHECKING:
    import numpy as np

_LISTED = 0.5  # share of misspellings that are taken from the list, if it has the word
SHAPE = 3.0  # of the gamma distribution of error rates: some sentences have no errors, some many
_KEYS = dict(zip("qwertyuiopasdfghjklzxcvbnm", "wertyuioqsdfghjklaxcvbnmzn", strict=True))
_SOUNDS = ("ie", "ei"), ("ei", "ie"), ("c", "s"), ("s", "c"), ("ph", "f"), ("tion", "sion"), ("ance", "ence"), (
    "ence", "ance"), ("able", "ible"), ("ible", "able"), ("a", "e"), ("e", "a"), ("i", "e"), ("o", "u")  # fmt: skip


class Correction(NamedTuple):
    """Replacing the wrong tokens [start, end) by `words` restores the clean text. `kind`: as in CoNLL-2013."""

    start: int
    end: int
    kind: str
    words: tuple[str, ...]


def annotate(
    tokens: list[str], rng: np.random.Generator, model: ErrorModel | None = None, rate: float = 1.0
) -> tuple[list[str], list[Correction]]:
    """A new list of the tokens with errors, and the corrections in order of position. At `rate` 1 about one token in
    ten is wrong, and a fifth of long sentences stay clean.

    model: rules over the text's lexicon (`ErrorModel(Lexicon.of(sentences))`), by default over the closed word lists.
    The same generator state gives the same errors.
    """
    model = default_model() if model is None else model
    draws = rng.random(len(tokens)).tolist()
    scale = rate * rng.standard_gamma(SHAPE) / SHAPE if rate > 0 else 0.0
    if scale <= 0 or not tokens:
        return list(tokens), []
    common = model.lexicon.common
    first = tokens[0].lower() if tokens[0].istitle() or len(tokens[0]) == 1 else tokens[0]
    words = [first if first in common else tokens[0], *tokens[1:]]
    wrong: list[str] = []
    corrections: list[Correction] = []
    previous, skip = START, False
    for place, (word, draw) in enumerate(zip(words, draws, strict=True)):
        if skip:
            skip, previous = False, word
            continue
        rules = model[word]
        level = draw / scale
        if level < rules.total:
            rule = rules.pick(level)
            following = words[place + 1] if place + 1 < len(words) else ""
            made, used = _apply(rule, word, following, previous, rng)
            if used:
                start = len(wrong)
                wrong += made
                clean = tuple(words[place : place + used])
                corrections.append(Correction(start, len(wrong), rule.kind, clean))
                skip, previous = used == 2, word
                continue
        wrong.append(word)
        previous = word
    if not wrong:
        return list(tokens), []
    if words[0] != tokens[0] or (corrections and corrections[0].start == 0):
        wrong, corrections = _capitalised(tokens, wrong, corrections)
    return wrong, corrections


@cache
def default_model() -> ErrorModel:
    """Rules over the words of `tasks.data.corruption.grammar`, for text without its own vocabulary."""
    from tasks.data.corruption.grammar import inflected

    return ErrorModel(Lexicon.from_counts(dict.fromkeys(inflected(), 10)))


def _apply(rule: Rule, word: str, following: str, previous: str, rng: np.random.Generator) -> tuple[list[str], int]:
    """The tokens of a rule, and the number of clean tokens that they replace (0: the rule does not fit here)."""
    if rule.after is not None and previous not in rule.after:
        return [], 0
    if not rule.words or not rule.words[0].startswith("*"):
        return list(rule.words), 1
    if rule.words[0] == "*swap":
        return ([following, word], 2) if following.isalpha() and following != word else ([], 0)
    wrong = misspelt(word, rng)
    return ([wrong], 1) if wrong != word else ([], 0)


def misspelt(word: str, rng: np.random.Generator) -> str:
    """A misspelling of the word: from the list of real misspellings, if that has the word, half of the time; else one
    slip: a sound misspelt, or a letter doubled, undoubled, dropped, swapped with the next or replaced by its neighbour
    on the keyboard. Words of one or two letters stay unchanged."""
    if len(word) < 3:
        return word
    known = misspellings().get(word, ())
    if known and rng.random() < _LISTED:
        return known[int(rng.random() * len(known))]
    kind, where, extra = rng.random(3).tolist()
    at = 1 + int(where * (len(word) - 1))  # the first letter stays
    if kind < 0.3:
        fits = [(old, new) for old, new in _SOUNDS if old in word[1:]]
        if fits:
            old, new = fits[int(extra * len(fits))]
            spot = word.index(old, 1)
            return word[:spot] + new + word[spot + len(old) :]
    if kind < 0.5:
        doubled = next((i for i in range(1, len(word)) if word[i] == word[i - 1]), None)
        return word[:doubled] + word[doubled + 1 :] if doubled else word[:at] + word[at] + word[at:]
    if kind < 0.75:
        return word[:at] + word[at + 1 :]
    if kind < 0.9 and at + 1 < len(word):
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return word[:at] + _KEYS.get(word[at], "e") + word[at + 1 :]


def _capitalised(
    tokens: list[str], wrong: list[str], corrections: list[Correction]
) -> tuple[list[str], list[Correction]]:
    """Restore the sentence's capital, and adapt the corrections to it."""
    if not tokens[0][0].isupper():
        return wrong, corrections
    result = list(wrong)
    result[0] = result[0][0].upper() + result[0][1:]
    leading = [correction for correction in corrections if correction.start == 0]
    if not leading:
        return result, corrections
    end = leading[-1].end
    clean = [word for correction in leading for word in correction.words]
    if end == 0:  # only deletions: the word that moved to the front has the capital
        end, clean = 1, [*clean, wrong[0]]
    restored = (tokens[0], *clean[1:])
    rest = corrections[len(leading) :]
    if restored == tuple(result[:end]):  # the capital undid the error
        return result, rest
    return result, [Correction(0, end, leading[0].kind, restored), *rest]
