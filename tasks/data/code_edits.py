"""Small edits of functions of the standard library of Python, each with its right result, by a seeded generator."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from tasks.data.text.embedded import modules

_NAMES = ("source", "target", "item", "entry", "text", "number", "options", "width", "context", "offset")
_PARAMETERS = (("verbose", "False"), ("timeout", "None"), ("strict", "True"), ("limit", "100"), ("encoding", "'utf-8'"))


@dataclass(frozen=True, slots=True)
class CodeEdit:
    """instruction: in English. before, after: a function's source text, without indentation."""

    instruction: str
    before: str
    after: str


def code_edits(library: Path, lines: range, seed: int) -> list[CodeEdit]:
    """An edit of each function of the library that has a number of lines in `lines` and can be edited, in the library's
    order: a parameter renamed, a parameter added, or a docstring of one line added. Functions with the same text count
    once."""
    rng, found = np.random.default_rng(seed), list[CodeEdit]()
    for text in dict.fromkeys(_functions(library, lines)):
        [function] = ast.parse(text).body
        assert isinstance(function, ast.FunctionDef)
        edits = (edit(function, text, rng) for edit in (_renamed, _with_parameter, _with_docstring))
        possible = [edit for edit in edits if edit is not None]
        if possible:
            found.append(possible[rng.integers(len(possible))])
    return found


def tree_of(text: str, names: Mapping[str, str] = MappingProxyType({})) -> str | None:
    """The syntax tree of a source text; layout, also of docstrings, and comments do not count. None if there is none.
    names: variables and parameters to rename first."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = names.get(node.arg, node.arg)
        elif isinstance(node, ast.FunctionDef) and (docstring := ast.get_docstring(node)) is not None:
            node.body[0] = ast.Expr(ast.Constant(docstring))
    return ast.dump(tree)


def _functions(library: Path, lines: range) -> Iterator[str]:
    for _, source, tree in modules(library):
        rows = source.splitlines()
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef) or node.end_lineno is None:
                continue
            text = textwrap.dedent("\n".join(rows[node.lineno - 1 : node.end_lineno]))
            if len(text.splitlines()) in lines and text.isascii() and tree_of(text):
                yield text


def _renamed(function: ast.FunctionDef, text: str, rng: np.random.Generator) -> CodeEdit | None:
    """A parameter renamed that the function reads, where no inner function has one of this name, and no default and no
    annotation reads an outer variable of this name."""
    named = _named(function)
    head = [function.args, *([function.returns] if function.returns else [])]
    kept = {"self", "cls"} | {node.id for part in head for node in ast.walk(part) if isinstance(node, ast.Name)}
    old = [
        name
        for name, nodes in named.items()
        if len(nodes) > 1 and sum(isinstance(node, ast.arg) for node in nodes) == 1 and name not in kept
    ]
    new = [name for name in _NAMES if name not in named]
    if not old or not new or any(isinstance(node, ast.Global | ast.Nonlocal) for node in ast.walk(function)):
        return None
    before, after = str(rng.choice(old)), str(rng.choice(new))
    rows = text.splitlines()
    for line, column in sorted(((node.lineno, node.col_offset) for node in named[before]), reverse=True):
        row = rows[line - 1]
        rows[line - 1] = row[:column] + after + row[column + len(before) :]
    edited = "\n".join(rows)
    if tree_of(edited, {after: before}) != tree_of(text):  # before Python 3.12, f-strings have wrong places
        return None
    return CodeEdit(f"Rename the parameter `{before}` to `{after}` wherever it occurs.", text, edited)


def _with_parameter(function: ast.FunctionDef, text: str, rng: np.random.Generator) -> CodeEdit | None:
    """A parameter with a default added at the end."""
    given = function.args
    if given.vararg or given.kwarg or given.kwonlyargs or not given.args:
        return None
    new = [both for both in _PARAMETERS if both[0] not in _named(function)]
    last = given.defaults[-1] if given.defaults else given.args[-1]
    if not new or last.end_lineno is None or last.end_col_offset is None:
        return None
    name, default = new[rng.integers(len(new))]
    rows, line = text.splitlines(), last.end_lineno - 1
    rows[line] = f"{rows[line][: last.end_col_offset]}, {name}={default}{rows[line][last.end_col_offset :]}"
    edited = "\n".join(rows)
    if tree_of(edited) is None:  # the last default is in parentheses
        return None
    told = f"Add a last parameter `{name}` with the default `{default}`, which nothing reads yet."
    return CodeEdit(told, text, edited)


def _with_docstring(function: ast.FunctionDef, text: str, rng: np.random.Generator) -> CodeEdit | None:
    """The function without its docstring, which is of one line; the edit puts it there."""
    first, docstring = function.body[0], ast.get_docstring(function)
    if docstring is None or "\n" in docstring or len(function.body) < 2 or first.end_lineno is None:
        return None
    if not function.lineno < first.lineno <= first.end_lineno < function.body[1].lineno:  # not on lines of its own
        return None
    rows = text.splitlines()
    before = "\n".join(rows[: first.lineno - 1] + rows[first.end_lineno :])
    return CodeEdit(f'Add the docstring """{docstring}""", word for word.', before, text)


def _named(function: ast.FunctionDef) -> dict[str, list[ast.Name | ast.arg]]:
    """Name -> the places of the variables and parameters that have it."""
    found: dict[str, list[ast.Name | ast.arg]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name | ast.arg):
            found.setdefault(node.id if isinstance(node, ast.Name) else node.arg, []).append(node)
    return found
