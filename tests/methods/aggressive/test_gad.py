"""GAD equals greedy decoding token for token whatever its drafter says; GAD++ follows Equations 8 and 9."""

from __future__ import annotations

import runpy
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.common.cache import Cache, CellArtifacts
from harness.common.errors import RequestError
from harness.common.generate import Constraints
from harness.common.phases import NoPhases
from methods.aggressive import glancing, nar_training
from methods.aggressive.gad import Gad, Nar
from methods.aggressive.markov import MarkovHead, detach_head
from methods.aggressive.nar import NarDrafter
from methods.bandwidth import weights_of
from methods.decoding.engine.engines import engine_of
from methods.decoding.engine.selection import CANDIDATES
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
        drafter = nar_training.new_drafter(model, method.training())
        if method.markov_rank:
            drafter.markov = MarkovHead(model.vocabulary_size + 1, method.markov_rank)
            torch.nn.init.normal_(drafter.markov.after.weight)
            (folder / "drafter").mkdir(parents=True, exist_ok=True)
            detach_head(drafter, folder / "drafter")
        drafter.save_pretrained(folder / "drafter")


def opened(method, model, folder):
    method.open(model, Untrained(folder, model, method))
    return method


def decode(method, model, sources, limit):
    return method.decode(model, sources, limit, NoPhases())


@pytest.fixture
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("drafter")


@settings(deadline=None, max_examples=10, derandomize=True)
@given(
    kind=st.sampled_from(["marian", "bart"]),
    seed=st.integers(0, 10_000),
    sources=st.lists(st.lists(st.integers(0, 38), min_size=1, max_size=9), min_size=1, max_size=4),
    options=st.fixed_dictionaries({"block": st.integers(1, 6), "layers": st.sampled_from([None, 1])})
    | st.fixed_dictionaries({"block": st.integers(1, 6), "own_encoder": st.just(False)})
    | st.fixed_dictionaries({"block": st.integers(1, 6), "width": st.just(24)})
    | st.fixed_dictionaries({"block": st.integers(1, 6), "markov_rank": st.just(3), "confidence": st.just(0.2)}),
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
    once = verifier.once + (drafter.once if options.get("own_encoder", True) else drafter.sources)
    expected = once + verifier.each_pass * decoded.trace.iterations + drafter.each_pass * drafts
    assert decoded.trace.counters["bytes_read"] == expected and drafts > 1
    [alone] = decode(nar, model, [[5, 9, 11, 30]], 12)
    assert alone.trace.counters["bytes_read"] == drafter.once + drafter.each_pass * alone.trace.iterations


def test_the_drafter_alone_opens_one_session(tiny, folder, monkeypatch):
    model = tiny.make("bart", 3)
    nar, count = opened(Nar(block=4), model, folder), []
    opens = type(nar._drafting_engine).open
    monkeypatch.setattr(type(nar._drafting_engine), "open", lambda *given: count.append(1) or opens(*given))
    decode(nar, model, [[5, 9, 11, 30]], 12)
    assert len(count) == 1


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
    """What the drafter's module writes in place of `block` masks after `known`."""
    return logits_by_module(drafter, source, known, block).argmax(-1).tolist()


def logits_by_module(drafter, source, known, block):
    """[block, V]"""
    mask = drafter.get_input_embeddings().num_embeddings - 1
    inputs = torch.tensor([[*known, *[mask] * block]])
    everything = torch.ones_like(inputs, dtype=torch.bool)
    batch = glancing.Masked(
        torch.tensor([source]), torch.ones(1, len(source), dtype=torch.long), inputs, inputs, everything, everything
    )
    return whole_logits(drafter, batch)[0, -block:, :mask]


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
        limits = [20] * 4
        batch = Batch(model, encoded, [], limits, Constraints())
        drafter = NarDrafter(engine.open(encoded, limits), 5, batch, method._head)
        written = [[7, 8], [], [9], [4, 5, 6]]
        for number, ids in enumerate(written):
            drafter.accept(number, ids, 0)
        for outputs in ([0, 1, 2, 3], [0, 2, 3], [3]):
            drafts = drafter.draft(outputs, [20] * len(outputs))
            expected = [by_module(method._drafting.module, SOURCES[n], [2, *written[n]], 5) for n in outputs]
            assert [list(draft) for draft in drafts] == expected


@pytest.mark.parametrize("rank", [None, 3])
@pytest.mark.parametrize("confidence", [0.0, 0.01, 0.9])
def test_a_token_depends_on_the_one_before_and_a_block_ends_where_confidence_falls(tiny, folder, rank, confidence):
    model = tiny.make("marian", 3, init_std=0.3)
    method = opened(Gad(block=5, markov_rank=rank, confidence=confidence), model, folder)
    before, after = method._head
    with torch.inference_mode():
        encoded = method._drafting_engine.encode(SOURCES)
        drafter = method.drafter(Batch(model, encoded, [], [20] * 4, Constraints()), NoPhases())
        written, lengths, plain = [[], [], [], []], [], []
        for outputs in ([0, 1, 2, 3], [0, 2, 3]):
            drafts = drafter.draft(outputs, [20] * len(outputs))
            for number, draft in zip(outputs, drafts, strict=True):
                known = [model.start_id, *written[number]]
                logits, chance = logits_by_module(method._drafting.module, SOURCES[number], known, 5), 1.0
                for row in logits:
                    best = row.topk(CANDIDATES)
                    scores = best.values + torch.from_numpy(after[best.indices] @ before[known[-1]])
                    chance *= float(scores.softmax(0).max())
                    if len(known) > 1 + len(written[number]) and chance < confidence:
                        break
                    known.append(int(best.indices[scores.argmax()]))
                assert list(draft) == known[1 + len(written[number]) :]
                lengths.append(len(draft))
                plain.append(list(draft) == logits.argmax(-1).tolist()[: len(draft)])
            written = [[7, 8], [], [9], [4, 5, 6]]
            for number, ids in enumerate(written):
                drafter.accept(number, ids, 0)
    assert all(plain) == (rank is None)
    assert {0.0: set(lengths) == {5}, 0.01: 7 < sum(lengths) < 35, 0.9: set(lengths) == {1}}[confidence]


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
    for seed, rank in ((0, None), (1, None), (2, 3), (3, 3)):
        model = tiny.make("marian", seed, ending=-1.0)
        for name, value in demands.items():
            setattr(model.module.generation_config, name, value)
        found = decode(opened(Gad(block=3, markov_rank=rank), model, folder), model, SOURCES, 9)
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
