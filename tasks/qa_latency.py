"""Latency of open-domain question answering by iterative RaLM: questions, a knowledge base of passages, a causal LM."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, ClassVar

import numpy as np

from harness.common.cache import Cache
from harness.common.documents import word_pattern
from harness.common.errors import RequestError, unknown
from harness.common.files import digest
from harness.common.progress import Progress
from harness.common.statistics import mean_interval
from harness.contracts.metrics import Metric
from harness.contracts.tasks import Context, Measure, RetrievalSetting, Scale
from harness.plan.registry import task
from tasks.bases.parameters import Positive
from tasks.bases.serving import MEASURES, ServingTask, check_window, drawn
from tasks.data.decontamination import Whole
from tasks.data.passages import passages
from tasks.data.questions import SETS, questions
from tasks.data.text import Source
from tasks.data.text.kinds import open_source
from tasks.data.tokens import token_ids

DOCUMENTATION = "documentation"
FORM = "Question: {}?\nAnswer:"
_WORD = re.compile(word_pattern(r"\W"))
RECALLS = (1, 5, 20)


@task(
    "qa-latency",
    contract="retrieval-generation",
    provides=("causal", "passages"),
    summary="Questions answered by a causal LM with retrieved passages, one at a time",
)
class QaLatency(ServingTask):
    """Parameters: those of `ServingTask`; prompts are questions.

    questions: sets of `tasks.data.questions`, separated by `+` and used in turn; or `documentation`, beginnings of the
    first source's held-out documents (scale mini). Each is cut to `question_tokens`. knowledge: data sets of the
    source, separated by `+`. Their documents are cut into passages of `passage_words` every `passage_stride` words
    (null: no overlap). training: the data set whose train split a model is trained on, by default the first of
    `knowledge`.
    """

    measures = (
        *MEASURES,
        *(Metric(f"answer_recall_{k}", f"answer in the first {k} passages", better="higher") for k in RECALLS),
    )
    scale_defaults: ClassVar[Mapping[Scale, Mapping[str, object]]] = {
        "mini": {"evaluation": 12, "timed": 3, "limit": 48, "question_tokens": 16},
        "small": {
            "questions": "natural-questions", "source": "folder", "model": "train:serving",
            "knowledge": "wikipedia-2015/sample.jsonl.gz+wikipedia-2015/qa-topics.jsonl.gz",
            "training": "wikipedia-2015/sample.jsonl.gz",
        },
        "paper": {
            "questions": "natural-questions", "source": "hub", "knowledge": "wikimedia/wikipedia:20231101.en",
            "model": "openai-community/gpt2-medium", "timed": 20,
        },
    }  # fmt: skip

    questions: str = DOCUMENTATION
    knowledge: str = ""
    training: str = ""
    passage_words: Positive = 100
    passage_stride: Positive | None = None
    question_tokens: Positive = 64

    def __post_init__(self) -> None:
        if self.passage_stride is not None and self.passage_stride > self.passage_words:
            raise RequestError(
                f"passage_stride={self.passage_stride} exceeds passage_words={self.passage_words}; words would be left "
                "out"
            )
        for name in self._sets:
            if name != DOCUMENTATION and name not in SETS:
                raise unknown("questions", name, [*SETS, DOCUMENTATION], "task.questions")

    @property
    def _sets(self) -> list[str]:
        return self.questions.split("+")

    def prepare(self, context: Context, progress: Progress) -> RetrievalSetting:
        """The setting; slow once (training the model, cutting passages)."""
        cache = Cache(context.cache)
        sources = [open_source(self.source, name, context.data, cache) for name in self.knowledge.split("+")]
        training = open_source(self.source, self.training, context.data, cache) if self.training else sources[0]
        model = self.text_generator(training, context, cache, progress)
        held_out = DOCUMENTATION in self._sets or self.source != "folder"
        knowledge = passages(
            [source if held_out else Whole(source) for source in sources], cache,
            words=self.passage_words, stride=self.passage_stride, progress=progress,
        )  # fmt: skip
        asked = self._prompts(context, sources[0], model.tokenizer)
        front = [] if model.added_start is None else [model.added_start]
        prompts = [[*front, *prompt] for prompt, _ in asked]
        self._answers = [answers for _, answers in asked[: self.evaluation]]
        check_window(max(map(len, prompts)), self.limit, model.window)
        evaluated = prompts[: self.evaluation]
        return self.setting(
            model,
            prompts,
            knowledge=knowledge,
            validation=[],
            hashes={"data": digest([knowledge.hash, evaluated]), "timed": digest(prompts), "knowledge": knowledge.hash},
            facts={
                "questions": self.questions,
                "knowledge": self.knowledge or DOCUMENTATION,
                "passages": len(knowledge),
                "passage_words": self.passage_words,
                "passage_stride": self.passage_stride or self.passage_words,
            },
        )

    def evaluate(self, setting: RetrievalSetting, method: Any) -> dict[str, Measure]:
        """`answer_recall_1`, `_5` and `_20`: the share of questions with an answer in the first passages that the
        method's `found` gives, compared word by word as Karpukhin et al. (2020) do. Only of sets with answers and of
        methods that have it."""
        ranks = []
        for right, prompt in zip(self._answers, setting.evaluation, strict=True):
            if right and hasattr(method, "found"):
                numbers = method.found(setting.model, prompt, RECALLS[-1])
                texts = [_words(setting.knowledge[number]) for number in numbers]
                hits = (rank for rank, text in enumerate(texts) if any(_words(one) in text for one in right))
                ranks.append(next(hits, RECALLS[-1]))
        recalls = {}
        for k in RECALLS if ranks else ():
            found = (np.asarray(ranks) < k).astype(np.float64)
            recalls[f"answer_recall_{k}"] = Measure.of(found.mean(), mean_interval(found))
        return recalls

    def _prompts(self, context: Context, source: Source, tokenizer: Any) -> list[tuple[list[int], tuple[str, ...]]]:
        """Ids of the prompts to evaluate, then of those that are only timed, from each set in turn, with their answers.

        Raises `RequestError` when there is none.
        """
        drawn_sets: list[list[tuple[list[int], tuple[str, ...]]]] = []
        for name in self._sets:
            if name == DOCUMENTATION:
                found = drawn(_beginnings(source), self.to_draw, context.seed)
                drawn_sets.append([(_ids(tokenizer, text)[: self.question_tokens], ()) for text in found])
            else:
                asked = drawn(questions(name, context.data, self.source == "hub"), self.to_draw, context.seed)
                drawn_sets.append([(_asked(tokenizer, one.text, self.question_tokens), one.answers) for one in asked])
        turns = zip_longest(*drawn_sets, fillvalue=([], ()))
        prompts = [one for turn in turns for one in turn if one[0]][: self.to_draw]
        if not prompts:
            raise RequestError(f"no question in {self.questions}; fetch the set again, or ask others by task.questions")
        return prompts


def _beginnings(source: Source) -> list[str]:
    """The first words of the paragraphs of held-out text."""
    paragraphs = (part for text in source.documents("test") for part in text.split("\n\n"))
    return [" ".join(part.split()[:24]) for part in paragraphs if len(part.split()) >= 12]


def _words(text: str) -> str:
    return " ".join(["", *_WORD.findall(text.lower()), ""])


def _asked(tokenizer: Any, question: str, longest: int) -> list[int]:
    """The prompt of a question, cut to `longest` tokens."""
    ids = _ids(tokenizer, question)
    if len(ids) > longest:
        question = tokenizer.decode(ids[:longest])
    return _ids(tokenizer, FORM.format(question.rstrip("? \ufffd")))  # the cut may split a character


def _ids(tokenizer: Any, text: str) -> list[int]:
    return token_ids(tokenizer, [text])[0]
