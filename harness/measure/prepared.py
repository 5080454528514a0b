"""A cell in a process of its own: its task prepared, its methods ready to be made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.common.cache import Cache, CellArtifacts, salt
from harness.common.progress import Progress
from harness.contracts.tasks import Context, Setting
from harness.measure.drivers import DRIVERS, Driver
from harness.plan.registry import Registry, construct

Request = dict[str, Any]


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

    def roles(self, *names: str) -> list[str]:
        """Those of these roles that the request names."""
        return [name for name in names if self.request.get(name)]
