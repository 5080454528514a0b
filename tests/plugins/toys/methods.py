"""The smallest real method of each contract, with a baseline."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from typing import Literal

import numpy as np

from harness.common.errors import NotInstalledError, RequestError
from harness.contracts import (
    Decoded,
    RetrievalGeneration,
    SequenceDecoding,
    SoftmaxScreening,
    TokenScores,
    TokenScoring,
    TopK,
    Trace,
)
from harness.plan.registry import method


@method("toy-uniform", contract="token-scoring", summary="every token is equally likely")
class Uniform(TokenScoring):
    def score(self, model, streams, phases, shared=None):
        with phases("lm"):
            return [
                TokenScores(np.full(len(s) - 1, -np.log(model.vocabulary_size)), {"tokens": len(s) - 1})
                for s in streams
            ]


@method("toy-unigram", contract="token-scoring", needs=("reference-text",), baseline="toy-uniform", summary="counts")
class Unigram(TokenScoring):
    """Add-one unigram probabilities; `pause` and `fault` make it slow or broken on purpose."""

    pause: float = 0.0
    fault: Literal["none", "error", "crash", "hang", "bug", "absent"] = "none"
    lambda_: float = 1.0

    def fit(self, model, reference, validation, artifacts):
        if self.fault == "error":
            raise RequestError("the reference text is no good: give another")
        if self.fault == "absent":
            raise NotInstalledError("the toy shop is not installed; pip install toys")
        if self.fault == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "hang":
            time.sleep(600)
        if self.fault == "bug":
            raise ZeroDivisionError("a fault of the method")

        def build(folder):
            counts = np.ones(model.vocabulary_size)
            for found, process in artifacts.parts.each(
                _counted, [(stream,) for stream in reference], model.vocabulary_size
            ):
                counts += found
                (folder / f"made-by-{process}").touch()
            np.save(folder / "log_probs.npy", np.log(counts / counts.sum()))

        text = hashlib.sha256(b"".join(len(s).to_bytes(8, "little") + s.tobytes() for s in reference))
        artifacts.build("unigram", {"model": model.hash, "text": text.hexdigest()}, build)
        artifacts.values["streams"] = len(reference)

    def open(self, subject, artifacts):
        self.log_probs = np.load(artifacts.path("unigram") / "log_probs.npy")
        self.streams = artifacts.values["streams"]

    def counters(self):
        return {"reference_streams": self.streams}

    def score(self, model, streams, phases, shared=None):
        with phases("lookup"):
            time.sleep(self.pause)
            scaled = self.lambda_ * self.log_probs
            scaled -= np.log(np.exp(scaled).sum())
            return [TokenScores(scaled[s[1:]], {"tokens": len(s) - 1}) for s in streams]


def _counted(size, stream):
    """A part of the counts, and the process that made it."""
    return np.bincount(stream[1:], minlength=size), os.getpid()


@method("toy-exact", contract="softmax-screening", summary="full product, full sort")
class Exact(SoftmaxScreening):
    def open(self, subject, artifacts):
        self.layer = subject

    def topk(self, context, k):
        logits = self.layer.weight @ context + self.layer.bias
        ids = np.argsort(-logits, kind="stable")[:k]
        return TopK(ids, logits[ids], float(np.log(np.exp(logits).sum())))

    def log_prob(self, context, target):
        logits = self.layer.weight @ context + self.layer.bias
        return float(logits[target] - np.log(np.exp(logits).sum()))

    def counters(self):
        return {"multiply_adds": self.layer.weight.size}


@method("toy-frequent", contract="softmax-screening", baseline="toy-exact", summary="only the words seen in training")
class Frequent(Exact):
    def fit(self, layer, contexts, targets, artifacts):
        artifacts.values["candidates"] = sorted(set(targets.tolist()))

    def open(self, subject, artifacts):
        super().open(subject, artifacts)
        self.candidates = np.asarray(artifacts.values["candidates"])

    def topk(self, context, k):
        logits = self.layer.weight[self.candidates] @ context + self.layer.bias[self.candidates]
        best = np.argsort(-logits, kind="stable")[:k]
        return TopK(self.candidates[best], logits[best], float(np.log(np.exp(logits).sum())))

    def counters(self):
        return {"multiply_adds": len(self.candidates) * self.layer.weight.shape[1]}


@method("toy-greedy", contract="sequence-decoding", needs=("causal",), summary="one successor per step")
class Greedy(SequenceDecoding):
    def decode(self, model, sources, limit, phases):
        outputs = []
        for source in sources:
            ids = []
            with phases("generate"):
                while len(ids) < limit and (not ids or ids[-1] not in model.eos_ids):
                    ids.append(model.module([*source, *ids]))
            outputs.append(Decoded(ids, Trace(iterations=len(ids), accepted=[1] * len(ids))))
        return outputs


@method("toy-blocks", contract="sequence-decoding", needs=("causal",), baseline="toy-greedy", summary="two at a time")
class Blocks(Greedy):
    def decode(self, model, sources, limit, phases):
        outputs = super().decode(model, sources, limit, phases)
        for output in outputs:
            output.trace.iterations = -(-len(output.ids) // 2)
        return outputs


@method("toy-sequential", contract="retrieval-generation", needs=("passages",), summary="look up, then continue")
class Sequential(RetrievalGeneration):
    def fit(self, model, knowledge, validation, artifacts):
        artifacts.values["passages"] = list(knowledge)

    def open(self, subject, artifacts):
        self.passages = artifacts.values["passages"]

    def generate(self, model, prompt, limit, phases):
        with phases("retrieve"):
            passage = self.passages[sum(prompt) % len(self.passages)]
        with phases("generate"):
            ids = [len(passage) + i for i in range(limit)]
        return Decoded(ids, Trace(iterations=limit, counters={"searches": 1}))
