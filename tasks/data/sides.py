"""One side of a parallel text as documents: text of a domain other than encyclopedias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.data.parallel import ParallelSource
from tasks.data.text import Source, Split

TOGETHER = 50  # sentences of a document


class OneSide(Source):
    """The target side of a parallel text, `TOGETHER` sentences per document, one per line."""

    def __init__(self, parallel: ParallelSource) -> None:
        self.parallel = parallel
        self.name = f"{parallel.name} ({parallel.target})"

    def fingerprint(self, split: Split) -> Mapping[str, Any]:
        return {"side": self.parallel.identity(split), "together": TOGETHER}

    def documents(self, split: Split) -> Sequence[str]:
        lines = [sentence for _, sentence in self.parallel.pairs(split)]
        return ["\n".join(lines[start : start + TOGETHER]) + "\n" for start in range(0, len(lines), TOGETHER)]
