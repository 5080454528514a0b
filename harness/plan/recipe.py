"""Recipes: one per table or figure of a paper, a YAML file (keys: `harness.plan.schema`).

`claims` and `targets` may be in NAME.claims.yaml next to NAME.yaml, the changes of one scale in NAME.SCALE.yaml. `base:
OTHER` names another recipe; keys that this one leaves out are taken from it, apart from `OWN`. `harness.plan.expansion`
expands a recipe at a scale.
"""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from harness.common.errors import RequestError, unknown
from harness.contracts.tasks import SCALES
from harness.plan.parameters import refused
from harness.plan.registry import Registry
from harness.plan.schema import UNKNOWN, Judged, Recipe, ScaleSpec

M = TypeVar("M", bound=BaseModel)

OWN = ("name", "title", "source", "published", "headline", "first_run", "claims", "targets")  # never inherited
WHOLE = ("figure", "fidelity")  # never merged with those of a base
# PART of a file NAME.PART.yaml next to NAME.yaml -> type of its content.
PARTS: dict[str, type[BaseModel]] = {"claims": Judged, **dict.fromkeys(SCALES, ScaleSpec)}


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the former is ten times as fast
    """YAML in which a key that is written twice or merged (`<<`) over another is an error."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        known: dict[str, yaml.Mark] = {}
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            mark = known.setdefault(key.value, key.start_mark)
            if mark is not key.start_mark:
                problem = f"{key.value!r} is given twice, here or by a merge (<<); a merge may only add keys"
                last = max(mark, key.start_mark, key=lambda one: one.line)
                raise yaml.constructor.ConstructorError(None, None, problem, last)


def parse(text: str, where: str) -> Recipe:
    """A recipe from YAML text. Raises `RequestError` with the file, the place and the mistake."""
    return checked(Recipe, _mapping(Recipe, text, where), where)


def _mapping(model: type[BaseModel], text: str, where: str) -> dict[str, Any]:
    try:
        raw = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line, problem = (mark.line + 1 if mark else 1), getattr(error, "problem", None) or error
        raise RequestError(f"{where} line {line}: {' '.join(str(problem).split())}") from None
    if not isinstance(raw, dict):
        keys = "name, task and cells" if model is Recipe else " or ".join(model.model_fields)
        raise RequestError(f"{where}: a mapping with {keys} is expected")
    return raw


def checked(model: type[M], raw: dict[str, Any], where: str) -> M:
    """A model from a mapping. Raises `RequestError` with the place of the mistake, and the nearest valid key."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = min(error.errors(), key=lambda e: e["type"] != UNKNOWN)  # a typo explains what is missing
        place = [str(part) for part in first["loc"] if part != "[key]"]
        if first["type"] != UNKNOWN:
            raise RequestError(refused(f"{where} at {'.'.join(place)}", error, len(first["loc"]))) from None
        key, keys = first["ctx"]["key"], first["ctx"]["keys"]
        raise unknown("key", key, keys, f"{where} at {'.'.join([*place, key])}") from None


def files(registry: Registry) -> dict[str, Path]:
    """Recipe name -> file, by file stem: the harness's own, and those in the folder `recipes` of every package of the
    registry. Raises `RequestError` if two files have one name, or if a file NAME.PART.yaml has no NAME.yaml next to
    it."""
    found: dict[str, Path] = {}
    places = [Path(__file__).parent]
    for package in registry.packages:
        with suppress(ImportError, ValueError):  # a broken plug-in: the registry has warned
            spec = find_spec(package)
            places += map(Path, (spec.submodule_search_locations if spec else None) or ())
    for folder in (place / "recipes" for place in places):
        for file in sorted(folder.glob("*.yaml")):
            name, _, part = file.stem.rpartition(".")
            if name and part in PARTS:
                if not (folder / f"{name}.yaml").exists():
                    raise RequestError(f"{file} belongs to a recipe {name}.yaml, which is not next to it")
                continue
            other = found.setdefault(file.stem, file)
            if other != file:
                raise RequestError(f"two recipes are called {file.stem!r}: {other} and {file}; rename one")
    return found


def load(name: str, registry: Registry) -> Recipe:
    """The recipe of this name, or of the YAML file at this path, with its files NAME.PART.yaml, over its base. If it
    gives `cells`, none of the base's cells are used, at any scale.

    Raises `RequestError` for an unknown name, a file that cannot be read, a name that is not the file's, a key in two
    of its files, and a base that has a base or another task.
    """
    path = _file(name, registry)
    raw = _whole(path)
    if "base" in raw:
        raw = _over(_base(raw.pop("base"), path, raw, registry), raw)
    recipe = checked(Recipe, raw, str(path))
    if recipe.name != path.stem:
        raise RequestError(f"{path}: the recipe's name {recipe.name!r} is not its file's")
    return recipe


def _base(name: Any, path: Path, own: dict[str, Any], registry: Registry) -> dict[str, Any]:
    """What a recipe, with its own keys and the file at a path, takes from the base of this name."""
    if not isinstance(name, str) or not name:
        raise RequestError(f"{path} at base should be the name of a recipe (given: {name!r})")
    is_file = name.endswith((".yaml", ".yml"))  # relative to the file that names it
    file = _file(str(path.parent / name) if is_file else name, registry, str(path))
    raw = _whole(file)
    if "base" in raw:
        raise RequestError(f"{path}: the base {name} has a base itself, {raw['base']}: name one without")
    task = checked(Recipe, raw, str(file)).task.name
    given = own.get("task")
    if isinstance(given, dict) and given.get("name", task) != task:
        raise RequestError(f"{path}: its task is {given['name']} and that of its base {name} is {task}")
    for scale in raw.get("scales", {}).values() if "cells" in own else ():
        scale.pop("cells", None)
    return {key: value for key, value in raw.items() if key not in OWN}


def _file(name: str, registry: Registry, where: str = "") -> Path:
    path = Path(name) if name.endswith((".yaml", ".yml")) else files(registry).get(name)
    if path is None:
        raise unknown("recipe", name, files(registry), where)
    if not path.exists():
        raise RequestError(f"no recipe file at {path}")
    return path


def _whole(path: Path) -> dict[str, Any]:
    """The content of a recipe's file and of those named NAME.PART.yaml next to it."""
    raw = _read(Recipe, path)
    for part, model in PARTS.items():
        file = path.with_suffix(f".{part}.yaml")
        if file.exists():
            checked(model, new := _read(model, file), str(file))
            place = raw.setdefault("scales", {}) if part in SCALES else raw
            new = {part: new} if part in SCALES else new
            if not isinstance(place, dict):
                continue  # what is wrong with it is said when the whole is checked
            for key in new.keys() & place.keys():
                raise RequestError(f"{file}: {path.name} gives {key!r} too; keep one of them")
            place |= new
    return raw


def _over(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """A base with a recipe's own keys: mappings are merged, anything else is replaced, and so are `WHOLE`, a named
    fidelity, and a mapping by an empty one."""
    both = [key for key, value in own.items() if value and isinstance(value, dict) and isinstance(base.get(key), dict)]
    merged = {key: _over(base[key], own[key]) for key in both if key not in (*WHOLE, "fidelities")}
    named = {key: {**base[key], **own[key]} for key in both if key == "fidelities"}
    return {**base, **own, **merged, **named}


def _read(model: type[BaseModel], path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read the recipe {path}: {' '.join(str(error).split())}") from None
    return _mapping(model, text, str(path))
