"""nmt-beam on an invented language and a translator of seconds: arrays, searched translations, metrics, examples."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from harness.common import sources
from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.contracts import TopK
from harness.contracts.tasks import Context
from harness.plan.registry import construct
from tasks.bases.pool import PASSES
from tasks.data.invented_language import InventedLanguage
from tasks.data.sentences import Vocabulary
from tasks.models.translator import arrays
from tasks.models.translator import model as translator
from tasks.models.translator.sizes import SIZES, Size
from tasks.nmt_beam import NmtBeam

TINY = Size(width=24, dropout=0.0, batch=16, epochs=8, learning_rate=2e-2, warmup=5)
SMALL = {"source": "generated", "model": "tiny", "contexts": 1500, "evaluation": 100, "timed": 60, "beam": 2}


class Exact:
    """The exact softmax of a setting's layer."""

    def __init__(self, layer):
        self.layer = layer

    def topk(self, context, k):
        logits = self.layer.weight @ context + self.layer.bias
        ids = np.argsort(-logits, kind="stable")[:k]
        return TopK(ids, logits[ids], np.logaddexp.reduce(logits))


class Screened(Exact):
    """Gives nothing but the first words a probability."""

    def topk(self, context, k):
        logits = self.layer.weight[:8] @ context + self.layer.bias[:8]
        ids = np.argsort(-logits, kind="stable")[:k]
        return TopK(ids, logits[ids], np.logaddexp.reduce(logits))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        sizes = {"train": 300, "validation": 20, "test": 30}
        patch.setitem(SIZES, "tiny", TINY)
        patch.setattr(NmtBeam, "parallel", lambda *_: InventedLanguage(0, sizes))
        yield tmp_path_factory.mktemp("cache")


@pytest.fixture
def prepare(home):
    def prepared(**parameters):
        task = NmtBeam(**{**SMALL, **parameters})
        return task, task.prepare(Context.here("mini", "cpu", 1, home), Progress(quiet=True))

    return prepared


def test_a_setting_holds_layer_contexts_and_targets_that_fit(prepare):
    _, setting = prepare()
    words, width = setting.layer.weight.shape
    assert width == 24
    assert words == setting.facts["words"] == len(setting.layer.bias)
    assert 1450 < len(setting.contexts) == len(setting.targets) == setting.facts["training_contexts"] <= 1500
    assert setting.evaluation.shape == (100, 24)
    assert setting.timed.shape[1] == 24
    assert setting.sample == 60
    assert setting.k == 5


def test_the_layer_on_the_test_contexts_gives_the_perplexity_stated(prepare):
    _, setting = prepare(evaluation=10_000)
    logits = setting.evaluation @ setting.layer.weight.T + setting.layer.bias
    losses = np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(logits)), setting.evaluation_targets]
    assert np.exp(losses.mean()) == pytest.approx(setting.facts["test_perplexity"], rel=1e-4)


def test_the_exact_softmax_translates_as_the_stored_exact_search(prepare):
    task, setting = prepare()
    measures = task.evaluate(setting, Exact(setting.layer))
    assert measures["same_translations"].low < measures["same_translations"].value == 1
    assert measures["bleu_difference"].value == 0
    assert measures["bleu"].value > 0
    assert task._translations == setting.exact


def test_a_softmax_without_most_words_loses_bleu(prepare):
    task, setting = prepare()
    measures = task.evaluate(setting, Screened(setting.layer))
    assert measures["same_translations"].value < 0.5
    difference = measures["bleu_difference"]
    assert difference.low <= difference.value < 0


def test_examples_are_the_same_sentences_for_every_softmax_with_what_each_makes_of_them(prepare):
    task, setting = prepare(shown=4)
    assert task.examples(setting, None, []) == []  # nothing decoded yet
    shown = []
    for softmax in (Exact(setting.layer), Screened(setting.layer)):
        task.evaluate(setting, softmax)
        shown.append(task.examples(setting, softmax, []))
    exact, screened = shown
    assert len(exact) == 4
    assert [list(example) for example in exact] == [["source", "reference", "output"]] * 4
    for ours, theirs in zip(exact, screened, strict=True):
        place = setting.sources.index(ours["source"])
        assert ours["reference"] == theirs["reference"] == setting.references[place]
        assert ours["output"] == setting.exact[place]
    assert exact != screened


def test_examples_are_first_of_all_sentences_that_the_exact_softmax_translates_otherwise_than_the_reference(prepare):
    task, setting = prepare(shown=3)
    task.evaluate(setting, Exact(setting.layer))
    setting.exact = [other if n in (4, 9) else setting.references[n] for n, other in enumerate(setting.exact)]
    setting.exact[4], setting.exact[9] = "something", "else"
    shown = [setting.sources.index(example["source"]) for example in task.examples(setting, None, [])]
    assert set(shown[:2]) == {4, 9} and len(shown) == 3


@pytest.mark.parametrize("beam", [1, 3])
def test_timed_contexts_are_those_the_exact_search_asks_for_in_its_order(prepare, beam):
    _, setting = prepare(beam=beam, timed=40)
    model, types, _ = translator.load_translator(setting.translator())
    first = int(np.random.default_rng(0).integers(30))
    start = translator.teacher_forced([Vocabulary(types).ids(setting.sources[first])], [[]], "cpu")
    np.testing.assert_allclose(setting.timed[0], model(*start[:2])[0, 0].detach().numpy(), atol=1e-6)
    assert setting.sample == 40
    assert setting.k == 5


def test_the_pool_of_timed_contexts_is_as_large_as_the_passes_need_or_the_search_gives(prepare):
    few, many = prepare(timed=2)[1].timed, prepare(timed=60)[1].timed
    assert len(few) == 2 * PASSES
    np.testing.assert_array_equal(few, many[: len(few)])  # in the order of the search, however many there are
    assert len(few) < len(many) < 60 * PASSES  # 30 sentences have no more
    assert prepare(timed=10**6)[1].sample == len(many)


def test_between_two_calls_the_translator_says_the_exact_translations_word_by_word(prepare, monkeypatch):
    prepare()
    load = translator.load_translator
    monkeypatch.setattr(translator, "load_translator", None)  # would fail if preparing asked for it
    _, setting = prepare()
    monkeypatch.setattr(translator, "load_translator", load)
    model, *types = load(setting.translator())
    left, right = map(Vocabulary, types)
    pairs = [(left.ids(s), right.ids(t)) for s, t in zip(setting.sources[:3], setting.exact[:3], strict=True)]
    expected = {place: found for place, found, _ in translator.decoder_states(model, pairs, Progress(), "")}
    step = setting.between()
    for place in range(3):
        for context_of_word in expected[place]:
            contexts = step()
            assert contexts.shape == (2, 24)  # as many rows as the beam has places
            np.testing.assert_allclose(contexts, np.tile(context_of_word, (2, 1)), atol=1e-5)


def test_preparing_again_opens_the_same_arrays_without_the_model(prepare, monkeypatch):
    _, first = prepare()
    monkeypatch.setattr(translator, "trained_translator", None)  # would fail if it were asked for
    monkeypatch.setattr(InventedLanguage, "pairs", None)
    _, again = prepare()
    np.testing.assert_array_equal(first.evaluation, again.evaluation)
    np.testing.assert_array_equal(first.timed, again.timed)
    assert (first.hashes, first.exact, first.references) == (again.hashes, again.exact, again.references)


def test_a_trained_model_can_be_given_as_a_folder(prepare):
    _, trained = prepare()
    _, given = prepare(model=str(trained.translator()))
    np.testing.assert_array_equal(trained.layer.weight, given.layer.weight)
    assert trained.hashes == given.hashes


def built(home, name):
    return {folder.parent for folder in (home / name).glob("*/key.json")}


@pytest.fixture
def copied(prepare, tmp_path):
    """A copy of the trained model's folder, and a way to write other weights into it."""
    folder = shutil.copytree(prepare()[1].translator(), tmp_path / "model")

    def replace_weights():
        weights = load_file(folder / "model.safetensors")
        save_file(weights | {"output.bias": weights["output.bias"] + 1}, folder / "model.safetensors")

    return folder, replace_weights


def test_other_weights_in_a_given_folder_are_another_model(prepare, copied):
    folder, replace_weights = copied
    _, first = prepare(model=str(folder))
    replace_weights()
    _, second = prepare(model=str(folder))
    np.testing.assert_allclose(second.layer.bias, first.layer.bias + 1, atol=1e-6)
    assert first.hashes["model"] != second.hashes["model"]


def test_a_search_by_another_model_than_that_of_the_contexts_is_refused(prepare, copied):
    folder, replace_weights = copied
    task, setting = prepare(model=str(folder))
    replace_weights()
    with pytest.raises(RequestError, match=r"is not the one whose contexts are in .*; delete"):
        task.evaluate(setting, Exact(setting.layer))


def test_other_timed_contexts_need_no_other_translations(prepare, home, monkeypatch):
    prepare()
    monkeypatch.setattr(arrays, "translations", None)  # would fail if it were asked for
    assert prepare(timed=25)[1].sample == 25
    other = prepare(seed=3)[1].timed
    assert not np.array_equal(other, prepare()[1].timed)


def test_the_search_is_repeated_on_another_device_or_by_other_code(prepare, home):
    prepare()
    records = [json.loads((folder / "key.json").read_text()) for folder in built(home, "translation-search")]
    assert {record["key"]["device"] for record in records} == {"cpu"}
    assert {record["code"] for record in records} == {sources.built_by(NmtBeam)}
    searching = {f"tasks.models.{name}" for name in ("beam_search", "translator.decoding", "translator.arrays")}
    assert searching <= set(sources.closure("tasks.nmt_beam"))


def test_the_search_runs_on_the_device_of_the_setting(prepare, monkeypatch):
    task, setting = prepare()
    asked, load = [], translator.load_translator
    monkeypatch.setattr(translator, "load_translator", lambda *at: asked.append(at[1:]) or load(at[0]))
    setting.device = "cuda:7"
    task.evaluate(setting, Exact(setting.layer))
    assert asked == [("cuda:7",)]


def test_facts_name_the_search_the_bleu_and_the_curve(prepare):
    task, setting = prepare()
    facts = setting.facts
    assert (facts["beam"], facts["longest"], facts["length_penalty"]) == (2, 100, 1.0)
    assert "tok:13a" in facts["bleu_signature"]
    curve = task.series(setting, [])["model_validation_perplexity"]
    assert len(curve) == TINY.epochs == len(facts["validation_perplexity_by_epoch"].split())


def test_impossible_parameters_are_refused(prepare):
    for wrong, message in (
        ({"beam": 0}, "'beam' .* 1 .*given: 0"),
        ({"limit": 0}, "'limit' .* 1 .*given: 0"),
        ({"timed": 0}, "'timed' .* 1 .*given: 0"),
        ({"vocabulary": 2}, "'vocabulary' .* 3 .*given: 2"),
        ({"seed": -1}, "'seed' .* 0 .*given: -1"),
        ({"length_penalty": float("nan")}, "'length_penalty' .* finite number"),
        ({"length_penalty": float("inf")}, "'length_penalty' .* finite number"),
        ({"languages": "german"}, "must be SOURCE-TARGET"),
    ):
        with pytest.raises(RequestError, match=message):
            construct(NmtBeam, wrong)
    with pytest.raises(RequestError, match="did you mean 'nmt-500'"):
        prepare(model="nmt-50")
