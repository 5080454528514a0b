"""Words of text in any script."""

from __future__ import annotations

# Characters, for a class of a regular expression, of scripts that put no blanks between words (Thai, Lao, Burmese,
# Khmer, kana, Han). Each of them is a word of its own wherever words are cut, found or compared.
UNSPACED = (
    "\u0e01-\u0e5b\u0e81-\u0edf\u1000-\u109f\u1780-\u17ff"
    "\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
