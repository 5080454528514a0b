"""Independent parts of a build: run here one after the other, or as tasks of a Ray cluster.

A build with parts passes them to the `Parts` that it is given. `fit` finds them in its artifacts: `HERE`, or
`ClusterParts` if `--executor ray` builds before it measures (`harness.measure.cluster`). All nodes of a cluster share
the cache folder, and a part writes its files there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from harness.common.errors import MachineError

T = TypeVar("T")
CARRIED = ("HARNESS_DATA", "HARNESS_CACHE", "HARNESS_PLUGINS", "PYTHONPATH", "HF_HOME", "HF_HUB_OFFLINE")  # nodes' own
RETRIES = 3  # of a part or cell whose node was lost


class Parts:
    """Runs parts here, one after the other."""

    def side_by_side(self) -> int:
        """Number of parts that run at a time."""
        return 1

    def each(self, make: Callable[..., T], parts: Sequence[tuple[Any, ...]], shared: Any = None) -> Iterator[T]:
        """make(shared, *part) of each part, in order. make: a module-level function. shared: read by all parts. Errors
        of `make` are raised here."""
        for part in parts:
            yield make(shared, *part)


HERE = Parts()


class ClusterParts(Parts):
    """Runs parts on a Ray cluster, one core each. What they share is sent to each node once."""

    def __init__(self, address: str) -> None:
        self.address = address

    def side_by_side(self) -> int:
        return max(1, int(connected(self.address).cluster_resources().get("CPU", 1)))

    def each(self, make: Callable[..., T], parts: Sequence[tuple[Any, ...]], shared: Any = None) -> Iterator[T]:
        ray = connected(self.address)
        place = ray.put(shared)
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(make)
        waiting = [task.options(scheduling_strategy="SPREAD").remote(place, *part) for part in parts]
        try:
            for one in waiting:
                yield ray.get(one)
        except ray.exceptions.RayTaskError as error:
            raise (error.cause or error) from None
        finally:
            _, unfinished = ray.wait(waiting, num_returns=len(waiting), timeout=0) if waiting else ((), ())
            for one in unfinished:  # the build ended early; Ray crashes if a finished task is cancelled
                ray.cancel(one)


def connected(address: str = "auto") -> Any:
    """Ray, connected to a cluster. Raises `MachineError` without Ray or a cluster."""
    try:
        import ray
    except ImportError:
        raise MachineError("--executor ray needs Ray: pip install 'shortcut-harness[cluster]'") from None
    if not ray.is_initialized():
        try:
            ray.init(address=address, runtime_env={"env_vars": carried()}, log_to_driver=False)
        except (ConnectionError, RuntimeError) as error:
            raise MachineError(
                f"no Ray cluster answers ({' '.join(str(error).split())[:120]}): start one with `ray start --head`, "
                "or give its address by RAY_ADDRESS"
            ) from error
    return ray


def carried() -> dict[str, str]:
    """The environment variables that nodes need."""
    return {name: os.environ[name] for name in CARRIED if name in os.environ}
