"""A small network that predicts lambda of Eq. 3, the weight of the neighbours, for each token.

AdaptRet (He et al., 2021) uses it before a search and skips the searches with the lowest lambda. `lambda: dynamic` uses
it after the search, with features of the neighbours. It is trained on validation text, which the datastore does not
hold. A tenth of the text is held out, and the weights with the lowest loss there are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.common.errors import RequestError
from methods.knnlm.mixture import log_weights
from methods.knnlm.tuning import LARGEST_LAMBDA

WIDTH, LAYERS, DROPOUT = 128, 3, 0.2
STEPS, BATCH = 3000, 1024
_HELD_OUT = 10  # every tenth run of tokens
_RUN = 64  # tokens of a run: neighbouring tokens are alike, so whole runs are held out
NEIGHBOUR_FEATURES = 7
_SOME = 2000  # fewest tokens to learn from


@dataclass(frozen=True, slots=True)
class Gate:
    """Matrices [in, out] and biases [out] of the layers. Features are first scaled to mean 0 and variance 1. held_out:
    lambdas of the held-out tokens, sorted."""

    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]
    matrices: Sequence[NDArray[np.float32]]
    biases: Sequence[NDArray[np.float32]]
    held_out: NDArray[np.float64]

    def __call__(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        """Lambda [n] of features [n, f]."""
        x = (features.astype(np.float32) - self.mean) / self.deviation
        for number, (matrix, bias) in enumerate(zip(self.matrices, self.biases, strict=True)):
            x = x @ matrix + bias
            if number < len(self.matrices) - 1:
                x = np.maximum(x, 0)
        result: NDArray[np.float64] = LARGEST_LAMBDA / (1 + np.exp(-x[:, 0].astype(np.float64)))
        return result

    def save(self, folder: Path) -> None:
        """Write `gate.npz`."""
        layers: dict[str, Any] = {f"matrix{n}": matrix for n, matrix in enumerate(self.matrices)}
        layers |= {f"bias{n}": bias for n, bias in enumerate(self.biases)}
        np.savez(folder / "gate.npz", mean=self.mean, deviation=self.deviation, held_out=self.held_out, **layers)

    @classmethod
    def open(cls, folder: Path) -> Gate:
        """Read what `save` wrote."""
        with np.load(folder / "gate.npz") as file:
            count = sum(name.startswith("matrix") for name in file)
            return cls(
                file["mean"], file["deviation"], [file[f"matrix{n}"] for n in range(count)],
                [file[f"bias{n}"] for n in range(count)], file["held_out"],
            )  # fmt: skip


def learned(
    features: NDArray[np.floating], log_lm: NDArray[np.floating], log_knn: NDArray[np.floating], *,
    penalty: float = 0.0, seed: int = 0,
) -> Gate:  # fmt: skip
    """The gate that minimises -log(lambda p_kNN + (1 - lambda) p_LM) + penalty x lambda over tokens with features
    [n, f], log p_LM [n] and log p_kNN [n] (NaN where there is no neighbour).

    Raises `RequestError` for too few tokens.
    """
    import torch

    from harness.common.training.loop import Plan, train, warmup_cosine

    if len(features) < _SOME:
        raise RequestError(
            f"{len(features)} tokens of validation text are too few to learn lambda on; give {_SOME} or more"
        )
    held_out = np.arange(len(features)) // _RUN % _HELD_OUT == 0
    mean, deviation = features[~held_out].mean(0), features[~held_out].std(0) + 1e-6
    inputs = torch.from_numpy(((features - mean) / deviation).astype(np.float32))
    # both probabilities times one factor, to fit float32: the loss changes by a constant
    both = np.stack([log_lm, np.where(np.isnan(log_knn), log_lm, log_knn)], 1).astype(np.float64)
    chances = torch.from_numpy(np.exp(both - both.max(1, keepdims=True)).astype(np.float32))
    own, other = (torch.from_numpy(np.flatnonzero(mask)) for mask in (~held_out, held_out))
    rng = np.random.default_rng(seed)
    order = torch.from_numpy(rng.integers(0, len(own), (STEPS, min(BATCH, len(own)))))

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _network(features.shape[1])

    def loss(module: Any, rows: torch.Tensor) -> torch.Tensor:
        weight = LARGEST_LAMBDA * torch.sigmoid(module(inputs[rows])[:, 0])
        lm, knn = chances[rows].unbind(1)
        return (penalty * weight - torch.log(weight * knn + (1 - weight) * lm + 1e-30)).mean()

    best: list[Any] = [float("inf"), None]

    @torch.no_grad()
    def evaluate(module: Any) -> float:
        value = float(loss(module, other))
        if value < best[0]:
            best[:] = value, deepcopy(module.state_dict())
        return value

    plan = Plan(
        steps=STEPS, schedule=warmup_cosine(STEPS, STEPS // 20), seed=seed, evaluate_every=STEPS // 30,
        stage="learning lambda",
    )  # fmt: skip
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.01)
    train(network, loss, lambda step: own[order[step]], optimizer, plan, evaluate=evaluate)
    network.load_state_dict(best[1])
    layers = [part for part in network if isinstance(part, torch.nn.Linear)]
    gate = Gate(
        mean.astype(np.float32), deviation.astype(np.float32),
        [layer.weight.detach().numpy().T.copy() for layer in layers],
        [layer.bias.detach().numpy().copy() for layer in layers], np.empty(0),
    )  # fmt: skip
    return Gate(gate.mean, gate.deviation, gate.matrices, gate.biases, np.sort(gate(features[held_out])))


def _network(inputs: int) -> Any:
    import torch

    parts: list[Any] = []
    for number in range(LAYERS):
        parts += [torch.nn.Linear(inputs if number == 0 else WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Dropout(DROPOUT)]
    return torch.nn.Sequential(*parts, torch.nn.Linear(WIDTH, 1))


def neighbour_features(
    distances: NDArray[np.floating],
    values: NDArray[np.integer],
    temperature: float,
    log_counts: NDArray[np.floating] | float = 0.0,
) -> NDArray[np.float32]:
    """Features [n, 7] of neighbours with distances [n, k] (`inf` for none) and values [n, k], whatever the target
    (log_counts: see `log_weights`):

    - 1 if there is a neighbour, else 0
    - log(1 + distance of the nearest / temperature)
    - log(1 + (mean distance - distance of the nearest) / temperature)
    - entropy of the weights
    - total weight of the neighbours with the nearest one's value
    - largest weight
    - log(1 + number of neighbours)
    """
    if distances.shape[1] == 0:
        return np.zeros((len(distances), NEIGHBOUR_FEATURES), np.float32)
    real = np.isfinite(distances)
    some = real.any(1)
    weights = np.exp(np.nan_to_num(log_weights(distances, temperature, log_counts), nan=-np.inf))
    first = distances.argmin(1)[:, None]
    nearest = np.where(some, np.take_along_axis(distances, first, 1)[:, 0], 0.0)
    mean = np.where(real, distances, 0.0).sum(1) / np.maximum(real.sum(1), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.nansum(np.where(weights > 0, weights * np.log(weights), 0.0), 1)
    agreeing = (weights * (values == np.take_along_axis(values, first, 1))).sum(1)
    columns = [
        some, np.log1p(nearest / temperature), np.log1p(np.maximum(mean - nearest, 0) / temperature), entropy, agreeing,
        weights.max(1), np.log1p(real.sum(1)),
    ]  # fmt: skip
    return np.stack(columns, 1).astype(np.float32)
