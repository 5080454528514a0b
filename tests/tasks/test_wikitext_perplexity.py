"""The task: from a data folder and a model folder to a setting and its metrics."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.contracts import TokenScores
from harness.contracts.tasks import Context, TokenScoringSetting
from harness.plan.registry import Registry, construct
from tasks.bases.pool import PASSES
from tasks.data.text import Source, split_of
from tasks.data.text.articles import count_words
from tasks.data.text.kinds import open_source
from tasks.models.lm.training import trained_tokenizer
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
    task = construct(Registry().resolve("task", "wikitext-perplexity"), given)
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


@pytest.mark.parametrize("length", [16, 60])
def test_text_without_blanks_between_words_is_measured_by_bytes(place: tuple[Context, str], length: int) -> None:
    signs = "山水人天地日月风雨春夏秋冬"
    lines = ["".join(signs[(7 * n + k * k) % 13] for k in range(length)) + "。" for n in range(40)]
    home = place[0].data[0] / "zh"
    home.mkdir()
    for name in ("train", "valid", "test"):
        (home / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    task, setting = prepared(place, dataset="zh", evaluation_tokens=None, timed_tokens=50)
    answers = [TokenScores(np.full(len(stream) - 1, -2.0)) for stream in setting.evaluation]
    result = task.metrics(setting, answers)
    assert result.keys() == {"nll", "perplexity", "bits_per_byte"}
    size = sum(len(f"{line}\n".encode()) for line in lines)
    assert result["bits_per_byte"].value == pytest.approx(
        2 * sum(map(len, setting.evaluation)) / size / np.log(2), rel=0.01
    )
    assert setting.facts["words"] == "not counted: the text has no blanks between them"


def test_long_words_of_a_script_of_three_bytes_a_letter_are_counted(place: tuple[Context, str]) -> None:
    home = place[0].data[0] / "ml"
    home.mkdir()
    for name in ("train", "valid", "test"):
        (home / f"{name}.txt").write_text(f"{' '.join(['മലയാളഭാഷയിൽ'] * 60)}\n" * 4, encoding="utf-8")
    _, setting = prepared(place, dataset="ml", evaluation_tokens=None, timed_tokens=50)
    assert setting.words == 4 * 61


def test_parts_are_stated_seeded_and_as_large_as_asked_for(place: tuple[Context, str]) -> None:
    _, setting = prepared(place, evaluation_tokens=600, validation_tokens=300, reference_tokens=900, timed_tokens=200)
    for name, wanted in (("evaluation", 600), ("validation", 300), ("reference", 900)):
        assert wanted - 8 <= sum(len(s) - 1 for s in getattr(setting, name)) == setting.facts[name]["tokens"] <= wanted
    assert max(map(len, setting.evaluation)) <= 4 * 32 + 1
    _, again = prepared(place, evaluation_tokens=600, validation_tokens=300, reference_tokens=900, timed_tokens=200)
    assert again.hashes == setting.hashes
    _, other = prepared(place, evaluation_tokens=601, validation_tokens=300, reference_tokens=900, timed_tokens=200)
    assert {k for k in other.hashes if other.hashes[k] != setting.hashes[k]} == {"evaluation"}


def test_timed_streams_are_pieces_of_the_test_split_chosen_by_seed(place: tuple[Context, str]) -> None:
    _, setting = prepared(place, evaluation_tokens=None, timed_tokens=24, timed_piece=6)
    documents = [stream[1:].tolist() for stream in setting.evaluation]
    tokenizer = setting.model.tokenizer
    for stream in setting.timed:
        start, *piece = stream.tolist()
        assert start == setting.model.start_id and 1 <= len(piece) <= 6
        inside = [at for text in documents for at in range(len(text)) if text[at : at + len(piece)] == piece]
        assert inside and tokenizer.decode(piece)[0] in " \n"  # cut between words, so that a blank comes first
    assert setting.sample == 4  # pieces make 24 tokens
    context, model = place
    given = {"evaluation_tokens": None, "timed_tokens": 24, "timed_piece": 6}
    other, again = (prepared((replace(context, seed=seed), model), **given)[1] for seed in (1, 0))
    assert again.hashes == setting.hashes
    assert {name for name in other.hashes if other.hashes[name] != setting.hashes[name]} >= {"timed"}


def test_the_pool_serves_every_pass_of_every_process_and_leaves_the_evaluation_as_it_is(
    place: tuple[Context, str],
) -> None:
    _, small = prepared(place, timed_tokens=24, timed_piece=6)
    assert len({tuple(stream.tolist()) for stream in small.timed}) > 0.9 * len(small.timed) >= 0.9 * 4 * PASSES
    assert small.facts["timed"]["streams"] == len(small.timed)
    _, large = prepared(place, timed_tokens=48, timed_piece=6)
    assert len(large.timed) > len(small.timed)
    assert {name for name in large.hashes if large.hashes[name] != small.hashes[name]} == {"timed"}
    _, all_there_is = prepared(place, timed_tokens=10**6, timed_piece=64)
    assert all_there_is.sample == len(all_there_is.timed)
    assert all_there_is.facts["timed"]["words"] == words_of_the_test_split(place)
    assert prepared(place, timed_tokens=5, timed_piece=64)[1].sample == 1


def words_of_the_test_split(place: tuple[Context, str]) -> int:
    source = open_source("folder", "wiki", place[0].data, Cache(place[0].cache))
    return sum(map(count_words, source.documents("test")))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"timed_tokens": 0}, "'timed_tokens' .* 1 .*given: 0"),
        ({"timed_piece": 0}, "'timed_piece' .* 1 .*given: 0"),
        ({"evaluation_tokens": -5}, "'evaluation_tokens' .* \\(given: -5\\)"),
        ({"window": 0}, "'window' .* \\(given: 0\\)"),
        ({"window": 8, "stride": 9}, "stride=9 exceeds window=8"),
    ],
)
def test_parameters_out_of_range_are_refused(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        construct(Registry().resolve("task", "wikitext-perplexity"), wrong)


def test_a_prepared_task_opens_without_reading_or_tokenizing_text(
    place: tuple[Context, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first = prepared(place)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the text was read again")

    monkeypatch.setattr("tasks.data.text.folder._read", refuse)
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
        assert construct(Registry().resolve("task", "wikitext-perplexity"), dict(defaults)), scale


def test_missing_data_and_wrong_values_are_one_line(place: tuple[Context, str]) -> None:
    with pytest.raises(RequestError, match=r"no data set 'absent'; tried .*data/absent"):
        prepared(place, dataset="absent")
    with pytest.raises(RequestError, match="source"):
        prepared(place, source="web")
    with pytest.raises(RequestError, match="did you mean 'train:small'"):
        prepared(place, model="train:smal")


def test_further_reference_text_joins_or_replaces_the_train_split_without_what_is_evaluated_on(
    place: tuple[Context, str],
) -> None:
    root = place[0].data[0]
    held_out = open_source("folder", "wiki", place[0].data, Cache(place[0].cache)).documents("test")[0]
    further = [f"other words {n} of a text that no one is asked about\n" for n in range(60)]
    (root / "more.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in (*further, held_out)))

    def documents(**parameters: object) -> set[str]:
        setting = prepared(place, more_text=["more.jsonl"], **parameters)[1]
        return {setting.model.tokenizer.decode(stream[1:]).strip() for stream in setting.reference}

    own = {
        text.strip() for text in open_source("folder", "wiki", place[0].data, Cache(place[0].cache)).documents("train")
    }
    more = {text.strip() for text in further}
    assert documents() == own | more
    assert documents(own_text=False) == more
    assert documents(own_text=False, decontaminated=False) == more | {held_out.strip()}
    with pytest.raises(RequestError, match="no reference text"):
        prepared(place, own_text=False)


def test_no_model_is_trained_on_text_that_is_held_out(
    place: tuple[Context, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, seen = place[0].data[0], set[str]()
    own = open_source("folder", "wiki", place[0].data, Cache(place[0].cache)).documents("train")
    further = [" ".join(f"v{n}x{i}" for i in range(20)) + "\n" for n in range(80)]
    (root / "more.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in further))
    (root / "held").mkdir()
    learned = [text for text in further if split_of(text) == "train"]
    for split, texts in (("validation", [own[0]]), ("test", [learned[0]])):
        (root / "held" / f"{split}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))

    def trained(name: str, size: object, source: Source, *given: object, **more: object) -> Path:
        seen.update(source.documents("train"))
        return Path(place[1])

    monkeypatch.setattr("tasks.models.lm.training.trained_model", trained)
    prepared(place, model="train:mini", training_text=["more.jsonl"])
    assert {own[0], learned[0]} <= seen
    seen.clear()
    _, setting = prepared(place, model="train:mini", training_text=["more.jsonl"], held_out="held")
    reference = {setting.model.tokenizer.decode(stream[1:]).strip() for stream in setting.reference}
    assert reference == {text.strip() for text in own[1:]}
    assert seen == {*own, *learned} - {own[0], learned[0]}
