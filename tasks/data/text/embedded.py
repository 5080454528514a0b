"""English documentation in every Python installation. It needs no download, so scale `mini` uses it.

Documents are the language reference topics of `pydoc` and, per module of the standard library, its docstrings in
source order. Sources are parsed, not imported: importing the whole library would run code and open windows.
"""

from __future__ import annotations

import ast
import platform
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.common.cache import Cache
from harness.common.errors import RequestError
from tasks.data.text import SPLITS, Source, Split, split_of

# folders whose modules are tests, tables, generated, or not shipped by every distribution
_LEFT_OUT = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "pydoc_data"}
    | {"encodings", "ensurepip", "distutils"}
)
_SHORTEST_DOCUMENT = 400  # characters
_SHORTEST_PARAGRAPH = 40  # shorter ones ("Return True.") may repeat


class EmbeddedDocumentation(Source):
    """About 2 MB of technical English, split by document. Other Python versions have other text, with another hash."""

    name = "embedded"

    def __init__(self, cache: Cache, library: Path | None = None) -> None:
        self.cache = cache
        self.folder = library or Path(sysconfig.get_paths()["stdlib"])

    def fingerprint(self, split: Split) -> Mapping[str, Any]:
        return {"source": "embedded", "python": sys.version, "system": platform.system(), "library": str(self.folder)}

    def documents(self, split: Split) -> Sequence[str]:
        return self._splits[split]

    @cached_property
    def _splits(self) -> dict[str, list[str]]:
        def splits() -> dict[str, list[str]]:
            found: dict[str, list[str]] = {split: [] for split in SPLITS}
            for name, text in unique(gather(self.folder)):
                found[split_of(name)].append(text)
            if not all(found.values()):
                raise RequestError(
                    f"the Python installation in {self.folder} carries too little documentation (a stripped build?); "
                    "use --set task.source=folder with HARNESS_DATA"
                )
            return found

        return self.cache.value("embedded-text", self.fingerprint("train"), splits)  # type: ignore[no-any-return]


def gather(library: Path) -> Iterator[tuple[str, str]]:
    """(name, text) of every document, in a fixed order: topics first, then modules."""
    from pydoc_data.topics import topics  # a plain dictionary of text

    for topic in sorted(topics):
        yield f"topic {topic}", topics[topic]
    for name, source, tree in modules(library):
        if ('"""' in source or "'''" in source) and (texts := list(_docstrings(tree))):
            yield f"module {name}", "\n\n".join(texts)


def modules(library: Path) -> Iterator[tuple[str, str, ast.Module]]:
    """(path, source text, syntax tree) of every module, sorted by path."""
    for file in sorted(library.rglob("*.py")):
        relative = file.relative_to(library)
        if not _LEFT_OUT.isdisjoint(relative.parts):
            continue
        source = file.read_text(encoding="utf-8", errors="replace")
        try:
            yield relative.as_posix(), source, ast.parse(source)
        except (SyntaxError, ValueError):  # a template or a deliberately broken file
            continue


def unique(documents: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Drop paragraphs that occur in an earlier document (so that test and train share none), then short documents."""
    seen: set[str] = set()
    for name, text in documents:
        paragraphs = [part.strip("\n").rstrip() for part in text.expandtabs().split("\n\n")]
        normal = [" ".join(part.split()) for part in paragraphs]
        kept = [part for part, words in zip(paragraphs, normal, strict=True) if words and words not in seen]
        seen.update(words for words in normal if len(words) >= _SHORTEST_PARAGRAPH)
        if sum(map(len, kept)) >= _SHORTEST_DOCUMENT:
            yield name, "\n\n".join(kept) + "\n"


def _docstrings(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    if text := ast.get_docstring(node):
        yield text
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _docstrings(child)
