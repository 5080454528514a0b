"""Parameters of methods and tasks: read from `__init__`, validated by type, unknown keys refused with a suggestion.

A range is part of the type, `k: Annotated[int, Field(ge=1)] = 1024` with pydantic's `Field`, so all errors have the
same form: "parameter 'k' of method knnlm should be at least 1 (given: 0)". Floats are finite.

A parameter named after a Python keyword ends in an underscore in code (`lambda_`) and loses it everywhere else.
"""

from __future__ import annotations

import dataclasses
import inspect
import keyword
import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import yaml
from pydantic import ConfigDict, ValidationError, create_model

from harness.common.errors import RequestError, unknown
from harness.plan.registry import Kind, Registry, construct, private


def public(name: str) -> str:
    """`lambda_` -> `lambda`; other names unchanged."""
    return name[:-1] if name.endswith("_") and keyword.iskeyword(name[:-1]) else name


def _callable(target: Any) -> Callable[..., Any]:
    return target.__init__ if isinstance(target, type) else target  # type: ignore[misc,no-any-return]


def declared(target: Any) -> dict[str, inspect.Parameter]:
    """Keyword-only parameters of a class's `__init__` or of an analysis that is a function, by public name.

    Raises `RequestError` for a parameter that is positional, apart from `self` and an analysis's three arguments.
    """
    every = list(inspect.signature(_callable(target)).parameters.values())
    for parameter in every[1 if isinstance(target, type) else 3 :]:
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
            remedy = "give its dataclass kw_only=True" if _generated(target) is not object else "write `*, ` before it"
            raise RequestError(f"parameter {parameter.name!r} of {target.__qualname__} is positional: {remedy}")
    made = {
        field.name: field.default_factory
        for field in (dataclasses.fields(target) if dataclasses.is_dataclass(target) else ())
        if field.default_factory is not dataclasses.MISSING
    }
    named = [p.replace(default=made[p.name]()) if p.name in made else p for p in every]
    return {public(p.name): p for p in named if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _generated(target: Any) -> type:
    """The dataclass that a class's `__init__` was generated for; `object` where somebody wrote it."""
    owner = next(c for c in target.__mro__ if "__init__" in vars(c)) if isinstance(target, type) else object
    written = "__dataclass_params__" not in vars(owner) or not vars(owner)["__dataclass_params__"].init
    return object if written else owner


def _types(target: Any, names: Collection[str]) -> dict[str, Any]:
    """Types of these parameters, by the name in code. Each is read where it is annotated, as a dataclass may inherit it
    from another module; what else is annotated there (a `ClassVar`, say) may be known to type checkers only.
    """
    bases: list[Any] = list(reversed(_generated(target).__mro__[:-1]))
    owners = {n: owner for owner in (_callable(target), *bases) for n in inspect.get_annotations(owner) if n in names}
    found: dict[str, Any] = {}
    for name, owner in owners.items():
        place = inspect.unwrap(owner)
        module = place.__globals__ if inspect.isfunction(place) else vars(sys.modules[place.__module__])
        alone = types.SimpleNamespace(__annotations__={name: inspect.get_annotations(owner)[name]})
        found |= typing.get_type_hints(alone, {**vars(place), **module}, include_extras=True)
    return found


def _nullable(hint: Any) -> bool:
    """Whether null is a value of a type."""
    parts = typing.get_args(hint)
    return _nullable(parts[0]) if typing.get_origin(hint) is typing.Annotated else type(None) in parts


def validate(target: Any, given: Mapping[str, Any], what: str) -> dict[str, Any]:
    """All parameters of `target` with `given` ones checked and defaults filled in, by public name.

    Raises `RequestError` naming the parameter, the value and what it should be, or the nearest known name.
    """
    known = declared(target)
    for name in given:
        if name not in known:
            raise unknown("parameter", name, known, what)
    hints = _types(target, {p.name for p in known.values()})
    fields: dict[str, Any] = {
        p.name: (hints.get(p.name, Any), ... if p.default is inspect.Parameter.empty else p.default)
        for p in known.values()
    }
    model = create_model(
        "Parameters",
        __config__=ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True, allow_inf_nan=False),
        **fields,
    )
    try:
        checked = model(**{private(n): v for n, v in given.items()})
    except ValidationError as error:
        code_name = str(error.errors()[0]["loc"][0])
        subject = f"parameter {public(code_name)!r} of {what}"
        raise RequestError(refused(subject, error, 1, _nullable(hints.get(code_name)))) from None
    return {public(n): getattr(checked, n) for n in fields}


PHRASES = {
    "greater than or equal to": "at least", "less than or equal to": "at most", "greater than": "above",
    "less than": "below", "a valid boolean": "true or false", "a valid integer": "an integer", "a valid ": "a ",
}  # fmt: skip


def refused(subject: str, error: ValidationError, depth: int, nullable: bool = False) -> str:
    """A sentence that says what the first refused value should be and what it is.

    subject: what the first `depth` parts of the value's place are called. The alternatives of a union are joined by
    "or"; nullable: null is one of them.
    """
    first, *others = error.errors()
    alternatives = [first, *(other for other in others if other["loc"][:depth] == first["loc"][:depth])]
    inner = [str(part) for part in first["loc"][depth:] if isinstance(part, int)]
    subject = f"item {'.'.join(inner)} of {subject}" if inner else subject
    if first["type"] == "missing":
        return f"{subject} is missing: give it a value"
    if not first["msg"].startswith(expected := "Input should be "):
        return f"{subject}: {first['msg'].removeprefix('Value error, ')}"
    wanted = [re.sub(", (got|unable) .*", "", one["msg"].removeprefix(expected)) for one in alternatives]
    for theirs, ours in PHRASES.items():
        wanted = [text.replace(theirs, ours) for text in wanted]
    return (
        f"{subject} should be {' or '.join(dict.fromkeys([*wanted, *['null'] * nullable]))} (given: {first['input']!r})"
    )


def instantiate(kind: Kind, name: str, given: Mapping[str, Any], registry: Registry) -> Any:
    """The method or task of this name, made with validated parameters."""
    target = registry.resolve(kind, name)
    parameters = validate(target, given, f"{kind} {name}")
    return construct(target, parameters)


def parse_overrides(settings: Sequence[str]) -> dict[str, Any]:
    """`["method.tau=8", "task.model=gpt2"]` -> {"method.tau": 8, "task.model": "gpt2"}; values are YAML scalars.

    Raises `RequestError` for anything that is not `group.name=value`.
    """
    result: dict[str, Any] = {}
    for text in settings:
        path, equals, value = text.partition("=")
        group, _, name = path.partition(".")
        if not equals or group not in ("method", "task", "timing") or not name:
            raise RequestError(
                f"--set {text!r} is not of the form method.NAME=VALUE, task.NAME=VALUE or timing.NAME=VALUE"
            )
        try:
            result[path.strip()] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise RequestError(
                f"--set {text!r}: {value!r} is not a YAML value: {' '.join(str(error).split())}"
            ) from None
    return result


def group(overrides: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The overrides of one group, without the prefix: `group({"method.k": 8}, "method") -> {"k": 8}`."""
    return {path.partition(".")[2]: value for path, value in overrides.items() if path.partition(".")[0] == name}
