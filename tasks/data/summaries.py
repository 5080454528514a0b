"""Articles with summaries: CNN/DailyMail, and encyclopedia articles with their leads as summaries of the rest.

Local files of CNN/DailyMail are JSON lines with `article` and `highlights`, one highlight per line of text. A lead is
the first paragraph of a document; it summarises the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from harness.common.errors import RequestError
from tasks.data.files import find_file
from tasks.data.json_lines import json_lines
from tasks.data.parallel import Pair, ParallelSource
from tasks.data.text import Source, Split
from tasks.data.text.hub import HubAddress

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"“'(])")
_LEAST_LEAD, _LEAST_BODY = 8, 40  # words; documents with fewer are left out


class Leads(ParallelSource):
    """Pairs (body, lead) of a source's documents, cut to `body_words` and `lead_words`; a lead is cut after a sentence.

    For training, a long document gives several pairs: after a body that was cut, the next paragraph is the lead of what
    follows. For evaluation it gives one pair.
    """

    source, target = "body", "lead"

    def __init__(self, text: Source, body_words: int = 300, lead_words: int = 60) -> None:
        self.text, self.body_words, self.lead_words = text, body_words, lead_words
        self.name = f"leads of {text.name}"

    def fingerprint(self, split: Split) -> Mapping[str, Any]:
        return {"leads": self.text.identity(split), "words": [self.body_words, self.lead_words]}

    def pairs(self, split: Split) -> list[Pair]:
        found = []
        for document in self.text.documents(split):
            paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n|\n(?=\S)", document)]
            pairs = self._of([part for part in paragraphs if part.count(" ") >= _LEAST_LEAD - 1])
            found += list(pairs if split == "train" else islice(pairs, 1))
        if not found:
            raise RequestError(
                f"no document of the {split} split of {self.text.name} has a lead and a body; name another text by "
                "--set task.text=NAME"
            )
        return found

    def _of(self, paragraphs: Sequence[str]) -> Iterator[Pair]:
        """The pairs of one document, in order."""
        at = 0
        while at + 1 < len(paragraphs):
            lead, body = first_sentences(paragraphs[at], self.lead_words), list[str]()
            at += 1
            while at < len(paragraphs) and len(body) < self.body_words:
                body += paragraphs[at].split()
                at += 1
            if lead.count(" ") >= _LEAST_LEAD - 1 and len(body) >= _LEAST_BODY:
                yield " ".join(body[: self.body_words]), lead


def first_sentences(paragraph: str, words: int) -> str:
    """The first sentences of a paragraph that fit into `words` words; if the first is longer, its first `words`
    words."""
    kept: list[str] = []
    for sentence in _SENTENCE.split(paragraph):
        if len(kept) + sentence.count(" ") + 1 > words:
            break
        kept += sentence.split()
    return " ".join(kept or paragraph.split()[:words])


def cnn_dailymail(files: Sequence[str], roots: Sequence[Path]) -> list[Pair]:
    """(article, highlights) of JSON-lines files under the data roots, without repeated articles.

    Raises `RequestError` for missing files and for lines of another form.
    """
    found: dict[str, str] = {}
    for name in files:
        file = find_file(name, roots)
        for number, row in json_lines(file):
            try:
                article, highlights = str(row["article"]).strip(), str(row["highlights"]).strip()
            except (TypeError, KeyError) as error:
                raise RequestError(
                    f"{file}:{number} is not an object with article and highlights; fetch it again"
                ) from error
            found.setdefault(article, highlights)
    return list(found.items())


class HubSummaries(ParallelSource):
    """A data set of the hub with columns `article` and `highlights`, by its `HubAddress`."""

    source, target = "article", "highlights"

    def __init__(self, dataset: str) -> None:
        self.name, self.address = dataset, HubAddress(dataset)

    def fingerprint(self, split: Split) -> Mapping[str, Any]:
        return self.address.fingerprint()

    def pairs(self, split: Split) -> list[Pair]:
        rows = self.address.rows(split)
        if absent := [name for name in (self.source, self.target) if name not in rows.column_names]:
            columns = ", ".join(rows.column_names)
            raise RequestError(f"the data set {self.name} has no {' and no '.join(absent)}; columns: {columns}")
        sides = rows[self.source][:], rows[self.target][:]
        return [(article.strip(), summary.strip()) for article, summary in zip(*sides, strict=True)]
