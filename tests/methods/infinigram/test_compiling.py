"""Compiled functions of several files: the cache notices a change of any of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from methods.infinigram.kernels import compiling

CALLEE = "from folder.compiling import compiled\n\n@compiled\ndef inner(x):\n    return x + {}\n"
CALLER = """from folder.compiling import compiled
from folder.callee import inner

@compiled
def outer(x):
    return 10 * inner(x)
"""
ASK = "from folder.caller import outer; print(outer(1), sum(outer.stats.cache_hits.values()))"


def test_a_caller_in_another_file_is_compiled_again_when_its_callee_changes(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "compiling.py").write_text(Path(compiling.__file__).read_text())
    (folder / "caller.py").write_text(CALLER)
    answers, before = [], None
    for added in (1, 1, 22):
        if added != before:
            (folder / "callee.py").write_text(CALLEE.format(before := added))
        asked = subprocess.run([sys.executable, "-c", ASK], cwd=tmp_path, capture_output=True, text=True, check=True)
        answers.append(asked.stdout.split())
    assert answers == [["20", "0"], ["20", "1"], ["230", "0"]]  # and the number of hits in the cache
