"""Share of a text's n-grams that occur in the reference text (Alon et al., 2022, Figures 12 and 13)."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.common import statistics
from harness.common.errors import CellFailedError
from harness.common.progress import Progress
from harness.contracts import Artifacts, Streams
from harness.contracts.metrics import Metric
from harness.contracts.tasks import Measure, TokenScoringSetting
from harness.plan.registry import analysis
from methods.knnlm.ngrams import ngram_hashes


@analysis("ngram-overlap", summary="share of a text's n-grams that occur in the reference text")
class NgramOverlap:
    """n: tokens of an n-gram. part: of the held-out text. N-grams are compared by 64-bit hashes."""

    measures = (
        Metric("overlap", "share of occurrences in the reference text", better="higher"),
        Metric("overlap_types", "share of different n-grams in the reference text", better="higher"),
        Metric("ngrams", "n-grams", kind="counter"),
    )

    n: Annotated[int, Field(ge=1)] = 3
    part: Literal["validation", "evaluation"] = "validation"

    def __call__(self, setting: TokenScoringSetting, artifacts: Artifacts, progress: Progress) -> dict[str, Measure]:
        """For the held-out text: `overlap` of all occurrences, `overlap_types` of distinct n-grams, and the number of
        occurrences `ngrams`. Raises `CellFailedError` if the text has no n-gram."""
        known = np.unique(_of(setting.reference, self.n))
        asked = _of(getattr(setting, self.part), self.n)
        if not len(asked):
            raise CellFailedError(f"the {self.part} text has no {self.n}-gram; give a smaller n")
        types = np.unique(asked)
        every, different = (np.isin(some, known).astype(np.float64) for some in (asked, types))
        return {
            "overlap": Measure.of(every.mean(), statistics.share_interval(every)),
            "overlap_types": Measure.of(different.mean(), statistics.share_interval(different)),
            "ngrams": Measure.of(len(asked), None),
        }


def _of(streams: Streams, n: int) -> NDArray[np.uint64]:
    """Hashes of the n-grams of the streams, without each stream's first token, which is given."""
    return np.concatenate([np.empty(0, np.uint64), *(ngram_hashes(stream[1:], n) for stream in streams)])
