"""The command line as a person uses it: output, one-line errors, exit codes."""

import io
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.cli import main

RECIPE = """
name: toy
title: a toy
paper: retomaton
source: none
task: {name: toy-text}
timing: {processes: 1, pairs: 2}
cells:
  - {row: uniform, method: toy-uniform}
  - {row: unigram, method: toy-unigram, speed_baseline: toy-uniform, fidelity_baseline: toy-uniform}
claims:
  - text: counting helps
    source: nowhere
    of: {method: toy-unigram}
    is: perplexity below
    than: {method: toy-uniform}
targets:
  - {text: a perplexity of 1, of: {method: toy-unigram}, is: perplexity at most 1}
"""


def call(*arguments):
    """Exit code of `harness ARGUMENTS` in this process."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return end.value.code


@pytest.fixture
def recipe_file(tmp_path, toys):
    path = tmp_path / "toy.yaml"
    path.write_text(RECIPE)
    return str(path)


def reproduce(recipe_file, tmp_path, *more):
    return call("reproduce", recipe_file, "--results", str(tmp_path / "results"), "--tracking", "none", *more)


@pytest.mark.parametrize(("terminal", "shown"), [(True, b"?-gram LM"), (False, b"\\u221e-gram LM")])
def test_a_console_that_is_not_utf_8_gets_question_marks_and_a_file_escapes(monkeypatch, terminal, shown):
    console, errors = (io.TextIOWrapper(io.BytesIO(), "ascii", errors="backslashreplace") for _ in range(2))
    monkeypatch.setattr(console, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stdout", console)
    monkeypatch.setattr(sys, "stderr", errors)
    assert call("reproduce", "infinigram-fig4", "--dry-run") == 0
    console.flush()
    assert shown in console.buffer.getvalue() and errors.errors == "backslashreplace"


@pytest.mark.parametrize("what", ["methods", "tasks", "analyses", "recipes", "pairs"])
def test_lists_print_json(toys, capsys, what):
    assert call("list", what, "--json") == 0
    names = json.loads(capsys.readouterr().out)
    assert names
    if what == "pairs":
        refused = [p for p in names if p["method"] == "toy-greedy" and p["task"] == "toy-text"]
        assert refused[0]["runs"] is False
        assert "sequence-decoding method" in refused[0]["reason"]


def test_a_list_of_recipes_says_what_is_stored(recipe_file, tmp_path, capsys):
    rows = tmp_path / "results" / "measured" / "l2s-table1" / "small"
    rows.mkdir(parents=True)
    (rows / "rows.jsonl").touch()
    assert call("list", "recipes", "--results", str(tmp_path / "results"), "--json") == 0
    stored = {recipe["name"]: (recipe["committed"], recipe["here"]) for recipe in json.loads(capsys.readouterr().out)}
    assert stored["l2s-table1"] == (["small"], []) and stored["iad-table1"] == ([], [])


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("rep", "report"),
        ("reproduce l2s-table1", "l2s-table1"),
        ("run knn", "knnlm"),
        ("run iad conll", "conll-gec"),
        ("infinigram bui", "build"),
        ("reproduce l2s-table1 --scale sm", "small"),
    ],
)
def test_a_shell_completes_commands_recipes_methods_and_tasks(words, completed):
    environment = {
        **os.environ, "_HARNESS_COMPLETE": "complete_bash", "COMP_WORDS": f"harness {words}",
        "COMP_CWORD": str(len(words.split())),
    }  # fmt: skip
    script = "import sys; sys.argv = ['harness']; from harness.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert completed in done.stdout.split()


def test_a_recipe_runs_from_file_to_table(recipe_file, tmp_path, capsys):
    assert reproduce(recipe_file, tmp_path) == 0
    shown = capsys.readouterr().out
    assert "unigram" in shown
    assert "counting helps" in shown
    folder = tmp_path / "results" / "runs" / "toy" / "mini"
    assert {"rows.jsonl", "table.md", "table.csv"} <= {f.name for f in folder.iterdir()}
    assert "| unigram" in (folder / "table.md").read_text()
    assert shown.startswith("toy at scale mini: 2 cells on toy-text\n")


def test_a_plan_says_which_of_its_cells_took_how_long(recipe_file, tmp_path, capsys):
    assert reproduce(recipe_file, tmp_path) == 0
    capsys.readouterr()

    def planned(*more):
        assert reproduce(recipe_file, tmp_path, "--dry-run", *more) == 0
        return capsys.readouterr().out.splitlines()[0]

    assert re.fullmatch(
        r"toy at scale mini: 2 cells on toy-text, 2 measured before in .* s \(nothing was run\)", planned()
    )
    assert ", 1 measured before in" in planned("--set", "method.lambda=0.9")  # of one cell it is another parameter
    assert "measured before" not in planned("--device", "cuda")
    (tmp_path / "results" / "runs" / "toy" / "mini" / "rows.jsonl").write_text("no row\n")
    assert planned() == "toy at scale mini: 2 cells on toy-text (nothing was run)"


def test_all_runs_every_recipe_those_known_to_be_quick_first_and_goes_on_after_one_that_cannot_run(
    toys, tmp_path, monkeypatch, capsys
):
    files = {name: tmp_path / f"{name}.yaml" for name in ("a-broken", "b-slow", "c-quick", "d-begun")}
    for name, path in files.items():
        text = RECIPE.replace("name: toy\n", f"name: {name}\n")
        path.write_text(text.replace("toy-text}", "toy-text, params: {missing: true}}") if name == "a-broken" else text)
    for name, seconds in (("b-slow", (60, 60)), ("c-quick", (30, 30)), ("d-begun", (1,))):
        assert reproduce(str(files[name]), tmp_path) == 0
        rows = tmp_path / "results" / "runs" / name / "mini" / "rows.jsonl"
        lines = map(json.loads, rows.read_text().splitlines())
        rows.write_text(
            "".join(json.dumps({**row, "seconds": s}) + "\n" for row, s in zip(lines, seconds, strict=False))
        )
    monkeypatch.setattr("harness.plan.recipe.files", lambda registry: files)
    capsys.readouterr()
    assert reproduce("all", tmp_path, "--dry-run") == 0
    total, *shown = capsys.readouterr().out.splitlines()
    assert total == "5 of 8 cells were measured before, in 3 min 01 s"
    assert [line.split()[0] for line in shown if " at scale " in line] == ["c-quick", "b-slow", "d-begun", "a-broken"]
    assert reproduce("all", tmp_path) == 2
    shown = capsys.readouterr().out
    assert shown.count("counting helps") >= 3
    assert shown.rstrip().splitlines()[-1].startswith("error: a-broken cannot run: ")


def test_only_this_machine_can_be_waited_for_and_all_stands_alone(recipe_file, tmp_path, capsys):
    assert reproduce(recipe_file, tmp_path, "--wait", "--executor", "ray") == 2
    assert "--wait looks at this machine" in capsys.readouterr().err
    assert call("reproduce", "all", "l2s-table1") == 2
    assert "name no other" in capsys.readouterr().err


def test_json_output_is_the_rows_and_nothing_else(recipe_file, tmp_path, capsys):
    assert reproduce(recipe_file, tmp_path, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["row"] for row in rows] == ["uniform", "unigram"]


def test_a_dry_run_lists_cells_and_writes_nothing(recipe_file, tmp_path, capsys):
    assert reproduce(recipe_file, tmp_path, "--dry-run") == 0
    assert "unigram: toy-unigram against toy-uniform, 1 x 2 pairs" in capsys.readouterr().out
    assert reproduce(recipe_file, tmp_path, "--set", "method.lambda=0.9", "--dry-run") == 0
    assert "set where a cell does not state it itself: method.lambda=0.9" in capsys.readouterr().out
    assert not (tmp_path / "results").exists()


def test_one_method_on_one_task(toys, tmp_path, capsys):
    code = call(
        "run", "toy-unigram", "toy-text", "--results", str(tmp_path), "--tracking", "none",
        "--set", "method.lambda=0.9", "--pairs", "1", "--json",
    )  # fmt: skip
    assert code == 0
    baseline, row = json.loads(capsys.readouterr().out)
    assert (baseline["method"], row["speed_baseline"]["method"]) == ("toy-uniform", "toy-uniform")
    assert row["params"]["method"]["lambda"] == 0.9
    assert len(row["processes"][0]["pairs"]) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("reproduce", "knnlm-wikitex"), 2, "did you mean 'knnlm-wikitext'"),
        (("run", "toy-unigrm", "toy-text"), 2, "did you mean 'toy-unigram'"),
        (("run", "toy-unigram", "toy-txt"), 2, "did you mean 'toy-text'"),
        (("run", "toy-greedy", "toy-text"), 2, "does not run on toy-text"),
        (("run", "toy-unigram", "toy-text", "--set", "method.lamda=1"), 2, "did you mean 'method.lambda'"),
        (("run", "toy-unigram", "toy-text", "--set", "method.lambda=x"), 2, "parameter 'lambda'"),
        (("run", "toy-unigram", "toy-text", "--scale", "mni"), 2, "did you mean 'mini'"),
        (("keep", "knnlm-wikitext", "--scale", "smal"), 2, "did you mean 'small'"),
        (("run", "toy-unigram", "toy-text", "--device", "gpu"), 2, "unknown device 'gpu'"),
        (("list", "method"), 2, "did you mean 'methods'"),
        (("reproduce", "--no-such-option"), 2, "No such option"),
        (("reproduce", "missing.yaml"), 2, "no recipe file at missing.yaml"),
    ],
)
def test_mistakes_end_with_one_line_and_code_two(toys, capsys, arguments, code, message):
    assert call(*arguments) == code
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_a_plug_in_that_is_left_out_is_one_line(monkeypatch):
    monkeypatch.setenv("HARNESS_PLUGINS", "absent")
    done = subprocess.run([sys.executable, "-m", "harness", "list", "tasks"], capture_output=True, text=True)
    hint = "install it, or add its parent to PYTHONPATH"
    assert done.stderr == f"warning: plug-in 'absent' ignored: no package named 'absent' can be found: {hint}\n"


def test_help_lists_the_families_and_imports_no_libraries_for_them():
    code = (
        "import sys; from harness.cli import main\n"
        "try: main(['--help'])\n"
        "finally: print(sorted({'torch', 'numpy', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.search(r"^  datastore +Build, describe and check", done.stdout, re.M)
    assert re.search(r"^  infinigram +Build indexes of text", done.stdout, re.M)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("text", "fault"),
    [("import nowhere_at_all\n", "No module named 'nowhere_at_all'"), ("", "a fault of the plug-in")],
    ids=["import", "call"],
)
def test_a_family_of_a_plug_in_that_cannot_be_mounted_is_left_out_with_a_warning(tmp_path, monkeypatch, text, fault):
    (tmp_path / "broken_family").mkdir()
    text += "from harness.plan.registry import command\n"
    text += "@command('broken')\ndef broken():\n    raise ValueError('a fault of the plug-in')\n"
    (tmp_path / "broken_family" / "commands.py").write_text(text)
    monkeypatch.setenv("HARNESS_PLUGINS", "broken_family")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "harness", "list", "tasks"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert line.startswith("warning: command 'broken' left out: ") and fault in line
    assert "wikitext-perplexity" in done.stdout


def test_missing_data_ends_with_code_two_and_the_way_out(recipe_file, tmp_path, capsys):
    assert reproduce(recipe_file, tmp_path, "--set", "task.missing=true") == 2
    assert "set HARNESS_DATA" in capsys.readouterr().err


def test_a_results_folder_that_cannot_be_written_ends_with_code_three(recipe_file, tmp_path, capsys):
    (tmp_path / "results").write_text("a file where the folder should be")
    assert reproduce(recipe_file, tmp_path) == 3
    error = capsys.readouterr().err
    assert str(tmp_path / "results") in error and "Traceback" not in error


def test_a_failed_cell_ends_with_code_one_and_its_row_says_why(recipe_file, tmp_path, capsys):
    assert reproduce(recipe_file, tmp_path, "--set", "method.fault=bug") == 1
    shown = capsys.readouterr().out
    assert "ZeroDivisionError: a fault of the method (tests/plugins/toys/methods.py:" in shown
    log = Path(re.search(r"log: (.*\.log)", shown)[1])
    assert log.read_text().rstrip().endswith("ZeroDivisionError: a fault of the method")


def test_required_claims_decide_the_exit_code(recipe_file, tmp_path, capsys):
    required = ["--require", "claims"]
    assert reproduce(recipe_file, tmp_path, *required) == 0 and "holds" in capsys.readouterr().out
    assert reproduce(recipe_file, tmp_path, *required, "--set", "method.lambda=3.0") == 1
    assert "does not hold" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["list", "run", "reproduce", "keep"])
def test_help_shows_how_to_override_and_labelled_examples_that_are_understood(capsys, command):
    assert call(command, "--help") == 0
    shown = capsys.readouterr().out
    if command in ("run", "reproduce"):
        assert re.search(r"--set +KEY=VALUE", shown)
    examples = shown.partition("Example")[2].splitlines()[1:]
    lines = [line.partition("#")[0].split()[1:] for line in examples[: examples.index("")]]
    assert lines and all(line[0] == command for line in lines)
    for line in lines:
        if command in ("run", "reproduce") and "my-recipe.yaml" not in line:
            assert call(*line, "--dry-run") == 0


def test_debug_shows_the_traceback(toys):
    from harness.common.errors import RequestError

    with pytest.raises(RequestError):
        main(["--debug", "list", "nothing"])


def test_an_interrupt_keeps_the_rows_and_ends_with_130(toys, tmp_path):
    import os
    import signal

    recipe = tmp_path / "toy.yaml"
    hanging = "  - {row: hanging, column: its own, method: toy-unigram, params: {fault: hang}}\n"
    recipe.write_text(RECIPE.partition("claims:")[0] + hanging)
    command = [sys.executable, "-m", "harness", "reproduce", str(recipe), "--results", str(tmp_path / "results")]
    process = subprocess.Popen(
        [*command, "--tracking", "none"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background inherits it ignored
    )  # fmt: skip
    rows = tmp_path / "results" / "runs" / "toy" / "mini" / "rows.jsonl"
    deadline = time.monotonic() + 60
    while not (rows.exists() and rows.read_text().count("\n") == 2):
        assert process.poll() is None and time.monotonic() < deadline, "the run ended early, or wrote no rows"
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130, error
    assert "rows already written are kept" in error
    assert [json.loads(line)["row"] for line in rows.read_text().splitlines()] == ["uniform", "unigram"]


def test_doctor_reports_and_prints_json(toys, capsys):
    assert call("doctor", "--json") in (0, 3)
    names = {check["name"] for check in json.loads(capsys.readouterr().out)}
    assert {"python"} <= {name.lower() for name in names}
