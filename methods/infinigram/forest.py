"""Lambda for each token, by a random forest (Liu et al., 2024, section 5.4)."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.common.errors import RequestError
from methods.infinigram.mixing import LARGEST, mixture

TREES, LEAF = 30, 200  # trees, and fewest tokens of a leaf
_GRID = np.linspace(0.0, LARGEST, 28)  # candidate lambdas


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees that group tokens, and the lambda of each leaf. A token's lambda is the mean over its leaves."""

    trees: Any
    lambdas: list[NDArray[np.float64]]

    @classmethod
    def learned(
        cls, features: NDArray[np.float64], lm: NDArray[np.float64], infinigram: NDArray[np.float64], seed: int
    ) -> Forest:
        """Trees are trained to separate tokens for which p_inf [T] is better from those for which p_LM [T] is. A leaf's
        lambda minimises -log of the mixture over its tokens. features: [T, f].

        Raises `RequestError` for too few tokens.
        """
        from sklearn.ensemble import RandomForestClassifier

        if len(features) < 2 * LEAF:
            raise RequestError(
                f"{len(features)} tokens of validation text are too few to learn lambda on; give {2 * LEAF} or more"
            )
        trees = RandomForestClassifier(TREES, min_samples_leaf=LEAF, random_state=seed)
        trees.fit(features, infinigram > lm)
        losses = np.stack([-np.log(mixture(lm, infinigram, value)) for value in _GRID], 1)
        lambdas = []
        for leaves, tree in zip(trees.apply(features).T, trees.estimators_, strict=True):
            total = np.zeros((tree.tree_.node_count, len(_GRID)))
            np.add.at(total, leaves, losses)
            lambdas.append(_GRID[total.argmin(1)])
        return cls(trees, lambdas)

    def __call__(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Lambda [T] of features [T, f]."""
        if not len(features):
            return np.empty(0)
        leaves = self.trees.apply(features)
        weights: NDArray[np.float64] = np.mean([of[at] for of, at in zip(self.lambdas, leaves.T, strict=True)], axis=0)
        return weights

    def save(self, folder: Path) -> None:
        """Write `forest.pickle`."""
        (folder / "forest.pickle").write_bytes(pickle.dumps((self.trees, self.lambdas)))

    @classmethod
    def open(cls, folder: Path) -> Forest:
        """Read what `save` wrote."""
        return cls(*pickle.loads((folder / "forest.pickle").read_bytes()))
