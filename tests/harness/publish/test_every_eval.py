"""Records of Every Eval Ever, from the committed rows themselves."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import uuid

import pytest

from harness.cli import main
from harness.common.sources import ROOT
from harness.plan.registry import Registry
from harness.publish import every_eval
from harness.show import stored

RESULTS = ROOT / "results"


def test_the_records_of_every_eval_ever_have_what_the_schema_demands(capsys):
    """The demands are spelled out; the schema's own package validates all records in a slow test."""
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["table", "knnlm-wikitext", "--scale", "small", "--results", str(RESULTS), "--format", "eee"])
    records = json.loads(capsys.readouterr().out)
    assert records
    assert len({record["evaluation_id"] for record in records}) == len(records)
    for record in records:
        assert {
            "schema_version", "evaluation_id", "retrieved_timestamp", "source_metadata", "model_info", "eval_library",
            "evaluation_results",
        } <= record.keys()  # fmt: skip
        assert {"deployment_type", "model_availability"} <= record["model_info"]["additional_details"].keys()
        assert {"name", "id"} <= record["model_info"].keys() and {"name", "version"} <= record["eval_library"].keys()
        for one in record["evaluation_results"]:
            assert {"evaluation_name", "source_data", "metric_config", "score_details"} <= one.keys()
            config, score = one["metric_config"], one["score_details"]
            assert config["min_score"] <= score["score"] <= config["max_score"]
            assert all(isinstance(text, str) for text in score["details"].values())
    (exact,) = [r for r in records if r["evaluation_id"].startswith("knnlm-wikitext/kNN-LM / FoSS=0/small")]
    (speed,) = [one for one in exact["evaluation_results"] if one["evaluation_name"].endswith("speedup")]
    assert speed["score_details"]["details"]["baseline"] == "lm" and not speed["metric_config"]["lower_is_better"]
    interval = speed["score_details"]["uncertainty"]["confidence_interval"]
    assert interval["lower"] < speed["score_details"]["score"] < interval["upper"]


def _python_of_every_eval_ever() -> str | None:
    for name in ("python3.14", "python3.13", "python3.12"):
        if (found := shutil.which(name)) and not subprocess.run([found, "-c", ""], capture_output=True).returncode:
            return found
    return None


@pytest.mark.slow
def test_every_eval_evers_own_validator_accepts_the_records_of_all_committed_recipes(tmp_path):
    """The package needs Python 3.12 and an older `rich` than ours, so it gets an environment of its own."""
    if (python := _python_of_every_eval_ever()) is None:
        pytest.skip("every-eval-ever needs Python 3.12 or newer, and none is installed")
    subprocess.run([python, "-m", "venv", tmp_path / "env"], check=True)
    own = tmp_path / "env" / "bin" / "python"
    pip = [own, "-m", "pip", "install", "--quiet", f"every-eval-ever=={every_eval.SCHEMA}"]
    if (done := subprocess.run(pip, capture_output=True, text=True)).returncode:
        pytest.skip(f"every-eval-ever cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    files = []
    for one in stored.stored(RESULTS, Registry(), ("measured",)):
        for record in every_eval.records(one.rows):
            files.append(f"data/{every_eval.ORGANISATION}/{record['model_info']['id']}/{uuid.uuid4()}.json")
            (tmp_path / files[-1]).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / files[-1]).write_text(json.dumps(record))
    assert len(files) > 100
    command = [own, "-m", "every_eval_ever", "validate", "--format", "json", *files]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    judged = json.loads(done.stdout)
    said = [problem for one in judged for problem in (*one["errors"], *one["warnings"])]
    assert said == [] and done.returncode == 0 and len(judged) == len(files)


def test_names_of_models_become_identities_that_differ_as_the_names_do():
    names = ["small", "small++", "a, k=25", "train:mini on embedded"]
    found = [every_eval._identity(name) for name in names]
    assert len(set(found)) == len(names)
    assert all(re.fullmatch(r"shortcut-harness/[A-Za-z0-9.-]+", one) for one in found), found
    assert every_eval._identity("openai-community/gpt2") == "openai-community/gpt2"
