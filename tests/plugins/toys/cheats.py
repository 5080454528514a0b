"""Methods that look fast without being so: what a bench must not be taken in by."""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

from harness.common.phases import NoPhases
from harness.contracts import Decoded, TokenScores, TopK, Trace
from harness.measure import timing
from harness.measure.prepared import PreparedCell
from harness.plan.registry import method
from toys.methods import Exact, Greedy, Uniform


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


@method("toy-oracle", contract="token-scoring", baseline="toy-uniform", summary="thinks more of the word it is shown")
class Oracle(Uniform):
    def score(self, model, streams, phases, shared=None):
        scores = super().score(model, streams, phases, shared)
        return [TokenScores(one.log_probs + 0.05, one.counters) for one in scores]


@method(
    "toy-steps", contract="sequence-decoding", needs=("causal",), summary="a few long outputs take most of the time"
)
class Steps(Greedy):
    def decode(self, model, sources, limit, phases):
        time.sleep(sum(0.02 if dear(source) else 0.0005 for source in sources))
        return super().decode(model, sources, limit, phases)


def dear(source):
    """Two in a hundred of the timed sources."""
    return source[-1] == 24 and sum(source) % 2 == 0


@method(
    "toy-skips", contract="sequence-decoding", needs=("causal",), baseline="toy-steps", summary="skips the dear ones"
)
class Skips(Steps):
    """Right in the quality pass; where a clock runs it says nothing to the few sources that take most of the time."""

    def decode(self, model, sources, limit, phases):
        if isinstance(phases, NoPhases) or not any(map(dear, sources)):
            return super().decode(model, sources, limit, phases)
        return [Decoded([0], Trace()) for _ in sources]


@method("toy-mutant", contract="sequence-decoding", needs=("causal",), baseline="toy-slow", summary="slows the model")
class Mutant(Slow):
    """Leaves the shared model slower than it found it, and uses the old one."""

    def open(self, subject, artifacts):
        self.module = module = subject.module
        subject.module = lambda ids: (time.sleep(0.0002), module(ids))[1]

    def decode(self, model, sources, limit, phases):
        return super().decode(replace(model, module=self.module), sources, limit, phases)


@method(
    "toy-prepared", contract="sequence-decoding", needs=("causal",), baseline="toy-slow", summary="prepares answers"
)
class Prepared(Slow):
    """Has the answers before it is asked: from the call stack when it is opened, by a thread, or from a file that the
    quality pass left."""

    how: Literal["open", "thread", "disk"] = "open"
    file: str = ""

    def open(self, subject, artifacts):
        self.known = {}
        if self.how == "disk":
            if Path(self.file).exists():
                self.known = json.loads(Path(self.file).read_text())
            return
        frame = sys._getframe()
        while not isinstance(frame.f_locals.get("self"), PreparedCell):
            frame = frame.f_back
        sources = frame.f_locals["self"].setting.timed

        def prepare():
            for source in sources:
                self.known[repr(source)] = Greedy.decode(self, subject, [source], 20, NoPhases())[0].ids

        if self.how == "thread":
            threading.Thread(target=prepare).start()
        else:
            prepare()

    def decode(self, model, sources, limit, phases):
        found = [self.known.get(repr(list(source))) for source in sources]
        if None in found:
            answers = super().decode(model, sources, limit, phases)
            if self.how == "disk" and isinstance(phases, NoPhases):
                self.known |= {repr(list(s)): answer.ids for s, answer in zip(sources, answers, strict=True)}
                Path(self.file).write_text(json.dumps(self.known))
            return answers
        return [Decoded(list(ids), Trace(iterations=len(ids), accepted=[1] * len(ids))) for ids in found]


@method(
    "toy-clockmaker", contract="sequence-decoding", needs=("causal",), baseline="toy-slow", summary="turns clocks back"
)
class Clockmaker(Slow):
    """Replaces every name of the clock that it knows when it is opened, and runs it at half speed while it is asked."""

    def open(self, subject, artifacts):
        self.asked, clock = False, time.perf_counter_ns
        half = lambda: clock() // 2 if self.asked else clock()  # noqa: E731
        time.perf_counter_ns = timing.perf_counter_ns = half
        timing.clocked = None

    def decode(self, model, sources, limit, phases):
        self.asked = True
        answers = super().decode(model, sources, limit, phases)
        self.asked = False
        return answers


@method("toy-words-only", contract="softmax-screening", baseline="toy-exact", summary="right words, wrong logits")
class WordsOnly(Exact):
    logits: Literal["zero", "wrong"] = "zero"

    def topk(self, context, k):
        found = super().topk(context, k)
        if self.logits == "zero":
            return TopK(found.ids, 0 * found.logits, 0.0)
        return TopK(found.ids, found.logits - 0.5, found.log_normalizer)
