"""Parameters of methods and tasks: public names, types, and the nearest name for a wrong one."""

import json
import math
import re
from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest
from pydantic import Field

from harness.common.errors import RequestError
from harness.plan.parameters import (
    as_class,
    declared,
    from_yaml,
    group,
    parse_overrides,
    public,
    typed,
    validated,
    values,
)
from harness.plan.registry import construct


class Method:
    lambda_: float = 0.25
    k: Annotated[int, Field(ge=1)] = 8
    index: Literal["flat", "ivf", "hnsw"] = "flat"
    path: str = ""
    flag: bool = False
    share: Annotated[float, Field(le=1)] | None = None
    layer: Annotated[int | None, Field(lt=8)] = None
    size: Annotated[int, Field(gt=0)] | Literal["auto"] = "auto"
    sizes: Annotated[list[int], Field(min_length=1)] = field(default_factory=lambda: [1])


DEFAULTS = {
    "lambda": 0.25, "k": 8, "index": "flat", "path": "", "flag": False, "share": None, "layer": None, "size": "auto",
    "sizes": [1],
}  # fmt: skip


class Demanding:
    model: str


Method, Demanding = validated(Method, "method m"), validated(Demanding, "method d")


def test_a_name_that_is_a_python_keyword_loses_its_underscore():
    assert [public(name) for name in ("lambda_", "k", "k_", "_")] == ["lambda", "k", "k_", "_"]
    assert declared(Method) == list(DEFAULTS)


def test_defaults_fill_what_was_not_given():
    assert values(construct(Method, {"lambda": 0.5})) == DEFAULTS | {"lambda": 0.5}


@dataclass(kw_only=True)
class Listed:
    names: list[str] = field(default_factory=lambda: ["a"])


@dataclass(kw_only=True)
class Inheriting(Listed):
    size: int = 1


def test_a_dataclass_makes_its_own_defaults():
    heir = validated(Inheriting, "task listed")
    filled = values(heir())
    assert filled == {"names": ["a"], "size": 1}
    assert heir().names is not filled["names"]
    assert json.dumps(filled)


def test_functions_are_read_like_classes():
    def overlap(setting, artifacts, progress, *, n: Annotated[int, Field(ge=1)] = 3):
        return setting + n

    found = validated(as_class(overlap), "analysis overlap")
    assert values(found()) == {"n": 3} and found(n=4)(2, None, None) == 6
    with pytest.raises(RequestError, match="parameter 'n' of analysis overlap should be at least 1"):
        found(n=0)


def test_inherited_types_are_those_of_the_module_that_names_them(tmp_path, monkeypatch):
    head = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    base = (
        "from typing import Literal\nSize = Literal['s', 'm']\n@dataclass(kw_only=True)\nclass Base:\n    a: Size = 's'"
    )
    (tmp_path / "sizes.py").write_text(head + base)
    (tmp_path / "heirs.py").write_text(head + "import sizes\nSize = int\nclass Heir(sizes.Base):\n    b: Size = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    import heirs

    found = validated(heirs.Heir, "method h")
    assert values(found(b=2)) == {"a": "s", "b": 2}
    for given in ({"a": "xl"}, {"b": "s"}):
        with pytest.raises(RequestError, match=f"parameter '{next(iter(given))}' of method h"):
            found(**given)


CHECKED_ONLY = """
from __future__ import annotations
from typing import TYPE_CHECKING, ClassVar
if TYPE_CHECKING:
    import nowhere

class Method:
    opened: ClassVar[nowhere.Index | None] = None
    k: int = 1

def analysis(setting: nowhere.Setting, artifacts, progress, *, k: int = 1) -> nowhere.Answer: ...
"""


def test_only_the_types_of_parameters_are_read(tmp_path, monkeypatch):
    (tmp_path / "checked_only.py").write_text(CHECKED_ONLY)
    monkeypatch.syspath_prepend(str(tmp_path))
    import checked_only

    for declared_class in (checked_only.Method, as_class(checked_only.analysis)):
        found = validated(declared_class, "method m")
        assert found(k=2).k == 2
        with pytest.raises(RequestError, match=r"parameter 'k' of method m .*integer"):
            found(k="2")


def test_a_written_init_is_refused():
    class Base:
        def __init__(self, *, k: float = 1.5) -> None: ...

    class Heir(Base):
        n: int = 1

    for written in (Base, Heir):
        with pytest.raises(TypeError, match=r"fields of a class: replace .*Base\.__init__ by __post_init__"):
            validated(written, "method b")


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
        construct(Method, given)


def test_making_an_instance_in_python_is_validated_too():
    assert Method(lambda_=0.5).lambda_ == 0.5
    with pytest.raises(RequestError, match=r"parameter 'lambda' of method m should be a number \(given: 'high'\)"):
        Method(lambda_="high")
    with pytest.raises(RequestError, match="unknown parameter 'indx' in method m: did you mean 'index'"):
        Method(indx="flat")


def test_an_integer_is_a_number_and_a_missing_value_is_named():
    assert values(Method(lambda_=1))["lambda"] == 1.0
    with pytest.raises(RequestError, match="parameter 'model' of method d is missing: give it a value"):
        Demanding()


def test_a_method_is_made_with_validated_parameters(toys):
    found = toys.resolve("method", "toy-unigram")
    assert construct(found, {"lambda": 0.5}).lambda_ == 0.5
    with pytest.raises(RequestError, match="did you mean 'pause'"):
        construct(found, {"pauze": 1})


def test_an_override_is_read_as_its_parameter_is_declared():
    class Method:
        path: str = ""
        other: Annotated[str, Field(max_length=20)] | None = None
        kind: Literal["off", "on"] = "on"
        flag: bool = False
        tau: Annotated[float, Field(ge=0)] = 1.0
        counts: int | str = 0
        names: Annotated[list[str], Field(min_length=1)] = field(default_factory=lambda: ["a"])

    settings = ["path=/x/llama #2", "other=null", "kind=off", "flag=true", "tau=1e-2", "counts=010", "names=[a, b]"]
    found = validated(Method, "method test")
    given = typed(found, group(parse_overrides([f"method.{text}" for text in settings]), "method"))
    assert (given["path"], given["other"], given["kind"]) == ("/x/llama #2", None, "off")
    assert (given["flag"], given["tau"], given["counts"], given["names"]) == (True, 0.01, 10, ["a", "b"])
    for text in ("2024-01-01", "null", "1_000", "a=b", '"quoted"', "yes", " x ", ""):
        assert typed(found, {"path": text, "other": f"{text}."}) == {"path": text, "other": f"{text}."}
        assert found(path=text).path == text
    for text in ("", "~", "null"):
        assert typed(found, {"path": text, "other": text}) == {"path": text, "other": None}


def test_overrides_are_grouped():
    given = parse_overrides(["method.k = 64 ", "task.model=a=b", "task.prompt= {source} ", "timing.pairs=3"])
    assert [group(given, name) for name in ("method", "task", "timing")] == [
        {"k": "64"},
        {"model": "a=b", "prompt": " {source} "},
        {"pairs": "3"},
    ]


def test_an_override_that_is_no_yaml_is_refused_in_one_line():
    with pytest.raises(RequestError, match=r"--set k: .* is not a YAML value") as refused:
        from_yaml("k", "[1")
    assert "\n" not in str(refused.value)
