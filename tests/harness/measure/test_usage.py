"""What others do while a sample is taken is seen, and reported when it matters; a peak of memory is its own call's."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from harness.measure import usage
from harness.measure.usage import Watch, disturbance, peak_of, peak_resident

BUSY = "while True: pass"


def watched(seconds):
    watch = Watch()
    watch.start()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pass
    watch.stop()
    return watch.as_dict()


@pytest.mark.skipif(not usage.STAT.exists(), reason="the system does not tell")
def test_another_busy_process_is_seen_and_ones_own_work_is_not_counted():
    alone = watched(0.5)["others"]
    # a process whose parent has ended is nobody's child
    start = (
        f"import subprocess; print(subprocess.Popen([{sys.executable!r}, '-c', {BUSY!r}], stdout=-3, stderr=-3).pid)"
    )
    busy = int(subprocess.run([sys.executable, "-c", start], check=True, capture_output=True).stdout)
    try:
        time.sleep(0.2)
        together = watched(0.5)
    finally:
        os.kill(busy, signal.SIGKILL)
    assert together["seconds"] == pytest.approx(0.5, abs=0.1)
    assert together["others"] > 0.3
    assert together["others"] > alone - 0.2


@pytest.mark.skipif(not usage.STAT.exists(), reason="the system does not tell")
def test_processes_that_this_one_started_are_not_others():
    alone = watched(0.5)["others"]
    nested = f"import subprocess; subprocess.run([{sys.executable!r}, '-c', {BUSY!r}])"
    with subprocess.Popen([sys.executable, "-c", nested], start_new_session=True) as busy:
        try:
            time.sleep(0.3)
            together = watched(0.5)["others"]
        finally:
            os.killpg(busy.pid, signal.SIGKILL)
    assert together < alone + 0.3


@pytest.mark.skipif(not usage.STAT.exists(), reason="the system does not tell")
def test_who_waits_for_a_quiet_machine_hears_what_others_take(monkeypatch):
    #           clock, own, all, withheld: other processes take 0.8 cores for 2 s, 0.5 for 2 s, then 0.05
    readings = [(0, 5, 9, 0), (2, 5, 10.6, 0), (2, 5, 10.6, 0), (4, 5, 11.6, 0), (4, 5, 11.6, 0), (6, 5, 11.7, 0)]
    monkeypatch.setattr(usage, "_now", iter(readings).__next__)
    heard = []
    usage.wait_until_quiet(heard.append, seconds=0)
    assert heard == ["waiting for a quiet machine: other processes take 0.8 cores"]


def test_a_row_says_what_disturbed_it_and_nothing_else():
    calm = {"seconds": 2.0, "others": 0.02, "stolen": 0.0}
    assert disturbance([calm, calm]) == ""
    text = disturbance([calm, {"seconds": 2.0, "others": 0.02, "stolen": 0.5}])
    assert text == "the host withheld 0.25 of a core while it was timed (0.50 in the worst process)"
    assert "other processes took 0.41" in disturbance([calm, {**calm, "others": 0.8}])


def test_where_the_system_cannot_tell_nothing_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(usage, "STAT", tmp_path / "stat")
    seen = watched(0.01)
    assert (seen["others"], seen["stolen"]) == (None, None)
    assert disturbance([seen, None, {}]) == ""


needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can reset a process's memory peak")


@needs_linux
def test_a_call_is_charged_for_what_it_touches_and_the_next_one_is_not():
    def touch(mib):
        return lambda: np.ones(mib * 2**20 // 8).sum()

    idle = peak_of(lambda: None, "cpu")
    assert peak_of(touch(200), "cpu") == pytest.approx(idle + 200, abs=40)
    assert peak_of(touch(20), "cpu") < idle + 80


def test_the_peak_of_the_process_is_in_mib():
    assert 10 < peak_resident() < 100_000
