"""Latency of open-domain question answering by iterative RaLM: questions, a knowledge base of passages, a causal LM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from harness.artifacts import Cache, digest
from harness.contracts import Contract, Decoded
from harness.errors import RequestError
from harness.progress import Progress
from harness.registry import task
from harness.settings import Context, Measure, RetrievalSetting, Scale, Task
from tasks.serving import drawn, serving_metrics
from tasks.sources import Kind, Source, open_source
from tasks.sources.passages import passages, whole
from tasks.sources.questions import questions

Questions = Literal["natural-questions", "web-questions", "trivia-qa", "wiki-qa", "documentation"]


@task(
    "qa-latency",
    contract="retrieval-generation",
    provides=("causal", "passages"),
    summary="Questions answered by a causal LM with retrieved passages, one at a time",
)
@dataclass(frozen=True, kw_only=True)
class QaLatency(Task):
    """100 questions drawn by the run's seed, one request each, at most `limit` tokens.

    questions: a set of `tasks.sources.questions`, or `documentation`, beginnings of held-out documentation (scale
    mini). source, knowledge: data sets, separated by `+`, whose documents are cut into passages of `passage_words`
    every `passage_stride` words (null: no overlap). padding: meaningless passages added to swell the knowledge base.
    model: `train:SIZE` (trained on the train split of `training`), a hub id or a folder; window: null for its own.
    """

    contract: ClassVar[Contract] = "retrieval-generation"
    scale_defaults: ClassVar[Mapping[Scale, Mapping[str, object]]] = {
        "mini": {"evaluation": 12, "timed": 3, "limit": 48, "question_tokens": 16},
        "small": {
            "questions": "natural-questions",
            "source": "folder",
            "knowledge": "wikipedia-2015/sample.jsonl.gz+wikipedia-2015/qa-topics.jsonl.gz",
            "training": "wikipedia-2015/sample.jsonl.gz",
            "model": "train:serving",
        },
        "paper": {
            "questions": "natural-questions",
            "source": "hub",
            "knowledge": "wikimedia/wikipedia:20231101.en",
            "model": "openai-community/gpt2-medium",
            "timed": 20,
        },
    }

    questions: Questions = "documentation"
    source: Kind = "embedded"
    knowledge: str = ""
    training: str = ""
    passage_words: int = 100
    passage_stride: int | None = None
    padding: int = 0
    model: str = "train:mini"
    window: int | None = None
    evaluation: int = 100
    timed: int = 5
    limit: int = 128
    question_tokens: int = 64

    def __post_init__(self) -> None:
        for name in ("passage_words", "passage_stride", "evaluation", "timed", "question_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RequestError(f"qa-latency: {name}={value} is not at least 1")
        for name in ("limit", "padding"):
            if getattr(self, name) < 0:
                raise RequestError(f"qa-latency: {name}={getattr(self, name)} is negative")

    def prepare(self, context: Context, progress: Progress) -> RetrievalSetting:
        """The setting; slow once (training the model, cutting passages)."""
        from tasks.models.causal import load_causal

        cache = Cache(context.cache)
        sources = [open_source(self.source, name, context.data, cache) for name in self.knowledge.split("+")]
        training = open_source(self.source, self.training, context.data, cache) if self.training else sources[0]
        model = load_causal(self.model, training, cache, device=context.device, progress=progress, window=self.window)
        parts = [(source, ("train",)) if self.source != "folder" else whole(source) for source in sources]
        knowledge = passages(
            parts, cache, words=self.passage_words, stride=self.passage_stride, distractors=self.padding,
            seed=context.seed, progress=progress,
        )  # fmt: skip
        asked = drawn(self._asked(context, sources[0]), self.evaluation, context.seed)
        prompts = [
            model.tokenizer(text, add_special_tokens=False)["input_ids"][: self.question_tokens] for text in asked
        ]
        return RetrievalSetting(
            hashes={"data": digest([knowledge.hash, asked]), "model": model.hash, "knowledge": knowledge.hash},
            facts={
                "questions": self.questions,
                "knowledge": self.knowledge or "documentation",
                "passages": len(knowledge),
                "padded": self.padding > 0,
                "model": model.name,
                "window": model.window,
                "prompts": len(prompts),
                "limit": self.limit,
            },
            model=model,
            knowledge=knowledge,
            validation=[],
            evaluation=prompts,
            timed=prompts[: self.timed],
            limit=self.limit,
        )

    def metrics(self, setting: RetrievalSetting, answers: Sequence[Decoded]) -> dict[str, Measure]:
        return serving_metrics(answers)

    def _asked(self, context: Context, source: Source) -> list[str]:
        """Prompts as text: what the paper asks, its set of questions with the usual form of a prompt."""
        if self.questions != "documentation":
            found = questions(self.questions, context.data, hub=self.source == "hub")
            return [f"Question: {text.rstrip('?')}?\nAnswer:" for text in found]
        paragraphs = (part for text in source.documents("test") for part in text.split("\n\n"))
        return [" ".join(part.split()[:24]) for part in paragraphs if len(part.split()) >= 12]
