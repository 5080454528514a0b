"""kNN-LM as a token-scoring method (Khandelwal et al., 2020; Eq. 2 and 3 of Alon et al., 2022)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from harness.contracts import Artifacts, LanguageModel, Phases, Shared, TokenScores, TokenScoring
from harness.contracts.metrics import Metric
from harness.contracts.ratios import Ratio
from harness.plan.registry import method
from methods.knnlm.base import DatastoreMethod
from methods.knnlm.datastore import corpus_hash
from methods.knnlm.mixture import interpolate, log_knn
from methods.knnlm.positions import full_batches, read, read_shared, searched, spans

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Found = tuple[NDArray[np.intp], NDArray[np.float32], NDArray[np.integer]]  # places [n], distances and ids [n, k]

ROWS = 512  # positions mixed at once whose neighbours were found before


@method(
    "knnlm",
    contract="token-scoring",
    needs=("reference-text",),
    baseline="lm",
    summary="LM mixed with the nearest neighbours of its context in a datastore",
)
@dataclass(kw_only=True)
class KnnLm(DatastoreMethod, TokenScoring):
    """p(w) = lambda p_kNN(w) + (1 - lambda) p_LM(w), p_kNN from softmax(-squared L2 / temperature) over k neighbours.

    foss: fraction of each stream's tokens, drawn at random by `seed`, that are left to the LM without a search; the
        tokens left out at a higher fraction include those at a lower one.
    batch: queries searched in one call. They are collected across windows and streams until there are so many, that a
        search costs as much per query with few positions searched as with all; what is held meanwhile is at most
        batch x (4 d + 45 k) bytes, d the width of the keys.
    The others: see `DatastoreOptions`.
    """

    measures = (
        *DatastoreMethod.measures,
        Metric("saved_share", "saved time / (FoSS × time of search)", "", "higher", "speed", equal=0.0),
    )

    foss: Annotated[float, Field(ge=0, le=1)] = 0.0
    batch: Annotated[int, Field(ge=1)] = 1024

    def fit(
        self,
        model: LanguageModel,
        reference: Sequence[NDArray[np.int64]],
        validation: Sequence[NDArray[np.int64]],
        artifacts: Artifacts,
    ) -> None:
        self.fit_datastore(model, reference, validation, artifacts)
        self.open(model, artifacts)

    def open(self, subject: LanguageModel, artifacts: Artifacts) -> None:
        self.open_datastore(subject, artifacts)

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
