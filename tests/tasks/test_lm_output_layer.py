"""lm-output-layer on a tiny GPT-2 in the hub's layout: contexts, targets and the layer fit each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, MambaConfig, MambaForCausalLM, PhiConfig, PhiForCausalLM

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.contracts import OutputLayer, TopK
from harness.contracts.tasks import Context, SoftmaxSetting
from harness.plan.registry import construct
from tasks.bases.next_word import entropies
from tasks.data.text.kinds import open_source
from tasks.lm_output_layer import LmOutputLayer, piece_windows
from tasks.models.lm.training import trained_tokenizer
from tasks.models.pretrained import language

SMALL = {"source": "folder", "dataset": "wiki", "contexts": 600, "evaluation": 300, "timed": 40}


@pytest.fixture
def where(tmp_path: Path) -> Context:
    """A WikiText-like folder under a data root."""
    home = tmp_path / "data" / "wiki"
    home.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name, articles in (("train", 12), ("valid", 4), ("test", 6)):
        texts = [
            f" \n = Article {n} = \n \n" + "".join(f" {' '.join(f'w{i}' for i in rng.integers(0, 50, 12))} . \n"
                                                   for _ in range(20))
            for n in range(articles)
        ]  # fmt: skip
        (home / f"{name}.txt").write_text("".join(texts))
    return Context("small", "cpu", 0, (tmp_path / "data",), tmp_path / "cache")


def saved(where: Context, module, folder: Path) -> str:
    """A model in the hub's layout, with a tokenizer of the text."""
    module.save_pretrained(folder)
    cache = Cache(where.cache)
    tokenizer = trained_tokenizer(320, open_source("folder", "wiki", where.data, cache), cache)
    for file in tokenizer.glob("tokenizer*"):
        (folder / file.name).write_bytes(file.read_bytes())
    return str(folder)


@pytest.fixture
def gpt2(where: Context, tmp_path: Path) -> str:
    torch.manual_seed(0)
    config = GPT2Config(n_layer=1, n_embd=16, n_head=2, n_positions=32, vocab_size=320, bos_token_id=0, eos_token_id=0)
    return saved(where, GPT2LMHeadModel(config), tmp_path / "gpt2")


def prepared(where: Context, model: str, **parameters) -> SoftmaxSetting:
    return LmOutputLayer(model=model, **{**SMALL, **parameters}).prepare(where, Progress(quiet=True))


def test_a_setting_holds_layer_contexts_and_next_tokens_that_fit(where, gpt2):
    setting = prepared(where, gpt2)
    assert setting.layer.weight.shape == (320, 16)
    assert setting.layer.bias.dtype == setting.layer.weight.dtype == np.float32
    assert not setting.layer.bias.any()  # GPT-2's output layer has none
    assert 590 < len(setting.contexts) == len(setting.targets) <= 600
    assert 290 < len(setting.evaluation) <= 300
    np.testing.assert_array_equal(setting.timed, setting.evaluation)  # all test contexts, in the order of the text
    assert setting.sample == 40


def test_the_layer_on_the_contexts_gives_the_model_s_own_perplexity(where, gpt2):
    setting = prepared(where, gpt2)
    logits = setting.evaluation @ setting.layer.weight.T
    losses = np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(logits)), setting.evaluation_targets]
    assert np.exp(losses.mean()) == pytest.approx(setting.facts["test_perplexity"], rel=1e-4)


def test_contexts_are_chosen_by_the_entropy_of_their_next_word(where, gpt2):
    every = prepared(where, gpt2)
    probs = torch.log_softmax(torch.from_numpy(every.evaluation @ every.layer.weight.T).double(), 1)
    wanted = -(probs.exp() * probs).sum(1).numpy()
    ordered = np.sort(wanted)
    widest = int(np.diff(ordered[100:200]).argmax()) + 100  # rounding moves none across it
    middle = float(ordered[widest : widest + 2].mean())
    for band, inside in (([0.0, middle], wanted < middle), ([middle, 99.0], wanted >= middle)):
        part = prepared(where, gpt2, entropy=band)
        np.testing.assert_array_equal(part.evaluation, every.evaluation[inside])
        np.testing.assert_array_equal(part.evaluation_targets, every.evaluation_targets[inside])
        np.testing.assert_array_equal(part.timed, part.evaluation)
        asked = prepared(where, gpt2, entropy=band, perplexity=True)
        np.testing.assert_array_equal(asked.timed_targets, part.evaluation_targets)
        answers = [TopK(np.arange(5), np.zeros(5), 0.0)] * len(part.evaluation)
        found = LmOutputLayer(entropy=band).metrics(part, answers)["entropy"].value
        assert found == pytest.approx(wanted[inside].mean(), abs=1e-5)
        assert part.hashes["model"] == every.hashes["model"]
    with pytest.raises(RequestError, match=r"entropy in \[50, 60\) nats; they have"):
        prepared(where, gpt2, entropy=[50.0, 60.0])


@pytest.mark.parametrize("band", [[1.0], [1.0, 0.0], [0.0, 1.0, 2.0]])
def test_bounds_of_the_entropy_that_are_none_are_refused(band):
    with pytest.raises(RequestError, match="lower and a larger upper bound"):
        LmOutputLayer(entropy=band)


def test_a_word_that_is_certain_has_no_entropy_and_one_that_is_impossible_adds_none():
    weight = np.float32([[31.7], [0.3], [-5.0], [0.0]])
    found = entropies(OutputLayer(weight, np.float32([0, 0, 0, -np.inf])), np.float32([[1.0], [0.7], [0.0]]))
    assert (found[:2] >= 0).all() and (found[:2] < 1e-6).all()
    assert found[2] == pytest.approx(np.log(3), abs=1e-6)


def test_between_two_calls_the_model_reads_the_test_text_token_by_token(where, gpt2, monkeypatch):
    first = prepared(where, gpt2)
    with monkeypatch.context() as patch:
        patch.setattr(language, "CausalLM", None)  # would fail if preparing asked for it
        setting = prepared(where, gpt2)
    np.testing.assert_array_equal(first.evaluation, setting.evaluation)
    assert first.hashes == setting.hashes
    step = setting.between()
    read = np.concatenate([step() for _ in range(16)])
    np.testing.assert_allclose(read, setting.timed[16:32], atol=1e-5)  # the second half of the first window
    assert not np.allclose(step(), setting.timed[32], atol=1e-3)  # the next window begins without that context


def test_between_two_batches_the_model_reads_a_token_of_as_many_texts(where, gpt2):
    setting = prepared(where, gpt2, batch=2)
    step = setting.between()
    read = [step() for _ in range(16)]
    assert {contexts.shape for contexts in read} == {(2, 16)}
    np.testing.assert_allclose([contexts[0] for contexts in read], setting.timed[16:32], atol=1e-5)


def test_a_model_with_a_state_in_the_place_of_keys_and_values_reads_on_from_it(where, tmp_path):
    torch.manual_seed(0)
    config = MambaConfig(vocab_size=320, hidden_size=16, num_hidden_layers=1, state_size=4, bos_token_id=0)
    model = saved(where, MambaForCausalLM(config), tmp_path / "mamba")
    setting = prepared(where, model, window=32)
    step = setting.between()
    read = np.concatenate([step() for _ in range(16)])
    np.testing.assert_allclose(read, setting.timed[16:32], atol=1e-5)


def test_half_precision_weights_and_a_bias_become_float32(where, tmp_path):
    torch.manual_seed(0)
    config = PhiConfig(num_hidden_layers=1, hidden_size=16, intermediate_size=32, num_attention_heads=2, vocab_size=320,
                       max_position_embeddings=32, bos_token_id=0, eos_token_id=0)  # fmt: skip
    module = PhiForCausalLM(config)
    torch.nn.init.normal_(module.lm_head.bias)
    setting = prepared(where, saved(where, module.half(), tmp_path / "phi"))
    assert setting.layer.weight.dtype == setting.layer.bias.dtype == setting.evaluation.dtype == np.float32
    np.testing.assert_array_equal(setting.layer.bias, module.lm_head.bias.detach().float().numpy())


def test_impossible_requests_are_refused(where):
    for name in ("contexts", "window", "k"):
        with pytest.raises(RequestError, match=rf"'{name}' .* 1 .*\(given: 0\)"):
            construct(LmOutputLayer, {name: 0})
    with pytest.raises(RequestError, match="perplexity asks for one probability at a time"):
        LmOutputLayer(perplexity=True, batch=4)
    with pytest.raises(RequestError, match="no model folder"):
        prepared(where, "/nowhere/at/all")


@pytest.mark.parametrize(("tokens", "windows"), [(100, 1), (2000, 1), (8192, 2), (30_000, 4), (200_000, 4)])
def test_few_contexts_come_from_short_pieces(tokens, windows):
    assert piece_windows(tokens, 256) == windows
