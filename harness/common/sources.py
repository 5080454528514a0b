"""The code that a result depends on: a digest of all modules that its code imports, found without running them.

Imports are followed in the modules' syntax trees.

- Imports inside functions and in a package's `__init__` are followed; imports under `if TYPE_CHECKING` are not.
- A string that is a module's name (`"methods.knnlm.scorer"` or `"methods.knnlm.scorer:KnnLm"`) counts as an import,
  because modules are imported by such names.
- Only modules of `harness`, `methods`, `tasks` and the top packages of the given modules (a plug-in's) are followed.
  Keys contain the versions of libraries.

A module is hashed by its syntax tree without docstrings: comments, docstrings and layout may change without effect. The
form of the tree depends on Python, so another minor version gives other digests.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

from harness.common.errors import RequestError

# Modules of the harness that builders import and that cannot change what is built: they store, name, report
# or refuse. Parameters, data and seeds that pass through them are in an artifact's key.
# `harness.common.training` is not one of them.
FRAME = frozenset(
    {
        "harness.contracts",
        "harness.plan.registry",
        *(
            f"harness.common.{name}"
            for name in ("cache", "checkpoints", "cores", "errors", "files", "memory", "parts", "phases", "progress")
        ),
        "harness.common.sources",
    }
)
ROOT = Path(__file__).resolve().parents[2]  # of the checkout
SOURCES = ("harness", "methods", "tasks")
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+(?=(?::\w+)?\Z)")


def digest(*targets: str, leaving: frozenset[str] = frozenset()) -> str:
    """SHA-256 (20 hex digits) of the code that the modules of `targets` (`package.module` or `package.module:Object`)
    run, as `closure` has it. Raises `RequestError` when one of them has no source file or a source cannot be
    parsed."""
    return _digest(closure(*targets, leaving=leaving))


def built_by(builder: Callable[..., Any] | type) -> str:
    """`digest` for what a function or class builds. It covers the modules that define the builder and what it may call,
    without `FRAME`: an index or trained model stays valid when the harness changes how it stores and reports.

    What it may call: the functions that it closes over and, if it is a method or defined inside one, the class of
    `self`, which may override functions. Data and models that it closes over are in keys by their hashes. A method that
    builds through another family's functions shares its artifacts, as RetoMaton does with kNN-LM.
    """
    return _digest(closure(*sorted(_defining(builder)), leaving=FRAME))


def _defining(builder: Any) -> set[str]:
    """Names of the modules that define a builder and what it may call."""
    if isinstance(builder, partial):
        return _defining(builder.func)
    if isinstance(builder, MethodType):
        return _defining(builder.__func__) | _defining(type(builder.__self__))
    module: str = builder.__module__
    if module == "__main__":  # `python -m package.module`: the same code as when it is imported
        module = getattr(sys.modules[module].__spec__, "name", module)
    found = {module}
    if isinstance(builder, FunctionType):
        for name, cell in zip(builder.__code__.co_freevars, builder.__closure__ or (), strict=True):
            if name == "self":
                found |= _defining(type(cell.cell_contents))
            elif isinstance(cell.cell_contents, FunctionType) and cell.cell_contents is not builder:
                found |= _defining(cell.cell_contents)
    return found


def closure(*targets: str, leaving: frozenset[str] = frozenset()) -> dict[str, Path]:
    """Module name -> source file, of `targets` and all modules that they import. Left out are the modules and packages
    of `leaving`, what only these import, and modules without a statement. Raises as `digest` does."""
    roots = [target.partition(":")[0] for target in targets]
    search = _Search({*SOURCES, *(root.partition(".")[0] for root in roots)})
    found: dict[str, Path] = {}
    waiting: list[str] = []

    def take(modules: dict[str, Path]) -> None:
        for name, file in modules.items():
            if name not in found and not _within(name, leaving) and not _read(name, file).empty:
                found[name] = file
                waiting.append(name)

    for root in roots:
        take(search.root(root))
    while waiting:
        name = waiting.pop()
        for imported in _read(name, found[name]).imports:
            take(search.modules(imported))
    return found


def _within(name: str, places: frozenset[str]) -> bool:
    return any(f"{name}.".startswith(f"{place}.") for place in places)


def _digest(modules: dict[str, Path]) -> str:
    state = hashlib.sha256()
    for name, file in sorted(modules.items()):
        state.update(f"{name} {_read(name, file).tree}\n".encode())
    return state.hexdigest()[:20]


@dataclass(frozen=True, slots=True)
class _Source:
    """Hash of a module's syntax tree, and the names that it imports: modules, or objects in them."""

    tree: str
    empty: bool  # no statement: the `__init__` of most packages
    imports: tuple[str, ...]


_known: dict[tuple[str, Path], tuple[tuple[int, int], _Source]] = {}  # with the file's modification time and size


def _read(name: str, file: Path) -> _Source:
    status = file.stat()
    stamp = status.st_mtime_ns, status.st_size
    known = _known.get((name, file))
    if known is None or known[0] != stamp:
        try:
            tree = ast.parse(file.read_bytes(), str(file))
        except (SyntaxError, ValueError) as error:  # ValueError: a null byte
            raise RequestError(f"{file}:{getattr(error, 'lineno', None) or 1}: {error}; fix it") from error
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        _drop_strings(tree)
        hashed = hashlib.sha256(ast.dump(tree).encode()).hexdigest()
        source = _Source(hashed, not tree.body, tuple(sorted(_imports(tree, package))))
        known = _known[name, file] = stamp, source
    return known[1]


def _drop_strings(tree: ast.Module) -> None:
    """Remove statements that are only a string: docstrings, also those of attributes."""
    for node in ast.walk(tree):
        for part in ("body", "orelse", "finalbody"):
            statements = getattr(node, part, None)
            if isinstance(statements, list):
                setattr(node, part, [s for s in statements if not (isinstance(s, ast.Expr) and _text(s.value))])


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _imports(node: ast.AST, package: str) -> set[str]:
    """Absolute names that a module of `package` imports; `from a import b` gives `a` and `a.b`."""
    found: set[str] = set()
    for part in _executed(node):
        if isinstance(part, ast.Import):
            found.update(alias.name for alias in part.names)
        elif isinstance(part, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - part.level + 1] if part.level else []
            base = ".".join([*above, *([part.module] if part.module else [])])
            found.update([base, *(f"{base}.{alias.name}" for alias in part.names)])
        elif isinstance(part, ast.expr) and (named := _MODULE.match(_text(part))):
            found.add(named[0])
    return found


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """A tree's nodes without those under `if TYPE_CHECKING`."""
    yield node
    hidden: Sequence[ast.AST] = ()
    if isinstance(node, ast.If) and "TYPE_CHECKING" in (getattr(node.test, "id", ""), getattr(node.test, "attr", "")):
        hidden = node.body
    for child in ast.iter_child_nodes(node):
        if child not in hidden:
            yield from _executed(child)


@dataclass(slots=True)
class _Search:
    """Finds the files of modules in some top packages as an import would, without importing."""

    packages: set[str]
    _places: dict[str, tuple[Path | None, list[Path]]] = field(default_factory=dict)  # file, folders of submodules

    def root(self, name: str) -> dict[str, Path]:
        """`modules` of a name that must be a module's. A module loaded from a file counts wherever the file is."""
        found = self.modules(name)
        if name not in found:
            loaded = getattr(sys.modules.get(name), "__file__", None)
            if loaded is None:
                raise RequestError(f"no source found for {name}: put the code into a file that can be imported")
            found[name] = Path(loaded)
        return found

    def modules(self, name: str) -> dict[str, Path]:
        """The module of a name, or the module that defines it, with its parent packages, by name."""
        parts = name.split(".")
        if parts[0] not in self.packages:
            return {}
        found = {}
        for length in range(1, len(parts) + 1):
            module = ".".join(parts[:length])
            if module not in self._places:
                self._places[module] = self._place(module)
            file, folders = self._places[module]
            if file is not None:
                found[module] = file
            if not folders:
                break
        return found

    def _place(self, module: str) -> tuple[Path | None, list[Path]]:
        above, _, last = module.rpartition(".")
        if not above:
            return _top(module)
        for folder in self._places[above][1]:
            place = folder / last
            if (place / "__init__.py").is_file():
                return place / "__init__.py", [place]
            if place.with_suffix(".py").is_file():
                return place.with_suffix(".py"), []
            if place.is_dir():
                return None, [place]
        return None, []


def _top(name: str) -> tuple[Path | None, list[Path]]:
    """File and folders of a top-level package or module, found without executing anything."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # ValueError: a module made by hand or run as a script
        spec = None
    if spec is None:
        return None, []
    file = Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None
    return file, [Path(folder) for folder in spec.submodule_search_locations or ()]
