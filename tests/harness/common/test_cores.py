"""Cores that a process may use, and contexts with other numbers of threads."""

import os

import pytest
import torch

from harness.common import cores
from harness.common.training import loop
from harness.common.training.loop import all_cores
from tasks.models.translator.decoding import one_thread


@pytest.mark.parametrize(
    ("quota", "usable"),
    [("max 100000", 8), ("200000 100000", 2), ("150000 100000", 2), ("50000 100000", 1), ("1600000 100000", 8)],
)
def test_a_containers_quota_cuts_the_cores(quota, usable, tmp_path, monkeypatch):
    file = tmp_path / "cpu.max"
    file.write_text(f"{quota}\n")
    monkeypatch.setattr(cores, "_QUOTA", file)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    assert cores.usable_cores() == usable


def test_without_a_quota_the_affinity_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(cores, "_QUOTA", tmp_path / "none")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(3)))
    assert cores.usable_cores() == 3


@pytest.mark.parametrize(("context", "inside"), [(one_thread, 1), (all_cores, 2)])
def test_threads_are_as_many_as_before_even_after_an_error(context, inside, monkeypatch):
    monkeypatch.setattr(loop, "usable_cores", lambda: 2)
    torch.set_num_threads(3)
    with pytest.raises(ZeroDivisionError), context():
        assert torch.get_num_threads() == inside
        raise ZeroDivisionError
    assert torch.get_num_threads() == 3
