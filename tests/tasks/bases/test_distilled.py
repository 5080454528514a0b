"""Translation and summarisation: what they train, what they hand to drafters, how they score, what they refuse."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.generate import generate
from harness.common.progress import Progress
from harness.contracts import Decoded
from harness.contracts.tasks import Context
from tasks.cnn_dm_summarization import CnnDmSummarization
from tasks.data.invented_language import InventedLanguage
from tasks.models.pretrained.generation import TextGenerator
from tasks.models.seq2seq import sizes
from tasks.models.seq2seq.distillation import BEAM, Distillation, beam_outputs
from tasks.wmt_translation import WmtTranslation

QUIET = Progress(quiet=True)
FEW = {"train": 60, "validation": 10, "test": 12}


@pytest.fixture
def context(tmp_path, cache_home):
    return Context(scale="mini", device="cpu", seed=1, data=(tmp_path / "data",), cache=cache_home)


@pytest.fixture(autouse=True)
def small(monkeypatch, tiny_size):
    monkeypatch.setattr("tasks.data.invented_language.SIZES", FEW)
    monkeypatch.setattr(InventedLanguage.__init__, "__defaults__", (0, FEW))
    table = {**sizes.SIZES, "tiny": replace(tiny_size, copies=False), "tiny-copier": tiny_size}
    for module in ("tasks.bases.distilled", "tasks.bases.seq2seq", "tasks.models.seq2seq.sizes"):
        monkeypatch.setattr(f"{module}.SIZES", table)


def translation(**parameters):
    return WmtTranslation(**{"source": "generated", "model": "train:tiny", "limit": 24, **parameters})


def test_a_student_learns_from_what_its_teacher_writes(context, tiny_size):
    task = translation()
    setting = task.prepare(context, QUIET)
    pairs = setting.training()
    distillation = Distillation(
        InventedLanguage(), replace(tiny_size, copies=False), 24, Cache(context.cache), progress=QUIET
    )
    teacher = TextGenerator.load(str(distillation.teacher()))
    plain = distillation.pairs("train")
    assert len(pairs) == len(plain) == 60
    assert [source for source, _ in pairs] == [source for source, _ in plain]
    assert [target for _, target in pairs] != [target for _, target in plain]
    for source, target in list(pairs)[:5]:
        assert [target] == generate(teacher, [source], 24, num_beams=BEAM)
    assert "teacher" in setting.facts["trained_on"]
    plainly = translation(distilled=False)
    assert list(plainly.prepare(context, QUIET).training()) == list(plain)
    assert plainly.generator.hash == teacher.hash != task.generator.hash


def test_a_student_may_go_on_from_its_teacher(context, tiny_size):
    size = replace(tiny_size, copies=False, student_steps=2, optimizer="muon")
    cache = Cache(context.cache)
    distillation = Distillation(InventedLanguage(), size, 24, cache, progress=QUIET)
    teacher, student = distillation.teacher(), distillation.student()
    made = json.loads((student / "training.json").read_text())
    assert made["initial_weights"] == f"the model {teacher.name}" and made["size"]["steps"] == 2
    before, after = (TextGenerator.load(str(folder)).module.state_dict() for folder in (teacher, student))
    name = "model.decoder.layers.0.fc1.weight"
    change = (after[name] - before[name]).norm() / before[name].norm()
    assert 0 < change < 0.5  # new weights would be 1.4 away


def test_translations_are_scored_against_the_reference(context):
    task = translation(shown=2)
    setting = task.prepare(context, QUIET)
    right = [Decoded(several[0].ids) for several in setting.gold()]
    assert len(setting.evaluation) == 12
    found = task.metrics(setting, right)
    assert found["bleu"].value == pytest.approx(100) and found["chrf"].value == pytest.approx(100)
    assert task.metrics(setting, right[::-1])["bleu"].value < 50
    assert setting.facts["bleu"].startswith("nrefs:1")


def test_a_model_from_elsewhere_is_its_own_teacher(context, copier_folder):
    task = translation(model=str(copier_folder))
    setting = task.prepare(context, QUIET)
    pairs = list(setting.training())
    assert "trained_on" not in setting.facts
    assert len(pairs) == 60
    source, target = pairs[7]
    assert [target] == generate(task.generator, [source], 24, num_beams=BEAM)


def test_an_interrupted_search_goes_on(context, copier_folder, monkeypatch):
    from tasks.models.seq2seq import distillation

    model = TextGenerator.load(str(copier_folder))
    sources = model.encode(["the old house", "two books", "a bridge near the river", "my friends", "week"])
    monkeypatch.setattr(distillation, "_KEPT", 2)
    asked = []

    def failing(*arguments, **settings):
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append(arguments[1])
        return generate(*arguments, **settings)

    cache = Cache(context.cache)
    monkeypatch.setattr(distillation, "generate", failing)
    with pytest.raises(KeyboardInterrupt):
        beam_outputs("one", lambda: model, sources, 8, cache, QUIET)
    monkeypatch.setattr(distillation, "generate", lambda *a, **s: (asked.append(a[1]), generate(*a, **s))[1])
    found = beam_outputs("one", lambda: model, sources, 8, cache, QUIET)
    assert len(asked) == 3  # two parts before, one after
    assert found == [generate(model, [source], 8, num_beams=BEAM)[0] for source in sources]


# ---------------------------------------------------------------- summaries

ARTICLE = "the old house near the river . " * 60


@pytest.fixture
def articles(context):
    [root] = context.data
    root.mkdir()
    rows = [{"article": f"{ARTICLE}{n}", "highlights": "the old house\nnear the river"} for n in range(3)]
    (root / "articles.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return "articles.jsonl"


def test_articles_are_cut_to_what_the_model_reads(context, articles, copier_folder):
    task = CnnDmSummarization(model=str(copier_folder), files=[articles], limit=20)
    setting = task.prepare(context, QUIET)
    assert {len(source) for source in setting.evaluation} == {128} and setting.facts["articles_cut"] == 3
    assert all(source[-1] in task.generator.eos_ids for source in setting.evaluation)
    assert "CNN/DailyMail" in setting.facts["data"]
    right = [Decoded(several[0].ids) for several in setting.gold()]
    assert task.metrics(setting, right)["rouge1"].value == pytest.approx(100)


def test_an_article_is_cut_and_not_the_prompt_around_it(context, articles, copier_folder):
    task = CnnDmSummarization(model=str(copier_folder), files=[articles], limit=20, prompt="near {source} river")
    setting = task.prepare(context, QUIET)
    for source in setting.evaluation:
        text = task.generator.decode(source)
        assert 120 < len(source) <= 128 and text.split()[:3] == ["near", "the", "old"] and text.endswith("river")
    task.prompt = "near " * 200 + "{source}"
    with pytest.raises(RequestError, match="leaves no room for an article in 128 tokens"):
        task.prepare(context, QUIET)


def test_an_article_of_any_length_is_read_by_a_model_with_relative_positions(context, articles, relative_folder):
    [root] = context.data
    (root / articles).write_text(json.dumps({"article": ARTICLE * 3, "highlights": "the old house"}))
    setting = CnnDmSummarization(model=str(relative_folder), files=[articles]).prepare(context, QUIET)
    assert len(setting.evaluation[0]) > 1024 and setting.facts["articles_cut"] == 0


def test_a_summariser_learns_from_leads(context, articles):
    [root] = context.data
    lines = [
        json.dumps({"id": str(n), "text": f"The old house number {n} stands near the river bank .\n" + ARTICLE})
        for n in range(60)
    ]
    (root / "wiki.jsonl").write_text("\n".join(lines))
    task = CnnDmSummarization(
        model="train:tiny-copier", text="wiki.jsonl", files=[articles], limit=20, body_words=40, distilled=False
    )
    setting = task.prepare(context, QUIET)
    assert setting.facts["trained_on"] == "leads of wiki.jsonl: the pairs as they are"
    assert len(setting.training()) > 30


def test_leads_of_documentation_need_no_data(context, copier_folder):
    task = CnnDmSummarization(source="embedded", model=str(copier_folder), evaluation=5, body_words=40, lead_words=20)
    setting = task.prepare(context, QUIET)
    assert len(setting.evaluation) == 5 and setting.facts["data"] == "leads of Python's documentation"
