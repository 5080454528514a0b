"""Regular English inflection and derivation by spelling rules. Whether a form exists is decided by the vocabulary."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.data.corruption.word_lists import IRREGULAR_PLURALS, IRREGULAR_VERBS

_VOWELS = "aeiou"


def plural(noun: str) -> str:
    """`city` -> `cities`, `box` -> `boxes`, `child` -> `children`."""
    return IRREGULAR_PLURALS.get(noun) or third_person(noun)


def third_person(verb: str) -> str:
    """`carry` -> `carries`, `go` -> `goes`, `make` -> `makes`."""
    if verb.endswith("y") and verb[-2:-1] not in _VOWELS:
        return verb[:-1] + "ies"
    return verb + ("es" if verb.endswith(("s", "x", "z", "ch", "sh", "o")) else "s")


def past(verb: str) -> str:
    """Simple past: `stop` -> `stopped`, `carry` -> `carried`, `go` -> `went`."""
    return IRREGULAR_VERBS[verb][0] if verb in IRREGULAR_VERBS else _regular_past(verb)


def participle(verb: str) -> str:
    """Past participle: `take` -> `taken`, `use` -> `used`."""
    return IRREGULAR_VERBS[verb][1] if verb in IRREGULAR_VERBS else _regular_past(verb)


def gerund(verb: str) -> str:
    """`make` -> `making`, `run` -> `running`, `lie` -> `lying`."""
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and not verb.endswith(("ee", "oe", "ye")) and len(verb) > 2:
        return verb[:-1] + "ing"
    return _doubled(verb) + "ing"


def over_regular(verb: str) -> str:
    """The regular form that a learner makes of an irregular verb: `think` -> `thinked`."""
    return _regular_past(verb)


def derivations(word: str) -> Iterator[str]:
    """Spellings that may belong to the word's family (`safe` -> `safety`, `safely`); most are not words."""
    for ending, others in _ENDINGS.items():
        if ending and (not word.endswith(ending) or len(word) - len(ending) < 3):
            continue
        stem = word[: len(word) - len(ending)] if ending else word
        for other in others.split():
            yield stem + other
    if word.endswith("y"):
        yield word[:-1] + "ily"


_ENDINGS = {
    "": "ly ty al ment er or ness ity ful ic able ation ist ism ance ing",
    "e": "ion ation ing er or able al ity",
    "y": "ical ic ist",
    "ate": "ation ator ative",
    "ic": "ical y",
    "ical": "y ic ics ically",
    "ent": "ence ency ently",
    "ence": "ent ential",
    "ant": "ance ancy",
    "ance": "ant",
    "ion": "e ional ive or",
    "able": "ability ably",
    "ful": "fully",
    "ive": "ion ively ivity",
    "ous": "ously",
    "al": "ally ality",
    "ed": "ing",
    "er": "ing",
    "ly": "",
    "ment": "",
    "ness": "",
    "ing": "",
}


def _regular_past(verb: str) -> str:
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("y") and verb[-2:-1] not in _VOWELS:
        return verb[:-1] + "ied"
    return _doubled(verb) + "ed"


def _doubled(verb: str) -> str:
    """Short verbs that end in consonant, vowel, consonant double the last: `stop` -> `stopp`."""
    short = len(verb) in (3, 4) and verb[-1] not in _VOWELS + "wxyhr" and verb[-2] in _VOWELS
    return verb + verb[-1] if short and verb[-3] not in _VOWELS else verb
