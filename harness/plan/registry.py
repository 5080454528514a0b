"""Name -> method, task, analysis, command or recipe. An object is imported only when it is resolved.

A name is declared where it is implemented, by one decorator with literal arguments:

    @method("knnlm", contract="token-scoring", needs=("reference-text",), summary="...")
    class KnnLm(TokenScoring): ...

The registry reads the decorators from source text (ast, nothing is executed), so listing takes milliseconds and no
torch. A decorator counts under its own name; under another, or in a notebook or test, once it runs. What is declared is
a class, and its parameters are its fields: the decorator makes it a dataclass that checks them. An analysis may be a
function of setting, artifacts and progress whose parameters are keyword-only.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal, TypeVar, dataclass_transform

from harness.common.errors import HarnessError, RequestError, place, unknown
from harness.contracts.analyses import is_timed
from harness.contracts.methods import CONTRACTS, NEEDS
from harness.plan.parameters import as_class, declared, validated

Kind = Literal["method", "task", "analysis", "command"]
KINDS: tuple[Kind, ...] = ("method", "task", "analysis", "command")
PLUGINS = "shortcut_harness.plugins"
PACKAGES = ("methods", "tasks")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry:
    """One declared name. `contract`, `needs` (methods) and `provides` (tasks) determine the pairs that run.

    The words of `needs` and `provides` are `NEEDS`. Raises `RequestError` for an unknown word or contract, with the
    nearest.
    """

    kind: Kind
    name: str
    target: str  # "module:Object"
    summary: str = ""
    contract: str = ""
    needs: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    baseline: str = ""  # the method with the exact answers, to compare this one with
    variants: tuple[str, ...] = ()  # parameters whose values are chosen like methods

    def __post_init__(self) -> None:
        if self.kind in ("method", "task") and self.contract not in CONTRACTS:
            raise unknown("contract", self.contract, CONTRACTS, f"{self.kind} {self.name}")
        given: dict[str, Any] = {"needs": self.needs, "provides": self.provides, "variants": self.variants}
        for argument, words in given.items():
            if isinstance(words, str):
                raise TypeError(f"{argument} is a tuple: ({words!r},)")
        for argument in ("needs", "provides"):
            for word in given[argument]:
                if word not in NEEDS:
                    raise unknown("word", word, NEEDS, f"`{argument}` of {self.kind} {self.name}")


_declared_at_run_time: dict[tuple[Kind, str], tuple[Entry, Any]] = {}


def _declare(kind: Kind, name: str, details: Mapping[str, Any], target: Any) -> Any:
    if kind == "analysis" and not isinstance(target, type):
        target = as_class(target)
    if kind != "command":
        target = validated(target, f"{kind} {name}")
    path = f"{target.__module__}:{target.__qualname__}"
    _declared_at_run_time[kind, name] = (Entry(kind, name, path, **details), target)
    return target


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def method(name: str, **details: Any) -> Callable[[T], T]:
    """Declares a class as a method. Its annotated attributes are its parameters, validated for every instance
    (`harness.plan.parameters`). `__post_init__` sets up the rest of an instance. details: as in `Entry`."""
    return partial(_declare, "method", name, details)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def task(name: str, **details: Any) -> Callable[[T], T]:
    """Declares a class as a task, as `method` does."""
    return partial(_declare, "task", name, details)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def analysis(name: str, **details: Any) -> Callable[[T], T]:
    """Declares a class as an analysis, as `method` does. A function becomes such a class."""
    return partial(_declare, "analysis", name, details)


def command(name: str, **details: Any) -> Callable[[T], T]:
    """Declares a function that returns a Typer application as a sub-command."""
    return partial(_declare, "command", name, details)


class Registry:
    """All names visible to this process. Build a fresh one after installing a plug-in."""

    @cached_property
    def entries(self) -> dict[tuple[Kind, str], Entry]:
        """(kind, name) -> entry. Raises `RequestError` for an error in the built-in packages.

        A plug-in with an error is left out as a whole, with a warning. Errors are a missing package, a syntax error, a
        decorator that cannot be read, and a name that is taken.
        """
        found: dict[tuple[Kind, str], Entry] = {}
        for package in self.packages:
            try:
                found |= _declared_in(package, found)
            except Exception as error:
                if package in PACKAGES:
                    raise
                warnings.warn(f"plug-in {package!r} ignored: {error}", stacklevel=2)
        for key, (entry, _) in _declared_at_run_time.items():
            found.setdefault(key, entry)
        return found

    def names(self, kind: Kind) -> list[str]:
        return sorted(name for k, name in self.entries if k == kind)

    def entry(self, kind: Kind, name: str, where: str = "") -> Entry:
        """The entry of a name. Raises `RequestError` with the nearest valid name. where: the place that names it."""
        if (kind, name) not in self.entries:
            if (kind, name) in _declared_at_run_time:
                return _declared_at_run_time[kind, name][0]
            raise unknown(kind, name, self.names(kind), where)
        return self.entries[kind, name]

    def resolve(self, kind: Kind, name: str) -> Any:
        """Import and return the object of a name. Raises `RequestError` if it cannot be imported or does not match its
        decorator."""
        entry = self.entry(kind, name)
        live = _declared_at_run_time.get((kind, name))
        found = live[1] if live and live[0].target == entry.target else _imported(entry)
        actual = getattr(found, "contract", None)
        if kind == "method" and actual != entry.contract:
            raise RequestError(f"{entry.target} is declared as {entry.contract} but its base class is {actual}")
        if missing := getattr(found, "__abstractmethods__", None):
            raise RequestError(f"{entry.target} must define {', '.join(sorted(missing))}, as its base class says")
        if kind == "analysis" and not is_timed(found) and not any("__call__" in vars(c) for c in found.__mro__):
            raise RequestError(f"the analysis {name!r} cannot be called: give {entry.target} a method `__call__`")
        return found

    @cached_property
    def packages(self) -> list[str]:
        """Packages whose decorators are read: the two built-in ones, every installed plug-in, and those in
        `$HARNESS_PLUGINS`, separated by commas. The variable is for plug-ins that are not installed."""
        named = [p.strip() for p in os.environ.get("HARNESS_PLUGINS", "").split(",") if p.strip()]
        installed = [point.value for point in entry_points(group=PLUGINS)]
        return list(dict.fromkeys([*PACKAGES, *installed, *named]))


def label(thing: Any) -> str:
    """Name of a class or instance in messages: `method l2s`, or the name of its class if that is not declared."""
    owner = thing if isinstance(thing, type) else type(thing)
    return str(vars(owner).get("__declared_as__", owner.__name__))


def _imported(entry: Entry) -> Any:
    module, _, attribute = entry.target.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise RequestError(
            f"the {entry.kind} {entry.name!r} cannot be imported from {module}: {error} ({place(error, [module])})"
        ) from error


def _declared_in(package: str, taken: Mapping[tuple[Kind, str], Entry]) -> dict[tuple[Kind, str], Entry]:
    """The entries of one package. Raises `RequestError` if a name is taken by another package or twice in this one."""
    found: dict[tuple[Kind, str], Entry] = {}
    for module, file in _sources(package):
        for entry in _declarations(module, file, file.stat().st_mtime_ns):
            key = entry.kind, entry.name
            other = taken.get(key) or found.setdefault(key, entry)
            if other.target != entry.target:
                raise RequestError(
                    f"two objects are called {entry.kind} {entry.name!r}: {other.target} and {entry.target}; rename one"
                )
    return found


def construct(target: Any, parameters: Mapping[str, Any]) -> Any:
    """An instance of a declared class from parameters by public name (`lambda` reaches the field `lambda_`).

    Raises `RequestError` with the unknown or wrong parameter, or with the line at which `__post_init__` fails.
    """
    for name in parameters:
        if name not in (known := declared(target)):
            raise unknown("parameter", name, known, label(target))
    try:
        return target(**parameters)
    except HarnessError:
        raise
    except Exception as error:
        wrong = f"{type(error).__name__}: {error} ({place(error, [target.__module__])})"
        raise RequestError(f"{target.__qualname__} cannot be made with {dict(parameters)}: {wrong}") from error


def refusal(method_entry: Entry, task_entry: Entry) -> str | None:
    """Why this method does not run on this task; None if it does."""
    if method_entry.contract != task_entry.contract:
        return (
            f"{method_entry.name} is a {method_entry.contract} method, {task_entry.name} a {task_entry.contract} task"
        )
    missing = [need for need in method_entry.needs if need not in task_entry.provides]
    if missing:
        return f"{method_entry.name} needs {', '.join(missing)}, which {task_entry.name} does not provide"
    return None


def _sources(package: str) -> Iterator[tuple[str, Path]]:
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise RequestError(f"no package named {package!r} can be found: install it, or add its parent to PYTHONPATH")
    if not spec.submodule_search_locations:
        raise RequestError(f"{package!r} is a single file: put {spec.origin} into a folder, the package, and name that")
    for root in spec.submodule_search_locations:
        for file in sorted(Path(root).rglob("*.py")):
            parts = file.relative_to(root).with_suffix("").parts
            yield ".".join([package, *(p for p in parts if p != "__init__")]), file


@cache
def _declarations(module: str, file: Path, changed: int) -> Sequence[Entry]:
    """The entries of one module. changed: the file's modification time, part of the cache's key."""
    text = file.read_text(encoding="utf-8")
    if "registry" not in text:  # it does not import from `harness.plan.registry`
        return ()
    try:
        tree = ast.parse(text, str(file))
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte
        raise RequestError(f"{file}:{getattr(error, 'lineno', 1)}: {error}") from error
    imported: set[str] = set()
    found: list[Entry] = []
    for node in _statements(tree):
        if isinstance(node, ast.ImportFrom) and node.module == __name__:
            imported |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            for decorator in node.decorator_list:
                name = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
                if name in imported and name in KINDS:
                    found.append(_entry(name, decorator, f"{module}:{node.name}", file))
    return found


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Statements of a module, including those under `if`, `try` and `with`, without those in functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.expr):
            yield from _statements(child)


def _entry(kind: Kind, decorator: ast.expr, target: str, file: Path) -> Entry:
    """The entry of a decorator. Raises `RequestError` if its arguments are not literals."""
    where = f"{file}:{decorator.lineno}"
    try:
        if not isinstance(decorator, ast.Call) or not decorator.args:
            raise TypeError("its first argument is missing, the name")
        name = ast.literal_eval(decorator.args[0])
        if not isinstance(name, str):
            raise TypeError(f"{name!r} is not a name")
        return Entry(kind, name, target, **{k.arg: ast.literal_eval(k.value) for k in decorator.keywords if k.arg})
    except RequestError as error:
        raise RequestError(f"{where}: {error}") from error
    except (ValueError, TypeError) as error:
        allowed = ", ".join(list(inspect.signature(Entry).parameters)[3:])
        raise RequestError(f"{where}: @{kind} takes a name and literal keywords ({allowed}): {error}") from error
