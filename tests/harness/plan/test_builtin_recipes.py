"""The recipes of the bench: every one can be run, labels and claims say what ran, published numbers find their rows."""

import re
import string
from importlib.metadata import distributions
from itertools import chain

import pytest

from harness import session
from harness.contracts.metrics import Metric
from harness.contracts.tasks import SCALES
from harness.measure.drivers import DRIVERS
from harness.plan import expansion, matching, recipe, schema
from harness.plan.registry import Registry, construct
from harness.plan.schema import CellOf
from harness.rows import OWN
from harness.show import published
from tasks.models.lm import sizes as lm_sizes
from tasks.models.lstm import sizes as lstm_sizes
from tasks.models.seq2seq import sizes as seq2seq_sizes
from tasks.models.translator import sizes as translator_sizes

REGISTRY = Registry()
NAMES = sorted(recipe.files(REGISTRY))
RECIPES = {name: recipe.load(name, REGISTRY) for name in NAMES}
CELLS = {(name, scale): expansion.expand(RECIPES[name], scale, REGISTRY) for name in NAMES for scale in SCALES}
JUDGED = [(name, condition) for name in NAMES for condition in (*RECIPES[name].claims, *RECIPES[name].targets)]
RATIOS = {name for driver in DRIVERS.values() for name in driver.ratios}  # timed against a baseline, as a speedup is
NUMBER = r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])"


def described(cell, name):
    """What the harness, the cell's method or analysis, or its task declares under this name; None for nothing."""
    run = REGISTRY.resolve("analysis" if cell.kind == "analysis" else "method", cell.method.name)
    declared = (*OWN, *getattr(run, "measures", ()), *REGISTRY.resolve("task", cell.task.name).measures)
    return next((found for metric in declared if (found := metric.called(name)) is not None), None)


def sides(condition):
    return [side for side in (condition.of, condition.than) if isinstance(side, CellOf)]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", NAMES)
def test_every_claim_names_one_cell_or_a_curve_and_one_on_speed_names_a_timed_cell(name, scale):
    assert CELLS[name, scale]
    for owner, condition in JUDGED:
        if owner == name and scale in condition.scales:
            found = [(side, cell) for side in sides(condition) for cell in matching.find(side, CELLS[name, scale])]
            for side, cell in found:
                assert not any(described(cell, axis) is None for axis in side.at), condition.text
                metric = described(cell, condition.metric)
                timed = cell.timed and cell.speed_baseline
                assert timed or cell.kind == "analysis" or metric is None or metric.kind != "speed", condition.text
                assert metric or condition.metric in RATIOS or cell.kind == "analysis", f"no row has {condition.metric}"
                if condition.metric == "hot_loop_speedup":
                    contract = REGISTRY.entry("method", cell.method.name).contract
                    assert contract == "softmax-screening", "only its calls are timed with a step between two"
                assert condition.metric not in RATIOS or timed, condition.text
                assert condition.metric != "retrieval_share", "of the quality pass, which asks each prompt once"
                if cell.kind == "analysis" and cell.timed:  # its times are judged by the rule of cells
                    target = REGISTRY.resolve("analysis", cell.method.name)
                    assert condition.metric in construct(target, cell.method.params).ratios
                elif cell.kind == "analysis":
                    assert metric is not None and metric.kind not in ("speed", "time"), condition.text


def test_a_speedup_of_l2s_over_the_exact_softmax_names_its_clock():
    clocks = {"hot_loop_speedup": "in a loop of calls, the paper's protocol", "speedup": "between the model's steps"}
    named = [
        c for name, c in JUDGED if name.startswith("l2s") and c.metric in clocks and not isinstance(c.than, CellOf)
    ]
    assert {c.metric for c in named} == set(clocks)
    assert not [c.text for c in named if clocks[c.metric] not in c.text]


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_of_a_papers_speedup_asks_for_the_number_that_its_row_prints(name):
    numbers = published.of(RECIPES[name])
    for scale in SCALES:
        for condition in RECIPES[name].claims:
            if condition.metric != "speedup" or scale not in condition.scales or isinstance(condition.than, CellOf):
                continue
            (cell,) = matching.find(condition.of, CELLS[name, scale])
            printed = published.lookup(numbers, *cell.published, described(cell, "speedup"))
            mentioned = "abstract and Table 1" in condition.source  # L2S in translation: another table's number
            if printed and not mentioned and condition.is_ == "at least":
                assert condition.than == printed.value, condition.text


@pytest.mark.parametrize(("name", "condition"), JUDGED)
def test_the_text_of_a_claim_stands_alone(name, condition):
    text = condition.text
    assert re.match(r"[A-Z]|kNN-LM|∞-gram", text) and not re.match(r"(And|The same|So|Nor|There|At|It|With)\b", text)
    assert not re.search(r"\bthe same\b(?! (model|budget|questions))", text)
    names = (
        r"L2S|[Ss]pherical k-means|IAD|GAD|RaLMSpec|kNN-LM|RetoMaton|AdaptRet|retrieval|[Ss]earch|greedy|Asynchronous|"
        r"Prefetching|[Ss]creen|batch|automaton|drafter|∞-gram|infini-gram|tokengrams"
    )
    assert re.search(names, text), "no method is named"
    numbered = condition.metric in ("speedup", "hot_loop_speedup")
    if isinstance(condition.than, float) and numbered and condition.than not in (0.0, 1.0):
        assert re.search(rf"{condition.than:g}", text), "the number is missing"


def test_the_first_run_is_a_headline_recipe_of_each_paper():
    here = {one.name for one in distributions()}
    ran = [RECIPES[name] for name in session.first_run(REGISTRY)]
    first = [one for one in ran if not one.packages]
    assert {one.name for one in ran if one.packages} == {
        one.name for one in RECIPES.values() if one.first_run and one.packages and here.issuperset(one.packages)
    }
    assert sorted(one.paper for one in first) == sorted({one.paper for one in RECIPES.values()})
    assert all(one.headline for one in first)
    assert [one.first_run for one in first] == list(range(1, len(first) + 1))


def test_no_claim_is_stated_twice():
    for name in NAMES:
        for scale in SCALES:
            texts = [c.text for owner, c in JUDGED if owner == name and scale in c.scales]
            assert len(texts) == len(set(texts))


def test_claims_are_the_papers_and_targets_the_benchs():
    for name in NAMES:
        assert all(
            re.search(r"[Ss]ection|[Tt]able|[Ff]igure|[Aa]bstract|[Aa]ppendix", c.source) for c in RECIPES[name].claims
        )
        assert not [c.text for c in RECIPES[name].claims if "bench" in c.source]
        assert all("bench" in target.source for target in RECIPES[name].targets)


def stated(spec):
    """Values that a line of a recipe's cells sets: parameter -> values."""
    found: dict[str, list] = {}
    for name, value in chain.from_iterable(given.items() for given in (spec.params, spec.task, spec.timing)):
        found.setdefault(name, []).append(value)
    for name, values in chain.from_iterable(sweep.items() for sweep in (spec.sweep, *spec.scale_sweep.values())):
        found.setdefault(name.removeprefix("task."), []).extend(values)
    return found


def literals(label):
    """What a label says apart from its placeholders."""
    return [text for text, *_ in string.Formatter().parse(label)]


@pytest.mark.parametrize("name", NAMES)
def test_labels_fill_in_every_value_that_they_mention(name):
    """A literal that repeats a parameter's value would lie once the parameter changes."""
    for spec in chain(RECIPES[name].cells, *(scale.cells for scale in RECIPES[name].scales.values())):
        values = [value for given in stated(spec).values() for value in given]
        numbers = {float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)}
        words = {v.casefold() for v in values if isinstance(v, str) and v} | {
            shown.casefold() for v in values if (shown := RECIPES[name].names.get(str(v)))
        }
        for text in [*literals(spec.row), *literals(spec.column)]:
            assert not re.search(rf"\w+ ?= ?{NUMBER}", text), (spec.row, spec.column)
            assert not numbers & set(map(float, re.findall(NUMBER, text))), (spec.row, spec.column)
            assert not [word for word in words if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text.casefold())]


def test_labels_name_the_values_of_a_list_too():
    columns = dict.fromkeys(cell.column for cell in CELLS["spec-bench", "small"])
    kinds = ["summarisation", "retrieved passages", "translation", "mathematics", "questions", "MT-Bench"]
    assert [*columns] == ["all kinds", *kinds]


def test_a_literal_value_in_a_label_would_be_found():
    spec = schema.CellSpec(row="L2S, 50 clusters", method="l2s", params={"clusters": 50}, sweep={"task.batch": [32]})
    assert stated(spec) == {"clusters": [50], "batch": [32]}
    assert re.findall(NUMBER, "L2S, 50 clusters, 2x200, 3.5 k=7") == ["50", "3.5", "7"]


SIZES = {
    "lstm": lstm_sizes.SIZES,
    "translation": translator_sizes.SIZES,
    "transformer": {f"train:{name}": size for name, size in lm_sizes.SIZES.items()},
    "pairs": {f"train:{name}": size for name, size in seq2seq_sizes.SIZES.items()},
}


@pytest.mark.parametrize("name", NAMES)
def test_models_are_named_by_the_sizes_that_they_have(name):
    for value, shown in RECIPES[name].names.items():
        if found := re.match(r"(\d+)\+(\d+) Transformer of width (\d+)", shown):
            size = SIZES["pairs"][value]
            has = (size.encoder_layers, size.decoder_layers, size.width)
        elif found := re.match(r"(\d+)x(\d+) causal Transformer", shown):
            size = SIZES["pairs"][value]
            assert not size.encoder_layers
            has = (size.decoder_layers, size.width)
        elif found := re.match(r"(\d+)x(\d+) (LSTM|transformer)", shown):
            kind = found[3].lower() if RECIPES[name].task.name != "nmt-beam" else "translation"
            size = SIZES[kind][value]
            has = (size.layers, size.width)
        else:
            assert not value.startswith("train:")
            continue
        assert tuple(map(int, found.groups()[: len(has)])) == has


def test_no_row_bears_the_name_of_a_model_that_did_not_run():
    papers = ("gpt2", "opt", "llama", "bart", "transformer-big")
    for (name, scale), found in CELLS.items():
        for cell in found:
            model = str(cell.task.params.get("model", "")).casefold()
            named = [p for p in papers if re.search(rf"\b{p}\b(?!\.cpp)", cell.name.casefold())]
            assert all(p in model for p in named), (name, scale, cell.name)


def test_small_and_paper_take_ten_processes_and_three_pairs_and_mini_one_process():
    for (name, scale), found in CELLS.items():
        shapes = {(cell.timing.processes, cell.timing.pairs) for cell in found}
        assert shapes == {(1, 3) if scale == "mini" else (10, 3)}, name
        if scale == "mini" and name != "iad-table12" and not name.startswith(("checkpoints", "l2s", "heads")):
            for cell in found:
                batched = name == "infinigram-table1" and cell.method.params["query"].endswith("many")
                assert cell.timing.threads == (2 if batched else 1), (name, cell.name)
        if name.startswith("l2s") and scale != "mini" and any(cell.timed for cell in found) and name != "l2s-table6":
            assert {cell.timing.fits for cell in found} == {3}


def test_a_cell_at_small_times_at_least_a_hundred_items():
    for name in NAMES:
        for cell in CELLS[name, "small"]:
            timed = cell.task.params.get("timed")
            timed = cell.method.params.get("batches", timed)  # of an analysis with items of its own
            if cell.timed and timed is not None:
                assert cell.timing.processes * cell.timing.pairs * timed >= 100, cell.name


def test_parameters_of_every_cell_can_be_stored():
    assert all(cell.hash for found in CELLS.values() for cell in found)


def test_what_answers_differently_by_design_says_so():
    """Greedy decoding timed against beam search, or points of a curve that trades precision for speed."""
    for (name, _), found in CELLS.items():
        for cell in found:
            if cell.method.name == "greedy" and cell.speed_baseline and cell.speed_baseline.name == "beam":
                rounded = cell.method.params["engine"] != "float32"
                assert cell.fidelity.reason and cell.fidelity_baseline.name == ("greedy" if rounded else "beam")
            if name == "l2s-fig2":
                assert cell.fidelity.reason


@pytest.mark.parametrize("name", [name for name in NAMES if RECIPES[name].published])
def test_published_numbers_find_their_rows_at_paper(name):
    numbers = published.of(RECIPES[name])
    metrics = {*RECIPES[name].metrics, "speedup", "latency_s"}
    ours = {described(cell, metric) or Metric(metric) for cell in CELLS[name, "paper"] for metric in metrics}
    assert any(published.lookup(numbers, *cell.published, metric) for cell in CELLS[name, "paper"] for metric in ours)


@pytest.mark.parametrize("name", [name for name in NAMES if RECIPES[name].published])
def test_a_published_cell_that_a_recipe_names_exists(name):
    labels = {(n.row, n.column) for n in published.of(RECIPES[name])}
    named = [cell for cell in CELLS[name, "paper"] if cell.published != (cell.row, cell.column)]
    assert not [cell.published for cell in named if cell.published not in labels]
