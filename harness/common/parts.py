"""Independent parts of a build: run here one after the other, or as tasks of a Ray cluster.

A build with parts passes them to `each`. `--executor ray` builds before it measures (`harness.measure.cluster`). All
nodes share the cache folder, and a part writes its files there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
CLUSTER = "HARNESS_PARTS"  # environment variable: the address of the cluster that runs parts
CARRIED = ("HARNESS_DATA", "HARNESS_CACHE", "HARNESS_PLUGINS", "PYTHONPATH", "HF_HOME", "HF_HUB_OFFLINE")  # nodes' own
RETRIES = 3  # of a part or cell whose node was lost


def side_by_side() -> int:
    """Number of parts that run at a time: the cluster's cores, or 1 without a cluster."""
    if CLUSTER not in os.environ:
        return 1
    return max(1, int(_cluster().cluster_resources().get("CPU", 1)))


def each(make: Callable[..., T], parts: Sequence[tuple[Any, ...]], shared: Any = None) -> Iterator[T]:
    """make(shared, *part) of each part, in order. make: a module-level function. shared: read by all parts, sent to
    each node once. Errors of `make` are raised here."""
    if CLUSTER not in os.environ:
        for part in parts:
            yield make(shared, *part)
        return
    ray = _cluster()
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


def carried() -> dict[str, str]:
    """The environment variables that nodes need."""
    return {name: os.environ[name] for name in CARRIED if name in os.environ}


def _cluster() -> Any:
    import ray

    if not ray.is_initialized():
        ray.init(address=os.environ[CLUSTER], runtime_env={"env_vars": carried()}, log_to_driver=False)
    return ray
