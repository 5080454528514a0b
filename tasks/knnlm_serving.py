"""Latency of kNN-LM generation: prompts of held-out text continued with a datastore of the training text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, cast

from harness.contracts import Contract, Decoded
from harness.contracts.tasks import Context, Measure, RetrievalSetting, Scale, Task
from harness.errors import RequestError
from harness.measure.artifacts import Cache
from harness.plan.registry import task
from harness.progress import Progress
from tasks.pool import enough
from tasks.serving import MEASURES, check_window, drawn, number_of, serving_metrics
from tasks.sources.kinds import Kind, open_source
from tasks.streams import Selection, joined, streams

if TYPE_CHECKING:
    from tasks.models.language import CausalLM


@task(
    "knnlm-serving",
    contract="retrieval-generation",
    provides=("causal", "reference-text"),
    summary="Prompts of held-out text continued by kNN-LM, one at a time",
)
@dataclass(frozen=True, kw_only=True)
class KnnLmServing(Task):
    """`evaluation` prompts of `prompt_tokens` tokens, drawn by the run's seed from the test split, each continued by
    `limit` tokens. `timed`: prompts of one timed pass, taken from those evaluated and, where they are fewer than
    `tasks.pool.enough`, from the ones drawn after them.

    source, dataset, model, window, dtype: as in `wikitext-perplexity`; the train split is the reference text, after it
    those of the data sets `more` (several separated by `+`; not of `embedded`, which is one), `reference_tokens` of
    each (null: all). `validation_tokens` of the dataset's validation split tune kNN-LM.
    """

    contract: ClassVar[Contract] = "retrieval-generation"
    measures = MEASURES
    scale_defaults: ClassVar[Mapping[Scale, Mapping[str, object]]] = {
        "mini": {"evaluation": 12, "timed": 3, "limit": 64, "prompt_tokens": 32, "validation_tokens": 2048},
        "small": {"source": "folder", "dataset": "wikitext-2", "model": "train:small"},
        "paper": {
            "source": "hub",
            "dataset": "Salesforce/wikitext:wikitext-103-raw-v1",
            "model": "neulab/gpt2-large-finetuned-wikitext103",
            "timed": 20,
        },
    }

    source: Kind = "embedded"
    dataset: str = ""
    more: str = ""
    model: str = "train:mini"
    window: int | None = None
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    evaluation: int = 100
    timed: int = 4
    prompt_tokens: int = 64
    limit: int = 128
    reference_tokens: int | None = None
    validation_tokens: int = 4096

    def __post_init__(self) -> None:
        for name in (
            "window", "evaluation", "timed", "prompt_tokens", "limit", "reference_tokens", "validation_tokens",
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RequestError(f"knnlm-serving: {name}={value} is not at least 1")
        if self.more and self.source == "embedded":
            raise RequestError(f"knnlm-serving: the source embedded has one text, no more={self.more}; choose another")
        if not all(name.strip() for name in self._further()):
            raise RequestError(f"knnlm-serving: more={self.more} has an empty part; write names separated by single +")

    def _further(self) -> list[str]:
        return self.more.split("+") if self.more else []

    def prepare(self, context: Context, progress: Progress) -> RetrievalSetting:
        """The setting; slow once (training, tokenizing)."""
        from tasks.models.causal import load_causal

        cache = Cache(context.cache)
        source = open_source(self.source, self.dataset, context.data, cache)
        model = load_causal(
            self.model, source, cache, device=context.device, progress=progress, window=self.window, dtype=self.dtype
        )
        check_window(self.prompt_tokens, self.limit, model.window, "knnlm-serving")
        reader = cast("CausalLM", model.language_model)  # streams begin as the token-scoring tasks have them
        seed = context.seed
        every = Selection(tokens=self.reference_tokens, seed=seed)
        further = [open_source(self.source, name, context.data, cache) for name in self._further()]
        parts = [streams(one, "train", reader, every, cache, progress) for one in (source, *further)]
        reference = joined(parts)
        tuning = Selection(tokens=self.validation_tokens, piece=reader.window, seed=seed)
        validation = streams(source, "validation", reader, tuning, cache, progress)
        # all of it, so that the prompts to evaluate are the same however many there are to time
        held_out = streams(source, "test", reader, Selection(piece=2 * self.prompt_tokens), cache, progress)
        long_enough = [stream for stream in held_out if len(stream) >= self.prompt_tokens]
        number = max(self.evaluation, enough(self.timed))
        timed = [stream[: self.prompt_tokens].tolist() for stream in drawn(long_enough, number, seed)]
        prompts = timed[: self.evaluation]
        if not prompts:
            raise RequestError(
                f"knnlm-serving: no piece of the test split of {source.name} has prompt_tokens={self.prompt_tokens}; "
                "lower them"
            )
        return RetrievalSetting(
            hashes={
                "data": reference.hash,
                "validation": validation.hash,
                "evaluation": held_out.hash,
                "model": model.hash,
            },
            facts={
                "data": " + ".join(one.name for one in (source, *further)),
                "model": model.name,
                "dtype": self.dtype,
                "window": model.window,
                "reference": reference.facts(),
                "prompts": number_of(prompts, self.evaluation),
                "prompt_tokens": self.prompt_tokens,
                "longest_output": self.limit,
            },
            model=model,
            knowledge=reference,
            validation=validation,
            evaluation=prompts,
            timed=timed,
            sample=min(self.timed, len(timed)),
            limit=self.limit,
        )

    def metrics(self, setting: RetrievalSetting, answers: Sequence[Decoded]) -> dict[str, Measure]:
        return serving_metrics(answers)
