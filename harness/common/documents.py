"""Documents: their hash, their words in any script, and titles in the format of WikiText, ` = Title = `."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

# Scripts that put no blanks between words: Thai, Lao, Burmese, Khmer, kana, Han.
_UNSPACED = (
    "\u0e01-\u0e5b\u0e81-\u0edf\u1000-\u109f\u1780-\u17ff"
    "\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)


def content_hash(documents: Iterable[str]) -> str:
    """SHA-256 (20 hex digits) over documents and their boundaries."""
    total = hashlib.sha256()
    for document in documents:
        encoded = document.encode()
        total.update(len(encoded).to_bytes(8, "little"))
        total.update(encoded)
    return total.hexdigest()[:20]


def word_pattern(outside: str, least: int = 1) -> str:
    """A regular expression of one word: `least` or more characters outside of the class `outside` (such as `\\s`), or
    one character of a script that puts no blanks between words."""
    return rf"(?:[{_UNSPACED}]|[^{outside}{_UNSPACED}]{{{least},}})"


def is_title(line: str) -> bool:
    """Whether a line has the form of a level-1 heading. Blank lines around it are not looked at."""
    bare = line.strip()
    return len(bare) > 4 and bare.startswith("= ") and bare.endswith(" =") and "= =" not in (bare[:3], bare[-3:])
