"""Decoders that learn, and a task that has what they learn from."""

from __future__ import annotations

import numpy as np

from harness.contracts.tasks import DecodingSetting
from harness.plan.registry import method, task
from toys.methods import Greedy
from toys.tasks import ToySuccessors


@method("toy-drafter", contract="sequence-decoding", needs=("training-pairs",), summary="learns from pairs")
class Drafter(Greedy):
    """Counts what it was given to learn from."""

    def fit(self, model, reference, training, artifacts):
        artifacts.values.update(streams=len(reference), pairs=len(training))

    def open(self, subject, artifacts):
        self.given = {name: artifacts.values[name] for name in ("streams", "pairs")}

    def counters(self):
        return self.given


@method("toy-lookup", contract="sequence-decoding", needs=("reference-text",), summary="looks drafts up in text")
class Lookup(Drafter):
    """The same, of text."""


@task(
    "toy-translation",
    contract="sequence-decoding",
    provides=("training-pairs", "reference-text"),
    summary="count down, with examples of it",
)
class ToyTranslation(ToySuccessors):
    def prepare(self, context, progress) -> DecodingSetting:
        setting = super().prepare(context, progress)
        setting.training = lambda: [([n], list(range(n - 1, -1, -1))) for n in range(3, 10)]
        setting.reference = lambda: [np.arange(20), np.arange(30)]
        return setting
