"""kNN-LM on `wikitext-perplexity` through the runner's own processes: a random model, a folder of generated text."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM, GPT2Config, MambaConfig

from harness.cli import main
from harness.common.cache import Cache
from harness.measure.display import Display
from harness.measure.runner import Runner
from harness.plan import expansion, recipe
from harness.plan.registry import Registry
from harness.rows import Row
from tasks.data.text.kinds import open_source
from tasks.models.lm.training import trained_tokenizer

RECIPE = """
name: small-knnlm
title: kNN-LM on a few hundred words
paper: none
source: none
task:
  name: wikitext-perplexity
  params: {{source: folder, dataset: words, model: {model}, stride: 8, {amounts}}}
methods: {{knnlm: {{k: 8, lambda: 0.25, temperature: 10.0}}}}
timing: {{processes: 1, pairs: 1, timeout: 120}}
cells:
{cells}
"""
AMOUNTS = "evaluation_tokens: 600, validation_tokens: 100, reference_tokens: null, timed_tokens: 150"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """data/words, and the models `gpt2` and `mamba` with a tokenizer of that text."""
    root = tmp_path_factory.mktemp("world")
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefgh"), rng.integers(1, 6))) for _ in range(60)]
    (root / "data" / "words").mkdir(parents=True)
    for name, lines in (("train", 40), ("valid", 20), ("test", 40)):
        text = "".join(f" {' '.join(rng.choice(words, 10))} . \n" for _ in range(lines))
        (root / "data" / "words" / f"{name}.txt").write_text(f" = Title = \n \n{text}")
    cache = Cache(root / "tokenizers")
    tokenizer = trained_tokenizer(300, open_source("folder", "words", (root / "data",), cache), cache)
    torch.manual_seed(0)
    given = {"vocab_size": 300, "bos_token_id": 0, "eos_token_id": 0}
    gpt2 = GPT2Config(n_layer=1, n_embd=16, n_head=2, n_positions=32, initializer_range=0.3, **given)
    mamba = MambaConfig(num_hidden_layers=1, hidden_size=16, state_size=4, **given)
    for name, config in (("gpt2", gpt2), ("mamba", mamba)):
        AutoModelForCausalLM.from_config(config).save_pretrained(root / name)
        for file in tokenizer.glob("tokenizer*"):
            shutil.copy(file, root / name)
    return root


@pytest.fixture(autouse=True)
def place(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_DATA", str(world / "data"))
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def run(folder: Path, model: Path, lines: str) -> dict[str, Row]:
    registry = Registry()
    loaded = recipe.parse(RECIPE.format(model=model, amounts=AMOUNTS, cells=lines), "small-knnlm.yaml")
    found = expansion.expand(loaded, "small", registry)
    with Display(Console(file=open(os.devnull, "w")), len(found)) as display:
        result = Runner(folder, "cpu", registry, display).run(found)
    return {row.row: row for row in result.rows}


def harness(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def test_a_recipe_measures_the_lm_and_exact_search(world: Path, tmp_path: Path) -> None:
    lines = """
  - {row: LM, method: lm, timed: false}
  - {row: exact, method: knnlm, speed_baseline: lm, fidelity_baseline: lm}
"""
    rows = run(tmp_path / "rows", world / "gpt2", lines)
    assert [row.status for row in rows.values()] == ["ok"] * 2, [row.error for row in rows.values()]
    lm, exact = rows["LM"], rows["exact"]
    for row in rows.values():
        assert row.value("perplexity") > 1 and row.value("word_perplexity") > row.value("perplexity")
    assert exact.value("perplexity_difference") == pytest.approx(exact.value("perplexity") - lm.value("perplexity"))
    assert exact.speedup > 0
    assert {"lm", "search", "interpolate"} <= set(exact.processes[0]["phases"]["method"]["seconds"])
    assert "foss" not in lm.counters and "searches" not in lm.counters
    tokens = lm.counters["tokens"]
    assert exact.counters["searches"] == tokens and exact.counters["foss"] == 0


@pytest.mark.slow
def test_a_damaged_datastore_and_a_model_without_keys_are_failed_rows(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The datastore that `harness datastore build` makes is the one that a run looks for; deleting it helps."""
    settings = [f"task.{one.replace(': ', '=')}" for one in AMOUNTS.split(", ")]
    settings += ["task.source=folder", "task.dataset=words", f"task.model={world / 'gpt2'}", "task.stride=8"]
    build = ["datastore", "build", "--scale", "small", *(part for one in settings for part in ("--set", one))]
    assert harness(*build) == 0
    folder = Path(capsys.readouterr().out.split()[1])
    assert harness("datastore", "info", str(folder), "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["entries"] > 400 and facts["dimension"] == 16 and facts["model_name"] == str(world / "gpt2")
    assert harness("datastore", "verify", str(folder)) == 0
    keys = folder / "keys.npy"
    keys.write_bytes(keys.read_bytes()[:-2])
    assert harness("datastore", "verify", str(folder)) == 2
    assert f"delete the folder {folder} and run again" in capsys.readouterr().err

    rows = run(tmp_path / "rows", world / "gpt2", f"""
  - {{row: damaged, method: knnlm, timed: false}}
  - {{row: keyless, method: knnlm, task: {{model: {world / "mamba"}}}, timed: false}}
""")  # fmt: skip
    assert [row.status for row in rows.values()] == ["failed", "failed"]
    assert f"truncated; delete the folder {folder} and run again" in rows["damaged"].error["message"]
    assert "'mamba'" in rows["keyless"].error["message"]
    shutil.rmtree(folder)
    assert harness(*build) == 0 and harness("datastore", "verify", str(folder)) == 0
