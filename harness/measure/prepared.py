"""A cell in a process of its own: its task prepared, its methods ready to be made; and where answers are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from harness.common.cache import Cache, CellArtifacts, salt
from harness.common.progress import Progress
from harness.contracts.analyses import TimedAnalysis
from harness.contracts.tasks import Context, Setting
from harness.measure.drivers import DRIVERS, Driver, Essence
from harness.measure.drivers.given_sides import GivenSides
from harness.plan.registry import Registry, construct

Request = dict[str, Any]


BASELINE = "speed_baseline"


class Sides(NamedTuple):
    """What a process times: its driver, the setting with the items, and what opens each side, the baseline first."""

    driver: Driver
    setting: Any
    openers: dict[str, Callable[[], Any]]


class PreparedCell:
    """A request's cell with its task prepared; makes and opens its methods."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.registry = Registry()
        self.progress = Progress()
        self.context = Context.here(request["scale"], request["device"], request["seed"], Path(request["cache"]))
        self.cache = Cache(self.context.cache)
        self.task = construct(self.registry.resolve("task", request["task"]["name"]), request["task"]["params"])
        self.setting: Setting = self.task.prepare(self.context, self.progress)
        self.driver: Driver = DRIVERS[self.registry.entry("task", request["task"]["name"]).contract]
        self.salt = salt(request["device"], request["libraries"], self.driver.subject(self.setting))

    def named(self, wanted: Mapping[str, Any], number: int) -> Any:
        """A fresh instance of a method, {"name", "params"}, for a fit of this number. In a repeated fit, a method that
        is fitted at random gets another seed where it has one."""
        target, params = self.registry.resolve("method", wanted["name"]), wanted["params"]
        method = construct(target, params)
        if number and method.random_fit and "seed" in params:
            method = construct(target, {**params, "seed": params["seed"] + number})
        return method

    def analysis(self) -> Any:
        wanted = self.request["method"]
        return construct(self.registry.resolve("analysis", wanted["name"]), wanted["params"])

    def salt_of(self, wanted: Mapping[str, Any], number: int) -> dict[str, Any]:
        """What determines a method's artifacts apart from its own keys. A repeated fit at random has artifacts of its
        own: those of another seed, or, where the method has no seed, those of the fit's number."""
        alone = number and self.named(wanted, number).random_fit and "seed" not in wanted["params"]
        return {**self.salt, "fit": number} if alone else self.salt

    def opened(self, wanted: Mapping[str, Any], manifest: Mapping[str, Any], number: int) -> Any:
        """A method, opened from its artifacts as a process that did not fit it would."""
        method, salt = self.named(wanted, number), self.salt_of(wanted, number)
        method.open(self.driver.subject(self.setting), CellArtifacts(self.cache, salt=salt, **manifest))
        return method

    def sides(self) -> Sides:
        """What was fitted, for timing: the baseline and the methods of a block by place, or the two sides of a timed
        analysis."""
        request = self.request
        if request["kind"] == "pair":
            opens: dict[str, Callable[[], Any]] = {
                str(place): partial(self.opened, one["method"], one["manifests"]["method"], one["fit"])
                for place, one in enumerate(request["block"]) if not one["is_baseline"]
            }  # fmt: skip
            if request[BASELINE]:
                first = request["block"][0]
                role = "method" if first["is_baseline"] else BASELINE
                opens = {
                    BASELINE: partial(self.opened, request[BASELINE], first["manifests"][role], first["fit"])
                } | opens
            return Sides(self.driver, self.setting, opens)
        run: TimedAnalysis = self.analysis()
        run.open(self.setting, CellArtifacts(self.cache, salt=self.salt, **request["block"][0]["manifests"]))
        pool, sample = run.items()
        setting = SimpleNamespace(timed=range(pool), sample=sample, numbers=None)
        return Sides(GivenSides(run), setting, {BASELINE: lambda: run.baseline, "0": lambda: run.method})


def keep_answers(path: str, groups: Mapping[str, Essence]) -> None:
    """Write the answers of a pass, by role, so that a new metric needs no new run."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial_file = target.with_suffix(".partial.npz")
    arrays: dict[str, Any] = {f"{role}.{n}": array for role, group in groups.items() for n, array in group.items()}
    np.savez_compressed(partial_file, **arrays)
    partial_file.replace(target)
