"""Opening a model of `transformers`: its module on a device, and its tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from harness.common.errors import MachineError, RequestError, reason
from tasks.models.pretrained.checkpoints import locate, tokenizer_hash

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def open_module(path_or_id: str, *, device: str, dtype: str, causal: bool) -> tuple[Any, Path]:
    """The module of a model given by local folder or hub id, in eval mode and without gradients, and its folder.

    causal: accept only a causal language model; else also an encoder-decoder. Raises `RequestError` when there is no
    such model, when it cannot be loaded as this kind or lacks weights, or when the dtype is unknown; `MachineError`
    when there is no such device.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM
    from transformers.utils import logging

    if dtype not in DTYPES:
        raise RequestError(f"unknown dtype {dtype!r} for the model {path_or_id}; known: {', '.join(DTYPES)}")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise MachineError("no CUDA device is available to torch; use --device cpu or install torch's CUDA build")
    folder = locate(path_or_id)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(folder)
        if causal and config.is_encoder_decoder:
            raise ValueError(f"it is an encoder-decoder ({config.model_type})")
        family: Any = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
        module, report = family.from_pretrained(
            folder, config=config, dtype=DTYPES[dtype], local_files_only=True, output_loading_info=True
        )
        if report["missing_keys"]:  # transformers would initialise them at random
            raise ValueError(f"its weights lack {', '.join(sorted(report['missing_keys'])[:3])}")
    except Exception as error:  # for a damaged or foreign folder transformers may raise anything
        kind = "causal language model" if causal else "model that generates text"
        raise RequestError(f"{path_or_id} cannot be loaded as a {kind}: {reason(error)}") from error
    return module.eval().requires_grad_(False).to(device), folder


def open_tokenizer(folder: Path | None, name: str) -> Any:
    """The tokenizer in a model's folder. Raises `RequestError` when there is none, or it cannot be read."""
    from transformers import AutoTokenizer

    try:
        if folder is None or not tokenizer_hash(folder):  # transformers would make an empty tokenizer
            raise OSError("there is no tokenizer.json, nor the older files, next to its weights")
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # as above
        raise RequestError(f"the model {name} has no usable tokenizer: {reason(error)}") from error
