"""Every type of model that docs/decoding.md names: decoded as the module decodes without a cache, or refused."""

from __future__ import annotations

import random
import re
import runpy
from pathlib import Path

import pytest
import torch

from harness.common.errors import RequestError
from harness.common.phases import NoPhases
from methods.aggressive.iad import Iad
from methods.decoding.engine.generic import GenericEngine
from methods.decoding.search.greedy import Greedy
from tasks.models.pretrained.generation import TextGenerator

HERE = Path(__file__)
TYPES = runpy.run_path(str(HERE.with_name("model_types.py")))
LIMIT = 12


def documented():
    """Type -> engine and rows, as the table in the docs has them."""
    found = {}
    page = (HERE.parents[4] / "docs/decoding.md").read_text()
    for line in re.findall(r"^\| ((?:lean|the module|refused).*) \|$", page, re.MULTILINE):
        engine, rows, names = (cell.strip() for cell in line.split("|"))
        found |= dict.fromkeys(re.sub(r" \([^)]*\)", "", names).split(", "), (engine, rows))
    return found


DOCUMENTED = documented()


def without_cache(model, source):
    """Greedy decoding, the whole sequence anew for every token."""
    ids = []
    while len(ids) < LIMIT and not (ids and ids[-1] in model.eos_ids):
        if model.kind == "causal":
            given = {"input_ids": torch.tensor([[*source, *ids]])}
        else:
            given = {"input_ids": torch.tensor([source]), "decoder_input_ids": torch.tensor([[model.start_id, *ids]])}
        with torch.inference_mode():
            ids.append(int(model.module(**given, use_cache=False).logits[0, -1].argmax()))
    return ids


def decoded(method, model, sources):
    return [answer.ids for answer in method.decode(model, sources, LIMIT, NoPhases())]


def test_the_docs_name_many_types():
    assert len(DOCUMENTED) > 100


# quick: windows in ragged batches, a cache that is never written, a model that only the datastore cannot read
QUICK = ("mistral", "gpt_neo", "openai-gpt", "gemma2")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in QUICK else pytest.mark.slow) for kind in sorted(DOCUMENTED)]
)
def test_a_type_is_decoded_rightly_or_refused(kind):
    engine, rows = DOCUMENTED[kind]
    model = TextGenerator(TYPES["tiny_module"](kind), name="tiny", hash_of_weights="none")
    chosen, method = random.Random(1), Greedy()
    sources = [[chosen.randrange(3, 59) for _ in range(length)] for length in (9, 1, 5, 9)]
    if engine == "refused":
        with pytest.raises(RequestError, match=f"'{kind}'|without a key-value cache"):
            method.engine_of(model)
        return
    made = method.engine_of(model)
    assert (isinstance(made, GenericEngine), made.ragged) == (engine != "lean", rows == "of different lengths")
    wanted = [without_cache(model, source) for source in sources]
    assert decoded(method, model, sources) == wanted
    assert [decoded(method, model, [source])[0] for source in sources] == wanted
    assert decoded(Iad(), model, sources) == wanted


@pytest.mark.parametrize(
    ("kind", "places"),
    [("camembert", 127), ("roberta", 127), ("xlm-roberta", 127), ("led", 128), ("mpt", 128), ("gpt2", 128)],
)
def test_an_output_ends_where_the_models_positions_do(kind, places):
    model = TextGenerator(TYPES["tiny_module"](kind), name="tiny", hash_of_weights="none")
    model.eos_ids = ()
    assert model.window == places
    prompt, room = (places - 8, 9) if model.kind == "causal" else (8, places)
    [answer] = Greedy().decode(model, [[5] * prompt], 200, NoPhases())
    assert len(answer.ids) == room


@pytest.mark.parametrize("method", [Greedy, Iad])
def test_a_text_whose_positions_change_with_its_length_is_decoded_on_one_side_of_the_change(method):
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 4, "long_factor": [3.0, 6, 12, 24]}
    shape = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4, "sliding_window": None}
    module = TYPES["tiny_module"]("phi3", rope_parameters=rope, original_max_position_embeddings=48, **shape)
    model = TextGenerator(module, name="tiny", hash_of_weights="none")
    model.eos_ids = ()
    chosen = random.Random(1)
    short, long, crossing = ([chosen.randrange(3, 59) for _ in range(n)] for n in (48 - LIMIT + 1, 49, 48 - LIMIT + 2))
    for sources in ([short], [long], [long, short]):
        assert decoded(method(), model, sources) == [without_cache(model, source) for source in sources]
    with pytest.raises(RequestError, match=rf"more than 48 tokens \(longrope\).* limit outputs to {LIMIT - 1} tokens"):
        method().decode(model, [long, crossing], LIMIT, NoPhases())


def test_fsmt_in_float16_is_decoded_by_its_module():
    model = TextGenerator(TYPES["tiny_module"]("fsmt").half(), name="tiny", hash_of_weights="none")
    model.eos_ids, method = (), Greedy()
    assert isinstance(method.engine_of(model), GenericEngine)
    assert [len(ids) for ids in decoded(method, model, [[5, 6, 7], [8]])] == [LIMIT] * 2


def test_a_module_that_fails_without_a_cache_is_refused_for_that():
    model = TextGenerator(TYPES["tiny_module"]("fsmt").double(), name="tiny", hash_of_weights="none")
    with pytest.raises(RequestError, match="'fsmt' in float64 does not run, even without a key-value") as caught:
        Greedy().engine_of(model)
    assert "\n" not in str(caught.value)
