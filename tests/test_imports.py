"""No module imports itself through others; which level may import which stands in `pyproject.toml`."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def test_no_import_circle():
    graph = grimp.build_graph("harness", "methods", "tasks", cache_dir=None)
    assert len(graph.modules) > 200
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as circle:
        pytest.fail(" <- ".join(circle.args[1]))
