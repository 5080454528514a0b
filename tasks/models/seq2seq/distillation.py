"""Sequence-level distillation (Kim and Rush, 2016; Ge et al., 2022, section 3.2.2).

A teacher is trained on the original pairs. The outputs of its beam search replace the target sides. The student and its
drafters learn from these pairs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.common.cache import Cache
from harness.common.files import digest
from harness.common.generate import generate
from harness.common.progress import Progress
from harness.common.training.pairs import Pairs
from tasks.data.parallel import ParallelSource, pairs_hash
from tasks.data.text import Split
from tasks.models.pretrained.checkpoints import tokenizer_hash
from tasks.models.pretrained.generation import TextGenerator
from tasks.models.seq2seq.pairs import encoded_pairs
from tasks.models.seq2seq.subwords import trained_subwords
from tasks.models.seq2seq.training import trained_seq2seq

if TYPE_CHECKING:
    from tasks.models.seq2seq.sizes import Size

BEAM = 5
_TOGETHER = 64  # sources that a teacher reads at a time
_KEPT = 4096  # outputs per stored part


class Distillation:
    """A teacher and a student of one size, trained on one set of pairs. limit: of the teacher's outputs, in ids."""

    def __init__(
        self, source: ParallelSource, size: Size, limit: int, cache: Cache, *, device: str = "cpu", seed: int = 0,
        progress: Progress | None = None,
    ) -> None:  # fmt: skip
        self.source, self.size, self.limit, self.cache = source, size, limit, cache
        self.device, self.seed, self.progress = device, seed, progress or Progress()
        self._content: dict[Split, str] = {}

    def content(self, split: Split) -> str:
        """Hash of a split's pairs."""
        if split not in self._content:
            self._content[split] = pairs_hash(self.source, split, self.cache)
        return self._content[split]

    def tokenizer(self) -> Path:
        """Folder of the shared subword tokenizer."""

        def lines() -> Iterator[str]:
            return (side for pair in self.source.pairs("train") for side in pair)

        return trained_subwords(lines, {"pairs": self.content("train")}, self.size.vocabulary, self.cache)

    def pairs(self, split: Split) -> Pairs:
        """Ids of a split's original pairs."""
        tokenizer = self.tokenizer()
        key = {"pairs": self.content(split), "tokenizer": tokenizer_hash(tokenizer)}
        return encoded_pairs(
            "parallel-pairs", key, lambda: self.source.pairs(split), tokenizer, self.cache, self.progress
        )

    def teacher(self) -> Path:
        """Folder of the model trained on the original pairs."""
        return self._trained(self.pairs("train"), self.size)

    def distilled(self) -> Pairs:
        """Ids of the training sources that fit the teacher's positions, and of its outputs for them."""
        folder = self.teacher()
        sources = [source for source, _ in self.pairs("train") if len(source) <= self.size.positions]

        def teacher() -> TextGenerator:
            return TextGenerator.load(str(folder), device=self.device, cache=self.cache, name="the teacher")

        return _kept(folder.name, teacher, sources, self.limit, self.cache, self.progress)

    def student(self) -> Path:
        """Folder of the model trained on the distilled pairs, from the teacher's weights if its size says so."""
        steps = self.size.student_steps
        if not steps:
            return self._trained(self.distilled(), self.size)
        size = replace(self.size, steps=steps, warmup=max(1, steps // 10))
        return self._trained(self.distilled(), size, start=self.teacher())

    def _trained(self, training: Pairs, size: Size, start: Path | None = None) -> Path:
        return trained_seq2seq(
            size, training, self.pairs("validation"), self.tokenizer(), self.cache,
            start=start, device=self.device, seed=self.seed, progress=self.progress,
        )  # fmt: skip


def distilled_by_itself(
    model: TextGenerator, encoded: Sequence[list[int]], limit: int, cache: Cache, progress: Progress
) -> Pairs:
    """The training sources (ids) that fit a model that was not trained here, and its beam search's outputs for them."""
    longest = model.longest_source
    sources = [ids for ids in encoded if longest is None or len(ids) <= longest]
    return _kept(model.hash, lambda: model, sources, limit, cache, progress)


def _kept(
    identity: str, model: Callable[[], TextGenerator], sources: Sequence[list[int]], limit: int, cache: Cache,
    progress: Progress,
) -> Pairs:  # fmt: skip
    """Sources and outputs as pairs in the cache. For the parameters see `beam_outputs`."""

    def build(folder: Path) -> None:
        outputs = beam_outputs(identity, model, sources, limit, cache, progress)
        Pairs.write(folder, zip(sources, outputs, strict=True))

    return Pairs.open(cache.build("distilled-pairs", _key(identity, sources, limit), build))


def _key(identity: str, sources: Sequence[list[int]], limit: int) -> dict[str, Any]:
    """The key of outputs."""
    return {"model": identity, "sources": digest([list(source) for source in sources]), "beam": BEAM, "limit": limit}


def beam_outputs(
    identity: str, model: Callable[[], TextGenerator], sources: Sequence[list[int]], limit: int, cache: Cache,
    progress: Progress,
) -> list[list[int]]:  # fmt: skip
    """Cached outputs (at most `limit` ids, including the end token) of a model's search with `BEAM` beams. An
    interrupted search is continued. model: called if the cache lacks outputs. identity: of its weights."""

    def build(folder: Path) -> None:
        order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
        opened: TextGenerator | None = None
        for begin in range(0, len(order), _KEPT):
            part, numbers = folder / f"part{begin}.json", order[begin : begin + _KEPT]
            if part.exists():
                continue
            opened = opened or model()
            made: dict[int, list[int]] = {}
            for at in range(0, len(numbers), _TOGETHER):
                chosen = numbers[at : at + _TOGETHER]
                ids = generate(opened, [sources[n] for n in chosen], min(limit, opened.window), num_beams=BEAM)
                made |= dict(zip(chosen, ids, strict=True))
                progress.update("the teacher writes", begin + len(made), len(order), "outputs")
            unfinished = part.with_suffix(".partial")
            unfinished.write_text(json.dumps(made))
            unfinished.replace(part)

    found: dict[int, list[int]] = {}
    for part in cache.build("beam-outputs", _key(identity, sources, limit), build).glob("part*.json"):
        found |= {int(number): ids for number, ids in json.loads(part.read_text()).items()}
    return [found[number] for number in range(len(sources))]
