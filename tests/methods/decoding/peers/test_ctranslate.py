"""CTranslate2 on the same weights."""

from __future__ import annotations

import random

import pytest
import torch

from harness.common.cache import Cache, CellArtifacts
from harness.common.errors import RequestError
from harness.common.phases import NoPhases
from harness.plan.registry import construct
from methods.decoding.peers.ctranslate import CTranslate2
from methods.decoding.search.beam import Beam
from methods.decoding.search.greedy import Greedy

pytest.importorskip("ctranslate2")


def random_model(tiny, kind, seed):
    """float32, with as many heads in encoder and decoder."""
    model = tiny.make(kind, seed, torch.float32, decoder_attention_heads=2)
    if kind == "marian":  # its start token reads as other tokens do: models that are trained here have such
        model.module.generation_config.bad_words_ids = [[39]]
    chosen = random.Random(seed)
    return model, [[chosen.randrange(3, 38) for _ in range(chosen.randrange(1, 10))] for _ in range(5)]


def outputs(method, model, sources, limit=12):
    return [answer.ids for answer in method.decode(model, sources, limit, NoPhases())]


def ready(method, model, folder):
    artifacts = CellArtifacts(Cache(folder))
    method.fit(model, (), (), artifacts)
    method.open(model, artifacts)
    return method


@pytest.mark.parametrize("kind", ["marian", "bart"])
@pytest.mark.parametrize("seed", range(3))
def test_its_greedy_search_is_ours(tiny, kind, seed, tmp_path):
    model, sources = random_model(tiny, kind, seed)
    peer = ready(CTranslate2(), model, tmp_path)
    wanted = outputs(Greedy(), model, sources)
    assert outputs(peer, model, sources) == wanted
    assert [outputs(peer, model, [source])[0] for source in sources] == wanted
    assert [answer.trace.iterations for answer in peer.decode(model, sources, 12, NoPhases())] == [0] * 5


@pytest.mark.parametrize("compute", ["float32", "int8"])
@pytest.mark.parametrize("kind", ["marian", "bart"])
def test_converting_leaves_the_model_as_it_was(tiny, kind, compute, tmp_path):
    """The process that converts also decodes with the model."""
    model, _ = random_model(tiny, kind, 0)
    weights = {name: weight.clone() for name, weight in model.module.state_dict().items()}
    settings = model.module.config.to_dict()
    ready(CTranslate2(compute=compute), model, tmp_path)
    assert all(torch.equal(weight, weights[name]) for name, weight in model.module.state_dict().items())
    assert model.module.config.to_dict() == settings


def test_its_beams_are_ours_if_both_stop_early(tiny, tmp_path):
    same = {True: 0, False: 0}
    for kind in ("marian", "bart"):
        for seed in range(3):
            model, sources = random_model(tiny, kind, seed)
            (tmp_path / f"{kind}{seed}").mkdir()
            found = outputs(ready(CTranslate2(beam=4), model, tmp_path / f"{kind}{seed}"), model, sources)
            for early in same:
                wanted = outputs(Beam(beam=4, early_stopping=early), model, sources)
                same[early] += sum(ours == theirs for ours, theirs in zip(found, wanted, strict=True))
    assert same[True] == 30 > same[False]


def test_int8_is_another_file_and_decodes(tiny, tmp_path):
    model, sources = random_model(tiny, "bart", 1)
    (tmp_path / "int8").mkdir()
    peer = ready(CTranslate2(compute="int8"), model, tmp_path / "int8")
    full = ready(CTranslate2(), model, tmp_path)
    sizes = [next(folder.glob("ctranslate2/*/model.bin")).stat().st_size for folder in (tmp_path / "int8", tmp_path)]
    assert sizes[0] < sizes[1]
    assert all(outputs(peer, model, sources)) and all(outputs(full, model, sources))


def test_it_takes_the_threads_of_the_row_or_its_own(tiny, tmp_path):
    model, sources = random_model(tiny, "bart", 2)
    peers = [ready(CTranslate2(intra_threads=own), model, part(tmp_path, own)) for own in (None, 1)]
    assert [peer.threads for peer in peers] == [torch.get_num_threads(), 1]
    assert outputs(peers[0], model, sources) == outputs(peers[1], model, sources)
    with pytest.raises(RequestError, match="intra_threads"):
        construct(CTranslate2, {"intra_threads": 0})


def test_a_batch_divided_among_translations_has_the_same_outputs(tiny, tmp_path):
    model, sources = random_model(tiny, "bart", 2)
    peers = [ready(CTranslate2(inter_threads=count), model, part(tmp_path, count)) for count in (1, 2)]
    assert outputs(peers[1], model, sources) == outputs(peers[0], model, sources)
    assert peers[1].threads == max(1, torch.get_num_threads() // 2)


def part(folder, name):
    (folder / str(name)).mkdir()
    return folder / str(name)


def test_it_starts_with_the_token_that_ours_starts_with(tiny, tmp_path):
    """The generation configuration's, where the model's own configuration names another."""
    model, sources = random_model(tiny, "bart", 1)
    before = outputs(Greedy(), model, sources)
    model.start_id = 7
    wanted = outputs(Greedy(), model, sources)
    assert wanted != before
    assert outputs(ready(CTranslate2(), model, tmp_path), model, sources) == wanted


@pytest.mark.parametrize(
    ("change", "kind", "because"),
    [
        ({}, "bart", "more heads in one half"),
        ({}, "t5", "is of type t5, and .* bart and marian"),
        ({"decoder_attention_heads": 2, "activation_function": "tanh"}, "bart", "does not know 'tanh'"),
    ],
)
def test_a_model_that_it_does_not_convert_is_refused(change, kind, because, tiny, tmp_path):
    with pytest.raises(RequestError, match=rf"{because}.*: leave CTranslate2 out"):
        ready(CTranslate2(), tiny.make(kind, 0, torch.float32, **change), tmp_path)


def test_numbers_that_it_does_not_read_and_a_missing_end_are_refused(tiny, tmp_path):
    wide = tiny.make("bart", 0, torch.float64, decoder_attention_heads=2)
    with pytest.raises(RequestError, match=r"weights in float64.*task\.dtype=float32"):
        ready(CTranslate2(), wide, part(tmp_path, "wide"))
    endless, _ = random_model(tiny, "bart", 0)
    endless.eos_ids = ()
    with pytest.raises(RequestError, match="has no end token"):
        ready(CTranslate2(), endless, part(tmp_path, "endless"))


def test_a_request_that_it_cannot_answer_is_refused(tiny, tmp_path):
    for asked in ({"beam": 0}, {"early_stopping": False}):
        with pytest.raises(RequestError, match=next(iter(asked))):
            construct(CTranslate2, asked)
    model, sources = random_model(tiny, "bart", 0)
    peer = ready(CTranslate2(), model, tmp_path)
    with pytest.raises(RequestError, match="source 1 is empty"):
        outputs(peer, model, [sources[0], []])
    model.module.generation_config.min_length = 5
    with pytest.raises(RequestError, match="min_length 5"):
        outputs(peer, model, sources)
