"""Small real softmax layers: contexts gather around states, each state makes a few words likely (Zipfian)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from harness.common.cache import Cache, CellArtifacts
from harness.contracts import OutputLayer
from harness.plan.registry import Registry

RIVALS = [
    "spherical-kmeans", "svd-softmax", "fgd", "adaptive-softmax", "greedy-mips", "pca-mips", "lsh-mips", "two-sided",
    "flashhead", "shortlist", "quantized", "pq",
]  # fmt: skip
# parameters that make every method exact on `World.layer`: its knob at the accurate end
EXACT = {
    "exact": {},
    "l2s": {"clusters": 8, "budget": 500, "rounds": 1, "batches": 5},
    "spherical-kmeans": {"clusters": 8, "budget": 500},
    "svd-softmax": {"width": 32, "refined": 500},
    "fgd": {"ef_search": 500, "neighbours": 20},
    "adaptive-softmax": {"head": 498},
    "greedy-mips": {"budget": 500},
    "pca-mips": {"depth": 1},
    "lsh-mips": {"bits": 1, "tables": 12},
    "two-sided": {"row_probes": 20},
    "flashhead": {"row_probes": 20},
    "shortlist": {"common": 500},
    "quantized": {"refined": 500},
    "pq": {"refined": 500},
}


@dataclass
class World:
    """A layer [500, 32], training contexts with targets, and test contexts of the same source."""

    layer: OutputLayer
    contexts: np.ndarray
    targets: np.ndarray
    test: np.ndarray


def make_world(seed: int = 0, words: int = 500, dimension: int = 32, states: int = 24, train: int = 3000) -> World:
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((states, dimension))
    weight = 0.1 * rng.standard_normal((words, dimension))
    for centre in centres:
        likely = np.unique((words * rng.power(0.4, 20)).astype(int))
        weight[likely] += 0.4 * rng.uniform(0.3, 1, (len(likely), 1)) * centre
    bias = -0.5 * np.log(np.arange(1, words + 1))

    def draw(n: int) -> np.ndarray:
        chosen = centres[rng.integers(0, states, n)]
        return np.tanh(chosen + 0.3 * rng.standard_normal((n, dimension))).astype(np.float32)

    contexts = draw(train)
    layer = OutputLayer(weight.astype(np.float32), bias.astype(np.float32))
    noisy = contexts @ layer.weight.T + layer.bias + rng.gumbel(size=(train, words))
    return World(layer, contexts, noisy.argmax(axis=1), draw(300))


@pytest.fixture(scope="session")
def world() -> World:
    return make_world()


@pytest.fixture
def artifacts(tmp_path: Path) -> CellArtifacts:
    return CellArtifacts(Cache(tmp_path / "cache"))


def fitted(name: str, world: World, artifacts: CellArtifacts, **parameters):
    """A method fitted in one object and opened in another, as in two processes."""
    target = Registry().resolve("method", name)
    target(**parameters).fit(world.layer, world.contexts, world.targets, artifacts)
    method = target(**parameters)
    method.open(world.layer, CellArtifacts(artifacts.cache, **artifacts.manifest()))
    return method


def brute_force(layer: OutputLayer, contexts: np.ndarray, k: int) -> np.ndarray:
    """The exact top-k by a full sort in float64, independent of the code under test."""
    logits = contexts.astype(np.float64) @ layer.weight.T.astype(np.float64) + layer.bias
    return np.argsort(-logits, axis=1)[:, :k]


def precision(found: np.ndarray, exact: np.ndarray) -> float:
    return float((found[:, :, None] == exact[:, None, :]).any(axis=2).mean())
