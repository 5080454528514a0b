"""What is demanded of answers over several fits, and why those of the timed calls are not as close as demanded."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from harness.measure.drivers import DRIVERS, Demand
from harness.measure.records import fidelity_of_timed, objections, of_quality
from tests.harness.rows import new_row

DECODING, SOFTMAX, SCORING = (DRIVERS[n] for n in ("sequence-decoding", "softmax-screening", "token-scoring"))
NO_WIDE = Demand("wide_differences", "at most", 0)


def kept(folder, number, ours, theirs):
    """One process's answers on disk, as the worker keeps them."""
    file = folder / f"{number}.npz"
    np.savez_compressed(
        file, **{f"method.{n}": a for n, a in ours.items()}, **{f"fidelity_baseline.{n}": a for n, a in theirs.items()}
    )
    return file


def outputs(*sequences):
    lengths = [len(one) for one in sequences]
    return {"ids": np.concatenate([np.asarray(s) for s in sequences]), "offsets": np.cumsum([0, *lengths])}


def faults(folder, driver, demand, processes, counted=None):
    files = [kept(folder, number, ours, theirs) for number, (ours, theirs) in enumerate(processes)]
    return fidelity_of_timed(driver, demand, files, [{"fidelity": one} for one in counted or [{}] * len(files)])


def of_fits(*metrics):
    cell = SimpleNamespace(fidelity=None, speed_baseline="greedy")
    empty = {"intervals": {}, "counters": {}, "described": {}, "series": {}, "examples": []}
    empty |= {"fit_s": 1, "memory_mib": 1}
    return of_quality(cell, [{"metrics": one, **empty} for one in metrics], DECODING.demands)


def test_of_several_fits_the_one_with_the_most_wide_differences_counts():
    found = of_fits(*({"exact_match": 0.99, "wide_differences": wide} for wide in (0.0, 5.0, 0.0)))
    assert found["metrics"]["wide_differences"] == 5 and found["metrics"]["exact_match"] == 0.99
    assert found["fidelity"] == {"metric": "wide_differences", "is": "at most", "bound": 0}


def test_a_fit_that_cannot_count_its_differences_leaves_the_question_to_the_next_demand():
    found = of_fits({"exact_match": 1.0, "wide_differences": 0.0}, {"exact_match": 0.99})
    assert found["fidelity"] == {"metric": "exact_match", "is": "at least", "bound": 0.98}


def test_a_process_that_cannot_count_its_differences_leaves_the_question_to_the_contracts_own_demand(tmp_path):
    same, other = outputs([1, 2], [3]), outputs([7, 7], [8])
    processes = [(same, same)] + [(other, same)] * 9
    counted = [{"wide_differences": 0.0}] + [{}] * 9
    (reason,) = faults(tmp_path, DECODING, NO_WIDE, processes, counted)
    assert "exact_match of 0.1 is not at least 0.98" in reason


def test_counts_of_all_processes_are_added(tmp_path):
    same = outputs([1, 2], [3])
    counted = [{"wide_differences": 0.0}] * 9 + [{"wide_differences": 1.0}]
    (reason,) = faults(tmp_path, DECODING, NO_WIDE, [(same, same)] * 10, counted)
    assert "wide_differences of 1 is not at most 0" in reason
    assert faults(tmp_path, DECODING, NO_WIDE, [(same, same)] * 10, [{"wide_differences": 0.0}] * 10) == []


@pytest.mark.parametrize(("missing", "fails"), [(0, False), (2, True)])
def test_a_word_without_probability_makes_the_perplexity_infinite_and_the_demand_fail(tmp_path, missing, fails):
    theirs = np.full(600, -3.0)
    ours = theirs.copy()
    ours[:missing] = -np.inf
    found = faults(tmp_path, SOFTMAX, None, [({"log_probs": ours}, {"log_probs": theirs})] * 3)
    assert bool(found) == fails


def test_few_tokens_of_noisy_perplexity_do_not_fail_a_bound_that_they_cannot_tell(tmp_path):
    rng = np.random.default_rng(0)
    theirs = rng.normal(-4.5, 2.0, 768)
    near = theirs + rng.normal(0.0, 0.3, 768)
    far = theirs - 1.0
    assert faults(tmp_path, SCORING, None, [({"log_probs": near}, {"log_probs": theirs})]) == []
    assert faults(tmp_path, SCORING, None, [({"log_probs": far}, {"log_probs": theirs})])


@pytest.mark.parametrize(("metrics", "shown"), [({"exact_match": 0.5}, "0.5"), ({}, "not measured,")])
def test_answers_of_the_quality_pass_that_are_not_as_close_as_demanded_are_an_objection(tmp_path, metrics, shown):
    cell = SimpleNamespace(kind="pair", speed_baseline="greedy", fidelity=None)
    row = new_row(metrics=metrics, fidelity={"metric": "exact_match", "is": "at least", "bound": 0.98})
    file = kept(tmp_path, 0, outputs([1, 2]), outputs([1, 2]))
    found = objections(cell, row, DECODING, [file], [{"fidelity": {}}], [])
    assert f"fidelity: exact_match {shown} is not at least 0.98" in found
    near = replace(row, metrics={"exact_match": 0.99})
    assert not any("fidelity" in one for one in objections(cell, near, DECODING, [file], [{"fidelity": {}}], []))
