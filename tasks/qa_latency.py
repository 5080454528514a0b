"""Latency of open-domain question answering by iterative RaLM: questions, a knowledge base of passages, a causal LM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, ClassVar, Literal

from harness.contracts import Contract, Decoded
from harness.contracts.tasks import Context, Measure, RetrievalSetting, Scale, Task
from harness.errors import RequestError, unknown
from harness.files import digest
from harness.measure.artifacts import Cache
from harness.plan.registry import task
from harness.progress import Progress
from tasks.pool import enough
from tasks.serving import MEASURES, check_window, drawn, number_of, serving_metrics
from tasks.sources import Source
from tasks.sources.kinds import Kind, open_source
from tasks.sources.passages import passages, whole
from tasks.sources.questions import SETS, questions

DOCUMENTATION = "documentation"
FORM = "Question: {}?\nAnswer:"


@task(
    "qa-latency",
    contract="retrieval-generation",
    provides=("causal", "passages"),
    summary="Questions answered by a causal LM with retrieved passages, one at a time",
)
@dataclass(frozen=True, kw_only=True)
class QaLatency(Task):
    """`evaluation` questions drawn by the run's seed, one request each, at most `limit` tokens. `timed`: questions of
    one timed pass, taken from those evaluated and, where they are fewer than `tasks.pool.enough`, from the ones drawn
    after them.

    questions: sets of `tasks.sources.questions`, several separated by `+` and asked in turn; or `documentation`,
    beginnings of the first source's held-out documents (scale mini). Each is cut to `question_tokens`. source,
    knowledge: data sets, separated by `+`, whose documents are cut into passages of `passage_words` every
    `passage_stride` words (null: no overlap). padding: meaningless passages added to swell the knowledge base.
    model: `train:SIZE` (trained on the train split of `training`, by default the first source), a hub id or a folder;
    window: null for its own; dtype: of its weights.
    """

    contract: ClassVar[Contract] = "retrieval-generation"
    measures = MEASURES
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

    questions: str = DOCUMENTATION
    source: Kind = "embedded"
    knowledge: str = ""
    training: str = ""
    passage_words: int = 100
    passage_stride: int | None = None
    padding: int = 0
    model: str = "train:mini"
    window: int | None = None
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    evaluation: int = 100
    timed: int = 4
    limit: int = 128
    question_tokens: int = 64

    def __post_init__(self) -> None:
        for name in ("passage_words", "passage_stride", "window", "evaluation", "timed", "limit", "question_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RequestError(f"qa-latency: {name}={value} is not at least 1")
        if self.padding < 0:
            raise RequestError(f"qa-latency: padding={self.padding} is negative")
        if self.passage_stride is not None and self.passage_stride > self.passage_words:
            raise RequestError(
                f"qa-latency: passage_stride={self.passage_stride} exceeds passage_words={self.passage_words}; words "
                "would be left out"
            )
        for name in self._sets:
            if name != DOCUMENTATION and name not in SETS:
                raise unknown("questions", name, [*SETS, DOCUMENTATION], "task.questions")

    @property
    def _sets(self) -> list[str]:
        return self.questions.split("+")

    def prepare(self, context: Context, progress: Progress) -> RetrievalSetting:
        """The setting; slow once (training the model, cutting passages)."""
        from tasks.models.causal import load_causal

        cache = Cache(context.cache)
        sources = [open_source(self.source, name, context.data, cache) for name in self.knowledge.split("+")]
        training = open_source(self.source, self.training, context.data, cache) if self.training else sources[0]
        model = load_causal(
            self.model, training, cache, device=context.device, progress=progress, window=self.window, dtype=self.dtype
        )
        held_out = DOCUMENTATION in self._sets or self.source != "folder"
        knowledge = passages(
            [(source, ("train",)) if held_out else whole(source) for source in sources], cache,
            words=self.passage_words, stride=self.passage_stride, distractors=self.padding, seed=context.seed,
            progress=progress,
        )  # fmt: skip
        timed = self._prompts(context, sources[0], model.tokenizer)
        check_window(max(map(len, timed)), self.limit, model.window, "qa-latency")
        prompts = timed[: self.evaluation]
        return RetrievalSetting(
            hashes={
                "data": digest([knowledge.hash, prompts]),
                "timed": digest(timed),
                "model": model.hash,
                "knowledge": knowledge.hash,
            },
            facts={
                "questions": self.questions,
                "knowledge": self.knowledge or DOCUMENTATION,
                "passages": len(knowledge),
                "passage_words": self.passage_words,
                "passage_stride": self.passage_stride or self.passage_words,
                **({"padded": f"{self.padding:,} of the passages are meaningless"} if self.padding else {}),
                "model": model.name,
                "dtype": self.dtype,
                "window": model.window,
                "prompts": number_of(prompts, self.evaluation),
                "longest_output": self.limit,
            },
            model=model,
            knowledge=knowledge,
            validation=[],
            evaluation=prompts,
            timed=timed,
            sample=min(self.timed, len(timed)),
            limit=self.limit,
        )

    def metrics(self, setting: RetrievalSetting, answers: Sequence[Decoded]) -> dict[str, Measure]:
        return serving_metrics(answers)

    def _prompts(self, context: Context, source: Source, tokenizer: Any) -> list[list[int]]:
        """Ids of the prompts to evaluate and, after them, of those only timed, of each set in turn.

        Raises `RequestError` when there is none.
        """
        number = max(self.evaluation, enough(self.timed))
        drawn_sets = []
        for name in self._sets:
            if name == DOCUMENTATION:
                found = drawn(_beginnings(source), number, context.seed)
                drawn_sets.append([_ids(tokenizer, text)[: self.question_tokens] for text in found])
            else:
                found = drawn(questions(name, context.data, self.source == "hub"), number, context.seed)
                drawn_sets.append([_asked(tokenizer, text, self.question_tokens) for text in found])
        prompts = [prompt for row in zip_longest(*drawn_sets) for prompt in row if prompt][:number]
        if not prompts:
            raise RequestError(f"no question in {self.questions}; fetch the set again, or ask others by task.questions")
        return prompts


def _beginnings(source: Source) -> list[str]:
    """The first words of the paragraphs of held-out text."""
    paragraphs = (part for text in source.documents("test") for part in text.split("\n\n"))
    return [" ".join(part.split()[:24]) for part in paragraphs if len(part.split()) >= 12]


def _asked(tokenizer: Any, question: str, longest: int) -> list[int]:
    """A prompt of the usual form around a question, cut to `longest` tokens."""
    ids = _ids(tokenizer, question)
    if len(ids) > longest:
        question = tokenizer.decode(ids[:longest])
    return _ids(tokenizer, FORM.format(question.rstrip("? \ufffd")))  # a cut may go through a character


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids
