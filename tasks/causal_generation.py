"""Prompts that a causal model continues: those of Spec-Bench, or beginnings of held-out text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.files import digest
from harness.contracts import Decoded
from harness.contracts.tasks import Context, DecodingSetting, Measure, Scale, Task
from harness.plan.registry import task
from tasks.bases.language_model import LanguageModelOptions
from tasks.bases.parameters import Positive
from tasks.bases.pool import enough
from tasks.bases.serving import beginnings, check_window, drawn
from tasks.data.files import find_file
from tasks.data.json_lines import json_lines
from tasks.data.streams import Selection, Streams, streams
from tasks.data.text.kinds import open_source
from tasks.metrics.repetition import repetition

if TYPE_CHECKING:
    from tasks.models.pretrained.generation import TextGenerator
    from tasks.models.pretrained.language import CausalLM


@task(
    "causal-generation", contract="sequence-decoding", provides=("causal", "reference-text"),
    summary="prompts of Spec-Bench, or beginnings of text, that a causal model goes on with",
)  # fmt: skip
@dataclass(kw_only=True, eq=False)
class CausalGeneration(LanguageModelOptions, Task):
    """Parameters: those of `LanguageModelOptions`, and

    prompts: `spec-bench`, the first turns in `file` of the named `categories` (none: all), cut to their last
    `prompt_tokens` tokens; or `text`, the first `prompt_tokens` tokens of pieces of the test split. chat: a prompt of
    Spec-Bench is the user's turn in the tokenizer's chat template, and only the turn is cut; None: where the tokenizer
    has a template. assistant: a smaller model that drafts for `draft-model`, `transformers-assisted` and `llama-cpp`,
    given as `model` is. dataset: the text for training the model and for methods' indexes. reference_tokens: tokens of
    it for the indexes, in documents drawn by the run's seed; None: all. limit: tokens of the longest output.
    evaluation: prompts, drawn by the run's seed. timed: prompts of one timed pass. batch: prompts decoded at a time.
    """

    scale_defaults: ClassVar[Mapping[Scale, Mapping[str, Any]]] = {
        "mini": {"prompts": "text", "prompt_tokens": 32, "limit": 48, "evaluation": 24},
        "small": {
            "source": "folder", "dataset": "wikipedia-2015/sample.jsonl.gz", "model": "train:serving", "limit": 128,
            "prompt_tokens": 256,
        },
        "paper": {
            "source": "hub", "dataset": "Salesforce/wikitext:wikitext-103-raw-v1", "model": "meta-llama/Llama-2-7b-hf",
            "limit": 512, "prompt_tokens": 1024, "evaluation": 480,
        },
    }  # fmt: skip

    dataset: str = ""
    prompts: Literal["spec-bench", "text"] = "spec-bench"
    file: str = "spec-bench/question.jsonl"
    categories: list[str] = field(default_factory=list)
    chat: bool | None = None
    assistant: str | None = None
    reference_tokens: Positive | None = None
    prompt_tokens: Positive = 256
    limit: Positive = 128
    evaluation: Positive = 100
    timed: Positive = 4
    batch: Positive = 1

    def __post_init__(self) -> None:
        if self.chat and self.prompts == "text":
            raise RequestError("chat=true needs prompts=spec-bench: beginnings of a text are no user's turn")

    def prepare(self, context: Context, progress: Any) -> DecodingSetting:
        """Raises `RequestError` when data or model are missing, or prompt and output do not fit the model's window."""
        cache = Cache(context.cache)
        text = open_source(self.source, self.dataset, context.data, cache)
        self.generator = self.text_generator(text, context, cache, progress)
        if self.assistant is not None:
            self.generator.assistant = self.text_generator(text, context, cache, progress, "assistant")
        check_window(self.prompt_tokens, self.limit, self.generator.window)
        if self.prompts == "text":
            every, _ = beginnings(text, self.generator, self.prompt_tokens, cache, progress)
        else:
            every = self._spec_bench(context, self.generator)
        sample = max(self.timed, self.batch)
        chosen = drawn(every, max(self.evaluation, enough(sample)), context.seed)
        evaluated = chosen[: self.evaluation]
        indexed = Selection(tokens=self.reference_tokens, seed=context.seed)

        def reference() -> Streams:
            reader = cast("CausalLM", self.generator.language_model)
            return streams(text, "train", reader, indexed, cache, progress)

        return DecodingSetting(
            model=self.generator,
            reference=reference,
            evaluation=evaluated,
            timed=chosen,
            sample=min(sample, len(chosen)),
            limit=self.limit,
            batch=self.batch,
            hashes={"data": digest(chosen), "model": self.generator.hash, **self._files()},
            facts={
                "data": "Spec-Bench" if self.prompts == "spec-bench" else f"beginnings of {text.name}",
                "reference_text": text.name,
                "model": self.generator.name,
                **self.generator.facts,
                **self._form(),
                **({"assistant": self.assistant} if self.assistant else {}),
                "prompts": len(evaluated),
                "prompt_ids": {"median": float(np.median([len(p) for p in evaluated])),
                               "longest": max(map(len, evaluated))},
                **self.generator.constraints.facts(),
            },
        )  # fmt: skip

    def _files(self) -> dict[str, str]:
        """What determines answers besides the model: an assistant, and GGUF files, which llama.cpp reads itself."""
        both = {"": self.generator, "assistant_": self.generator.assistant}
        files = {f"{which}gguf": one.facts["sha256"] for which, one in both.items() if one is not None and one.gguf}
        return files | ({"assistant": both["assistant_"].hash} if both["assistant_"] is not None else {})

    def _form(self) -> dict[str, str]:
        """What is in front of prompts, for the row."""
        if self._in_template():
            return {"chat": "the user's turn in the tokenizer's template"}
        return {} if self.generator.added_start is None else {"bos": "in front of every prompt"}

    def _in_template(self) -> bool:
        """Whether prompts are in the chat template: as `chat` says, else where there is one."""
        if self.chat is not None:
            return self.chat
        return self.prompts == "spec-bench" and self.generator.chat_template is not None

    def _spec_bench(self, context: Context, generator: TextGenerator) -> list[list[int]]:
        file = find_file(self.file, context.data)
        rows = [row for _, row in json_lines(file)]
        try:
            turns = [(str(row["category"]), str(row["turns"][0])) for row in rows]
        except (TypeError, KeyError, IndexError) as error:
            raise RequestError(
                f"{file} has a line that is no object with category and turns; fetch it again"
            ) from error
        known = sorted({category for category, _ in turns})
        if unknown := [name for name in self.categories if name not in known]:
            raise RequestError(f"{file} has no category {unknown[0]!r}; it has {', '.join(known)}")
        texts = [text for category, text in turns if not self.categories or category in self.categories]
        found = generator.prompts(texts, self.prompt_tokens, self._in_template())
        if not found:
            raise RequestError(f"{file} has no prompt; fetch it again, or name another by task.file")
        return found

    def metrics(self, setting: DecodingSetting, answers: Sequence[Decoded]) -> dict[str, Measure]:
        """`repeated`: the share of 4-grams that occur earlier in the same output. Repetition is easy to draft."""
        return {"repeated": repetition([answer.ids for answer in answers], 4)}
