"""Fixtures for the tests of methods."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny():
    """The module generation_models.py beside this file: `make(kind, seed)` and `copier(seed, noise)`."""
    spec = importlib.util.spec_from_file_location("generation_models", Path(__file__).with_name("generation_models.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
