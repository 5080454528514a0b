"""Generalised Aggressive Decoding, GAD and GAD++ (Ge et al., 2022, section 3.2), and its drafter alone.

A model that stays in the processor's cache takes time that grows with a pass's tokens. At 3+3 layers of width 256 and
k = 5, on two threads of a CPU, an iteration costs five to six greedy steps (0.3 ms): 1.0 ms of the drafter, 0.65 of the
verification. With one layer and the verifier's encoder the drafter takes 0.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from harness.common.errors import RequestError
from harness.common.widening import narrow, widened
from harness.contracts import Artifacts, Decoded, GenerationModel, Phases, Streams, TrainingPairs
from harness.contracts.metrics import Metric
from harness.contracts.ratios import Ratio
from harness.plan.registry import method
from methods.aggressive.markov import opened_head
from methods.aggressive.nar import NarDrafter
from methods.aggressive.nar_training import ARTIFACT, DrafterOptions, fit_drafter, opened_drafter
from methods.aggressive.trial import try_drafter
from methods.decoding.drafting.decoder import DraftingDecoder
from methods.decoding.drafting.verification import draft_and_verify, exactly
from methods.decoding.engine.engines import engine_of
from methods.decoding.engine.session import Engine, Session
from methods.decoding.search.decoder import Batch, Decoder

if TYPE_CHECKING:
    import torch


@dataclass(kw_only=True)
class BlockOptions(DrafterOptions):
    """block: k, the tokens drafted at a time. confidence: a block ends before the token that would bring the block's
    probability (the product of its tokens' probabilities, each among the 16 best of its mask) below this; the first
    token always stays. (DSpark, Cheng et al., 2026, learns a head for this.) Further parameters: see
    `DrafterOptions`."""

    block: Annotated[int, Field(ge=1)] = 25
    confidence: Annotated[float, Field(ge=0, lt=1)] = 0.0

    def __post_init__(self) -> None:
        if self.block > self.trained_block:
            raise RequestError(
                f"block = {self.block} is more than the drafter learns to fill (trained_block = {self.trained_block})"
            )


def decoding_of(module: Any) -> Iterator[torch.nn.Parameter]:
    """The parameters that a module uses without its encoder. The encoder may share the embeddings."""
    yield from module.get_decoder().parameters()
    yield from module.get_output_embeddings().parameters()


class NarDecoder(BlockOptions, Decoder):
    """The base of GAD and of its drafter alone: the drafter's training and its encoder."""

    measures = (
        *(Metric(f"{who}_{part}_ms", f"{who}'s {part}", "ms", "lower", "time")
          for who in ("verifier", "drafter") for part in ("encoder", "decoder")),
        Metric("others_ms", "others", "ms", "lower", "time"),
        Metric("drafter_share", "drafter's share of decoding", better="lower"),
        Metric("drafter_parameters", kind="counter"),
        Metric("drafter_bytes", "drafter", "bytes", "lower", "memory"),
    )  # fmt: skip

    @property
    def random_fit(self) -> bool:
        return True

    def fit(self, model: GenerationModel, reference: Streams, training: TrainingPairs, artifacts: Artifacts) -> None:
        model, _ = narrow(model)  # a widened verifier's drafter is widened too, and trained once for all widths
        fit_drafter(model, training, self.training(), artifacts, try_drafter)

    def open(self, subject: GenerationModel, artifacts: Artifacts) -> None:
        model, times = narrow(subject)
        self._drafting = widened(opened_drafter(model, artifacts), times)
        self._head = opened_head(artifacts.path(ARTIFACT), model.vocabulary_size)
        self._drafting_engine = engine_of(self._drafting, self.engine)

    @property
    def ratios(self) -> Mapping[str, Ratio]:
        """Milliseconds per sentence of each module, and the drafter's share of the time of both decoders."""
        parts = {"verifier_encoder": "encode", "drafter_encoder": "encode_drafter", "drafter_decoder": "draft",
                 "verifier_decoder": "verify"}  # fmt: skip
        found = {f"{name}_ms": Ratio({f"method.{phase}": 1e3}, per={"items": 1}) for name, phase in parts.items()}
        rest = {f"method.{phase}": -1e3 for phase in parts.values()}
        both = {"method.draft": 1.0, "method.verify": 1.0}
        return {
            **found,
            "others_ms": Ratio({"method": 1e3, **rest}, per={"items": 1}),
            "drafter_share": Ratio({"method.draft": 1.0}, per=both, equal=0.5),
        }

    def counters(self) -> dict[str, float]:
        """Number and bytes of the drafter's parameters that are used."""
        module = self._drafting.module
        unused = set() if self.own_encoder else set(module.get_encoder().parameters()) - set(decoding_of(module))
        parameters = [part for part in module.parameters() if part not in unused]
        return {
            "drafter_parameters": sum(part.numel() for part in parameters) + sum(part.size for part in self._head),
            "drafter_bytes": sum(part.nbytes for part in (*parameters, *self._head)),
        }

    def decode(
        self, model: GenerationModel, sources: Sequence[Sequence[int]], limit: int, phases: Phases
    ) -> list[Decoded]:
        if self.block > limit > 0:
            raise RequestError(f"block = {self.block} is longer than any output may be ({limit} tokens): give less")
        return super().decode(model, sources, limit, phases)

    def drafter(self, batch: Batch, phases: Phases) -> NarDrafter:
        """The drafter of this batch."""
        with phases("encode_drafter"):
            engine = self._drafting_engine
            encoded = engine.encode(batch.encoded.sources) if self.own_encoder else batch.encoded
            return self.drafting(engine.open(encoded, batch.limits), batch)

    def drafting(self, session: Session, batch: Batch) -> NarDrafter:
        """The drafter in a session of its own."""
        return NarDrafter(session, self.block, batch, self._head, self.confidence)


@method(
    "gad", contract="sequence-decoding", baseline="greedy", needs=("training-pairs",),
    summary="a non-autoregressive drafter's blocks, verified at once",
)  # fmt: skip
class Gad(NarDecoder, DraftingDecoder):
    """The output equals that of greedy decoding (GAD), or nearly (GAD++).

    beta, tau: GAD++ also accepts a drafted token that is among the verifier's `beta` best if its log-probability is at
    most `tau` below the best (Equations 8 and 9). With beta = 1 or tau = 0 this is GAD. Further parameters: see
    `BlockOptions`.
    """

    measures = (*NarDecoder.measures, *DraftingDecoder.measures)

    beta: Annotated[int, Field(ge=1)] = 1
    tau: Annotated[float, Field(ge=0)] = 0.0

    @property
    def lossless(self) -> bool:
        """Whether only the verifier's best token is accepted."""
        return self.beta == 1 or self.tau == 0

    def run(self, session: Session, batch: Batch, phases: Phases) -> None:
        accepts, depth = (exactly, 2) if self.lossless else (self._accepts, max(2, self.beta))
        draft_and_verify(session, batch, self.drafter(batch, phases), phases, accepts, depth)

    def read(self, engine: Engine, outputs: Sequence[Decoded]) -> float | None:
        """The verifier's weights, and the drafter's in each iteration with a draft."""
        verifier, drafter = super().read(engine, outputs), self._drafting_engine.weights
        if verifier is None or drafter is None:
            return None
        drafts = max(sum(map(bool, output.trace.drafts)) for output in outputs)
        once = drafter.once if self.own_encoder else drafter.sources
        return verifier + once + drafter.each_pass * drafts

    def _accepts(self, drafted: int, ids: Sequence[int], logits: Sequence[float]) -> bool:
        best = list(ids[: self.beta])
        return drafted in best and logits[0] - logits[best.index(drafted)] <= self.tau

    def gap(
        self, model: GenerationModel, source: Sequence[int], output: list[int], expected: list[int], limit: int
    ) -> float | None:
        return super().gap(model, source, output, expected, limit) if self.lossless else None


@method(
    "nar", contract="sequence-decoding", baseline="greedy", needs=("training-pairs",),
    summary="the non-autoregressive drafter of GAD alone, nothing verified",
)  # fmt: skip
class Nar(NarDecoder):
    """Concatenated blocks of the drafter, until a block has an end token or no position is left. An iteration is a
    block. Parameters: see `BlockOptions`."""

    @property
    def ratios(self) -> Mapping[str, Ratio]:
        """Milliseconds per sentence of the drafter's parts. There is no verifier."""
        encoder = "encode" if self.own_encoder else "encode_drafter"
        parts = {"drafter_encoder": encoder, "drafter_decoder": "draft"}
        return {f"{name}_ms": Ratio({f"method.{phase}": 1e3}, per={"items": 1}) for name, phase in parts.items()}

    def engine_of(self, model: GenerationModel) -> Engine:
        """The drafter's engine, or the verifier's if the drafter uses the verifier's encoder: then a session of the
        verifier is opened in addition, in the phase `encode`."""
        return self._drafting_engine if self.own_encoder else super().engine_of(model)

    def read(self, engine: Engine, outputs: Sequence[Decoded]) -> float | None:
        return super().read(self._drafting_engine, outputs)  # which may share the verifier's encoder

    def run(self, session: Session, batch: Batch, phases: Phases) -> None:
        drafter = self.drafting(session, batch) if self.own_encoder else self.drafter(batch, phases)
        ends, active = set(batch.model.eos_ids), list(range(len(batch.outputs)))
        while active:
            with phases("draft"):
                most = [batch.limits[output] - len(batch.outputs[output].ids) for output in active]
                blocks = drafter.draft(active, most)
            going = []
            for output, block in zip(active, blocks, strict=True):
                if not block:
                    continue
                decoded = batch.outputs[output]
                accepted = next((place + 1 for place, token in enumerate(block) if token in ends), len(block))
                decoded.ids.extend(block[:accepted])
                decoded.trace.iterations += 1
                decoded.trace.accepted.append(accepted)
                if decoded.ids[-1] not in ends and len(decoded.ids) < batch.limits[output]:
                    drafter.accept(output, block, len(block))
                    going.append(output)
            active = going
