"""Running text in WikiText's format (Merity et al., 2017): tokens between blanks; `@-@`, `@,@` and `@.@` for hyphens
and the separators of numbers; headings between equals signs; and `<unk>` for words that are not in the data set's
vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tasks.data.text import Source, Split

UNKNOWN = "<unk>"
_SEPARATED = re.compile(r"(?<=\d)([.,])(?=\d)|(?<=\w)(-)(?=\w)")
_TOKEN = re.compile(r"@[-.,]@|'\w+|\w+|\.{2,}|[^\w\s]")
_HEADING = re.compile(r"[A-Z][^.!?;:,]{0,60}\.")
_LONGEST_HEADING = 6  # words


def tokens(line: str) -> list[str]:
    """The tokens of a line."""
    return _TOKEN.findall(_SEPARATED.sub(lambda found: f" @{found[1] or found[2]}@ ", line))


def written(text: str, known: Collection[str]) -> str:
    """An article in WikiText's format; paragraphs are lines. A short line that ends in a full stop is a heading, except
    the first and the last line. Words that are not in `known` become `<unk>`."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    found = []
    for number, line in enumerate(lines):
        heading = (
            0 < number < len(lines) - 1 and _HEADING.fullmatch(line) and len(line.split()) <= _LONGEST_HEADING
        )  # fmt: skip
        words = [token if token in known else UNKNOWN for token in tokens(line[:-1] if heading else line)]
        found.append(f" = = {' '.join(words)} = = \n" if heading else f" {' '.join(words)} \n")
    return "".join(found)


class AsWikitext(Source):
    """The documents of a source in the format of `like`, with the words of `like` as known words."""

    def __init__(self, source: Source, like: Source) -> None:
        self.source, self.like = source, like
        self.name = f"{source.name} written as {like.name}"

    def fingerprint(self, split: Split) -> Mapping[str, Any]:
        return {"as_wikitext": self.source.identity(split), "words": self.like.identity("train")}

    def documents(self, split: Split) -> Sequence[str]:
        known = {word for text in self.like.documents("train") for word in text.split()}
        return [written(text, known) for text in self.source.documents(split)]
