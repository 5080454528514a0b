"""ptb-next-word on small folders of text: data found, fallback, arrays, metrics, and a method on top."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.contracts import TopK
from harness.contracts.tasks import Context
from harness.plan import expansion
from harness.plan import recipe as recipes
from harness.plan.registry import Registry, construct
from tasks.bases.next_word import exact_log_probs
from tasks.models.lstm import model as lstm
from tasks.models.lstm.sizes import SIZES, Size
from tasks.ptb_next_word import PtbNextWord

TINY = Size(width=16, dropout=0.0, initial=0.1, batch=4, bptt=8, epochs=3, steady=2, decay=2, clip=5)
SMALL = {"model": "tiny", "contexts": 2000, "evaluation": 100, "timed": 30}


def write(root, name, prefix=""):
    rng = np.random.default_rng(0)
    (root / name).mkdir(parents=True)
    for split, lines in (("train", 600), ("valid", 80), ("test", 60)):
        rows = [" ".join(f"w{(start + j) % 30}" for j in range(6)) for start in rng.integers(0, 30, lines)]
        (root / name / f"{prefix}{split}.txt").write_text("\n".join(rows) + "\n")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """data/ptb, and a cache that has what was once trained on it or on other data of a test."""
    home = tmp_path_factory.mktemp("home")
    write(home / "data", "ptb", "ptb.")
    return home


@pytest.fixture
def prepare(home, monkeypatch):
    monkeypatch.setitem(SIZES, "tiny", TINY)

    def prepared(data=home / "data", **parameters):
        monkeypatch.setenv("HARNESS_DATA", str(data))
        where = Context.here("small", "cpu", 0, home / "cache")
        return PtbNextWord(**{**SMALL, **parameters}).prepare(where, Progress(quiet=True))

    return prepared


@pytest.fixture
def trained(prepare, home):
    """The folder of the model that `prepare` trains."""
    weight = prepare().layer.weight
    folders = [file.parent for file in (home / "cache" / "word-lstm").glob("*/config.json")]
    [folder] = [one for one in folders if np.array_equal(load_file(one / "model.safetensors")["output.weight"], weight)]
    return folder


def test_a_setting_holds_layer_contexts_and_targets_that_fit(prepare):
    setting = prepare()
    assert setting.facts["data"] == "Penn Treebank"
    assert setting.layer.weight.shape == (32, 16)  # 30 words, <eos>, <unk>
    assert setting.contexts.shape == (2000, 16)
    assert setting.targets.shape == (2000,)
    assert setting.evaluation.shape == (100, 16)
    assert (setting.timed.shape, setting.sample) == ((419, 16), 30)  # all test contexts, of which a pass gets 30
    assert prepare(timed=1000).sample == 419
    assert (setting.batch, prepare(batch=8).batch) == (1, 8)


def test_the_layer_on_the_test_contexts_gives_the_perplexity_stated(prepare):
    setting = prepare(evaluation=10_000)  # all 419 of them
    logits = setting.evaluation @ setting.layer.weight.T + setting.layer.bias
    losses = np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(logits)), setting.evaluation_targets]
    assert len(losses) == setting.facts["evaluated"] == 419
    assert np.exp(losses.mean()) == pytest.approx(setting.facts["test_perplexity"], rel=1e-4)
    ours = exact_log_probs(setting.layer, setting.evaluation, setting.evaluation_targets)
    np.testing.assert_allclose(ours, -losses, atol=1e-5)


def test_without_penn_treebank_the_fallback_is_used_and_named(prepare, tmp_path):
    write(tmp_path, "wikitext-2")
    setting = prepare(tmp_path, vocabulary=20)
    assert setting.facts["data"] == "wikitext-2 cut to 20 types (no Penn Treebank at hand)"
    assert len(setting.layer.weight) == 20


def test_the_data_of_mini_is_called_what_the_papers_numbers_ask_for(tmp_path):
    recipe = recipes.load("l2s-table1", Registry())
    cell = next(cell for cell in expansion.expand(recipe, "mini", Registry()) if cell.kind == "pair")
    task = PtbNextWord(**cell.task.params)
    _, label = task._open(Context.here("mini", "cpu", 0, tmp_path), Cache(tmp_path))
    assert label in recipe.published_where["data"]


def test_the_same_text_under_both_names_has_the_same_content_hash_but_not_the_same_label(prepare, tmp_path):
    write(tmp_path, "wikitext-2")
    fallback, treebank = prepare(tmp_path), prepare()
    assert fallback.hashes["data"] == treebank.hashes["data"]
    assert fallback.facts["data"] != treebank.facts["data"]


def test_without_any_data_the_error_says_where_it_was_looked_for(prepare, tmp_path):
    with pytest.raises(RequestError, match=r"neither ptb/ .* nor wikitext-2/ is in .*absent"):
        prepare(tmp_path / "absent")


def test_a_trained_model_can_be_given_as_a_folder(prepare, trained):
    given = prepare(model=str(trained))
    np.testing.assert_array_equal(prepare().layer.weight, given.layer.weight)
    assert prepare().hashes["model"] == given.hashes["model"]


def test_other_weights_in_a_given_folder_are_another_model(prepare, trained, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "model")
    first = prepare(model=str(copy))
    weights = load_file(copy / "model.safetensors")
    save_file(weights | {"output.bias": weights["output.bias"] + 1}, copy / "model.safetensors")
    np.testing.assert_allclose(prepare(model=str(copy)).layer.bias, first.layer.bias + 1, atol=1e-6)
    (copy / "model.safetensors").write_bytes((copy / "model.safetensors").read_bytes()[:100])
    with pytest.raises(RequestError, match="is not an LSTM trained here"):
        prepare(model=str(copy))


def test_a_text_that_is_too_short_is_refused(prepare, trained, tmp_path):
    write(tmp_path, "ptb", "ptb.")
    (tmp_path / "ptb" / "ptb.train.txt").write_text("w1 w2\n")
    with pytest.raises(RequestError, match="the train split of ptb has 3 words, fewer than the 40 needed"):
        prepare(tmp_path, model=str(trained))


def test_accuracy_counts_the_true_next_word_among_the_answers(prepare):
    setting = prepare()
    truth = setting.evaluation_targets
    answers = [TopK(np.array([t if i % 2 else (t + 1) % 32, (t + 2) % 32, t if i % 4 == 0 else (t + 3) % 32]),
                    np.zeros(3, np.float32), 0.0) for i, t in enumerate(truth)]  # fmt: skip
    setting.k = 3
    measures = PtbNextWord(**SMALL).metrics(setting, answers)
    assert measures["accuracy_at_1"].value == 0.5
    assert measures["accuracy_at_3"].value == 0.75
    assert measures["model_perplexity"].value == setting.facts["test_perplexity"]


class Uniform:
    """Gives every word the same probability, or none to some."""

    def __init__(self, none_below=0):
        self.none_below = none_below

    def log_prob(self, context, target):
        return -np.inf if target < self.none_below else -np.log(32)


def test_perplexity_is_asked_of_the_method_and_left_out_where_words_have_no_probability(prepare):
    setting = prepare()
    assert PtbNextWord(**SMALL).evaluate(setting, Uniform()) == {}
    task = PtbNextWord(**SMALL, perplexity=True)
    measures = task.evaluate(setting, Uniform())
    assert measures["perplexity"].value == pytest.approx(32)
    assert measures["coverage"].low < measures["coverage"].value == 1
    assert measures["perplexity_ratio"].value == pytest.approx(
        32 / np.exp(-exact_log_probs(setting.layer, setting.evaluation, setting.evaluation_targets).mean())
    )
    partial = task.evaluate(setting, Uniform(none_below=10))
    assert "perplexity" not in partial
    assert partial["coverage"].value == (setting.evaluation_targets >= 10).mean()


def test_with_perplexity_the_true_next_words_of_the_timed_contexts_are_asked_for(prepare):
    plain, asked = prepare(), prepare(perplexity=True, evaluation=10_000)
    assert plain.timed_targets is None
    np.testing.assert_array_equal(asked.timed, asked.evaluation)  # all of them, in the order of the text
    np.testing.assert_array_equal(asked.timed_targets, asked.evaluation_targets)


def test_between_two_calls_the_lstm_reads_the_test_text_word_by_word(prepare):
    setting = prepare()
    step = setting.between()
    read = np.concatenate([step() for _ in range(419)])
    np.testing.assert_allclose(read, setting.timed, atol=1e-5)
    step()  # of the last word, which nothing follows
    np.testing.assert_allclose(step(), read[:1], atol=1e-6)  # at the end it starts again


def test_between_two_batches_it_reads_a_word_of_as_many_pieces(prepare):
    setting = prepare(batch=3)
    step = setting.between()
    read = [step() for _ in range(140)]  # a third of the 420 words
    assert read[0].shape == (3, 16)
    np.testing.assert_allclose([contexts[0] for contexts in read], setting.timed[:140], atol=1e-5)
    assert not np.allclose(read[5][0], read[5][1])


def test_preparing_again_opens_the_same_arrays_and_the_model_when_a_step_is_asked_for(prepare, monkeypatch):
    first = prepare()
    with monkeypatch.context() as patch:
        for name in ("trained_lstm", "load_lstm"):
            patch.setattr(lstm, name, None)  # would fail if it were asked for
        setting = prepare()
    np.testing.assert_array_equal(first.evaluation, setting.evaluation)
    assert first.hashes == setting.hashes
    np.testing.assert_allclose(setting.between()(), setting.timed[:1], atol=1e-5)


def test_preparing_again_needs_no_torch(prepare, trained, home):
    prepare(model=str(trained))
    program = (
        "import sys; from pathlib import Path; from harness.contracts.tasks import Context; "
        "from harness.common.progress import Progress; from tasks.ptb_next_word import PtbNextWord; "
        f"task = PtbNextWord(**{ {**SMALL, 'model': str(trained)} }); "
        f"where = Context.here('small', 'cpu', 0, Path({str(home / 'cache')!r})); "
        "setting = task.prepare(where, Progress(quiet=True)); "
        "print('torch' in sys.modules, len(setting.timed))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["False", "419"]


def test_a_step_of_another_model_than_that_of_the_contexts_is_refused(prepare, trained, tmp_path):
    folder = shutil.copytree(trained, tmp_path / "model")
    setting = prepare(model=str(folder))
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"output.bias": weights["output.bias"] + 1}, folder / "model.safetensors")
    with pytest.raises(RequestError, match=r"is not the one whose contexts are in .*; delete"):
        setting.between()


def test_the_curve_of_the_model_is_a_fact_and_a_series(prepare):
    setting = prepare()
    curve = PtbNextWord(**SMALL).series(setting, [])["model_validation_perplexity"]
    assert len(curve) == TINY.epochs
    assert setting.facts["validation_perplexity_by_epoch"].split()[-1] == f"{curve[-1]:.1f}"


def test_a_model_of_another_size_is_another_setting(prepare, monkeypatch):
    first = prepare()
    monkeypatch.setitem(SIZES, "tiny", replace(TINY, width=8))
    assert first.layer.weight.shape[1] == 16
    assert prepare().layer.weight.shape[1] == 8


def test_an_unknown_model_is_refused_with_the_nearest_name(prepare):
    with pytest.raises(RequestError, match="did you mean 'ptb-small'"):
        prepare(model="ptb-smal")


def test_impossible_parameters_are_refused():
    for wrong, least in (({"evaluation": 0}, 1), ({"contexts": 5}, 20), ({"vocabulary": 9}, 10), ({"seed": -1}, 0)):
        [name] = wrong
        with pytest.raises(RequestError, match=f"'{name}' .* {least} "):
            construct(PtbNextWord, wrong)
    with pytest.raises(RequestError, match="one probability at a time, given batch=32"):
        PtbNextWord(perplexity=True, batch=32)
