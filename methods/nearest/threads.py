"""Threads that run single-threaded torch work in parallel, without barriers between operations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock
from typing import TypeVar

import torch

A = TypeVar("A")
R = TypeVar("R")


def use_one_thread() -> None:
    """Let torch, and faiss if it is loaded, use one thread, in this thread and by default in new ones."""
    torch.set_num_threads(1)
    if faiss := sys.modules.get("faiss"):
        faiss.omp_set_num_threads(1)


class Workers:
    """`count` threads, by default as many as torch uses, to split long work. torch's own threads would synchronise
    after every operation, and on a busy machine each barrier waits for the scheduler."""

    def __init__(self, count: int | None = None) -> None:
        self.count = count or torch.get_num_threads()
        self._pool: ThreadPoolExecutor | None = None
        self._starting = Lock()

    def map(self, work: Callable[[A], R], parts: Sequence[A]) -> list[R]:
        """`work` of each part, in order. Exceptions are raised in the caller."""
        if self.count == 1 or len(parts) == 1:
            return [work(part) for part in parts]
        with self._starting:
            if self._pool is None:
                self._pool = self._start()
        return list(self._pool.map(work, parts))

    def _start(self) -> ThreadPoolExecutor:
        ready = Barrier(self.count + 1)

        def alone() -> None:
            use_one_thread()
            ready.wait()

        pool = ThreadPoolExecutor(self.count, "exact-search", initializer=alone)
        idle = [pool.submit(int) for _ in range(self.count)]
        ready.wait()
        torch.set_num_threads(self.count)  # restores the default
        for future in idle:
            future.result()
        return pool
