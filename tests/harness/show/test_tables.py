"""The table says what was measured, next to what was published, and what went wrong."""

import io
from collections.abc import Mapping
from dataclasses import replace

from rich.console import Console

from harness.contracts.metrics import Metric, described
from harness.measure import environment
from harness.show import markup, stored, tables, terminal
from harness.show.claims import Verdicts, verdicts
from harness.show.published import Number
from tests.harness.made import cell_of, numbers_of, stored_of
from tests.harness.rows import new_row, processes

RECIPE = """
name: demo
title: a demo
paper: retomaton
source: A. et al. 2022, Figure 3
task: {name: wikitext-perplexity}
metrics: [perplexity, foss]
details: [states]
data_of_paper: [paper]
scales: {small: {note: WikiText-2}}
cells: [{row: LM, method: lm}]
claims:
  - text: kNN-LM is better
    source: section 4
    of: {method: knnlm, params: {foss: 0}}
    is: perplexity below
    than: {method: lm}
targets:
  - {text: kNN-LM is far better, of: {method: knnlm, params: {foss: 0}}, is: perplexity below 10}
"""
CELLS = [("LM", ""), ("kNN-LM", "FoSS=0"), ("kNN-LM", "FoSS=0.5"), ("RetoMaton", "FoSS=0")]
MACHINE = environment.capture()
OTHER = {**MACHINE, "cpu": {"model": "Another CPU"}}


def planned(labels=CELLS):
    """Cells of these labels."""
    methods = {"LM": "lm", "kNN-LM": "knnlm", "RetoMaton": "retomaton"}
    return [
        cell_of(methods[row], "t", {"foss": float(column[5:])} if column else {}, row=row, column=column)
        for row, column in labels
    ]


def published(row="kNN-LM", column="WikiText-103 / FoSS=0", metric="perplexity", value="16.650", unit="", note=""):
    return Number("f.csv", "Figure 3", row, column, metric, value, float(value), unit, note)


def row(labels, perplexity, foss=None, speedup=None, machine=MACHINE, samples: Mapping = {}, **known):
    """A row of 120 timed items, 250 ms each; next to the paper's cell of WikiText-103."""
    timed = {"shape": (6, 4), "spread": 0.05, "seconds": 1.25, "single": not speedup, **samples}
    return new_row(**(
        {
            "row": labels[0], "column": labels[1], "published": (labels[0], f"WikiText-103 / {labels[1]}"),
            "recipe": "demo", "task": "wikitext-perplexity", "method": "lm" if labels[0] == "LM" else "knnlm",
            "params": {"method": {} if foss is None else {"foss": foss}, "task": {}},
            "metrics": {"perplexity": perplexity, "fit_s": 21.0},
            "intervals": {"perplexity": [perplexity - 1, perplexity + 1]},
            "counters": {} if foss is None else {"foss": foss, "states": 7},
            "processes": processes(speedup or 1.0, **timed),
            "speed_baseline": {"method": "lm", "params": {}} if speedup else None, "seed": 1, "device": "cpu",
            "environment": {"before": machine, "after": machine}, "facts": {"corpus": "wikitext-2", "tokens": 245569},
            "code": {"version": "0.1", "revision": "abcdef0123456", "dirty": False},
        } | known
    ))  # fmt: skip


def rows():
    return [row(CELLS[0], 92.0), row(CELLS[1], 85.0, 0.0, 1.8), row(CELLS[2], 88.0, 0.5, 2.5)]


def build(given=None, numbers=(), recipe=RECIPE, **options):
    given = rows() if given is None else given
    options.setdefault("cells", planned([labels for labels in CELLS if labels in {(r.row, r.column) for r in given}]))
    one = stored_of(recipe, given, numbers=numbers, **options)
    return tables.build(one, numbers_of(one), verdicts(one) if one.cells else Verdicts())


def text(table, width=200) -> str:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    terminal.show(table, console)
    return console.file.getvalue()


def lines_of(table, section=0):
    """The leading table's lines of the machine that it is about."""
    return list(tables.sections(table.lead))[section][1]


def column(grid, head, after=0):
    """What stands under a head, or so many columns to the right of it."""
    return grid.iloc[:, list(grid).index(head) + after].tolist()


def test_one_line_per_cell_with_intervals_speedup_and_times():
    table = build(cells=planned())
    assert list(table.lead) == [
        "row", "column", "perplexity", "saved searches (FoSS)", "speedup vs LM", "decision", "time per item", "items",
    ]  # fmt: skip
    assert list(table.details) == ["row", "column", "states", "baseline's time per item", "fit"]
    lines = lines_of(table)
    assert [tuple(line[:2]) for line in lines] == CELLS
    assert lines[1][2:] == ["85.0 [84.0, 86.0]", "0", "1.80 [1.73, 1.87]", "faster", "250 ms", "120"]
    assert lines[3][2:] == ["not run", *["–"] * 5]
    details = table.details.to_numpy().tolist()
    assert details[0][2:] == ["–", "–", "21 s"]  # it was timed, and against nothing
    assert details[1][2:] == ["7", "450 [433, 468] ms", "21 s"] and len(details) == 3  # what has not run has no details


def test_a_column_that_all_rows_share_stands_above_them_once():
    kept, shared = text(build(rows()[:2])), text(build([rows()[1], row(CELLS[3], 80.0, 0.0, 2.0)]))
    assert "Column  " not in kept and kept.split().count("column") == 1
    assert "Column  " in shared and "column" not in shared.split() and shared.split("kNN-LM", 1)[0].count("FoSS=0") == 1


def test_what_stands_above_and_below_names_source_scale_machine_sample_seed_code_and_data():
    shown = " ".join(text(build()).split())
    for words in (
        "After A. et al. 2022, Figure 3", "Scale small: WikiText-2",
        MACHINE["cpu"]["model"], "6 processes × 4 pairs", "seed 1", "at abcdef0123",
        "above 1 is faster", "95% interval", "In table.md: details, task and models.",
    ):  # fmt: skip
        assert words in shown
    assert build().about == [
        ("wikitext-perplexity", "corpus", "wikitext-2"), ("wikitext-perplexity", "tokens", "245,569"),
    ]  # fmt: skip
    assert "| wikitext-perplexity | tokens | 245,569 |" in markup.markdown(build())


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


# ------------------------------------------------------------ published numbers


def test_published_numbers_are_next_to_measured_ones_without_ratio_on_other_data():
    table = build(numbers=[published(), published("AdaptRet", value="16.35")])
    assert column(table.lead, "perplexity", 1) == column(table.lead, "paper") == ["–", "16.650", "–"]
    assert any("Figure 3, WikiText-103" in note and "other data" in note for note in table.notes)
    assert table.alone.to_numpy().tolist() == [
        ["AdaptRet", "WikiText-103 / FoSS=0", "perplexity", "16.35", "Figure 3"],
    ]  # fmt: skip


def test_ratios_where_they_mean_something_and_units_converted():
    half = published(metric="foss", value="50", unit="%", column="WikiText-103 / FoSS=0.5")
    table = build(numbers=[half, published(metric="speedup", value="2")])
    assert column(table.lead, "saved searches (FoSS)", 1)[2] == "0.5"  # 50 %, and no ratio on other data
    assert column(table.lead, "speedup vs LM", 1)[1] == "2 (×0.9)"
    table = build([row(CELLS[1], 83.25, 0.0, scale="paper")], [published()], scale="paper")
    assert column(table.lead, "paper") == ["16.650 (×5)"]


def test_a_row_stands_next_to_the_published_cell_that_it_names():
    numbers = [published("Ours", "GPT2", value="2", metric="speedup"), published(value="16.650")]
    given = row(("kNN-LM", "2x128 transformer"), 85.0, 0.0, 1.8, published=("Ours", "GPT2"))
    table = build([given], numbers)
    assert column(table.lead, "speedup vs lm", 1) == ["2 (×0.9)"]
    assert any("Figure 3, Ours, GPT2" in note for note in table.notes)
    assert "paper" not in build([replace(given, published=None)], numbers).lead  # nothing is guessed from labels


def test_settings_that_differ_have_a_column():
    numbers = [published(), published(column="PTB", value="20")]
    given = [*rows()[:2], row(CELLS[2], 88.0, 0.5, 2.5, published=("kNN-LM", "PTB"))]
    assert column(build(given, numbers).lead, tables.SETTING) == [
        "–", "Figure 3, WikiText-103", "Figure 3, PTB",
    ]  # fmt: skip


def test_a_bound_is_not_shown_as_a_plain_number():
    table = build(numbers=[published(note="lower bound: more than")])
    assert any("lower bound: more than" in note for note in table.notes)


def test_a_published_time_stands_next_to_the_time_per_item_in_its_unit():
    table = build(numbers=[published(metric="latency_ms", value="125", unit="ms")])
    assert column(table.lead, "time per item", 1) == column(table.lead, "paper") == ["–", "125 ms", "–"]
    alone = [row(CELLS[1], 85.0, 0.0)]  # timed, and compared with nothing: its time is what it was measured for
    assert list(build(alone).lead)[4:6] == ["time per item", "items"]


# ------------------------------------------------------------ notes


def test_speedups_over_settings_are_summed_up_by_geometric_mean_and_worst():
    def of(domain, speedup, **known):
        params = {"method": {}, "task": {"domain": domain}}
        return row(("kNN-LM", domain), 85.0, speedup=speedup, **{"params": params} | known)

    law, wiki = of("law", 4.0), of("wiki", 0.25)
    sentence = "kNN-LM, speedup over 2 settings: geometric mean 1, worst 0.25 (wiki)."
    assert sentence in build([law, wiki]).notes
    for unsound in ({"objections": ["fidelity"]}, {"samples": {"shape": (2, 2)}}):
        assert sentence in build([law, wiki, of("news", 9.0, **unsound)]).notes  # no claim: it has no part in the mean
    sweep = build([law, of("wiki", 0.25, params=law.params)])  # one setting twice: alternatives, not settings
    assert not any("geometric" in note for note in sweep.notes)


def test_methods_that_were_timed_in_the_same_processes_are_ranked_by_their_own_times():
    def in_block(one, factor, processes=6):
        def slow(part):
            return {**part, "method_ns": [factor * ns for ns in part["method_ns"]]}

        samples = [
            {**p, "block": f"b{n}", "pairs": list(map(slow, p["pairs"])), "again": slow(p["again"])}
            for n, p in enumerate(one.processes[:processes])
        ]
        return replace(one, processes=samples)

    _, first, second = rows()
    both = [in_block(replace(first, column=""), 1.0), in_block(replace(second, row="slower", column=""), 1.5)]
    notes = build(both, cells=()).notes
    assert any("in the same processes: kNN-LM is 1.5" in note and "times as fast as slower." in note for note in notes)
    assert any(note.startswith("2 comparisons were decided at 95%") and "at most 0.1 of them" in note for note in notes)
    other = build([replace(both[0], column="one"), replace(both[1], row="kNN-LM", column="other")], cells=()).notes
    assert any(
        "in the same processes: kNN-LM / one is 1.5" in note and "fast as kNN-LM / other." in note for note in other
    )
    alone = build([in_block(one, 1.0, 1) for one in both], cells=()).notes  # one process gives no interval
    assert not any("in the same processes" in note for note in alone)


def test_failed_cells_show_their_status_and_reason():
    failed = row(CELLS[1], 1.0, status="killed", error={"message": "out of memory", "log": ""})
    table = build([*rows(), failed])
    assert lines_of(table)[1] == ["kNN-LM", "FoSS=0", "KILLED", *["–"] * 5]
    assert table.details.iloc[1].tolist() == ["kNN-LM", "FoSS=0", "KILLED", *["–"] * 2]
    assert "kNN-LM / FoSS=0: killed, out of memory" in table.notes
    only = build([failed])
    assert lines_of(only)[0][2] == "KILLED"


def test_reasons_for_no_claim_are_given_once():
    given = [rows()[0], *(replace(one, objections=["too few"]) for one in rows()[1:])]
    assert build(given).notes[-1] == "no claim: too few (all compared cells)."


def test_fits_and_disturbances_are_named_above_and_below():
    text, hosts = "other processes took 0.20 of a core", "the host withheld 0.30 of a core"
    given = [
        replace(one, disturbed=said, counters={**one.counters, **fits})
        for one, said, fits in zip(rows(), (text, text, hosts), ({}, {"fits": 3}, {"fits": 3}), strict=True)
    ]
    table = build(given)
    assert "6 processes × 4 pairs or 6 processes × 4 pairs over 3 fits" in table.above["Sample"]
    assert f"Disturbed: {text} (LM; kNN-LM / FoSS=0)." in table.notes
    assert f"Disturbed: {hosts} (kNN-LM / FoSS=0.5)." in table.notes
    assert "fits" not in build().above["Sample"] and not any("Disturbed" in n for n in build().notes)


def test_a_method_that_was_fitted_once_at_random_says_what_its_interval_leaves_out():
    given = [rows()[0], replace(rows()[1], fitted_once=True)]
    assert any(note.startswith("Fitted once, at random") and "FoSS=0" in note for note in build(given).notes)


# ------------------------------------------------------------ which rows and columns


def test_baselines_are_named_as_the_table_names_them():
    def of(foss, baseline):
        params = {"method": {} if foss is None else {"foss": foss}, "task": {}}
        first = row(CELLS[1], 85.0, 0.0, 1.8, params=params)
        return [rows()[0], first, row(CELLS[2], 88.0, 0.5, 2.5, speed_baseline=baseline)]

    exact = {"method": "knnlm", "params": {"foss": 0.0}}
    assert column(build(of(None, exact)).lead, "vs") == ["–", "LM", "knnlm (foss=0.0)"]
    assert column(build(of(0.0, exact)).lead, "vs") == ["–", "LM", "kNN-LM / FoSS=0"]


def test_a_timed_analysis_shows_the_ratio_that_its_decision_is_about():
    two_sides = replace(rows()[1], row="against waiting", speed_baseline=None)
    lead = build([*rows(), two_sides], cells=()).lead
    speedups, vs = next(column(lead, head) for head in lead if head.startswith("speedup")), column(lead, "vs")
    assert (speedups[-1], vs[-1], column(lead, "decision")[-1]) == ("1.80 [1.73, 1.87]", tables.TWO_SIDES, "faster")


def test_a_baseline_of_another_task_setting_is_not_the_rows_own():
    single = row(CELLS[0], 92.0, params={"method": {}, "task": {"batch": 1}})
    batched = row(("LM, batches", ""), 92.0, method="lm", params={"method": {}, "task": {"batch": 32}})
    compared = row(CELLS[1], 85.0, 0.0, 1.8, params={"method": {"k": 8}, "task": {"batch": 1}})
    assert "speedup vs LM" in build([single, batched, compared]).lead


def test_a_baseline_whose_quality_was_measured_on_more_items_is_named_where_column_and_model_are_the_rows_own():
    def sized(labels, items, model, **known):
        return row(labels, 92.0, params={"method": {}, "task": {"items": items}}, hashes={"model": model}, **known)

    baseline, compared = sized(("LM", "GPT"), 100, "m"), sized(("kNN-LM", "GPT"), 20, "m", speedup=2.0)
    assert "speedup vs LM" in build([baseline, compared]).lead
    assert "speedup vs lm" in build([baseline, replace(compared, hashes={"model": "other"})]).lead


def test_a_baseline_in_the_same_column_is_named_by_its_row_alone():
    threads = ["1 thread", "2 threads"]
    lm, knn = ([row((name, c), 20.0, speedup=s) for c in threads] for name, s in (("LM", None), ("kNN-LM", 2.0)))
    table = build([*lm, *knn])
    assert "speedup vs LM" in table.lead and "vs" not in table.lead
    assert column(build([lm[0], *knn]).lead, "vs") == ["–", "LM", "LM / 1 thread"]  # one column has no baseline


def test_a_recipe_without_named_metrics_shows_the_first_few():
    table = build(recipe=RECIPE.replace("metrics: [perplexity, foss]\n", ""))
    assert list(table.lead)[2:4] == ["perplexity", "saved searches (FoSS)"]  # none of the harness's own


def test_a_metric_that_no_row_has_gets_no_column():
    recipe = RECIPE.replace("[perplexity, foss]", "[perplexity, foss, absent]")
    assert "absent" not in build(recipe=recipe).lead
    assert "absent" in build([], recipe=recipe, cells=planned()).lead  # of an empty table all columns


def test_a_recipe_may_name_parameters_as_columns():
    recipe = RECIPE.replace("[perplexity, foss]", "[perplexity, method.distance, task.batch]")
    given = [row(CELLS[0], 92.0), row(CELLS[1], 85.0, params={"method": {"distance": "exact"}, "task": {"batch": 8}})]
    table = build(given, recipe=recipe)
    assert list(table.lead)[3:5] == ["distance", "batch"]
    assert [line[3:5] for line in lines_of(table)] == [["–", "–"], ["exact", "8"]]


def test_the_header_has_what_rows_say_of_their_metrics_and_an_undeclared_one_stands_plainly():
    assert list(build().lead)[2] == "perplexity" and not any("↑" in note for note in build().notes)
    for label, unit, head in (("surprise", "", "surprise ↓"), ("", "bits", "perplexity (bits) ↓")):
        says = described(Metric("perplexity", label, unit, "lower"))
        table = build([replace(one, described=says) for one in rows()])
        assert list(table.lead)[2] == head and "↑: higher is better, ↓: lower." in table.notes


def test_seconds_are_times_by_their_unit_and_not_by_their_name():
    def shown(value, half, unit):
        declared = {"described": described(Metric("pages_s", "waiting" * bool(unit), unit))} if unit else {}
        one = row(CELLS[0], 92.0, metrics={"pages_s": value}, intervals={"pages_s": [value - half, value + half]})
        table = build([replace(one, **declared)], recipe=RECIPE.replace("[perplexity, foss]", "[pages_s]"))
        return list(table.lead)[2], lines_of(table)[0][2]

    assert shown(92.0, 1.0, "s") == ("waiting", "92.0 [91.0, 93.0] s")
    assert shown(0.0123, 0.0004, "s") == ("waiting", "12.30 [11.90, 12.70] ms")
    assert shown(0.012, 0.0, "") == ("pages s", "0.012")  # pages, for all the table knows


def test_items_that_were_timed_twice_are_counted_apart():
    several, many = rows()[1:]
    for process in several.processes:  # an item less a pass, for the first one is timed twice
        for pair in process["pairs"]:
            pair["items"] = [*pair["items"][:4], pair["items"][0]]
    for process in many.processes:
        for pair in process["pairs"]:
            pair |= {"items": None, "count": 3750}  # too many in a pass to name each
    table = build([rows()[0], several, many])
    assert column(table.lead, "items") == ["120", "120 (96 different)", "90,000"]


def test_the_hot_loop_stands_among_the_details_where_any_row_has_it():
    given = [rows()[0], row(CELLS[1], 85.0, 0.0, 1.8, samples={"hot": 3.6}), rows()[2]]
    assert column(build(given).details, "hot loop") == ["–", "3.6", "–"]
    assert "hot loop" not in build().details


# ------------------------------------------------------------ on the terminal and in files


def test_the_machine_that_is_named_leads_whichever_measured_last():
    mine, theirs = row(CELLS[0], 50.0, started="2026-01-01"), row(CELLS[0], 60.0, machine=OTHER, started="2026-01-02")
    cells, given = planned(CELLS[:1]), {stored.RUNS: [mine, theirs]}
    recipe = stored_of(RECIPE, [mine]).recipe
    assert stored.gathered(recipe, "small", cells, given).rows == [theirs]
    assert stored.gathered(recipe, "small", cells, given, machine=mine.machine).rows == [mine]
