"""The first picture: which claims it draws, and what it says of each."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from harness.common.sources import ROOT
from harness.plan import expansion
from harness.plan import recipe as recipes
from harness.plan.registry import Registry
from harness.publish import docs
from harness.show import colours, forest
from harness.show.frame import of_all
from harness.show.overview import matches
from tests.harness.made import stored_of
from tests.harness.rows import new_row, processes

LISTED = [one for group in forest.papers()["picture"].values() for one in group]
EXACT = {"method": "exact", "params": {}}


def row(label="L2S", *, recipe="l2s-table1", column="2x200 LSTM", scale="small", speedup=2.0, **known):
    return new_row(
        recipe=recipe, scale=scale, row=label, column=column, method="l2s", task="ptb-next-word",
        params={"method": {}, "task": {}}, speed_baseline=EXACT, fidelity_baseline=EXACT,
        metrics={"precision_at_1": 0.75}, processes=processes(speedup), **known,
    )  # fmt: skip


def lines_of(*rows):
    """The picture's lines of rows, each planned by its recipe, whose claims are the real ones."""
    every = []
    for name, scale in dict.fromkeys((one.recipe, one.scale) for one in rows):
        recipe = recipes.load(name, Registry())
        own = [one for one in rows if (one.recipe, one.scale) == (name, scale)]
        every.append(stored_of(recipe, own, scale=scale, cells=expansion.expand(recipe, scale, Registry())))
    return forest.lines(of_all(every, Registry()))


@pytest.mark.parametrize("one", LISTED, ids=lambda one: f"{one['recipe']}: {one['cell']}")
def test_every_listed_claim_is_a_cell_of_its_recipe(one):
    """A row that is renamed does not drop out of the picture in silence."""
    cells = expansion.expand(recipes.load(one["recipe"], Registry()), "small", Registry())
    assert any(matches(cell.name, one["cell"]) for cell in cells)


def test_a_row_of_a_listed_cell_is_drawn_with_the_papers_number_and_another_is_not():
    found = lines_of(row(), row("Spherical k-means"), row(scale="mini", column="2x96 LSTM"))
    (line,) = found.itertuples()
    assert (line.short, line.where, line.scale) == ("L2S", "2x200 LSTM, Penn Treebank", "small")
    assert line.claimed == 10.6 and line.value == pytest.approx(2)
    (mini,) = lines_of(row(scale="mini", column="2x96 LSTM")).itertuples()
    assert pd.isna(mini.claimed), "the claim is not about this scale"


def test_what_is_not_listed_is_named_by_the_rows_labels(monkeypatch):
    names = {"recipe": "heads-generation", "column": "Gemma-3-270M"}
    with monkeypatch.context() as patch:
        listed = {"recipe": "heads-generation", "cell": "Two-sided screen, verified / *"}
        patch.setattr(forest, "papers", lambda: {"picture": {"Heads": [listed]}})
        (line,) = lines_of(row("Two-sided screen, verified", **names)).itertuples()
    assert (line.short, line.where) == ("Two-sided screen", "verified, Gemma-3-270M")
    names = {"recipe": "ralmspec-table1", "column": "EDR / 2x256 transformer"}
    (line,) = lines_of(row("RaLMSpec+PSA", **names)).itertuples()
    assert (line.short, line.where) == ("PSA, exact search", "EDR / 2x256 transformer"), (
        "retrieval's share is not known"
    )


def test_the_picture_has_the_words_of_its_lines_and_is_the_same_bytes():
    found = lines_of(row(), row(recipe="l2s-table1-large", column="2x1500 LSTM, a short training", speedup=0.5))
    found["decision"] = ["faster", "slower"]
    svg = forest.draw(found)
    assert svg == forest.draw(found)
    words = re.findall(r">([^<>\n]+)</text>", svg.decode())
    told = ["Fast output layers, over the exact layer", "L2S", "2.00×", "0.50×", "25%", "faster", "slower"]
    assert {*told, "same speed"} <= set(words)
    assert "no claim" not in words, "the legend has what occurs"
    with pytest.raises(ValueError, match=r"papers\.yaml"):
        forest.draw(found.iloc[:0])


def test_decisions_have_marks_of_their_own_and_equal_has_that_of_no_difference():
    marks = [colours.of_decision(text) for text in ("faster", "slower", "no difference shown", "no claim")]
    assert len({shade for shade, _ in marks}) == len({mark for _, mark in marks}) == 4
    assert colours.of_decision("equal within 2%") == marks[2] and colours.of_decision("exploratory") == marks[3]


def test_the_texts_of_committed_lines_have_room():
    """None is cut, and none runs into its neighbour: of DejaVu Sans, which is wide."""
    numbers = docs.committed(ROOT / "results")[1]
    found = forest.lines(numbers)
    assert 20 <= len(found) <= 30 and not found[["short", "where"]].map(lambda text: "…" in text).any(axis=None)
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    def inches(text, size):
        return TextPath((0, 0), text, size=size, prop=FontProperties(family="DejaVu Sans")).get_extents().width / 72

    assert max(inches(text, 9.5) for text in found.short) < forest.WHERE - 0.22
    assert max(inches(text, 9) for text in found["where"]) < forest.PLOT - forest.WHERE
