"""RetoMaton as a token-scoring method (Alon et al., 2022)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.common.cache import SharedResults
from harness.common.errors import RequestError
from harness.common.files import digest
from harness.common.phases import NoPhases
from harness.contracts import Artifacts, LanguageModel, Phases, Shared, Streams, TokenScores
from harness.contracts.metrics import Metric
from harness.contracts.ratios import Ratio
from harness.plan.registry import method
from methods.bandwidth import counted
from methods.knnlm.base import DatastoreMethod
from methods.knnlm.datastore import corpus_hash
from methods.knnlm.gate import NEIGHBOUR_FEATURES, Gate, learned, neighbour_features
from methods.knnlm.mixture import interpolate, log_knn
from methods.knnlm.positions import Positions, read, read_shared, spans
from methods.knnlm.scorer import PROMISED, GatedScorer, confidence
from methods.knnlm.tuning import tune_lambda
from methods.nearest.index import finite
from methods.retomaton.states import ARTIFACT, StateOptions, States, build_states
from methods.retomaton.walk import Automaton, Candidates, Counts, Transitions, Walk

Neighbours = tuple[NDArray[np.float32], NDArray[np.integer]]  # distances and ids [k] of one query, or [t, k]

BASES = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0)  # tried when `base` is tuned
RUNS = (1, 2, 4, 8, 16, 32, 64, 128)  # least lengths of the bins of runs; the last bin has no upper limit


def _lengths(shortest: int) -> str:
    """The lengths of a bin, such as `4 to 7 tokens`."""
    if shortest == RUNS[-1]:
        return f"{shortest} tokens or more"
    return {1: "1 token", 2: "2 or 3 tokens"}.get(shortest, f"{shortest} to {2 * shortest - 1} tokens")


@method(
    "retomaton",
    contract="token-scoring",
    needs=("reference-text",),
    baseline="lm",
    summary="kNN-LM whose searches are saved by an automaton over the datastore",
)
class RetoMaton(StateOptions, GatedScorer):
    """p(w) = lambda p_auto(w) + (1 - lambda) p_LM(w), p_auto from the entries of the automaton's states (Eq. 8 to 10).

    tau: a token is searched if fewer states than this were reached; `inf` searches every token and still uses the
        pointers. max_knns: most entries taken from states for one token (Appendix B).
    transitions: `full` follows all entries of the states (Eq. 5), `capped` only the candidates.
    counts: how often an entry pointed to counts. `runs`: once more with every token in a row that it has matched, as in
        the authors' code, with which the published numbers were made. `once`: once, as in Eq. 5 to 9. `weighted` (not
        in the paper): base^n times, n the number of tokens in a row that it has matched.
    base: of `weighted`; a number, or `tuned` on the validation text for this lambda and temperature.
    pointers: False follows none; every token is searched, which is kNN-LM.
    streams: texts walked together, whose searches make one batch. Answers do not depend on it.
    The others: see `StateOptions` and `KnnLm`. A tuned lambda and temperature are those of kNN-LM; a dynamic lambda is
    learned along the walk.
    """

    measures = (
        *DatastoreMethod.measures,
        Metric("states", "states of the automaton", kind="counter"),
        Metric("states_bytes", "states of the automaton", "bytes", "lower", "memory"),
        Metric("candidates", "candidates of all tokens", kind="counter"),
        Metric("base", "base of the weights", kind="counter"),
        *(Metric(f"runs_of_{n}", f"search-free runs of {_lengths(n)}", kind="counter") for n in RUNS),
        Metric("saved_time", "saved time / baseline's time", "", "higher", "speed", equal=0.0),
        Metric("timed_foss", "FoSS of the timed tokens", better="higher"),
        Metric("lost_share", "(FoSS × time of search - saved time) / baseline's time", "", "lower", "speed", equal=0.0),
        Metric("walk_share", "time of walking / baseline's time", "", "lower", "speed"),
    )

    tau: Annotated[int, Field(ge=1)] | Literal["inf"] = "inf"
    max_knns: Annotated[int, Field(ge=1)] = 1024
    transitions: Transitions = "full"
    counts: Counts = "runs"
    base: Annotated[float, Field(ge=1)] | Literal["tuned"] = "tuned"
    pointers: bool = True
    streams: Annotated[int, Field(ge=1)] = 64

    @property
    def random_fit(self) -> bool:
        """k-means starts at random, and so does the index that greedy merging searches."""
        return self.clustering != "none" or super().random_fit

    def fit(self, model: LanguageModel, reference: Streams, validation: Streams, artifacts: Artifacts) -> None:
        self.fit_datastore(model, reference, validation, artifacts)
        build_states(artifacts, self._opened(model, artifacts).store, self, self.seed)
        self._fit_base(model, validation, artifacts)
        self._open_automaton(model, artifacts)
        self.fit_gate(model, validation, artifacts)
        self.open(model, artifacts)

    def open(self, subject: LanguageModel, artifacts: Artifacts) -> None:
        self._open_automaton(subject, artifacts)
        self.open_gate(artifacts)

    @property
    def ratios(self) -> Mapping[str, Ratio]:
        """Shares of the baseline's time: `saved_time`, the saving; `lost_share`, by how much the saving falls short of
        FoSS x the time of the baseline's searches; `walk_share`, the time of walking the automaton. `timed_foss`: the
        FoSS of the timed tokens, whose texts are shorter than the evaluation's.

        Source of `saved_time`: Alon et al., 2022, Appendix C, Figure 14.
        """
        whole = {"baseline": 1.0}
        return {
            "saved_time": Ratio({"baseline": 1.0, "method": -1.0}, whole, equal=0.0),
            "timed_foss": Ratio({"method.tokens": 1.0, "method.searches": -1.0}, {"method.tokens": 1.0}),
            "lost_share": Ratio({**PROMISED, "baseline": -1.0, "method": 1.0}, whole, equal=0.0),
            "walk_share": Ratio({"method.walk": 1.0}, whole),
        }

    def counters(self) -> dict[str, float]:
        states = self.automaton.states
        base = {"base": self.automaton.base} if self.counts == "weighted" else {}
        return {**super().counters(), "states": len(states), "states_bytes": states.bytes, **base}

    def score(
        self, model: LanguageModel, streams: Streams, phases: Phases, shared: Shared | None = None
    ) -> list[TokenScores]:
        walks = self.walked(model, streams, phases, shared)
        with phases("interpolate"):
            lambda_ = self.ready()[1][0]
            return [walk.scores(lambda_ if self.gate is None else self.gate(walk.looks)) for walk in walks]

    def walked(
        self,
        model: LanguageModel,
        streams: Streams,
        phases: Phases,
        shared: Shared | None = None,
        bases: Sequence[float] = (),
    ) -> list[Walked]:
        """All streams in order, each walked to its end. bases: of `weighted` to try, for `Walked.tried`."""
        datastore, _ = self.ready()
        before = datastore.bytes_read
        found: list[Neighbours] | None = None
        confident = self.learns
        if shared is None:
            datastore.load()
            texts: list[Iterator[Positions]] = [read(model, stream, self.key, phases, confident) for stream in streams]
        else:
            whole = read_shared(model, streams, self.key, shared, confident)
            near, ids = datastore.search_shared(whole, corpus_hash(streams), shared)
            found = [(near[low:high], ids[low:high]) for low, high in spans(streams)]
            texts = [iter([text]) for text in whole]
        walks = [
            Walked(Walk(self.automaton, draws(self.seed, stream[:-1])), len(stream[1:]), text, number, confident, bases)
            for number, (stream, text) in enumerate(zip(streams, texts, strict=True))
        ]
        waiting = iter([walk for walk in walks if walk.length])
        active: list[Walked] = []
        while active := [*active, *islice(waiting, self.streams - len(active))]:
            for walk in active:
                while walk.done < walk.length and not self.needs_search(walk.walk):
                    self._step(walk, None, phases)
            active = [walk for walk in active if walk.done < walk.length]
            self._search(active, found, phases)
            active = [walk for walk in active if walk.done < walk.length]
        each = (datastore.bytes_read - before) / max(sum(int(walk.searched.sum()) for walk in walks), 1)
        for walk in walks if shared is None else ():
            entries = each * int(walk.searched.sum()) + datastore.entry_bytes * walk.pointed
            walk.bytes_read = counted(model, walk.blocks, entries)
        return walks

    def needs_search(self, walk: Walk) -> bool:
        """Whether the next token is searched."""
        return self.tau == "inf" or walk.reached < self.tau

    def _search(self, active: Sequence[Walked], found: Sequence[Neighbours] | None, phases: Phases) -> None:
        """Walk one token of each stream, searching all of them."""
        if found is not None:
            for walk in active:
                distances, ids = found[walk.number]
                self._step(walk, (distances[walk.done], ids[walk.done]), phases)
        elif active:
            queries = np.stack([walk.read()[0] for walk in active])
            for walk, *neighbours in zip(active, *self.ready()[0].search(queries, phases), strict=True):
                self._step(walk, (neighbours[0], neighbours[1]), phases)

    def _step(self, walk: Walked, neighbours: Neighbours | None, phases: Phases) -> None:
        """Walk one token of a stream. neighbours: those of a search; None: no search."""
        temperature = self.ready()[1][1]
        query, token = walk.read()
        with phases("walk"):
            candidates = walk.walk.candidates(query, neighbours)
            walk.record(candidates, token, temperature)
            walk.walk.advance(token, candidates)

    def _open_automaton(self, model: LanguageModel, artifacts: Artifacts) -> None:
        self.open_datastore(model, artifacts)
        search = self._opened(model, artifacts)
        self.automaton = Automaton(
            search, States.open(artifacts.path(ARTIFACT), search.store), self.max_knns, self.transitions,
            self.pointers, self.counts, artifacts.values["base"],
        )  # fmt: skip

    def _fit_base(self, model: LanguageModel, validation: Streams, artifacts: Artifacts) -> None:
        """Choose the base of `weighted` on walks over the validation streams, for the lambda and temperature in use.
        Raises `RequestError` if there is no token."""
        artifacts.values["base"] = 1.0 if self.base == "tuned" else self.base
        if self.counts != "weighted" or self.base != "tuned":
            return
        if not any(len(stream) > 1 for stream in validation):
            raise RequestError("no validation text to tune base on; give it as a number")
        self._open_automaton(model, artifacts)
        store, (lambda_, temperature) = self._opened(model, artifacts).store, self.ready()[1]
        key = {
            "datastore": store.metadata["built_from"], "validation": corpus_hash(validation), "lambda": lambda_,
            "temperature": temperature, **self.gate_key(), **self.search_key(),
        }  # fmt: skip

        def choose(folder: Path) -> None:
            walks = self.walked(model, validation, NoPhases(), SharedResults(artifacts), BASES)
            log_lm, found = (np.concatenate([getattr(walk, name) for walk in walks]) for name in ("log_lm", "tried"))
            losses = [tune_lambda(log_lm, column, lambda_)[0] for column in found.T]
            (folder / "base.json").write_text(json.dumps(BASES[int(np.argmin(losses))]))

        folder = artifacts.build("retomaton-base", key, choose)
        artifacts.values["base"] = json.loads((folder / "base.json").read_text())

    def gate_key(self) -> dict[str, Any]:
        names = ("tau", "max_knns", "transitions", "counts", "base", "pointers")
        return {**super().gate_key(), **{name: getattr(self, name) for name in names}, **self.clustering_key(self.seed)}

    def learn_gate(self, model: LanguageModel, validation: Streams, artifacts: Artifacts) -> Gate:
        """The gate of `lambda: dynamic`, learned from walks over the validation streams."""
        walks = self.walked(model, validation, NoPhases(), SharedResults(artifacts))
        looks, log_lm, log_auto = (
            np.concatenate([getattr(walk, name) for walk in walks]) for name in ("looks", "log_lm", "log_auto")
        )
        return learned(looks, log_lm, log_auto, seed=self.seed)


@dataclass(slots=True)
class Walked:
    """One stream during its walk: `done` tokens of `length`, read from `text`. Per token: log_lm and log_auto, log p_LM
    and log p_auto, float64; searched, bool; looks, features of the gate, float32 [length, 9], empty unless `confident`;
    tried, log p_auto for each of the `bases`, float64 [length, bases]. pointed: candidates that no search found.
    blocks: of the LM. bytes_read: the counter, where it is known."""

    walk: Walk
    length: int
    text: Iterator[Positions]
    number: int
    confident: bool
    bases: Sequence[float] = ()
    done: int = 0
    candidates: int = 0
    pointed: int = 0
    blocks: int = 0
    bytes_read: dict[str, float] = field(default_factory=dict)
    block: Positions | None = None
    log_lm: NDArray[np.float64] = field(init=False)
    log_auto: NDArray[np.float64] = field(init=False)
    searched: NDArray[np.bool_] = field(init=False)
    looks: NDArray[np.float32] = field(init=False)
    tried: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self.log_lm, self.log_auto = np.empty(self.length), np.empty(self.length)
        self.searched = np.zeros(self.length, np.bool_)
        self.looks = np.zeros((self.length if self.confident else 0, 2 + NEIGHBOUR_FEATURES), np.float32)
        self.tried = np.empty((self.length, len(self.bases)))

    def read(self) -> tuple[NDArray[np.float32], int]:
        """The next position's query [d] and observed token. Raises `RequestError` for a query that is not finite."""
        if self.block is None or self.done == self.block.start + len(self.block):
            self.block = next(self.text)
            self.blocks += 1
            finite(self.block.queries)
            here = slice(self.block.start, self.block.start + len(self.block))
            self.log_lm[here] = self.block.log_prob
            if self.confident:
                self.looks[here, :2] = confidence(self.block)
        at = self.done - self.block.start
        return self.block.queries[at], int(self.block.targets[at])

    def record(self, candidates: Candidates, token: int, temperature: float) -> None:
        """Store the result of the position read last."""
        distances, values = candidates.distances[None], candidates.values[None]
        log_counts = self.walk.automaton.log_counts(candidates.counts)
        self.log_auto[self.done] = log_knn(distances, values == token, temperature, log_counts)[0]
        if self.confident:
            self.looks[self.done, 2:] = neighbour_features(distances, values, temperature, log_counts)[0]
        for number, base in enumerate(self.bases):
            weights = candidates.counts * math.log(base)
            self.tried[self.done, number] = log_knn(distances, values == token, temperature, weights)[0]
        self.searched[self.done] = candidates.searched
        self.candidates += len(candidates.ids)
        self.pointed += len(candidates.ids) - candidates.found
        self.done += 1

    def scores(self, lambda_: float | NDArray[np.float64]) -> TokenScores:
        """The answer for a lambda, one for all tokens or one each. In its series `p_auto` is 0 without candidates."""
        counters: dict[str, float] = {
            "tokens": self.length, "searches": int(self.searched.sum()), "candidates": self.candidates,
            **{f"runs_of_{size}": 0 for size in RUNS}, **self.bytes_read,
        }  # fmt: skip
        p_auto = np.exp(np.nan_to_num(self.log_auto, nan=-np.inf))
        for length in runs(~self.searched & (p_auto > 0)):
            counters[f"runs_of_{min(1 << (length.bit_length() - 1), RUNS[-1])}"] += 1
        series = {"p_auto": p_auto, "searched": self.searched}
        return TokenScores(interpolate(self.log_lm, self.log_auto, lambda_), counters, series)


def runs(mask: NDArray[np.bool_]) -> list[int]:
    """Lengths of the runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    lengths: list[int] = (edges[1::2] - edges[::2]).tolist()
    return lengths


def draws(seed: int, stream: NDArray[np.int64]) -> int:
    """The seed of a stream's random numbers. stream: without its last token where that is predicted: the probabilities
    of all last tokens after the same text then sum to 1."""
    return int(digest([seed, corpus_hash([stream])]), 16) & ((1 << 64) - 1)
