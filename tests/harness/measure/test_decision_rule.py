"""Simulations of the whole rule: how often it claims what is not so, finds what is, and covers what was not timed."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from harness.common import statistics
from harness.decision import LEAST, decide
from harness.measure.store import RowStore
from tests.harness.measure.simulated_timing import KINDS, ONE_SIDED, Machine

RUNS = 300


def shares(kind, shape, ratio, runs=RUNS):
    found = Counter(decide(Machine(kind, seed).cell(*shape, ratio)).decision for seed in range(runs))
    return {decision: count / runs for decision, count in found.items()}


@pytest.mark.parametrize("kind", [*KINDS, *ONE_SIDED])
@pytest.mark.parametrize("shape", LEAST)
def test_at_most_five_percent_of_claims_are_false(kind, shape):
    found = shares(kind, shape, 1.0)
    assert found.get("faster", 0) + found.get("slower", 0) <= 0.05


def text_of(page):
    return (Path(__file__).parents[3] / "docs" / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_a_true_difference_is_found_as_often_as_the_documentation_says(kind):
    """`docs/measuring.md` prints the power of 10 x 3 for a true 5, 10 and 30%."""
    line = re.search(rf"^\| {kind} \| (\d+)% \| (\d+)% \| (\d+)% \|", text_of("measuring.md"), re.MULTILINE)
    assert line, f"docs/measuring.md states no power for {kind}"
    for stated, ratio in zip(line.groups(), (1.05, 1.10, 1.30), strict=True):
        assert shares(kind, (10, 3), ratio).get("faster", 0) == pytest.approx(int(stated) / 100, abs=0.03)


def test_what_is_equal_is_called_equal_and_what_is_not_is_not():
    """At 1% noise a pass and 10 x 3, as quiet as a machine can be."""

    def equal(ratio):
        machines = [Machine("quiet", seed) for seed in range(RUNS)]
        for one in machines:
            one.noise = 0.01
        return sum(decide(one.cell(10, 3, ratio, layout=0.0)).decision == "equal within 2%" for one in machines) / RUNS

    assert equal(1.0) >= 0.9
    assert equal(0.95) <= 0.05


@pytest.mark.parametrize(("processes", "items"), [(10, 12), (6, 20)])
def test_the_interval_holds_the_value_of_the_whole_set(processes, items):
    """Item ratios vary by 30%, and each process times its own draw of 1,381 items."""
    rng = np.random.default_rng(5)
    baseline = np.exp(rng.normal(0, 0.5, 1381))
    method = baseline / (6 * np.exp(rng.normal(0, 0.3, 1381)))
    whole = baseline.sum() / method.sum()
    held = 0
    for _ in range(1000):
        draws = rng.permutation(1381)[: processes * items].reshape(processes, items)
        low, high = statistics.ratio_of_totals([baseline[d].sum() for d in draws], [method[d].sum() for d in draws])[1]
        held += low <= whole <= high
    assert 0.93 <= held / 1000 <= 0.98


@pytest.mark.parametrize("shape", LEAST)
@pytest.mark.parametrize(
    "cell",
    ["IAD over greedy decoding, 6+6 Transformer of width 256 / JFLEG", "IAD, 6+6 Transformer of width 256 / JFLEG"],
)
def test_the_interval_covers_as_often_as_it_says_with_the_item_times_of_a_row(cell, shape):
    """The committed row's times of single sentences, drawn anew for each process. Both ends miss alike."""
    rows = RowStore(Path(__file__).parents[3] / "results" / "measured" / "iad-jfleg" / "small" / "rows.jsonl").rows()
    row = next(row for row in rows if row.cell == cell)
    pairs = [pair for process in row.processes for pair in process["pairs"]]
    baseline, method = (np.asarray([ns for pair in pairs for ns in pair[f"{s}_ns"]]) for s in ("baseline", "method"))
    whole, rng = baseline.sum() / method.sum(), np.random.default_rng(11)
    ends = []
    for _ in range(2000):
        drawn = rng.integers(len(method), size=(shape[0], 12))
        machine = np.exp(rng.normal(0, 0.03, (2, *drawn.shape)))  # noise of the machine
        of, per = ((side[drawn] * noise).sum(axis=1) for side, noise in zip((baseline, method), machine, strict=True))
        ends.append(statistics.ratio_of_totals(of, per)[1])
    above, below = np.mean([low > whole for low, _ in ends]), np.mean([high < whole for _, high in ends])
    assert 0.93 <= 1 - above - below <= 0.97
    assert max(above, below) <= 0.045


@pytest.mark.parametrize("spread", [0.0, 0.02, 0.05])
def test_the_interval_covers_the_fit(spread):
    """Ten processes over three random fits whose speedups differ by so much; processes alone would cover 75 to 95%."""
    rng = np.random.default_rng(7)
    fits = [number % 3 for number in range(10)]
    held = 0
    for _ in range(400):
        effects = rng.normal(0, spread, 3)
        ratios = [float(np.exp(effects[fit] + rng.normal(0, 0.02))) for fit in fits]
        low, high = statistics.ratio_of_totals(ratios, [1.0] * 10, fits)[1]
        held += low <= 1 <= high
    assert held / 400 >= 0.92


@pytest.mark.parametrize("kind", KINDS)
def test_the_speedup_lies_inside_its_interval(kind):
    for seed in range(200):
        summary = decide(Machine(kind, seed).cell(10, 3, 2.0))
        assert summary.interval[0] <= summary.speedup <= summary.interval[1]
