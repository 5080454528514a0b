"""The folder of a model trained here outside of `transformers`: weights, size, vocabularies, record."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from harness.common.errors import RequestError, reason

M = TypeVar("M", bound=nn.Module)


def save(
    folder: Path, module: nn.Module, size: Mapping[str, Any], record: Mapping[str, Any], **vocabularies: Sequence[str]
) -> None:
    """model.safetensors, config.json (the size), training.json (the record), and a JSON file for each vocabulary."""
    from safetensors.torch import save_file

    # a tied weight is written twice: the format has no sharing
    save_file({name: weight.clone() for name, weight in module.state_dict().items()}, folder / "model.safetensors")
    for name, types in vocabularies.items():
        (folder / f"{name}.json").write_text(json.dumps(list(types)))
    (folder / "config.json").write_text(json.dumps(size))
    (folder / "training.json").write_text(json.dumps(record, indent=1))


def load(
    folder: Path, kind: str, vocabularies: Sequence[str], make: Callable[..., M], device: str
) -> tuple[M, list[list[str]]]:
    """The module in eval mode, and the named vocabularies. make(size, *sizes of vocabularies): the module before its
    weights are read. kind: of the model, for the message. Raises `RequestError` when the folder is not such a model."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        size = json.loads((folder / "config.json").read_text())
        types: list[list[str]] = [json.loads((folder / f"{name}.json").read_text()) for name in vocabularies]
        module = make(size, *map(len, types))
        module.load_state_dict(load_file(folder / "model.safetensors"))
    except (OSError, ValueError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        raise RequestError(f"{folder} is not {kind} trained here: {reason(error)}; retrain it") from error
    return module.to(device).eval(), types
