"""`harness datastore` as a user meets it, on a task declared here."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from harness.cli import main
from harness.contracts.tasks import Task, TokenScoringSetting
from harness.plan.registry import task
from methods.knnlm.commands import _build_at
from methods.knnlm.datastore import Datastore

from .conftest import save_gpt2, store_of, text


@task("two-phrases", contract="token-scoring", provides=("reference-text",))
class TwoPhrases(Task):
    """A text of phrases and a random model."""

    scale_defaults = {"mini": {"length": 50}}  # noqa: RUF012

    length: int = 10
    model: str = ""

    def prepare(self, context, progress):
        from tasks.models.pretrained.language import CausalLM

        model = CausalLM.load(self.model, window=16, stride=8, device=context.device)
        streams = text(context.seed, self.length)
        return TokenScoringSetting(
            hashes={}, model=model, reference=streams, validation=[], evaluation=[], timed=[], sample=1, words=1
        )

    def metrics(self, setting, answers):
        return {}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def harness(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["datastore", *arguments])
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory) -> str:
    return str(save_gpt2(tmp_path_factory.mktemp("gpt2")))


def test_build_then_info_then_verify(gpt2, cache, capsys):
    given = ("build", "--task", "two-phrases", "--set", f"task.model={gpt2}")
    assert harness(*given) == 0
    out = capsys.readouterr().out
    folder = out.split()[1]
    assert "entries          49" in out and str(cache) in folder
    assert harness("info", folder, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["entries"] == 49 and facts["model_name"] == gpt2 and facts["key"] == "last_ffn_input"
    assert harness("verify", folder) == 0
    assert "49 entries" in capsys.readouterr().out
    values = Path(folder) / "values.npy"
    values.write_bytes(values.read_bytes()[:-1] + b"\x7f")
    assert harness("verify", folder) == 2
    assert "values.npy: its content changed since it was built" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["build", "info", "verify"])
def test_help_shows_how_to_override_and_labelled_examples(capsys, command):
    assert harness(command, "--help") == 0
    shown = capsys.readouterr().out
    assert ("--set KEY=VALUE" in shown) == (command == "build")
    label, example = (line.strip() for line in shown.partition("Example")[2].splitlines()[:2])
    assert label in (":", "s:") and example.startswith(f"harness datastore {command}")


def test_build_writes_where_it_is_told_and_refuses_to_replace_another(gpt2, tmp_path, capsys):
    place = tmp_path / "stores" / "one"
    given = ("build", "--task", "two-phrases", "--set", f"task.model={gpt2}", "--output", str(place))
    assert harness(*given) == 0 and harness(*given) == 0
    assert Datastore.open(place).entries == 49
    assert harness(*given, "--set", "task.length=30") == 2
    assert "built with corpus" in capsys.readouterr().err
    assert [p.name for p in place.parent.iterdir()] == ["one"]


def test_a_second_build_of_an_output_waits_for_the_first(tmp_path):
    """Both would write into the same files; the second finds the first one's store and builds nothing."""
    place, begun, built = tmp_path / "store", threading.Event(), []

    def slow(folder: Path) -> None:
        built.append(folder)
        begun.set()
        time.sleep(0.3)
        store_of(folder, np.eye(4))

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(_build_at, place, {}, slow)
        assert begun.wait(10)
        second = pool.submit(_build_at, place, {}, slow)
        assert first.result() == second.result() == place
    assert len(built) == 1 and Datastore.open(place).entries == 4
    assert [p.name for p in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("build", "--task", "two-phrase"), "did you mean 'two-phrases'?"),
        (("build", "--task", "two-phrases", "--key", "last_ffn"), "unknown key 'last_ffn': did you mean"),
        (("build", "--task", "two-phrases", "--scale", "tiny"), "unknown scale 'tiny'"),
        (("build", "--task", "two-phrases", "--set", "method.k=3"), "a datastore depends on the task alone"),
        (("build", "--task", "two-phrases", "--set", "task.lenght=3"), "did you mean 'length'?"),
        (("info", "nowhere"), "no datastore at nowhere"),
    ],
)
def test_requests_that_cannot_be_met_end_in_one_line(arguments, message, capsys):
    assert harness(*arguments) == 2
    err = capsys.readouterr().err.strip().splitlines()
    assert len(err) == 1 and message in err[0]
