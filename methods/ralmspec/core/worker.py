"""One worker thread for the verifications of one request, and the cores it shares with generation."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from types import TracebackType
from typing import Generic, TypeVar

import torch

from methods.nearest.threads import use_one_thread

R = TypeVar("R")


class Pending(Generic[R]):
    """A call in the worker thread."""

    def __init__(self, future: Future[tuple[R, float]], ended: Callable[[], None]) -> None:
        self._future = future
        self._ended = ended
        self.seconds = 0.0  # of the call, set by `result`

    def done(self) -> bool:
        """Whether `result` will not wait."""
        return self._future.done()

    def result(self) -> R:
        """The call's result; an exception in the worker is raised here."""
        try:
            answer, self.seconds = self._future.result()
            return answer
        finally:
            self._ended()


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

    def start(self, call: Callable[[], R]) -> Pending[R]:
        """Run `call` in the worker thread."""

        def timed() -> tuple[R, float]:
            started = perf_counter()
            answer = call()
            return answer, perf_counter() - started

        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "verification", initializer=use_one_thread)
            self._pool.submit(int).result()  # the initializer also sets torch's default for new threads
        torch.set_num_threads(max(1, self._threads - 1))
        return Pending(self._pool.submit(timed), lambda: torch.set_num_threads(self._threads))
