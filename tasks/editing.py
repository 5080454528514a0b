"""What tasks have in common whose output is an edited source: error correction, simplification.

Sources are tokenised sentences; a model reads and writes them as text with blanks between tokens, so that ids become
tokens again by splitting. A task adds where sentences and models come from, and the score.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.artifacts import Cache, digest
from harness.contracts import Decoded
from harness.errors import RequestError
from harness.settings import Context, DecodingSetting, Measure, Task
from tasks.metrics.edit_ratio import edit_ratios

if TYPE_CHECKING:
    from tasks.models.generation import TextGenerator

Tokens = list[str]
TRAINED = "train:"  # a model parameter that begins so names a size to train here
_GREEDY_BATCH = 32
_READABLE = range(8, 31)  # tokens of a source that a worked example may have


@dataclass(frozen=True, slots=True)
class Items:
    """Sentences to edit (tokens), what the score needs beside them (one entry a sentence), and their name in rows."""

    sources: list[Tokens]
    gold: list[Any]
    label: str

    def chosen(self, numbers: Sequence[int]) -> Items:
        """These sentences only."""
        return Items([self.sources[n] for n in numbers], [self.gold[n] for n in numbers], self.label)


class EditingTask(Task):
    """Parameters that all editing tasks share. `model`: `train:` and a size of `tasks.models.encoder_decoder_sizes`
    to train here, or a model by folder or hub id. limit: longest output in ids. evaluation: at most this many sentences
    (None: all), drawn with `seed`. timed: sentences of the timed pass, drawn among them. batch: sentences decoded at a
    time. edit_ratio: [low, high), only sentences whose greedy output (by `transformers`) differs from the source by
    that much. examples: worked examples shown, spread over the edit ratios of the outputs. seed: of training, of errors
    that are generated, and of what is drawn.
    """

    contract = "sequence-decoding"

    def __init__(
        self, *, model: str, limit: int, evaluation: int | None, timed: int, batch: int,
        edit_ratio: list[float] | None, examples: int, seed: int,
    ) -> None:  # fmt: skip
        if min(timed, batch) < 1 or limit < 0 or examples < 0 or (evaluation is not None and evaluation < 1):
            raise RequestError(
                f"timed, batch and evaluation must be positive, limit and examples not negative, given {timed}, "
                f"{batch}, {evaluation}, {limit}, {examples}"
            )
        if edit_ratio is not None and (len(edit_ratio) != 2 or not edit_ratio[0] < edit_ratio[1]):
            raise RequestError(
                f"edit_ratio = {edit_ratio}: give a lower bound and a larger upper bound, such as [0, 0.1]"
            )
        self.model, self.limit, self.evaluation, self.timed, self.batch = model, limit, evaluation, timed, batch
        self.edit_ratio, self.shown, self.seed = edit_ratio, examples, seed

    @abstractmethod
    def items(self, context: Context, cache: Cache, progress: Any) -> Items:
        """The test sentences. Raises `RequestError` when they cannot be found or read."""

    @abstractmethod
    def trained(self, size: str, context: Context, cache: Cache, progress: Any) -> Path:
        """Folder of the model of a size, trained now unless the cache has it."""

    @abstractmethod
    def score(self, items: Items, outputs: Sequence[Tokens]) -> dict[str, Measure]:
        """Metrics of outputs (tokens) for the items."""

    def prepare(self, context: Context, progress: Any) -> DecodingSetting:
        """Raises `RequestError` when data or model are missing or no sentence has the edit ratio asked for."""
        from tasks.models.generation import TextGenerator

        cache = Cache(context.cache)
        items = self.items(context, cache, progress)
        folder = self.model
        if self.model.startswith(TRAINED):
            folder = str(self.trained(self.model.removeprefix(TRAINED), context, cache, progress))
        self.generator = TextGenerator.load(folder, device=context.device, cache=cache, name=self.model)
        data = digest([items.sources, [repr(gold) for gold in items.gold]])
        self._check_lengths(items)
        items = self._within(items, cache, progress)
        rng = np.random.default_rng(self.seed)
        if self.evaluation is not None and self.evaluation < len(items.sources):
            items = items.chosen(np.sort(rng.permutation(len(items.sources))[: self.evaluation]).tolist())
        self.chosen = items
        sources = self.generator.encode([" ".join(tokens) for tokens in items.sources])
        timed = rng.permutation(len(sources))[: self.timed]
        record = Path(folder) / "training.json"
        lengths = [len(source) for source in sources]
        return DecodingSetting(
            model=self.generator,
            training=(),
            evaluation=sources,
            timed=[sources[n] for n in timed],
            limit=self.limit,
            batch=self.batch,
            hashes={"data": data, "model": self.generator.hash},
            facts={
                "data": items.label,
                "sentences": len(sources),
                "source_ids": {"median": float(np.median(lengths)), "longest": max(lengths)},
                "model": self.model,
                "training": json.loads(record.read_text()) if record.is_file() else {},
            },
        )

    def metrics(self, setting: DecodingSetting, answers: Sequence[Decoded]) -> dict[str, Measure]:
        """The task's score, and the median `edit_ratio` of source and output in tokens."""
        outputs = [self.tokens(answer.ids) for answer in answers]
        ratio = Measure(float(np.median(edit_ratios(self.chosen.sources, outputs))))
        return {**self.score(self.chosen, outputs), "edit_ratio": ratio}

    def series(self, setting: DecodingSetting, answers: Sequence[Decoded]) -> dict[str, list[float]]:
        """Edit ratio of every sentence, for plots against its iterations."""
        outputs = [self.tokens(answer.ids) for answer in answers]
        return {"edit_ratio": edit_ratios(self.chosen.sources, outputs).tolist()}

    def examples(self, setting: DecodingSetting, method: Any, answers: Sequence[Decoded]) -> list[dict[str, str]]:
        """Sentences of readable length, at equal steps from the least to the most edited; what was accepted together
        stands in brackets, what came from an ordinary step does not."""
        ratios = edit_ratios(self.chosen.sources, [self.tokens(answer.ids) for answer in answers])
        readable = [n for n, tokens in enumerate(self.chosen.sources) if len(tokens) in _READABLE]
        ranked = sorted(readable, key=lambda n: (ratios[n], n))
        steps = np.linspace(0, len(ranked) - 1, min(self.shown, len(ranked))).round().astype(int)
        return [
            {
                "source": " ".join(self.chosen.sources[number]),
                "edit ratio": f"{ratios[number]:.2f}",
                "output": marked_blocks(self.generator, answers[number]),
            }
            for number in (ranked[step] for step in steps)
        ]

    def tokens(self, ids: Sequence[int]) -> Tokens:
        """The tokens that ids stand for."""
        return self.generator.decode(ids).split()

    def _check_lengths(self, items: Items) -> None:
        """Refuse sentences that the model has no positions for."""
        for number, ids in enumerate(self.generator.encode([" ".join(tokens) for tokens in items.sources])):
            if len(ids) > self.generator.window:
                raise RequestError(
                    f"sentence {number} of {items.label} has {len(ids)} ids and {self.model} takes "
                    f"{self.generator.window}: leave it out, or take a model with more positions"
                )

    def _within(self, items: Items, cache: Cache, progress: Any) -> Items:
        """The sentences of the edit ratio asked for, judged by the model's greedy outputs."""
        if self.edit_ratio is None:
            return items
        low, high = self.edit_ratio
        outputs = greedy_outputs(self.generator, items.sources, self.limit, cache, progress)
        ratios = edit_ratios(items.sources, [self.tokens(ids) for ids in outputs])
        numbers = np.flatnonzero((ratios >= low) & (ratios < high)).tolist()
        if not numbers:
            raise RequestError(
                f"no sentence of {items.label} has an edit ratio in [{low:g}, {high:g}) under {self.model} "
                f"(they lie between {ratios.min():.2f} and {ratios.max():.2f}); give other bounds"
            )
        return items.chosen(numbers)


def greedy_outputs(
    generator: TextGenerator, sources: Sequence[Tokens], limit: int, cache: Cache, progress: Any
) -> list[list[int]]:
    """Ids of the greedy outputs by `transformers.generate`, in padded batches, kept in the cache."""
    encoded = generator.encode([" ".join(tokens) for tokens in sources])
    key = {"model": generator.hash, "sources": digest(encoded), "limit": limit, "device": generator.device}

    def build(folder: Path) -> None:
        import torch

        order = sorted(range(len(encoded)), key=lambda n: len(encoded[n]))
        outputs: dict[int, list[int]] = {}
        for start in range(0, len(order), _GREEDY_BATCH):
            numbers = order[start : start + _GREEDY_BATCH]
            padded = generator.tokenizer.pad({"input_ids": [encoded[n] for n in numbers]}, return_tensors="pt")
            with torch.inference_mode():
                made = generator.module.generate(
                    **padded.to(generator.device), max_new_tokens=limit, num_beams=1, do_sample=False
                ).tolist()
            first = 1 if generator.kind == "encoder-decoder" else padded["input_ids"].shape[1]
            outputs |= {n: until_end(ids[first:], generator.eos_ids) for n, ids in zip(numbers, made, strict=True)}
            progress.update("greedy outputs, to sort sentences by", start + len(numbers), len(order), "sentences")
        (folder / "outputs.json").write_text(json.dumps([outputs[n] for n in range(len(encoded))]))

    folder = cache.build("greedy-outputs", key, build)
    outputs: list[list[int]] = json.loads((folder / "outputs.json").read_text())
    return outputs


def until_end(ids: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Ids up to the first end token, with it."""
    stop = next((place + 1 for place, token in enumerate(ids) if token in ends), len(ids))
    return list(ids[:stop])


def marked_blocks(generator: TextGenerator, answer: Decoded) -> str:
    """The output, with brackets around the tokens that were accepted together, and how many iterations it took."""
    text, done, parts = "", 0, []
    for accepted in answer.trace.accepted:
        done += accepted
        whole = generator.decode(answer.ids[:done])
        piece = whole[len(text) :]
        if accepted > 1 and piece.strip():
            parts.append(f"{' ' if piece[0] == ' ' else ''}[{piece.strip()}]")
        else:
            parts.append(piece)
        text = whole
    marked = "".join(parts).strip() or generator.decode(answer.ids)
    return f"{marked} ({len(answer.ids)} tokens in {answer.trace.iterations} iterations)"
