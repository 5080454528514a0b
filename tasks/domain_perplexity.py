"""Perplexity on text of a domain that the language model was not trained on: RetoMaton's Figure 4 and Table 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from harness.common.cache import Cache
from harness.common.progress import Progress
from harness.contracts.tasks import Context, Scale
from harness.plan.registry import task
from tasks.bases.parallel import sides
from tasks.bases.parameters import Positive
from tasks.data.parallel_kinds import ParallelKind, open_parallel
from tasks.data.sides import OneSide
from tasks.data.text import Source
from tasks.wikitext_perplexity import WikitextPerplexity


@task(
    "domain-perplexity",
    contract="token-scoring",
    provides=("reference-text",),
    summary="Perplexity of a language model on text of another domain, which the datastore is built from",
)
class DomainPerplexity(WikitextPerplexity):
    """The model is that of `wikitext-perplexity`; reference, validation and evaluation text are one side of a parallel
    text.

    domain: the parallel text's data set. domain_source: its kind (`tasks.data.parallel_kinds`). domain_languages:
    SOURCE-TARGET; the text is the target side. domain_test: its test set. fine_tuned: whether the model is first
    fine-tuned on the reference text. tuning_steps, tuning_rate: number of steps and learning rate of that. The others:
    see `WikitextPerplexity`.
    """

    scale_defaults: ClassVar[Mapping[Scale, Mapping[str, Any]]] = {
        "mini": {**WikitextPerplexity.scale_defaults["mini"], "domain_source": "generated"},
        "small": {**WikitextPerplexity.scale_defaults["small"], "piece_windows": 1},
        "paper": {
            **WikitextPerplexity.scale_defaults["paper"], "domain_source": "folder", "domain": "law-mt",
            "domain_languages": "de-en", "domain_test": "test", "tuning_steps": 4000, "tuning_rate": 2e-5,
        },
    }  # fmt: skip

    domain_source: ParallelKind = "folder"
    domain: str = "multi30k"
    domain_languages: str = "de-en"
    domain_test: str = "test_2016_flickr"
    fine_tuned: bool = False
    tuning_steps: Positive = 600
    tuning_rate: float = 5e-4

    def text(self, context: Context, cache: Cache) -> Source:
        both = sides("domain_languages", self.domain_languages)
        return OneSide(open_parallel(self.domain_source, self.domain, *both, context.data, self.domain_test))

    def model_place(self, asked: Source, context: Context, cache: Cache, progress: Progress) -> tuple[str, str]:
        place, name = super().model_place(asked, context, cache, progress)
        if not self.fine_tuned:
            return place, name
        from tasks.models.lm.finetuning import FineTuning, fine_tuned
        from tasks.models.pretrained.places import find

        text = self.text(context, cache)
        how = FineTuning(steps=self.tuning_steps, learning_rate=self.tuning_rate)
        folder = fine_tuned(find(place, cache).folder, text, how, cache, device=context.device, progress=progress)
        return str(folder), f"{name}, fine-tuned on {text.name}"
