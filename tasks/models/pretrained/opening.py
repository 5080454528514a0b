"""Opening a model of `transformers`: its module on a device, and its tokenizer."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import torch

from harness.common.cache import Cache
from harness.common.errors import MachineError, RequestError, reason
from harness.common.memory import check_room
from tasks.models.pretrained.checkpoints import tokenizer_hash, weight_files
from tasks.models.pretrained.places import Found, find

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def open_module(
    path_or_id: str, *, device: str, dtype: str, causal: bool, cache: Cache | None = None
) -> tuple[Any, Found]:
    """The module of a model, in eval mode and without gradients, and where it was found. path_or_id: as for `find`.

    causal: accept only a causal language model; else also an encoder-decoder. Raises `RequestError` when there is no
    such model, when it does not fit the memory, cannot be loaded as this kind, needs code of its own or lacks weights,
    or when the dtype is unknown; `MachineError` when there is no such device.
    """
    from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM
    from transformers.utils import logging

    if dtype not in DTYPES:
        raise RequestError(f"unknown dtype {dtype!r} for the model {path_or_id}; known: {', '.join(DTYPES)}")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise MachineError("no CUDA device is available to torch; use --device cpu or install torch's CUDA build")
    found = find(path_or_id, cache)
    folder = found.folder
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        stated = json.loads((folder / "config.json").read_text())
        if "auto_map" in stated and stated.get("model_type") not in CONFIG_MAPPING:
            raise ValueError(f"its type {stated.get('model_type')!r} needs code of the model's own, which is not run")
        check_room(path_or_id, sum(_bytes(file, DTYPES[dtype].itemsize) for file in weight_files(folder)))
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)  # without a value it would ask
        if causal and config.is_encoder_decoder:
            raise ValueError(f"it is an encoder-decoder ({config.model_type})")
        family: Any = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
        module, report = family.from_pretrained(
            folder, config=config, dtype=DTYPES[dtype], local_files_only=True, output_loading_info=True,
            trust_remote_code=False,
        )  # fmt: skip
        if report["missing_keys"]:  # transformers would initialise them at random
            raise ValueError(f"its weights lack {', '.join(sorted(report['missing_keys'])[:3])}")
    except RequestError:
        raise
    except Exception as error:  # for a damaged or foreign folder transformers may raise anything
        kind = "causal language model" if causal else "model that generates text"
        raise RequestError(f"{path_or_id} cannot be loaded as a {kind}: {reason(error)}") from error
    return module.eval().requires_grad_(False).to(device), found


def open_tokenizer(folder: Path | None, name: str) -> Any:
    """The tokenizer in a model's folder. Raises `RequestError` when there is none, or it cannot be read."""
    from transformers import AutoTokenizer

    try:
        if folder is None or not tokenizer_hash(folder):  # transformers would make an empty tokenizer
            raise OSError("there is no tokenizer.json, nor the older files, next to its weights")
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # as above
        raise RequestError(f"the model {name} has no usable tokenizer: {reason(error)}") from error


def added_start(tokenizer: Any) -> int | None:
    """The BOS token, if the tokenizer begins every text with it, as the model then expects."""
    start = tokenizer.bos_token_id
    return int(start) if start is not None and tokenizer.encode("a")[:1] == [start] else None


def positions(config: Any, stack: Any, *names: str) -> int | None:
    """Number of positions of a stack of layers, by the first of these names in its configuration. None if there is no
    name, because positions are relative."""
    found = next((count for name in names if (count := getattr(config, name, None))), None)
    table = getattr(getattr(getattr(stack, "base_model", stack), "embeddings", None), "position_embeddings", None)
    begin = getattr(table, "padding_idx", None)
    if found is not None and begin is not None:
        found -= begin + 1  # RoBERTa and similar models count positions from there
    return found


def _bytes(file: Path, itemsize: int) -> int:
    """Bytes of a file's weights once loaded, `itemsize` bytes each; of a `.bin` file, its bytes on disk."""
    from safetensors import safe_open

    if file.suffix != ".safetensors":
        return file.stat().st_size
    with safe_open(file, "pt") as weights:
        shapes = [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118
    return sum(itemsize * prod(shape) for shape in shapes)
