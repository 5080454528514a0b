"""The automaton's states: the entries of a datastore in clusters (Alon et al., 2022, section 3.2).

| file | content |
| --- | --- |
| `members.npy` | int32 [N], entry ids by state, ascending within a state |
| `offsets.npy` | int32 [S + 1]: state s has the members offsets[s] .. offsets[s + 1] - 1 |
| `state_of.npy` | int32 [N], the state of each entry |
| `metadata.json` | what it was built from; written last |

Members and offsets are int64 from 2^31 entries on. Below that, an entry takes 8 bytes and a state 4, so at most 12
bytes per entry.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray
from pydantic import Field

from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.contracts import Artifacts
from methods.knnlm.datastore import Datastore
from methods.nearest.faiss_index import build_index, opened_faiss
from methods.nearest.index import IndexOptions
from methods.nearest.opening import needs_build, open_index

Clustering = Literal["kmeans", "greedy", "none"]
ARTIFACT = "automaton-states"
ENTRIES_A_STATE = 100  # on average, by default (Alon et al., 2022, section 4)
TRAINED_ON = 40  # training entries of k-means per cluster
ITERATIONS = 10  # of k-means
_ROWS = 1 << 14  # entries assigned at once
_SEARCHED = 1 << 10  # entries whose neighbours are searched at once
_APPROXIMATE = 20_000  # above this many entries greedy merging searches an approximate index


@dataclass(kw_only=True)
class StateOptions:
    """Clustering of entries into states.

    clustering: `kmeans` over the keys; `greedy`, one pass in which an entry takes in those of its nearest neighbours
    that have its value and no state yet (He et al., 2021); `none`, each entry is a state. clusters: of `kmeans`; 0: one
    per hundred entries. merged: neighbours that `greedy` considers per entry.
    """

    clustering: Clustering = "kmeans"
    clusters: Annotated[int, Field(ge=0)] = 0
    merged: Annotated[int, Field(ge=1)] = 16

    def clustering_key(self, seed: int) -> dict[str, Any]:
        """The options that the result depends on."""
        used: dict[Clustering, dict[str, Any]] = {
            "kmeans": {"clusters": self.clusters, "seed": seed}, "greedy": {"merged": self.merged, "seed": seed},
            "none": {},
        }  # fmt: skip
        return {"clustering": self.clustering, **used[self.clustering]}


@dataclass(frozen=True, slots=True)
class States:
    """Opened states, memory-mapped, read-only."""

    members: NDArray[np.integer]
    offsets: NDArray[np.integer]
    state_of: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def bytes(self) -> int:
        """Size of the arrays."""
        return self.members.nbytes + self.offsets.nbytes + self.state_of.nbytes

    @classmethod
    def of(cls, state_of: NDArray[np.integer]) -> States:
        """From the state of each entry. States are renumbered in the order of their first entries."""
        _, first, inverse = np.unique(state_of, return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.int32)
        rank[np.argsort(first, kind="stable")] = np.arange(len(first), dtype=np.int32)
        numbers = rank[inverse.reshape(-1)]
        width: Any = np.int32 if len(numbers) < 1 << 31 else np.int64
        members = np.argsort(numbers, kind="stable").astype(width)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=len(first)))]).astype(width)
        return cls(members, offsets, numbers)

    def save(self, folder: Path, built_from: Mapping[str, Any]) -> None:
        """Write the files, the metadata last."""
        for name in ("members", "offsets", "state_of"):
            np.save(folder / f"{name}.npy", getattr(self, name))
        new = folder / "metadata.new"
        new.write_text(json.dumps({"built_from": dict(built_from), "states": len(self), "entries": len(self.state_of)}))
        new.replace(folder / "metadata.json")

    @classmethod
    def open(cls, folder: Path, store: Datastore) -> States:
        """Memory-map what `save` wrote. Raises `RequestError` if it is another datastore's, and if files are missing or
        differ in length."""
        try:
            metadata = json.loads((folder / "metadata.json").read_text())
            built = metadata["built_from"].get("datastore")
            found = cls(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in cls.__slots__))
            if len(found.members) != len(found.state_of) or found.offsets[-1] != len(found.members):
                raise ValueError("files of different lengths")
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise RequestError(
                f"{folder} holds no complete clustering ({error}); delete it and build it again"
            ) from error
        if built != store.metadata["built_from"] or len(found.state_of) != store.entries:
            raise RequestError(
                f"{folder}: the clustering was built on another datastore ({len(found.state_of)} entries of {built}) "
                f"than this run's ({store.entries} entries of {store.metadata['built_from']}); build one for this run"
            )
        return found


def build_states(artifacts: Artifacts, store: Datastore, options: StateOptions, seed: int) -> None:
    """Build the artifact `automaton-states` of a datastore. Raises `RequestError` for more clusters than entries."""
    if options.clustering == "kmeans" and options.clusters > store.entries:
        raise RequestError(
            f"clusters = {options.clusters} is more than the {store.entries} entries of the datastore: give less"
        )
    key = {"datastore": store.metadata["built_from"], **options.clustering_key(seed)}

    def fill(folder: Path) -> None:
        made = {"kmeans": _kmeans, "greedy": _greedy, "none": _alone}[options.clustering](store, options, seed, folder)
        States.of(made).save(folder, key)

    artifacts.build(ARTIFACT, key, fill)


def _alone(store: Datastore, options: StateOptions, seed: int, folder: Path) -> NDArray[np.int32]:
    return np.arange(store.entries, dtype=np.int32)


def _kmeans(store: Datastore, options: StateOptions, seed: int, folder: Path) -> NDArray[np.int32]:
    """Lloyd's algorithm by faiss over a sample of the keys; then every entry is assigned to its nearest centre."""
    faiss = opened_faiss()
    clusters = options.clusters or max(1, store.entries // ENTRIES_A_STATE)
    rng, progress = np.random.default_rng(seed), Progress()
    size = min(store.entries, TRAINED_ON * clusters)
    sample = store.keys[np.sort(rng.choice(store.entries, size, replace=False))].astype(np.float32)
    progress.update("clustering", 0, store.entries, "entries", f"{clusters:,} centres from {size:,} keys")
    means = faiss.Kmeans(
        store.keys.shape[1], clusters, niter=ITERATIONS, seed=seed, min_points_per_centroid=1,
        max_points_per_centroid=TRAINED_ON,
    )  # fmt: skip
    means.train(sample)
    found = np.empty(store.entries, np.int32)
    for start in range(0, store.entries, _ROWS):
        part = store.keys[start : start + _ROWS].astype(np.float32)
        found[start : start + len(part)] = means.index.search(part, 1)[1][:, 0]
        progress.update("clustering", start + len(part), store.entries, "entries")
    return found


def _greedy(store: Datastore, options: StateOptions, seed: int, folder: Path) -> NDArray[np.int32]:
    """One pass over the entries in text order."""
    found, progress = np.full(store.entries, -1, np.int32), Progress()
    with TemporaryDirectory(dir=folder) as place:
        wanted = IndexOptions(index="ivf-sq8" if store.entries > _APPROXIMATE else "flat", seed=seed, nprobe=16)
        if needs_build(wanted):
            build_index(Path(place), store, wanted)
        index = open_index(store, wanted, Path(place) if needs_build(wanted) else None)
        for start in range(0, store.entries, _SEARCHED):
            queries = store.keys[start : start + _SEARCHED].astype(np.float32)
            _, near = index.search(queries, options.merged + 1)  # an entry is a neighbour of itself
            merge(found, near, start, store.values)
            progress.update("merging neighbours", start + len(queries), store.entries, "entries")
    return found


@njit(nogil=True, cache=True)
def merge(found, near, start, values):  # type: ignore[no-untyped-def]
    """Assign states to entries start .. start + len(near) - 1, in this order, and to the neighbours that they take in.
    found: int32 [N], the state of each entry, -1 for none yet; near: int64 [n, k]; values: int32 [N]."""
    for row in range(len(near)):
        entry = start + row
        if found[entry] < 0:
            found[entry] = entry
            for other in near[row]:
                if other >= 0 and found[other] < 0 and values[other] == values[entry]:
                    found[other] = entry
