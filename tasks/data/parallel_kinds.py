"""Parallel text from local folders, the Hugging Face hub, or a seeded generator, chosen by a parameter.

Layout of a folder, under each data root in order (`HARNESS_DATA`; the first that has the data set wins), one sentence
per line, both sides of equal length:

    <root>/<dataset>/train.<language>      valid | validation | val | dev .<language>      <test>.<language>

each plain or with `.gz`. A data set may have several test sets; `test` names the one to use (`test_2016_flickr`,
`newstest2015`). Splits that are not used may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from harness.common.errors import RequestError
from tasks.data.files import aligned_lines, find_data
from tasks.data.invented_language import InventedLanguage
from tasks.data.parallel import Pair, ParallelSource
from tasks.data.text import Split
from tasks.data.text.hub import HubAddress

ParallelKind = Literal["generated", "folder", "hub"]


def open_parallel(
    kind: ParallelKind, dataset: str, source: str, target: str, data: Sequence[Path], test: str = "test"
) -> ParallelSource:
    """The source of a kind. `dataset` is a folder's name under one of `data`, or a hub id or `id:config`."""
    if kind == "generated":
        return InventedLanguage()
    if kind == "folder":
        return ParallelFolder(dataset, source, target, data, test)
    return ParallelHub(dataset, source, target, test)


class ParallelFolder(ParallelSource):
    """A parallel data set found by name under the data roots. Raises `RequestError` with the paths tried."""

    def __init__(self, dataset: str, source: str, target: str, roots: Sequence[Path], test: str = "test") -> None:
        self.name, self.source, self.target = dataset, source, target
        self._stems: dict[Split, tuple[str, ...]] = {
            "train": ("train",),
            "validation": ("valid", "validation", "val", "dev"),
            "test": (test,),
        }
        self.path = find_data(
            f"parallel data set {dataset!r}", [dataset], roots, accepts=lambda path: bool(dataset) and path.is_dir(),
            folder=f"{dataset or 'it'}/", otherwise=", or use --set task.source=generated",
        )  # fmt: skip

    def fingerprint(self, split: Split) -> Mapping[str, Any]:
        files = self._files(split)
        stats = [(str(file.resolve()), file.stat()) for file in files]
        return {"files": [[path, stat.st_size, stat.st_mtime_ns] for path, stat in stats]}

    def pairs(self, split: Split) -> list[Pair]:
        files = self._files(split)
        left, right = aligned_lines(files)
        if not left:
            raise RequestError(f"{files[0]} is empty; fetch it again")
        return list(zip(left, right, strict=True))

    def _files(self, split: Split) -> tuple[Path, Path]:
        for stem in self._stems[split]:
            for ending in ("", ".gz"):
                names = [f"{stem}.{language}{ending}" for language in (self.source, self.target)]
                left, right = (self.path / name for name in names)
                if left.is_file() and right.is_file():
                    return left, right
        stems = " or ".join(self._stems[split])
        raise RequestError(
            f"{self.path} has no {split} split for {self.source}-{self.target}; expected {stems} with .{self.source} "
            f"and .{self.target} (or .gz)"
        )


class ParallelHub(ParallelSource):
    """A data set by its `HubAddress`. Its column `translation` maps languages to sentences, or its columns are the
    languages. `test` names its test split."""

    def __init__(self, dataset: str, source: str, target: str, test: str = "test") -> None:
        if not dataset:
            raise RequestError("source hub needs an id; give --set task.dataset=wmt/wmt14:de-en")
        self.name, self.source, self.target, self.test = dataset, source, target, test
        self.address = HubAddress(dataset)

    def fingerprint(self, split: Split) -> Mapping[str, Any]:
        return {**self.address.fingerprint(), "languages": [self.source, self.target], "test": self.test}

    def pairs(self, split: Split) -> list[Pair]:
        name = self.test if split == "test" else split
        rows = self.address.rows(name)
        cells = rows["translation"][:] if "translation" in rows.column_names else list(rows)
        first = next((cell for cell in cells if isinstance(cell, dict)), {})
        if absent := [language for language in (self.source, self.target) if language not in first]:
            columns = ", ".join(rows.column_names)
            raise RequestError(f"the data set {self.name} has no {' and no '.join(absent)}; columns: {columns}")
        found = []
        for number, cell in enumerate(cells):
            left, right = ((cell or {}).get(language) for language in (self.source, self.target))
            if not (isinstance(left, str) and isinstance(right, str)):
                raise RequestError(
                    f"row {number} of the {name} split of {self.name} lacks a sentence; use one without such rows"
                )
            found.append((left.strip(), right.strip()))
        return found
