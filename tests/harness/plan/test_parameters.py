"""Parameters of methods and tasks: public names, types, and the nearest name for a wrong one."""

import json
import math
import re
from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest
from pydantic import Field

from harness.common.errors import RequestError
from harness.plan.parameters import declared, group, instantiate, parse_overrides, public, validate
from harness.plan.registry import private


class Method:
    def __init__(
        self,
        *,
        lambda_: float = 0.25,
        k: Annotated[int, Field(ge=1)] = 8,
        index: Literal["flat", "ivf", "hnsw"] = "flat",
        path: str = "",
        flag: bool = False,
        share: Annotated[float, Field(le=1)] | None = None,
        layer: Annotated[int | None, Field(lt=8)] = None,
        size: Annotated[int, Field(gt=0)] | Literal["auto"] = "auto",
        sizes: Annotated[list[int], Field(min_length=1)] = [1],  # noqa: B006 - never changed
    ):
        self.weight, self.k = lambda_, k


DEFAULTS = {
    "lambda": 0.25, "k": 8, "index": "flat", "path": "", "flag": False, "share": None, "layer": None, "size": "auto",
    "sizes": [1],
}  # fmt: skip


class Demanding:
    def __init__(self, *, model: str):
        self.model = model


def test_a_name_that_is_a_python_keyword_loses_its_underscore_and_gets_it_back():
    assert [public(name) for name in ("lambda_", "k", "k_", "_")] == ["lambda", "k", "k_", "_"]
    assert [private(name) for name in ("lambda", "k")] == ["lambda_", "k"]
    assert list(declared(Method)) == list(DEFAULTS)


def test_defaults_fill_what_was_not_given():
    assert validate(Method, {"lambda": 0.5}, "method m") == DEFAULTS | {"lambda": 0.5}


@dataclass(kw_only=True)
class Listed:
    names: list[str] = field(default_factory=lambda: ["a"])


@dataclass(kw_only=True)
class Inheriting(Listed):
    size: int = 1


def test_a_dataclass_makes_its_own_defaults():
    filled = validate(Inheriting, {}, "task listed")
    assert filled == {"names": ["a"], "size": 1}
    assert validate(Inheriting, {}, "task listed")["names"] is not filled["names"]
    assert json.dumps(filled)


def test_functions_are_read_like_classes():
    def overlap(setting, artifacts, progress, *, n: int = 3): ...

    assert validate(overlap, {}, "analysis overlap") == {"n": 3}


def test_inherited_types_are_those_of_the_module_that_names_them(tmp_path, monkeypatch):
    head = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    base = (
        "from typing import Literal\nSize = Literal['s', 'm']\n@dataclass(kw_only=True)\nclass Base:\n    a: Size = 's'"
    )
    heir = "import sizes\nSize = int\n@dataclass(kw_only=True)\nclass Heir(sizes.Base):\n    b: Size = 1"
    (tmp_path / "sizes.py").write_text(head + base)
    (tmp_path / "heirs.py").write_text(head + heir)
    monkeypatch.syspath_prepend(str(tmp_path))
    from heirs import Heir

    assert validate(Heir, {"b": 2}, "method h") == {"a": "s", "b": 2}
    for given in ({"a": "xl"}, {"b": "s"}):
        with pytest.raises(RequestError, match=f"parameter '{next(iter(given))}' of method h"):
            validate(Heir, given, "method h")


CHECKED_ONLY = """
from __future__ import annotations
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar
if TYPE_CHECKING:
    import nowhere

@dataclass(kw_only=True)
class Method:
    opened: ClassVar[nowhere.Index | None] = None
    k: int = 1

class Heir(Method):
    def __init__(self, *, n: int = 1, k: int = 1) -> None: ...

def analysis(setting: nowhere.Setting, artifacts, progress, *, k: int = 1) -> nowhere.Answer: ...
"""


@pytest.mark.parametrize("name", ["Method", "Heir", "analysis"])
def test_only_the_types_of_parameters_are_read(tmp_path, monkeypatch, name):
    (tmp_path / "checked_only.py").write_text(CHECKED_ONLY)
    monkeypatch.syspath_prepend(str(tmp_path))
    import checked_only

    target = getattr(checked_only, name)
    assert validate(target, {"k": 2}, "method m")["k"] == 2
    for parameter in declared(target):
        with pytest.raises(RequestError, match=f"parameter '{parameter}' of method m .*integer"):
            validate(target, {parameter: "2"}, "method m")


def test_a_written_init_has_the_say_over_inherited_annotations():
    @dataclass(kw_only=True)
    class Base:
        k: int = 1

    class Heir(Base):
        def __init__(self, *, k: float = 1.5) -> None: ...

    assert validate(Heir, {"k": 0.5}, "method h") == {"k": 0.5}
    with pytest.raises(RequestError, match="integer"):
        validate(Base, {"k": 0.5}, "method b")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lamda": 1.0}, "unknown parameter 'lamda' in method m: did you mean 'lambda'"),
        ({"lambda_": 1.0}, "unknown parameter 'lambda_' in method m: did you mean 'lambda'"),
        ({"lambda": "high"}, "parameter 'lambda' of method m should be a number (given: 'high')"),
        ({"lambda": math.nan}, "parameter 'lambda' of method m should be a finite number (given: nan)"),
        ({"k": 1.5}, "parameter 'k' of method m should be an integer (given: 1.5)"),
        ({"k": 0}, "parameter 'k' of method m should be at least 1 (given: 0)"),
        ({"index": "pq"}, "parameter 'index' of method m should be 'flat', 'ivf' or 'hnsw' (given: 'pq')"),
        ({"path": None}, "parameter 'path' of method m should be a string (given: None)"),
        ({"flag": 1}, "parameter 'flag' of method m should be true or false (given: 1)"),
        ({"share": 1.5}, "parameter 'share' of method m should be at most 1 or null (given: 1.5)"),
        ({"share": "x"}, "parameter 'share' of method m should be a number or null (given: 'x')"),
        ({"size": 0}, "parameter 'size' of method m should be above 0 or 'auto' (given: 0)"),
        ({"layer": 9}, "parameter 'layer' of method m should be below 8 or null (given: 9)"),
        ({"sizes": [1, "a"]}, "item 1 of parameter 'sizes' of method m should be an integer (given: 'a')"),
        ({"sizes": []}, "parameter 'sizes' of method m: List should have at least 1 item after validation, not 0"),
    ],
)
def test_what_does_not_fit_is_refused_by_public_name(given, message):
    with pytest.raises(RequestError, match=f"^{re.escape(message)}"):
        validate(Method, given, "method m")


def test_a_positional_parameter_is_refused_with_the_remedy():
    class Positional:
        def __init__(self, k: int = 3) -> None: ...

    @dataclass
    class Fields:
        k: int = 3

    def analysis(setting, artifacts, progress, n: int = 2): ...

    for target, remedy in ((Positional, "write `*, ` before it"), (Fields, "kw_only=True"), (analysis, "write `*, `")):
        with pytest.raises(RequestError, match=f"parameter '[kn]' of .* is positional: .*{re.escape(remedy)}"):
            validate(target, {}, "method m")


def test_an_integer_is_a_number_and_a_missing_value_is_named():
    assert validate(Method, {"lambda": 1}, "method m")["lambda"] == 1.0
    with pytest.raises(RequestError, match="parameter 'model' of method d is missing: give it a value"):
        validate(Demanding, {}, "method d")


def test_a_method_is_made_with_validated_parameters(toys):
    assert instantiate("method", "toy-unigram", {"lambda": 0.5}, toys).weight == 0.5
    with pytest.raises(RequestError, match="did you mean 'pause'"):
        instantiate("method", "toy-unigram", {"pauze": 1}, toys)


def test_overrides_are_yaml_scalars_by_group():
    given = parse_overrides(["method.k=64", "task.model=a=b", "method.flag=true", "timing.pairs=3", "method.tau=1e-2"])
    assert group(given, "method")["k"] == 64 and group(given, "method")["flag"] is True
    assert group(given, "task") == {"model": "a=b"}
    assert group(given, "timing") == {"pairs": 3}


def test_an_override_that_is_no_yaml_is_refused_in_one_line():
    with pytest.raises(RequestError, match="is not a YAML value") as refused:
        parse_overrides(["method.k=[1"])
    assert "\n" not in str(refused.value)
