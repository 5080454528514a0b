"""LSH-MIPS (Neyshabur and Srebro, 2015): Simple-LSH, signs of random projections after the reduction to a sphere.

Words become points of equal length (`reduction`). The query [h; 1; 0] needs no scaling because only signs count. Each
table hashes with `bits` random planes. Words in the query's bucket of any table are scored exactly.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.contracts import OutputLayer
from harness.plan.registry import method
from methods.softmax import reduction
from methods.softmax.candidates import SavedSearch
from methods.softmax.kernels import compiled

MOST_BITS = 20  # a table holds 2^bits bucket starts


@method(
    "lsh-mips",
    contract="softmax-screening",
    baseline="exact",
    summary="buckets of sign random projections (Neyshabur and Srebro, 2015)",
)
class LshMips(SavedSearch):
    """Knobs: `bits` a table (fewer: larger buckets) and `tables`. Errors as for `CandidateSearch`."""

    name = "lsh-mips"

    bits: Annotated[int, Field(ge=1, le=MOST_BITS)] = 8
    tables: Annotated[int, Field(ge=1)] = 16
    seed: Annotated[int, Field(ge=0)] = 0

    @property
    def random_fit(self) -> bool:
        return True

    def _made(self, layer: OutputLayer) -> dict[str, NDArray[Any]]:
        shape = self.tables * self.bits, layer.weight.shape[1] + 2
        planes = np.random.default_rng(self.seed).standard_normal(shape, dtype=np.float32)
        return {**hashed(reduction.points(layer), planes, self.bits), "planes": planes}

    def _key(self) -> dict[str, Any]:
        return {"bits": self.bits, "tables": self.tables, "seed": self.seed}

    def _scratch_of(self, words: int, dimension: int) -> None:
        # the query's last component is 0: only d + 1 columns of the planes are read
        self._planes = np.ascontiguousarray(self._saved["planes"][:, :-1])
        self._query = np.ones(dimension + 1, np.float32)
        self._seen, self._turn = np.zeros(words, np.int64), 0

    def _find(self, context: NDArray[np.float32]) -> int:
        self._query[:-1] = context
        self._turn += 1
        count: int = collect(
            self._planes @ self._query, self.bits, self._saved["starts"], self._saved["members"], self._seen,
            self._turn, self._ids,
        )  # fmt: skip
        return count

    def counters(self) -> dict[str, float]:
        return self._counted(self._planes.size)


def hashed(points: NDArray[np.float32], planes: NDArray[np.float32], bits: int) -> dict[str, NDArray[np.int32]]:
    """Bucket c of table t holds `members`[t, starts[t, c] : starts[t, c + 1]]; int32, tables x (2^bits + 1) and x L."""
    signs = (points @ planes.T >= 0).reshape(len(points), -1, bits)
    codes = signs @ (1 << np.arange(bits))  # [L, tables]
    starts = [np.concatenate([[0], np.cumsum(np.bincount(c, minlength=2**bits))]) for c in codes.T]
    members = np.argsort(codes, axis=0, kind="stable").T
    return {"starts": np.asarray(starts, np.int32), "members": np.ascontiguousarray(members, np.int32)}


@compiled
def collect(projected, bits, starts, members, seen, turn, out_ids):  # type: ignore[no-untyped-def]
    """Distinct words of the query's bucket in every table, into out_ids int32; `seen` as in `merge`."""
    count = 0
    for table in range(len(starts)):
        code = 0
        for bit in range(bits):
            if projected[table * bits + bit] >= 0:
                code |= 1 << bit
        for i in range(starts[table, code], starts[table, code + 1]):
            word = members[table, i]
            if seen[word] != turn:
                seen[word] = turn
                out_ids[count] = word
                count += 1
    return count
