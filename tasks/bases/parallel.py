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
        sides("languages", self.languages)

    @property
    def target(self) -> str:
        """Code of the target language."""
        return self.languages.partition("-")[2]

    def parallel(self, context: Context) -> ParallelSource:
        """The text. Raises `RequestError` when it is not found."""
        return open_parallel(
            self.source, self.dataset, *sides("languages", self.languages), context.data, self.test
        )  # fmt: skip


def sides(name: str, languages: str) -> tuple[str, str]:
    """Source and target of the parameter `name`. Raises `RequestError` unless it is SOURCE-TARGET."""
    left, _, right = languages.partition("-")
    if not (left and right):
        raise RequestError(f"{name} must be SOURCE-TARGET such as de-en, given {languages!r}")
    return left, right
