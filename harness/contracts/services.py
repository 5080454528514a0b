"""What methods get from the harness: a clock of phases, the results of `fit`, results that cells share."""

from __future__ import annotations

from typing import TypeAlias

from harness.common.cache import CellArtifacts as Artifacts
from harness.common.cache import SharedResults as Shared
from harness.common.phases import NoPhases, PhaseTimer

__all__ = ["Artifacts", "Phases", "Shared"]

Phases: TypeAlias = PhaseTimer | NoPhases
"""Times the parts of a run: `with phases("search"): ...` (seconds add up per name)."""
