"""The values of a view for a trace, as Paraver computes them: windows as steps over time, and tables over windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from support.view_parser import LEVELS, Cfg, Window
from support.whole_trace import WholeTrace, row_of

STEP_SCHEMA = {"row": pl.Int64, "begin": pl.Int64, "end": pl.Int64, "value": pl.Float64}
"""Steps of a window: on each shown row they cover the time from 0 to the end of the trace, ns. `row` is the index of the thread
or task, or 0 for the application."""

_THREADS, _TASKS, _APPLICATION = "thread", "task", "appl"


class NotDrawn(ValueError):
    """The view uses a function of Paraver that is not supported here; the message names it."""


@dataclass(frozen=True)
class Table:
    """A table of a view."""

    rows: tuple[int, ...]
    level: str
    columns: tuple[int, ...]
    cells: np.ndarray
    statistic: str

    def totals(self) -> dict[str, np.ndarray]:
        """Totals of the columns: `Average` and `Avg/Max` of the cells that are not empty, as in Paraver."""
        cells = np.ma.masked_invalid(self.cells)
        average, maximum = cells.mean(axis=0), cells.max(axis=0)
        return {"Average": average.filled(0.0), "Avg/Max": (average / maximum).filled(0.0)}


class Semantics:
    """Windows and tables of one view over one trace."""

    def __init__(self, trace: WholeTrace, cfg: Cfg) -> None:
        self._trace = trace
        self._cfg = cfg
        self._steps: dict[int, pl.DataFrame] = {}

    def level(self, number: int) -> str:
        """Level of window `number` (1, 2, ...): thread, task or appl."""
        level = self._cfg.windows[number - 1].level
        if level not in (_THREADS, _TASKS, _APPLICATION):
            raise NotDrawn(f"rows of level {level}")
        return level

    def steps(self, number: int) -> pl.DataFrame:
        """Steps of window `number` (1, 2, ...), with the columns of STEP_SCHEMA."""
        if number not in self._steps:
            window = self._cfg.windows[number - 1]
            found = self._derived(window) if window.is_derived else self._single(window)
            for top in ("topcompose1", "topcompose2"):
                found = _composed(found, window, top)
            self._steps[number] = found
        return self._steps[number]

    def rows(self, number: int) -> tuple[int, ...]:
        """Rows that window `number` shows."""
        return tuple(self.steps(number)["row"].unique().sort())

    def table(self) -> Table:
        """The table of the view, where its columns are whole values of the control window."""
        keys = self._cfg.histogram
        if self._cfg.kind != "table" or keys["Analyzer2D.UseFixedDelta:"] != "True" or float(keys["Analyzer2D.Delta:"]) != 1:
            raise NotDrawn("tables with planes, or with columns that are ranges")
        control, data = (int(keys[f"Analyzer2D.{window}Window:"]) for window in ("Control", "Data"))
        statistic = keys["Analyzer2D.Statistic:"]
        if self.level(control) != self.level(data):
            raise NotDrawn("tables over windows of two levels")
        by = self.steps(control)
        pieces = _overlaid(by, self.steps(data)) if control != data else by.with_columns(other="value")
        lowest, highest = float(keys["Analyzer2D.Minimum:"]), float(keys["Analyzer2D.Maximum:"])
        shown = pieces.filter(pl.col("value") != 0)
        if keys["Analyzer2D.ComputeYScale:"] != "True":
            shown = shown.filter(pl.col("value").is_between(lowest, highest))
        length = pl.col("end") - pl.col("begin")
        statistics: dict[str, pl.Expr] = {
            "Time": length.sum().cast(pl.Float64),
            "% Time": length.sum().cast(pl.Float64),
            "% Window Time": 100 * length.sum() / self._trace.header.end,
            "# Bursts": pl.len().cast(pl.Float64),
            "Average Burst Time": length.mean(),
            "Average value": (length * pl.col("other")).sum() / length.sum(),
            "Integral": (length * pl.col("other")).sum(),
        }
        if statistic not in statistics or (statistic in ("# Bursts", "Average Burst Time") and control != data):
            raise NotDrawn(f"the statistic {statistic}")
        found = shown.group_by("row", column=pl.col("value").floor().cast(pl.Int64)).agg(cell=statistics[statistic])
        rows = self.rows(control)
        # Paraver hides columns with nothing in them.
        found = found.filter((pl.col("cell") != 0).any().over("column"))
        columns = tuple(found["column"].unique().sort())
        cells = np.full((len(rows), len(columns)), np.nan)
        places = found.select(
            pl.col("row").replace_strict({row: place for place, row in enumerate(rows)}),
            pl.col("column").replace_strict({column: place for place, column in enumerate(columns)}),
        )
        cells[places["row"].to_numpy(), places["column"].to_numpy()] = found["cell"].to_numpy()
        if keys["Analyzer2D.SortCols:"] == "True":
            order = np.argsort(-np.nansum(cells, axis=0), kind="stable")
            columns, cells = tuple(columns[place] for place in order), cells[:, order]
        if statistic == "% Time":
            cells = 100 * cells / np.nansum(cells, axis=1, keepdims=True)
        return Table(rows, self.level(control), columns, cells, statistic)

    @cached_property
    def _tasks(self) -> pl.DataFrame:
        """Columns `row` and `task` (indices) of all threads."""
        pairs = [
            (task.first_row + thread, index)
            for index, task in enumerate(self._trace.header.tasks)
            for thread in range(task.threads)
        ]
        return pl.DataFrame(pairs, schema={"row": pl.Int64, "task": pl.Int64}, orient="row")

    def _threads(self, window: Window) -> pl.DataFrame:
        """Columns `row` and `task` of the threads that a window shows."""
        tasks = window.rows.get((_TASKS, 0), [True] * len(self._trace.header.tasks))
        shown = []
        for index, task in enumerate(self._trace.header.tasks):
            threads = window.rows.get((_THREADS, index), [True] * task.threads)
            shown += [tasks[index] and one for one in threads]
        return self._tasks.filter(pl.Series(shown))

    def _single(self, window: Window) -> pl.DataFrame:
        threads = self._threads(window)
        function = window.functions["thread"]
        if function == "State As Is":
            found = self._states(threads)
        elif function in ("Send Messages in Transit", "Send Bytes in Transit"):
            found = self._in_transit(window, threads, count_bytes="Bytes" in function)
        elif function == "In Thread ID":
            found = self._in_threads(window, threads)
        elif function in ("Last Evt Val", "Next Evt Val", "Last Evt Type", "Next Evt Type"):
            found = self._by_events(window, threads, is_next=function.startswith("Next"), of_types=function.endswith("Type"))
        else:
            raise NotDrawn(f"the function {function}")
        return self._raised(window, found, _THREADS)

    def _states(self, threads: pl.DataFrame) -> pl.DataFrame:
        states = self._trace.states()
        found = states.select(
            row=row_of(self._trace.header, pl.col("task"), pl.col("thread")),
            begin="begin",
            end="end",
            value=pl.col("state").cast(pl.Float64),
        )
        return self._complete(found.join(threads.select("row"), on="row", how="semi"), threads)

    def _in_transit(self, window: Window, threads: pl.DataFrame, *, count_bytes: bool) -> pl.DataFrame:
        tags = [int(tag) for tag in window.filters.get("tag_msg", [])]
        chosen = {"All": pl.lit(True), "=": pl.col("tag").is_in(tags), "!=": ~pl.col("tag").is_in(tags)}
        messages = self._trace.messages().filter(chosen[window.functions["tag_msg"]])
        weight = pl.col("size") if count_bytes else pl.lit(1, pl.Int64)
        row = row_of(self._trace.header, pl.col("send_task"), pl.col("send_thread"))
        edges = pl.concat(
            [
                messages.select(row=row, time="physical_send", change=weight),
                messages.select(row=row, time="physical_recv", change=-weight),
            ]
        ).join(threads.select("row"), on="row", how="semi")
        summed = edges.group_by("row", "time").agg(pl.col("change").sum()).sort("row", "time")
        values = summed.select("row", "time", value=pl.col("change").cum_sum().over("row").cast(pl.Float64))
        return self._complete(self._until_next(values), threads)

    def _by_events(self, window: Window, threads: pl.DataFrame, *, is_next: bool, of_types: bool) -> pl.DataFrame:
        types = [int(number) for number in window.filters["evt_type"]]
        events = self._trace.events(types)
        if window.functions["evt_value"] == "=":
            events = events.filter(pl.col("value").is_in([int(value) for value in window.filters["evt_value"]]))
        value = pl.col("value").cast(pl.Float64)
        for number in types:
            if (known := self._trace.labels.types.get(number)) and known.precision:
                value = pl.when(pl.col("type") == number).then(value / 10**known.precision).otherwise(value)
        if of_types:
            value = pl.col("type").cast(pl.Float64)
        pairs = (
            events.select(row=row_of(self._trace.header, pl.col("task"), pl.col("thread")), time="time", value=value)
            .join(threads.select("row"), on="row", how="semi", maintain_order="left")
            .sort("row", maintain_order=True)
        )
        function = window.functions["compose_thread"]
        if is_next:
            between = pairs.select("row", begin=pl.col("time").shift(1).over("row").fill_null(0), end="time", value="value")
            found = self._complete(between.cast({"value": pl.Float64}), threads)
            return _composed(found, window, "compose_thread")
        if function in ("Nesting level", "Stacked Val"):
            pairs = pairs.with_columns(value=_nested(pairs, stacked=function == "Stacked Val"))
        found = self._complete(self._until_next(pairs.cast({"value": pl.Float64})), threads)
        return found if function in ("Nesting level", "Stacked Val") else _composed(found, window, "compose_thread")

    def _in_threads(self, window: Window, threads: pl.DataFrame) -> pl.DataFrame:
        """The number of each listed thread, from its first event on."""
        _, *numbers = map(int, window.values["parameters of thread"].split())
        first = self._trace.events([int(number) for number in window.filters["evt_type"]])
        first = first.group_by(row=row_of(self._trace.header, pl.col("task"), pl.col("thread"))).agg(pl.col("time").min())
        listed = first.filter((pl.col("row") + 1).is_in(numbers)).join(threads.select("row"), on="row", how="semi")
        found = listed.select(
            "row", begin="time", end=pl.lit(self._trace.header.end, pl.Int64), value=(pl.col("row") + 1).cast(pl.Float64)
        )
        return _composed(self._complete(found, threads), window, "compose_thread")

    def _until_next(self, values: pl.DataFrame) -> pl.DataFrame:
        """Each value up to the next one of its row, the last one to the end of the trace."""
        following = pl.col("time").shift(-1).over("row").fill_null(self._trace.header.end)
        return values.select("row", begin="time", end=following, value="value")

    def _complete(self, found: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        """Steps of all rows from 0 to the end, with 0 before and after the given ones; those without length are dropped."""
        end = self._trace.header.end
        found = found.filter(pl.col("end") > pl.col("begin"))
        edges = found.group_by("row").agg(first=pl.col("begin").min(), last=pl.col("end").max())
        edges = (
            rows.select("row").unique().join(edges, on="row", how="left").with_columns(pl.col("first", "last").fill_null(end))
        )
        before = edges.filter(pl.col("first") > 0).select("row", begin=pl.lit(0, pl.Int64), end="first", value=pl.lit(0.0))
        after = edges.filter(pl.col("last") < end).select("row", begin="last", end=pl.lit(end, pl.Int64), value=pl.lit(0.0))
        return pl.concat([one.select(list(STEP_SCHEMA)) for one in (found, before, after)]).sort("row", "begin")

    def _raised(self, window: Window, found: pl.DataFrame, level: str) -> pl.DataFrame:
        """Steps of a level combined up to the level of a window."""
        while level != window.level:
            above = LEVELS[LEVELS.index(level) - 1]
            if above not in (_TASKS, _APPLICATION):
                raise NotDrawn(f"rows of level {window.level}")
            group = self._tasks if above == _TASKS else self._tasks.select(row="task", task=pl.lit(0, pl.Int64)).unique()
            found = _joined(found.join(group, on="row", how="left"), window.functions[above])
            found = _composed(found, window, f"compose_{above}")
            level = above
        return found

    def _derived(self, window: Window) -> pl.DataFrame:
        factors = [float(one) for one in window.values.get("window_factors", "1 1").split()]
        first, second = (
            self.steps(parent).with_columns(pl.col("value") * factor)
            for parent, factor in zip(window.parents, factors, strict=True)
        )
        # Windows are combined at their own level, and then raised.
        level, other = (self.level(parent) for parent in window.parents)
        if level != other:
            raise NotDrawn("windows of two levels that are combined")
        operations: Mapping[str, pl.Expr] = {
            "add": pl.col("value") + pl.col("other"),
            "substract": pl.col("value") - pl.col("other"),
            "product": pl.col("value") * pl.col("other"),
            "maximum": pl.max_horizontal("value", "other"),
            "minimum": pl.min_horizontal("value", "other"),
        }
        if window.operation not in operations:
            raise NotDrawn(f"the operation {window.operation}")
        combined = _overlaid(first, second).select("row", "begin", "end", value=operations[window.operation])
        combined = self._raised(window, combined, level)
        shown = self._threads(window)
        rows = {_THREADS: shown["row"], _TASKS: shown["task"].unique()}.get(window.level)
        return combined if rows is None else combined.filter(pl.col("row").is_in(rows.to_list()))


def _nested(pairs: pl.DataFrame, *, stacked: bool) -> pl.Series:
    """For each pair (in order, by row): the number of ranges open after it, or the value of the innermost one."""
    opens = pl.col("value") != 0
    depth = pl.when(opens).then(1).otherwise(-1).cum_sum().over("row")
    if not stacked:
        return pairs.select(depth=depth.clip(0))["depth"]
    # After an end the innermost range is the last one that was opened at this depth.
    pairs = pairs.with_columns(depth=depth)
    last = pl.when(opens).then("value").forward_fill().over("row", "depth")
    return pairs.select(value=pl.when(pl.col("depth") > 0).then(last).otherwise(0))["value"]


def _composed(found: pl.DataFrame, window: Window, what: str) -> pl.DataFrame:
    """Steps with a compose function of the window."""
    function = window.functions[what]
    value = pl.col("value")
    length = (pl.col("end") - pl.col("begin")).cast(pl.Float64)
    simple: dict[str, Callable[[], pl.Expr]] = {
        "As Is": lambda: value,
        "Sign": lambda: value.sign(),
        "1-Sign": lambda: 1 - value.sign(),
        "Burst Time": lambda: length,
        "Enumerate": lambda: (value != 0).cum_sum().over("row").cast(pl.Float64),
        "log N": lambda: (
            pl.when(value > 1).then(value.log(float(window.values[f"parameters of {what}"].split()[1]))).otherwise(0)
        ),
        "Prod": lambda: value * float(window.values[f"parameters of {what}"].split()[1]),
        "Add": lambda: value + float(window.values[f"parameters of {what}"].split()[1]),
    }
    if function == "Join Bursts":
        return _without_repeats(found)
    if function not in simple:
        raise NotDrawn(f"the function {function}")
    return found.with_columns(value=simple[function]())


def _without_repeats(found: pl.DataFrame) -> pl.DataFrame:
    """Consecutive steps of the same value joined."""
    changed = (pl.col("value") != pl.col("value").shift(1)) | (pl.col("row") != pl.col("row").shift(1))
    run = changed.fill_null(True).cum_sum()
    joined = found.group_by("row", run.alias("run"), maintain_order=True)
    return joined.agg(pl.col("begin").first(), pl.col("end").last(), pl.col("value").first()).select(list(STEP_SCHEMA))


def _overlaid(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """Both windows cut where either changes: columns of STEP_SCHEMA, and `other`, the value of the second."""
    rows = first["row"].unique().sort()
    both = [one.join(rows.to_frame(), on="row", how="semi") for one in (first, second)]
    ends = first.group_by("row").agg(last=pl.col("end").max())
    grid = pl.concat([one.select("row", "begin") for one in both]).unique().sort("begin", "row")
    for one, name in zip(both, ("value", "other"), strict=True):
        values = one.select("row", "begin", pl.col("value").alias(name)).sort("begin", "row")
        grid = grid.join_asof(values, on="begin", by="row", check_sortedness=False)
    return (
        grid.sort("row", "begin")
        .join(ends, on="row", how="left", maintain_order="left")
        .with_columns(end=pl.col("begin").shift(-1).over("row").fill_null(pl.col("last")))
        .with_columns(pl.col("value", "other").fill_null(0.0))
        .select("row", "begin", "end", "value", "other")
    )


def _joined(found: pl.DataFrame, function: str) -> pl.DataFrame:
    """Steps of rows combined by the row above them: columns of STEP_SCHEMA; `task` is the row above each."""
    functions: dict[str, pl.Expr] = {
        "Adding": pl.col("value").sum(),
        "AddingSign": pl.col("value").sum().sign(),
        "Maximum": pl.col("value").max(),
        "Minimum": pl.col("value").min(),
    }
    if function not in functions:
        raise NotDrawn(f"the function {function}")
    times = found.select("task", "begin").unique()
    members = found.select("task", "row").unique()
    grid = times.join(members, on="task").sort("begin", "row")
    values = grid.join_asof(
        found.select("row", "begin", "value").sort("begin", "row"), on="begin", by="row", check_sortedness=False
    )
    ends = found.group_by("task").agg(last=pl.col("end").max())
    return (
        values.group_by("task", "begin")
        .agg(value=functions[function])
        .sort("task", "begin")
        .join(ends, on="task", how="left", maintain_order="left")
        .select(row="task", begin="begin", end=pl.col("begin").shift(-1).over("task").fill_null(pl.col("last")), value="value")
    )
