"""Parts of a build that need nothing of one another: made here one after the other, or as tasks of a Ray cluster.

A build that has parts hands them to the `Parts` that it is given. `fit` finds them in its artifacts: `HERE`, or, when
`--executor ray` builds before it measures anything (`harness.measure.cluster`), `ClusterParts`. On a cluster all nodes
have one cache folder: a part writes its files there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
CARRIED = ("HARNESS_DATA", "HARNESS_CACHE", "HARNESS_PLUGINS", "PYTHONPATH", "HF_HOME", "HF_HUB_OFFLINE")  # nodes' own
RETRIES = 3  # of a part or a cell whose node was lost


class Parts:
    """Makes parts here, one after the other."""

    def side_by_side(self) -> int:
        """How many parts are made at a time."""
        return 1

    def each(self, make: Callable[..., T], parts: Sequence[tuple[Any, ...]], shared: Any = None) -> Iterator[T]:
        """make(shared, *part) of each part, in order. make: a function of a module; shared: what all parts read. What
        `make` raises is raised here."""
        for part in parts:
            yield make(shared, *part)


HERE = Parts()


class ClusterParts(Parts):
    """Makes parts on a Ray cluster, a core each; what they share travels to each node once."""

    def __init__(self, address: str) -> None:
        self.address = address

    def side_by_side(self) -> int:
        return max(1, int(self._cluster().cluster_resources().get("CPU", 1)))

    def each(self, make: Callable[..., T], parts: Sequence[tuple[Any, ...]], shared: Any = None) -> Iterator[T]:
        ray = self._cluster()
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
            for one in unfinished:  # of a build that ended early; Ray crashes where one is cancelled that has ended
                ray.cancel(one)

    def _cluster(self) -> Any:
        import ray

        if not ray.is_initialized():
            ray.init(address=self.address, runtime_env={"env_vars": carried()}, log_to_driver=False)
        return ray


def makers(cluster: str | None) -> Parts:
    """What makes parts: the cluster at this address, or, where there is none, this process."""
    return ClusterParts(cluster) if cluster else HERE


def carried() -> dict[str, str]:
    """The environment variables that nodes need."""
    return {name: os.environ[name] for name in CARRIED if name in os.environ}
