"""Questions, passages and prompts of the latency tasks, on small folders and a random model."""

from __future__ import annotations

import json

import numpy as np
import pytest

from harness.artifacts import Cache
from harness.contracts import Decoded, Trace
from harness.errors import RequestError
from harness.progress import Progress
from harness.settings import Context
from tasks.knnlm_serving import KnnLmServing
from tasks.qa_latency import QaLatency
from tasks.serving import drawn, serving_metrics
from tasks.sources.folder import Folder
from tasks.sources.passages import passages, spans, whole
from tasks.sources.questions import questions

QUIET = Progress(quiet=True)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A data folder with questions in both forms, articles, text in splits, and a random model with a tokenizer."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    root = tmp_path_factory.mktemp("data")
    for folder in ("nq-open", "webquestions", "articles", "text"):
        (root / folder).mkdir()
    rows = [{"question": f"who was {i % 9}", "answer": ["x"]} for i in range(12)]
    (root / "nq-open" / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root / "webquestions" / "test.json").write_text(json.dumps([{"qText": "what is ü?", "answers": []}]))
    texts = [" ".join(f"é{number}-{i}" for i in range(25)) for number in range(30)]
    (root / "articles" / "all.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    for split in ("train", "valid", "test"):
        (root / "text" / f"{split}.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate([*sorted(alphabet), "<end>"])}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    end = {"bos_token": "<end>", "eos_token": "<end>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **end).save_pretrained(root / "model")
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=257, n_positions=64, n_embd=16, n_layer=1, n_head=2, bos_token_id=256, eos_token_id=256
    )
    GPT2LMHeadModel(config).save_pretrained(root / "model")
    return root


@pytest.fixture
def context(root, tmp_path):
    return Context(scale="small", device="cpu", seed=1, data=(root,), cache=tmp_path)


def qa(root, **parameters):
    given = {"questions": "natural-questions", "source": "folder", "knowledge": "articles/all.jsonl", "limit": 8}
    return QaLatency(**given | {"model": str(root / "model"), "passage_words": 10, "evaluation": 5} | parameters)


def test_a_setting_has_prompts_passages_and_a_model(root, context):
    setting = qa(root, timed=2).prepare(context, QUIET)
    assert setting.model.kind == "causal" and setting.model.window == 64
    assert len(setting.evaluation) == 5 and setting.timed == setting.evaluation[:2]
    texts = [setting.model.tokenizer.decode(prompt) for prompt in setting.evaluation]
    assert all(text.startswith("Question: who was ") and text.endswith("?\nAnswer:") for text in texts)
    assert len(set(texts)) == 5
    assert len(setting.knowledge) == 30 * 3 and setting.knowledge[1].split()[0] in {f"é{n}-10" for n in range(30)}
    assert setting.model.eos_ids == (256,)
    assert setting.facts["passages"] == 90 and not setting.facts["padded"]
    again = qa(root, timed=2).prepare(context, QUIET)
    assert again.hashes == setting.hashes and again.evaluation == setting.evaluation


def test_padding_is_said_and_changes_the_hash(root, context):
    plain = qa(root).prepare(context, QUIET)
    padded = qa(root, padding=7).prepare(context, QUIET)
    assert padded.facts["padded"] and len(padded.knowledge) == len(plain.knowledge) + 7
    assert padded.hashes["knowledge"] != plain.hashes["knowledge"]
    assert len(padded.knowledge[-1].split()) == 10


def test_passages_overlap_by_the_stride_and_cover_the_text():
    text = " ".join(map(str, range(23)))
    cut = [text[a:b].split() for a, b in spans(text, 10, 4)]
    assert [part[0] for part in cut] == ["0", "4", "8", "12", "16"]
    assert all(len(part) == 10 for part in cut[:-1]) and cut[-1][-1] == "22"
    assert list(spans("", 10, 4)) == [] and list(spans(" one ", 10, 4)) == [(1, 4)]


def test_passages_are_slices_of_the_text_in_any_encoding(root, tmp_path):
    found = passages([whole(Folder("articles/all.jsonl", (root,)))], Cache(tmp_path), words=7, stride=3)
    assert all(len(text.split()) == 7 for text in found[:4])
    assert found[1].split()[:4] == found[0].split()[3:]
    assert found[-1] == found[len(found) - 1]


def test_questions_are_read_in_both_forms_and_missing_ones_named(root):
    assert questions("natural-questions", (root,), hub=False) == [f"who was {i}" for i in range(9)]
    assert questions("web-questions", (root,), hub=False) == ["what is ü?"]
    with pytest.raises(RequestError, match=r"no questions 'trivia-qa'; tried .*triviaqa/test.jsonl"):
        questions("trivia-qa", (root,), hub=False)


def test_damaged_questions_are_one_line(tmp_path):
    (tmp_path / "nq-open").mkdir()
    (tmp_path / "nq-open" / "dev.jsonl").write_text('{"other": 1}\n')
    with pytest.raises(RequestError, match="cannot be read as questions"):
        questions("natural-questions", (tmp_path,), hub=False)


@pytest.mark.parametrize("parameters", [{"passage_words": 0}, {"limit": -1}, {"evaluation": 0}])
def test_values_out_of_range_are_refused(parameters):
    with pytest.raises(RequestError, match=next(iter(parameters))):
        QaLatency(**parameters)


def test_knnlm_prompts_are_held_out_text(root, context):
    task = KnnLmServing(
        source="folder", dataset="text", model=str(root / "model"), evaluation=6, timed=2, prompt_tokens=12, limit=8,
        validation_tokens=100,
    )  # fmt: skip
    setting = task.prepare(context, QUIET)
    assert len(setting.evaluation) == 6 and {len(prompt) for prompt in setting.evaluation} == {12}
    assert all(prompt[0] == setting.model.start_id for prompt in setting.evaluation)
    assert all(stream[0] == setting.model.start_id for stream in setting.knowledge[:3])
    with pytest.raises(RequestError, match="prompt_tokens=0"):
        KnnLmServing(prompt_tokens=0)


def test_metrics_of_answers():
    def answer(matched, verified, seconds):
        counts = {"searches": 2.0, "matched": matched, "verified": verified, "rollbacks": 1.0}
        return Decoded([1, 2], Trace(counters=counts, timing_counters=seconds, series={"strides": [3.0, 1.0]}))

    metrics = serving_metrics([
        answer(3.0, 4.0, {"generation_s": 1.0, "retrieval_s": 3.0}),
        answer(0.0, 1.0, {"generation_s": 2.0, "retrieval_s": 4.0}),
    ])  # fmt: skip
    assert metrics["retrieval_share"].value == pytest.approx(0.7)
    assert metrics["speculation_accuracy"].value == pytest.approx(0.6)
    assert metrics["mean_stride"].value == 2.0
    assert "speculation_accuracy" not in serving_metrics([Decoded([1])])


def test_items_are_drawn_by_seed():
    items = list(range(50))
    assert drawn(items, 5, 1) == drawn(items, 5, 1) != drawn(items, 5, 2)
    assert sorted(drawn(items, 99, 1)) == items
    assert np.unique(drawn(items, 20, 3)).size == 20
