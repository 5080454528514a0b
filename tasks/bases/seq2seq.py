"""Tasks whose output is a text written from a source text: correction, simplification, summarisation, translation.

A task defines its items, the training of its model, and the score of outputs. Decoding, timing and worked examples are
the same for all tasks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.files import digest
from harness.common.widening import widened
from harness.contracts import Decoded
from harness.contracts.answers import common_prefix
from harness.contracts.tasks import Context, DecodingSetting, GoldOutput, Measure, Task
from tasks.bases.parameters import NotNegative, Positive
from tasks.bases.pool import enough
from tasks.metrics.spans import edits
from tasks.models.records import training_record
from tasks.models.seq2seq.sizes import SIZES, Size
from tasks.models.trained import TRAIN, size_to_train

if TYPE_CHECKING:
    from tasks.models.pretrained.generation import TextGenerator

_READABLE = range(8, 31)  # words of a worked example's source


@dataclass(frozen=True, slots=True)
class Items:
    """Sources in the task's own form, the data that the score needs for each, and their name in rows."""

    sources: list[Any]
    gold: list[Any]
    label: str

    def chosen(self, numbers: Sequence[int]) -> Items:
        """These items only."""
        return Items([self.sources[n] for n in numbers], [self.gold[n] for n in numbers], self.label)


@dataclass(kw_only=True, eq=False)
class Seq2SeqTask(Task):
    """Parameters of all such tasks.

    model: `train:` and a size of `tasks.models.seq2seq.sizes`, to train here, or a model given as in
    `LanguageModelOptions`. prompt: the model's input, with `{source}` for the source. assistant: a smaller model with
    the same vocabulary, for methods that draft with one, given like `model`. dtype: of the weights. widen: times that
    every width of a model trained here is enlarged without changing what it computes (`harness.common.widening`), for
    the cost of a larger model at the same outputs. source_language, target_language: of a multilingual model, by its
    tokenizer's names. limit: longest output in ids. evaluation: most items (None: all), drawn with `seed`. timed: items
    of one timed pass, at least a batch. They are drawn from the evaluated items and, if those are fewer than `enough`,
    from further ones. batch: items decoded at a time. shown: number of worked examples. steps: show rejected drafts in
    them. seed: of training, generated data and drawn items.
    """

    model: str = "train:small"
    prompt: str = "{source}"
    assistant: str | None = None
    dtype: Literal["float32", "float64", "bfloat16", "float16"] = "float32"
    widen: Positive = 1
    source_language: str | None = None
    target_language: str | None = None
    limit: NotNegative = 256
    evaluation: Positive | None = None
    timed: Positive = 4
    batch: Positive = 1
    shown: NotNegative = 0
    steps: bool = False
    seed: NotNegative = 0

    def __post_init__(self) -> None:
        if "{source}" not in self.prompt:
            raise RequestError(f"prompt = {self.prompt!r} holds no {{source}}; say where the source belongs")
        if self.widen > 1 and not self.model.startswith(TRAIN):
            raise RequestError(f"task.widen = {self.widen}: only a model trained here is widened, not {self.model}")

    @abstractmethod
    def items(self, context: Context, cache: Cache, progress: Any) -> Items:
        """The test items. Raises `RequestError` when they cannot be found or read."""

    @abstractmethod
    def trained(self, size: Size, context: Context, cache: Cache, progress: Any) -> Path:
        """Folder of the model of a size, trained now unless the cache has it.

        Raises `RequestError` for missing text.
        """

    @abstractmethod
    def gold_texts(self, items: Items) -> list[list[str]]:
        """The right outputs of each item, one or several, as the model would write them."""

    @abstractmethod
    def score(self, items: Items, outputs: Sequence[Any]) -> dict[str, Measure]:
        """Metrics of the outputs for the items."""

    def source_text(self, source: Any) -> str:
        """The text of a source for the model."""
        return str(source)

    def encoded(self, items: Items) -> list[list[int]]:
        """Ids of the sources. Raises `RequestError` for a source that is too long for the model's positions. A task may
        cut its sources here."""
        texts = [self.prompt.replace("{source}", self.source_text(source)) for source in items.sources]
        encoded = self.generator.encode(texts)
        longest = self.generator.longest_source
        for number, ids in enumerate(encoded):
            if longest is not None and len(ids) > longest:
                raise RequestError(
                    f"sentence {number} of {items.label} has {len(ids)} ids and {self.model} takes {longest}: "
                    "leave it out, or take a model with more positions"
                )
        return encoded

    def parsed(self, text: str) -> Any:
        """A text of the model in the score's form."""
        return text

    def facts(self) -> dict[str, Any]:
        """Facts for the row besides metrics and parameters. None by default."""
        return {}

    def candidates(self, items: Items, encoded: Sequence[Sequence[int]], cache: Cache, progress: Any) -> NDArray[Any]:
        """Numbers of the items that may be evaluated, int64 [n]; all by default. encoded: ids of the sources."""
        return np.arange(len(encoded))

    def worth_showing(self, outputs: Sequence[Any]) -> list[int]:
        """Numbers of the items for worked examples: by default the first ones of readable length."""
        return self.readable()[: self.shown]

    def remarks(self, number: int, output: Any) -> dict[str, str]:
        """Further texts of a worked example by label, between source and output. None by default."""
        return {}

    def prepare(self, context: Context, progress: Any) -> DecodingSetting:
        """Raises `RequestError` when data or model are missing or a source does not fit the model."""
        self.cache = cache = Cache(context.cache)
        items = self.items(context, cache, progress)
        if not any(items.sources):
            raise RequestError(f"{items.label} holds no sentence; give a file that does")
        folder, opened = self._opened(self.model, "task.model", context, cache, progress)
        self.generator = widened(opened, self.widen)
        helper: dict[str, str] = {}
        if self.assistant is not None:
            _, self.generator.assistant = self._opened(self.assistant, "task.assistant", context, cache, progress)
            helper["assistant"] = self.generator.assistant.hash
        encoded = self.encoded(items)
        numbers = self.candidates(items, encoded, cache, progress)
        drawn = numbers[np.random.default_rng(self.seed).permutation(len(numbers))].tolist()
        evaluated = sorted(drawn[: self.evaluation])
        sample = min(max(self.timed, self.batch), len(drawn))
        timed = drawn[: max(len(evaluated), enough(sample))]
        places = {number: place for place, number in enumerate(dict.fromkeys([*evaluated, *timed]))}
        self.chosen = items.chosen(evaluated)
        sources = [encoded[number] for number in evaluated]
        lengths = [len(source) for source in sources]
        return DecodingSetting(
            model=self.generator,
            evaluation=sources,
            timed=[encoded[number] for number in timed],
            numbers=[places[number] for number in timed],
            sample=sample,
            limit=self.limit,
            batch=self.batch,
            gold=self._gold,
            hashes={
                "data": digest([items.sources, [repr(gold) for gold in items.gold]]),
                "model": self.generator.hash,
                **helper,
            },
            facts={
                "data": items.label,
                "sentences": len(sources),
                "source_ids": {"median": float(np.median(lengths)), "longest": max(lengths)},
                "model": self.model,
                **self.generator.facts,
                "training": training_record(folder),
                **({"assistant": self.assistant} if self.assistant is not None else {}),
                **({"dtype": self.dtype} if self.dtype != "float32" else {}),
                **({"widened": self.widen} if self.widen > 1 else {}),
                **self.generator.constraints.facts(),
                **self.facts(),
            },
        )

    def _opened(
        self, model: str, parameter: str, context: Context, cache: Cache, progress: Any
    ) -> tuple[Path, TextGenerator]:
        """The folder (or hub id) of a model and the model. A size to train is trained now unless the cache has it."""
        from tasks.models.pretrained.generation import TextGenerator

        size = size_to_train(model, SIZES, parameter)
        folder = self.trained(size, context, cache, progress) if size else Path(model)
        return folder, TextGenerator.load(
            str(folder) if size else model, device=context.device, dtype=self.dtype, cache=cache, name=model,
            source_language=self.source_language, target_language=self.target_language,
        )  # fmt: skip

    def _gold(self) -> list[list[GoldOutput]]:
        """The right outputs of the items chosen."""
        found = []
        for source, texts in zip(self.chosen.sources, self.gold_texts(self.chosen), strict=True):
            words = self.source_text(source).split()
            counts = [len(edits(words, text.split())) for text in texts]
            found.append([GoldOutput(*both) for both in zip(self.generator.encode_outputs(texts), counts, strict=True)])
        return found

    def metrics(self, setting: DecodingSetting, answers: Sequence[Decoded]) -> dict[str, Measure]:
        """The task's score, cached by the outputs: many cells of a table have those of greedy decoding, and MaxMatch
        takes a minute for CoNLL-2014."""
        outputs = self.outputs(answers)

        def make() -> dict[str, Any]:
            return {name: asdict(measure) for name, measure in self.score(self.chosen, outputs).items()}

        key = {
            "task": [type(self).__qualname__, asdict(self)], "outputs": digest(outputs), **setting.hashes,
            "libraries": {name: version(name) for name in ("rouge-score", "sacrebleu")},
        }  # fmt: skip
        found: dict[str, dict[str, Any]] = self.cache.value("score", key, make)
        return {name: Measure(**measure) for name, measure in found.items()}

    def examples(self, setting: DecodingSetting, method: Any, answers: Sequence[Decoded]) -> list[dict[str, str]]:
        """Worked examples. Tokens accepted together are in brackets; tokens of an ordinary step are not. With `steps`,
        rejected drafts are shown, and accepted tokens that were not the model's first choice are marked."""
        outputs = self.outputs(answers)
        return [
            {
                "source": self.source_text(self.chosen.sources[number]),
                **self.remarks(number, outputs[number]),
                "output": marked_blocks(self.generator, answers[number], self.steps),
            }
            for number in self.worth_showing(outputs)
        ]

    def outputs(self, answers: Sequence[Decoded]) -> list[Any]:
        """Answers in the score's form."""
        return [self.parsed(self.generator.decode(answer.ids)) for answer in answers]

    def readable(self) -> list[int]:
        """Numbers of the items whose sources have a readable length."""
        return [n for n, source in enumerate(self.chosen.sources) if len(self.source_text(source).split()) in _READABLE]


def marked_blocks(generator: TextGenerator, answer: Decoded, drafts: bool = False) -> str:
    """The output, with brackets around the tokens that were accepted together, and its number of iterations.

    drafts: also show rejected drafts, as ✗{...} after the token that replaced them, and ° after accepted drafted tokens
    that were not the model's first choice.
    """
    text, done, parts = "", 0, []
    others = set(answer.trace.others) if drafts else set()

    def add(tokens: int) -> None:
        nonlocal text, done
        piece = ""
        for place in range(done, done + tokens):
            if place in others or place == done + tokens - 1:
                whole = generator.decode(answer.ids[: place + 1])
                piece, text = piece + whole[len(text) :] + "°" * (place in others), whole
        done += tokens
        if tokens > 1 and piece.strip():
            parts.append(f"{' ' if piece[0] == ' ' else ''}[{piece.strip()}]")
        else:
            parts.append(piece)

    steps = answer.trace.accepted
    drafted = answer.trace.drafts if drafts and answer.trace.drafts else [[] for _ in steps]  # greedy search has none
    for accepted, draft in zip(steps, drafted, strict=True):
        rejected = draft[common_prefix(draft, answer.ids[done : done + accepted]) :]
        if not rejected:
            add(accepted)
            continue
        if accepted > 1:
            add(accepted - 1)
        add(1)
        parts.append(f" ✗{{{generator.decode(rejected)}}}")
    marked = "".join(parts).strip() or generator.decode(answer.ids)
    passes = answer.trace.iterations
    return f"{marked} ({len(answer.ids)} tokens in {passes} iteration{'s' * (passes != 1)})"
