"""Parameters of methods, tasks and analyses: fields of their classes, validated by type for every instance.

A range is part of the type, `k: Annotated[int, Field(ge=1)] = 1024` with pydantic's `Field`, so all errors have the
same form: "parameter 'k' of method knnlm should be at least 1 (given: 0)". Floats are finite.

A parameter whose name is a Python keyword ends in an underscore in code (`lambda_`), but not anywhere else.
"""

from __future__ import annotations

import dataclasses
import inspect
import keyword
import re
import types
import typing
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import yaml
from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass

from harness.common.errors import RequestError, unknown

C = TypeVar("C", bound=type)


def public(name: str) -> str:
    """`lambda_` -> `lambda`; other names unchanged."""
    return name[:-1] if name.endswith("_") and keyword.iskeyword(name[:-1]) else name


def declared(target: Any) -> list[str]:
    """The parameters of a declared class, by public name."""
    return [public(field.name) for field in dataclasses.fields(target)]


def values(made: Any) -> dict[str, Any]:
    """The parameters of an instance with their values, by public name."""
    return {public(field.name): getattr(made, field.name) for field in dataclasses.fields(made)}


def validated(target: C, what: str) -> C:
    """The class as a dataclass with keyword-only fields. All fields, inherited ones too, are validated by type.

    what: its name in messages (`method knnlm`). Creating an instance raises `RequestError` for a wrong value, with the
    parameter and what it should be, and for an unknown name, with the nearest known one. Raises `TypeError` for a class
    with an `__init__`.
    """
    if "__pydantic_fields__" in vars(target):
        return target
    for base in target.__mro__[:-1]:
        if "__init__" in vars(base) and not dataclasses.is_dataclass(base):
            raise TypeError(f"parameters are fields of a class: replace {base.__qualname__}.__init__ by __post_init__")
    config = ConfigDict(
        strict=True, extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False, alias_generator=public,
        populate_by_name=True,
    )  # fmt: skip
    made: Any = dataclass(target, kw_only=True, eq=False, config=config)
    checked = made.__init__

    def __init__(self: Any, *args: Any, **given: Any) -> None:  # noqa: N807
        try:
            checked(self, *args, **given)
        except ValidationError as error:
            raise _refusal(made, error, what) from None

    made.__init__, made.__declared_as__ = __init__, what
    return typing.cast(C, made)


def as_class(function: Any) -> type:
    """An analysis that is a function, as a class. The function's keyword-only parameters are the fields. An instance is
    called with the other parameters."""

    def __call__(self: Any, *given: Any) -> Any:  # noqa: N807
        return function(*given, **vars(self))

    named = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    body = {name: getattr(function, name) for name in ("__module__", "__qualname__", "__doc__")}
    body |= {p.name: p.default for p in named if p.default is not p.empty}
    annotations = {p.name: Any if p.annotation is p.empty else p.annotation for p in named}
    return type(function.__name__, (), {**body, "__annotations__": annotations, "__call__": __call__})


def _refusal(target: Any, error: ValidationError, what: str) -> Exception:
    first = error.errors()[0]
    if not first["loc"]:  # raised by `__post_init__`
        return typing.cast(Exception, first["ctx"]["error"])
    name = public(str(first["loc"][0]))
    if first["type"] == "unexpected_keyword_argument":
        return unknown("parameter", name, declared(target), what)
    nullable = type(None) in typing.get_args(_types(target).get(name))
    return RequestError(refused(f"parameter {name!r} of {what}", error, 1, nullable))


PHRASES = {
    "greater than or equal to": "at least", "less than or equal to": "at most", "greater than": "above",
    "less than": "below", "a valid boolean": "true or false", "a valid integer": "an integer", "a valid ": "a ",
}  # fmt: skip


def refused(subject: str, error: ValidationError, depth: int, nullable: bool = False) -> str:
    """A sentence that says what the first refused value should be and what it is.

    subject: name of the first `depth` parts of the value's location. nullable: whether null is allowed, too. The
    alternatives of a union are joined by "or".
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


def parse_overrides(settings: Sequence[str]) -> dict[str, str]:
    """`["method.tau=8", "task.model=gpt2"]` -> {"method.tau": "8", "task.model": "gpt2"}.

    Blanks around `=` are left out if there is one before it. Raises `RequestError` for anything that is not
    `group.name=value`.
    """
    result: dict[str, str] = {}
    for text in settings:
        path, equals, value = text.partition("=")
        group, _, name = path.partition(".")
        if not equals or group not in ("method", "task", "timing") or not name:
            raise RequestError(
                f"--set {text!r} is not of the form method.NAME=VALUE, task.NAME=VALUE or timing.NAME=VALUE"
            )
        result[path.strip()] = value.strip() if path[-1].isspace() else value
    return result


def typed(target: Any, given: Mapping[str, str]) -> dict[str, Any]:
    """Overrides of a declared class as values, read as their parameters are declared.

    Text is what was typed, where YAML would see a number, a date or a comment; if it may be null, nothing, `~` and
    `null` are null. A number is read as Python reads it (`1e-2` is text in YAML, and `010` is 8). Any other value is
    YAML. Raises `RequestError` for text that is not YAML.
    """
    types_of, result = _types(target), dict[str, Any]()
    for name, text in given.items():
        kinds = _members(types_of[name])
        if text in ("", "~", "null") and type(None) in kinds:
            result[name] = None
        elif kinds <= {str, type(None)}:
            result[name] = text
        else:
            number = _number(text, kinds)
            result[name] = from_yaml(name, text) if number is None else number
    return result


def _members(declared: Any) -> set[Any]:
    """The types of a parameter's values: the members of a union, and those of a literal's values."""
    origin, parts = typing.get_origin(declared), typing.get_args(declared)
    if origin is typing.Literal:
        return {type(value) for value in parts}
    if origin in (typing.Union, types.UnionType):
        return {kind for part in parts for kind in _members(part)}
    return _members(parts[0]) if origin is typing.Annotated else {declared}


def _number(text: str, kinds: set[Any]) -> float | None:
    """The number that a text is, of the first kind that reads it; None: it is none."""
    for kind in (int, float):
        with suppress(ValueError):
            if kind in kinds:
                return kind(text)
    return None


def from_yaml(name: str, text: str) -> Any:
    """The value of an override. Raises `RequestError` for text that is not YAML."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RequestError(f"--set {name}: {text!r} is not a YAML value: {' '.join(str(error).split())}") from None


def _types(target: Any) -> dict[str, Any]:
    """The declared types of a class's parameters, by public name."""
    return {public(code): field.annotation for code, field in target.__pydantic_fields__.items()}


def group(overrides: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The overrides of one group, without the prefix: `group({"method.k": 8}, "method") -> {"k": 8}`."""
    return {path.partition(".")[2]: value for path, value in overrides.items() if path.partition(".")[0] == name}
