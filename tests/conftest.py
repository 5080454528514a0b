"""Fixtures for all tests: a private cache, and the plug-ins of tests/plugins."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from harness.plan import registry
from harness.plan.registry import Registry

PLUGINS = Path(__file__).parent / "plugins"


@pytest.fixture(autouse=True)
def threads_of_torch():
    """A timing process keeps the threads that code sets for it; the tests after this one shall not."""
    before = torch.get_num_threads()
    yield
    if torch.get_num_threads() != before:
        torch.set_num_threads(before)


@pytest.fixture
def cache_home(tmp_path, monkeypatch):
    """A cache folder of this test's own, for this process and the ones it starts."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("HARNESS_CACHE", str(folder))
    return folder


@pytest.fixture
def toys(cache_home, monkeypatch):
    """A registry that sees the toy methods and tasks; worker processes see them too."""
    yield from _plugged("toys", monkeypatch)


@pytest.fixture
def plugin(monkeypatch):
    """A registry that sees the method of tests/plugins/sam_decoding."""
    yield from _plugged("sam_decoding", monkeypatch)


def _plugged(package, monkeypatch):
    monkeypatch.setenv("HARNESS_PLUGINS", package)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(PLUGINS), os.environ.get("PYTHONPATH")])))
    monkeypatch.syspath_prepend(str(PLUGINS))
    yield Registry()
    for key, (entry, _) in list(registry._declared_at_run_time.items()):
        if entry.target.startswith(f"{package}."):
            del registry._declared_at_run_time[key]
    for name in [n for n in sys.modules if n.partition(".")[0] == package]:
        del sys.modules[name]
