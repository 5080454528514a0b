"""The base of tasks that write a text from a source, on a task of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.contracts import Decoded, Trace
from harness.contracts.tasks import Context, Measure
from harness.plan.registry import construct
from tasks.bases.seq2seq import Items, Seq2SeqTask
from tasks.nmt_beam import NmtBeam
from tasks.wmt_translation import WmtTranslation

QUIET = Progress(quiet=True)
TEXTS = ["The old house near the river .", "She reads . " * 60, "He writes two letters every day ."]


@dataclass(kw_only=True, eq=False)
class Titles(Seq2SeqTask):
    """A title for each text; long texts are cut where `cut` says so."""

    cut: bool = False

    def items(self, context, cache, progress):
        return Items(TEXTS, ["House", "Books", "Letters"], "titles")

    def trained(self, size, context, cache, progress):
        raise RequestError("there is nothing to train on")

    def encoded(self, items):
        if not self.cut:
            return super().encoded(items)
        return [ids[: self.generator.window] for ids in self.generator.encode(items.sources)]

    def gold_texts(self, items):
        return [[gold] for gold in items.gold]

    def score(self, items, outputs):
        return {"right": Measure(sum(text == title for text, title in zip(outputs, items.gold, strict=True)))}


@pytest.fixture
def context(tmp_path):
    return Context(scale="mini", device="cpu", seed=1, data=(), cache=tmp_path)


def test_a_source_too_long_for_the_model_is_named_unless_the_task_cuts_it(copier_folder, context):
    with pytest.raises(RequestError, match=r"sentence 1 of titles has \d+ ids and .* takes 128"):
        Titles(model=str(copier_folder)).prepare(context, QUIET)
    setting = Titles(model=str(copier_folder), cut=True).prepare(context, QUIET)
    assert max(map(len, setting.evaluation)) == setting.facts["source_ids"]["longest"] == 128


def test_a_model_with_relative_positions_takes_a_source_of_any_length(relative_folder, context, monkeypatch):
    monkeypatch.setattr(f"{__name__}.TEXTS", [TEXTS[1] * 8] * 3)
    setting = Titles(model=str(relative_folder)).prepare(context, QUIET)
    assert setting.facts["source_ids"]["longest"] > 1024


def test_gold_outputs_are_as_the_model_writes_them(copier_folder, context):
    task = Titles(model=str(copier_folder), cut=True)
    setting = task.prepare(context, QUIET)
    task.generator.constraints = replace(task.generator.constraints, first=7)
    with pytest.raises(RequestError, match="gold outputs need a model"):
        setting.gold()


def test_outputs_are_scored_as_text_against_the_items_that_were_drawn(copier_folder, context):
    task = Titles(model=str(copier_folder), cut=True, evaluation=2, shown=1)
    setting = task.prepare(context, QUIET)
    assert len(setting.evaluation) == len(task.chosen.gold) == 2
    written = [Decoded(ids, Trace(iterations=1)) for ids in task.generator.encode(task.chosen.gold)]
    assert task.metrics(setting, written)["right"].value == 2
    assert task.metrics(setting, written[::-1])["right"].value == 0


def test_a_score_is_computed_once_for_the_same_outputs_of_the_same_items(copier_folder, context, monkeypatch):
    task = Titles(model=str(copier_folder), cut=True)
    setting = task.prepare(context, QUIET)
    right, scored = [Decoded(ids, Trace()) for ids in task.generator.encode(task.chosen.gold)], []
    counted = Titles.score
    monkeypatch.setattr(Titles, "score", lambda self, *given: scored.append(1) or counted(self, *given))
    assert [task.metrics(setting, right)["right"].value for _ in range(2)] == [3, 3]
    assert task.metrics(setting, right[::-1])["right"].value == 1
    assert len(scored) == 2
    other = Titles(model=str(copier_folder), cut=True, evaluation=2)
    assert other.metrics(other.prepare(context, QUIET), right[:2])["right"].value <= 2
    assert len(scored) == 3


def test_a_size_is_trained_by_the_task(context):
    with pytest.raises(RequestError, match="nothing to train on"):
        Titles(model="train:mini").prepare(context, QUIET)


def test_only_a_model_trained_here_is_widened():
    assert WmtTranslation(model="train:small-translator", widen=2).widen == 2
    with pytest.raises(RequestError, match=r"task\.widen = 2: only a model trained here is widened, not some/model"):
        WmtTranslation(model="some/model", widen=2)


@pytest.mark.parametrize("task", [WmtTranslation, NmtBeam])
def test_a_missing_tokenizer_of_bleu_is_found_before_anything_is_read(context, monkeypatch, task):
    def missing(**_):
        raise RuntimeError("MeCab is missing")

    monkeypatch.setattr("tasks.metrics.bleu.BLEU", missing)
    monkeypatch.setattr(task, "parallel", lambda *_: 1 / 0)
    with pytest.raises(RequestError, match=r"MeCab is missing; install it: pip install 'sacrebleu\[ja\]'"):
        construct(task, {"languages": "en-ja"}).prepare(context, QUIET)
