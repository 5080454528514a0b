"""The base of all methods on a datastore, whatever their contract: building, tuning and opening."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from harness.common.cache import SharedResults
from harness.common.errors import RequestError
from harness.contracts import Artifacts, LanguageModel, Streams
from harness.contracts.metrics import Metric
from methods.knnlm.datastore import corpus_hash
from methods.knnlm.positions import Positions, read_shared, spans
from methods.knnlm.search import ROWS, DatastoreOptions, DatastoreSearch, build_search, open_search
from methods.knnlm.tuning import tune


@dataclass(kw_only=True)
class DatastoreMethod(DatastoreOptions):
    """Base of methods that mix a language model with entries of a datastore. `fit` calls `fit_datastore`, `open` calls
    `open_datastore`; `ready` then gives the search and the weights."""

    measures: ClassVar[tuple[Metric, ...]] = (
        Metric("k", kind="counter"),
        Metric("lambda", kind="counter"),
        Metric("temperature", kind="counter"),
        Metric("entries", kind="counter"),
        Metric("datastore_bytes", "datastore", "bytes", "lower", "memory"),
        Metric("bytes_per_token", "bytes a token", "bytes", "lower", "memory"),
    )

    def __post_init__(self) -> None:
        self.opened: DatastoreSearch | None = None
        self._weights: tuple[float, float] | None = None  # lambda, temperature

    def fit_datastore(
        self, model: LanguageModel, reference: Streams, validation: Streams, artifacts: Artifacts
    ) -> None:
        """Build datastore and index, and tune lambda and temperature on the validation streams if they are `tuned`.
        Results of another cell with the same data and parameters are reused."""
        key = build_search(model, reference, artifacts, self)
        values: dict[str, Any] = {"lambda": self.lambda_, "temperature": self.temperature}
        if values["lambda"] == "dynamic":  # learning uses the temperature tuned for one lambda
            values["lambda"] = "tuned"
        if "tuned" in values.values():
            parts = {"validation": corpus_hash(validation), "datastore": key, **self.search_key(), **values}
            search = self._opened(model, artifacts)

            def search_and_tune(folder: Path) -> None:  # does not use `self`, so that all methods share the result
                (folder / "tuned.json").write_text(json.dumps(_tuned(model, validation, search, artifacts)))

            folder = artifacts.build("knnlm-tuned", parts, search_and_tune)
            values = json.loads((folder / "tuned.json").read_text())
        artifacts.values.update(values)

    def open_datastore(self, model: LanguageModel, artifacts: Artifacts) -> None:
        """Memory-map datastore and index. Exact search reads its keys at its first use: never in a quality pass with
        shared neighbours, and in the warm-up of a timed pass, outside all phases."""
        self.opened = self._opened(model, artifacts)
        self._weights = float(artifacts.values["lambda"]), float(artifacts.values["temperature"])

    def ready(self) -> tuple[DatastoreSearch, tuple[float, float]]:
        """The search and the (lambda, temperature) in use. Raises `RuntimeError` before `open_datastore`."""
        if self.opened is None or self._weights is None:
            raise RuntimeError(f"{type(self).__name__} answers after fit or open")
        return self.opened, self._weights

    def counters(self) -> dict[str, float]:
        """Entries, bytes on disk and in memory, neighbours (at most the number of entries), and the weights in use,
        tuned or given."""
        datastore, (lambda_, temperature) = self.ready()
        store, index = datastore.store, datastore.index
        return {
            "k": min(self.k, store.entries),
            "entries": store.entries,
            "datastore_bytes": store.bytes,
            "index_bytes": index.bytes,
            "bytes_per_token": (store.bytes + index.bytes) / store.entries,
            "lambda": lambda_,
            "temperature": temperature,
        }

    def _opened(self, model: LanguageModel, artifacts: Artifacts) -> DatastoreSearch:
        if self.opened is None or self.opened.store.folder != artifacts.path("datastore"):
            self.opened = open_search(model, artifacts, self)  # `fit` and `open` in one process load the keys once
        return self.opened


def with_neighbours(
    model: LanguageModel, validation: Streams, search: DatastoreSearch, artifacts: Artifacts, statistics: bool = False
) -> Iterator[tuple[int, Positions, NDArray[np.float32], NDArray[np.integer]]]:
    """(stream number, positions, distances [t, k], ids [t, k]) of validation streams, block by block. The first fit
    searches the neighbours; others reuse them. Raises `RequestError` if there is no token."""
    if not any(len(stream) > 1 for stream in validation):
        raise RequestError("no validation text to tune lambda and temperature on; give both as numbers")
    shared = SharedResults(artifacts)
    texts = read_shared(model, validation, search.options.key, shared, statistics)
    near, ids = search.search_shared(texts, corpus_hash(validation), shared)
    for number, (text, (low, high)) in enumerate(zip(texts, spans(validation), strict=True)):
        for start in range(low, high, ROWS):
            part = slice(start, min(start + ROWS, high))
            yield number, text[part.start - low : part.stop - low], near[part], ids[part]


def _tuned(
    model: LanguageModel, validation: Streams, search: DatastoreSearch, artifacts: Artifacts
) -> dict[str, float]:
    """The best weights for the validation streams, and the perplexities there."""
    log_lm, distances, hits, options = [], [], [], search.options
    for _, block, near, ids in with_neighbours(model, validation, search, artifacts):
        log_lm.append(block.log_prob)
        distances.append(near)
        hits.append(search.hits(ids, block.targets))
    tuned = tune(
        np.concatenate(log_lm),
        np.concatenate(distances),
        np.concatenate(hits),
        lambda_=None if isinstance(options.lambda_, str) else options.lambda_,
        temperature=None if isinstance(options.temperature, str) else options.temperature,
    )
    return {
        "lambda": tuned.lambda_,
        "temperature": tuned.temperature,
        "validation_perplexity": float(np.exp(tuned.loss)),
        "validation_lm_perplexity": float(np.exp(tuned.lm_loss)),
    }
