"""The task: from a data folder and a model folder to a setting and its metrics."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from harness.artifacts import Cache
from harness.contracts import TokenScores
from harness.errors import RequestError
from harness.parameters import instantiate
from harness.progress import Progress
from harness.registry import Registry
from harness.settings import Context, TokenScoringSetting
from tasks.models.from_scratch import trained_tokenizer
from tasks.sources import open_source
from tasks.sources.articles import count_words
from tasks.wikitext_perplexity import WikitextPerplexity

QUIET = Progress(quiet=True)


@pytest.fixture
def place(tmp_path: Path) -> tuple[Context, str]:
    """A WikiText-like folder under a data root, and a random model with a tokenizer of its text."""
    home = tmp_path / "data" / "wiki"
    home.mkdir(parents=True)
    rng = np.random.default_rng(0)
    words = [f"w{n}" for n in range(50)]
    for name, articles in (("train", 12), ("valid", 4), ("test", 6)):
        texts = [
            f" \n = Article {n} = \n \n" + "".join(f" {' '.join(rng.choice(words, 12))} . \n" for _ in range(20))
            for n in range(articles)
        ]
        (home / f"{name}.txt").write_text("".join(texts))
    cache = Cache(tmp_path / "cache")
    source = open_source("folder", "wiki", (tmp_path / "data",), cache)
    folder = tmp_path / "model"
    config = GPT2Config(n_layer=1, n_embd=16, n_head=2, n_positions=32, vocab_size=320, bos_token_id=0, eos_token_id=0)
    torch.manual_seed(0)
    GPT2LMHeadModel(config).save_pretrained(folder)
    for file in trained_tokenizer(320, source, cache).glob("tokenizer*"):
        (folder / file.name).write_bytes(file.read_bytes())
    return Context("small", "cpu", 0, (tmp_path / "data",), tmp_path / "cache"), str(folder)


def prepared(place: tuple[Context, str], **parameters: object) -> tuple[WikitextPerplexity, TokenScoringSetting]:
    context, model = place
    given = {"source": "folder", "dataset": "wiki", "model": model, "stride": 8, **parameters}
    task = instantiate("task", "wikitext-perplexity", given, Registry())
    return task, task.prepare(context, QUIET)


def test_metrics_equal_those_of_the_text_itself(place: tuple[Context, str]) -> None:
    task, setting = prepared(place, evaluation_tokens=None, timed_tokens=50)
    text = open_source("folder", "wiki", place[0].data, Cache(place[0].cache)).documents("test")
    assert setting.words == sum(map(count_words, text)) and len(setting.evaluation) == 6
    log_probs = [torch.cat([b.log_prob for b in setting.model.encode(s)]).double().numpy() for s in setting.evaluation]
    result = task.metrics(setting, [TokenScores(values) for values in log_probs])
    total, tokens = -sum(values.sum() for values in log_probs), sum(map(len, log_probs))
    assert result["nll"].value == pytest.approx(total / tokens)
    assert result["perplexity"].value == pytest.approx(math.exp(total / tokens))
    assert result["word_perplexity"].value == pytest.approx(math.exp(total / setting.words))


def test_parts_are_stated_seeded_and_as_large_as_asked_for(place: tuple[Context, str]) -> None:
    _, setting = prepared(place, evaluation_tokens=600, validation_tokens=300, reference_tokens=900, timed_tokens=200)
    for name, wanted in (("evaluation", 600), ("validation", 300), ("reference", 900)):
        assert wanted - 8 <= sum(len(s) - 1 for s in getattr(setting, name)) == setting.facts[name]["tokens"] <= wanted
    assert max(map(len, setting.evaluation)) <= 4 * 32 + 1
    assert sum(len(s) - 1 for s in setting.timed) == 200
    for timed, whole in zip(setting.timed, setting.evaluation, strict=False):
        assert timed.tolist() == whole[: len(timed)].tolist()
    _, again = prepared(place, evaluation_tokens=600, validation_tokens=300, reference_tokens=900, timed_tokens=200)
    assert again.hashes == setting.hashes
    _, other = prepared(place, evaluation_tokens=601, validation_tokens=300, reference_tokens=900)
    assert {k for k in other.hashes if other.hashes[k] != setting.hashes[k]} == {"evaluation"}


def test_a_prepared_task_opens_without_reading_or_tokenizing_text(
    place: tuple[Context, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first = prepared(place)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the text was read again")

    monkeypatch.setattr("tasks.sources.folder._read", refuse)
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", refuse)
    _, second = prepared(place)
    assert second.hashes == first.hashes


def test_the_paper_scale_runs_on_local_folders_in_hub_layout(
    place: tuple[Context, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    (tmp_path / "hub").mkdir()
    for name, split in (("train", "train"), ("valid", "validation"), ("test", "test")):
        lines = (tmp_path / "data" / "wiki" / f"{name}.txt").read_text().splitlines(keepends=True)
        datasets.Dataset.from_dict({"text": lines}).to_parquet(tmp_path / "hub" / f"{split}-00000-of-00001.parquet")
    _, local = prepared(place, evaluation_tokens=None)
    paper = {**WikitextPerplexity.scale_defaults["paper"], "dataset": str(tmp_path / "hub"), "model": place[1]}
    _, hub = prepared(place, **paper)
    assert hub.hashes["evaluation"] == local.hashes["evaluation"] and hub.words == local.words
    assert hub.facts["selection"] == "whole documents"


def test_every_scale_names_valid_parameters() -> None:
    for scale, defaults in WikitextPerplexity.scale_defaults.items():
        assert instantiate("task", "wikitext-perplexity", dict(defaults), Registry()), scale


def test_missing_data_and_wrong_values_are_one_line(place: tuple[Context, str]) -> None:
    with pytest.raises(RequestError, match=r"no data set 'absent'; tried .*data/absent"):
        prepared(place, dataset="absent")
    with pytest.raises(RequestError, match="source"):
        prepared(place, source="web")
    with pytest.raises(RequestError, match="did you mean 'train:small'"):
        prepared(place, model="train:smal")
