"""Numbers and times are written with the digits that they support."""

import pytest

from harness.show import formats


@pytest.mark.parametrize(
    ("value", "interval", "shown"),
    [
        (85.3123, (84.1, 86.52), "85.3 [84.1, 86.5]"),
        (0.99812, (0.9975, 0.9987), "0.9981 [0.9975, 0.9987]"),
        (14_763_345_884.0, (12_539_149_166.0, 17_382_071_048.0), "14.8 [12.5, 17.4] billion"),
        (4.74, (4.1, 5.5), "4.74 [4.10, 5.50]"),
        (-0.0004, (-0.5, 0.5), "0.00 [-0.50, 0.50]"),
        (10.6, None, "10.6"),
        (245569, None, "245,569"),
        (520144.2, (520144.1, 520144.3), "520,144"),
        (1.0, (1.0, 1.0), "1"),
        (0.0, (0.0, 0.0), "0"),
        (None, (1, 2), "–"),
        (float("nan"), None, "–"),
    ],
)
def test_numbers_carry_the_digits_that_their_interval_supports(value, interval, shown):
    assert formats.with_interval(value, interval) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0123, "12.3 ms"), (4.56, "4.56 s"), (200, "3 min 20 s"), (7500, "2 h 05 min"), (None, "–")],
)
def test_durations(seconds, shown):
    assert formats.duration(seconds) == shown
