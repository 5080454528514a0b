"""Candidates from both sides of a large layer, and the two sides alone: FlashHead and a shortlist of words.

The sides miss different words: clusters of contexts know what follows, clusters of rows reach what no training text
had. Recipe `heads-layer` measures both sides, their union and rivals on a layer of 262,144 words.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.contracts import Artifacts, OutputLayer
from harness.plan.registry import method
from methods.softmax import arrays
from methods.softmax.candidates import SAMPLE, CandidateSearch, costs, size
from methods.softmax.inputs import checked_layer, checked_training
from methods.softmax.labels import training_labels
from methods.softmax.screening import LABELS
from methods.softmax.sides import Side, context_side, row_side


@dataclass(kw_only=True)
class RowClusters:
    """cluster_words: mean number of words of a cluster of rows. row_probes: clusters of rows whose words are scored."""

    cluster_words: Annotated[int, Field(ge=1)] = 32
    row_probes: Annotated[int, Field(ge=0)] = 64


@dataclass(kw_only=True)
class ContextClusters:
    """clusters: of contexts. probes: clusters of contexts whose words are scored."""

    clusters: Annotated[int, Field(ge=1)] = 100
    probes: Annotated[int, Field(ge=0)] = 4


@dataclass(kw_only=True)
class CommonWords:
    """common: the words most often in the top-5 of training contexts, scored in every call."""

    common: Annotated[int, Field(ge=0)] = 4000


class UnionScreen(CandidateSearch):
    """Scores the union of the words that its options name. Fewer than k words are filled up with the next common ones.

    Centres are int8: a call reads d + 8 bytes for each cluster of both sides, and 4 d + 4 for each candidate.
    """

    row_probes = probes = common = seed = 0  # where an option is not a parameter
    cluster_words = clusters = 1
    even: ClassVar[bool] = False  # whether clusters of rows have at most `cluster_words` words

    @property
    def random_fit(self) -> bool:
        return True

    def fit(
        self, layer: OutputLayer, contexts: NDArray[np.float32], targets: NDArray[np.int64], artifacts: Artifacts
    ) -> None:
        """Raises `RequestError` for fewer usable contexts than clusters, or inputs that `inputs` refuses."""
        layer = checked_layer(layer)
        clusters = self.clusters if self.probes else 1
        contexts, _ = checked_training(layer, contexts, targets, clusters, f"clusters={clusters}")
        labels, data = training_labels(layer, contexts, min(LABELS, len(layer.weight)), artifacts)

        def frequency(folder: Path) -> None:
            often = np.bincount(labels.ravel(), minlength=len(layer.weight))
            arrays.save(folder, {"words": np.argsort(-often, kind="stable").astype(np.int32)})

        artifacts.build("common-words", data, frequency)
        if self.row_probes:
            row_side(layer, self.cluster_words, self.even, self.seed, artifacts)
        if self.probes:
            context_side(contexts, labels, clusters, self.seed, data, artifacts)
        self.open(layer, artifacts)
        artifacts.values["found"] = self._mean_found(contexts[:SAMPLE])

    def open(self, subject: OutputLayer, artifacts: Artifacts) -> None:
        from numba import get_num_threads

        from methods.decoding.engine.kernels import multiply
        from methods.softmax.kernels import join

        layer = checked_layer(subject)
        words, dimension = layer.weight.shape
        frequent = arrays.load(artifacts.path("common-words"))["words"]
        self._prepare(layer, frequent)
        self._sides: list[tuple[Side, int]] = []
        for name, probes in (("row-clusters", "row_probes"), ("context-clusters", "probes")):
            if count := getattr(self, probes):
                side = Side.load(artifacts.path(name))
                self._sides.append((side, min(count, len(side.centres))))
        self._common = frequent[: self.common]
        self._marks, self._turn = np.zeros(words, np.int64), 0
        self._multiply, self._join, self._threads = multiply, join, get_num_threads()
        self._values = artifacts.values
        self.topk(np.zeros(dimension, np.float32), 1)

    def _find(self, context: NDArray[np.float32]) -> int:
        self._turn += 1
        ids, marks, turn = self._ids, self._marks, self._turn
        count = len(self._common)
        ids[:count], marks[self._common] = self._common, turn
        for side, probes in self._sides:
            scores = np.empty(len(side.centres), np.float32)
            parts = (side.centres, side.scales, side.offsets, context[None], False, scores[None])
            self._multiply(*parts, self._threads)
            probed = np.argpartition(scores, len(scores) - probes)[len(scores) - probes :]
            count = self._join(side.starts, side.members, probed, ids, count, marks, turn)
        return int(count)

    def counters(self) -> dict[str, float]:
        """Centres cost a multiply-add and a byte for each of their numbers."""
        dimension = self._layer.weight.shape[1]
        centres = sum(len(side.centres) for side, _ in self._sides)
        found = float(self._values.get("found", 0.0))
        held = [getattr(side, name) for side, _ in self._sides for name in side.__slots__]
        read = (dimension + 8) * centres + 4 * found * (dimension + 1)
        return costs(dimension * (centres + found), found, size([*held, self._frequent]), read)


@method(
    "two-sided", contract="softmax-screening", baseline="exact",
    summary="candidates from clusters of contexts, clusters of the layer's rows, and common words",
)  # fmt: skip
class TwoSided(RowClusters, ContextClusters, CommonWords, UnionScreen):
    """Knobs: `row_probes`, `probes`, `common`. Errors as for `UnionScreen`."""

    common: Annotated[int, Field(ge=0)] = 0
    seed: Annotated[int, Field(ge=0)] = 0


@method(
    "flashhead", contract="softmax-screening", baseline="exact",
    summary="balanced clusters of the layer's rows, several probes (FlashHead, 2026)",
)  # fmt: skip
class FlashHead(RowClusters, UnionScreen):
    """Written from its paper (arXiv 2603.14591). Knob: `row_probes`. Errors as for `UnionScreen`."""

    even: ClassVar[bool] = True

    row_probes: Annotated[int, Field(ge=1)] = 64
    seed: Annotated[int, Field(ge=0)] = 0


@method(
    "shortlist", contract="softmax-screening", baseline="exact",
    summary="the words most often in the top-5 of training contexts",
)  # fmt: skip
class Shortlist(CommonWords, UnionScreen):
    """One candidate set for all contexts, as FR-Spec (Zhao et al., 2025) drafts with. Knob: `common`."""

    common: Annotated[int, Field(ge=1)] = 4000

    @property
    def random_fit(self) -> bool:
        return False
