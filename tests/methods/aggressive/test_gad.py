"""GAD equals greedy decoding token for token whatever its drafter says; GAD++ follows Equations 8 and 9."""

from __future__ import annotations

import random
import runpy
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.common.bandwidth import weights_of
from harness.common.cache import Cache, CellArtifacts
from harness.common.errors import MachineError, RequestError
from harness.common.generate import Constraints
from harness.common.phases import NoPhases
from methods.aggressive import glancing, nar_training, trial
from methods.aggressive.gad import Gad, Nar
from methods.aggressive.nar import NarDrafter
from methods.decoding.engine.engines import engine_of
from methods.decoding.search.decoder import Batch
from methods.decoding.search.greedy import Greedy

TINY = runpy.run_path(str(Path(__file__).parents[1] / "decoding/engine/model_types.py"))
SOURCES = [[5, 6, 7, 8], [9], [10, 10, 10], [11, 12, 13, 14, 15, 16, 17]]


class Untrained(CellArtifacts):
    """Artifacts that hold a drafter over the verifier's weights, saved without training."""

    def __init__(self, folder, model, method):
        super().__init__(Cache(folder))
        self.paths[nar_training.ARTIFACT] = str(folder / "drafter")
        torch.manual_seed(0)
        nar_training.new_drafter(model, method.training()).save_pretrained(folder / "drafter")


def opened(method, model, folder):
    method.open(model, Untrained(folder, model, method))
    return method


def decode(method, model, sources, limit):
    return method.decode(model, sources, limit, NoPhases())


@pytest.fixture
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("drafter")


@settings(deadline=None, max_examples=20, derandomize=True)
@given(
    kind=st.sampled_from(["marian", "bart"]),
    seed=st.integers(0, 10_000),
    sources=st.lists(st.lists(st.integers(0, 38), min_size=1, max_size=9), min_size=1, max_size=4),
    options=st.fixed_dictionaries({"block": st.integers(1, 6), "layers": st.sampled_from([None, 1])})
    | st.fixed_dictionaries({"block": st.integers(1, 6), "own_encoder": st.just(False)})
    | st.fixed_dictionaries({"block": st.integers(1, 6), "width": st.just(24)}),
    limit=st.integers(6, 14),
)  # fmt: skip
def test_gad_is_greedy_for_random_models_and_sources(tiny, tmp_path_factory, kind, seed, sources, options, limit):
    model, folder = tiny.make(kind, seed), tmp_path_factory.mktemp("drafter")
    method = opened(Gad(**options), model, folder)
    greedy = [decoded.ids for decoded in decode(Greedy(), model, sources, limit)]
    together = decode(method, model, sources, limit)
    assert [decoded.ids for decoded in together] == greedy
    for one, source in zip(together, sources, strict=True):
        [alone] = decode(method, model, [source], limit)
        assert (alone.ids, alone.trace.accepted) == (one.ids, one.trace.accepted)
        assert sum(one.trace.accepted) == len(one.ids) and one.trace.iterations <= len(one.ids)
    for settled in ({"beta": 1, "tau": 3.0}, {"beta": 5, "tau": 0.0}):
        found = decode(opened(Gad(**options, **settled), model, folder), model, sources, limit)
        assert [decoded.ids for decoded in found] == greedy


@pytest.mark.parametrize("options", [{}, {"own_encoder": False}, {"width": 24}])
def test_an_output_reads_verifier_and_drafter_in_every_iteration(tiny, folder, options):
    """A small drafter reads little; the verifier's encoder is read once for both."""
    model = tiny.make("bart", 3)
    method, nar = (opened(cls(block=4, **options), model, folder) for cls in (Gad, Nar))
    verifier, drafter = weights_of(model), weights_of(method._drafting)
    [decoded] = decode(method, model, [[5, 9, 11, 30]], 12)
    drafts = sum(map(bool, decoded.trace.drafts))
    encoders = verifier.once + drafter.once * options.get("own_encoder", True)
    expected = encoders + verifier.each_pass * decoded.trace.iterations + drafter.each_pass * drafts
    assert decoded.trace.counters["bytes_read"] == expected and drafts > 1
    [alone] = decode(nar, model, [[5, 9, 11, 30]], 12)
    assert alone.trace.counters["bytes_read"] == drafter.once + drafter.each_pass * alone.trace.iterations


def naive(module, source, start, ends, limit, draft, beta, tau):
    """GAD++ without a cache: every token by a forward pass over all before it. Returns the output, and the places of
    accepted tokens that were not the first choice."""
    output, others = [], []
    while len(output) < limit and not (output and output[-1] in ends):
        proposed, place = draft(output), 0
        while len(output) < limit:
            ids = torch.tensor([[start, *output]])
            logits = module(input_ids=torch.tensor([source]), decoder_input_ids=ids, use_cache=False).logits[0, -1]
            chances = torch.log_softmax(logits, -1)
            best = chances.topk(beta)
            token = proposed[place] if place < len(proposed) and len(output) < limit - 1 else None
            taken = token in best.indices.tolist() and float(best.values[0] - chances[token]) <= tau
            if taken and token != int(best.indices[0]):
                others.append(len(output))
            output.append(token if taken else int(best.indices[0]))
            place += 1
            if not taken or output[-1] in ends:
                break
    return output, others


@pytest.mark.parametrize("method", [Gad(block=4), Gad(block=4, beta=3, tau=2.0), Nar(block=4)])
def test_empty_sources_alone_in_a_batch_and_no_sources_at_all(tiny, folder, method):
    model = tiny.make("marian", 2)
    opened(method, model, folder)
    sources = [[], [5, 6, 7], [], [9]]
    alone = [decode(method, model, [source], 8)[0].ids for source in sources]
    assert [decoded.ids for decoded in decode(method, model, sources, 8)] == alone
    assert [decoded.ids for decoded in decode(method, model, [[], []], 8)] == [alone[0]] * 2  # padding alone
    assert decode(method, model, [], 8) == []


@pytest.mark.parametrize(("beta", "tau"), [(3, 0.5), (3, 2.0), (5, 5.0), (40, 100.0)])
def test_gad_plus_plus_accepts_what_its_equations_say(tiny, folder, beta, tau):
    differing = 0
    for seed in range(6):
        model = tiny.make("marian", seed)
        method = opened(Gad(block=4, beta=beta, tau=tau), model, folder / str(seed))
        for source in SOURCES:
            drafter = method._drafting.module

            def draft(output, drafter=drafter, source=source, model=model):
                return by_module(drafter, source, [model.start_id, *output], 4)

            with torch.inference_mode():
                expected, others = naive(model.module, source, model.start_id, model.eos_ids, 12, draft, beta, tau)
            [found] = decode(method, model, [source], 12)
            assert (found.ids, found.trace.others) == (expected, others)
            differing += expected != decode(Greedy(), model, [source], 12)[0].ids
    assert differing  # else this would be GAD


def by_module(drafter, source, known, block):
    """What the drafter's module writes in place of `block` masks behind `known`."""
    mask = drafter.get_input_embeddings().num_embeddings - 1
    inputs = torch.tensor([[*known, *[mask] * block]])
    everything = torch.ones_like(inputs, dtype=torch.bool)
    batch = glancing.Masked(
        torch.tensor([source]), torch.ones(1, len(source), dtype=torch.long), inputs, inputs, everything, everything
    )
    return whole_logits(drafter, batch)[0, -block:, :mask].argmax(-1).tolist()


def whole_logits(drafter, batch):
    """[n, t, V + 1]"""
    states = drafter.get_encoder()(input_ids=batch.sources, attention_mask=batch.source_real).last_hidden_state
    everywhere = torch.ones_like(batch.real)
    return glancing.logits_of(drafter, batch, batch.inputs, states, everywhere).unflatten(0, batch.inputs.shape)


def test_the_drafter_fills_masks_as_its_module_does(tiny, folder):
    model = tiny.make("bart", 3)
    method = opened(Gad(block=5, layers=1), model, folder)
    engine = engine_of(method._drafting)
    with torch.inference_mode():
        encoded = engine.encode(SOURCES)
        drafter = NarDrafter(engine, encoded, 5, Batch(model, encoded, [], [20] * 4, Constraints()))
        written = [[7, 8], [], [9], [4, 5, 6]]
        for number, ids in enumerate(written):
            drafter.accept(number, ids, 0)
        for outputs in ([0, 1, 2, 3], [0, 2, 3], [3]):
            drafts = drafter.draft(outputs, [20] * len(outputs))
            expected = [by_module(method._drafting.module, SOURCES[n], [2, *written[n]], 5) for n in outputs]
            assert [list(draft) for draft in drafts] == expected


def test_near_the_end_of_its_positions_it_drafts_less(tiny, folder):
    model = tiny.make("marian", 1, ending=-50.0)
    method = opened(Gad(block=30, trained_block=30), model, folder)
    greedy = decode(Greedy(), model, SOURCES[:2], 40)
    assert [len(decoded.ids) for decoded in greedy] == [32, 32]
    assert [d.ids for d in decode(method, model, SOURCES[:2], 40)] == [d.ids for d in greedy]


def test_the_drafter_alone_stops_at_an_end_token_and_at_the_limit(tiny, folder):
    model = tiny.make("marian", 2)
    method = opened(Nar(block=4), model, folder)
    for decoded, source in zip(decode(method, model, SOURCES, 10), SOURCES, strict=True):
        ids: list[int] = []
        while len(ids) < 10 and not set(ids) & set(model.eos_ids):
            ids += by_module(method._drafting.module, source, [model.start_id, *ids], 4)
        stop = next((place + 1 for place, token in enumerate(ids[:10]) if token in model.eos_ids), 10)
        assert decoded.ids == ids[:stop]
        assert sum(decoded.trace.accepted) == len(decoded.ids)
        assert decoded.trace.iterations == len(decoded.trace.accepted)


@pytest.mark.parametrize(
    "demands",
    [
        {"suppress_tokens": list(range(3, 20))},
        {"no_repeat_ngram_size": 1, "forced_eos_token_id": 0},
        {"forced_bos_token_id": 9, "begin_suppress_tokens": [7], "min_new_tokens": 6},
    ],
)
def test_the_drafter_writes_what_the_generation_configuration_allows(tiny, folder, demands):
    model = tiny.make("marian", 4)
    for name, value in demands.items():
        setattr(model.module.generation_config, name, value)
    constraints = Constraints.of(model.module, model.eos_ids)
    gad = decode(opened(Gad(block=4), model, folder), model, SOURCES, 9)
    assert [one.ids for one in gad] == [one.ids for one in decode(Greedy(), model, SOURCES, 9)]
    free = decode(opened(Nar(block=4), tiny.make("marian", 4), folder), tiny.make("marian", 4), SOURCES, 9)
    found = decode(opened(Nar(block=4), model, folder), model, SOURCES, 9)
    assert [one.ids for one in found] != [one.ids for one in free]
    for written in [one.ids for one in found] + [draft for one in gad for draft in one.trace.drafts[:1] if draft]:
        for place, token in enumerate(written):
            scores = torch.zeros(1, model.vocabulary_size)
            constraints.restrict(scores, [([model.start_id], written[:place], 9)])
            assert scores[0, token] == 0


@pytest.mark.parametrize(
    "demands",
    [{"forced_bos_token_id": 9, "forced_eos_token_id": 0}, {"min_new_tokens": 4}, {"no_repeat_ngram_size": 2}],
)
def test_demands_on_positions_hold_in_batches_whose_rows_reach_the_limit_at_different_times(tiny, folder, demands):
    """A row with one token left drafts nothing while another drafts."""
    alone_left = 0
    for seed in range(4):
        model = tiny.make("marian", seed, ending=-1.0)
        for name, value in demands.items():
            setattr(model.module.generation_config, name, value)
        found = decode(opened(Gad(block=3), model, folder), model, SOURCES, 9)
        assert [one.ids for one in found] == [one.ids for one in decode(Greedy(), model, SOURCES, 9)]
        steps = [[sum(one.trace.accepted[:n]) for n in range(one.trace.iterations)] for one in found]
        for done in zip_longest(*steps):
            alone_left += 8 in done and any(other is not None and other < 8 for other in done)
    assert alone_left


@pytest.mark.parametrize("own_encoder", [True, False])
def test_the_drafter_alone_ends_at_its_last_position_and_writes_the_same_in_a_batch(tiny, folder, own_encoder):
    model = tiny.make("marian", 1, ending=-50.0)
    method = opened(Nar(block=6, own_encoder=own_encoder), model, folder)
    together = decode(method, model, SOURCES, 40)
    assert {len(decoded.ids) for decoded in together} == {31}  # the window has 32 positions, and one begins
    for decoded, source in zip(together, SOURCES, strict=True):
        [alone] = decode(method, model, [source], 40)
        assert (alone.ids, alone.trace.accepted) == (decoded.ids, decoded.trace.accepted)


def test_the_drafter_alone_asks_no_verifier(tiny, folder, monkeypatch):
    model = tiny.make("marian", 2)
    method = opened(Nar(block=4), model, folder)

    def asked(*args, **kwargs):
        raise AssertionError("the verifier was asked")

    monkeypatch.setattr(model.module, "forward", asked)
    monkeypatch.setattr(model.module.get_encoder(), "forward", asked)
    assert all(decoded.ids for decoded in decode(method, model, SOURCES, 10))


# ---------------------------------------------------------------- training


def test_a_batch_hides_what_follows_a_prefix():
    pairs = [([5, 6], list(range(10, 19))), ([7], [11, 12])]
    seen = []
    for seed in range(60):
        batch = glancing.masked(pairs, np.random.default_rng(seed), 4, 99, 1, prefixes=2)
        assert len(batch.sources) == 2 and len(batch.inputs) == 4
        for row, inputs in enumerate(batch.inputs):
            target = pairs[row // 2][1]
            inputs = inputs[batch.real[row]].tolist()
            prefix, masks = inputs.index(99) - 1, inputs.count(99)
            seen.append((row // 2, prefix, masks))
            assert inputs == [1, *target[:prefix], *[99] * masks]
            hidden = batch.targets[row][batch.hidden[row]].tolist()
            assert hidden == target[prefix : prefix + masks]
            assert torch.equal(batch.hidden[row].nonzero()[:, 0], 1 + prefix + torch.arange(len(hidden)))
    assert {prefix for pair, prefix, _ in seen if pair == 0} == set(range(9))
    assert {prefix for pair, prefix, _ in seen if pair == 1} == {0, 1}
    assert {masks for *_, masks in seen} == {1, 2, 3, 4}
    begins, whole = (np.mean([one[at] == value for one in seen if one[0] == 0]) for at, value in ((1, 0), (2, 4)))
    assert 0.25 < begins < 0.55 and 0.5 < whole < 0.75  # 0.3 + 0.7 / 9, 0.5 + 0.5 / 4


def test_prefixes_of_one_source_are_learned_as_those_of_several(tiny):
    """The source is encoded once for both."""
    model = tiny.make("marian", 0, dtype=torch.float32)
    drafter = nar_training.new_drafter(model, nar_training.DrafterOptions(dropout=0.0)).eval()
    pairs = [([5, 6], list(range(3, 12))), ([7], [11, 12])]
    batch = glancing.masked(pairs, np.random.default_rng(0), 4, 40, 39, prefixes=3)
    alone = replace(batch, sources=batch.sources.repeat_interleave(3, 0),
                    source_real=batch.source_real.repeat_interleave(3, 0))  # fmt: skip
    loss, right = glancing.held_out_loss(drafter, batch, 40)
    expected, expected_right = glancing.held_out_loss(drafter, alone, 40)
    assert np.allclose(loss, expected, atol=1e-5) and right == expected_right


def test_right_tokens_before_the_first_wrong_one_are_counted(tiny, monkeypatch):
    model = tiny.make("marian", 0, dtype=torch.float32)
    drafter = nar_training.new_drafter(model, nar_training.DrafterOptions(dropout=0.0)).eval()
    batch = glancing.masked(
        [([5], [3, 4, 5, 6])] * 3, np.random.default_rng(0), 4, 40, 39, empty=1.0, whole=1.0
    )  # fmt: skip
    said = torch.tensor([[3, 4, 9, 6], [3, 4, 5, 6], [9, 4, 5, 6]]).flatten()
    answer = torch.nn.functional.one_hot(said, 41).float()
    monkeypatch.setattr(glancing, "logits_of", lambda *given: answer)
    assert glancing.held_out_loss(drafter, batch, 40)[1] == [2, 4, 0]


def test_every_weight_learns_in_mixed_precision(tiny):
    """What is cast without a gradient, to see what is wrong, must not be used again where one is wanted."""
    model = tiny.make("marian", 0, dtype=torch.float32)
    drafter = nar_training.new_drafter(model, nar_training.DrafterOptions(dropout=0.0)).train()
    batch = glancing.masked([([5, 6], list(range(3, 12)))], np.random.default_rng(0), 8, 40, 39)
    batch.shown = 0.5
    with torch.autocast("cpu", torch.bfloat16):
        loss = glancing.glancing_loss(drafter, batch, 40)
    loss.backward()
    still = [name for name, one in drafter.named_parameters() if one.requires_grad and one.grad is None]
    assert not still


def test_glancing_shows_a_share_of_what_is_wrong(tiny):
    model = tiny.make("marian", 0, dtype=torch.float32)
    drafter = nar_training.new_drafter(model, nar_training.DrafterOptions(dropout=0.0))
    pairs = [([5, 6], list(range(start, start + 9))) for start in (3, 10, 20, 30)]
    batch = glancing.masked(pairs, np.random.default_rng(0), 8, 40, 39, empty=1.0, whole=1.0)
    found = whole_logits(drafter, batch)[..., :40].argmax(-1)
    wrong = ((found != batch.targets) & batch.hidden).sum(1)
    assert int(wrong.min()) > 0 and int(wrong.max()) > 4
    asked = []
    hook = drafter.model.decoder.register_forward_pre_hook(
        lambda module, args, kwargs: asked.append(kwargs["input_ids"]), with_kwargs=True
    )
    for share in (0.0, 0.5, 1.0):
        batch.shown = share
        asked.clear()
        glancing.glancing_loss(drafter, batch, 40)
        assert torch.equal(asked[0], batch.inputs)
        shown = asked[1] != batch.inputs
        assert torch.equal(shown.sum(1), (wrong * share).round().long())
        assert torch.equal(asked[1][shown], batch.targets[shown]) and not (shown & ~batch.hidden).any()
    hook.remove()


@pytest.mark.parametrize("own_encoder", [True, False])
def test_a_drafter_learns_what_it_is_trained_on(tiny, tmp_path, own_encoder):
    """Three sentences, by the first token of the source: soon learned, also behind a prefix."""
    model = tiny.make("marian", 0, torch.float32, init_std=0.1)
    wanted = {5: [10, 11, 12, 13, 14, 15, 0], 6: [20, 21, 22, 0], 7: [30, 31, 30, 32, 30, 0]}
    chosen = random.Random(0)
    sources = [[chosen.choice([5, 6, 7]), *chosen.choices(range(8, 39), k=3), 0] for _ in range(300)]
    pairs = [(source, wanted[source[0]]) for source in sources]
    method = Nar(block=4, steps=300, batch_ids=256, learning_rate=5e-3, dropout=0.0, trained_block=4,
                 own_encoder=own_encoder)  # fmt: skip
    artifacts = CellArtifacts(Cache(tmp_path))
    method.fit(model, (), pairs, artifacts)
    method.open(model, artifacts)
    found = decode(method, model, sources[:40], 12)
    assert sum(one.ids == wanted[source[0]] for one, source in zip(found, sources, strict=False)) > 35
    assert max(one.trace.iterations for one in found) <= 3
    sizes = method.counters()
    assert sizes["drafter_bytes"] == 4 * sizes["drafter_parameters"] > 0


# ---------------------------------------------------------------- bad input


def test_a_block_longer_than_the_drafter_learned_is_refused():
    with pytest.raises(RequestError, match=r"block = 30 is more than .*trained_block = 25"):
        Gad(block=30)


def test_a_block_longer_than_any_output_is_refused(tiny, folder):
    model = tiny.make("marian", 0)
    method = opened(Gad(block=9), model, folder)
    with pytest.raises(RequestError, match="block = 9 is longer than any output may be"):
        decode(method, model, SOURCES, 8)
    assert [decoded.ids for decoded in decode(method, model, SOURCES, 0)] == [[]] * 4
    assert decode(method, model, [], 10) == []


def test_a_drafter_of_another_vocabulary_is_refused(tiny, folder):
    model, method = tiny.make("marian", 0), Gad()
    other = replace(tiny.make("marian", 0, vocab_size=44), vocabulary_size=44)
    artifacts = Untrained(folder, other, method)
    with pytest.raises(RequestError, match="has 45 tokens, and tiny with a MASK has 41"):
        method.open(model, artifacts)


def test_a_model_without_such_a_decoder_is_refused(tiny, tmp_path):
    with pytest.raises(RequestError, match="takes over the decoder of a model such as Marian or BART"):
        Gad().fit(tiny.make("t5", 0), (), [([5], [6])], CellArtifacts(Cache(tmp_path)))


@pytest.mark.parametrize(
    ("kind", "cause"),
    [("fsmt", "TypeError"), ("nllb-moe", "AttributeError"), ("mvp", "ValueError"), ("two vocabularies", "IndexError")],
)
def test_a_model_whose_drafter_does_not_run_is_refused_before_training(tiny, tmp_path, kind, cause):
    if kind == "two vocabularies":
        apart = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 44, "tie_word_embeddings": False}
        model = replace(tiny.make("marian", 0, torch.float32, **apart), vocabulary_size=44)
    else:
        model = tiny.Model(TINY["tiny_module"](kind), 2, (2,), 64, vocabulary_size=TINY["VOCABULARY"])
    refused = rf"a drafter of tiny, a \w+, does not run \({cause}: .*such as Marian"
    with pytest.raises(RequestError, match=refused) as raised:
        Gad().fit(model, (), [([5], [6])], CellArtifacts(Cache(tmp_path)))
    assert "\n" not in str(raised.value) and not list(tmp_path.rglob("*.partial/*"))


@pytest.mark.parametrize("error", [MachineError("no device"), MemoryError(), torch.OutOfMemoryError()])
def test_a_lack_of_memory_or_of_a_device_is_not_the_models_fault(tiny, tmp_path, monkeypatch, error):
    def engine_of(_):
        raise error

    monkeypatch.setattr(trial, "engine_of", engine_of)
    with pytest.raises(type(error)) as raised:
        Gad().fit(tiny.make("marian", 0), (), [([5], [6])], CellArtifacts(Cache(tmp_path)))
    assert raised.value is error


def test_a_drafter_that_the_cache_has_is_not_tried_again(tiny, tmp_path, monkeypatch):
    model, pairs = tiny.make("marian", 0, torch.float32), [([5, 0], [6, 7, 0]), ([9, 0], [10, 0])] * 4
    method, artifacts = Nar(block=2, trained_block=2, steps=1, batch_ids=64), CellArtifacts(Cache(tmp_path))
    method.fit(model, (), pairs, artifacts)
    tried = []
    monkeypatch.setattr(trial, "new_drafter", lambda *_: tried.append(1))
    method.fit(model, (), pairs, artifacts)
    assert not tried


def test_pairs_with_an_empty_target_are_left_out(tiny, tmp_path):
    model = tiny.make("marian", 0, torch.float32)
    method, artifacts = Nar(block=2, trained_block=2, steps=3, batch_ids=64), CellArtifacts(Cache(tmp_path))
    method.fit(model, (), [([5, 0], [6, 7, 0]), ([8, 0], []), ([9, 0], [10, 0])] * 4, artifacts)
    with pytest.raises(RequestError, match="no training pair fits the drafter"):
        Nar(block=2, trained_block=2).fit(model, (), [([5], [])], artifacts)


@pytest.mark.parametrize("wrong", [{"width": 18}, {"width": 32, "own_encoder": False}])
def test_a_width_that_does_not_fit_is_refused(tiny, tmp_path, wrong):
    with pytest.raises(RequestError, match="give a multiple of the 4 heads, and own_encoder=true"):
        Gad(**wrong).fit(tiny.make("marian", 0), (), [([5], [6])], CellArtifacts(Cache(tmp_path)))


def test_pairs_that_are_too_long_are_refused(tiny, tmp_path):
    with pytest.raises(RequestError, match="no training pair fits the drafter"):
        Gad(batch_ids=16).fit(tiny.make("marian", 0), (), [([5] * 20, [6] * 20)], CellArtifacts(Cache(tmp_path)))
