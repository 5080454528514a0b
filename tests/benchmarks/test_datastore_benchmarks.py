"""What writing a datastore costs next to the model's forward pass, and that its memory does not grow with the text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest

from harness.common.progress import Progress
from methods.knnlm.builder import build_datastore
from tasks.models.pretrained.language import CausalLM


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> CausalLM:
    """A random GPT-2 of the width used on real text, with a small head: the least forward work per byte written."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("gpt2")
    config = GPT2Config(vocab_size=2000, n_positions=256, n_embd=256, n_layer=4, n_head=4)
    GPT2LMHeadModel(config).save_pretrained(folder)
    return CausalLM.load(str(folder))


class Replayed:
    """The model with its answers already there: what remains of a build is the writing."""

    def __init__(self, model: CausalLM, streams) -> None:
        self._model = model
        self._blocks = {id(stream): list(model.encode(stream, key="last_ffn_input")) for stream in streams}

    def __getattr__(self, name: str):
        return getattr(self._model, name)

    def encode(self, stream, **_):
        return iter(self._blocks[id(stream)])


def test_writing_adds_little_to_the_forward_pass(benchmark, model, tmp_path):
    streams = list(np.random.default_rng(0).integers(0, 2000, (2, 1024)))
    replayed, rounds = Replayed(model, streams), iter(range(99))

    def encode() -> None:
        for stream in streams:
            for _ in model.encode(stream, key="last_ffn_input"):
                pass

    def write() -> None:
        folder = tmp_path / str(next(rounds))
        folder.mkdir()
        build_datastore(folder, replayed, streams, "last_ffn_input", progress=Progress(quiet=True))

    overhead = min(_seconds(write) for _ in range(5)) / min(_seconds(encode) for _ in range(2))
    benchmark.pedantic(write, rounds=3)
    benchmark.extra_info.update(overhead=overhead, tokens=sum(map(len, streams)))
    assert overhead < 0.1


def _seconds(call) -> float:
    started = perf_counter()
    call()
    return perf_counter() - started


CHILD = """
import re, sys, tempfile
from pathlib import Path
import numpy as np, torch
from harness.contracts import EncodedBlock
from harness.common.progress import Progress
from methods.knnlm.builder import build_datastore

class Table:
    '''A language model that is an embedding table: as much text as wanted, in no time.'''
    name, hash, tokenizer_hash, vocabulary_size, window, device = "table", "1", "1", 50, 1024, "cpu"
    rows = torch.randn(50, 256)
    def key_dimension(self, key): return 256
    def encode(self, stream, *, key=None, statistics=False):
        ids = torch.from_numpy(stream)
        for start in range(0, len(stream) - 1, 1024):
            targets = ids[start + 1 : start + 1025]
            keys, uniform = self.rows[ids[start : start + len(targets)]], torch.full((len(targets),), -4.0)
            yield EncodedBlock(start + 1, targets, uniform, keys, None, None, None)

tokens = int(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    build_datastore(Path(folder), Table(), [np.arange(tokens) % 50], "last_hidden", progress=Progress(quiet=True))
    peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
    print(peak, sum(f.stat().st_size for f in Path(folder).iterdir()))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_building_needs_no_more_memory_for_more_text(benchmark):
    def peak(tokens: int) -> tuple[float, float]:
        out = subprocess.run([sys.executable, "-c", CHILD, str(tokens)], capture_output=True, text=True, check=True)
        kilobytes, written = map(int, out.stdout.split())
        return kilobytes / 1e3, written / 1e6

    few, _ = peak(10_000)
    many, written = benchmark.pedantic(peak, args=(400_000,), rounds=1)
    benchmark.extra_info.update(peak_mb_few=few, peak_mb_many=many, written_mb=written)
    assert written > 200
    assert many - few < 40  # the ids themselves are 3 MB
