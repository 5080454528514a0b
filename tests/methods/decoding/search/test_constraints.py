"""What a generation configuration demands, against `generate` of transformers under the module's own configuration."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
import torch

from harness.common.phases import NoPhases
from methods.aggressive.iad import Iad
from methods.decoding.peers.generate import TransformersBeam, TransformersGreedy
from methods.decoding.search.beam import Beam
from methods.decoding.search.greedy import Greedy

KINDS = ["marian", "bart", "t5", "umt5", "gpt2"]
SETTINGS = [
    {"forced_bos_token_id": 7},
    {"forced_eos_token_id": "end"},
    {"begin_suppress_tokens": "common"},
    {"begin_suppress_tokens": "common", "forced_bos_token_id": 7},
    {"min_length": 9},
    {"min_new_tokens": 6},
    {"min_new_tokens": 3, "min_length": 11},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3, "min_length": 7, "bad_words_ids": [[5]], "suppress_tokens": [6]},
    {"forced_bos_token_id": 7, "forced_eos_token_id": "end", "no_repeat_ngram_size": 2, "min_new_tokens": 9},
    {"max_new_tokens": 5},
    {"max_length": 11, "forced_eos_token_id": "end"},
]


def outputs(method, model, sources, limit=12):
    return [decoded.ids for decoded in method.decode(model, sources, limit, NoPhases())]


def reference(model, source, limit=12, **search):
    """The output of the module's own `generate`, which reads the module's own configuration."""
    own = model.module.generation_config
    given = {} if own.max_length or own.max_new_tokens else {"max_new_tokens": limit}
    ids = torch.tensor([source])
    [answer] = model.module.generate(ids, attention_mask=torch.ones_like(ids), **given, **search).tolist()
    return answer[len(source) if model.kind == "causal" else 1 :]


def restricted(tiny, kind, seed, settings):
    """A random model whose generation configuration has these settings, some sources, and the tokens that it writes for
    them without the settings."""
    model, chosen = tiny.make(kind, seed, ending=3.0), random.Random(seed)
    sources = [[chosen.randrange(3, 39) for _ in range(chosen.randrange(1, 10))] for _ in range(3)]
    free = [token for ids in outputs(Greedy(), model, sources) for token in ids]
    if seed % 2 and model.eos_ids[0] not in free:  # a token that the model writes early becomes its end
        model.eos_ids = (free[1],)
        model.module.generation_config.eos_token_id = free[1]
        free = [token for ids in outputs(Greedy(), model, sources) for token in ids]
    named = {"end": model.eos_ids[0], "common": [max(set(free), key=free.count), model.eos_ids[0]]}
    for name, value in settings.items():
        value = named[value] if isinstance(value, str) else value
        setattr(model.module.generation_config, name, value)
    return model, sources, free


def combinations():
    """Every setting with an encoder-decoder and a causal model; all kinds with settings that are several at once. The
    rest is slow: what a setting forbids does not depend on the kind."""
    for settings in SETTINGS:
        for kind in KINDS:
            quick = kind in ("marian", "gpt2") or len(settings) > 2
            name = f"{kind}-{'+'.join(settings)}"
            yield pytest.param(kind, settings, id=name, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize(("kind", "settings"), combinations())
def test_every_decoder_honours_what_generate_does(tiny, kind, settings):
    changed = 0
    for seed in range(2):
        model, sources, free = restricted(tiny, kind, seed, settings)
        greedy = [reference(model, source) for source in sources]
        assert outputs(TransformersGreedy(), model, sources) == greedy
        assert outputs(Greedy(), model, sources) == greedy
        assert [outputs(Greedy(), model, [source])[0] for source in sources] == greedy
        assert outputs(Iad(), model, sources) == greedy
        beam = [reference(model, source, num_beams=3) for source in sources]
        assert [outputs(TransformersBeam(beam=3), model, [source])[0] for source in sources] == beam
        assert outputs(Beam(beam=3), model, sources) == beam
        changed += [token for ids in greedy for token in ids] != free
    # a first token is forced upon sequences of one token, and prompts are longer
    assert changed or (kind == "gpt2" and settings == {"forced_bos_token_id": 7})


@pytest.mark.parametrize("kind", ["bart", "gpt2"])
def test_drafts_are_verified_under_the_constraints(tiny, kind):
    """Copies of a source with a repeated pair, which may not be repeated."""
    model = tiny.copier(1, 0.0, places=48) if kind == "bart" else tiny.causal_copier(1, 12)
    model.module.generation_config.no_repeat_ngram_size = 2
    source = [5, 6, 7, 8, 5, 6, 9, 10, 11, 5, 6, 12]
    [ours] = Iad().decode(model, [source], 14, NoPhases())
    [wanted] = outputs(TransformersGreedy(), model, [source], 14)
    assert ours.ids == wanted == outputs(Greedy(), model, [source], 14)[0] == reference(model, source, 14)
    pairs = list(pairwise(wanted))
    assert len(pairs) == len(set(pairs))
    model.module.generation_config.no_repeat_ngram_size = None
    assert outputs(Greedy(), model, [source], 14) != [wanted]


def test_a_beams_score_is_that_of_the_free_model_where_tokens_are_suppressed(tiny):
    """Masked after the softmax, what is left keeps its probability, so that other beams win than masked before."""
    different = 0
    for seed in range(12):
        model, sources, free = restricted(tiny, "bart", seed, {})
        model.module.generation_config.suppress_tokens = sorted(set(free), key=free.count)[-3:]
        theirs = [reference(model, source, num_beams=4) for source in sources]
        assert outputs(Beam(beam=4), model, sources) == theirs
        model.module.final_logits_bias[0, model.module.generation_config.suppress_tokens] = -1e9
        different += [reference(model, source, num_beams=4) for source in sources] != theirs
    assert different
