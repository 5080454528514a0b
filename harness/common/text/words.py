"""Words of text in any script."""

from __future__ import annotations

# Scripts that put no blanks between words: Thai, Lao, Burmese, Khmer, kana, Han.
_UNSPACED = (
    "\u0e01-\u0e5b\u0e81-\u0edf\u1000-\u109f\u1780-\u17ff"
    "\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)


def word_pattern(outside: str, least: int = 1) -> str:
    """A regular expression of one word: `least` or more characters outside of the class `outside` (such as `\\s`), or
    one character of a script that puts no blanks between words."""
    return rf"(?:[{_UNSPACED}]|[^{outside}{_UNSPACED}]{{{least},}})"
