"""The smallest real task of each contract, on seeded random data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from harness.common.errors import RequestError
from harness.common.statistics import block_jackknife, mean_interval
from harness.contracts import OutputLayer
from harness.contracts.models import EncodedBlock
from harness.contracts.tasks import (
    DecodingSetting,
    Measure,
    RetrievalSetting,
    SoftmaxSetting,
    Task,
    TokenScoringSetting,
)
from harness.plan.registry import task


@dataclass
class ToyModel:
    name: str = "toy"
    hash: str = "toy-1"
    tokenizer_hash: str = "toy-1"
    vocabulary_size: int = 50
    window: int = 64
    device: str = "cpu"
    kind: str = "causal"
    module: Any = None
    eos_ids: tuple[int, ...] = (0,)

    distributions: bool = False

    def encode(self, stream, *, key=None, statistics=False):
        """All words are equally likely at every place, if the model says what it thinks at all."""
        if self.distributions:
            import torch

            uniform = torch.full((len(stream) - 1, self.vocabulary_size), -math.log(self.vocabulary_size))
            told, entropy = torch.from_numpy(stream[1:]), -uniform[:, 0]
            yield EncodedBlock(1, told, -entropy, None, None, entropy, lambda rows: uniform[rows])


@task("toy-text", contract="token-scoring", provides=("reference-text",), summary="Zipfian token streams")
class ToyText(Task):
    scale_defaults: ClassVar = {"small": {"tokens": 4000}}

    tokens: int = 3000
    missing: bool = False
    distributions: bool = False

    def prepare(self, context, progress):
        if self.missing:
            raise RequestError("no data at data/toy: set HARNESS_DATA")
        rng = np.random.default_rng(context.seed)
        streams = [np.minimum(rng.zipf(1.5, self.tokens) - 1, 49) for _ in range(3)]
        return TokenScoringSetting(
            model=ToyModel(distributions=self.distributions),
            reference=streams[:1],
            validation=streams[1:2],
            evaluation=streams[2:],
            timed=[streams[2][start : start + 50] for start in range(0, self.tokens - 1, 50)],
            sample=4,
            words=self.tokens - 1,
            hashes={"data": f"zipf-{context.seed}-{self.tokens}", "model": "toy-1"},
            facts={"evaluation_tokens": self.tokens - 1},
        )

    def metrics(self, setting, answers):
        log_probs = np.concatenate([a.log_probs for a in answers])
        low, high = block_jackknife([log_probs], lambda mean: np.exp(-mean)) or (None, None)
        return {"perplexity": Measure(float(np.exp(-log_probs.mean())), low, high)}


@task("toy-layer", contract="softmax-screening", summary="a random output layer")
class ToyLayer(Task):
    def prepare(self, context, progress):
        rng = np.random.default_rng(context.seed)
        weight, bias = rng.normal(size=(100, 8)).astype(np.float32), np.zeros(100, np.float32)
        contexts = rng.normal(size=(400, 8)).astype(np.float32)
        targets = np.argmax(contexts @ weight.T, axis=1)
        return SoftmaxSetting(
            layer=OutputLayer(weight, bias),
            contexts=contexts[:200],
            targets=targets[:200],
            evaluation=contexts[200:],
            evaluation_targets=targets[200:],
            timed=contexts[200:],
            sample=20,
            hashes={"data": str(context.seed)},
        )

    def metrics(self, setting, answers):
        return {"log_normalizer": _mean([a.log_normalizer for a in answers])}


@task("toy-successors", contract="sequence-decoding", provides=("causal",), summary="count down to the end token")
class ToySuccessors(Task):
    batch: int = 4
    same: bool = False  # evaluates what may be timed

    def prepare(self, context, progress):
        timed = [[0, m, n] for m in range(8) for n in range(3, 25)]
        return DecodingSetting(
            model=ToyModel(module=lambda ids: max(0, ids[-1] - 1)),
            evaluation=timed if self.same else [[n] for n in range(3, 25)],
            timed=timed,
            sample=5,
            limit=20,
            batch=self.batch,
            hashes={"data": "countdown"},
        )

    def metrics(self, setting, answers):
        return {"length": _mean([len(a.ids) for a in answers])}

    def examples(self, setting, method, answers):
        return [{"source": str(setting.evaluation[0]), "output": str(answers[0].ids)}]

    def series(self, setting, answers):
        return {"source": [float(source[0]) for source in setting.evaluation]}


@task("toy-questions", contract="retrieval-generation", provides=("passages",), summary="passages by number")
class ToyQuestions(Task):
    def prepare(self, context, progress):
        return RetrievalSetting(
            model=ToyModel(),
            knowledge=["a", "bb", "ccc"],
            validation=[],
            evaluation=[[n] for n in range(12)],
            timed=[[n] for n in range(12)],
            sample=2,
            limit=4,
            hashes={"data": "three passages"},
        )

    def metrics(self, setting, answers):
        return {"length": _mean([len(a.ids) for a in answers])}


def _mean(values):
    low, high = mean_interval(np.asarray(values)) or (None, None)
    return Measure(float(np.mean(values)), low, high)
