"""kNN-LM as a token-scoring method (Khandelwal et al., 2020; Eq. 2 and 3 of Alon et al., 2022)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.common.phases import NoPhases
from harness.contracts import Artifacts, LanguageModel, Phases, Shared, Streams, TokenScores, TokenScoring
from harness.contracts.metrics import Metric
from harness.contracts.ratios import Ratio
from harness.plan.registry import method
from methods.bandwidth import counted
from methods.knnlm.base import DatastoreMethod, with_neighbours
from methods.knnlm.datastore import corpus_hash
from methods.knnlm.gate import Gate, learned, neighbour_features
from methods.knnlm.mixture import interpolate, log_knn
from methods.knnlm.positions import Positions, full_batches, read, read_shared, searched, spans

Found = tuple[NDArray[np.intp], NDArray[np.float32], NDArray[np.integer]]  # places [n], distances and ids [n, k]
Choice = Callable[[int, Positions], NDArray[np.bool_]]  # of a stream's number and some of its positions [t]


GATE = "lambda-gate"  # an artifact
ROWS = 512  # positions mixed at once if their neighbours are shared

# Expected saving: the baseline's search time x the FoSS (fraction of saved searches) of the timed answers
PROMISED = {
    f"speed_baseline.{phase}{left}": sign
    for phase in ("search", "distance") for left, sign in (("", 1.0), ("*method.searches/method.tokens", -1.0))
}  # fmt: skip


@dataclass(kw_only=True)
class GatedScorer(DatastoreMethod, TokenScoring):
    """Base of kNN-LM and RetoMaton. `fit` calls `fit_gate` after `open_datastore`, `open` calls `open_gate`; `gate` is
    then what gives each token's lambda, or None where all tokens have one."""

    lambda_: Annotated[float, Field(ge=0, le=1)] | Literal["tuned", "dynamic"] = "tuned"  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.gate: Gate | None = None

    @property
    def learns(self) -> bool:
        """Whether each token's lambda is learned; the LM's confidence is asked for then."""
        return self.lambda_ == "dynamic"

    def counters(self) -> dict[str, float]:
        """No lambda if every token has its own."""
        return {name: value for name, value in super().counters().items() if name != "lambda" or not self.learns}

    @property
    def random_fit(self) -> bool:
        return self.learns or super().random_fit

    @abstractmethod
    def learn_gate(self, model: LanguageModel, validation: Streams, artifacts: Artifacts) -> Gate:
        """The gate, learned on validation streams [T] (int64 ids)."""

    def gate_key(self) -> dict[str, Any]:
        """All that determines what is learned, apart from datastore, search, temperature and validation text."""
        return {"seed": self.seed}

    def fit_gate(self, model: LanguageModel, validation: Streams, artifacts: Artifacts) -> None:
        """Learn the gate, if there is one, unless the cache has it."""
        if self.learns:
            store, temperature = self.ready()[0].store, artifacts.values["temperature"]
            text = {"datastore": store.metadata["built_from"], "validation": corpus_hash(validation)}
            key = {**text, "temperature": temperature, **self.gate_key(), **self.search_key()}
            artifacts.build(GATE, key, lambda folder: self.learn_gate(model, validation, artifacts).save(folder))

    def open_gate(self, artifacts: Artifacts) -> None:
        """Read what `fit_gate` learned."""
        if self.learns:
            self.gate = Gate.open(artifacts.path(GATE))


@method(
    "knnlm",
    contract="token-scoring",
    needs=("reference-text",),
    baseline="lm",
    summary="LM mixed with the nearest neighbours of its context in a datastore",
)
class KnnLm(GatedScorer):
    """p(w) = lambda p_kNN(w) + (1 - lambda) p_LM(w), p_kNN from softmax(-squared L2 / temperature) over k neighbours.

    foss: fraction of each stream's tokens, drawn at random by `seed`, that are left to the LM without a search. A
        higher fraction leaves out all tokens that a lower one does.
    lambda: a number, `tuned`, or `dynamic`: one for each token, predicted by a small network from the LM's confidence
        and features of the neighbours. It is trained on the validation text (the future work of Alon et al., 2022,
        section 8.1).
    batch: queries searched in one call. They are collected across windows and streams, so that batches stay full even
        if few positions are searched. The queries and results held take at most batch x (4 d + 45 k) bytes, d the width
        of the keys.
    The others: see `DatastoreOptions`.
    """

    measures = (
        *DatastoreMethod.measures,
        Metric("saved_share", "saved time / (FoSS × time of search)", "", "higher", "speed", equal=0.0),
    )

    foss: Annotated[float, Field(ge=0, le=1)] = 0.0
    batch: Annotated[int, Field(ge=1)] = 1024

    def fit(self, model: LanguageModel, reference: Streams, validation: Streams, artifacts: Artifacts) -> None:
        self.fit_datastore(model, reference, validation, artifacts)
        self.open_datastore(model, artifacts)
        self.fit_gate(model, validation, artifacts)
        self.open(model, artifacts)

    def open(self, subject: LanguageModel, artifacts: Artifacts) -> None:
        self.open_datastore(subject, artifacts)
        self.open_gate(artifacts)

    def score(
        self, model: LanguageModel, streams: Streams, phases: Phases, shared: Shared | None = None
    ) -> list[TokenScores]:
        datastore, (lambda_, temperature) = self.ready()
        text, before = Text(streams), datastore.bytes_read
        find = self._searched(model, text, phases) if shared is None else self._found_before(model, text, shared)
        for places, near, ids in find:
            with phases("interpolate"):
                agreeing = log_knn(near, datastore.hits(ids, text.targets[places]), temperature)
                weight: float | NDArray[np.float64] = lambda_
                if text.lambdas is not None:
                    weight = text.lambdas[places]
                elif self.gate is not None:
                    looks = neighbour_features(near, datastore.store.values[ids], temperature)
                    weight = self.gate(np.concatenate([text.statistics[places], looks], 1))
                text.log_probs[places] = interpolate(text.log_probs[places], agreeing, weight)
        each = (datastore.bytes_read - before) / max(int(text.wanted.sum()), 1)  # bytes of a search
        answers = []
        for (low, high), blocks in zip(text.spans, text.blocks, strict=True):
            searches = int(text.wanted[low:high].sum())
            read = counted(model, blocks, each * searches) if shared is None else {}
            answers.append(TokenScores(text.log_probs[low:high], {"tokens": high - low, "searches": searches, **read}))
        return answers

    @property
    def ratios(self) -> dict[str, Ratio]:
        """`saved_share`: the time saved over FoSS x the time of the baseline's searches. It is 1 if a search left out
        saves its whole cost. FoSS is that of the timed answers. Without FoSS there is no ratio; against a baseline that
        does not search it has no value.

        Source: Alon et al., 2022, Appendix C, Figure 14 (saved time against FoSS).
        """
        if not self.foss:
            return {}
        return {"saved_share": Ratio({"baseline": 1.0, "method": -1.0}, PROMISED, equal=0.0)}

    def choice(self, text: Text, phases: Phases) -> Choice:
        """The function that chooses the positions to search."""
        masks = [searched(stream, self.foss, self.seed) for stream in text.streams]
        return lambda number, block: masks[number][block.start : block.start + len(block)]

    def learn_gate(self, model: LanguageModel, validation: Streams, artifacts: Artifacts) -> Gate:
        """The gate of `lambda: dynamic`, learned on the validation streams."""
        datastore, (_, temperature) = self.ready()

        def looks(number: int, block: Positions, near: NDArray[Any], ids: NDArray[Any]) -> NDArray[np.float32]:
            features = neighbour_features(near, datastore.store.values[ids], temperature)
            return np.concatenate([confidence(block), features], 1)

        return self._learned(model, validation, artifacts, looks)

    def _learned(
        self, model: LanguageModel, validation: Streams, artifacts: Artifacts,
        looks: Callable[..., NDArray[np.float32]], penalty: float = 0.0,
    ) -> Gate:  # fmt: skip
        """A gate of features looks(number of the stream, positions, distances, ids) [t, f]."""
        datastore, (_, temperature) = self.ready()
        features, log_lm, agreeing = [], [], []
        for number, block, near, ids in with_neighbours(model, validation, datastore, artifacts, statistics=True):
            features.append(looks(number, block, near, ids))
            log_lm.append(block.log_prob)
            agreeing.append(log_knn(near, datastore.hits(ids, block.targets), temperature))
        parts: list[NDArray[np.floating]] = [np.concatenate(blocks) for blocks in (features, log_lm, agreeing)]
        return learned(*parts, penalty=penalty, seed=self.seed)

    def _searched(self, model: LanguageModel, text: Text, phases: Phases) -> Iterator[Found]:
        """Read the streams and search the chosen positions, batch by batch."""
        datastore, _ = self.ready()
        datastore.index.load()
        choice = self.choice(text, phases)

        def asked() -> Iterator[tuple[NDArray[np.intp], NDArray[np.float32]]]:
            for number, stream in enumerate(text.streams):
                for block in read(model, stream, self.key, phases, self.learns):
                    start, mask = text.take(number, block), choice(number, block)
                    text.wanted[start : start + len(block)] = mask
                    rows = np.flatnonzero(mask)
                    yield start + rows, block.queries[rows]

        for places, queries in full_batches(asked(), self.batch):
            yield places, *datastore.search(queries, phases)

    def _found_before(self, model: LanguageModel, text: Text, shared: Shared) -> Iterator[Found]:
        """The same from the neighbours of all positions that the cells of a quality pass share."""
        blocks = read_shared(model, text.streams, self.key, shared, self.learns)
        near, ids = self.ready()[0].search_shared(blocks, corpus_hash(text.streams), shared)
        choice = self.choice(text, NoPhases())
        for number, block in enumerate(blocks):
            start = text.take(number, block)
            text.wanted[start : start + len(block)] = choice(number, block)
        places = np.flatnonzero(text.wanted)
        for start in range(0, len(places), ROWS):
            part = places[start : start + ROWS]
            yield part, near[part], ids[part]


class Text:
    """The predicted tokens [T] of all streams, concatenated.

    targets; log_probs: of the LM, replaced by the mixture's; wanted: whether a token is searched; lambdas: of each
    token, None: one for all; statistics [T, 2]: the LM's confidence if it is needed; blocks: of each stream, those
    that the LM has predicted.
    """

    def __init__(self, streams: Streams) -> None:
        self.streams, self.spans = streams, spans(streams)
        self.targets = np.concatenate([np.empty(0, np.int64), *(stream[1:] for stream in streams)])
        self.log_probs = np.full(len(self.targets), np.nan)
        self.wanted = np.zeros(len(self.targets), np.bool_)
        self.lambdas: NDArray[np.float64] | None = None
        self.blocks = [0] * len(streams)
        self.statistics = np.zeros((len(self.targets), 2), np.float32)

    def take(self, number: int, block: Positions) -> int:
        """Store the LM's results for a block of a stream. Returns the index of its first token."""
        start = self.spans[number][0] + block.start
        self.blocks[number] += 1
        self.log_probs[start : start + len(block)] = block.log_prob
        if block.entropy is not None:
            self.statistics[start : start + len(block)] = confidence(block)
        return start


def confidence(block: Positions) -> NDArray[np.float32]:
    """Largest log-probability and entropy of the LM's distribution: [t, 2]."""
    assert block.max_log_prob is not None and block.entropy is not None
    return np.stack([block.max_log_prob, block.entropy], 1)
