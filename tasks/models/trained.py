"""Models to train here, by a task's parameter `model`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from harness.common.cache import Cache
from harness.common.errors import unknown
from tasks.models.pretrained.checkpoints import content

S = TypeVar("S")
TRAIN = "train:"


def size_to_train(model: str, sizes: Mapping[str, S], parameter: str = "task.model") -> S | None:
    """The size of the model to train, or None if `model` is a folder or a hub id. parameter: name, for the message.

    Raises `RequestError` for a size that is not in the table.
    """
    if not model.startswith(TRAIN):
        return None
    name = model.removeprefix(TRAIN)
    if name not in sizes:
        raise unknown("model size", model, [f"{TRAIN}{known}" for known in sizes], parameter)
    return sizes[name]


def identity(model: str, sizes: Mapping[str, Any], kind: str, seed: int, cache: Cache) -> dict[str, Any]:
    """Everything besides its data that determines a model given by size or folder, JSON-able: the training of the size,
    or the content of the folder. kind: for the message.

    Raises `RequestError` for what is neither a size nor a model's folder.
    """
    if model in sizes:
        return {
            "size": {name: value for name, value in asdict(sizes[model]).items() if value is not None},
            "seed": seed,
        }
    folder = Path(model).expanduser()
    if not (folder / "config.json").is_file():
        raise unknown(f"{kind} size or model folder", model, sizes, "task.model")
    return content(folder, cache)
