"""The task over another domain's text: what it reads, and what fine-tuning changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.progress import Progress
from tasks.data.invented_language import InventedLanguage
from tasks.data.sides import OneSide
from tasks.domain_perplexity import DomainPerplexity
from tasks.models.lm import finetuning
from tasks.models.lm.finetuning import FineTuning, fine_tuned
from tests.tasks.test_wikitext_perplexity import place

__all__ = ["place"]  # a fixture

QUIET = Progress(quiet=True)
FEW = {"train": 300, "validation": 60, "test": 60}


def task_of(place, **parameters):
    _, model = place
    return DomainPerplexity(
        source="folder", dataset="wiki", model=model, stride=8, timed_tokens=40, timed_piece=20, piece_windows=1,
        domain_source="generated", **parameters,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(InventedLanguage.__init__, "__defaults__", (0, FEW))
    monkeypatch.setattr(FineTuning.__init__, "__kwdefaults__", {"steps": 30, "batch": 4, "learning_rate": 1e-2})


def test_documents_are_sentences_of_one_side_together():
    side = OneSide(InventedLanguage())
    documents = side.documents("train")
    sentences = [english for _, english in InventedLanguage().pairs("train")]
    assert "".join(documents).splitlines() == sentences
    assert len(documents) == 6 and side.name == "invented language (en)"


def test_all_text_is_the_domain_s(place):
    setting = task_of(place).prepare(place[0], QUIET)
    text = setting.model.tokenizer.decode(setting.reference[0][1:])
    assert InventedLanguage().pairs("train")[0][1] in text
    assert setting.facts["data"] == "invented language (en)"


def test_fine_tuning_lowers_the_perplexity_and_is_done_once(place):
    def nll(setting):
        streams = list(setting.evaluation)
        return -np.mean(np.concatenate([b.log_prob.numpy() for s in streams for b in setting.model.encode(s)]))

    before = task_of(place).prepare(place[0], QUIET)
    after = task_of(place, fine_tuned=True).prepare(place[0], QUIET)
    assert nll(after) < nll(before) - 0.5
    assert after.hashes["model"] != before.hashes["model"] and "fine-tuned on" in after.facts["model"]
    again = task_of(place, fine_tuned=True).prepare(place[0], QUIET)
    assert again.hashes == after.hashes


def test_too_little_text_is_refused(place, monkeypatch):
    monkeypatch.setattr(InventedLanguage.__init__, "__defaults__", (0, {"train": 2, "validation": 2, "test": 2}))
    context, model = place
    from pathlib import Path

    with pytest.raises(RequestError, match="too small to train on"):
        fine_tuned(Path(model), OneSide(InventedLanguage()), replace(finetuning.FineTuning(), batch=64),
                   Cache(context.cache), progress=QUIET)  # fmt: skip


def test_languages_are_two(place):
    with pytest.raises(RequestError, match="domain_languages must be SOURCE-TARGET"):
        task_of(place, domain_languages="de").prepare(place[0], QUIET)
