"""The table says what was measured, next to what was published, and what went wrong."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from harness.contracts.metrics import Metric, described
from harness.contracts.rows import new_row
from harness.measure import environment
from harness.measure.own_metrics import own
from harness.plan.cell import Cell, Named
from harness.plan.recipe import Timing, parse
from harness.show.report import curves, figure, formats, render, tables
from harness.show.report.claims import verdicts
from harness.show.report.published import Number, Published

RECIPE = """
name: demo
title: a demo
paper: retomaton
source: A. et al. 2022, Figure 3
task: {name: wikitext-perplexity}
metrics: [perplexity, foss]
details: [states]
data_of_paper: [paper]
figure: {x: foss, y: perplexity}
scales: {small: {note: WikiText-2}}
cells: [{row: LM, method: lm}]
claims:
  - text: kNN-LM is better
    source: section 4
    of: {method: knnlm, params: {foss: 0}}
    metric: perplexity
    is: below
    than: {method: lm}
targets:
  - {text: kNN-LM is far better, of: {method: knnlm, params: {foss: 0}}, metric: perplexity, is: below, than: 10}
"""
CELLS = [("LM", ""), ("kNN-LM", "FoSS=0"), ("kNN-LM", "FoSS=0.5"), ("RetoMaton", "FoSS=0")]


def planned(labels=CELLS):
    """Cells of these labels; those whose column says FoSS stand next to the paper's of WikiText-103."""
    return [
        Cell(
            recipe="demo", row=row, column=column, scale="small", kind="pair",
            method=Named({"LM": "lm", "kNN-LM": "knnlm"}.get(row, row), {"foss": float(column[5:])} if column else {}),
            task=Named("wikitext-perplexity"), speed_baseline=None, fidelity_baseline=None, fidelity=None,
            timing=Timing(), timed=True, seed=1, published=(row, f"WikiText-103 / {column}"),
        )
        for row, column in labels
    ]  # fmt: skip


MACHINE = environment.capture()
OTHER = {**MACHINE, "cpu": {"model": "Another CPU"}}


def published(row="kNN-LM", column="WikiText-103 / FoSS=0", metric="perplexity", value="16.650", unit="", note=""):
    return Number("f.csv", "Figure 3", row, column, metric, value, float(value), unit, note)


def row(labels, perplexity, foss=None, speedup=None, machine=MACHINE, scale="small", **known):
    values = {"perplexity": perplexity, "fit_s": 21.0}
    timing = {
        "processes": [{"pairs": [1, 2, 3]}] * 10, "decision": None, "reason": "", "timed_items": 120, "items": 120,
    }  # fmt: skip
    intervals = {"perplexity": [perplexity - 1, perplexity + 1]}
    baseline = None
    values["latency_s"] = 0.25
    if speedup:
        values["baseline_latency_s"] = 0.25 * speedup
        values["speedup"], intervals["speedup"] = speedup, [speedup - 0.1, speedup + 0.1]
        timing |= {"decision": "faster", "reason": "above the noise floor"}
        baseline = {"method": "lm", "params": {}}
    return new_row(**(
        {
            "recipe": "demo", "row": labels[0], "column": labels[1], "scale": scale, "task": "wikitext-perplexity",
            "method": "lm" if labels[0] == "LM" else "knnlm",
            "params": {"method": {} if foss is None else {"foss": foss}, "task": {}},
            "fidelity": {"holds": True}, "metrics": values, "intervals": intervals,
            "timing": timing,
            "counters": {} if foss is None else {"foss": foss, "states": 7},
            "speed_baseline": baseline, "seed": 1, "device": "cpu",
            "environment": {"before": machine, "after": machine}, "facts": {"corpus": "wikitext-2", "tokens": 245569},
            "code": {"version": "0.1", "revision": "abcdef0123456", "dirty": False},
        } | known
    ))  # fmt: skip


def rows():
    return [row(CELLS[0], 92.0), row(CELLS[1], 85.0, 0.0, 1.8), row(CELLS[2], 88.0, 0.5, 2.5)]


def build(given=None, numbers=(), scale="small", **options):
    given = rows() if given is None else given
    measured = {(one["row"], one["column"]) for one in given}
    options.setdefault("cells", planned([labels for labels in CELLS if labels in measured]))
    return tables.build(parse(RECIPE, "demo.yaml"), scale, given, Published(numbers), **options)


def text(table, width=200) -> str:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    render.show(table, console)
    return console.file.getvalue()


def lines_of(table):
    """The leading table's lines of the machine that it is about."""
    return table.lead.sections[0].lines


def test_one_line_per_cell_with_intervals_speedup_and_times():
    table = build(cells=planned())
    assert table.lead.header == [
        "row", "column", "perplexity", "saved searches (FoSS)", "speedup vs LM", "decision", "items",
    ]  # fmt: skip
    assert table.details.header == ["row", "column", "states", "time per item", "baseline's time per item", "fit"]
    lines = lines_of(table)
    assert [tuple(line[:2]) for line in lines] == CELLS
    assert lines[1][2:] == [
        "85.00 [84.00, 86.00]", "0", "1.800 [1.700, 1.900]", "faster", "120",
    ]  # fmt: skip
    assert lines[3][2:] == ["not run", *["–"] * 4]
    details = table.details.sections[0].lines
    assert details[0][2:] == ["–", "250 ms", "–", "21 s"]  # it was timed, and against nothing
    assert details[1][2:] == ["7", "250 ms", "450 ms", "21 s"] and len(details) == 3  # what has not run has no details
    assert all(len(line) == len(table.lead.header) for line in lines)


def test_the_context_names_source_scale_machine_sample_seed_code_and_data():
    shown = " ".join(text(build()).split())
    for words in (
        "After A. et al. 2022, Figure 3", "Scale small: WikiText-2",
        MACHINE["cpu"]["model"], "10 processes × 3 pairs", "seed 1", "at abcdef0123",
        "above 1 is faster", "95% interval", "In table.md: details, task and models.",
    ):  # fmt: skip
        assert words in shown
    assert build().about == [
        ("wikitext-perplexity", "corpus", "wikitext-2"), ("wikitext-perplexity", "tokens", "245,569"),
    ]  # fmt: skip
    assert "| wikitext-perplexity | tokens | 245,569 |" in render.markdown(build())


def test_where_rows_differ_in_the_model_each_model_has_its_own_line():
    def of(labels, model, perplexity):
        facts = {"corpus": "wikitext-2", "test_perplexity": perplexity, "validation_perplexity_by_epoch": "200.0 150.0"}
        return row(labels, 90.0, hashes={"model": model}, facts=facts)

    small = [of(("LM", "small"), "a", 97.9), of(("kNN-LM", "small"), "a", 97.9), of(("LM", "batch=8"), "a", 97.9)]
    large = [of(("LM", "large"), "b", 104.2)]
    of_all = "wikitext-perplexity"
    shared = [(of_all, "corpus", "wikitext-2"), (of_all, "validation perplexity by epoch", "200.0 150.0")]
    own = [("small, batch=8", "test perplexity", "97.9"), ("large", "test perplexity", "104.2")]
    assert build([*small, *large]).about == [*shared, *own]
    assert (of_all, "test perplexity", "97.9") in build(small).about  # one model: once, for all
    mixed = build([of(("LM", "small"), "a", 97.9), of(("kNN-LM", "small"), "b", 104.2)]).about
    assert [where for where, _, _ in mixed[-2:]] == ["LM / small", "kNN-LM / small"]


def test_published_numbers_are_next_to_measured_ones_without_ratio_on_other_data():
    table = build(numbers=[published(), published("AdaptRet", value="16.35")])
    position = table.lead.header.index("paper")
    assert table.lead.header[position - 1] == "perplexity"
    assert [line[position] for line in lines_of(table)] == ["–", "16.650", "–"]
    assert any("Figure 3, WikiText-103" in note and "other data" in note for note in table.notes)
    assert table.published_only == [["AdaptRet", "WikiText-103 / FoSS=0", "perplexity", "16.35", "Figure 3"]]


def test_ratios_where_they_mean_something_and_units_converted():
    half = published(metric="foss", value="50", unit="%", column="WikiText-103 / FoSS=0.5")
    table = build(numbers=[half, published(metric="speedup", value="2")])
    lines = lines_of(table)
    assert lines[2][table.lead.header.index(own("foss").heading) + 1] == "0.5"  # 50 %, and no ratio on other data
    assert lines[1][table.lead.header.index("speedup vs LM") + 1] == "2 (×0.9)"
    at_paper = [row(CELLS[1], 83.25, 0.0, scale="paper")]
    table = build(at_paper, [published()], "paper")
    assert lines_of(table)[0][3] == "16.650 (×5)"


def test_speedups_over_settings_are_summed_up_by_geometric_mean_and_worst():
    tasks = [{"method": {}, "task": {"domain": name}} for name in ("law", "wiki")]
    law = row(("kNN-LM", "law"), 85.0, speedup=4.0, params=tasks[0])
    wiki = row(("kNN-LM", "wiki"), 85.0, speedup=0.25, params=tasks[1])
    sentence = "kNN-LM, speedup over 2 settings: geometric mean 1, worst 0.25 (wiki)."
    assert sentence in build([law, wiki]).notes
    for decision in ("no claim", "exploratory"):
        unsound = row(("kNN-LM", "news"), 85.0, speedup=9.0, params={"method": {}, "task": {"domain": "news"}})
        unsound["timing"]["decision"] = decision
        assert sentence in build([law, wiki, unsound]).notes  # a row that supports no claim has no part in the mean
    sweep = build([law, wiki | {"params": tasks[0]}])  # one setting twice: alternatives, not settings
    assert not any("geometric" in note for note in sweep.notes)


def test_a_row_stands_beside_the_published_cell_that_its_cell_names():
    numbers = [published("Ours", "GPT2", value="2", metric="speedup"), published(value="16.650")]
    given = [row(("kNN-LM", "2x128 transformer"), 85.0, 0.0, 1.8)]
    cells = [replace(planned()[1], column="2x128 transformer", published=("Ours", "GPT2"))]
    table = build(given, numbers, cells=cells)
    line = lines_of(table)[0]
    assert line[1] == "2x128 transformer" and line[table.lead.header.index("speedup vs lm") + 1] == "2 (×0.9)"
    assert any("Figure 3, Ours, GPT2" in note for note in table.notes)
    assert "paper" not in build(given, numbers, cells=[]).lead.header  # nothing is guessed from labels


def test_a_bound_is_not_shown_as_a_plain_number():
    table = build(numbers=[published(note="lower bound: more than")])
    assert any("lower bound: more than" in note for note in table.notes)


def test_failed_cells_show_their_status_and_reason():
    failed = row(CELLS[1], 1.0, status="killed", error={"message": "out of memory", "log": ""})
    table = build([*rows(), failed])
    assert lines_of(table)[1] == ["kNN-LM", "FoSS=0", "KILLED", *["–"] * 4]
    assert table.details.sections[0].lines[1] == ["kNN-LM", "FoSS=0", "KILLED", *["–"] * 3]
    assert "kNN-LM / FoSS=0: killed, out of memory" in table.notes
    only = build([failed])
    assert lines_of(only)[0][2] == "KILLED" and len(only.lead.header) == len(lines_of(only)[0])


def test_reasons_for_no_claim_are_given_once():
    given = rows()
    for one in given[1:]:
        one["timing"] |= {"decision": "exploratory", "reason": "too few"}
    assert build(given).notes[-1] == "exploratory: too few (all compared cells)."


def test_other_scales_are_left_out_and_other_machines_shown_apart():
    given = [row(CELLS[0], 50.0, machine=OTHER), row(CELLS[1], 1.0, 0.0, scale="mini"), *rows()]
    table = build(given)
    assert [len(section.lines) for section in table.lead.sections] == [3, 1]
    assert "Another CPU" in table.lead.sections[1].heading and table.lead.sections[1].lines[0][2].startswith("50.0")
    chosen = build(given, machine=environment.machine_id(OTHER), cells=planned(CELLS[:1]))
    assert lines_of(chosen)[0][2].startswith("50.0") and len(chosen.lead.sections[1].lines) == 3
    nothing = build([row(CELLS[0], 50.0, machine=OTHER)], machine=environment.machine_id(MACHINE), cells=planned())
    assert [line[2] for line in lines_of(nothing)] == ["not run"] * 4  # another machine's row finishes no cell


def test_baselines_are_named_as_the_table_names_them():
    given = rows()
    given[2]["speed_baseline"] = {"method": "knnlm", "params": {"foss": 0.0}}
    given[1]["params"]["method"], given[2]["params"]["method"] = {}, {"foss": 0.5}
    position = build(given).lead.header.index("vs")
    assert [line[position] for line in lines_of(build(given))] == ["–", "LM", "knnlm (foss=0.0)"]
    given[1]["params"]["method"] = {"foss": 0.0}
    assert lines_of(build(given))[2][position] == "kNN-LM / FoSS=0"


@pytest.mark.parametrize("width", [80, 90, 100, 160])
def test_a_narrow_terminal_keeps_whole_numbers_and_names_what_it_leaves_out(width):
    shown = text(build(numbers=[published()], cells=planned()), width)
    assert all(len(line) <= width for line in shown.splitlines())
    assert "85.0" in shown and "16.650" in shown and "[84.00, 86.00]" in shown
    assert ("Not enough room for" in shown) == (width < 110)


def test_markdown_csv_and_verdicts_are_written(tmp_path: Path):
    recipe = parse(RECIPE, "demo.yaml")
    judged = verdicts(recipe, "small", planned(), rows()[:2])
    table = build(numbers=[published()], verdicts=judged)
    markdown, comma = render.write(table, tmp_path / "new" / "folder")
    page = markdown.read_text()
    claims, targets = page.split("## Claims of the paper")[1].split("## Targets of this bench")
    assert "kNN-LM is better (section 4)" in claims and "| does not hold | kNN-LM is far better" in targets
    shown = text(table)
    assert shown.index("Claims of the paper") < shown.index("kNN-LM is better") < shown.index("Targets of this bench")
    assert "| kNN-LM | FoSS=0 | 85.00 [84.00, 86.00] | 16.650 |" in page and "| holds | kNN-LM is better" in page
    records = list(csv.DictReader(comma.open()))
    assert len(records) == 3 and float(records[1]["perplexity_low"]) == 84.0 and records[1]["decision"] == "faster"
    assert float(records[1]["perplexity_published"]) == 16.65 and records[1]["perplexity_ratio"] == ""
    assert not list(markdown.parent.glob("*.partial"))


def test_a_baseline_of_another_task_setting_is_not_the_rows_own():
    single = row(CELLS[0], 92.0, params={"method": {}, "task": {"batch": 1}})
    batched = row(("LM, batches", ""), 92.0, method="lm", params={"method": {}, "task": {"batch": 32}})
    compared = row(CELLS[1], 85.0, 0.0, 1.8, params={"method": {"k": 8}, "task": {"batch": 1}})
    assert "speedup vs LM" in build([single, batched, compared]).lead.header


def test_a_baseline_whose_quality_was_measured_on_more_items_is_named_where_column_and_model_are_the_rows_own():
    def sized(labels, items, model, **known):
        return row(labels, 92.0, params={"method": {}, "task": {"items": items}}, hashes={"model": model}, **known)

    baseline, compared = sized(("LM", "GPT"), 100, "m"), sized(("kNN-LM", "GPT"), 20, "m", speedup=2.0)
    assert "speedup vs LM" in build([baseline, compared]).lead.header
    assert "speedup vs lm" in build([baseline, compared | {"hashes": {"model": "other"}}]).lead.header


def test_curves_take_parameters_of_method_and_task_as_coordinates():
    rows = [row(CELLS[1], 85.0, params={"method": {"k": 8}, "task": {"batch": 32}})]
    assert curves.measured_curves(rows, "batch", "perplexity")["kNN-LM"][0].x == 32
    assert curves.measured_curves(rows, "k", "perplexity")["kNN-LM"][0].x == 8


def test_worked_examples_of_the_same_matter_stand_together():
    given = [
        row(CELLS[0], 92.0, examples=[{"source": "ein Haus", "output": "a house"}]),
        row(
            CELLS[1],
            85.0,
            examples=[{"source": "ein Haus", "output": "one | house"}, {"source": "ja", "output": "yes"}],
        ),
    ]
    table = build(given)
    assert [example.given for example in table.examples] == [{"source": "ein Haus"}, {"source": "ja"}]
    assert table.examples[0].outputs == {"LM": "a house", "kNN-LM / FoSS=0": "one | house"}
    assert "| kNN-LM / FoSS=0 | one \\| house |" in render.markdown(table)
    assert "Example 2" in text(table)


def test_a_recipe_without_named_metrics_shows_the_first_few():
    recipe = parse(RECIPE.replace("metrics: [perplexity, foss]\n", ""), "demo.yaml")
    table = tables.build(recipe, "small", rows(), Published([]))
    assert table.lead.header[2:4] == ["perplexity", "saved searches (FoSS)"]  # none of the harness's own


def test_a_metric_that_no_row_has_gets_no_column():
    recipe = parse(RECIPE.replace("[perplexity, foss]", "[perplexity, foss, absent]"), "demo.yaml")
    assert "absent" not in tables.build(recipe, "small", rows(), Published([])).lead.header
    assert "absent" in tables.build(recipe, "small", [], Published([])).lead.header  # of an empty table all columns


def test_a_run_of_several_recipes_ends_with_a_line_for_each():
    judged = verdicts(parse(RECIPE, "demo.yaml"), "small", planned(), rows())
    console = Console(width=120, file=io.StringIO(), force_terminal=False)
    stated = [replace(one, claim=one.claim.model_copy(update={"scales": ["paper"]})) for one in judged.claims]
    elsewhere = replace(judged, claims=stated, targets=[])
    render.show_summary([("first", judged), ("second", elsewhere)], console)
    first, second = (line.split("  ") for line in console.file.getvalue().splitlines()[-2:])
    assert [part.strip() for part in first if part.strip()] == ["first", "holds: 1", "does not hold: 1"]
    assert [part.strip() for part in second if part.strip()] == ["second", "none at this scale", "none"]


def test_an_empty_run_is_still_a_table():
    table = build([], cells=planned())
    assert [line[2] for line in lines_of(table)] == ["not run"] * 4
    assert "nothing has been measured yet" in text(table)


@pytest.mark.parametrize(
    ("value", "interval", "shown"),
    [
        (85.3123, (84.1, 86.52), "85.31 [84.10, 86.52]"),
        (0.99812, (0.9975, 0.9987), "0.99812 [0.99750, 0.99870]"),
        (10.6, None, "10.6"),
        (245569, None, "245,569"),
        (1.0, (1.0, 1.0), "1"),
        (0.0, (0.0, 0.0), "0"),
        (None, (1, 2), "–"),
        (float("nan"), None, "–"),
    ],
)
def test_numbers_carry_the_digits_that_their_interval_supports(value, interval, shown):
    assert formats.with_interval(value, interval) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0123, "12.3 ms"), (4.56, "4.56 s"), (200, "3 min 20 s"), (7500, "2 h 05 min"), (None, "–")],
)
def test_durations(seconds, shown):
    assert formats.duration(seconds) == shown


# ------------------------------------------------------------ figure


def test_curves_take_measured_points_with_intervals_and_published_ones_by_label():
    drawn = curves.measured_curves(rows(), "foss", "perplexity")
    assert drawn == {"kNN-LM": [curves.Point(0.0, 85.0, 84.0, 86.0), curves.Point(0.5, 88.0, 87.0, 89.0)]}
    assert curves.levels(rows(), "foss", "perplexity") == {"LM": 92.0}
    numbers = Published([
        published(), published(column="at the best"), published("L2S", "PTB", "speedup", "10.6"),
        published("L2S", "PTB", "precision_at_1", "0.998"),
    ])  # fmt: skip
    found = curves.published_curves(numbers, own("foss"), own("perplexity"), curves.Names())
    assert found == {"kNN-LM": [curves.Point(0.0, 16.65)]}
    found = curves.published_curves(numbers, own("speedup"), own("precision_at_1"), curves.Names())
    assert found == {"L2S": [curves.Point(10.6, 0.998)]}


def test_the_figure_is_the_same_bytes_for_the_same_rows(tmp_path):
    recipe = parse(RECIPE, "demo.yaml")
    drawn = [figure.draw(recipe, "small", rows(), Published([published()]), tmp_path / name) for name in "ab"]
    assert [path.name for path in drawn[0]] == ["figure.svg", "figure.png"]
    assert drawn[0][0].read_bytes() == drawn[1][0].read_bytes()
    assert drawn[0][1].read_bytes().startswith(b"\x89PNG")


def test_without_points_there_is_no_figure(tmp_path):
    assert figure.draw(parse(RECIPE, "demo.yaml"), "small", rows()[:1], Published([]), tmp_path) == []
    assert not list(tmp_path.iterdir())


def test_a_baseline_in_the_same_column_is_named_by_its_row_alone():
    threads = ["1 thread", "2 threads"]
    rows = [row(("LM", column), 20.0) for column in threads]
    rows += [row(("kNN-LM", column), 17.0, speedup=2.0) for column in threads]
    table = build(rows)
    assert "speedup vs LM" in table.lead.header and "vs" not in table.lead.header
    assert [r["baseline"] for r in table.records if r["row"] == "kNN-LM"] == [f"LM / {column}" for column in threads]
    table = build([rows[0], *rows[2:]])  # the other column has no baseline of its own
    vs = table.lead.header.index("vs")
    assert [line[vs] for line in lines_of(table) if line[0] == "kNN-LM"] == ["LM", "LM / 1 thread"]


# ------------------------------------------------------------ what a table says of its numbers and times


def declared(given, *measures):
    for one in given:
        one["described"] = described(*measures)
    return given


def test_the_header_has_what_rows_say_of_their_metrics_and_an_undeclared_one_stands_plainly():
    assert build().lead.header[2] == "perplexity" and not any("↑" in note for note in build().notes)
    for label, unit, head in (("surprise", "", "surprise ↓"), ("", "bits", "perplexity (bits) ↓")):
        table = build(declared(rows(), Metric("perplexity", label, unit, "lower")))
        assert table.lead.header[2] == head
        assert "↑: higher is better, ↓: lower." in table.notes


def test_seconds_are_times_by_their_unit_and_not_by_their_name():
    named = build(declared(rows(), Metric("perplexity", "waiting", "s")))
    assert named.lead.header[2] == "waiting" and lines_of(named)[0][2] == "92.00 [91.00, 93.00] s"
    given = rows()
    for one in given:
        one["metrics"]["perplexity"], one["intervals"]["perplexity"] = 0.0123, [0.0119, 0.0127]
    named = build(declared(given, Metric("perplexity", "waiting", "s")))
    assert lines_of(named)[0][2] == "12.300 [11.900, 12.700] ms"
    plain = [row(CELLS[0], 92.0, metrics={"pages_s": 0.012})]
    recipe = parse(RECIPE.replace("[perplexity, foss]", "[pages_s]"), "demo.yaml")
    table = tables.build(recipe, "small", plain, Published([]))
    assert table.lead.header[2] == "pages s" and lines_of(table)[0][2] == "0.012"  # pages, for all the table knows


def test_items_that_were_timed_twice_are_counted_apart():
    given = rows()
    given[1]["timing"] |= {"timed_items": 120, "items": 96}
    given[2]["timing"] |= {"timed_items": 90_000, "items": None}  # too many in a pass to name each
    table = build(given)
    position = table.lead.header.index("items")
    assert [line[position] for line in lines_of(table)] == ["120", "120 (96 different)", "90,000"]


def test_the_hot_loop_stands_among_the_details_where_any_row_has_it():
    given = rows()
    given[1]["metrics"]["hot_loop_speedup"], given[1]["intervals"]["hot_loop_speedup"] = 3.6, [3.5, 3.7]
    details = build(given).details
    position = details.header.index("hot loop")
    assert [line[position] for line in details.sections[0].lines] == ["–", "3.600 [3.500, 3.700]", "–"]
    assert "hot loop" not in build().details.header


def test_fits_and_disturbances_are_named_below_and_above():
    given = rows()
    given[1]["counters"]["fits"] = given[2]["counters"]["fits"] = 3
    text = "other processes took 0.20 of a core"
    given[0]["timing"]["disturbed"] = given[1]["timing"]["disturbed"] = text
    given[2]["timing"]["disturbed"] = "the host withheld 0.30 of a core"
    table = build(given)
    assert any("10 processes × 3 pairs or 10 processes × 3 pairs over 3 fits" in fact for fact in table.facts.values())
    assert f"Disturbed: {text} (LM; kNN-LM / FoSS=0)." in table.notes
    assert "Disturbed: the host withheld 0.30 of a core (kNN-LM / FoSS=0.5)." in table.notes
    assert "fits" not in build().facts["Sample"] and not any("Disturbed" in n for n in build().notes)


def test_a_recipe_may_name_parameters_as_columns(tmp_path):
    recipe = parse(RECIPE.replace("[perplexity, foss]", "[perplexity, method.distance, task.batch]"), "demo.yaml")
    given = [row(CELLS[0], 92.0), row(CELLS[1], 85.0, params={"method": {"distance": "exact"}, "task": {"batch": 8}})]
    table = tables.build(recipe, "small", given, Published([]))
    assert table.lead.header[3:5] == ["distance", "batch"]
    assert [line[3:5] for line in lines_of(table)] == [["–", "–"], ["exact", "8"]]
    assert list(csv.DictReader(io.StringIO(render.as_csv(table))))[1]["method.distance"] == "exact"


def test_a_published_time_stands_beside_the_time_per_item_in_its_unit():
    table = build(numbers=[published(metric="latency_ms", value="125", unit="ms")])
    position = table.details.header.index("time per item")
    assert table.details.header[position + 1] == "paper"
    assert [line[position + 1] for line in table.details.sections[0].lines] == ["–", "125 ms", "–"]
    alone = [row(CELLS[1], 85.0, 0.0)]  # timed, and compared with nothing: its time is what it was measured for
    assert build(alone).lead.header[4:6] == ["time per item", "items"]
