"""Contexts with other numbers of threads: one, for comparisons with a pass that is timed on one; all, for training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits

from harness.common.cores import usable_cores


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch and for the BLAS and OpenMP libraries that are loaded (numpy's among them), and as many as
    before afterwards. Compiled loops of numba are left alone: a method decides itself whether it shares them out."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def all_cores() -> Iterator[None]:
    """As many threads for torch as this process has cores, for work that is not timed, and as many as before
    afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(usable_cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)
