"""How a method serves its requests: which stride scheduler, synchronous or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from harness.contracts import Phases, Trace
from harness.errors import RequestError
from methods.knnlm.ranges import within
from methods.ralmspec.experience import Experience
from methods.ralmspec.record import Record
from methods.ralmspec.scheduler import OS3, Fixed, Strides
from methods.ralmspec.speculation import Process, speculate
from methods.ralmspec.worker import Worker

Scheduling = Literal["fixed", "os3"]


class Service:
    """Serves processes speculatively; what OS3 has learnt of the machine outlasts a request."""

    def __init__(self, scheduler: Scheduling, stride: int, window: int, gamma_max: float, asynchronous: bool) -> None:
        """Raises `RequestError` for a value out of range."""
        within("stride", stride, 0)
        within("window", window, 1)
        if not 0 <= gamma_max < 1:
            raise RequestError(f"gamma_max={gamma_max} is not within 0 and 1 (1 excluded)")
        self.scheduler = scheduler
        self.stride = stride
        self.window = window
        self.gamma_max = gamma_max
        self.asynchronous = asynchronous
        self.experience = Experience()
        self.record = Record()  # of the last request

    def reset(self) -> None:
        """Forget what was learnt."""
        self.experience = Experience()

    def warm(self, search: Callable[[], object]) -> None:
        """Where verification may be asynchronous, one search in a worker whose result nobody wants: the first one sets
        up a thread and the ways of one core."""
        if self.asynchronous:
            with Worker() as worker:
                worker.launch(search).result()

    def serve(self, process: Process[Any, Any], phases: Phases) -> Record:
        """One request, to its end. The worker thread, where there is one, ends with it."""
        if self.asynchronous:
            with Worker() as worker:
                record = speculate(process, self._strides(process), phases, worker)
        else:
            record = speculate(process, self._strides(process), phases)
        self.record = record
        return record

    def trace(self, record: Record) -> Trace:
        """The request's trace; strides of OS3 and what overlaps depend on timing by design."""
        return record.trace(by_time=self.asynchronous or self.scheduler == "os3")

    def _strides(self, process: Process[Any, Any]) -> Strides:
        if self.scheduler == "fixed":
            return Fixed(self.stride, self.asynchronous)
        return OS3(
            self.experience, asynchronous=self.asynchronous, redo=process.redo, window=self.window,
            gamma_max=self.gamma_max,
        )  # fmt: skip
