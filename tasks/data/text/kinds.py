"""The kinds of sources, by the value of a task's parameter `source`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from harness.common.cache import Cache
from tasks.data.text import Source

Kind = Literal["embedded", "folder", "hub"]


def open_source(kind: Kind, dataset: str, data: Sequence[Path], cache: Cache) -> Source:
    """The source of a kind. `dataset` is a folder's name under one of `data`, or a hub id, or `id:config`."""
    if kind == "embedded":
        from tasks.data.text.embedded import EmbeddedDocumentation

        return EmbeddedDocumentation(cache)
    if kind == "folder":
        from tasks.data.text.folder import Folder

        return Folder(dataset, data)
    from tasks.data.text.hub import Hub

    return Hub(dataset)
