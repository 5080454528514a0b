"""Latency of kNN-LM generation: prompts of held-out text, continued with a datastore of the training text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, cast

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.contracts.tasks import Context, RetrievalSetting, Scale
from harness.plan.registry import task
from tasks.bases.parameters import Positive
from tasks.bases.serving import ServingTask, beginnings, check_window, drawn
from tasks.data.streams import Selection, joined, streams
from tasks.data.text.kinds import open_source

if TYPE_CHECKING:
    from tasks.models.pretrained.language import CausalLM


@task(
    "knnlm-serving",
    contract="retrieval-generation",
    provides=("causal", "reference-text"),
    summary="Prompts of held-out text continued by kNN-LM, one at a time",
)
class KnnLmServing(ServingTask):
    """Parameters: those of `ServingTask`, and

    dataset: of the source. Its train split is the reference text. more: further data sets, separated by `+`, whose
    train splits are added (not with `embedded`, which has only one). reference_tokens: of each (null: all).
    prompt_tokens: of a prompt, from the test split. validation_tokens: of the validation split, to tune kNN-LM.
    """

    scale_defaults: ClassVar[Mapping[Scale, Mapping[str, object]]] = {
        "mini": {"evaluation": 12, "timed": 3, "limit": 64, "prompt_tokens": 32, "validation_tokens": 2048},
        "small": {"source": "folder", "dataset": "wikitext-2", "model": "train:small"},
        "paper": {
            "source": "hub", "dataset": "Salesforce/wikitext:wikitext-103-raw-v1",
            "model": "neulab/gpt2-large-finetuned-wikitext103", "timed": 20,
        },
    }  # fmt: skip

    dataset: str = ""
    more: str = ""
    prompt_tokens: Positive = 64
    reference_tokens: Positive | None = None
    validation_tokens: Positive = 4096

    def __post_init__(self) -> None:
        if self.more and self.source == "embedded":
            raise RequestError(f"the source embedded has one text, no more={self.more}; choose another")
        if not all(name.strip() for name in self._further()):
            raise RequestError(f"more={self.more} has an empty part; write names separated by single +")

    def _further(self) -> list[str]:
        return self.more.split("+") if self.more else []

    def prepare(self, context: Context, progress: Progress) -> RetrievalSetting:
        """The setting; slow once (training, tokenizing)."""
        cache = Cache(context.cache)
        source = open_source(self.source, self.dataset, context.data, cache)
        model = self.text_generator(source, context, cache, progress)
        check_window(self.prompt_tokens, self.limit, model.window)
        reader = cast("CausalLM", model.language_model)  # streams begin as in the token-scoring tasks
        seed = context.seed
        every = Selection(tokens=self.reference_tokens, seed=seed)
        texts = [source, *(open_source(self.source, name, context.data, cache) for name in self._further())]
        reference = joined([streams(one, "train", reader, every, cache, progress) for one in texts])
        tuning = Selection(tokens=self.validation_tokens, piece=reader.window, seed=seed)
        validation = streams(source, "validation", reader, tuning, cache, progress)
        every_prompt, held_out = beginnings(source, model, self.prompt_tokens, cache, progress)
        prompts = drawn(every_prompt, self.to_draw, seed)
        return self.setting(
            model,
            prompts,
            knowledge=reference,
            validation=validation,
            hashes={"data": reference.hash, "validation": validation.hash, "evaluation": held_out},
            facts={
                "data": " + ".join(one.name for one in texts),
                "reference": reference.facts(),
                "prompt_tokens": self.prompt_tokens,
                **reader.facts,
            },
        )
