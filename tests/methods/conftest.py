"""Fixtures for the tests of methods."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.fixture(scope="session")
def tiny():
    """The module generation_models.py next to this file: `make(kind, seed)` and `copier(seed, noise)`."""
    return SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("generation_models.py"))))
