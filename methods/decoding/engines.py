"""Which engine a model gets, what a request may ask of it, and the base class of all decoders."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from harness.contracts import Decoded, GenerationModel, Phases, SequenceDecoding
from harness.errors import RequestError
from methods.decoding.session import Engine, Session


@dataclass(frozen=True, slots=True)
class Batch:
    """What one session decodes, row by row: the sources, the outputs to fill (empty at first), and the most tokens that
    each may get (`space`, 1 or more)."""

    model: GenerationModel
    sources: list[Sequence[int]]
    outputs: list[Decoded]
    space: list[int]


class Decoder(SequenceDecoding):
    """A decoder that keeps the engine of the model it saw last: weights are packed once, not once a batch.

    uneven: its rows advance by different amounts, so that an engine which is not ragged takes them one by one.
    """

    uneven: ClassVar[bool] = False
    _prepared: tuple[GenerationModel, Engine] | None = None

    @abstractmethod
    def run(self, session: Session, batch: Batch, phases: Phases) -> None:
        """Fill the outputs of a batch whose sources the session has taken."""

    def decode(
        self, model: GenerationModel, sources: Sequence[Sequence[int]], limit: int, phases: Phases
    ) -> list[Decoded]:
        import torch

        engine = self.engine(model)
        space = rooms(model, sources, limit)
        outputs = [Decoded([]) for _ in sources]
        numbers = [number for number, room in enumerate(space) if room]
        lengths = {len(sources[number]) for number in numbers} if model.kind == "causal" else {0}
        together = engine.ragged or (len(lengths) == 1 and not self.uneven)
        with torch.inference_mode():
            for group in [numbers] if together and numbers else [[number] for number in numbers]:
                batch = Batch(
                    model,
                    [sources[number] for number in group],
                    [outputs[number] for number in group],
                    [space[number] for number in group],
                )
                with phases("encode"):
                    session = engine.start(batch.sources, batch.space)
                self.run(session, batch, phases)
        return outputs

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
