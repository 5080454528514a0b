"""The models that a task's parameter `model` asks to be trained here: `train:SIZE`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from harness.errors import unknown

S = TypeVar("S")
TRAIN = "train:"


def size_to_train(model: str, sizes: Mapping[str, S]) -> S | None:
    """The size of the model to train, or None where `model` is a folder or a hub id.

    Raises `RequestError` for a size that is not in the table.
    """
    if not model.startswith(TRAIN):
        return None
    name = model.removeprefix(TRAIN)
    if name not in sizes:
        raise unknown("model size", model, [f"{TRAIN}{known}" for known in sizes], "task.model")
    return sizes[name]
