"""Greedy decoding with a screened output layer (Chen et al., 2019, in the decoding of a language model).

With `exact`, the screen drafts and the exact layer verifies. A step of greedy decoding costs body + layer. Here a block
of k words costs k bodies, k - 1 screens and one pass of the layer over k states, which reads its weights once. At
precision p of the screen a block gives (1 - p^k) / (1 - p) words. Drafts from the prompt save bodies: one pass reads
several words, and the screen keeps those that it would choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from harness.common.errors import RequestError
from harness.common.files import arrays_digest, digest
from harness.common.generate import Constraints
from harness.contracts import Artifacts, Decoded, GenerationModel, OutputLayer, Phases, Streams, TrainingPairs
from harness.contracts.metrics import Metric
from harness.plan.parameters import declared
from harness.plan.registry import Registry, method
from methods.aggressive.iad import InputGuided
from methods.decoding.drafting.decoder import DraftingDecoder, gap_of_best
from methods.decoding.drafting.verification import draft_and_verify
from methods.decoding.engine.session import Engine, Session
from methods.decoding.search.best import check_finite
from methods.decoding.search.decoder import Batch, Decoder
from methods.decoding.search.greedy import decode_greedily
from methods.softmax.candidates import COUNTERS, CandidateSets

if TYPE_CHECKING:
    import torch

    from methods.decoding.engine.transformer_session import TransformerEngine


@method(
    "head",
    contract="sequence-decoding",
    baseline="greedy",
    needs=("causal", "reference-text"),
    summary="greedy decoding with a screened output layer, verified by the exact layer or not",
    variants=("engine", "screen"),
)
class Head(Decoder):
    """screen: a method of contract `softmax-screening` that scores candidate words; knobs: its parameters. exact:
    verify at most `block` words at a time, so that outputs are greedy decoding's; else the best candidate is the next.
    contexts, written: about how many contexts the screen learns from: of reference text, and (fewer where outputs end
    early) of text that the model writes itself; both are rounded up to whole pieces. copied: longest draft from the
    prompt, as `iad` makes it, that a pass of the body reads along (0: none; needs `exact` and a `block` of 3 or
    more). seed: draws the pieces of text, and is the screen's unless `knobs` has one.
    """

    measures: ClassVar[tuple[Metric, ...]] = (
        *DraftingDecoder.measures,
        *COUNTERS,
        Metric("passes", "passes of the body", better="lower", kind="counter"),
    )

    screen: str = "two-sided"
    knobs: dict[str, Any] = Field(default_factory=dict)
    exact: bool = True
    block: Annotated[int, Field(ge=2)] = 8
    contexts: Annotated[int, Field(ge=1)] = 30_000
    written: Annotated[int, Field(ge=0)] = 10_000
    copied: Annotated[int, Field(ge=0)] = 0
    seed: Annotated[int, Field(ge=0)] = 0

    def __post_init__(self) -> None:
        target = Registry().resolve("method", self.screen)
        if not (isinstance(target, type) and issubclass(target, CandidateSets)):
            raise RequestError(
                f"screen={self.screen!r} finds no candidate words; take another method of softmax-screening, but not "
                "exact or adaptive-softmax"
            )
        if self.copied and not (self.exact and self.block > 2):
            raise RequestError(
                f"copied={self.copied} needs exact=true and a block of 3 or more; change these, or leave it out"
            )
        seed = {"seed": self.seed} if "seed" in declared(target) else {}
        self._screen: CandidateSets = target(**{**seed, **self.knobs})

    @property
    def random_fit(self) -> bool:
        return True

    def fit(self, model: GenerationModel, reference: Streams, training: TrainingPairs, artifacts: Artifacts) -> None:
        """Raises `RequestError` for a model without the lean engine, for one that forbids or forces tokens unless
        `exact`, and for what the screen's `fit` refuses."""
        engine, demands = self._lean(model), Constraints.of(model.module, model.eos_ids)
        if not self.exact and (demands.by_position or demands.suppressed):
            raise RequestError(
                f"the generation configuration of {model.name} forbids or forces tokens, which a screen alone does not "
                "know; set method.exact to true"
            )

        def build(folder: Path) -> None:
            from methods.heads.training import training_contexts

            states, words = training_contexts(engine, model, reference, self.contexts, self.written, self.seed)
            np.save(folder / "contexts.npy", states)
            np.save(folder / "targets.npy", words)

        key = {
            "model": model.hash, "dtype": str(model.module.dtype), "engine": self.engine,
            "reference": digest([arrays_digest(stream) for stream in reference]), "contexts": self.contexts,
            "written": self.written, "seed": self.seed,
        }  # fmt: skip
        folder = artifacts.build("head-contexts", key, build)
        if self._screen.random_fit and "seed" not in declared(type(self._screen)):
            artifacts.salt["seed"] = self.seed  # each of several fits has its own
        self._screen.fit(
            layer_of(model), np.load(folder / "contexts.npy"), np.load(folder / "targets.npy"), artifacts
        )  # fmt: skip

    def open(self, subject: GenerationModel, artifacts: Artifacts) -> None:
        import torch

        layer, held = layer_of(subject), subject.module.dtype
        self._screen.open(layer, artifacts)
        self._copy = float(layer.weight.nbytes) if held != torch.float32 else 0.0

    def counters(self) -> dict[str, float]:
        """extra_bytes: of the screen, and of the copy of the layer in float32 that it holds."""
        found = self._screen.counters()
        return {"mean_candidates": found["mean_candidates"], "extra_bytes": found["extra_bytes"] + self._copy}

    def run(self, session: Session, batch: Batch, phases: Phases) -> None:
        from methods.heads.chosen import ChosenWords

        words, name = ChosenWords(self._lean(batch.model).head), batch.model.name
        self._screened = 0

        def choose(states: torch.Tensor, active: Sequence[int] = ()) -> list[int]:
            self._screened += len(states)
            rows = states.numpy()
            found = [words.best(row, self._screen.words(row, 1).astype(np.int32, copy=False)) for row in rows]
            check_finite((logit for _, logit in found), name, session.lengths)
            return [word for word, _ in found]

        if self.exact:
            from methods.heads.stepped import ScreenDrafter, Stepped

            stepped, ends = Stepped(session), frozenset(batch.model.eos_ids)
            copies = None
            if self.copied:
                with phases("draft"):
                    copies = InputGuided(batch.encoded.sources, ends, framed=False, block=self.copied)
            drafter = ScreenDrafter(stepped, self.block, ends, choose, copies)
            draft_and_verify(stepped, batch, drafter, phases, look=self.block)
            passes = stepped.passes
        else:
            with phases("generate"):
                decode_greedily(session, batch, choose)
            passes = max(len(output.ids) for output in batch.outputs)
        for output in batch.outputs:
            output.trace.counters["passes"] = passes / len(batch.outputs)

    def read(self, engine: Engine, outputs: Sequence[Decoded]) -> float | None:
        """The body is read in every pass; the screen for every word that it chose; the exact layer for every block.
        Candidates are in the numbers of the engine's layer. Of several rows: the mean of what the screen reads."""
        found, head = self._screen.counters(), getattr(engine, "head", None)
        if engine.weights is None or "bytes_read" not in found or head is None:
            return None
        matrix = head.plain[0]
        screen = found["bytes_read"] - found["mean_candidates"] * matrix.shape[1] * (4 - matrix.itemsize)
        passes = sum(output.trace.counters["passes"] for output in outputs)
        layers = max(output.trace.iterations for output in outputs) if self.exact else 0
        body = engine.weights.each_pass - matrix.nbytes
        screened = self._screened / len(outputs)
        return float(engine.weights.once + body * passes + screen * screened + matrix.nbytes * layers)

    def gap(
        self, model: GenerationModel, source: Sequence[int], output: list[int], expected: list[int], limit: int
    ) -> float | None:
        """See `SequenceDecoding.gap`; None without `exact`."""
        return gap_of_best(self.engine_of(model), model, source, output, expected, limit) if self.exact else None

    def _lean(self, model: GenerationModel) -> TransformerEngine:
        from methods.decoding.engine.transformer_session import TransformerEngine

        engine = self.engine_of(model)
        if not isinstance(engine, TransformerEngine) or engine.head.plain is None:
            raise RequestError(
                f"method head needs the lean engine on a CPU in float32, bfloat16 or int8, which {model.name} does not "
                "have: see docs/decoding.md for the classes that it knows"
            )
        return engine


def layer_of(model: GenerationModel) -> OutputLayer:
    """The output layer of a model, in float32."""
    from methods.decoding.engine.transformer import output_layer

    head = output_layer(model.module)
    weight = head.weight.detach().float().numpy()
    bias = getattr(head, "bias", None)
    return OutputLayer(weight, np.zeros(len(weight), np.float32) if bias is None else bias.detach().float().numpy())
