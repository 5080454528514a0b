"""One step of a cell in a process of its own: `python -m harness.measure.worker MODE REQUEST RESPONSE`.

prepare   load the task (train and cache its model where the scale says so), report hashes and facts
build     build what fitting leaves in the cache, measure nothing
fit       fit method and baselines, run the quality pass, report metrics, fidelity, counters, artifact manifests
analysis  call a named analysis, report its metrics and counters; fit it where it is a timed one
time      open what was fitted, time the baseline and the methods of a block on items of its own, report samples and
          phases, and how the answers of the timed calls compare with the baseline's
memory    open one method alone, report its peak memory

The response is written atomically; without one the runner knows that the process died. An error travels in the response
as one line. One that is no `HarnessError` travels with its file and line, and its traceback goes to standard error, the
cell's log.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.common.errors import HarnessError, NotInstalledError, place
from harness.common.files import write_atomically
from harness.measure.prepared import Request
from harness.measure.steps import analysis, build, fit, memory, prepare
from harness.measure.timed import timed
from harness.plan.registry import Registry

MODES: dict[str, Callable[[Request], dict[str, Any]]] = {
    "prepare": prepare, "build": build, "fit": fit, "analysis": analysis, "time": timed, "memory": memory,
}  # fmt: skip


def _die_with(runner: int) -> None:
    """Ask Linux to end this process when the runner dies without a word (`kill -9`), so that no orphan goes on
    while another run resumes its cell. On other systems nothing is done: the orphan finishes its step."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
        if os.getppid() != runner:  # it died before we asked
            sys.exit(1)


def main(arguments: Sequence[str] | None = None) -> int:
    mode, request_file, response_file = sys.argv[1:] if arguments is None else arguments
    request = json.loads(Path(request_file).read_text(encoding="utf-8"))
    _die_with(request["runner"])
    try:
        response = MODES[mode](request)
        code = 0
    except HarnessError as error:
        response, code = {"error": str(error), "exit_code": error.exit_code}, error.exit_code
        response["skipped"] = isinstance(error, NotInstalledError)
    except Exception as error:
        traceback.print_exc()
        last = traceback.format_exception_only(error)[-1].strip()
        response, code = {"error": f"{last} ({place(error, Registry().packages)})", "exit_code": 1}, 1
    write_atomically(Path(response_file), json.dumps(response))
    return code


if __name__ == "__main__":
    sys.exit(main())
