"""Options of tasks over parallel text."""

from __future__ import annotations

from dataclasses import dataclass

from harness.common.errors import RequestError
from harness.contracts.tasks import Context
from tasks.data.parallel import ParallelSource
from tasks.data.parallel_kinds import ParallelKind, open_parallel


@dataclass(kw_only=True, eq=False)
class ParallelOptions:
    """source, dataset: see `tasks.data.parallel_kinds`. languages: SOURCE-TARGET. test: the name of the test set."""

    source: ParallelKind = "folder"
    dataset: str = "multi30k"
    languages: str = "de-en"
    test: str = "test_2016_flickr"

    def __post_init__(self) -> None:
        left, dash, right = self.languages.partition("-")
        if not (left and dash and right):
            raise RequestError(f"languages must be SOURCE-TARGET such as de-en, given {self.languages!r}")

    @property
    def target(self) -> str:
        """Code of the target language."""
        return self.languages.partition("-")[2]

    def parallel(self, context: Context) -> ParallelSource:
        """The text. Raises `RequestError` when it is not found."""
        left, _, right = self.languages.partition("-")
        return open_parallel(self.source, self.dataset, left, right, context.data, self.test)
