"""Methods that look fast without being so: what a bench must not be taken in by."""

from __future__ import annotations

import time

from harness.common.phases import NoPhases
from harness.contracts import Decoded, TokenScores, Trace
from harness.plan.registry import method
from tests.toys.methods import Exact, Greedy, Uniform


@method("toy-slow", contract="sequence-decoding", needs=("causal",), summary="an honest decoder of half a millisecond")
class Slow(Greedy):
    def decode(self, model, sources, limit, phases):
        time.sleep(0.0005)
        return super().decode(model, sources, limit, phases)


@method(
    "toy-remembers", contract="sequence-decoding", needs=("causal",), baseline="toy-slow", summary="remembers answers"
)
class Remembers(Slow):
    """Answers at once what it was asked before."""

    def __post_init__(self):
        self.known = {}

    def decode(self, model, sources, limit, phases):
        key = repr(list(sources))
        if key not in self.known:
            self.known[key] = super().decode(model, sources, limit, phases)
        return self.known[key]


@method("toy-lazy", contract="sequence-decoding", needs=("causal",), baseline="toy-slow", summary="lazy when timed")
class Lazy(Slow):
    """Right in the quality pass; says nothing where a clock runs."""

    def decode(self, model, sources, limit, phases):
        if isinstance(phases, NoPhases):
            return super().decode(model, sources, limit, phases)
        return [Decoded([0], Trace()) for _ in sources]


@method("toy-forgetful", contract="softmax-screening", baseline="toy-exact", summary="the same words for every context")
class Forgetful(Exact):
    """Sorts once and repeats that answer."""

    answer = None

    def topk(self, context, k):
        self.answer = self.answer or super().topk(context, k)
        return self.answer


@method("toy-certain", contract="token-scoring", baseline="toy-uniform", summary="log-probabilities of +2")
class Certain(Uniform):
    value: str = "2.0"

    def score(self, model, streams, phases, shared=None):
        scores = super().score(model, streams, phases, shared)
        return [TokenScores(one.log_probs * 0 + float(self.value), one.counters) for one in scores]
