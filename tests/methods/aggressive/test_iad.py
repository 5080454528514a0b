"""IAD equals greedy decoding token for token, in float64, and drafts really get accepted."""

from __future__ import annotations

import random
from collections import Counter
from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.common.phases import NoPhases
from harness.contracts.answers import NEAR_TIE
from methods.aggressive.iad import Iad, InputGuided
from methods.aggressive.suffix import SuffixMatch
from methods.decoding.search.greedy import Greedy

KINDS = ["marian", "bart", "t5", "umt5", "gpt2"]


def check(model, sources, limit, **parameters):
    """IAD alone and in a batch against greedy search; the traces of the batch, for what a test wants to see in them."""
    greedy = [decoded.ids for decoded in Greedy().decode(model, sources, limit, NoPhases())]
    batch = Iad(**parameters).decode(model, sources, limit, NoPhases())
    alone = [Iad(**parameters).decode(model, [source], limit, NoPhases())[0] for source in sources]
    for wanted, together, single in zip(greedy, batch, alone, strict=True):
        assert together.ids == wanted == single.ids
        trace = together.trace
        assert trace.accepted == single.trace.accepted
        assert sum(trace.accepted) == len(wanted)
        assert trace.iterations == len(trace.accepted) <= len(wanted) + 1
    return batch


def sources_like(outputs, seed):
    """Sources that share pieces with what the model writes, so that drafts are accepted in part."""
    chosen = random.Random(seed)
    mixed = []
    for output in outputs:
        cut = chosen.randrange(len(output) + 1)
        mixed.append([*output[:cut], *[chosen.randrange(3, 39) for _ in range(chosen.randrange(3))], *output[cut:]])
    return mixed


@settings(deadline=None, max_examples=20, derandomize=True)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10_000),
    sources=st.lists(st.lists(st.integers(0, 39), min_size=1, max_size=20), min_size=1, max_size=4),
    limit=st.integers(0, 14),
)
def test_iad_is_greedy_for_random_models_and_sources(tiny, kind, seed, sources, limit):
    check(tiny.make(kind, seed), sources, limit)


@settings(deadline=None, max_examples=15, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    noise=st.sampled_from([0.0, 0.5, 1.0, 1.5]),
    sources=st.lists(st.lists(st.integers(3, 39), max_size=24), min_size=1, max_size=6),
    limit=st.integers(0, 30),
    block=st.sampled_from([None, 0, 1, 3]),
)
def test_iad_is_greedy_for_a_model_that_copies_with_errors(tiny, seed, noise, sources, limit, block):
    check(tiny.copier(seed, noise), [[*source, 2] for source in sources], limit, block=block)


@pytest.mark.parametrize("kind", ["marian", "bart", "gpt2"])
@pytest.mark.parametrize(
    "source", [[], [7], [7] * 12, [7, 8] * 8, list(range(3, 31)), [39, 0, 2, 1]], ids=lambda source: f"{len(source)}"
)
def test_odd_sources(tiny, kind, source):
    for limit in (0, 1, 2, 9):
        check(tiny.make(kind, 1), [source, [5, 6], source], limit)


@pytest.mark.parametrize("kind", KINDS)
def test_sources_that_share_pieces_with_the_output(tiny, kind):
    for seed in range(4):
        model = tiny.make(kind, seed)
        outputs = [d.ids for d in Greedy().decode(model, [[5 + seed, 6], [9]], 10, NoPhases())]
        check(model, sources_like(outputs, seed), 12)


def drafted(decoded):
    """Tokens drafted in each iteration."""
    return [len(draft) for draft in decoded.trace.drafts]


def seen(decoded_many, ends):
    """How often each kind of iteration happened."""
    kinds = Counter()
    for decoded in decoded_many:
        for accepted, length in zip(decoded.trace.accepted, drafted(decoded), strict=True):
            kinds[
                "ordinary"
                if not length
                else "whole"
                if accepted == length + 1
                else "partial"
                if accepted > 1
                else "none"
            ] += 1
        if decoded.ids[-1] in ends and decoded.trace.accepted[-1] > 1:
            kinds["end in a block"] += 1
    return kinds


def test_every_kind_of_iteration_happens(tiny):
    model, chosen = tiny.copier(3, 1.0), random.Random(0)
    sources = [[*[chosen.randrange(3, 39) for _ in range(chosen.randrange(1, 20))], 2] for _ in range(32)]
    kinds = seen(check(model, sources, 30), {2})
    assert min(kinds[kind] for kind in ("ordinary", "whole", "partial", "none", "end in a block")) >= 3, kinds


def test_a_source_without_errors_takes_one_iteration(tiny):
    model, source = tiny.copier(5, 0.0, replaced=0), [9, 8, 7, 30, 31, 2]
    [decoded] = Iad().decode(model, [source], 20, NoPhases())
    assert decoded.ids == source
    assert decoded.trace.accepted == [6]
    assert decoded.trace.drafts == [source[:-1]]  # the end token is the model's own, not drafted
    assert decoded.trace.counters["near_ties"] == 0


def test_after_a_correction_the_draft_resumes_where_the_source_goes_on(tiny):
    model = tiny.copier(5, 0.0, replaced=1)
    tokens = range(3, 40)
    wrong = [token for token in tokens if Greedy().decode(model, [[token, 2]], 4, NoPhases())[0].ids[0] != token]
    right = [token for token in tokens if token not in wrong]
    source = [*right[:8], wrong[0], *right[8:16], 2]
    [decoded] = Iad().decode(model, [source], 30, NoPhases())
    place = source.index(wrong[0])
    # up to and including the correction; then tokens one by one until one of them occurs once in the source; the rest
    assert decoded.trace.accepted[0] == place + 1
    assert decoded.trace.accepted[-1] > 1 and decoded.trace.iterations <= 4
    assert [a == b for a, b in zip(source, decoded.ids, strict=True)].count(False) == 1


def test_a_trace_does_not_depend_on_what_was_decoded_before(tiny):
    stranger = tiny.copier(5, 0.0, replaced=0, shift=18)
    sources = [[*range(3 + n, 11 + n), 2] for n in range(4)]
    method = Iad()
    traces = [method.decode(stranger, [source], 20, NoPhases())[0].trace for source in sources]
    assert traces == [Iad().decode(stranger, [source], 20, NoPhases())[0].trace for source in sources]
    assert [sum(map(len, trace.drafts)) for trace in traces] == [8] * 4


@pytest.mark.parametrize("noise", [0.0, 0.9])
def test_a_draft_is_all_that_follows_the_one_place_where_the_output_ends_whatever_failed_before(tiny, noise):
    model, chosen = tiny.copier(3, noise), random.Random(0)
    sources = [[*chosen.sample(range(3, 40), 16), 2] for _ in range(16)]
    tested = 0
    for source, decoded in zip(sources, check(model, sources, 30), strict=True):
        lengths, match, at = drafted(decoded), SuffixMatch(source, framed=True), 0
        for accepted, length in zip(decoded.trace.accepted, lengths, strict=True):
            place = match.unique()
            assert length == (len(source) - 1 - place if place is not None and place < len(source) else 0)
            match.extend(decoded.ids[at : at + accepted])
            at, tested = at + accepted, tested + 1
    assert tested > 30


@pytest.mark.parametrize("batch", [1, 3])
def test_a_source_vocabulary_of_its_own(tiny, batch):
    """Marian with separate embeddings: ids that the decoder does not know are cut from drafts."""
    changes = {"vocab_size": 60, "decoder_vocab_size": 40, "share_encoder_decoder_embeddings": False}
    model = tiny.make("marian", 1, tie_word_embeddings=False, **changes)
    sources = [[50, 51, 3], [5, 59, 6, 7], [4, 5, 6, 40, 0]][:batch]
    assert [drafted(d)[0] for d in check(model, sources, 10)] == [0, 1, 3][:batch]


def test_a_causal_prompt_is_the_source(tiny):
    """A prompt that holds the model's own continuation is drafted after the first ordinary step."""
    iterations = tokens = 0
    for seed in range(12):
        model = tiny.make("gpt2", seed)
        [output] = Greedy().decode(model, [[5, 6, 7]], 20, NoPhases())
        [decoded] = check(model, [output.ids], 20)
        assert decoded.trace.drafts[0] == []
        iterations, tokens = iterations + decoded.trace.iterations, tokens + len(decoded.ids)
    assert iterations < tokens


def test_drafts_have_ten_tokens_in_a_causal_model_unless_another_length_is_given(tiny):
    model, prompt = tiny.causal_copier(0, 20, replaced=0), [*range(3, 23)]
    for block, longest in ((None, 10), (0, 18), (4, 4)):
        [decoded] = Iad(block=block).decode(model, [prompt], 20, NoPhases())
        assert max(map(len, decoded.trace.drafts)) == longest


def test_a_fork_goes_on_by_itself():
    drafter = InputGuided([[5, 6, 7, 8, 9]], {2}, framed=False)
    drafter.accept(0, [6], 0)
    fork = drafter.fork()
    fork.accept(0, [7], 0)
    assert [list(draft) for draft in fork.draft([0], [9])] == [[8, 9]]
    assert [list(draft) for draft in drafter.draft([0], [9])] == [[7, 8, 9]]


def test_float32_differs_from_greedy_at_near_ties_only(tiny):
    near_ties = 0
    for seed in range(10):
        model, chosen = tiny.twins(seed, 1e-7), random.Random(seed)
        sources = [[*[chosen.randrange(3, 39) for _ in range(12)], 2] for _ in range(8)]
        greedy, iad = Greedy().decode(model, sources, 20, NoPhases()), Iad()
        for source, ours, theirs in zip(sources, iad.decode(model, sources, 20, NoPhases()), greedy, strict=True):
            assert ours.ids == theirs.ids or iad.gap(model, source, ours.ids, theirs.ids, 20) <= NEAR_TIE
            near_ties += ours.trace.counters["near_ties"]
    assert near_ties > 100


def test_near_ties_are_counted_and_the_gap_at_a_difference_is_the_models(tiny):
    model, iad, source = tiny.make("marian", 0, ending=0.0), Iad(), [5, 6, 7]
    [greedy] = Greedy().decode(model, [source], 6, NoPhases())
    other = [*greedy.ids[:3], (greedy.ids[3] + 1) % 40, *greedy.ids[4:]]
    with torch.no_grad():
        starts = [model.start_id, *other[:-1]]
        logits = model.module(torch.tensor([source]), decoder_input_ids=torch.tensor([starts])).logits[0, 3:]
    gap = max(float(row.max() - row[token]) for row, token in zip(logits, other[3:], strict=True))
    assert iad.gap(model, source, other, greedy.ids, 6) == pytest.approx(gap, abs=1e-9)
    assert iad.gap(model, source, greedy.ids[:3], greedy.ids, 6) == float("inf")  # it stopped without an end token
    assert iad.gap(model, source, other, greedy.ids, 6) > NEAR_TIE
    model.module = deepcopy(model.module)  # an engine of its own
    with torch.no_grad():  # two output rows that are the same: every token of theirs is a tie
        model.module.config.tie_word_embeddings = False
        head = model.module.lm_head.weight.clone()
        head[(greedy.ids[0] + 1) % 40] = head[greedy.ids[0]]
        model.module.lm_head.weight = torch.nn.Parameter(head)
    [decoded] = check(model, [source], 6)
    assert decoded.trace.counters["near_ties"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["marian", "bart", "t5", "umt5", "gpt2", "copier"])
def test_iad_is_greedy_on_two_thousand_random_pairs(tiny, kind):
    """Pairs of a model and a source, in batches of 1 to 8."""
    pairs = seed = 0
    while pairs < 2000:
        seed += 1
        chosen = random.Random(seed)
        model = tiny.copier(seed, chosen.choice([0.3, 0.8, 1.2])) if kind == "copier" else tiny.make(kind, seed)
        shortest = 1 if kind == "umt5" else 0
        sources = [
            [chosen.randrange(0, 40) for _ in range(chosen.randrange(shortest, 20))] + [2] * (kind == "copier")
            for _ in range(chosen.randrange(1, 9))
        ]
        check(model, sources, chosen.randrange(1, 24))
        pairs += len(sources)
