"""Services of the harness for methods: a clock of phases, storage of artifacts, results that cells share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.common.parts import Parts


class Phases(Protocol):
    """Times the parts of a run: `with phases("search"): ...` (seconds add up per name)."""

    def __call__(self, name: str) -> AbstractContextManager[None]: ...

    def overlapped(self, name: str, seconds: float) -> None:
        """Record seconds spent in a worker thread, outside the sum of phases."""


class Artifacts(Protocol):
    """The results of `fit` for other processes: named files and folders, and small JSON values.

    Files are cached by the hash of all that determines them, so a method and its baseline share equal artifacts; see
    `harness.common.cache`.
    """

    def build(self, name: str, key: Mapping[str, Any], build: Callable[[Path], None]) -> Path:
        """Path of the artifact with this key. If there is none, `build` fills its folder first."""

    def path(self, name: str) -> Path:
        """Path of the artifact that `fit` built under this name. Raises `RequestError` when there is none."""

    parts: Parts  # runs the parts of a build, here or on a cluster
    values: dict[str, Any]  # tuned parameters and similar values, JSON-able, passed from `fit` to `open`


class Shared(Protocol):
    """Results that cells share, only in the quality pass (neighbours of every evaluation position, ...)."""

    def arrays(
        self, name: str, key: Mapping[str, Any], compute: Callable[[], dict[str, NDArray[Any]]]
    ) -> dict[str, NDArray[Any]]:
        """The arrays stored under this key, computed once and memory-mapped afterwards."""
