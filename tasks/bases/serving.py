"""Tasks that serve prompts one at a time: a model, prompts drawn by seed, and the metrics of served requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.common.statistics import block_jackknife, mean_interval
from harness.contracts import Decoded
from harness.contracts.metrics import Metric
from harness.contracts.tasks import Measure, RetrievalSetting, Task
from tasks.bases.language_model import LanguageModelOptions
from tasks.bases.parameters import Positive
from tasks.bases.pool import enough
from tasks.data.streams import Selection, streams
from tasks.data.text import Source

if TYPE_CHECKING:
    from tasks.models.pretrained.generation import TextGenerator
    from tasks.models.pretrained.language import CausalLM

T = TypeVar("T")

RESERVED = 100  # items of a large set that are reserved for development
LARGE = 300  # fewest items of a large set
MEASURES: tuple[Metric, ...] = (
    Metric("generation_s", "generation", "s", "lower", "time"),
    Metric("retrieval_s", "retrieval", "s", "lower", "time"),
    Metric("retrieval_share", "retrieval's share of time", kind="counter"),
    Metric("output_tokens", kind="counter"),
    Metric("sequential_share", "share of sequential steps", kind="counter"),
    Metric("rollbacks", better="lower", kind="counter"),
    Metric("mean_stride", kind="counter"),
    Metric("speculation_accuracy", better="higher", kind="counter"),
    Metric("right_without_retrieval", "right without any retrieval", kind="counter"),
)


@dataclass(kw_only=True, eq=False)
class ServingTask(LanguageModelOptions, Task):
    """Parameters of all such tasks: those of `LanguageModelOptions`, and evaluation: prompts drawn by the run's seed,
    one request each. limit: tokens of the longest output. timed: prompts of one timed pass, from the evaluated ones
    and, if these are fewer than `tasks.bases.pool.enough`, from further drawn ones.
    """

    measures = MEASURES

    evaluation: Positive = 100
    timed: Positive = 4
    limit: Positive = 128

    @property
    def to_draw(self) -> int:
        """Number of prompts drawn, to evaluate and to time."""
        return max(self.evaluation, enough(self.timed))

    def setting(
        self,
        model: TextGenerator,
        prompts: list[list[int]],
        *,
        knowledge: Sequence[Any],
        validation: Sequence[Any],
        hashes: dict[str, str],
        facts: Mapping[str, Any],
    ) -> RetrievalSetting:
        """The setting. The first `evaluation` prompts are evaluated, and all may be timed. facts: for the row, besides
        the model and the number of prompts."""
        evaluated = prompts[: self.evaluation]
        number = len(evaluated)
        return RetrievalSetting(
            hashes={**hashes, "model": model.hash},
            facts={
                **facts,
                "model": model.name,
                **model.facts,
                "dtype": self.dtype,
                "window": model.window,
                "prompts": number if number >= self.evaluation else f"{number} of the {self.evaluation} asked for",
                "longest_output": self.limit,
            },
            model=model,
            knowledge=knowledge,
            validation=validation,
            evaluation=evaluated,
            timed=prompts,
            sample=min(self.timed, len(prompts)),
            limit=self.limit,
        )

    def metrics(self, setting: RetrievalSetting, answers: Sequence[Decoded]) -> dict[str, Measure]:
        return serving_metrics(answers)


def serving_metrics(answers: Sequence[Decoded]) -> dict[str, Measure]:
    """Times of requests and results of their speculation. From 10 requests on there are 95% intervals.

    Seconds are the main thread's in the quality pass, with each prompt once (the paired timing is a separate run). They
    leave out the first request, which warms up the process.

    - Means per request: `generation_s`, `retrieval_s` (including the encoding of queries), `output_tokens`,
      `searches`, `rollbacks`.
    - Ratios of sums over requests: `retrieval_share` of the seconds; `sequential_share` of steps without speculation;
      `mean_stride` over all decisions (0 for a step without speculation); `speculation_accuracy`, matched over verified
      guesses, up to the first mismatch of a round.
    - `right_without_retrieval`, if a method counts its `unaided` tokens: the share of output tokens that are the LM's
      own most probable ones after prompt and earlier output.
    """
    warm = answers[1:] or answers
    generation, retrieval = (_counted(warm, name) for name in ("generation_s", "retrieval_s"))
    strides = [a.trace.series.get("strides", ()) for a in answers]
    sequential = _counted(answers, "sequential")
    tokens = np.asarray([len(a.ids) for a in answers], float)
    unaided = _counted(answers, "unaided") if any("unaided" in a.trace.counters for a in answers) else None
    measures = {
        "generation_s": _mean(generation),
        "retrieval_s": _mean(retrieval),
        "retrieval_share": _ratio(retrieval, generation + retrieval),
        "output_tokens": _mean(tokens),
        "searches": _mean(_counted(answers, "searches")),
        "sequential_share": _ratio(sequential, sequential + _counted(answers, "speculated")),
        "rollbacks": _mean(_counted(answers, "rollbacks")),
        "mean_stride": _ratio(
            np.asarray([sum(s) for s in strides], float), np.asarray([len(s) for s in strides], float)
        ),
        "speculation_accuracy": _ratio(_counted(answers, "matched"), _counted(answers, "verified")),
        "right_without_retrieval": _ratio(unaided, tokens) if unaided is not None else None,
    }
    return {name: measure for name, measure in measures.items() if measure is not None}


def beginnings(
    text: Source, model: TextGenerator, tokens: int, cache: Cache, progress: Progress
) -> tuple[list[list[int]], str]:
    """The first `tokens` tokens of all pieces of a text's test split, so that the evaluated prompts do not depend on
    the number of timed ones, and the hash of the text. Raises `RequestError` when no piece is long enough."""
    reader = cast("CausalLM", model.language_model)  # streams begin as in the token-scoring tasks
    pieces = streams(text, "test", reader, Selection(piece=2 * tokens), cache, progress)
    if not (found := [piece[:tokens].tolist() for piece in pieces if len(piece) >= tokens]):
        raise RequestError(f"no piece of the test split of {text.name} has prompt_tokens={tokens}; lower it")
    return found, pieces.hash


def check_window(prompt: int, limit: int, window: int) -> None:
    """Raises `RequestError` if a prompt and an output of `limit` tokens do not fit the model's window, so that no
    method could serve it. Called before an index is built."""
    if prompt + limit > window:
        raise RequestError(
            f"a prompt of {prompt} tokens and limit={limit} exceed the model's window of {window}; shorten the prompts "
            "or lower the limit"
        )


def drawn(items: Sequence[T], number: int, seed: int) -> list[T]:
    """At most `number` items drawn by seed, without replacement.

    Of `LARGE` items or more, the first `RESERVED` in the seeded order are left out. They are for tuning and development
    (earlier versions of the methods were tuned on them) and are therefore never reported.
    """
    first = RESERVED if len(items) >= LARGE else 0
    order = np.random.default_rng(seed).permutation(len(items))[first : first + number]
    return [items[int(i)] for i in order]


Column = np.ndarray[tuple[int], np.dtype[np.float64]]


def _counted(answers: Sequence[Decoded], name: str) -> Column:
    values = [a.trace.counters.get(name, a.trace.timing_counters.get(name, 0.0)) for a in answers]
    return np.asarray(values, np.float64)


def _mean(values: Column) -> Measure:
    return Measure.of(values.mean() if len(values) else 0.0, mean_interval(values))


def _ratio(parts: Column, wholes: Column) -> Measure | None:
    """sum(parts) / sum(wholes) over requests. None if the sum of wholes is 0; no interval if it is 0 once some request
    is left out."""
    if not wholes.sum():
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        interval = block_jackknife([parts, wholes], lambda part, whole: part / whole, 1)
    return Measure.of(parts.sum() / wholes.sum(), interval if interval and np.isfinite(interval).all() else None)
