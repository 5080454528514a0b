"""Where a cell's steps run: processes of this machine, one at a time, each isolated, timed out and logged.

A step that crashes, is killed for memory or runs past its time becomes an `Outcome` with its status and the end of its
log; it never takes the run with it. An interrupt kills the step's whole process group before it travels on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.common.files import write_atomically
from harness.common.progress import PIPE

Status = Literal["ok", "skipped", "failed", "timeout", "killed"]
Report = Callable[[dict[str, Any]], None]
TAIL = 2000  # characters of a log that a row keeps
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
# Threads of libgomp spin at barriers before they sleep. Next to other busy processes they spin in the time of those
# that they wait for: a small training on two cores falls from 82 steps a second to 0.3 to 2.6. With a short spin it
# does 5 to 36 there, and 76 alone. So what is not timed spins shortly; timed processes keep what the caller's
# environment says.
SPINNING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
SHORT_SPIN = "3000"
# Memory in huge pages, for torch's tensors of 2 MiB and for all that glibc gives (from 2.35 on). A product with one row
# reads bfloat16 weights 1.2 to 1.35 times as fast from them (two cores of an Intel Xeon).
HUGE_PAGES = "glibc.malloc.hugetlb"

WORKER = "harness.measure.worker"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one step. `response` is empty unless status is ok; `error` is one line; `log` is the end of
    `log_file`."""

    status: Status
    response: dict[str, Any]
    error: str
    log: str
    log_file: Path
    exit_code: int


def run_step(
    mode: str, request: dict[str, Any], folder: Path, label: str, *,
    timeout: float, threads: int | None = None, report: Report = lambda update: None,
) -> Outcome:  # fmt: skip
    """Run one step of `harness.measure.worker` to its end. Request, response and log are `<folder>/<label>.*`."""
    files = {kind: folder / f"{label}.{kind}" for kind in ("request.json", "response.json", "log")}
    write_atomically(files["request.json"], json.dumps({**request, "runner": os.getpid()}))
    files["response.json"].unlink(missing_ok=True)
    reading, writing = os.pipe()
    environment = {"THP_MEM_ALLOC_ENABLE": "1", **os.environ, PIPE: str(writing), "GLIBC_TUNABLES": _tunables()}
    environment |= {"PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}
    if mode in ("prepare", "build", "fit") and not any(name in os.environ for name in SPINNING):
        environment["GOMP_SPINCOUNT"] = SHORT_SPIN
    if threads is not None:
        environment |= dict.fromkeys(THREAD_VARIABLES, str(threads))
    with open(files["log"], "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", WORKER, mode, str(files["request.json"]), str(files["response.json"])],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, pass_fds=(writing,),
            start_new_session=True,
        )  # fmt: skip
    os.close(writing)
    reader = threading.Thread(target=_pass_on, args=(reading, report), daemon=True)
    reader.start()
    try:
        process.wait(timeout)
        on_time = True
    except subprocess.TimeoutExpired:
        on_time = False
    finally:
        stop(process)  # past its time; or, after its end, whatever it started and left
    reader.join(1)  # a process that left the group may hold the pipe open
    return _outcome(process.returncode, on_time, timeout, files)


def _tunables() -> str:
    """The caller's settings of glibc, and huge pages unless they speak of these."""
    given = os.environ.get("GLIBC_TUNABLES", "")
    return given if HUGE_PAGES in given else ":".join(filter(None, (given, f"{HUGE_PAGES}=1")))


def _pass_on(reading: int, report: Report) -> None:
    """Pass a step's progress on until its end of the pipe is closed."""
    with open(reading, "rb") as pipe:
        for line in pipe:
            with suppress(ValueError):  # something else wrote to the descriptor
                report(json.loads(line))


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the step and whatever it started."""
    with suppress(ProcessLookupError):  # nothing of it is left
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(3)
        time.sleep(0.01)  # its children had the same signal
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _outcome(code: int, on_time: bool, timeout: float, files: dict[str, Path]) -> Outcome:
    log = files["log"].read_text(encoding="utf-8", errors="replace")[-TAIL:]
    try:
        response = json.loads(files["response.json"].read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        response = {}

    def ended(status: Status, error: str, code: int = 1) -> Outcome:
        return Outcome(status, {} if error else response, error, log, files["log"], code)

    if not on_time:
        return ended("timeout", f"no answer within {timeout:.0f} s (timing.timeout)")
    if code < 0:
        name = signal.Signals(-code).name
        hint = "; the machine may be out of memory" if -code == signal.SIGKILL else ""
        return ended("killed", f"the process was ended by {name}{hint}")
    if "error" in response:
        skipped = response.get("skipped", False)
        return ended("skipped" if skipped else "failed", response["error"], int(response["exit_code"]))
    if code != 0 or not response:
        last = next((line for line in reversed(log.splitlines()) if line.strip()), f"exit code {code}")
        return ended("failed", last.strip())
    return ended("ok", "", 0)
