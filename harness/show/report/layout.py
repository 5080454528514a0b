"""Which columns a recipe's two tables have, and how a row fills them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from harness.common.statistics import Interval
from harness.contracts.rows import Row
from harness.contracts.tasks import Scale
from harness.measure.decision import decide, of_row
from harness.measure.own_metrics import OWN, among, of
from harness.plan.cell import Cell
from harness.plan.recipe import Recipe
from harness.show.report.formats import NOTHING, duration, number, timespan, with_interval
from harness.show.report.published import Number, Published, comparable, places
from harness.show.report.selection import baseline_name, interval_of, machine_of, value_of

SPEEDUP, HOT, LATENCY, BASELINE_LATENCY, FIT = (
    "speedup", "hot_loop_speedup", "latency_s", "baseline_latency_s", "fit_s",
)  # fmt: skip
COLUMNS = (SPEEDUP, HOT, LATENCY, BASELINE_LATENCY, FIT)  # metrics with columns of their own
SHOWN_METRICS, SHOWN_COUNTERS = 4, 2  # by default, when the recipe names no columns
SETTING = "published setting"
TWO_SIDES = "named in the row"  # of a timed analysis: what its decision compares


class Column(NamedTuple):
    """One column: its head, and what a finished row has in it."""

    head: str
    cell: Callable[[Row], str]


class Layout:
    """The columns of both tables: `lead` answers what a reader came for, `detail` is all else that was measured.

    `printed` has the published number next to each measured one: (cell, metric) -> number.
    """

    def __init__(
        self, recipe: Recipe, scale: Scale, published: Published, cells: Sequence[Cell], rows: Sequence[Row]
    ) -> None:
        self.published = published
        self.data_of_paper = scale in recipe.data_of_paper
        good = [row for row in rows if row["status"] == "ok"]
        leading = [name for name in recipe.metrics or _default_columns(good) if name not in COLUMNS]
        others = [name for name in recipe.details if name not in COLUMNS]
        self.names = [*leading, *others]
        numbers = (*self.names, SPEEDUP, LATENCY)  # next to which published ones may stand
        self.metrics = {name: among(good, name) for name in (*self.names, *COLUMNS)}
        self.cells: dict[tuple[str, str, str], list[Row]] = {}
        for row in good:
            self.cells.setdefault(
                (row["method"], repr(row["params"]["method"]), repr(row["params"]["task"])), []
            ).append(row)
        baselines = {name for row in good if (name := self.baseline_shown(row))}
        self.one_baseline = baselines.pop() if len(baselines) == 1 else ""
        self.compared = any(row["speed_baseline"] for row in good)
        filled = {name for name in (*self.names, *COLUMNS) for row in good if value_of(row, name) is not None}
        self.has = {name: name in filled or not good or bool(_parameter(name)) for name in self.names}
        self.has |= {name: name in filled for name in COLUMNS}
        labels = places(cells)
        self.printed = {
            (row["cell"], name): found
            for row in good
            if row["cell"] in labels
            if all(row["facts"].get(fact) in values for fact, values in recipe.published_where.items())
            for name in numbers
            if value_of(row, name) is not None and (found := published.lookup(*labels[row["cell"]], self.metrics[name]))
        }
        self.used = list(dict.fromkeys(self.printed.values()))
        settings = {setting for row in good if (setting := self._settings(row, numbers))}
        self.one_setting = settings.pop() if len(settings) == 1 else ""
        timed = any(row["timing"] for row in good)
        self.lead = self._leading(leading, timed)
        self.detail = self._detailed(others, timed)

    def _leading(self, names: Sequence[str], timed: bool) -> list[Column]:
        columns = [column for name in names if self.has[name] for column in self._measured(name)]
        if self.compared:
            columns += self._measured(SPEEDUP, f"speedup vs {self.one_baseline}" if self.one_baseline else "speedup")
            columns += [] if self.one_baseline else [Column("vs", lambda row: self.baseline_shown(row) or NOTHING)]
            columns += [Column("decision", lambda row: (row["timing"] or {}).get("decision") or NOTHING)]
            names = [*names, SPEEDUP]
        if timed and not self.compared:  # then the time is what it was measured for
            columns += self._measured(LATENCY)
            names = [*names, LATENCY]
        columns += [Column("items", _items)] if timed else []
        columns += self._setting(names)
        return [*_labels(), *(columns or [Column("status", lambda row: row["status"])])]

    def _detailed(self, names: Sequence[str], timed: bool) -> list[Column]:
        """Empty where there is nothing more to say."""
        columns = [column for name in names if self.has[name] for column in self._measured(name)]
        if timed and self.compared:
            columns += self._measured(LATENCY)
            columns += [c for name in (BASELINE_LATENCY, HOT) if self.has[name] for c in self._measured(name)]
        columns += self._measured(FIT) if self.has[FIT] else []
        columns += self._setting([*names, *([LATENCY] if self.compared else [])])
        return [*_labels(), *columns] if columns else []

    def _measured(self, name: str, head: str = "") -> list[Column]:
        """A metric or parameter, and the paper's number where one stands next to it."""
        metric, parameter = self.metrics[name], _parameter(name)
        head = head or (parameter[1] if parameter else metric.label if name in COLUMNS else metric.heading)
        columns = [Column(head, lambda row: _shown(row, name))]
        if any(metric == name for _, metric in self.printed):
            columns.append(Column("paper", lambda row: self._paper(row, name)))
        return columns

    def _setting(self, names: Sequence[str]) -> list[Column]:
        """Where the published numbers next to these are of several settings, each row's own."""
        if self.one_setting or not any(name in names for _, name in self.printed):
            return []
        return [Column(SETTING, lambda row: self._settings(row, names) or NOTHING)]

    def directions(self) -> list[str]:
        """What the arrows in the heads mean, where there are any."""
        heads = [column.head for column in (*self.lead, *self.detail)]
        return ["↑: higher is better, ↓: lower."] if any(head.endswith(("↑", "↓")) for head in heads) else []

    def baseline(self, row: Row) -> str:
        """The speed baseline as the table names it: the cell that is that very method, else the method's name and
        the parameters in which it differs from the row's."""
        baseline = row["speed_baseline"]
        if not baseline:
            return ""
        key = baseline["method"], repr(baseline["params"]), repr(row["params"]["task"])
        # of several cells with that method, which differ in their timing alone, the one in this row's own column; else
        # one of this column and model whose quality was measured on another number of items
        same = sorted(self.cells.get(key, ()), key=lambda other: other["column"] != row["column"])
        if not same and row["column"] and (model := row["hashes"].get("model")):
            alike = [rows for (method, params, _), rows in self.cells.items() if (method, params) == key[:2]]
            place = row["column"], model
            same = [one for rows in alike for one in rows if (one["column"], one["hashes"].get("model")) == place]
        return same[0]["cell"] if same else baseline_name(row, baseline)

    def baseline_shown(self, row: Row) -> str:
        """The speed baseline in a line of the table: its row alone where it stands in the line's own column."""
        if not row["speed_baseline"] and (row["timing"] or {}).get("decision"):
            return TWO_SIDES
        name = self.baseline(row)
        return name.removesuffix(f" / {row['column']}") if row["column"] else name

    def _paper(self, row: Row, name: str) -> str:
        """The published number next to a measured one, with the ratio where it means something."""
        found = self.printed.get((row["cell"], name))
        if found is None:
            return NOTHING
        value = found.as_measured(self.metrics[name])
        seconds = self.metrics[name].unit == "s"
        shown = duration(value) if seconds else found.text if value == found.value else number(value)
        ratio = self._ratio(row, name, found)
        return shown + (f" (×{number(ratio, 3)})" if ratio is not None else "")

    def _ratio(self, row: Row, name: str, found: Number) -> float | None:
        metric = of(row, name)
        measured, value = value_of(row, name), found.as_measured(metric)
        return measured / value if comparable(metric, self.data_of_paper) and measured is not None and value else None

    def _settings(self, row: Row, names: Sequence[str]) -> str:
        """Table and labels of the published numbers next to a row's, as far as its own labels are others."""
        found = [n for name in names if (n := self.printed.get((row["cell"], name)))]
        return "; ".join(dict.fromkeys(_where(n, row) for n in found))

    def unmatched(self) -> list[list[str]]:
        """Published numbers of rows and settings that were not measured here."""
        return [
            [n.row, n.column, n.metric, f"{n.text} {n.unit}".strip(), n.table]
            for n in self.published.numbers
            if n not in self.used
        ]

    def record(self, row: Row) -> dict[str, Any]:
        """One CSV record: labels, status and every number of the row, intervals and published numbers next to them."""
        timing = row["timing"] or {}
        record: dict[str, Any] = {
            "recipe": row["recipe"], "scale": row["scale"], "row": row["row"], "column": row["column"],
            "method": row["method"], "task": row["task"], "status": row["status"],
            "machine": machine_of(row), "device": row["device"], "seed": row["seed"], "baseline": self.baseline(row),
            "decision": timing.get("decision"), "reason": timing.get("reason"),
            "error": (row["error"] or {}).get("message"),
        }  # fmt: skip
        record |= {name: _shown(row, name) for name in self.names if _parameter(name)}
        for name, value in {**row["metrics"], **row["counters"]}.items():
            record[name] = value
            if interval := interval_of(row, name):
                record[f"{name}_low"], record[f"{name}_high"] = interval
            if found := self.printed.get((row["cell"], name)):
                record[f"{name}_published"] = found.as_measured(of(row, name))
                record[f"{name}_published_setting"] = f"{found.table}: {found.row}, {found.column}"
                record[f"{name}_ratio"] = self._ratio(row, name, found)
        return record


def _labels() -> list[Column]:
    return [Column("row", lambda row: row["row"]), Column("column", lambda row: row["column"])]


def _where(number: Number, row: Row) -> str:
    """`Figure 3, WikiText-103` for `WikiText-103 / FoSS=0` next to a row `FoSS=0`."""
    column = number.column.removesuffix(row["column"]).removesuffix(" / ")
    parts = [number.table, "" if number.row == row["row"] else number.row, column]
    return ", ".join(part for part in parts if part)


def _parameter(name: str) -> tuple[str, str] | None:
    """`method.k` -> (`method`, `k`); None for the name of a metric."""
    side, dot, parameter = name.partition(".")
    return (side, parameter) if dot and side in ("method", "task") else None


def _shown(row: Row, name: str) -> str:
    """A metric or counter with its interval, or a parameter as text."""
    if (parameter := _parameter(name)) is not None:
        return str(row["params"][parameter[0]].get(parameter[1], NOTHING))
    shown = timespan if of(row, name).unit == "s" else with_interval
    value, interval = value_of(row, name), interval_of(row, name)
    if name == SPEEDUP and value is None and (row["timing"] or {}).get("decision"):
        value, interval = _of_two_sides(row)
    return shown(value, interval)


def _of_two_sides(row: Row) -> tuple[float | None, Interval | None]:
    """The ratio that the decision of a timed analysis is about, which states ratios of its own: the time of one side
    over that of the other."""
    summary = decide(of_row((row["timing"] or {})["processes"]))
    return summary.speedup, summary.interval


def _items(row: Row) -> str:
    """Items that were timed over all processes, and how many different ones, where some were timed twice."""
    timing = row["timing"] or {}
    timed, different = timing.get("timed_items"), timing.get("items")
    return number(timed) + (f" ({number(different)} different)" if different not in (None, timed) else "")


def _default_columns(rows: Sequence[Row]) -> list[str]:
    """The first few metrics, but for times, speeds and memory of the harness's own, and the first few counters, but for
    memory, in the order in which rows hold them."""
    own = {metric.name for metric in OWN if metric.kind in ("time", "speed", "memory")}
    metrics = dict.fromkeys(n for row in rows for n in row["metrics"] if n not in own)
    counters = dict.fromkeys(
        n for row in rows for n in row["counters"] if of(row, n).kind != "memory" and n not in metrics
    )
    return [*list(metrics)[:SHOWN_METRICS], *list(counters)[:SHOWN_COUNTERS]]
