"""CTranslate2 on the same weights."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.errors import RequestError
from harness.measure.phases import NoPhases
from harness.plan.parameters import validate
from methods.decoding.beam import Beam
from methods.decoding.ctranslate import CTranslate2
from methods.decoding.greedy import Greedy

pytest.importorskip("ctranslate2")


@dataclass
class Folder:
    """Artifacts in one folder."""

    folder: Path
    values: dict[str, Any] = field(default_factory=dict)

    def build(self, name, key, build):
        (self.folder / name).mkdir()
        build(self.folder / name)
        return self.folder / name

    def path(self, name):
        return self.folder / name


def random_model(tiny, kind, seed):
    """float32, with as many heads in encoder and decoder; Marian starts with a zero vector, as its checkpoints do."""
    model = tiny.make(kind, seed, torch.float32, decoder_attention_heads=2)
    if kind == "marian":  # its start token reads as other tokens do: models that are trained here have such
        model.module.generation_config.bad_words_ids = [[39]]
    chosen = random.Random(seed)
    return model, [[chosen.randrange(3, 38) for _ in range(chosen.randrange(1, 10))] for _ in range(5)]


def outputs(method, model, sources, limit=12):
    return [answer.ids for answer in method.decode(model, sources, limit, NoPhases())]


def ready(method, model, folder):
    method.fit(model, (), (), Folder(folder))
    method.open(model, Folder(folder))
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


def test_most_of_its_beams_are_ours(tiny, tmp_path):
    """Its search ends by a rule of its own, so that some sentences differ."""
    same = []
    for kind in ("marian", "bart"):
        for seed in range(3):
            model, sources = random_model(tiny, kind, seed)
            (tmp_path / f"{kind}{seed}").mkdir()
            peer = ready(CTranslate2(beam=4), model, tmp_path / f"{kind}{seed}")
            pairs = zip(outputs(peer, model, sources), outputs(Beam(beam=4), model, sources), strict=True)
            same += [ours == theirs for ours, theirs in pairs]
    assert sum(same) >= 0.9 * len(same)


def test_int8_is_another_file_and_decodes(tiny, tmp_path):
    model, sources = random_model(tiny, "bart", 1)
    (tmp_path / "int8").mkdir()
    peer = ready(CTranslate2(compute="int8"), model, tmp_path / "int8")
    full = ready(CTranslate2(), model, tmp_path)
    sizes = [(folder / "ctranslate2/model.bin").stat().st_size for folder in (tmp_path / "int8", tmp_path)]
    assert sizes[0] < sizes[1]
    assert all(outputs(peer, model, sources)) and all(outputs(full, model, sources))


def test_it_takes_the_threads_of_the_row_or_its_own(tiny, tmp_path):
    model, sources = random_model(tiny, "bart", 2)
    peers = [ready(CTranslate2(intra_threads=own), model, part(tmp_path, own)) for own in (None, 1)]
    assert [peer.threads for peer in peers] == [torch.get_num_threads(), 1]
    assert outputs(peers[0], model, sources) == outputs(peers[1], model, sources)
    with pytest.raises(RequestError, match="intra_threads"):
        validate(CTranslate2, {"intra_threads": 0}, "ctranslate2")


def part(folder, name):
    (folder / str(name)).mkdir()
    return folder / str(name)


def test_what_it_cannot_do_is_refused(tiny, tmp_path):
    with pytest.raises(RequestError, match="as many heads only"):
        ready(CTranslate2(), tiny.make("bart", 0, torch.float32), tmp_path)
    (tmp_path / "t5").mkdir()
    with pytest.raises(RequestError, match=r"of type bart and marian, and .* is of type t5"):
        ready(CTranslate2(), tiny.make("t5", 0, torch.float32), tmp_path / "t5")
    model, sources = random_model(tiny, "bart", 0)
    (tmp_path / "again").mkdir()
    peer = ready(CTranslate2(), model, tmp_path / "again")
    model.module.generation_config.min_length = 5
    with pytest.raises(RequestError, match="min_length 5"):
        outputs(peer, model, sources)
