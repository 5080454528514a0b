"""Every method on every task at a glance: how much faster, and at what loss of quality."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.contracts.tasks import SCALES
from harness.decision import is_decided
from harness.show.formats import number, with_interval
from harness.show.frame import KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

ALIKE = ("precision_at_1", "exact_match")  # the share of answers that are the exact method's
PERPLEXITIES = ("perplexity_difference", "perplexity")
HEADER = ("method", "task", "speedup", "over", "decision", "answers changed", "paper's speedup", "row")


def overview(frame: pd.DataFrame) -> pd.DataFrame:
    """A line for each method, variant, task and baseline, by contract, method and task.

    Of several rows the one of the largest scale stands for them. Ties: a decided speed first, then headline recipes,
    then rows that the paper has, then the first. Rows of cells that their recipe no longer has are left out.

    Columns are those of the frame's line of the speedup, and:

    - name: the method with its variant; others: further rows that it stands for
    - lost: share of answers that are others than the reference's; of perplexity, what was added (below 0: better).
      lost_of: "answers" or "perplexity"; both missing where answers were not compared
    - paper_lost: the same of the paper, where it is known
    """
    lines = frame[
        (frame.metric == "speedup") & frame.baseline.notna() & frame.contract.notna() & (frame.status == "ok")
        & frame.planned & (frame.apart == "")
    ]  # fmt: skip
    wide = frame[frame.metric.isin([*ALIKE, *PERPLEXITIES]) & (frame.apart == "")]
    values = wide.pivot_table(index=KEY, columns="metric", values="value", aggfunc="first")
    values = values.reindex(columns=[*ALIKE, *PERPLEXITIES])
    papers = wide[wide.metric == ALIKE[0]].set_index(KEY).paper
    lines = lines.join(values, on=KEY).join(papers.rename("paper_precision"), on=KEY)
    shares = 1 - lines[ALIKE[0]].fillna(lines[ALIKE[1]])
    added = lines.perplexity_difference / (lines.perplexity - lines.perplexity_difference)
    added = added.where(lines.perplexity > lines.perplexity_difference)
    lost = shares.fillna(added).where(lines.reference.notna())
    kinds = pd.Series("answers", lines.index).where(shares.notna(), "perplexity").where(lost.notna())
    names = lines.method + lines.variant.map(lambda text: f" ({text})" if text else "")
    paper_lost = (1 - lines.paper_precision).fillna(lost.where(lost == 0))  # lossless in the paper too
    lines = lines.assign(name=names, lost=lost, lost_of=kinds, paper_lost=paper_lost)
    rank = pd.DataFrame(
        {"scale": -lines.scale.map(SCALES.index).astype(int), "decided": ~lines.decision.map(is_decided),
         "headline": ~lines.headline, "paper": lines.paper.isna()}
    )  # fmt: skip
    order = rank.sort_values(list(rank), kind="stable").index
    groups = ["method", "variant", "task", "baseline"]
    others = lines.groupby(groups).cell.transform("size") - 1
    best = lines.assign(others=others).loc[order].groupby(groups, sort=False).head(1)
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


def interval(line: Any) -> tuple[float, float] | None:
    return None if pd.isna(line.low) else (line.low, line.high)


def changed(line: Any) -> str:
    """How many answers are other ones, in words: `none`, `0.17%`, `perplexity -14%`; with the method that they were
    compared with, where another one was timed. Nothing where answers were not compared."""
    if pd.isna(line.lost):
        return ""
    share = f"{number(100 * line.lost, 2)}%"
    words = "none" if line.lost == 0 else share
    if line.lost_of == "perplexity" and line.lost != 0:
        words = f"perplexity {'+' * (line.lost > 0)}{share}"
    return words if line.reference == line.baseline else f"{words} (against {line.reference})"


def panels(lines: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Contract -> the lines that can be drawn together: one task, one baseline, one reference of the answers.

    It is the (task, baseline, reference) with the most lines at the largest scale. Ties: a declared baseline that is
    the reference too, then more lines of headline recipes, then the first. The reference itself is among the lines,
    with nothing lost.
    """
    known = lines[lines.lost.notna()]
    if known.empty:
        return {}
    largest = max(known.scale, key=SCALES.index)
    at_scale = lines[lines.scale == largest]
    found: dict[str, tuple[tuple[int, bool, int], pd.DataFrame]] = {}
    groups = ["contract", "task", "baseline", "reference"]
    for (contract, task, baseline, reference), group in at_scale[at_scale.lost.notna()].groupby(groups, sort=False):
        own = at_scale[(at_scale.task == task) & (at_scale.baseline == baseline) & (at_scale.name == reference)]
        more = own[~own.name.isin(group.name)].assign(lost=0.0, lost_of=group.lost_of.iloc[0], reference=reference)
        panel = pd.concat([group, more]) if len(more) else group
        exact = bool((panel.declared & (panel.reference == panel.baseline)).all())
        rank = len(panel), exact, int(panel.headline.sum())
        if contract not in found or rank > found[contract][0]:
            found[contract] = rank, panel
    return {contract: found[contract][1] for contract in sorted(found)}


def pareto(lines: pd.DataFrame) -> pd.DataFrame:
    """The lines that no other one beats in both speedup and loss: from the least lost to the fastest."""
    known = lines[lines.lost.notna()].sort_values(["lost", "value"], ascending=[True, False], kind="stable")
    faster: Sequence[bool] = known.value > known.value.cummax().shift(fill_value=float("-inf"))
    return known[faster]
