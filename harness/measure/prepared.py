"""A cell in a process of its own: its task prepared, its methods ready to be made; and where answers are kept."""

from __future__ import annotations

from collections.abc import Mapping
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


class Sides(NamedTuple):
    """What a process times: the methods by role, what drives them, and the setting with the items."""

    driver: Driver
    setting: Any
    methods: dict[str, Any]


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

    def named(self, role: str) -> Any:
        """A fresh instance of the method in this role (`method`, `speed_baseline`, `fidelity_baseline`). In a repeated
        fit, a method that is fitted at random gets another seed where it has one."""
        wanted = self.request[role]
        target, params = self.registry.resolve("method", wanted["name"]), wanted["params"]
        method = construct(target, params)
        number = self.request.get("fit", 0)
        if number and method.random_fit and "seed" in params:
            method = construct(target, {**params, "seed": params["seed"] + number})
        return method

    def analysis(self) -> Any:
        """The analysis that the request names."""
        wanted = self.request["method"]
        return construct(self.registry.resolve("analysis", wanted["name"]), wanted["params"])

    def salt_of(self, role: str) -> dict[str, Any]:
        """What determines a method's artifacts apart from its own keys. A repeated fit at random has artifacts of its
        own: those of another seed, or, where the method has no seed, those of the fit's number."""
        number, wanted = self.request.get("fit", 0), self.request[role]
        alone = number and self.named(role).random_fit and "seed" not in wanted["params"]
        return {**self.salt, "fit": number} if alone else self.salt

    def opened(self, role: str, manifest: dict[str, Any]) -> Any:
        """The method in this role, opened from its artifacts as a process that did not fit it would."""
        method = self.named(role)
        method.open(self.driver.subject(self.setting), CellArtifacts(self.cache, salt=self.salt_of(role), **manifest))
        return method

    def sides(self) -> Sides:
        """What was fitted, opened for timing: method and baseline, or the two sides of a timed analysis."""
        manifests = self.request["manifests"]
        if self.request["kind"] == "pair":
            roles = self.roles("method", "speed_baseline")
            return Sides(self.driver, self.setting, {role: self.opened(role, manifests[role]) for role in roles})
        run: TimedAnalysis = self.analysis()
        run.open(self.setting, CellArtifacts(self.cache, salt=self.salt, **manifests))
        pool, sample = run.items()
        setting = SimpleNamespace(timed=range(pool), sample=sample)
        return Sides(GivenSides(run), setting, {"method": run.method, "speed_baseline": run.baseline})

    def roles(self, *names: str) -> list[str]:
        """Those of these roles that the request names."""
        return [name for name in names if self.request.get(name)]


def keep_answers(request: Request, groups: Mapping[str, Essence]) -> None:
    """Write the answers of a pass, by role, where the request says, so that a new metric needs no new run."""
    if path := request.get("answers"):
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial_file = target.with_suffix(".partial.npz")
        arrays: dict[str, Any] = {f"{role}.{n}": array for role, group in groups.items() for n, array in group.items()}
        np.savez_compressed(partial_file, **arrays)
        partial_file.replace(target)
