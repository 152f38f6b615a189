"""The iterations of a run: found by NVTX where a range repeats, else by what repeats on devices; and its steady part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.run_events import ON_DEVICES, RunEvents
from nsys2prv.efficiency.window.device_work import WorkGroups, whole_span
from nsys2prv.efficiency.window.kernel_period import period_iterations
from nsys2prv.efficiency.window.repeated_ranges import range_iterations
from nsys2prv.efficiency.window.usual_lengths import unusual_lengths, warm_up_iterations

BY_KERNELS = "period of kernels"
"""How iterations were found where no range repeats."""
_OTHER = 0.5
"""Share of the iterations of most devices that a device has at least, and by which it has more at most."""

Span = tuple[int, int]
"""Begin and end, ns from the start of the trace."""
SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("number", "task", "device", "begin", "end"), pl.Int64),
    "is_warm_up": pl.Boolean,
}
"""Columns of iterations: `number` from 0, the same on all devices; places of the task and the device in `RunEvents.rows`;
`begin` and `end` in ns from the start of the trace. An iteration begins with the first work on its device, and ends where the
next one begins."""


@dataclass(frozen=True)
class RunIterations:
    """What repeats in a run.

    Attributes
    ----------
    iterations
        Columns of SCHEMA, sorted by `number`, `task`, `device`: a row for each device and each task that uses it.
    how, reason
        How they were found: `nvtx NAME` (`#` for numbers that differ) or BY_KERNELS; or why there are none. One is None.
    work
        First start and last end of what runs on any device; None: nothing does.
    steady
        The iterations without those of the warm-up; None: nothing repeats.
    """

    iterations: pl.DataFrame
    how: str | None
    reason: str | None
    work: Span | None
    steady: Span | None

    @property
    def lengths(self) -> pl.DataFrame:
        """Columns `number`, `begin`, `end` (first and last over devices), `tasks`, `shortest`, `median`, `longest` (ns),
        `is_warm_up`, and `is_slow`: longer than usual, and no warm-up."""
        length = pl.col("end") - pl.col("begin")
        by_number = (
            self.iterations.group_by("number")
            .agg(
                pl.col("begin").min(),
                pl.col("end").max(),
                tasks=pl.col("task").n_unique().cast(pl.Int64),
                shortest=length.min(),
                median=length.median(),
                longest=length.max(),
                is_warm_up=pl.col("is_warm_up").first(),
            )
            .sort("number")
        )
        usual = by_number.filter(~pl.col("is_warm_up"))["median"].to_numpy()
        most = unusual_lengths(usual)[1] if len(usual) else np.inf
        return by_number.with_columns(is_slow=~pl.col("is_warm_up") & (pl.col("longest") > most))

    def as_json(self) -> dict[str, Any]:
        """How they were found, or why not; their number, and how many of them are warm-up."""
        numbers = self.iterations.unique("number")
        return {"how": self.how, "reason": self.reason, "count": numbers.height, "warm_up": int(numbers["is_warm_up"].sum())}


def find_iterations(events: RunEvents, requested: str | None = None) -> RunIterations:
    """The iterations of a run. Its collections are looked at and not used up.

    Parameters
    ----------
    events
        With the collections ON_DEVICES and RANGES.
    requested
        NAME or NAME@DOMAIN of the NVTX ranges that are iterations; None: they are looked for.
    """
    on_devices = events.collections.get(ON_DEVICES.name)
    work = whole_span([on_devices]) if on_devices is not None else None
    groups = WorkGroups(events)
    if work is None or not len(groups):
        return RunIterations(pl.DataFrame(schema=SCHEMA), None, "no device works", work, None)
    found, name = range_iterations(events, groups, requested)
    how, reason = (f"nvtx {name}" if name else None), None
    if name is None and requested is not None:
        return RunIterations(pl.DataFrame(schema=SCHEMA), None, f"no work is launched in NVTX ranges {requested}", work, None)
    if name is None:
        found, reason = period_iterations(events, groups)
        how = BY_KERNELS if reason is None else None
    if found.is_empty():
        return RunIterations(pl.DataFrame(schema=SCHEMA), None, reason, work, None)
    numbered = _with_warm_up(_numbered(found, by_time=name is None))
    located = numbered.with_columns(
        task=pl.Series(groups.task[numbered["group"].to_numpy()]), device=pl.Series(groups.device[numbered["group"].to_numpy()])
    )
    iterations = located.select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items()).sort("number", "task", "device")
    usual = iterations.filter(~pl.col("is_warm_up"))
    steady = int(usual["begin"].min()), int(usual["end"].max())  # type: ignore[arg-type]
    return RunIterations(iterations, how, reason, work, steady)


def _numbered(found: pl.DataFrame, *, by_time: bool) -> pl.DataFrame:
    """Iterations with numbers that mean the same one in all groups; groups in which something else repeats are left out.

    With `by_time` an iteration has the number of the one of the group with most of them that begins nearest, as a recording
    may begin within an iteration of some ranks.
    """
    parts = {int(group): part.sort("begin") for (group,), part in found.partition_by("group", as_dict=True).items()}
    sizes = {group: part.height for group, part in parts.items()}
    usual = float(np.median(list(sizes.values())))
    alike = {group: part for group, part in parts.items() if abs(part.height - usual) <= _OTHER * usual}
    reference = max(alike, key=lambda group: (sizes[group], -group))
    begins = alike[reference]["begin"].to_numpy()
    period = max(float(np.median(np.diff(begins))), 1.0) if len(begins) > 1 else 1.0
    frames = []
    for part in alike.values():
        numbers = part["number"].to_numpy()
        if by_time:
            own = part["begin"].to_numpy()
            both = min(len(own), len(begins))
            late = float(np.median(own[:both] - begins[:both])) / period
            numbers = np.arange(len(own)) + (round(late) if abs(late) > _OTHER else 0)
        frames.append(part.with_columns(number=pl.Series(numbers, dtype=pl.Int64)))
    together = pl.concat(frames)
    return together.with_columns(pl.col("number") - pl.col("number").min())


def _with_warm_up(found: pl.DataFrame) -> pl.DataFrame:
    """Which iterations are warm-up."""
    lengths = found.group_by("number").agg(length=(pl.col("end") - pl.col("begin")).median()).sort("number")
    warm_up = lengths["number"].head(warm_up_iterations(lengths["length"].to_numpy()))
    return found.with_columns(is_warm_up=pl.col("number").is_in(warm_up.to_list()))
