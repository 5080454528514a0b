"""Ranges of counts in parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.common.errors import RequestError

_WRITTEN = re.compile(r"(\d+)(?:-(\d+)|(\+))?")


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts from `low` to `high`, both included; no limit if `high` is None."""

    low: int
    high: int | None

    @classmethod
    def parse(cls, written: int | str, parameter: str) -> Counts:
        """`2`, `3-4` or `5+`. parameter: its name, for the message. Raises `RequestError` for anything else."""
        found = _WRITTEN.fullmatch(str(written).strip())
        if found is None or (found[2] and int(found[2]) < int(found[1])):
            raise RequestError(f"{parameter} = {written!r}: give a count such as 2, a range such as 3-4, or 5+")
        low = int(found[1])
        return cls(low, None if found[3] else int(found[2] or low))

    def __contains__(self, count: int) -> bool:
        return self.low <= count and (self.high is None or count <= self.high)
