"""Translation with an LSTM translator and any softmax."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from harness.common.progress import Progress
from harness.contracts import TopK
from tasks.data.sentences import END
from tasks.models.beam_search import Clock, Hypothesis, Search, Softmax, beam_search
from tasks.models.translator.model import Ids, State, Translator, by_length, source_tensor

SIDE_BY_SIDE = 32  # sentences searched at a time


@dataclass(frozen=True, slots=True)
class DecoderState:
    """memory [b, s, d] of b sources; for each of n hypotheses its source and the decoder's state."""

    memory: torch.Tensor
    source: torch.Tensor  # int64 [n]
    state: State  # two of [layers, n, d]


class LstmDecoder:
    """A translator in the interface of `beam_search`. Sources given to `start` must be equally long."""

    def __init__(self, model: Translator) -> None:
        self.model, self.device = model, model.output.weight.device

    @torch.no_grad()
    def start(self, sources: Sequence[Ids]) -> DecoderState:
        memory, state = self.model.encode(source_tensor(sources, self.device))
        return DecoderState(memory, torch.arange(len(sources), device=self.device), state)

    @torch.no_grad()
    def step(
        self, state: DecoderState, rows: NDArray[np.int64], words: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], DecoderState]:
        kept = torch.from_numpy(rows).to(self.device)
        source, hidden, cell = state.source[kept], state.state[0][:, kept], state.state[1][:, kept]
        given = torch.from_numpy(words).to(self.device)[None]
        contexts, after = self.model.decode(given, state.memory[source], (hidden, cell))
        return contexts[0].float().cpu().numpy(), DecoderState(state.memory, source, after)


def translate(
    model: Translator,
    sources: Sequence[Ids],
    softmax: Softmax,
    search: Search,
    *,
    progress: Progress,
    stage: str,
    side_by_side: int = SIDE_BY_SIDE,
    clock: Clock | None = None,
) -> list[Hypothesis]:
    """The best hypothesis of each source, in the sources' order. An output has at most (2 x source length + 10) words,
    the usual bound against a search that does not end, and at most the search's limit.

    Runs on one thread, like the timed pass whose softmaxes the clock compares, and for the same rounding everywhere.
    """
    found: dict[int, Hypothesis] = {}
    decoder = LstmDecoder(model)
    with one_thread():
        for group in by_length(sources, side_by_side):
            chosen = [sources[position] for position in group]
            bounded = replace(search, limit=min(search.limit, 2 * len(chosen[0]) + 10))
            answers = beam_search(decoder, chosen, softmax, bounded, END, clock)
            found.update(zip(group, answers, strict=True))
            progress.update(stage, len(found), len(sources), "sentences")
    return [found[position] for position in range(len(sources))]


def full_softmax(model: Translator) -> Softmax:
    """The exact softmax of the model's output layer, with which every other one is compared."""
    weight = np.ascontiguousarray(model.output.weight.detach().float().cpu().numpy())
    bias = model.output.bias.detach().float().cpu().numpy()

    def topk(context: NDArray[np.float32], k: int) -> TopK:
        logits = weight @ context + bias
        best = np.argpartition(-logits, k - 1)[:k] if k < len(logits) else np.arange(len(logits))
        ids = best[np.argsort(-logits[best], kind="stable")]
        highest = logits[ids[0]]
        return TopK(ids, logits[ids], float(highest + np.log(np.exp(logits - highest).sum())))

    return topk


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch and for the loaded BLAS and OpenMP libraries (including numpy's); restored afterwards.
    Compiled loops of numba are not affected: a method itself decides whether they run in parallel."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        torch.set_num_threads(before)
