"""Which engine a model gets, and what a request may ask of it."""

from __future__ import annotations

from collections.abc import Sequence

from harness.contracts import GenerationModel
from harness.errors import RequestError
from harness.generate import maximum_new_tokens
from methods.decoding.session import Engine


def engine_of(model: GenerationModel) -> Engine:
    """The lean engine where it knows the model's class, else the module's own forward pass.

    Raises `RequestError` for a model whose state cannot be cropped.
    """
    import torch

    from methods.decoding.generic import GenericEngine
    from methods.decoding.transformer import CLASSES, TransformerEngine

    module = model.module
    with torch.inference_mode():
        # float16 overflows in these models' encoders, which their modules clamp and the lean engine does not
        if type(module).__name__ in CLASSES and module.dtype != torch.float16:
            return TransformerEngine(module, model.start_id, model.device)
        return GenericEngine(module, model.kind, model.start_id, model.device)


def checked_limits(model: GenerationModel, sources: Sequence[Sequence[int]], limit: int) -> list[int]:
    """Maximum new tokens of each source: `limit`, or less where the model's window ends before.

    Raises `RequestError` for a negative limit, a source longer than the model's limit, or ids outside the vocabulary.
    """
    if limit < 0:
        raise RequestError(f"a limit of {limit} tokens: give 0 or more")
    # encoders with relative positions have no longest source
    longest = model.window if model.kind == "causal" else getattr(model.module.config, "max_position_embeddings", None)
    vocabulary = model.module.get_input_embeddings().num_embeddings
    for number, source in enumerate(sources):
        if longest is not None and len(source) > longest:
            raise RequestError(
                f"source {number} has {len(source)} tokens and {model.name} takes {longest}: shorten or split it"
            )
        wrong = next((token for token in source if not 0 <= token < vocabulary), None)
        if wrong is not None:
            raise RequestError(
                f"source {number} has token {wrong}, outside the vocabulary of {model.name} (0 to {vocabulary - 1}): "
                "encode it with the model's own tokenizer"
            )
    return [maximum_new_tokens(model, source, limit) for source in sources]
