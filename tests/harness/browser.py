"""Pages in headless Chromium, driven by Playwright, where both are installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]

needs_browser = pytest.mark.skipif(
    CHROMIUM is None or find_spec("playwright") is None,
    reason="Chromium or Playwright is not installed: apt-get install chromium, pip install playwright",
)


@contextmanager
def browser() -> Iterator[Any]:
    """A browser, for as long as it is looked into."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as browsers:
        opened = browsers.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()
