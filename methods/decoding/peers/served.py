"""A peer in a process of its own, as a user would run it: both ends of the pipes between it and ours.

In a process that has prepared a task (with torch, the model and the rest loaded), the threads of another engine sleep
between parallel regions: on two cores CTranslate2 with beam 5 took 250 ms a sentence there and 56 in a process of its
own, llama.cpp 22 ms a token and 14. The likely cause: GNU OpenMP waits at a barrier without sleeping only while the
teams of a process have no more threads than the machine has cores, and torch's team counts.

Requests and answers are JSON, one line each. The standard output of the peer's own code goes to the log.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from harness.common.errors import CellFailedError

Answerer = Callable[[dict[str, Any]], dict[str, Any]]


class Served:
    """The process `python -m MODULE ARGUMENTS`, which calls `serve`. It ends with this object."""

    def __init__(self, name: str, module: str, *arguments: str) -> None:
        """Start it and wait until it is ready. name: for messages. Raises `CellFailedError` when it is not."""
        self._name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        weakref.finalize(self, _end, self._process)
        self._answer()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request. Raises `CellFailedError` on failure."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise CellFailedError(f"{self._name}'s process ended with code {self._process.wait()}") from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise CellFailedError(f"{self._name}'s process ended with code {code}; the log says why")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise CellFailedError(f"{self._name}: {answer['error']}")
        return answer


def _end(process: subprocess.Popen[str]) -> None:
    """Close the input, which ends the process."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    process.wait()


def serve(start: Callable[[], Answerer]) -> None:
    """Be such a process: `start` loads the model and returns what answers. What either raises is the answer's `error`.
    Returns at the end of standard input, or when `start` failed."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def tell(given: dict[str, Any]) -> None:
        print(json.dumps(given), file=answers, flush=True)

    try:
        answer = start()
    except (RuntimeError, ValueError) as error:
        tell({"error": str(error)})
        return
    tell({"ready": True})
    for line in sys.stdin:
        try:
            tell(answer(json.loads(line)))
        except (RuntimeError, ValueError) as error:
            tell({"error": str(error)})
