"""The peak of a call is its own, not that of what ran before it."""

import sys

import numpy as np
import pytest

from harness.measure.memory import peak_of, peak_resident

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
