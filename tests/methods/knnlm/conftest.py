"""Small real objects: random GPT-2 models on disk, text streams, datastores of given keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.common.cache import Cache, CellArtifacts
from methods.knnlm.datastore import Datastore
from methods.knnlm.search import DatastoreOptions, DatastoreSearch
from methods.nearest.flat import FlatIndex
from tasks.models.pretrained.language import CausalLM

VOCABULARY = 40


def save_gpt2(folder: Path, seed: int = 0, width: int = 16, words: int = VOCABULARY) -> Path:
    """A random GPT-2 of one block in hub layout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=words, n_positions=32, n_embd=width, n_layer=1, n_head=2, initializer_range=0.5)
    GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> CausalLM:
    return CausalLM.load(str(save_gpt2(tmp_path_factory.mktemp("gpt2"))), window=16, stride=8)


@pytest.fixture(scope="session")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> CausalLM:
    return CausalLM.load(str(save_gpt2(tmp_path_factory.mktemp("other"), seed=1)), window=16, stride=8)


def text(seed: int, *lengths: int) -> list[np.ndarray]:
    """Streams with repeated phrases, so that neighbours agree more often than chance."""
    rng = np.random.default_rng(seed)
    phrases = np.random.default_rng(0).integers(0, VOCABULARY, (12, 5))
    return [np.concatenate([*phrases[rng.integers(0, 12, n // 5 + 1)]])[:n].astype(np.int64) for n in lengths]


@pytest.fixture
def artifacts(tmp_path: Path) -> CellArtifacts:
    return CellArtifacts(Cache(tmp_path / "cache"))


def search_of(store: Datastore, **options: Any) -> DatastoreSearch:
    """An exact search of a datastore."""
    return DatastoreSearch(store, FlatIndex(store), DatastoreOptions(**options))


def store_of(
    folder: Path, keys: np.ndarray, values: np.ndarray | None = None, offsets: list[int] | None = None
) -> Datastore:
    """A datastore on disk that holds the given keys [N, d]; one stream, unless offsets say where several begin."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = keys.astype(np.float16)
    values = np.zeros(len(keys), np.int32) if values is None else values.astype(np.int32)
    arrays = {"keys.npy": keys, "values.npy": values, "offsets.npy": np.asarray(offsets or [0, len(keys)])}
    for name, array in arrays.items():
        np.save(folder / name, array)
    norm = np.sqrt((keys.astype(np.float64) ** 2).sum(1).max())
    (folder / "metadata.json").write_text(json.dumps({
        "format": 1, "built_from": {}, "model_name": "given", "vocabulary_size": VOCABULARY, "entries": len(keys),
        "dimension": keys.shape[1], "streams": len(arrays["offsets.npy"]) - 1,
        "largest_norm": float(norm) * 1.0001, "crc32": {},
        "bytes": {name: (folder / name).stat().st_size for name in arrays},
    }))  # fmt: skip
    return Datastore.open(folder)
