"""How each contract is driven: fit a method, ask it, and compare its answers with its baseline's.

Everything that is the same for all tasks of a contract is here, so that a task stays data + model + metric. A driver's
`essence` is the part of the answers that fidelity needs, as arrays: it is what cells share and what is kept on disk.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness import statistics
from harness.artifacts import default_cache
from harness.contracts import Artifacts, Decoded, Phases, Shared, TokenScores, TopK
from harness.errors import RequestError
from harness.phases import NoPhases
from harness.settings import Context, Measure, Scale

if TYPE_CHECKING:
    from numpy.typing import NDArray

NEAR_TIE = 1e-4  # gap of the two best logits within which kernels that round differently may choose differently
LONGEST_SERIES = 1000  # points of a series that goes along tokens or steps; one value per item is never thinned
PROBABILITY = "log_prob_"  # begins the names of counters of `log_prob`
Essence = dict[str, "NDArray[Any]"]


def context(scale: Scale, device: str, seed: int, cache: Path | None = None) -> Context:
    """Where a task runs, with the data folders of $HARNESS_DATA (several separated by the path separator)."""
    roots = tuple(Path(p).expanduser() for p in os.environ.get("HARNESS_DATA", "").split(os.pathsep) if p)
    return Context(scale=scale, device=device, seed=seed, data=roots, cache=cache or default_cache())


class Driver(ABC):
    """One contract's way from a method and a setting to answers and fidelity."""

    @abstractmethod
    def subject(self, setting: Any) -> Any:
        """The model or layer that `open` gets."""

    @abstractmethod
    def fit(self, method: Any, setting: Any, artifacts: Artifacts) -> None:
        """Fit a method on the setting's training material."""

    @abstractmethod
    def answer(self, method: Any, setting: Any, items: Any, phases: Phases, shared: Shared | None = None) -> Any:
        """Answers to items: `setting.evaluation` in the quality pass, `setting.timed` in the timed one."""

    def timed(self, method: Any, setting: Any, phases: Phases) -> Any:
        """The call that is timed: the work of the quality pass on the timed items."""
        return self.answer(method, setting, setting.timed, phases)

    @abstractmethod
    def essence(self, answers: Any) -> Essence:
        """What fidelity needs of the answers."""

    @abstractmethod
    def fidelity(self, method: Essence, baseline: Essence) -> dict[str, Measure]:
        """How close the method's answers are to the baseline's."""

    def differences(self, method: Any, setting: Any, ours: Essence, theirs: Essence) -> dict[str, Measure]:
        """What the answers that differ from the baseline's are, where the method can tell."""
        return {}

    def counters(self, answers: Any) -> dict[str, float]:
        """Totals of the answers' deterministic counters."""
        return {}

    def costs(self, method: Any, setting: Any) -> dict[str, float]:
        """The fitted method's own counters, of the call that is timed."""
        return dict(method.counters())

    def timing_counters(self, answers: Any) -> dict[str, float]:
        """Totals of the counters that depend on timing by design; they never gate."""
        return {}

    def series(self, answers: Any) -> dict[str, list[float]]:
        """Figures of each item, or along the items, by name."""
        return {}


class TokenScoringDriver(Driver):
    """Perplexity difference in perplexity points, method minus baseline, on the same tokens."""

    def subject(self, setting: Any) -> Any:
        return setting.model

    def fit(self, method: Any, setting: Any, artifacts: Artifacts) -> None:
        method.fit(setting.model, setting.reference, setting.validation, artifacts)

    def answer(
        self, method: Any, setting: Any, items: Any, phases: Phases, shared: Shared | None = None
    ) -> list[TokenScores]:
        answers: list[TokenScores] = method.score(setting.model, items, phases, shared)
        for scores, stream in zip(answers, items, strict=True):
            if len(scores.log_probs) != len(stream) - 1:
                raise RequestError(
                    f"{type(method).__name__} scored {len(scores.log_probs)} of {len(stream) - 1} tokens of a stream"
                )
        return answers

    def essence(self, answers: Sequence[TokenScores]) -> Essence:
        return {"log_probs": np.concatenate([a.log_probs for a in answers])}

    def fidelity(self, method: Essence, baseline: Essence) -> dict[str, Measure]:
        ours, theirs = method["log_probs"], baseline["log_probs"]
        interval = statistics.block_bootstrap([ours, theirs], lambda a, b: np.exp(-a) - np.exp(-b))
        low, high = interval or (None, None)
        return {"perplexity_difference": Measure(float(np.exp(-ours.mean()) - np.exp(-theirs.mean())), low, high)}

    def counters(self, answers: Sequence[TokenScores]) -> dict[str, float]:
        totals = _totals([a.counters for a in answers])
        if totals.get("tokens") and "searches" in totals:
            totals["foss"] = 1 - totals["searches"] / totals["tokens"]
        return totals

    def series(self, answers: Sequence[TokenScores]) -> dict[str, list[float]]:
        names = dict.fromkeys(name for a in answers for name in a.series)
        return {name: _thinned([float(v) for a in answers for v in a.series.get(name, ())]) for name in names}


class SoftmaxDriver(Driver):
    """precision@1 and precision@k: the share of the exact top-k among the method's, averaged over contexts."""

    def subject(self, setting: Any) -> Any:
        return setting.layer

    def fit(self, method: Any, setting: Any, artifacts: Artifacts) -> None:
        method.fit(setting.layer, setting.contexts, setting.targets, artifacts)

    def answer(self, method: Any, setting: Any, items: Any, phases: Phases, shared: Shared | None = None) -> list[TopK]:
        k, size = setting.k, setting.batch
        if size == 1:
            return [method.topk(context, k) for context in items]
        batches = (method.topk_many(items[start : start + size], k) for start in range(0, len(items), size))
        return [
            TopK(ids, logits, float(normalizer))
            for batch in batches
            for ids, logits, normalizer in zip(batch.ids, batch.logits, batch.log_normalizer, strict=True)
        ]

    def timed(self, method: Any, setting: Any, phases: Phases) -> Any:
        """Probabilities where the setting gives words to ask for, else the top-k; no record is made of each answer."""
        k, size = setting.k, setting.batch
        if setting.timed_targets is not None:
            return [method.log_prob(c, t) for c, t in zip(setting.timed, setting.timed_targets.tolist(), strict=True)]
        if size == 1:
            return [method.topk(context, k) for context in setting.timed]
        starts = range(0, len(setting.timed), size)
        return [method.topk_many(setting.timed[start : start + size], k) for start in starts]

    def costs(self, method: Any, setting: Any) -> dict[str, float]:
        """Where `log_prob` is timed, a counter called `log_prob_x` takes the place of the top-k's `x`."""
        counters: dict[str, float] = method.counters()
        plain = {name: value for name, value in counters.items() if not name.startswith(PROBABILITY)}
        if setting.timed_targets is None:
            return plain
        return plain | {n.removeprefix(PROBABILITY): v for n, v in counters.items() if n not in plain}

    def essence(self, answers: Sequence[TopK]) -> Essence:
        return {"ids": np.stack([a.ids for a in answers])}

    def fidelity(self, method: Essence, baseline: Essence) -> dict[str, Measure]:
        ours, theirs = method["ids"], baseline["ids"]
        result = {}
        for k in sorted({1, ours.shape[1]}):
            found = (ours[:, :k, None] == theirs[:, None, :k]).any(axis=2).mean(axis=1)
            low, high = statistics.mean_interval(found) or (None, None)
            result[f"precision_at_{k}"] = Measure(float(found.mean()), low, high)
        return result


class DecodingDriver(Driver):
    """Share of outputs that equal the baseline's token for token; sources are decoded in the setting's batches."""

    def subject(self, setting: Any) -> Any:
        return setting.model

    def fit(self, method: Any, setting: Any, artifacts: Artifacts) -> None:
        method.fit(setting.model, setting.training, artifacts)

    def answer(
        self, method: Any, setting: Any, items: Any, phases: Phases, shared: Shared | None = None
    ) -> list[Decoded]:
        batches = (items[start : start + setting.batch] for start in range(0, len(items), setting.batch))
        return [d for batch in batches for d in method.decode(setting.model, batch, setting.limit, phases)]

    def essence(self, answers: Sequence[Decoded]) -> Essence:
        ids = [np.asarray(a.ids, np.int64) for a in answers]
        flat = np.concatenate(ids) if ids else np.empty(0, np.int64)
        return {"ids": flat, "offsets": np.cumsum([0, *map(len, ids)])}

    def fidelity(self, method: Essence, baseline: Essence) -> dict[str, Measure]:
        same = np.asarray([np.array_equal(a, b) for a, b in zip(_split(method), _split(baseline), strict=True)], float)
        low, high = statistics.mean_interval(same) or (None, None)
        return {"exact_match": Measure(float(same.mean()), low, high)}

    def differences(self, method: Any, setting: Any, ours: Essence, theirs: Essence) -> dict[str, Measure]:
        """`differing` outputs, the `widest_gap` of logits at which one begins to differ, and `wide_differences`: those
        that no near tie explains. Exact counts, so their intervals are points."""
        gaps = []
        for source, output, expected in zip(setting.evaluation, _split(ours), _split(theirs), strict=True):
            if not np.array_equal(output, expected):
                gap = method.gap(setting.model, source, output.tolist(), expected.tolist())
                if gap is None:
                    return {}
                gaps.append(gap)
        found = {
            "differing": float(len(gaps)),
            "widest_gap": max(gaps, default=0.0),
            "wide_differences": float(sum(gap > NEAR_TIE for gap in gaps)),
        }
        return {name: Measure(value, value, value) for name, value in found.items()}

    def counters(self, answers: Sequence[Decoded]) -> dict[str, float]:
        totals = _totals([a.trace.counters for a in answers])
        tokens, iterations = sum(len(a.ids) for a in answers), sum(a.trace.iterations for a in answers)
        totals.update(tokens=tokens, iterations=iterations)
        if iterations:
            totals["accepted_tokens"] = tokens / iterations
        return totals

    def timing_counters(self, answers: Sequence[Decoded]) -> dict[str, float]:
        return _totals([a.trace.timing_counters for a in answers])

    def series(self, answers: Sequence[Decoded]) -> dict[str, list[float]]:
        names = dict.fromkeys(name for a in answers for name in a.trace.series)
        along = {name: _thinned([v for a in answers for v in a.trace.series.get(name, ())]) for name in names}
        items = {"tokens": [len(a.ids) for a in answers], "iterations": [a.trace.iterations for a in answers]}
        return {**{name: [float(v) for v in values] for name, values in items.items()}, **along}


class RetrievalDriver(DecodingDriver):
    """As for sequence decoding, one prompt at a time."""

    def fit(self, method: Any, setting: Any, artifacts: Artifacts) -> None:
        method.fit(setting.model, setting.knowledge, setting.validation, artifacts)

    def answer(
        self, method: Any, setting: Any, items: Any, phases: Phases, shared: Shared | None = None
    ) -> list[Decoded]:
        return [method.generate(setting.model, prompt, setting.limit, phases) for prompt in items]


DRIVERS: dict[str, Driver] = {
    "token-scoring": TokenScoringDriver(),
    "softmax-screening": SoftmaxDriver(),
    "sequence-decoding": DecodingDriver(),
    "retrieval-generation": RetrievalDriver(),
}


def quality(driver: Driver, method: Any, setting: Any, shared: Shared | None) -> Any:
    """Answers to the whole evaluation set, with the results that cells share."""
    return driver.answer(method, setting, setting.evaluation, NoPhases(), shared)


def _thinned(values: list[float]) -> list[float]:
    """A long series as the means of equal stretches."""
    if len(values) <= LONGEST_SERIES:
        return values
    return [float(part.mean()) for part in np.array_split(np.asarray(values), LONGEST_SERIES)]


def _split(essence: Essence) -> list[NDArray[Any]]:
    return np.split(essence["ids"], essence["offsets"][1:-1])


def _totals(counters: Sequence[dict[str, float]]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for one in counters:
        for name, value in one.items():
            totals[name] = totals.get(name, 0.0) + value
    return totals
