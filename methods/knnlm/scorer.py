"""kNN-LM as a token-scoring method (Khandelwal et al., 2020; Eq. 2 and 3 of Alon et al., 2022)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from harness.contracts import Artifacts, LanguageModel, Phases, Shared, TokenScores, TokenScoring
from harness.contracts.metrics import Metric
from harness.contracts.ratios import Ratio
from harness.errors import RequestError
from harness.measure.phases import NoPhases
from harness.plan.registry import method
from harness.progress import Progress
from methods.knnlm.datastore import corpus_hash
from methods.knnlm.mixture import interpolate, log_knn
from methods.knnlm.positions import full_batches, read, read_shared, searched, spans
from methods.knnlm.search import DatastoreOptions, DatastoreSearch, build_search, open_search
from methods.knnlm.tuning import tune

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Found = tuple[NDArray[np.intp], NDArray[np.float32], NDArray[np.integer]]  # places [n], distances and ids [n, k]

ROWS = 512  # positions mixed at once whose neighbours were found before
COUNTERS = (
    Metric("k", kind="counter"),
    Metric("lambda", kind="counter"),
    Metric("temperature", kind="counter"),
    Metric("entries", kind="counter"),
    Metric("datastore_bytes", "datastore", "bytes", "lower", "memory"),
    Metric("index_bytes", "index", "bytes", "lower", "memory"),
)


@method(
    "knnlm",
    contract="token-scoring",
    needs=("reference-text",),
    baseline="lm",
    summary="LM mixed with the nearest neighbours of its context in a datastore",
)
@dataclass(kw_only=True)
class KnnLm(DatastoreOptions, TokenScoring):
    """p(w) = lambda p_kNN(w) + (1 - lambda) p_LM(w), p_kNN from softmax(-squared L2 / temperature) over k neighbours.

    foss: fraction of each stream's tokens, drawn at random by `seed`, that are left to the LM without a search; the
        tokens left out at a higher fraction include those at a lower one.
    batch: queries searched in one call. They are collected across windows and streams until there are so many, that a
        search costs as much per query with few positions searched as with all; what is held meanwhile is at most
        batch x (4 d + 45 k) bytes, d the width of the keys.
    The others: see `DatastoreOptions`.
    """

    measures = (
        *COUNTERS,
        Metric("saved_share", "saved time / (FoSS × time of search)", "", "higher", "speed", equal=0.0),
    )

    foss: Annotated[float, Field(ge=0, le=1)] = 0.0
    batch: Annotated[int, Field(ge=1)] = 1024

    def __post_init__(self) -> None:
        self.opened: DatastoreSearch | None = None
        self._weights: tuple[float, float] | None = None  # lambda, temperature

    def fit(
        self,
        model: LanguageModel,
        reference: Sequence[NDArray[np.int64]],
        validation: Sequence[NDArray[np.int64]],
        artifacts: Artifacts,
    ) -> None:
        """Build datastore and index, and tune on the validation streams what is to be tuned. What another cell has
        built or tuned from the same data with the same parameters is not built or tuned again."""
        key = build_search(model, reference, artifacts, self)
        values = {"lambda": self.lambda_, "temperature": self.temperature}
        if "tuned" in values.values():
            parts = {"validation": corpus_hash(validation), "datastore": key, **self.search_key(), **values}

            def search_and_tune(folder: Path) -> None:
                tuned = self._tune(model, validation, self._opened(model, artifacts))
                (folder / "tuned.json").write_text(json.dumps(tuned))

            folder = artifacts.build("knnlm-tuned", parts, search_and_tune)
            values = json.loads((folder / "tuned.json").read_text())
        artifacts.values.update(values)
        self.open(model, artifacts)

    def open(self, subject: LanguageModel, artifacts: Artifacts) -> None:
        """Map datastore and index. Exact search reads its keys when it is first used, which a quality pass with shared
        neighbours never does; a timed pass does so in its warm-up, outside all phases."""
        self.opened = self._opened(subject, artifacts)
        self._weights = float(artifacts.values["lambda"]), float(artifacts.values["temperature"])

    def score(
        self,
        model: LanguageModel,
        streams: Sequence[NDArray[np.int64]],
        phases: Phases,
        shared: Shared | None = None,
    ) -> list[TokenScores]:
        datastore, (lambda_, temperature) = self.ready()
        masks = [searched(stream, self.foss, self.seed) for stream in streams]
        wanted = np.concatenate([np.empty(0, np.bool_), *masks])
        targets = np.concatenate([np.empty(0, np.int64), *(stream[1:] for stream in streams)])
        log_probs = np.full(len(wanted), np.nan)  # log p_LM, where no neighbours are mixed in (Eq. 3)
        if shared is None:
            found = self._searched(model, streams, wanted, log_probs, phases)
        else:
            found = self._found_before(model, streams, wanted, log_probs, shared)
        for places, near, ids in found:
            with phases("interpolate"):
                agreeing = log_knn(near, datastore.hits(ids, targets[places]), temperature)
                log_probs[places] = interpolate(log_probs[places], agreeing, lambda_)
        return [
            TokenScores(log_probs[low:high], {"tokens": high - low, "searches": int(mask.sum())})
            for mask, (low, high) in zip(masks, spans(streams), strict=True)
        ]

    def counters(self) -> dict[str, float]:
        """Entries, bytes on disk and in memory, neighbours (fewer where the datastore holds fewer than asked for), and
        the weights in use, tuned or given."""
        datastore, (lambda_, temperature) = self.ready()
        return {
            "k": min(self.k, datastore.store.entries),
            "entries": datastore.store.entries,
            "datastore_bytes": datastore.store.bytes,
            "index_bytes": datastore.index.bytes,
            "lambda": lambda_,
            "temperature": temperature,
        }

    @property
    def ratios(self) -> dict[str, Ratio]:
        """`saved_share`: the time saved over FoSS x the time of the baseline's searches, 1 where each search left out
        saves all that it costs. None without FoSS; no value against a baseline that does not search.

        Source: Alon et al., 2022, Appendix C, Figure 14 (saved time against FoSS).
        """
        if not self.foss:
            return {}
        searching = {f"speed_baseline.{phase}": self.foss for phase in ("search", "distance")}
        return {"saved_share": Ratio({"baseline": 1.0, "method": -1.0}, searching, equal=0.0)}

    def _searched(
        self,
        model: LanguageModel,
        streams: Sequence[NDArray[np.int64]],
        wanted: NDArray[np.bool_],
        log_probs: NDArray[np.float64],
        phases: Phases,
    ) -> Iterator[Found]:
        """Read the streams, filling in log p_LM [T], and search what is wanted [T], batch by batch."""
        datastore, _ = self.ready()
        datastore.index.load()

        def asked() -> Iterator[tuple[NDArray[np.intp], NDArray[np.float32]]]:
            for stream, (low, _) in zip(streams, spans(streams), strict=True):
                for block in read(model, stream, self.key, phases):
                    start = low + block.start
                    log_probs[start : start + len(block)] = block.log_prob
                    rows = np.flatnonzero(wanted[start : start + len(block)])
                    yield start + rows, block.queries[rows]

        for places, queries in full_batches(asked(), self.batch):
            yield places, *datastore.search(queries, phases)

    def _found_before(
        self,
        model: LanguageModel,
        streams: Sequence[NDArray[np.int64]],
        wanted: NDArray[np.bool_],
        log_probs: NDArray[np.float64],
        shared: Shared,
    ) -> Iterator[Found]:
        """The same from what the cells of a quality pass share, where all positions are searched."""
        texts = read_shared(model, streams, self.key, shared)
        near, ids = self.ready()[0].search_shared(texts, corpus_hash(streams), shared)
        for text, (low, high) in zip(texts, spans(streams), strict=True):
            log_probs[low:high] = text.log_prob
        places = np.flatnonzero(wanted)
        for start in range(0, len(places), ROWS):
            part = places[start : start + ROWS]
            yield part, near[part], ids[part]

    def _tune(
        self, model: LanguageModel, validation: Sequence[NDArray[np.int64]], datastore: DatastoreSearch
    ) -> dict[str, float]:
        total = sum(max(len(stream) - 1, 0) for stream in validation)
        if not total:
            raise RequestError("knnlm: no validation text to tune lambda and temperature on; give both as numbers")
        log_lm, distances, hits = [], [], []
        progress, phases, done = Progress(), NoPhases(), 0
        for stream in validation:
            for block in read(model, stream, self.key, phases):
                near, ids = datastore.search(block.queries, phases)
                log_lm.append(block.log_prob)
                distances.append(near)
                hits.append(datastore.hits(ids, block.targets))
                done += len(block)
                progress.update("neighbours of validation text", done, total, "tokens")
        tuned = tune(
            np.concatenate(log_lm),
            np.concatenate(distances),
            np.concatenate(hits),
            lambda_=None if self.lambda_ == "tuned" else self.lambda_,
            temperature=None if self.temperature == "tuned" else self.temperature,
        )
        return {
            "lambda": tuned.lambda_,
            "temperature": tuned.temperature,
            "validation_perplexity": float(np.exp(tuned.loss)),
            "validation_lm_perplexity": float(np.exp(tuned.lm_loss)),
        }

    def _opened(self, model: LanguageModel, artifacts: Artifacts) -> DatastoreSearch:
        if self.opened is None or self.opened.store.folder != artifacts.path("datastore"):
            self.opened = open_search(model, artifacts, self)  # `fit` and `open` in one process load the keys once
        return self.opened

    def ready(self) -> tuple[DatastoreSearch, tuple[float, float]]:
        """What is searched, and lambda and temperature in use. Raises `RuntimeError` before `fit` or `open`."""
        if self.opened is None or self._weights is None:
            raise RuntimeError("knnlm answers after fit or open")
        return self.opened, self._weights
