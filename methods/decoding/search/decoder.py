"""The base class of all decoders that drive a session."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from harness.common.generate import Constraints
from harness.contracts import Decoded, GenerationModel, Phases, SequenceDecoding
from methods.decoding.engine.engines import Numbers, checked_limits, shared_engine
from methods.decoding.engine.session import Encoded, Engine, Session


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one session: the encoded sources, with their ids (`encoded.sources`), the outputs to fill (empty at
    first), their maximum numbers of tokens (`limits`, 1 or more), and the constraints of the model's generation
    configuration."""

    model: GenerationModel
    encoded: Encoded
    outputs: list[Decoded]
    limits: list[int]
    constraints: Constraints


@dataclass(kw_only=True)
class EngineOptions:
    """engine: `float32` decodes with the weights as they are; `int8` rounds the decoder's weights to 8 bits, which
    changes outputs."""

    engine: Numbers = "float32"


@dataclass(kw_only=True)
class Decoder(EngineOptions, SequenceDecoding):
    """A decoder. Its engine is shared with the other methods of the process.

    uneven: rows advance by different amounts, so an engine that is not ragged decodes them one by one.
    """

    uneven: ClassVar[bool] = False

    @abstractmethod
    def run(self, session: Session, batch: Batch, phases: Phases) -> None:
        """Fill the outputs of a batch whose sources the session reads."""

    def decode(
        self, model: GenerationModel, sources: Sequence[Sequence[int]], limit: int, phases: Phases
    ) -> list[Decoded]:
        import torch

        engine = self.engine_of(model)
        limits, constraints = checked_limits(model, sources, limit)
        outputs = [Decoded([]) for _ in sources]
        numbers = [number for number, most in enumerate(limits) if most]
        lengths = {len(sources[number]) for number in numbers} if model.kind == "causal" else {0}
        together = engine.ragged or (len(lengths) == 1 and not self.uneven)
        with torch.inference_mode():
            for group in [numbers] if together and numbers else [[number] for number in numbers]:
                most = [limits[number] for number in group]
                with phases("encode"):
                    encoded = engine.encode([sources[number] for number in group])
                    session = engine.open(encoded, most)
                batch = Batch(model, encoded, [outputs[number] for number in group], most, constraints)
                self.run(session, batch, phases)
                if (read := self.read(engine, batch.outputs)) is not None:
                    for output in batch.outputs:
                        output.trace.counters["bytes_read"] = read / len(batch.outputs)
        return outputs

    def read(self, engine: Engine, outputs: Sequence[Decoded]) -> float | None:
        """Bytes of weights read for outputs that were decoded together (`methods.bandwidth`); None: unknown."""
        if engine.weights is None:
            return None
        return engine.weights.once + engine.weights.each_pass * max(output.trace.iterations for output in outputs)

    def engine_of(self, model: GenerationModel) -> Engine:
        """The model's engine, made on first use."""
        return shared_engine(model, self.engine)
