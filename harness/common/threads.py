"""Contexts with another number of threads: one, to compare with a pass timed on one; all, for training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits

from harness.common.cores import usable_cores


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch and for the loaded BLAS and OpenMP libraries (including numpy's); restored afterwards.
    Compiled loops of numba are not affected: a method itself decides whether they run in parallel."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def all_cores() -> Iterator[None]:
    """As many threads for torch as this process has cores, for work that is not timed; restored afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(usable_cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)
