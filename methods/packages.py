"""Packages that only some methods need."""

from __future__ import annotations

import importlib
from typing import Any

from harness.common.errors import NotInstalledError


def package(module: str, name: str) -> Any:
    """A module of the package `name`. Raises `NotInstalledError` if it is not installed; other cells do not need it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise NotInstalledError(f"{name} is not installed; pip install 'shortcut-harness[peers]'") from error
