"""Questions, passages and prompts of the latency tasks, on small folders and a random model."""

from __future__ import annotations

import json
import shutil

import pytest

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.contracts.tasks import Context
from harness.plan.registry import construct
from tasks.bases import pool
from tasks.data.decontamination import Whole
from tasks.data.passages import passages, spans
from tasks.data.questions import questions
from tasks.data.text.folder import Folder
from tasks.knnlm_serving import KnnLmServing
from tasks.qa_latency import QaLatency, _words

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
    assert len(setting.evaluation) == 5 and setting.sample == 2
    assert len(setting.timed) == 9 and setting.timed[:5] == setting.evaluation  # all there are
    texts = [setting.model.tokenizer.decode(prompt) for prompt in setting.evaluation]
    assert all(text.startswith("Question: who was ") and text.endswith("?\nAnswer:") for text in texts)
    assert len(set(texts)) == 5
    assert len(setting.knowledge) == 30 * 3 and setting.knowledge[1].split()[0] in {f"é{n}-10" for n in range(30)}
    assert setting.model.eos_ids == (256,)
    assert setting.facts["passages"] == 90 and "padded" not in setting.facts
    assert setting.facts["prompts"] == 5
    again = qa(root, timed=2).prepare(context, QUIET)
    assert again.hashes == setting.hashes and again.evaluation == setting.evaluation


@pytest.mark.parametrize("kind", ["qa-latency", "knnlm-serving"])
def test_more_prompts_to_time_leave_those_that_are_evaluated_as_they_are(kind, root, context, monkeypatch):
    monkeypatch.setattr(pool.enough, "__defaults__", (1,))
    monkeypatch.setattr(pool, "PASSES", 2)
    made = qa if kind == "qa-latency" else knnlm
    few, more = (made(root, timed=timed, evaluation=5).prepare(context, QUIET) for timed in (1, 4))
    assert few.evaluation == few.timed == more.evaluation == more.timed[:5]
    assert (len(more.timed), few.sample, more.sample) == (8, 1, 4)
    assert len({tuple(prompt) for prompt in more.timed}) == 8
    changed = {name for name in few.hashes if few.hashes[name] != more.hashes[name]}
    assert changed == ({"timed"} if kind == "qa-latency" else set())


def test_passages_overlap_by_the_stride_and_cover_the_text():
    text = " ".join(map(str, range(23)))
    cut = [text[a:b].split() for a, b in spans(text, 10, 4)]
    assert [part[0] for part in cut] == ["0", "4", "8", "12", "16"]
    assert all(len(part) == 10 for part in cut[:-1]) and cut[-1][-1] == "22"
    assert list(spans("", 10, 4)) == [] and list(spans(" one ", 10, 4)) == [(1, 4)]
    assert [(b - a) for a, b in spans("我们去公园散步" * 3, 10, 10)] == [10, 10, 1]  # no blanks between words


def test_passages_are_slices_of_the_text_in_any_encoding(root, tmp_path):
    found = passages([Whole(Folder("articles/all.jsonl", (root,)))], Cache(tmp_path), words=7, stride=3)
    assert all(len(text.split()) == 7 for text in found[:4])
    assert found[1].split()[:4] == found[0].split()[3:]
    assert len(found) == 30 * 7
    assert found[6] == " ".join(f"é0-{i}" for i in range(18, 25))
    assert [word.split("-")[1] for word in found[-1].split()] == [str(i) for i in range(18, 25)]


def test_a_question_is_cut_and_the_form_around_it_is_not(root, context):
    setting = qa(root, question_tokens=6).prepare(context, QUIET)
    texts = {setting.model.tokenizer.decode(prompt) for prompt in setting.evaluation}
    assert texts == {"Question: who wa?\nAnswer:"}
    in_a_character = qa(root, questions="web-questions", question_tokens=9).prepare(context, QUIET)
    assert in_a_character.model.tokenizer.decode(in_a_character.evaluation[0]) == "Question: what is?\nAnswer:"


def test_several_sets_are_asked_in_turn(root, context):
    setting = qa(root, questions="natural-questions+web-questions", evaluation=4).prepare(context, QUIET)
    texts = [setting.model.tokenizer.decode(prompt) for prompt in setting.evaluation]
    assert [text.startswith("Question: who was") for text in texts] == [True, False, True, True]
    assert setting.facts["prompts"] == 4
    more = qa(root, questions="natural-questions+web-questions", evaluation=40).prepare(context, QUIET)
    assert len(more.evaluation) == 10 and more.facts["prompts"] == "10 of the 40 asked for"
    with pytest.raises(RequestError, match=r"unknown questions 'web-question'.*did you mean 'web-questions'"):
        qa(root, questions="natural-questions+web-question")


def test_documentation_that_is_asked_is_not_in_the_knowledge_base(root, context):
    setting = qa(root, questions="documentation", knowledge="text", question_tokens=8).prepare(context, QUIET)
    everything = qa(root, knowledge="text").prepare(context, QUIET)
    assert {len(prompt) for prompt in setting.evaluation} == {8}
    assert len(everything.knowledge) == 3 * len(setting.knowledge)


def test_the_model_is_trained_on_the_text_that_is_named(root, context, monkeypatch):
    from tasks.models.lm.sizes import SIZES, Size

    size = Size(vocabulary=300, layers=1, width=64, window=48, batch=1, steps=1, learning_rate=1e-3)
    monkeypatch.setitem(SIZES, "one-step", size)
    setting = qa(root, model="train:one-step", training="text").prepare(context, QUIET)
    assert setting.facts["model"] == "train:one-step on text"
    assert setting.model.window == 48
    assert qa(root, model="train:one-step").prepare(context, QUIET).model.hash != setting.model.hash


def test_questions_and_knowledge_come_from_the_hub(root, context, tmp_path, monkeypatch):
    from tasks.data import questions as module

    folder = tmp_path / "hub"
    for name, row in {"questions": {"question": "who is it"}, "articles": {"text": "one two three four"}}.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "train.jsonl").write_text(json.dumps(row) + "\n")
    address = str(folder / "questions")
    monkeypatch.setattr(module, "SETS", {"natural-questions": ((), address, "train", "question")})
    given = {"source": "hub", "knowledge": str(folder / "articles"), "passage_words": 2}
    setting = qa(root, **given).prepare(context, QUIET)
    assert setting.model.tokenizer.decode(setting.evaluation[0]) == "Question: who is it?\nAnswer:"
    assert list(setting.knowledge) == ["one two", "three four"]
    monkeypatch.setattr(module, "SETS", {"natural-questions": ((), address, "train", "query")})
    with pytest.raises(RequestError, match="no questions in column 'query'"):
        qa(root, **given).prepare(context, QUIET)


@pytest.mark.parametrize("kind", ["qa-latency", "knnlm-serving"])
def test_no_prompt_at_all_is_one_line(kind, root, context, tmp_path):
    (tmp_path / "nq-open").mkdir()
    (tmp_path / "nq-open" / "dev.jsonl").write_text("\n")
    empty = Context(scale="small", device="cpu", seed=1, data=(tmp_path, root), cache=tmp_path)
    if kind == "qa-latency":
        with pytest.raises(RequestError, match="no question in natural-questions"):
            qa(root).prepare(empty, QUIET)
    else:
        (tmp_path / "short").mkdir()
        for split in ("train", "valid", "test"):
            (tmp_path / "short" / f"{split}.jsonl").write_text('{"text": "a b"}\n')
        with pytest.raises(RequestError, match="prompt_tokens=12; lower it"):
            knnlm(root, dataset="short").prepare(empty, QUIET)


def test_the_model_hash_follows_tokenizer_end_tokens_window_and_dtype(root, tmp_path, context):
    def loaded(**options):
        return qa(root, model=str(folder), **options).text_generator(source, context, Cache(tmp_path / "cache"), QUIET)

    source = Folder("text", (root,))
    folder = tmp_path / "model"
    shutil.copytree(root / "model", folder)
    first = loaded()
    shorter, half = loaded(window=32), loaded(dtype="bfloat16")
    assert shorter.window == shorter.language_model.window == 32
    settings = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps(settings | {"eos_token_id": [3, 256]}))
    two_ends = loaded()
    assert two_ends.eos_ids == (3, 256)
    (folder / "generation_config.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": None, "bos_token_id": None}))
    assert (loaded().eos_ids, loaded().start_id) == ((256,), 256)  # the tokenizer's
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps(settings))
    assert loaded().hash == first.hash
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text.replace('"trim_offsets":', '"trim_offsets" :'))
    other_tokenizer = loaded()
    assert len({model.hash for model in (first, shorter, half, two_ends, other_tokenizer)}) == 5
    with pytest.raises(RequestError, match="window 65 is longer than the 64 positions"):
        loaded(window=65)


def test_an_encoder_decoder_is_refused(copier_folder, root, context):
    with pytest.raises(RequestError, match="is an encoder-decoder; give a causal"):
        qa(root, model=str(copier_folder)).prepare(context, QUIET)


def test_answer_recall_is_the_share_of_questions_whose_first_passages_hold_an_answer(root, context):
    task = qa(root, evaluation=3)
    setting = task.prepare(context, QUIET)
    number = next(i for i, text in enumerate(setting.knowledge) if "é3-5 " in text)
    others = [i for i in range(30) if i != number][:4]

    class Method:
        def found(self, model, prompt, k):
            return [[number, *others], [*others, number]][setting.evaluation.index(prompt)]

    assert [one.text for one in questions("web-questions", (root,), hub=False)] == ["what is ü?"]
    with pytest.raises(RequestError, match=r"no questions 'trivia-qa'; tried .*triviaqa/test.jsonl"):
        questions("trivia-qa", (root,), hub=False)
    task._answers = [("É3-5", "nothing"), ("é3-5",), ()]
    measured = task.evaluate(setting, Method())
    assert [measured[f"answer_recall_{k}"].value for k in (1, 5, 20)] == [0.5, 1.0, 1.0]
    assert task.evaluate(setting, object()) == {}
    assert _words("公园") in _words("我们去公园散步。") and _words("art") not in _words("the party")


@pytest.mark.parametrize(
    "parameters",
    [{"passage_words": 0}, {"limit": 0}, {"evaluation": 0}, {"window": 0}, {"passage_stride": 101}],
)
def test_values_out_of_range_are_refused(parameters):
    with pytest.raises(RequestError, match=next(iter(parameters))):
        construct(QaLatency, parameters)


def knnlm(root, **parameters):
    given = {"source": "folder", "dataset": "text", "model": str(root / "model"), "evaluation": 6, "timed": 2}
    return KnnLmServing(**given | {"prompt_tokens": 12, "limit": 8, "validation_tokens": 100} | parameters)


def test_knnlm_prompts_are_held_out_text(root, context):
    setting = knnlm(root).prepare(context, QUIET)
    assert len(setting.evaluation) == 6 and {len(prompt) for prompt in setting.evaluation} == {12}
    assert all(prompt[0] == setting.model.start_id for prompt in setting.evaluation)
    assert all(stream[0] == setting.model.start_id for stream in setting.knowledge[:3])
    assert (
        setting.hashes["validation"] != knnlm(root, validation_tokens=50).prepare(context, QUIET).hashes["validation"]
    )
    for name in ("prompt_tokens", "limit"):
        with pytest.raises(RequestError, match=f"'{name}' .* 1 .*given: 0"):
            construct(KnnLmServing, {name: 0})


def test_further_data_sets_are_reference_text_too(root, context):
    alone = knnlm(root).prepare(context, QUIET)
    both = knnlm(root, more="text", reference_tokens=40).prepare(context, QUIET)
    part = knnlm(root, reference_tokens=40).prepare(context, QUIET)
    assert both.facts["reference"]["tokens"] == 2 * part.facts["reference"]["tokens"]
    assert [*map(list, both.knowledge)] == 2 * [list(stream) for stream in part.knowledge]
    assert list(both.knowledge[-1]) == list(part.knowledge[-1])
    assert len({one.hashes["data"] for one in (alone, both, part)}) == 3
    assert both.hashes["evaluation"] == alone.hashes["evaluation"]
    with pytest.raises(RequestError, match="the source embedded has one text, no more=text"):
        KnnLmServing(more="text")
    for more in ("+", "text+", "text++text", " "):
        with pytest.raises(RequestError, match="has an empty part"):
            knnlm(root, more=more)


def test_requests_beyond_the_window_are_refused_before_anything_is_built(root, context, monkeypatch):
    def built(*_, **__):
        raise AssertionError("built for requests that cannot be served")

    monkeypatch.setattr("tasks.knnlm_serving.streams", built)
    with pytest.raises(RequestError, match=r"^a prompt of 12 tokens and limit=53 exceed .* window of 64"):
        knnlm(root, limit=53).prepare(context, QUIET)
    with pytest.raises(RequestError, match=r"^a prompt of \d+ tokens and limit=60 exceed .* window of 64"):
        qa(root, limit=60).prepare(context, QUIET)
