"""Beam search with a given softmax, so that any top-k method can replace the full one.

In every step the softmax gives the best `beam` words of each live hypothesis. A word's log-probability is its logit
minus the answer's log-normaliser, that is, the log-softmax over the method's candidate set. A word outside of the set
has probability 0 (Chen et al., 2019, section 4).

The best continuations of a sentence are kept, one per place of the beam. A continuation by an end mark closes its
hypothesis and removes one place, so a beam of 1 is greedy decoding. The search of a sentence ends when no place is left
or at the limit, where open hypotheses count as they are. The answer is the hypothesis with the highest log-probability
/ length ** length_penalty (the end mark counts); ties: the first found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.contracts import TopK

Softmax = Callable[["NDArray[np.float32]", int], TopK]  # (context [d], k) -> top-k, as `SoftmaxScreening.topk`


class Decoder(Protocol):
    """A model that continues sentences one word at a time. A state has one row per hypothesis; its form is private to
    the decoder."""

    def start(self, sources: Sequence[Sequence[int]]) -> Any:
        """Initial state with one row per source."""

    def step(self, state: Any, rows: NDArray[np.int64], words: NDArray[np.int64]) -> tuple[NDArray[np.float32], Any]:
        """Contexts [n, d] and state of n hypotheses. Hypothesis i continues row rows[i] of `state` by words[i]."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Words without the end mark, and their natural-log probability, including that of the end mark if there is
    one."""

    words: tuple[int, ...]
    log_prob: float
    ended: bool = False

    def score(self, length_penalty: float) -> float:
        """log_prob / length ** length_penalty, the end mark counted."""
        return self.log_prob / float(max(1, len(self.words) + self.ended) ** length_penalty)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Parameters of the search: places of the beam (at least 1), most words of an answer, exponent of the length in the
    score."""

    beam: int
    limit: int
    length_penalty: float = 1.0


@dataclass(slots=True)
class Clock:
    """Wall-clock seconds of softmax and model, and the number of contexts given to the softmax."""

    softmax_s: float = 0.0
    model_s: float = 0.0
    contexts: int = 0


@dataclass(slots=True)
class _Sentence:
    """One sentence during its search: live hypotheses with their rows of the decoder's state, and closed ones."""

    live: list[tuple[Hypothesis, int]]
    closed: list[Hypothesis] = field(default_factory=list)

    def extend(self, answers: Sequence[TopK], beam: int, end: int) -> list[tuple[Hypothesis, int]]:
        """Close and continue hypotheses by one answer per live hypothesis. Returns the continued ones, each with the
        index of the hypothesis that it continues."""
        found: list[tuple[float, int, int]] = []
        for place, ((hypothesis, _), answer) in enumerate(zip(self.live, answers, strict=True)):
            log_probs = hypothesis.log_prob + (answer.logits.astype(np.float64) - float(answer.log_normalizer))
            found += [(-p, place, int(w)) for p, w in zip(log_probs, answer.ids, strict=True) if p > -np.inf]
        found.sort(key=lambda continuation: continuation[0])  # stable: ties keep their order
        onward: list[tuple[Hypothesis, int]] = []
        for negative, place, word in found[: beam - len(self.closed)]:
            words = self.live[place][0].words
            if word == end:
                self.closed.append(Hypothesis(words, -negative, ended=True))
            else:
                onward.append((Hypothesis((*words, word), -negative), place))
        if not found:  # all continuations have probability 0: the live hypotheses are the result
            self.closed += [hypothesis for hypothesis, _ in self.live]
        return onward


def beam_search(
    decoder: Decoder,
    sources: Sequence[Sequence[int]],
    softmax: Softmax,
    search: Search,
    end: int,
    clock: Clock | None = None,
) -> list[Hypothesis]:
    """The best hypothesis of each source. All sources are searched together.

    `end` is both the decoder's first input and the mark that closes a hypothesis.
    """
    if not sources:
        return []
    clock = clock or Clock()
    started = time.perf_counter()
    state = decoder.start(sources)
    clock.model_s += time.perf_counter() - started
    sentences = [_Sentence([(Hypothesis((), 0.0), row)]) for row in range(len(sources))]
    for _ in range(search.limit):
        live = [alive for sentence in sentences for alive in sentence.live]
        if not live:
            break
        rows = np.asarray([row for _, row in live], np.int64)
        words = np.asarray([hypothesis.words[-1] if hypothesis.words else end for hypothesis, _ in live], np.int64)
        started = time.perf_counter()
        contexts, state = decoder.step(state, rows, words)
        between = time.perf_counter()
        answers = [softmax(context, search.beam) for context in contexts]
        clock.softmax_s += time.perf_counter() - between
        clock.model_s += between - started
        clock.contexts += len(contexts)
        _advance(sentences, answers, search.beam, end)
    return [_best(sentence, search.length_penalty) for sentence in sentences]


def _advance(sentences: Sequence[_Sentence], answers: Sequence[TopK], beam: int, end: int) -> None:
    """Extend every sentence by its answers, which are in the order of the live hypotheses."""
    first = 0
    for sentence in sentences:
        count = len(sentence.live)
        onward = sentence.extend(answers[first : first + count], beam, end)
        sentence.live = [(hypothesis, first + place) for hypothesis, place in onward]
        first += count


def _best(sentence: _Sentence, length_penalty: float) -> Hypothesis:
    return max([*sentence.closed, *(h for h, _ in sentence.live)], key=lambda h: h.score(length_penalty))
