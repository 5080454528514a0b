"""Greedy and beam search against `generate` of transformers, alone and in batches."""

from __future__ import annotations

import random
import runpy
from pathlib import Path

import pytest
import torch

from harness.common.errors import RequestError
from harness.common.phases import NoPhases
from methods.aggressive.iad import Iad
from methods.bandwidth import weights_of
from methods.decoding.engine.session import without
from methods.decoding.peers.generate import (
    TransformersBeam,
    TransformersGreedy,
    TransformersPromptLookup,
    TransformersSourceLookup,
)
from methods.decoding.search.beam import Beam
from methods.decoding.search.greedy import Greedy

KINDS = ["marian", "bart", "t5", "umt5", "gpt2"]


def outputs(method, model, sources, limit=12):
    return [decoded.ids for decoded in method.decode(model, sources, limit, NoPhases())]


def some_sources(seed, count=5, shortest=1):
    chosen = random.Random(seed)
    return [[chosen.randrange(3, 39) for _ in range(chosen.randrange(shortest, 10))] for _ in range(count)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_greedy_is_transformers_greedy_alone_and_in_a_batch(tiny, kind, seed):
    model, sources, theirs = tiny.make(kind, seed), some_sources(seed), []
    for source in sources:
        [answer], calls = spied(model, TransformersGreedy(), [source])
        assert answer.trace.iterations == calls == len(answer.ids) and answer.trace.accepted == []
        theirs.append(answer.ids)
    assert [outputs(Greedy(), model, [source])[0] for source in sources] == theirs
    assert outputs(Greedy(), model, sources) == theirs == outputs(TransformersGreedy(), model, sources)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("beam", "length_penalty", "early_stopping"), [(5, 1.0, False), (2, 0.0, False), (5, 2.0, True)]
)
def test_beam_is_transformers_beam_alone_and_in_a_batch(tiny, kind, beam, length_penalty, early_stopping):
    settings = {"beam": beam, "length_penalty": length_penalty, "early_stopping": early_stopping}
    model, sources = tiny.make(kind, beam), some_sources(beam)
    theirs = [outputs(TransformersBeam(**settings), model, [source])[0] for source in sources]
    assert [outputs(Beam(**settings), model, [source])[0] for source in sources] == theirs
    assert outputs(Beam(**settings), model, sources) == theirs


@pytest.mark.parametrize("kind", ["bart", "t5", "gpt2"])
@pytest.mark.parametrize("method", [Greedy(), Beam(beam=3)])
def test_an_output_reads_the_decoder_once_a_step_and_a_batch_shares_the_reading(tiny, kind, method):
    model, sources = tiny.make(kind, 1), some_sources(3, count=4)
    weights = weights_of(model)
    once, each = weights.once, weights.each_pass
    alone = [method.decode(model, [source], 12, NoPhases())[0] for source in sources]
    assert [one.trace.counters["bytes_read"] for one in alone] == [once + each * one.trace.iterations for one in alone]
    together = method.decode(model, sources, 12, NoPhases())
    longest = max(one.trace.iterations for one in together)
    assert {one.trace.counters["bytes_read"] for one in together} == {(once + each * longest) / 4}


def test_in_int8_the_bytes_depend_on_the_block_and_are_left_out(tiny):
    [decoded] = Greedy(engine="int8").decode(tiny.make("bart", 1, torch.float32), [[5, 6, 7]], 6, NoPhases())
    assert "bytes_read" not in decoded.trace.counters


@pytest.mark.parametrize("kind", KINDS)
def test_a_beam_of_one_is_greedy_search(tiny, kind):
    model, sources = tiny.make(kind, 1), some_sources(1)
    assert outputs(Beam(beam=1), model, sources) == outputs(Greedy(), model, sources)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ngram", [1, 3])
def test_source_lookup_is_lossless(tiny, kind, ngram):
    for seed in range(3):
        model, sources = tiny.make(kind, seed), some_sources(seed)
        peer = TransformersSourceLookup(ngram=ngram)
        assert outputs(peer, model, sources) == outputs(Greedy(), model, sources)
    assert "_get_candidate_generator" not in vars(model.module)


def test_source_lookup_drafts_what_the_source_has(tiny):
    model = tiny.copier(1, 0.0)
    sources = [[*source, 2] for source in some_sources(1, count=8, shortest=5)]
    answers, calls = spied(model, TransformersSourceLookup(), sources, 20)
    assert [answer.ids for answer in answers] == outputs(Greedy(), model, sources, 20)
    assert sum(answer.trace.iterations for answer in answers) == calls
    assert calls < 0.6 * sum(len(answer.ids) for answer in answers)
    shorter, _ = spied(model, TransformersSourceLookup(tokens=2), sources, 20)
    assert max(count for answer in shorter for count in answer.trace.accepted) == 3


def spied(model, method, sources, limit=12):
    """What a method answers, and the forward calls counted from outside, at the output layer's input."""
    calls = []
    handle = model.module.get_output_embeddings().register_forward_hook(lambda *_: calls.append(1))
    answers = method.decode(model, sources, limit, NoPhases())
    handle.remove()
    return answers, len(calls)


def test_sentences_that_end_early_leave_the_batch_and_peers_report_the_calls_of_the_batch(tiny):
    model = tiny.copier(1, 0.5)
    sources = [[*source, 2] for source in some_sources(1, count=8)]
    theirs = [outputs(TransformersBeam(), model, [source], 20)[0] for source in sources]
    assert outputs(Beam(), model, sources, 20) == theirs
    answers, calls = spied(model, TransformersGreedy(), sources, 20)
    assert outputs(Greedy(), model, sources, 20) == [answer.ids for answer in answers]
    lengths = [len(answer.ids) for answer in answers]
    assert len(set(lengths)) > 3
    assert {answer.trace.iterations for answer in answers} == {calls} == {max(lengths)}
    answers, calls = spied(model, TransformersBeam(beam=3), sources, 20)
    assert {answer.trace.iterations for answer in answers} == {calls}
    assert calls >= max(len(answer.ids) for answer in answers)  # beams that lost may have been longer


def test_prompt_lookup_reports_fewer_calls_than_tokens_where_its_drafts_hold(tiny):
    model = tiny.make("gpt2", 1)
    model.eos_ids = ()
    prompts = [[7] * 8, [5, 6, 7, 8] * 3]
    answers, calls = spied(model, TransformersPromptLookup(tokens=4), prompts, 20)
    assert sum(answer.trace.iterations for answer in answers) == calls < sum(len(answer.ids) for answer in answers)
    for answer in answers:
        assert len(answer.trace.accepted) == answer.trace.iterations
        assert sum(answer.trace.accepted) == len(answer.ids) == 20
        assert min(answer.trace.accepted) >= 1
    assert max(count for answer in answers for count in answer.trace.accepted) > 1


@pytest.mark.parametrize("kind", ["marian", "t5", "gpt2"])
@pytest.mark.parametrize("seed", range(3))
def test_prompt_lookup_is_lossless_and_its_accepted_tokens_are_the_outputs(tiny, kind, seed):
    model, sources = tiny.make(kind, seed), some_sources(seed)
    answers, calls = spied(model, TransformersPromptLookup(), sources)
    assert [answer.ids for answer in answers] == outputs(Greedy(), model, sources)
    assert sum(answer.trace.iterations for answer in answers) == calls
    for answer in answers:
        assert len(answer.trace.accepted) == answer.trace.iterations
        assert sum(answer.trace.accepted) == len(answer.ids)


def test_counting_leaves_no_hooks_and_nothing_of_what_was_not_run(tiny):
    model = tiny.make("marian", 0)
    for method in (TransformersGreedy(), TransformersPromptLookup()):
        [answer] = method.decode(model, [[3]], 0, NoPhases())
        assert (answer.ids, answer.trace.iterations) == ([], 0)
        method.decode(model, [[3]], 4, NoPhases())
    assert not any(module._forward_hooks for module in model.module.modules())


def test_the_models_own_generation_configuration_stays_as_it_was(tiny):
    model = tiny.make("bart", 0)
    before = model.module.generation_config.to_dict()
    outputs(TransformersBeam(), model, some_sources(0))
    assert model.module.generation_config.to_dict() == before


@pytest.mark.parametrize("kind", ["bart", "gpt2"])
def test_suppressed_tokens_never_appear_in_ours_or_theirs(tiny, kind):
    model, sources = tiny.make(kind, 3), some_sources(3)
    free = outputs(Greedy(), model, sources)
    common = max({token for ids in free for token in ids}, key=lambda token: sum(ids.count(token) for ids in free))
    model.module.generation_config.bad_words_ids = [[common], [5, 6]]
    ours = outputs(Greedy(), model, sources)
    assert ours != free and all(common not in ids for ids in ours)
    assert ours == outputs(TransformersGreedy(), model, sources)
    assert outputs(Beam(), model, sources) == [outputs(TransformersBeam(), model, [source])[0] for source in sources]


@pytest.mark.parametrize("kind", ["marian", "bart"])
def test_an_empty_source_decodes_the_same_alone_and_in_a_batch(tiny, kind):
    model = tiny.make(kind, 0)
    batch = outputs(Greedy(), model, [[], [5, 6], []])
    assert batch[0] == batch[2] == outputs(Greedy(), model, [[]])[0] and batch[0]
    assert batch[1] == outputs(Greedy(), model, [[5, 6]])[0]


def test_an_empty_prompt_is_the_start_token(tiny):
    model = tiny.make("gpt2", 0)
    assert outputs(Greedy(), model, [[]]) == outputs(Greedy(), model, [[model.start_id]])


def test_an_encoder_that_needs_tokens_says_so(tiny):
    with pytest.raises(RequestError, match="empty source"):
        outputs(Greedy(), tiny.make("umt5", 0), [[]])


METHODS = [Greedy(), Beam(), Iad(), TransformersGreedy(), TransformersBeam(), TransformersPromptLookup()]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
@pytest.mark.parametrize("kind", ["marian", "gpt2"])
def test_bad_requests_are_one_line(tiny, method, kind):
    model = tiny.make(kind, 0)
    for sources, limit, words in (
        ([[3], [4, 99]], 5, "source 1 has token 99, outside the vocabulary"),
        ([[-1]], 5, "token -1"),
        ([[3] * 60], 5, "60 tokens and tiny takes"),
        ([[3]], -1, "limit of -1"),
    ):
        with pytest.raises(RequestError, match=words) as caught:
            outputs(method, model, sources, limit)
        assert "\n" not in str(caught.value)
    assert outputs(method, model, [[3], [4]], 0) == [[], []]
    assert [len(ids) for ids in outputs(method, model, [[3], [4]], 1)] == [1, 1]
    assert outputs(method, model, [], 5) == []


@pytest.mark.parametrize("method", METHODS[:-1], ids=lambda method: type(method).__name__)
def test_a_causal_output_stops_at_the_models_window(tiny, method):
    model = tiny.make("gpt2", 1)
    model.eos_ids = ()
    prompts = [[5] * 48, [6] * 40, [7], [8]]
    assert [len(ids) for ids in outputs(method, model, prompts, 100)] == [1, 9, 48, 48]


def test_prompt_lookup_says_when_its_drafts_leave_the_models_window(tiny):
    model = tiny.make("gpt2", 1)
    model.eos_ids = ()
    [ids] = outputs(TransformersPromptLookup(), model, [[6] * 30], 8)
    assert ids == outputs(Greedy(), model, [[6] * 30], 8)[0]
    with pytest.raises(RequestError, match="past the window of tiny"):
        outputs(TransformersPromptLookup(), model, [[7]], 100)


@pytest.mark.parametrize("method", [TransformersGreedy(), TransformersBeam(), TransformersPromptLookup()])
def test_peers_refuse_an_empty_source_and_start_an_empty_prompt(tiny, method):
    for sources in ([[]], [[5, 6], []]):
        with pytest.raises(RequestError, match=f"source {len(sources) - 1} is empty"):
            outputs(method, tiny.make("marian", 0), sources)
    model = tiny.make("gpt2", 0)
    ours = Beam() if isinstance(method, TransformersBeam) else Greedy()
    for sources in ([[]], [[], [5, 6]], [[5]]):
        assert outputs(method, model, sources) == outputs(ours, model, sources)


def test_prompts_of_different_lengths_give_logits_of_their_last_tokens_only(tiny):
    model, positions, method = tiny.make("gpt2", 0), [], Greedy()
    types = runpy.run_path(str(Path(__file__).parents[1] / "engine/model_types.py"))
    model.module = types["tiny_module"]("opt")  # whose own pass decodes
    method.engine_of(model)  # its self-check passes before we look
    model.module.lm_head.register_forward_pre_hook(lambda module, inputs: positions.append(inputs[0].shape[1]))
    prompts = [[5] * 30, [6] * 4, [7] * 4, [8] * 30]
    together = outputs(method, model, prompts, 6)
    assert positions[0] == 2 and set(positions[1:]) == {1}
    assert together == [outputs(Greedy(), model, [prompt], 6)[0] for prompt in prompts]


def test_rows_that_stay_keep_their_places_where_they_can():
    assert without([1], 4) == [0, 3, 2]
    assert without([3, 0], 4) == [2, 1]
    assert without([0, 1], 2) == []


@pytest.mark.parametrize("kind", ["marian", "gpt2"])
def test_logits_that_are_no_numbers_are_refused(tiny, kind):
    model = tiny.make(kind, 0)
    methods = [Greedy(), Beam(), Iad()]
    for method in methods:
        method.engine_of(model)  # while they are
        with torch.no_grad():
            method.engine_of(model).head.transposed[:, 7] = float("nan")
        with pytest.raises(RequestError, match=r"the logits of tiny are not finite numbers after \d+ tokens"):
            outputs(method, model, [[5, 6, 7]])
        with torch.no_grad():
            method.engine_of(model).head.transposed[:, 7] = 0.0
    with torch.no_grad():
        model.module.get_output_embeddings().weight[7] = float("nan")
    with pytest.raises(RequestError, match="the logits of tiny are not finite numbers after 1 tokens"):
        outputs(TransformersGreedy(), model, [[5]], 1)


@pytest.mark.parametrize("method", [Greedy(), Beam(), Iad(), TransformersGreedy()])
@pytest.mark.parametrize(("forced", "name"), [("forced_bos_token_id", "suppress_tokens"), ("forced_eos_token_id", "")])
def test_a_configuration_that_forces_a_token_and_forbids_it_is_refused(tiny, method, forced, name):
    model = tiny.make("marian", 0)
    setattr(model.module.generation_config, forced, 9)
    assert outputs(method, model, [[5, 6, 7]], 4)
    setattr(model.module.generation_config, name or "bad_words_ids", [9] if name else [[9]])
    with pytest.raises(RequestError, match=rf"of tiny forces token 9 \({forced}\) and forbids it"):
        outputs(method, model, [[5, 6, 7]], 4)


def test_a_configuration_that_forbids_every_token_says_so(tiny):
    model = tiny.make("marian", 0)
    model.module.generation_config.suppress_tokens = list(range(model.vocabulary_size))
    with pytest.raises(RequestError, match="its generation configuration forbids every token"):
        outputs(Greedy(), model, [[5, 6, 7]], 4)


def test_a_t5_with_more_layers_in_its_decoder_is_decoded_here_and_refused_where_transformers_fails(tiny):
    model, source = tiny.make("t5", 1, num_decoder_layers=4), [5, 6, 7]
    wanted = []
    with torch.no_grad():
        while len(wanted) < 6 and not (wanted and wanted[-1] in model.eos_ids):
            given = torch.tensor([[model.start_id, *wanted]])
            logits = model.module(torch.tensor([source]), decoder_input_ids=given, use_cache=False).logits
            wanted.append(int(logits[0, -1].argmax()))
    assert outputs(Greedy(), model, [source], 6) == outputs(Beam(beam=1), model, [source], 6) == [wanted]
    with pytest.raises(RequestError, match=r"`generate` of transformers fails on tiny, .* type 't5': IndexError"):
        outputs(TransformersGreedy(), model, [source], 6)
