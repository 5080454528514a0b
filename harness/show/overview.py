"""Every method on every task at a glance: how much faster, and at what loss of quality."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import pandas as pd

from harness.contracts.tasks import SCALES
from harness.decision import is_decided
from harness.show.formats import number, with_interval
from harness.show.frame import KEY

ALIKE = ("precision_at_1", "exact_match")  # the share of answers that are the exact method's
PERPLEXITIES = ("perplexity_difference", "perplexity")
HEADER = ("method", "task", "speedup", "over", "decision", "answers changed", "paper's speedup", "row")


def compared(frame: pd.DataFrame) -> pd.DataFrame:
    """The speedup of each finished row that leads and whose recipe still has its cell: the frame's line, and

    - name: the method with its variant
    - lost: share of answers that are others than the reference's; of perplexity, what was added (below 0: better).
      lost_of: "answers" or "perplexity"; both missing where answers were not compared
    """
    frame = frame[(frame.status == "ok") & frame.planned & (frame.apart == "")]
    wide = frame[frame.metric.isin([*ALIKE, *PERPLEXITIES])]
    values = wide.pivot_table(index=KEY, columns="metric", values="value", aggfunc="first")
    lines = frame[frame.metric == "speedup"].join(values.reindex(columns=[*ALIKE, *PERPLEXITIES]), on=KEY)
    shares = 1 - lines[ALIKE[0]].fillna(lines[ALIKE[1]])
    added = lines.perplexity_difference / (lines.perplexity - lines.perplexity_difference)
    added = added.where(lines.perplexity > lines.perplexity_difference)
    lost = shares.fillna(added).where(lines.reference.notna())
    kinds = pd.Series("answers", lines.index).where(shares.notna(), "perplexity").where(lost.notna())
    names = lines.method + lines.variant.map(lambda text: f" ({text})" if text else "")
    return lines.assign(name=names, lost=lost, lost_of=kinds)


def overview(frame: pd.DataFrame) -> pd.DataFrame:
    """A line for each method, variant, task and baseline, by contract, method and task, with the columns of `compared`.

    Of several rows the one of the largest scale stands for them. Ties: a decided speed first, then headline recipes,
    then rows that the paper has, then the first.
    """
    lines = compared(frame)
    lines = lines[lines.baseline.notna() & lines.contract.notna()]
    rank = pd.DataFrame(
        {"scale": -lines.scale.map(SCALES.index).astype(int), "decided": ~lines.decision.map(is_decided),
         "headline": ~lines.headline, "paper": lines.paper.isna()}
    )  # fmt: skip
    order = rank.sort_values(list(rank), kind="stable").index
    groups = ["method", "variant", "task", "baseline"]
    best = lines.loc[order].groupby(groups, sort=False).head(1)
    by = ["contract", "name", "task", "declared", "baseline"]
    return best.sort_values(by, ascending=[True, True, True, False, True], kind="stable")


def table(lines: pd.DataFrame) -> list[list[str]]:
    """The overview as text, under `HEADER`."""
    return [
        [
            line.name, line.task, with_interval(line.value, interval(line)), line.baseline, line.decision,
            changed(line), "" if pd.isna(line.paper) else number(line.paper), f"{line.recipe}: {line.cell}",
        ]
        for line in lines.itertuples(index=False, name="Line")
    ]  # fmt: skip


def matches(name: str, patterns: str) -> bool:
    """Whether a name is of one of the patterns, which `|` separates."""
    return any(fnmatchcase(name, pattern.strip()) for pattern in patterns.split("|"))


def interval(line: Any) -> tuple[float, float] | None:
    return None if pd.isna(line.low) else (line.low, line.high)


def changed(line: Any) -> str:
    """How many answers are other ones, in words: `none`, `0.17%`, `perplexity -14%`; with the method that they were
    compared with, where another one was timed: `none (against greedy)`. Nothing where answers were not compared."""
    if pd.isna(line.lost):
        return ""
    share = f"{number(100 * line.lost, 2)}%"
    words = "none" if line.lost == 0 else share
    if line.lost_of == "perplexity" and line.lost != 0:
        words = f"perplexity {'+' * (line.lost > 0)}{share}"
    return words if line.reference == line.baseline else f"{words} (against {line.reference})"
