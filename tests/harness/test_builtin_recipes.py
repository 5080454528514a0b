"""The recipes of the bench: every one can be run, every claim has its rows, published numbers find theirs."""

import pytest

from harness import cells, recipe
from harness.registry import Registry
from harness.report import published
from harness.report.claims import SPEEDS, verdicts
from harness.settings import SCALES
from harness.store import new_row

REGISTRY = Registry()
NAMES = sorted(recipe.files(REGISTRY))


def rows_of(found, scale):
    """A finished row for each cell, without a number."""
    return [
        new_row(recipe=c.recipe, row=c.row, column=c.column, scale=scale, status="ok", environment={}) for c in found
    ]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_expands_at_every_scale_and_its_claims_find_their_rows(name, scale):
    loaded = recipe.load(name, REGISTRY)
    rows = rows_of(cells.expand(loaded, scale, REGISTRY), scale)
    judged = [verdict for verdict in verdicts(loaded, rows, scale) if scale in verdict.claim.scales]
    assert not [v.sentence for v in judged if "no row " in v.detail or "columns and the claim names none" in v.detail]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", NAMES)
def test_claims_about_speed_name_timed_rows(name, scale):
    loaded = recipe.load(name, REGISTRY)
    found = cells.expand(loaded, scale, REGISTRY)
    claims = [verdict.claim for verdict in verdicts(loaded, rows_of(found, scale), scale)]
    sides = [s for c in claims if scale in c.scales and c.metric in SPEEDS for s in (c, c.than) if hasattr(s, "row")]
    untimed = [(c.row, c.column) for c in found if not c.timed]
    assert not [s for s in sides for row, column in untimed if s.row == row and s.column in (column, None)]


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("ralmspec-")])
def test_published_numbers_stand_beside_rows_at_paper(name):
    loaded = recipe.load(name, REGISTRY)
    numbers = published.of(loaded)
    found = cells.expand(loaded, "paper", REGISTRY)
    beside = {numbers.lookup(c.row, c.column, metric) for c in found for metric in (*loaded.metrics, "speedup")}
    assert not loaded.published or beside - {None}
