"""Recipes are typed: what is misspelt, of the wrong type or impossible is refused with its place."""

import pytest

from harness.common.errors import RequestError
from harness.plan import expansion, recipe, registry
from harness.plan.parameters import parse_overrides
from harness.plan.registry import Registry, method

TEXT = """
name: toy
title: a toy
paper: none
source: none
task: {name: toy-text, params: {tokens: 1000}}
methods: {toy-unigram: {lambda: 0.5}}
scales:
  small: {methods: {toy-unigram: {lambda: 0.9}}, timing: {processes: 2}}
cells:
  - {row: uniform, method: toy-uniform}
  - row: unigram
    column: "pause={pause:g}"
    method: toy-unigram
    sweep: {pause: [0, 0.5]}
    speed_baseline: {method: toy-unigram, params: {pause: 0.1}}
"""


def test_cells_carry_every_parameter_with_its_precedence(toys):
    uniform, first, second = expansion.expand(recipe.parse(TEXT, "toy.yaml"), "mini", toys)
    assert uniform.method.params == {}
    assert uniform.task.params == {"tokens": 1000, "missing": False, "distributions": False}
    assert first.name == "unigram / pause=0"
    assert second.method.params == {"pause": 0.5, "fault": "none", "lambda": 0.5}
    assert second.speed_baseline.params["pause"] == 0.1


def test_a_scale_changes_its_own_parameters_only(toys):
    small = expansion.expand(recipe.parse(TEXT, "toy.yaml"), "small", toys)
    assert small[1].method.params["lambda"] == 0.9
    assert small[1].task.params["tokens"] == 1000  # the recipe's word counts more than the task's default
    assert (small[1].timing.processes, small[1].timing.pairs) == (2, 3)


def test_overrides_reach_methods_and_baselines_but_not_what_a_baseline_states(toys):
    overrides = parse_overrides(["method.pause=2", "method.lambda=0.1", "task.tokens=77", "timing.pairs=9"])
    unswept = TEXT.replace("sweep: {pause: [0, 0.5]}", "params: {fault: none}")
    uniform, unigram = expansion.expand(recipe.parse(unswept, "toy.yaml"), "mini", toys, overrides)
    assert uniform.task.params["tokens"] == 77
    assert unigram.timing.pairs == 9
    assert unigram.method.params["pause"] == 2
    assert unigram.speed_baseline.params == {"pause": 0.1, "fault": "none", "lambda": 0.1}


def test_a_cell_changes_the_timing_for_itself_and_overrides_do_not_reach_what_it_states(toys):
    text = TEXT.replace("method: toy-uniform}", "method: toy-uniform, timing: {threads: 1}}")
    assert text != TEXT
    overrides = parse_overrides(["timing.threads=010", "timing.pairs=9"])
    uniform, other, _ = expansion.expand(recipe.parse(text, "toy.yaml"), "small", toys, overrides)
    assert (uniform.timing.threads, uniform.timing.pairs, uniform.timing.processes) == (1, 9, 2)
    assert other.timing.threads == 10
    with pytest.raises(RequestError, match=r"unknown key 'thread'.*did you mean 'threads'"):
        expansion.expand(recipe.parse(text.replace("threads", "thread"), "toy.yaml"), "small", toys)


def test_overrides_do_not_reach_what_a_cell_states_of_its_task(toys):
    text = TEXT.replace("method: toy-uniform}", "method: toy-uniform, task: {tokens: 500}}")
    assert text != TEXT
    uniform, other, _ = expansion.expand(recipe.parse(text, "toy.yaml"), "mini", toys, {"task.tokens": "77"})
    assert (uniform.task.params["tokens"], other.task.params["tokens"]) == (500, 77)
    every = text.replace("    sweep:", "    task: {tokens: 600}\n    sweep:")
    with pytest.raises(RequestError, match=r"task\.tokens: every cell of toy states it itself"):
        expansion.expand(recipe.parse(every, "toy.yaml"), "mini", toys, {"task.tokens": "77"})


def test_mini_runs_one_process_on_one_thread_unless_the_recipe_says_more(toys):
    bare = TEXT.replace(", timing: {processes: 2}", "")
    assert bare != TEXT

    def shapes(text, scale, **overrides):
        timing = expansion.expand(recipe.parse(text, "toy.yaml"), scale, toys, overrides)[0].timing
        return timing.processes, timing.pairs, timing.threads, timing.fits

    assert shapes(bare, "mini") == (1, 3, 1, 1)
    assert shapes(bare, "small") == shapes(bare, "paper") == (10, 3, None, 1)
    stated = bare + "timing: {threads: 2, fits: 3}\n"
    assert shapes(stated, "small") == (10, 3, 2, 3)
    assert shapes(stated, "mini") == (1, 3, 2, 1)  # one process cannot have three fits
    assert shapes(stated, "mini", **{"timing.processes": "6", "timing.threads": "4"}) == (6, 3, 4, 3)


def test_a_cell_says_which_published_cell_it_is_next_to(toys):
    first = expansion.expand(recipe.parse(TEXT, "toy.yaml"), "mini", toys)[1]
    assert first.published == (first.row, first.column)
    text = TEXT.replace("    sweep:", "    published: {row: Paper's, column: 'PTB, {fault}'}\n    sweep:")
    text += "names: {none: sound}\npublished_names: {none: whole}\n"
    first = expansion.expand(recipe.parse(text, "toy.yaml"), "mini", toys)[1]
    assert (first.row, first.column, first.published) == ("unigram", "pause=0", ("Paper's", "PTB, whole"))


def test_a_recipe_that_states_no_fidelity_leaves_it_to_the_contract_and_a_stated_one_says_why(toys):
    assert expansion.expand(recipe.parse(TEXT, "toy.yaml"), "mini", toys)[1].fidelity is None
    stated = TEXT + "fidelity: {is: perplexity_difference at most 5, reason: a toy}\n"
    assert expansion.expand(recipe.parse(stated, "toy.yaml"), "mini", toys)[1].fidelity.reason == "a toy"


CLAIM = """
claims:
  - {text: it is fast, source: s, of: {method: toy-unigram, params: {pause: 0}}, is: speedup above 1}
"""


def test_a_claim_must_name_one_cell_of_its_recipe_at_the_scales_it_stands_at(toys):
    expansion.expand(recipe.parse(TEXT + CLAIM, "toy.yaml"), "mini", toys)
    for old, new, words in (
        ("{pause: 0}", "{pause: 0.7}", r"'it is fast': no cell runs toy-unigram \(pause=0.7\); the nearest is unigram"),
        (", params: {pause: 0}", "", "toy-unigram names 2 cells"),
        ("above 1", "above, than: {method: toy-bigram}", "no cell runs toy-bigram"),
    ):
        broken = recipe.parse(TEXT + CLAIM.replace(old, new), "toy.yaml")
        with pytest.raises(RequestError, match=words):
            expansion.expand(broken, "mini", toys)
        expansion.expand(broken.model_copy(update={"claims": []}), "mini", toys)
    elsewhere = recipe.parse(
        TEXT + CLAIM.replace("{pause: 0}", "{pause: 7}").replace("above 1", "above 1, scales: [paper]"), "t"
    )
    expansion.expand(elsewhere, "mini", toys)
    expansion.expand(recipe.parse(TEXT + CLAIM, "toy.yaml"), "mini", toys, {"task.tokens": "7"})


def _written(folder, **files):
    """The toy recipe in a file, and those next to it; the path of the first."""
    for part, text in {"": TEXT, **files}.items():
        (folder / f"toy{'.' * bool(part)}{part}.yaml").write_text(text)
    return str(folder / "toy.yaml")


def test_claims_stand_next_to_their_recipe(toys, tmp_path):
    assert recipe.load(_written(tmp_path), toys).claims == []
    target = "targets: [{text: t, of: {method: toy-unigram}, is: perplexity below 9}]\n"
    found = recipe.load(_written(tmp_path, claims=CLAIM + target), toys)
    assert found == recipe.parse(TEXT + CLAIM + target, "toy.yaml")
    for old, new, message in (
        ("source: s", "sorce: s", r"toy\.claims\.yaml at claims\.0\.sorce: did you mean 'source'"),
        (
            "above",
            "over",
            r"toy\.claims\.yaml at claims\.0: 'speedup over 1' is not of the form METRIC below, above, at",
        ),
        ("above 1", "above 1, than: 2", r"at claims\.0: 'speedup above 1' has two bounds"),
        ("claims:", "claims: [", r"toy\.claims\.yaml line 3: "),
        ("claims:", "title: again\nclaims:", r"unknown key 'title' in .*toy\.claims\.yaml"),
    ):
        with pytest.raises(RequestError, match=message):
            recipe.load(_written(tmp_path, claims=CLAIM.replace(old, new)), toys)
    path = _written(tmp_path, claims="")
    with pytest.raises(RequestError, match=r"toy\.claims\.yaml: a mapping with claims or targets is expected"):
        recipe.load(path, toys)
    path = _written(tmp_path, claims=CLAIM)
    (tmp_path / "toy.yaml").write_text(TEXT + CLAIM)
    with pytest.raises(RequestError, match=r"toy\.claims\.yaml: toy\.yaml gives 'claims' too"):
        recipe.load(path, toys)


def test_a_scale_has_cells_of_its_own_after_the_others(toys, tmp_path):
    paper = "note: n\nmethods: {toy-unigram: {lambda: 0.1}}\ncells: [{row: alone, method: toy-unigram}]\n"
    found = recipe.load(_written(tmp_path, paper=paper), toys)
    assert [c.row for c in expansion.expand(found, "small", toys)] == ["uniform", "unigram", "unigram"]
    cells = expansion.expand(found, "paper", toys)
    assert [c.row for c in cells] == ["uniform", "unigram", "unigram", "alone"]
    assert {c.method.params["lambda"] for c in cells[1:]} == {0.1} and found.scales["paper"].note == "n"
    with pytest.raises(RequestError, match=r"toy\.paper\.yaml at cells\.0\.rows: did you mean 'row'"):
        recipe.load(_written(tmp_path, paper=paper.replace("row:", "rows:")), toys)
    with pytest.raises(RequestError, match=r"toy\.small\.yaml: toy\.yaml gives 'small' too"):
        recipe.load(_written(tmp_path, paper=paper, small=paper), toys)


def test_a_recipe_takes_what_it_does_not_give_from_its_base(toys, tmp_path):
    target = "targets: [{text: t, of: {method: toy-uniform}, is: perplexity below 9}]\n"
    _written(tmp_path, claims=CLAIM + target, paper="cells: [{row: alone, method: toy-unigram}]\n")
    (tmp_path / "toy.yaml").write_text(f"{TEXT}{OF_BASE}")
    own = tmp_path / "other.yaml"
    own.write_text(HEAD + "scales: {small: {timing: {pairs: 7}}}\n")
    found = recipe.load(str(own), toys)
    assert found.title == "another" and found.published_names == {"a": "b"} and found.figure.beside == "z"
    assert not (found.claims or found.targets or found.published or found.headline or found.first_run)
    small = expansion.expand(found, "small", toys)[1]
    assert (small.method.params["lambda"], small.timing.processes, small.timing.pairs) == (0.9, 2, 7)
    assert len(expansion.expand(found, "paper", toys)) == 4

    own.write_text(
        f"{HEAD}cells: [{{row: mine, method: toy-uniform}}]\nfigure: {{parts: [x]}}\nfidelity: x at most 1\n"
        "published_names: {}\nfidelities: {near: x at most 2}\n"
    )
    found = recipe.load(str(own), toys)
    assert [cell.row for cell in expansion.expand(found, "paper", toys)] == ["mine"]
    assert found.figure.parts == ["x"] and found.published_names == {} and found.fidelity.reason == ""
    assert {name: one.reason for name, one in found.fidelities.items()} == {"near": "", "far": "far"}


HEAD = "name: other\ntitle: another\nsource: none\nbase: toy.yaml\n"
OF_BASE = """
published: [x.csv]
published_names: {a: b}
headline: true
first_run: 3
figure: {x: x, y: y, beside: z}
fidelity: {is: x at least 1, reason: of the base}
fidelities: {near: {is: x at most 1, reason: near}, far: {is: x at most 1, reason: far}}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("toy.yaml", "l2s-tabel1", r"unknown recipe 'l2s-tabel1' in .*other\.yaml: did you mean 'l2s-table1'"),
        ("toy.yaml", "nowhere.yaml", r"no recipe file at .*nowhere\.yaml"),
        ("toy.yaml", "third.yaml", r"other\.yaml: the base third\.yaml has a base itself, toy\.yaml"),
        (" toy.yaml", "", r"other\.yaml at base should be the name of a recipe \(given: None\)"),
        (
            "title:",
            "task: {name: toy-layer}\ntitle:",
            "its task is toy-layer and that of its base toy.yaml is toy-text",
        ),
        ("base:", "bsae:", "unknown key 'bsae'.*did you mean 'base'"),
    ],
)
def test_a_base_that_cannot_be_taken_is_refused(toys, tmp_path, old, new, message):
    _written(tmp_path)
    (tmp_path / "third.yaml").write_text(HEAD.replace("name: other", "name: third"))
    (tmp_path / "other.yaml").write_text(HEAD.replace(old, new))
    with pytest.raises(RequestError, match=message):
        recipe.load(str(tmp_path / "other.yaml"), toys)


def test_a_mistake_in_a_base_names_its_file(toys, tmp_path):
    path = _written(tmp_path, small="note: n\n")
    (tmp_path / "toy.yaml").write_text(
        TEXT.replace("scales:\n  small: {", "scales: [{").replace("processes: 2}}", "processes: 2}}]")
    )
    own = tmp_path / "other.yaml"
    own.write_text(f"name: other\ntitle: another\nsource: none\nbase: {path}\n")
    with pytest.raises(RequestError, match=r"toy\.yaml at scales should be"):
        recipe.load(str(own), toys)


def test_yaml_in_which_one_key_replaces_another_is_refused():
    merged = TEXT.replace("  - {row: uniform,", "  - &first {row: uniform,") + "  - {<<: *first, row: again}\n"
    both = merged.replace("{<<: *first, row: again}", "{<<: [*first, {row: again}]}")
    for text, line in ((merged, 17), (both, 17), (TEXT + "title: another\n", 17)):
        with pytest.raises(RequestError, match=rf"toy\.yaml line {line}: '(row|title)' is given twice, here or by a"):
            recipe.parse(text, "toy.yaml")
    added = recipe.parse(merged.replace("row: again", "column: again"), "toy.yaml")
    assert (added.cells[-1].row, added.cells[-1].column) == ("uniform", "again")


def test_an_override_of_what_every_cell_states_is_refused(toys):
    with pytest.raises(RequestError, match=r"method\.pause: every cell of toy states it itself"):
        expansion.expand(recipe.parse(TEXT, "toy.yaml"), "mini", toys, {"method.pause": "2.0"})


def test_two_cells_with_the_same_labels_are_refused(toys):
    with pytest.raises(RequestError, match="two cells are both called"):
        fixed = TEXT.replace('"pause={pause:g}"', "same")
        expansion.expand(recipe.parse(fixed, "toy.yaml"), "mini", toys)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("toy-unigram\n    sweep", "toy-unigrm\n    sweep", "unknown method 'toy-unigrm'.*did you mean 'toy-unigram'"),
        ("name: toy-text", "name: toy-txt", "unknown task 'toy-txt'.*did you mean 'toy-text'"),
        ("pause: [0, 0.5]", "paus: [0, 0.5]", "unknown parameter 'paus'.*did you mean 'pause'"),
        (
            "pause: [0, 0.5]",
            "pause: [0, fast]",
            "parameter 'pause' of method toy-unigram should be a number .given: 'fast'",
        ),
        ("tokens: 1000", "tokens: many", "parameter 'tokens' of task toy-text"),
        ("method: toy-uniform}", "method: toy-greedy}", "toy-greedy is a sequence-decoding method"),
        ("  - {row: uniform, method: toy-uniform}", "  - {row: uniform}", "give either `method` or `analysis`"),
        ("pause={pause:g}", "pause={speed:g}", "placeholder 'speed'"),
    ],
)
def test_mistakes_name_their_place(toys, old, new, message):
    assert old in TEXT
    with pytest.raises(RequestError, match=message):
        expansion.expand(recipe.parse(TEXT.replace(old, new), "toy.yaml"), "mini", toys)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title:", "titel:", r"unknown key 'titel' in toy.yaml.*did you mean 'title'"),
        ("title:", "names: {20: twenty}\ntitle:", r"toy.yaml at names\.20 should be a string"),
        ("column:", "colum:", r"unknown key 'colum' in toy.yaml at cells\.1\.colum.*did you mean 'column'"),
        ("processes: 2", "processes: 0", r"timing of toy at processes should be at least 1 \(given: 0\)"),
        ('pause={pause:g}"', 'a"\n    timed: 3', r"toy\.yaml at cells\.1\.timed should be true or false \(given: 3\)"),
        (
            "method: toy-uniform}",
            "method: toy-uniform, published: {rwo: x}}",
            r"published\.rwo should be 'row' or 'column' \(given: 'rwo'\)",
        ),
        ("title: a toy\n", "", r"toy\.yaml at title is missing: give it a value"),
        ("paper: none", "paper: [", r"toy\.yaml line \d: .*expected"),
    ],
)
def test_a_broken_file_names_file_and_key(toys, old, new, message):
    with pytest.raises(RequestError, match=message):
        expansion.expand(recipe.parse(TEXT.replace(old, new), "toy.yaml"), "small", toys)


def test_an_unknown_recipe_is_answered_with_the_nearest():
    with pytest.raises(RequestError, match="did you mean 'knnlm-wikitext'"):
        recipe.load("knnlm-wikitex", Registry())


@pytest.mark.parametrize("setting", ["method.k", "k=3", "methods.k=3", "=", "method.=1"])
def test_an_override_that_is_none_is_refused(setting):
    with pytest.raises(RequestError, match=r"method\.NAME=VALUE"):
        parse_overrides([setting])


def test_an_override_that_no_cell_takes_is_refused(toys):
    with pytest.raises(RequestError, match=r"unknown parameter 'method\.pauze'.*did you mean 'method\.pause'"):
        expansion.expand(recipe.parse(TEXT, "toy.yaml"), "mini", toys, {"method.pauze": "1"})


SWEPT = """
name: toy
title: a toy
paper: none
source: none
task: {name: toy-text}
names: {none: sound, error: broken}
timing: {threads: 2}
cells:
  - row: "unigram, {fault}"
    column: "threads={threads} / {tokens} tokens"
    method: toy-unigram
    sweep: {fault: [none, error], task.tokens: [100, 200]}
    speed_baseline: {method: toy-unigram, params: {pause: 0.1}, same: [fault]}
"""


def test_a_sweep_reaches_the_task_and_a_baseline_takes_over_what_it_says_it_shares(toys):
    found = expansion.expand(recipe.parse(SWEPT, "toy.yaml"), "small", toys)
    assert [cell.name for cell in found] == [
        f"unigram, {fault} / threads=2 / {tokens} tokens" for fault in ("sound", "broken") for tokens in (100, 200)
    ]
    assert [cell.task.params["tokens"] for cell in found] == [100, 200, 100, 200]
    assert [cell.speed_baseline.params["fault"] for cell in found] == ["none", "none", "error", "error"]
    assert {cell.speed_baseline.params["pause"] for cell in found} == {0.1}


BASELINES = """
name: toy
title: a toy
paper: none
source: none
task: {name: toy-text}
cells:
  - {row: the exact one, method: toy-uniform}
  - {row: usual, method: toy-unigram}
  - {row: outputs only, method: toy-unigram, timed: false}
  - {row: other speed, method: toy-unigram, speed_baseline: {method: toy-unigram, params: {pause: 1}}}
  - {row: alone, method: toy-unigram, speed_baseline: null, fidelity_baseline: null}
  - {row: of an exact one, method: toy-uniform, speed_baseline: toy-unigram}
  - {row: a question, analysis: toy-counting}
"""


def test_a_cell_that_names_no_baseline_has_the_one_that_its_method_declares(toys):
    found = expansion.expand(recipe.parse(BASELINES, "toy.yaml"), "mini", toys)
    baselines = {cell.row: tuple(b and b.name for b in (cell.speed_baseline, cell.fidelity_baseline)) for cell in found}
    assert baselines == {
        "the exact one": (None, None),
        "usual": ("toy-uniform", "toy-uniform"),
        "outputs only": (None, "toy-uniform"),
        "other speed": ("toy-unigram", "toy-uniform"),
        "alone": (None, None),
        "of an exact one": ("toy-unigram", "toy-unigram"),  # it declares none: answers are compared with those timed
        "a question": (None, None),
    }


def test_a_declared_baseline_that_does_not_exist_is_named_with_the_method_that_declares_it(toys, monkeypatch):
    monkeypatch.setattr(registry, "_declared_at_run_time", {})
    method("lost", contract="token-scoring", baseline="toy-unifrm")(toys.resolve("method", "toy-uniform"))
    for expanded in (
        lambda: expansion.single("lost", "toy-text", "mini", Registry(), {}),
        lambda: expansion.expand(recipe.parse(BASELINES.replace("toy-uniform", "lost"), "t"), "mini", Registry()),
    ):
        with pytest.raises(RequestError, match="'toy-unifrm' in `baseline` of method lost: did you mean 'toy-uniform'"):
            expanded()


def test_a_declared_baseline_takes_over_the_parameters_that_both_have(toys):
    cells = "  - {row: a, method: transformers-beam, params: {beam: 3}}\n"
    head = BASELINES.partition("  - ")[0].replace("toy-text", "conll-gec")
    (cell,) = expansion.expand(recipe.parse(head + cells, "toy.yaml"), "mini", toys)
    assert cell.speed_baseline.name == "beam" and cell.speed_baseline.params["beam"] == 3


def test_overrides_do_not_reach_a_swept_parameter_of_the_task(toys):
    with pytest.raises(RequestError, match=r"task\.tokens: every cell of toy states it itself"):
        expansion.expand(recipe.parse(SWEPT, "toy.yaml"), "small", toys, {"task.tokens": "7"})


def test_a_baseline_cannot_share_what_the_method_does_not_have(toys):
    with pytest.raises(RequestError, match=r"unknown parameter 'faults'.*did you mean 'fault'"):
        expansion.expand(recipe.parse(SWEPT.replace("same: [fault]", "same: [faults]"), "toy.yaml"), "small", toys)
