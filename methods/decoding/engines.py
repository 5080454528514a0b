"""Which engine a model gets, what a request may ask of it, and the base class of all decoders."""

from __future__ import annotations

from collections.abc import Sequence

from harness.contracts import GenerationModel, SequenceDecoding
from harness.errors import RequestError
from methods.decoding.session import Engine


class Decoder(SequenceDecoding):
    """A decoder that keeps the engine of the model it saw last: weights are packed once, not once a batch."""

    _prepared: tuple[GenerationModel, Engine] | None = None

    def engine(self, model: GenerationModel) -> Engine:
        """The model's engine, made on first use."""
        if self._prepared is None or self._prepared[0] is not model:
            self._prepared = model, engine_of(model)
        return self._prepared[1]


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


def rooms(model: GenerationModel, sources: Sequence[Sequence[int]], limit: int) -> list[int]:
    """How many tokens each source may grow: `limit`, or less where the model's window ends before.

    Raises `RequestError` for a negative limit, a source longer than the model's limit, or ids outside the vocabulary.
    """
    if limit < 0:
        raise RequestError(f"a limit of {limit} tokens: give 0 or more")
    causal = model.kind == "causal"
    # encoders with relative positions have no longest source
    longest = model.window if causal else getattr(model.module.config, "max_position_embeddings", None)
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
    # the last token of an output is never fed, hence one more than the window has left
    return [min(limit, model.window - max(len(source), 1) + 1 if causal else model.window) for source in sources]
