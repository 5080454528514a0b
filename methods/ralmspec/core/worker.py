"""One worker thread for the verifications of one request, and the cores it shares with generation."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from types import TracebackType
from typing import TypeVar

import torch

from methods.nearest.threads import use_one_thread

R = TypeVar("R")


class Worker:
    """A context manager with one worker thread. The thread starts with the first call and ends with the context, also
    after an error. During a call the worker has one core and torch in the caller has the others. On CUDA both would
    use the same stream; the searches here run on the CPU."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._threads = torch.get_num_threads()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            torch.set_num_threads(self._threads)

    def start(self, call: Callable[[], R]) -> Future[tuple[R, float]]:
        """Run `call` in the worker thread."""

        def timed() -> tuple[R, float]:
            started = perf_counter()
            answer = call()
            return answer, perf_counter() - started

        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "verification", initializer=use_one_thread)
            self._pool.submit(int).result()  # the initializer also sets torch's default for new threads
        torch.set_num_threads(max(1, self._threads - 1))
        return self._pool.submit(timed)

    def result(self, call: Future[tuple[R, float]]) -> tuple[R, float]:
        """The result of a call that was started, and its seconds. An exception in the worker is raised here."""
        try:
            return call.result()
        finally:
            torch.set_num_threads(self._threads)
