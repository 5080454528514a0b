"""Work on many queries, shared among the cores."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache
from itertools import pairwise

import numba

from harness.common.cores import usable_cores


def in_parallel(part: Callable[[int, int], None], count: int, least: int) -> None:
    """Run part(begin, end) over `count` items in as many threads as numba may use, with at least `least` items each.
    All parts have ended when it returns or raises, because they read addresses owned by the engine."""
    most = min(usable_cores(), numba.get_num_threads())
    threads = max(1, min(most, count // least))
    if threads == 1:
        part(0, count)
        return
    pieces = max(threads, min(4 * threads, count // least))  # texts differ in length
    edges = [count * number // pieces for number in range(pieces + 1)]
    running = [_threads(os.getpid(), most).submit(part, begin, end) for begin, end in pairwise(edges)]
    try:
        for one in running:
            one.result()
    finally:
        for one in running:
            one.cancel()
        wait(running)


@lru_cache(maxsize=1)
def _threads(process: int, count: int) -> ThreadPoolExecutor:
    """Permanent threads, shared by all engines: starting two takes 0.4 ms, as long as counting 500 n-grams. process:
    its id, because a fork does not have its parent's threads."""
    return ThreadPoolExecutor(count, "infinigram")
