"""Curves that share a row label stay apart by column; parts of a whole stand on one another."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import matplotlib
import pytest
from PIL import Image

from harness.common.errors import RequestError
from harness.contracts.metrics import Metric, described
from harness.plan.recipe import parse
from harness.show import colours, curves, figure
from harness.show.published import Number
from tests.harness.made import numbers_of, stored_of
from tests.harness.rows import new_row, processes

RECIPE = """
name: demo
title: a demo
paper: ralmspec
source: A. et al. 2024, Figure 5
task: {name: knnlm-serving}
figure: {x: k, y: speed}
cells: [{row: OS3, method: knnlm-speculative}]
"""
STACKED = RECIPE.replace("{x: k, y: speed}", "{parts: [generation_s, retrieval_s]}")
SPEED = Metric("speed", "speedup", "×", "higher", "speed", relative=True)


def row(label, column="", k=1, status="ok", known=None, **metrics):
    """A row that stands next to the paper's of the same labels without what is in parentheses."""
    return new_row(
        row=label, column=column, status=status, metrics=metrics, described=described(SPEED),
        intervals={name: [value - 0.1, value + 0.1] for name, value in metrics.items()},
        params={"method": {"k": k}, "task": {}}, published=(label, re.sub(r" \([^()]*\)", "", column)), **(known or {}),
    )  # fmt: skip


def drawn(rows, recipe=RECIPE, numbers=()):
    """The figure of these rows, or None."""
    one = stored_of(recipe, rows, numbers=numbers)
    return figure.drawing(one, numbers_of(one))


def words(rows, recipe=RECIPE, numbers=()):
    """Every text of the figure, in order; none without a figure."""
    made = drawn(rows, recipe, numbers)
    return [] if made is None else re.findall(r"<!-- ([^>]*) -->", figure.as_bytes(made, "svg").decode())


def of_two_retrievers():
    cells = [("EDR", 1024, 4.0), ("ADR (300k entries)", 1, 2.0), ("EDR", 1, 8.0), ("ADR (300k entries)", 1024, 1.5)]
    return [row("OS3", f"{retriever} / k={k}", k, speed=speed) for retriever, k, speed in cells]


def points(rows, x="k", y="speed"):
    """Curve -> its points."""
    found = curves.points(numbers_of(stored_of(RECIPE, rows)), x, y)
    return {name: list(zip(curve.x, curve.y, strict=True)) for name, curve in found.groupby("curve", sort=False)}


def published(column, value, row="OS3", metric="speed"):
    return Number("f.csv", "Figure 5", row, column, metric, value, float(value), "x", "")


def hollow(rows, numbers, recipe=RECIPE):
    """The paper's points in the figure: label of their line (None where it is the measured curve's) -> points."""
    found = {}
    for line in (line for axes in drawn(rows, recipe, numbers).axes for line in axes.lines):
        if line.get_fillstyle() == "none":
            name = line.get_label()
            found[None if name.startswith("_") else name] = [(float(x), float(y)) for x, y in line.get_xydata()]
    return found


# ------------------------------------------------------------ curves


def test_retrievers_of_one_row_are_curves_of_their_own_ordered_by_x():
    assert points(of_two_retrievers()) == {
        "OS3, EDR": [(1, 8.0), (1024, 4.0)],
        "OS3, ADR (300k entries)": [(1, 2.0), (1024, 1.5)],
    }


def test_columns_that_differ_in_x_alone_are_one_curve():
    assert list(points([one for one in of_two_retrievers() if "EDR" in one.column])) == ["OS3"]


def test_a_point_has_the_interval_of_its_metric():
    line = curves.points(numbers_of(stored_of(RECIPE, [row("OS3", k=8, speed=2.0)])), "k", "speed").iloc[0]
    assert (line.x, line.y, line.low, line.high) == (8, 2.0, 1.9, 2.1)


def test_a_row_label_that_says_x_by_another_name_is_one_curve_with_the_papers():
    def gad(block, tau=1):
        params = {"method": {"block": block, "tau": tau}, "task": {}}
        return replace(row(f"GAD++, k={block}, tau={tau}", "dev", speed=1 / block), params=params)

    rows = [gad(2), gad(1), row("Beam search", "dev")]
    assert {name: [x for x, _ in curve] for name, curve in points(rows, "block").items()} == {"GAD++, tau=1": [1, 2]}
    assert list(points([gad(1)], "block")) == ["GAD++, k=1, tau=1"]  # it may be either
    assert len(points([gad(1), gad(2, tau=3)], "block")) == 2
    printed = [published("WMT14 EN-DE dev", "3.79", "GAD++ (k=25)")]
    assert hollow(rows, printed, RECIPE.replace("x: k", "x: block")) == {"GAD++, published": [(25.0, 3.79)]}


def test_x_may_be_a_metric_or_a_parameter_of_method_or_task():
    one = row("OS3", foss=0.5, speed=2.0, known={})
    one = replace(one, params={"method": {"k": 8, "kind": "exact"}, "task": {"batch": 32}})
    assert [points([one], x) for x in ("foss", "k", "batch", "kind")] == [
        *({"OS3": [(x, 2.0)]} for x in (0.5, 8, 32)), {},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "ticks"),
    [
        ([1, 8, 1024], ["1", "8", "1024"]),
        ([700_484, 7_003_558, 56_026_327], ["700k", "7M", "56M"]),
        ([1, 100, 130], ["0.5", "1", "2", "5", "10", "20", "50", "100", "200"]),  # no room for both of the last
    ],
)
def test_a_logarithmic_axis_names_the_points_of_a_sweep_where_there_is_room(given, ticks):
    axes = drawn([row("OS3", f"k={k}", k, speed=2.0) for k in given]).axes[0]
    assert axes.get_xscale() == "log"
    assert [label.get_text() for label in axes.get_xticklabels()] == ticks


def test_the_papers_x_may_be_a_metric_of_the_same_published_cell():
    printed = [published("PTB", "10.6", "L2S"), published("PTB", "0.998", "L2S", "precision_at_1")]
    recipe = RECIPE.replace("{x: k, y: speed}", "{x: precision_at_1, y: speed}")
    assert hollow([row("OS3", speed=2.0, precision_at_1=0.9)], printed, recipe) == {"L2S, published": [(0.998, 10.6)]}


def test_a_second_metric_has_a_panel_of_its_own():
    beside = RECIPE.replace("y: speed}", "y: speed, beside: accepted_tokens}")
    every = [row("OS3", f"k={k}", k, speed=k / 2, accepted_tokens=10 - k) for k in (1, 2)]
    forced = [row("forced", f"k={k}", k, accepted_tokens=9 - k) for k in (1, 2)]  # a curve of the second panel alone
    both = words([*every, *forced], beside)
    assert both.count("forced") == 1 and both.count("OS3") == 2
    assert both.count("speedup (×)") == both.count("mean acceptance length") == 1
    assert "forced" in words(forced, beside)  # nothing of the first panel was measured
    assert drawn([row("OS3", other=1.0)], beside) is None


def test_a_counter_a_distance_and_a_speedup_have_no_level_lines():
    def levels(y, kind="quality", **known):
        one = new_row(row="Beam", metrics={y: 0.9}, described=described(Metric(y, kind=kind)), **known)
        return curves.levels(numbers_of(stored_of(RECIPE, [one, *of_two_retrievers()])), "k", y)

    assert levels("bleu") == {"Beam": 0.9}
    assert levels("accepted_tokens") == levels("steps", "counter") == {}
    assert levels("perplexity_difference") == levels("speedup") == {}


def test_a_distance_is_drawn_from_one_baseline_only():
    """kNN-LM's own distance is to the language model, all others' are to kNN-LM."""
    recipe = RECIPE.replace("y: speed", "y: perplexity_difference")

    def apart(label, k, value, reference):
        known = {"fidelity_baseline": {"method": reference, "params": {}}}
        return row(label, f"k={k}", k, known=known, perplexity_difference=value)

    texts = words([*(apart("Reto", k, -0.5, "knnlm") for k in (1, 2)), apart("kNN-LM", 1, -12.0, "lm")], recipe)
    assert "Reto" in texts and "kNN-LM" not in texts


def test_the_papers_points_bear_their_own_name_and_the_colour_of_the_curve_next_to_them():
    numbers = [published("ADR / k=1", "2.45"), published("EDR / k=1", "7.59")]
    assert hollow(of_two_retrievers(), numbers) == {
        "OS3, ADR, published": [(1.0, 2.45)], None: [(1.0, 7.59)],
    }, "a name like the measured curve's is not said twice"  # fmt: skip
    svg = figure.as_bytes(drawn(of_two_retrievers(), numbers=numbers), "svg").decode()
    assert len(set(re.findall(r"stroke: (#[0-9a-f]{6})", svg)) & set(colours.PALETTE)) == 2


def test_published_points_of_other_data_have_a_panel_of_their_own():
    recipe, numbers = RECIPE.replace("y: speed", "y: bleu"), [published("k=1", "31.5", metric="bleu")]
    rows = [row("OS3", f"k={k}", k, bleu=20.0 + k) for k in (1, 2)]
    apart = "published (other data: compare shapes, not values)"
    assert apart in words(rows, recipe, numbers) and hollow(rows, numbers, recipe) == {"OS3": [(1.0, 31.5)]}
    same = words(rows, recipe + "data_of_paper: [small]\n", numbers)
    assert apart not in same and "measured, scale small; hollow: published" in same


def test_eight_curves_are_drawn_and_the_others_are_named_below():
    texts = words([row(f"row {n}", f"k={k}", k, speed=n + k) for n in range(10) for k in (1, 2)])
    assert [f"row {n}" in texts for n in range(10)] == [True] * 8 + [False] * 2
    assert any("in the table alone: row 8, row 9" in text for text in texts)


def test_a_method_has_its_own_colour_and_no_two_series_share_one():
    own = {name: colours.assigned([name])[0] for name in ("iad", "greedy", "l2s", "exact")}
    assert colours.assigned(["iad", "greedy"]) == [own["iad"], own["greedy"]]
    several = colours.assigned(["l2s", "l2s", "", "exact"])
    assert several[0] == own["l2s"] and several[3] == own["exact"]
    assert len(set(several)) == 4


# ------------------------------------------------------------ other figures


def test_examples_that_name_one_another_are_a_graph():
    def told(label, *examples):
        return row(label, known={"examples": examples}, states=3)

    sample = told(
        "sample",
        {"state": "1: of the", "first": "2: the first", "same": "2: the first", "end": "9: not drawn"},
        {"state": "2: the first", "time": "1: of the", "and": "2: the first"},
        {"state": "3: alone"},
        {"output": "no node"},
    )
    nodes = figure.graph_of(sample, "state")
    assert dict(nodes["1: of the"]) == {"2: the first": {"label": "first\nsame"}}
    assert list(figure.layers(nodes).values()) == [["1: of the"], ["2: the first"], ["3: alone"]]
    recipe = RECIPE.replace("{x: k, y: speed}", "{graph: state}")
    assert {"1: of the", "2: the first", "3: alone", "time", "first", "same", "↻ and"} <= set(
        words([sample, told("none")], recipe)
    )
    assert drawn([told("none")], recipe) is None


def timed(label, *passes):
    """A row of two processes with the times of passes: {item: (baseline, method)} in nanoseconds."""
    pairs = [
        {"items": [*one], "count": len(one), "baseline_ns": [b for b, _ in one.values()],
         "method_ns": [m for _, m in one.values()]}
        for one in passes
    ]  # fmt: skip
    return row(label, known={"processes": [{"pairs": pairs[:1]}, {"pairs": pairs[1:] or pairs[:1]}]})


def test_speedups_over_two_baselines_are_two_curves():
    rows = [
        replace(timed("Reto", {7: (30, 10)}), params={"method": {"k": k}, "task": {}}, column=f"k={k}",
                speed_baseline={"method": baseline, "params": {}})
        for k, baseline in ((1, "lm"), (2, "knnlm"), (3, "knnlm"))
    ]  # fmt: skip
    assert {name: [x for x, _ in curve] for name, curve in points(rows, "k", "speedup").items()} == {
        "Reto, over lm": [1], "Reto, over knnlm": [2, 3],
    }  # fmt: skip
    assert list(points(rows[1:], "k", "speedup")) == ["Reto"]


def test_an_items_speedup_is_of_all_its_times():
    several = timed("GAD", {7: (30, 10), 3: (10, 20)}, {7: (10, 10), 1: (50, 10)})
    assert figure.item_speedups(several) == [5.0, 0.5, 2.0]  # of items 1, 3 and 7
    batches, unknown = timed("in batches", {1: (30, 10), 2: (30, 10)}), timed("too many", {1: (30, 10)})
    for process in batches.processes:
        process["pairs"][0]["method_ns"] = [20]  # one call for both
    for process in unknown.processes:
        process["pairs"][0]["items"] = None
    assert figure.item_speedups(batches) == figure.item_speedups(unknown) == figure.item_speedups(row("untimed")) == []
    recipe = RECIPE.replace("{x: k, y: speed}", "{histogram: speedup}")
    texts = words([several, batches, unknown], recipe)
    assert {"GAD (3 items)", "median 2.00", "33% of the items slower", "speedup of one item (times)"} <= set(texts)
    assert not any("in batches" in text for text in texts) and drawn([batches], recipe) is None


def test_parts_are_stacked_in_their_order_for_each_row_of_a_column():
    rows = [
        row("Baseline", "EDR", generation_s=1.0, retrieval_s=9.0),
        row("Baseline", "SR", generation_s=1.0, retrieval_s=0.5),
        row("OS3", "EDR", generation_s=1.5, retrieval_s=2.0),
        row("OS3", "SR", status="failed", generation_s=1.0, retrieval_s=1.0),
        row("speed only", "SR", generation_s=1.0),
    ]
    declared = described(Metric("generation_s", "reading", "s"), Metric("retrieval_s", "looking up", "s"))
    rows = [replace(one, described=declared) for one in rows]
    first, second = (axes for axes in drawn(rows, STACKED).axes if axes.patches)
    assert (first.get_title(), second.get_title(), first.get_ylabel()) == ("EDR", "SR", "s")
    assert [(bar.get_y(), bar.get_height()) for bar in first.patches] == [(0, 1.0), (0, 1.5), (1.0, 9.0), (1.5, 2.0)]
    assert [(bar.get_y(), bar.get_height()) for bar in second.patches] == [(0, 1.0), (1.0, 0.5)]
    assert {"reading", "looking up"} <= set(words(rows, STACKED))


@pytest.mark.parametrize("recipe", [RECIPE, STACKED])
def test_the_same_rows_are_the_same_bytes_in_both_files(recipe, tmp_path):
    rows = [row("OS3", f"EDR / k={k}", k, speed=2.0, generation_s=1.0, retrieval_s=1.0) for k in (1, 1024)]
    one = stored_of(recipe, rows, numbers=[published("EDR / k=1", "7.59")])
    (svg, png), (again, _) = (figure.draw(one, numbers_of(one), tmp_path / name) for name in "ab")
    assert (svg.name, png.name) == ("figure.svg", "figure.png")
    assert svg.read_bytes() == again.read_bytes() and png.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("text", ["$^$", "from $ 5 to $ 9", "cost_$x_$y", r"a $ \\ $ b", r"\\$ and $_$"])
def test_a_label_is_shown_as_users_wrote_it(text):
    graph = RECIPE.replace("{x: k, y: speed}", "{graph: state}").replace("a demo", f"'{text}'")
    nodes = [{"state": text, f"{text} on": "end"}, {"state": "end"}]
    curve = [row(text, f"k={k}", k, speed=2.0) for k in (1, 1024)]
    assert any(text in one for one in words(curve))
    assert {text, f"{text} on"} <= set(words([row("A", known={"examples": nodes})], graph))


def test_a_figure_that_fails_is_a_warning(monkeypatch, tmp_path):
    one = stored_of(RECIPE, [row("OS3", f"k={k}", k, speed=2.0) for k in (1, 1024)])
    monkeypatch.setattr(figure, "as_bytes", lambda *_: 1 / 0)
    for name in ("figure.svg", "figure.png"):
        (tmp_path / name).write_text("of earlier rows")
    with pytest.warns(UserWarning, match=r"no figure of demo \(small\): division by zero"):
        assert figure.draw(one, numbers_of(one), tmp_path) == [] and not list(tmp_path.iterdir())
    with pytest.raises(ZeroDivisionError):
        figure.draw(one, numbers_of(one), tmp_path, strict=True)


def test_without_points_there_is_no_figure(tmp_path):
    one = stored_of(RECIPE, [row("OS3", other=1.0), row("failed", status="failed", speed=1.0)])
    assert figure.draw(one, numbers_of(one), tmp_path) == [] and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        ("{x: k}", "give x and y for curves, or parts"),
        ("{}", "give x and y for curves, or parts"),
        ("{x: k, y: speed, parts: [k]}", "give x and y for curves, or parts"),
        ("{x: k, y: speed, histogram: speedup}", "figure"),
        ("{parts: [a_s], histogram: speedup}", "figure"),
        ("{x: k, z: speed}", "unknown key 'z'.*at figure"),
    ],
)
def test_a_figure_that_is_not_of_one_kind_is_refused(figure, message):
    with pytest.raises(RequestError, match=message):
        parse(RECIPE.replace("{x: k, y: speed}", figure), "demo.yaml")


def test_axes_say_what_the_rows_say_of_their_metrics():
    known = {"processes": processes(2.0), "speed_baseline": {"method": "exact", "params": {}}}
    rows = [row("OS3", f"k={k}", k, known=known) for k in (1, 1024)]
    assert {"speedup (×)", "k"} <= set(words(rows, RECIPE.replace("y: speed", "y: speedup")))


@pytest.mark.parametrize(("kind", "name"), [("png", "PNG"), ("webp", "WEBP")])
def test_a_picture_has_the_format_that_was_asked_for_whatever_the_users_configuration_says(kind, name):
    with matplotlib.rc_context({"savefig.format": "pdf"}):
        image = Image.open(io.BytesIO(figure.as_bytes(drawn(of_two_retrievers()), kind)))
    assert image.format == name
    found = image.convert("RGB").getcolors(128)  # None: there are more
    assert (found is not None) == (kind == "webp")
