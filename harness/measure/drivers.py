"""How each contract is driven: fit a method, ask it, and compare its answers with its baseline's.

Everything that is the same for all tasks of a contract is here, so that a task stays data + model + metric. A driver's
`essence` is the part of the answers that fidelity needs, as arrays: it is what cells share and what is kept on disk.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from harness.contracts import Artifacts, Decoded, Phases, Shared, TokenScores, TopK
from harness.contracts.answers import NEAR_TIE
from harness.contracts.ratios import Ratio
from harness.contracts.tasks import Context, Measure, Scale
from harness.errors import RequestError
from harness.files import default_cache
from harness.measure import statistics
from harness.measure.phases import NoPhases
from harness.measure.refusals import counted, named, possible, probable

if TYPE_CHECKING:
    from numpy.typing import NDArray

LONGEST_SERIES = 1000  # points of a series that goes along tokens or steps; one value per item is never thinned
PROBABILITY = "log_prob_"  # begins the names of counters of `log_prob`
Essence = dict[str, "NDArray[Any]"]


@dataclass(frozen=True, slots=True)
class Demand:
    """A fidelity that is demanded: `metric` is at most, or at least, `bound`."""

    metric: str
    is_: Literal["at most", "at least"]
    bound: float


def context(scale: Scale, device: str, seed: int, cache: Path | None = None) -> Context:
    """Where a task runs, with the data folders of $HARNESS_DATA (several separated by the path separator)."""
    roots = tuple(Path(p).expanduser() for p in os.environ.get("HARNESS_DATA", "").split(os.pathsep) if p)
    return Context(scale=scale, device=device, seed=seed, data=roots, cache=cache or default_cache())


class Driver(ABC):
    """One contract's way from a method and a setting to answers and fidelity.

    demands: the fidelity that a claim about speed needs where a recipe states none; the first whose metric is measured
    counts. ratios: metrics of the timed calls beside the speedup. consecutive: a timed pass holds neighbours of the
    pool, because in use they follow each other.
    """

    demands: ClassVar[tuple[Demand, ...]]
    ratios: ClassVar[Mapping[str, Ratio]] = {}
    consecutive: ClassVar[bool] = False

    @abstractmethod
    def subject(self, setting: Any) -> Any:
        """The model or layer that `open` gets."""

    @abstractmethod
    def fit(self, method: Any, setting: Any, artifacts: Artifacts, needs: Sequence[str] = ()) -> None:
        """Fit a method on the setting's training material. needs: what the method's decorator names."""

    @abstractmethod
    def answer(self, method: Any, setting: Any, items: Any, phases: Phases, shared: Shared | None = None) -> Any:
        """Sound answers to items, those of `setting.evaluation` in the quality pass.

        Raises `RequestError` naming the method where an answer cannot be: a wrong count, a number that is not finite, a
        probability above 1, an id outside the vocabulary.
        """

    def inputs(self, setting: Any, items: NDArray[np.int64]) -> Sequence[Any]:
        """What each timed call gets, for these numbers of `setting.timed`."""
        return [[setting.timed[i]] for i in items.tolist()]

    def asker(self, method: Any, setting: Any, phases: Phases) -> Callable[[Any], Any]:
        """The call that is timed, of one input: the work of the quality pass."""
        return lambda items: self.answer(method, setting, items, phases)

    def gathered(self, method: Any, setting: Any, items: NDArray[np.int64], calls: Sequence[Any]) -> Any:
        """The timed calls' answers to these items as `answer` gives them, and as sound."""
        return [answer for call in calls for answer in call]

    @abstractmethod
    def essence(self, answers: Any) -> Essence:
        """What fidelity needs of the answers."""

    @abstractmethod
    def joined(self, parts: Sequence[Essence]) -> Essence:
        """The essence of the answers of several processes, in order."""

    @abstractmethod
    def fidelity(self, method: Essence, baseline: Essence) -> dict[str, Measure]:
        """How close the method's answers are to the baseline's."""

    def differences(
        self, method: Any, setting: Any, items: Sequence[Any], ours: Essence, theirs: Essence
    ) -> dict[str, Measure]:
        """What the answers to these items that differ from the baseline's are, where the method can tell: counts."""
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
    """Perplexity difference in perplexity points, method minus baseline, on the same tokens. One call scores all
    streams of a timed pass, so that a method's batches are as full as in use."""

    demands = (Demand("perplexity_difference", "at most", 0.5),)

    def subject(self, setting: Any) -> Any:
        return setting.model

    def fit(self, method: Any, setting: Any, artifacts: Artifacts, needs: Sequence[str] = ()) -> None:
        method.fit(setting.model, setting.reference, setting.validation, artifacts)

    def answer(
        self, method: Any, setting: Any, items: Any, phases: Phases, shared: Shared | None = None
    ) -> list[TokenScores]:
        answers: list[TokenScores] = method.score(setting.model, items, phases, shared)
        counted(method, len(answers), len(items), "streams")
        for scores, stream in zip(answers, items, strict=True):
            counted(method, len(scores.log_probs), len(stream) - 1, "tokens of a stream")
            probable(method, scores.log_probs)
        return answers

    def inputs(self, setting: Any, items: NDArray[np.int64]) -> Sequence[Any]:
        return [[setting.timed[i] for i in items.tolist()]]

    def essence(self, answers: Sequence[TokenScores]) -> Essence:
        return {"log_probs": np.concatenate([a.log_probs for a in answers])}

    def joined(self, parts: Sequence[Essence]) -> Essence:
        return {"log_probs": np.concatenate([part["log_probs"] for part in parts])}

    def fidelity(self, method: Essence, baseline: Essence) -> dict[str, Measure]:
        ours, theirs = method["log_probs"], baseline["log_probs"]
        block = min(256, max(1, len(ours) // 20))  # the timed calls score few tokens
        interval = statistics.block_bootstrap([ours, theirs], lambda a, b: np.exp(-a) - np.exp(-b), block)
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
    """precision@1 and precision@k: the share of the exact top-k among the method's, averaged over contexts; a word that
    the method gives twice counts once. Where the probability of given words is timed, `perplexity_ratio`: the method's
    perplexity of these words over the exact one.
    """

    demands = (Demand("precision_at_1", "at least", 0.95), Demand("perplexity_ratio", "at most", 1.1))
    consecutive = True

    def subject(self, setting: Any) -> Any:
        return setting.layer

    def fit(self, method: Any, setting: Any, artifacts: Artifacts, needs: Sequence[str] = ()) -> None:
        method.fit(setting.layer, setting.contexts, setting.targets, artifacts)

    def answer(self, method: Any, setting: Any, items: Any, phases: Phases, shared: Shared | None = None) -> list[TopK]:
        ask = self._topk(method, setting)
        size = setting.batch
        calls = [ask(context) for context in items] if size == 1 else [ask(part) for part in _batches(items, size)]
        return self._sound(method, setting, len(items), calls)

    def inputs(self, setting: Any, items: NDArray[np.int64]) -> Sequence[Any]:
        contexts = np.array(setting.timed[items])
        if setting.timed_targets is not None:
            return list(zip(contexts, setting.timed_targets[items].tolist(), strict=True))
        return list(contexts) if setting.batch == 1 else _batches(contexts, setting.batch)

    def asker(self, method: Any, setting: Any, phases: Phases) -> Callable[[Any], Any]:
        """Probabilities where the setting gives words to ask for, else the top-k; no record is made of each answer."""
        if setting.timed_targets is not None:
            log_prob = method.log_prob
            return lambda pair: log_prob(*pair)
        return self._topk(method, setting)

    def gathered(self, method: Any, setting: Any, items: NDArray[np.int64], calls: Sequence[Any]) -> Any:
        if setting.timed_targets is not None:
            probable(method, np.asarray(calls, np.float64), impossible=True)
            return list(calls)
        return self._sound(method, setting, len(items), calls)

    def _topk(self, method: Any, setting: Any) -> Callable[[Any], TopK]:
        k, topk = setting.k, method.topk if setting.batch == 1 else method.topk_many
        return lambda contexts: topk(contexts, k)

    def _sound(self, method: Any, setting: Any, items: int, calls: Sequence[TopK]) -> list[TopK]:
        """One answer for each context, looked over together."""
        single = setting.batch == 1
        for one in calls:
            counted(method, np.shape(one.ids)[-1], setting.k, "words asked for")
            if np.shape(one.logits) != np.shape(one.ids):
                raise RequestError(f"{named(method)} gives {np.size(one.logits)} logits for {np.size(one.ids)} words")
        ids = np.stack([a.ids for a in calls]) if single else np.concatenate([a.ids for a in calls])
        logits = np.stack([a.logits for a in calls]) if single else np.concatenate([a.logits for a in calls])
        counted(method, ids.shape[0], items, "contexts")
        if ids.min() < 0 or ids.max() >= len(setting.layer.weight):
            raise RequestError(f"{named(method)} answers a word outside of 0 to {len(setting.layer.weight) - 1}")
        if not np.isfinite(logits).all():
            raise RequestError(f"{named(method)} gives a logit that is not finite")
        if single:
            return list(calls)
        rows = [zip(a.ids, a.logits, a.log_normalizer, strict=True) for a in calls]
        return [TopK(i, logit, float(total)) for part in rows for i, logit, total in part]

    def costs(self, method: Any, setting: Any) -> dict[str, float]:
        """Where `log_prob` is timed, a counter called `log_prob_x` takes the place of the top-k's `x`."""
        counters: dict[str, float] = method.counters()
        plain = {name: value for name, value in counters.items() if not name.startswith(PROBABILITY)}
        if setting.timed_targets is None:
            return plain
        return plain | {n.removeprefix(PROBABILITY): v for n, v in counters.items() if n not in plain}

    def essence(self, answers: Sequence[TopK] | Sequence[float]) -> Essence:
        if isinstance(answers[0], TopK):
            return {"ids": np.stack([a.ids for a in answers])}  # type: ignore[union-attr]
        return {"log_probs": np.asarray(answers, np.float64)}

    def joined(self, parts: Sequence[Essence]) -> Essence:
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def fidelity(self, method: Essence, baseline: Essence) -> dict[str, Measure]:
        if "log_probs" in method:
            columns = [method["log_probs"], baseline["log_probs"]]
            finite = all(np.isfinite(column).all() for column in columns)  # a word may have no probability at all
            block = min(256, max(1, len(columns[0]) // 20))
            interval = (
                statistics.block_bootstrap(columns, lambda ours, theirs: np.exp(theirs - ours), block)
                if finite
                else None
            )
            value = float(np.exp(columns[1].mean() - columns[0].mean()))
            return {"perplexity_ratio": Measure(value, *(interval or (None, None)))}
        ours, theirs = method["ids"], baseline["ids"]
        result = {}
        for k in sorted({1, ours.shape[1]}):
            found = (theirs[:, :k, None] == ours[:, None, :k]).any(axis=2).mean(axis=1)
            low, high = statistics.share_interval(found) or (None, None)
            result[f"precision_at_{k}"] = Measure(float(found.mean()), low, high)
        return result


class DecodingDriver(Driver):
    """Share of outputs that equal the baseline's token for token; sources are decoded in the setting's batches."""

    demands = (Demand("exact_match", "at least", 0.98),)

    def subject(self, setting: Any) -> Any:
        return setting.model

    def fit(self, method: Any, setting: Any, artifacts: Artifacts, needs: Sequence[str] = ()) -> None:
        asked = {"reference-text": setting.reference, "training-pairs": setting.training}
        given = {need: make() for need, make in asked.items() if need in needs and make is not None}
        if missing := [need for need in asked if need in needs and need not in given]:
            raise RequestError(f"{named(method)} needs {' and '.join(missing)}, which the task's setting does not hold")
        method.fit(setting.model, given.get("reference-text", ()), given.get("training-pairs", ()), artifacts)

    def answer(
        self, method: Any, setting: Any, items: Any, phases: Phases, shared: Shared | None = None
    ) -> list[Decoded]:
        return [d for batch in _batches(items, setting.batch) for d in self._batch(method, setting, batch, phases)]

    def _batch(self, method: Any, setting: Any, batch: Any, phases: Phases) -> list[Decoded]:
        answers: list[Decoded] = method.decode(setting.model, batch, setting.limit, phases)
        counted(method, len(answers), len(batch), "sources")
        return [possible(method, setting, answer) for answer in answers]

    def inputs(self, setting: Any, items: NDArray[np.int64]) -> Sequence[Any]:
        return _batches([setting.timed[i] for i in items.tolist()], getattr(setting, "batch", 1))

    def essence(self, answers: Sequence[Decoded]) -> Essence:
        ids = [np.asarray(a.ids, np.int64) for a in answers]
        flat = np.concatenate(ids) if ids else np.empty(0, np.int64)
        return {"ids": flat, "offsets": np.cumsum([0, *map(len, ids)])}

    def joined(self, parts: Sequence[Essence]) -> Essence:
        lengths = np.concatenate([np.diff(part["offsets"]) for part in parts])
        return {"ids": np.concatenate([part["ids"] for part in parts]), "offsets": np.cumsum([0, *lengths])}

    def fidelity(self, method: Essence, baseline: Essence) -> dict[str, Measure]:
        same = np.asarray([np.array_equal(a, b) for a, b in zip(_split(method), _split(baseline), strict=True)], float)
        low, high = statistics.share_interval(same) or (None, None)
        return {"exact_match": Measure(float(same.mean()), low, high)}

    def differences(
        self, method: Any, setting: Any, items: Sequence[Any], ours: Essence, theirs: Essence
    ) -> dict[str, Measure]:
        """`differing` outputs, the `widest_gap` of logits at which one begins to differ, and `wide_differences`: those
        that no near tie explains. Exact counts, so their intervals are points."""
        gaps = []
        for source, output, expected in zip(items, _split(ours), _split(theirs), strict=True):
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
        if drafted := self._drafted(answers):
            totals["drafted"] = sum(drafted)
        totals.update(tokens=tokens, iterations=iterations)
        if iterations:
            totals["accepted_tokens"] = tokens / iterations
        return totals

    def timing_counters(self, answers: Sequence[Decoded]) -> dict[str, float]:
        return _totals([a.trace.timing_counters for a in answers])

    def series(self, answers: Sequence[Decoded]) -> dict[str, list[float]]:
        names = dict.fromkeys(name for a in answers for name in a.trace.series)
        along = {name: _thinned([v for a in answers for v in a.trace.series.get(name, ())]) for name in names}
        if drafted := self._drafted(answers):
            along["drafted"] = _thinned(drafted)
        items = {"tokens": [len(a.ids) for a in answers], "iterations": [a.trace.iterations for a in answers]}
        return {**{name: [float(v) for v in values] for name, values in items.items()}, **along}

    def _drafted(self, answers: Sequence[Decoded]) -> list[float]:
        """Tokens drafted in each iteration of each output (0: an ordinary step)."""
        return [float(len(draft)) for a in answers for draft in a.trace.drafts]


class RetrievalDriver(DecodingDriver):
    """As for sequence decoding, one prompt at a time. `baseline_retrieval_share`: of the time of the speed baseline's
    calls, what retrieval took with the encoding of queries."""

    ratios: ClassVar[Mapping[str, Ratio]] = {
        "baseline_retrieval_share": Ratio(
            {"speed_baseline.retrieve": 1, "speed_baseline.encode": 1}, per={"baseline": 1}
        )
    }

    def fit(self, method: Any, setting: Any, artifacts: Artifacts, needs: Sequence[str] = ()) -> None:
        method.fit(setting.model, setting.knowledge, setting.validation, artifacts)

    def answer(
        self, method: Any, setting: Any, items: Any, phases: Phases, shared: Shared | None = None
    ) -> list[Decoded]:
        generate, model, limit = method.generate, setting.model, setting.limit
        return [possible(method, setting, generate(model, prompt, limit, phases)) for prompt in items]


DRIVERS: dict[str, Driver] = {
    "token-scoring": TokenScoringDriver(),
    "softmax-screening": SoftmaxDriver(),
    "sequence-decoding": DecodingDriver(),
    "retrieval-generation": RetrievalDriver(),
}
SEQUENCES = DRIVERS["sequence-decoding"]  # compares the answers of a timed analysis, which are sequences of ids


def quality(driver: Driver, method: Any, setting: Any, shared: Shared | None) -> Any:
    """Answers to the whole evaluation set, with the results that cells share."""
    return driver.answer(method, setting, setting.evaluation, NoPhases(), shared)


def _perplexity_ratio(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> NDArray[np.float64]:
    """From mean log-probabilities."""
    return np.exp(theirs - ours)


def _batches(items: Any, size: int) -> list[Any]:
    return [items[start : start + size] for start in range(0, len(items), size)]


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
