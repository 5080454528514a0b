"""Curves that share a row label stay apart by column; parts of a whole stand on one another."""

import re
from itertools import pairwise

import pytest

from harness.common.errors import RequestError
from harness.contracts.metrics import Metric, described
from harness.contracts.rows import new_row
from harness.measure.own_metrics import own
from harness.plan.cell import Cell, Named
from harness.plan.recipe import Timing, parse
from harness.show.report import bars, colours, curves, figure, graph, histogram, labels
from harness.show.report.published import Number, Published

RECIPE = """
name: demo
title: a demo
paper: ralmspec
source: A. et al. 2024, Figure 5
task: {name: knnlm-serving}
figure: {x: k, y: speedup}
cells: [{row: OS3, method: knnlm-speculative}]
"""
STACKED = RECIPE.replace("{x: k, y: speedup}", "{parts: [generation_s, retrieval_s]}")


def row(label, column, k=1, status="ok", **metrics):
    intervals = {name: [value - 0.1, value + 0.1] for name, value in metrics.items()}
    return new_row(
        recipe="demo", scale="small", row=label, column=column, cell=f"{label} / {column}", status=status,
        metrics=metrics, intervals=intervals, params={"method": {"k": k}, "task": {}}, environment={}, error=None,
    )  # fmt: skip


def of_two_retrievers():
    cells = [("EDR", 1024, 4.0), ("ADR (300k entries)", 1, 2.0), ("EDR", 1, 8.0), ("ADR (300k entries)", 1024, 1.5)]
    return [row("OS3", f"{retriever} / k={k}", k, speedup=speedup) for retriever, k, speedup in cells]


def planned(rows):
    """The rows' cells, which stand next to the paper's of the same label without what is in parentheses."""
    return [
        Cell(
            recipe="demo", row=r["row"], column=r["column"], scale="small", kind="pair", method=Named("m"),
            task=Named("t"), speed_baseline=None, fidelity_baseline=None, fidelity=None, timing=Timing(), timed=True,
            seed=1, published=(r["row"], re.sub(r" \([^()]*\)", "", r["column"])),
        )
        for r in rows
    ]  # fmt: skip


def published(column, value):
    return Number("f.csv", "Figure 5", "OS3", column, "speedup", value, float(value), "x", "")


def test_retrievers_of_one_row_are_curves_of_their_own_ordered_by_x():
    found = curves.measured_curves(of_two_retrievers(), "k", "speedup")
    assert {name: [(p.x, p.y) for p in points] for name, points in found.items()} == {
        "OS3, EDR": [(1, 8.0), (1024, 4.0)],
        "OS3, ADR (300k entries)": [(1, 2.0), (1024, 1.5)],
    }


def test_columns_that_differ_in_x_alone_are_one_curve():
    assert list(curves.measured_curves([r for r in of_two_retrievers() if "EDR" in r["column"]], "k", "speedup")) == [
        "OS3"
    ]


def test_a_row_label_that_says_x_by_another_name_is_one_curve_with_the_papers():
    def gad(block, tau=1):
        found = row(f"GAD++, k={block}, tau={tau}", "dev", block, speedup=1 / block)
        return {**found, "params": {"method": {"block": block, "tau": tau}, "task": {}}}

    rows = [gad(2), gad(1), row("Beam search", "dev", None)]
    found = curves.measured_curves(rows, "block", "speedup")
    assert {name: [p.x for p in points] for name, points in found.items()} == {"GAD++, tau=1": [1, 2]}
    assert list(curves.measured_curves([gad(1)], "block", "speedup")) == ["GAD++, k=1, tau=1"]  # it may be either
    assert len(curves.measured_curves([gad(1), gad(2, tau=3)], "block", "speedup")) == 2
    number = Number("f.csv", "Table 6", "GAD++ (k=25)", "WMT14 EN-DE dev", "speedup", "3.79", 3.79, "x", "")
    names = curves.Names(given=frozenset({"k"}))
    found = curves.published_curves(Published([number]), own("block"), own("speedup"), names)
    assert found == {"GAD++": [curves.Point(25, 3.79)]}


def told(label, *examples):
    """A row with these worked examples."""
    return {**row(label, "", states=3), "examples": list(examples)}


def test_examples_that_name_one_another_are_a_graph(tmp_path):
    examples = (
        {"state": "1: of the", "first": "2: the first", "same": "2: the first", "end": "9: not drawn"},
        {"state": "2: the first", "time": "1: of the", "and": "2: the first"},
        {"state": "3: alone"},
        {"output": "no node"},
    )
    drawn = told("sample", *examples)
    found = graph.measured([drawn, told("none")], "state")
    nodes = found[drawn["cell"]]
    assert nodes["1: of the"] == {"first": "2: the first", "same": "2: the first"}
    assert graph.layers(nodes) == [["1: of the"], ["2: the first"], ["3: alone"]]
    recipe = parse(RECIPE.replace("{x: k, y: speedup}", "{graph: state}"), "demo.yaml")
    svg, _ = figure.draw(recipe, "small", [drawn], Published([]), tmp_path)
    text = re.findall(r"<!-- ([^>]*) -->", svg.read_text())
    assert {"1: of the", "2: the first", "3: alone", "time"} <= set(text)
    assert not figure.draw(recipe, "small", [told("none")], Published([]), tmp_path)


def timed(label, *passes):
    """A row with the times of passes: {item: (baseline, method)} in nanoseconds."""
    pairs = [
        {"items": [*one], "baseline_ns": [b for b, _ in one.values()], "method_ns": [m for _, m in one.values()]}
        for one in passes
    ]
    return {**row(label, "", speedup=2.0), "timing": {"processes": [{"pairs": pairs[:1]}, {"pairs": pairs[1:]}]}}


def test_an_items_speedup_is_of_all_its_times(tmp_path):
    several = timed("GAD", {7: (30, 10), 3: (10, 20)}, {7: (10, 10), 1: (50, 10)})
    assert histogram.speedups(several) == [5.0, 0.5, 2.0]  # of items 1, 3 and 7
    batches = timed("in batches", {1: (30, 10), 2: (30, 10)})
    batches["timing"]["processes"][0]["pairs"][0]["method_ns"] = [20]  # one call for both
    unknown = timed("too many", {1: (30, 10)})
    unknown["timing"]["processes"][0]["pairs"][0]["items"] = None
    assert histogram.measured([several, batches, unknown, row("not timed", "")]) == {several["cell"]: [5.0, 0.5, 2.0]}
    recipe = parse(RECIPE.replace("{x: k, y: speedup}", "{histogram: speedup}"), "demo.yaml")
    svg, png = figure.draw(recipe, "small", [several], Published([]), tmp_path)
    text = re.findall(r"<!-- ([^>]*) -->", svg.read_text())
    assert {"median 2.00", "33% of the items slower", "speedup of one item (times)"} <= set(text)
    assert png.stat().st_size > 1000
    assert not figure.draw(recipe, "small", [batches], Published([]), tmp_path)


def test_a_figure_is_of_one_kind():
    for wrong in ("{x: k, y: speedup, histogram: speedup}", "{parts: [a_s], histogram: speedup}", "{x: k}", "{}"):
        with pytest.raises(RequestError, match="figure"):
            parse(RECIPE.replace("{x: k, y: speedup}", wrong), "demo.yaml")


def test_a_second_metric_has_a_panel_of_its_own(tmp_path):
    beside = parse(RECIPE.replace("y: speedup}", "y: speedup, beside: accepted_tokens}"), "demo.yaml")
    every = [row("OS3", f"k={k}", k, speedup=k / 2, accepted_tokens=10 - k) for k in (1, 2)]
    forced = [row("forced", f"k={k}", k, accepted_tokens=9 - k) for k in (1, 2)]  # a curve of the second panel alone

    def axes(rows):
        [svg, _] = figure.draw(beside, "small", rows, Published([]), tmp_path)
        return re.findall(r"<!-- ([^>]*) -->", svg.read_text())

    both = axes([*every, *forced])
    assert both.count("forced") == 1 and both.count("OS3") == 2
    assert all(both.count(own(name).axis) == 1 for name in ("speedup", "accepted_tokens"))
    assert "forced" in axes(forced)  # nothing of the first panel was measured
    assert not figure.draw(beside, "small", [], Published([]), tmp_path)


def test_a_counter_and_a_distance_have_no_level_lines():
    apart = new_row(recipe="demo", row="Beam", metrics={"speedup": 1.5, "accepted_tokens": 0.9}, scale="small")
    every = [apart, *of_two_retrievers()]
    assert curves.levels(every, "k", "speedup") == {"Beam": 1.5}
    for name in ("accepted_tokens", "perplexity_difference"):
        assert curves.levels([apart | {"metrics": {name: 0.9}}], "k", name) == {}


def test_a_distance_is_drawn_from_one_baseline_only(tmp_path):
    """kNN-LM's own distance is to the language model, all others' are to kNN-LM."""
    recipe = parse(RECIPE.replace("y: speedup", "y: perplexity_difference"), "demo.yaml")
    to = {"knnlm": {"method": "knnlm", "params": {}}, "lm": {"method": "lm", "params": {}}}
    rows = [row("Reto", f"k={k}", k, perplexity_difference=-0.5) | {"fidelity_baseline": to["knnlm"]} for k in (1, 2)]
    rows.append(row("kNN-LM", "k=1", 1, perplexity_difference=-12.0) | {"fidelity_baseline": to["lm"]})
    [svg, _] = figure.draw(recipe, "small", rows, Published([]), tmp_path)
    texts = re.findall(r"<!-- ([^>]*) -->", svg.read_text())
    assert "Reto" in texts and "kNN-LM" not in texts


def test_the_papers_points_bear_their_own_name_and_the_colour_of_the_curve_beside_them(tmp_path):
    numbers = Published([published("ADR / k=1", "2.45"), published("EDR / k=1", "7.59")])
    found = curves.published_curves(numbers, own("k"), own("speedup"), curves.Names(frozenset({"EDR", "ADR"})))
    assert found == {"OS3, ADR": [curves.Point(1.0, 2.45)], "OS3, EDR": [curves.Point(1.0, 7.59)]}
    svg = figure.draw(
        parse(RECIPE, "demo.yaml"), "small", of_two_retrievers(), numbers, tmp_path, cells=planned(of_two_retrievers())
    )[0].read_text()
    assert "OS3, ADR, published" in svg and "OS3, ADR (300k entries), published" not in svg
    drawn = re.findall(r"stroke: (#[0-9a-f]{6})", svg)
    assert len(set(drawn) - {"#000000", "#b0b0b0"}) == 2


def test_eight_curves_are_drawn_and_the_others_are_named_below(tmp_path):
    every = [row(f"row {n}", f"k={k}", k, speedup=n + k) for n in range(10) for k in (1, 2)]
    svg = figure.draw(parse(RECIPE, "demo.yaml"), "small", every, Published([]), tmp_path)[0].read_text()
    texts = re.findall(r"<!-- ([^>]*) -->", svg)
    assert [f"row {n}" in texts for n in range(10)] == [True] * 8 + [False] * 2
    assert any("in the table alone: row 8, row 9" in text for text in texts)


def test_a_method_has_its_own_colour_and_no_two_series_share_one():
    assert colours.assigned(["iad", "greedy"]) == [colours.colour("iad"), colours.colour("greedy")]
    several = colours.assigned(["l2s", "l2s", "", "exact"])
    assert several[0] == colours.colour("l2s") and several[3] == colours.colour("exact")
    assert len(set(several)) == 4


def test_names_of_points_that_lie_together_do_not_cover_one_another():
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure()
    FigureCanvasAgg(drawn)
    axes = drawn.subplots()
    axes.plot([0, 1], [0, 1])
    drawn.draw_without_rendering()
    labels.place(axes, [labels.Label(0.1, 0.001 * n, f"a long name {n}", "k") for n in range(6)])
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 6 and min(box.y0 for box in boxes) >= axes.get_window_extent().y0 - 1
    assert all(below.y1 <= above.y0 + 3 for above, below in pairwise(boxes))


def test_a_name_without_a_place_stands_behind_the_edge():
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure()
    FigureCanvasAgg(drawn)
    axes = drawn.subplots()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    drawn.draw_without_rendering()
    labels.place(axes, [labels.Label(None, 0.8, "a name", "k"), labels.Label(0.1, 0.2, "another name", "k")])
    edge, (first, second) = axes.get_window_extent().x1, (text.get_window_extent() for text in axes.texts)
    assert first.x0 > edge > second.x1


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_a_marker_stands_next_to_its_name(scale):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure()
    FigureCanvasAgg(drawn)
    axes = drawn.subplots()
    axes.set(xlim=(1, 2), ylim=(1, 100), yscale=scale)
    drawn.draw_without_rendering()
    labels.place(axes, [labels.Label(None, 10 + 0.001 * n, f"name {n}", "k", marker="o") for n in range(3)])
    drawn.draw_without_rendering()
    for line, text in zip(axes.lines, axes.texts, strict=True):
        at, box = line.get_window_extent(), text.get_window_extent()
        assert axes.get_window_extent().x1 < at.x0 and at.x1 <= box.x0
        assert (at.y0 + at.y1) / 2 == pytest.approx((box.y0 + box.y1) / 2, abs=2)


def test_parts_are_stacked_in_their_order_for_each_row_of_a_column():
    rows = [
        row("Baseline", "EDR", generation_s=1.0, retrieval_s=9.0),
        row("Baseline", "SR", generation_s=1.0, retrieval_s=0.5),
        row("OS3", "EDR", generation_s=1.5, retrieval_s=2.0),
        row("OS3", "SR", status="failed", generation_s=1.0, retrieval_s=1.0),
        row("speed only", "SR", generation_s=1.0),
    ]
    found = bars.measured(rows, ["generation_s", "retrieval_s"])
    assert {column: [(bar.name, bar.values) for bar in group] for column, group in found.items()} == {
        "EDR": [("Baseline", (1.0, 9.0)), ("OS3", (1.5, 2.0))],
        "SR": [("Baseline", (1.0, 0.5))],
    }
    parts = [Metric("generation_s", "generation", "s"), Metric("retrieval_s", "retrieval", "s")]
    panel = bars.figure(found, parts, "a demo", "a machine").axes[0]
    assert [(patch.get_y(), patch.get_height()) for patch in panel.patches] == [
        (0, 1.0),
        (0, 1.5),
        (1.0, 9.0),
        (1.5, 2.0),
    ]


@pytest.mark.parametrize("recipe", [RECIPE, STACKED])
def test_both_kinds_are_drawn(recipe, tmp_path):
    rows = [row("OS3", f"EDR / k={k}", k, speedup=2.0, generation_s=1.0, retrieval_s=1.0) for k in (1, 1024)]
    files = figure.draw(parse(recipe, "demo.yaml"), "small", rows, Published([]), tmp_path)
    assert [file.name for file in files] == ["figure.svg", "figure.png"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{x: k, y: speedup}", "{x: k}", "give x and y for curves, or parts"),
        ("{x: k, y: speedup}", "{x: k, y: speedup, parts: [k]}", "give x and y for curves, or parts"),
        ("y: speedup", "z: speedup", "unknown key 'z'.*at figure"),
    ],
)
def test_a_figure_that_cannot_be_drawn_is_refused(old, new, message):
    with pytest.raises(RequestError, match=message):
        parse(RECIPE.replace(old, new), "demo.yaml")


def test_axes_and_legends_say_what_the_rows_say_of_their_metrics(tmp_path):
    declared = described(Metric("generation_s", "reading", "s"), Metric("retrieval_s", "looking up", "s"))
    rows = [row("OS3", f"EDR / k={k}", k, speedup=2.0, generation_s=1.0, retrieval_s=1.0) for k in (1, 1024)]
    for one in rows:
        one["described"] = declared
    (svg, _) = figure.draw(parse(STACKED, "demo.yaml"), "small", rows, Published([]), tmp_path)
    assert "<!-- reading -->" in svg.read_text() and "<!-- s -->" in svg.read_text()
    (svg, _) = figure.draw(parse(RECIPE, "demo.yaml"), "small", rows, Published([]), tmp_path)
    assert "<!-- speedup (×) -->" in svg.read_text() and "<!-- k -->" in svg.read_text()
