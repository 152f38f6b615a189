"""Causes of idle devices: gaps by the first rule whose condition they meet; time in allocation calls is counted apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings.aggregate import NONE, OccurrenceSums, over_parts, part_of
from nsys2prv.efficiency.findings.device_stats import DeviceStats, by_device
from nsys2prv.efficiency.graph.changes import GAPS
from nsys2prv.efficiency.meters.gaps import CAUSE_COLUMNS
from nsys2prv.efficiency.run_events import TypeNames
from nsys2prv.efficiency.sweep import KERNEL_TYPES, SweepContext
from nsys2prv.execution.merging import Merging
from nsys2prv.vocabulary import event_types

NO_CAUSE, UNKNOWN_LAUNCH, AT_START = -1, -2, -3
"""Of a gap that no rule matches: its cause or its launch is not known, or it is the one before the first activity."""
NO_VALUE = -1
MOST_GAPS = 5_000_000
"""Gaps that are looked at one by one."""
_PENDING_ROWS = 20_000
_EACH = {"cause": pl.Int8, "device": pl.Int32, "row": pl.Int32, "begin": pl.Int64, "end": pl.Int64}


@dataclass(frozen=True)
class GapCause:
    """The gaps that a rule counts: expressions over the columns of gaps (see `GapCauses`), costs in ns.

    A gap has at most one exclusive cause: that of the first rule it matches. One that is not exclusive counts
    them beside others, but for those that it `dominates`: these are its own. `counts_names`: what follows them is kept, so that
    `GapCauses.names` can say how many different kernels that are.
    """

    matches: pl.Expr
    cost: pl.Expr = field(default_factory=lambda: pl.col("length") - pl.col("allocation_ns"))
    sums: Mapping[str, pl.Expr] = field(default_factory=dict)
    is_exclusive: bool = True
    dominates: pl.Expr | None = None
    counts_names: bool = False


class GapCauses:
    """Gaps of all devices by cause, for all rules that count gaps.

    Conditions and sums of causes are expressions over the columns that `Gaps` passes to its listener, and

    - `before_kernel`, `after_kernel`, `before_copy`, `after_copy`, `before_upload`, `after_upload`, `after_download`: what
      follows the gap, and what ended before it; uploads are copies to the device, downloads copies to the host;
    - `is_late`: what follows was launched after the gap had begun, so it could have run sooner;
    - `host`: time in which the launching thread is in neither CUDA nor MPI calls, ns.

    Parameters
    ----------
    causes
        By the kind of the rule, in the order in which they are tried.
    folder
        Where each gap is written for `each`; None: they are not kept.
    """

    def __init__(self, context: SweepContext, causes: Mapping[str, GapCause], folder: Path | None = None) -> None:
        self._context = context
        self._each: list[pl.DataFrame] | None = [] if folder is not None else None
        self._causes = dict(causes)
        self._upload, self._download = (
            value_of(context.events.types, event_types.MEMORY_OPERATION, event_types.COPY_KINDS[kind]) for kind in (1, 2)
        )
        self._sums = {
            kind: OccurrenceSums(("device", "part"), ("count", "cost", *cause.sums)) for kind, cause in causes.items()
        }
        self._all = OccurrenceSums(("cause", "device", "part"), ("count", "cost", *CAUSE_COLUMNS))
        self._names = {kind: _Names() for kind, cause in causes.items() if cause.counts_names}

    def update(self, gaps: pl.DataFrame) -> None:
        """Add gaps, as `Gaps` passes them to its listener."""
        if gaps.is_empty():
            return
        exclusive: pl.Expr = pl.lit(NO_CAUSE)
        for place, cause in reversed(list(enumerate(self._causes.values()))):
            if cause.is_exclusive:
                exclusive = pl.when(cause.matches).then(place).otherwise(exclusive)
        for place, cause in enumerate(self._causes.values()):
            if cause.dominates is not None:
                exclusive = pl.when(cause.matches & cause.dominates).then(place).otherwise(exclusive)
        # Of gaps at the start, and of those of unknown launching threads, no rule can know the cause.
        is_unknown = (pl.col("unknown_ns") > 0) | pl.col("number").is_null()
        chosen = pl.when(pl.col("former_number") == 0).then(AT_START).when(is_unknown).then(UNKNOWN_LAUNCH).otherwise(exclusive)
        gaps = gaps.lazy().with_columns(**self._neighbours()).with_columns(cause=chosen).collect(engine="in-memory")
        self._add_all(gaps)
        if self._each is not None:
            self._keep(gaps.filter(pl.col("cause") != AT_START), self._each)
        inner = gaps.filter(pl.col("cause") >= NO_CAUSE)
        matches = inner.select(
            (pl.col("cause") == place if cause.is_exclusive else cause.matches).fill_null(False).alias(kind)
            for place, (kind, cause) in enumerate(self._causes.items())
        )
        for kind, cause in self._causes.items():
            if not matches[kind].any():
                continue
            matching = inner.filter(matches[kind])
            occurrences = matching.select(
                "device",
                "begin",
                "thread",
                part=part_of(pl.col("begin"), self._context.events.length),
                count=1,
                cost=cause.cost,
                end="start",
                row="next_row",
                **cause.sums,
            )
            self._sums[kind].add(over_parts(occurrences, ("count", *cause.sums), self._context.events.length))
            if cause.counts_names:
                self._names[kind].add(matching.select("device", "number", "value").unique().cast(pl.Int64))

    def _add_all(self, gaps: pl.DataFrame) -> None:
        part = part_of(pl.col("begin"), self._context.events.length)
        begin, end = pl.col("begin"), pl.col("start")
        occurrences = gaps.select(
            "cause",
            "device",
            "begin",
            *CAUSE_COLUMNS,
            part=part,
            count=1,
            cost=end - begin,
            end=end,
            row=pl.col("next_row").fill_null(NONE),
            thread=pl.col("thread").fill_null(NONE),
        )
        self._all.add(over_parts(occurrences, ("count", *CAUSE_COLUMNS), self._context.events.length))

    def _keep(self, gaps: pl.DataFrame, frames: list[pl.DataFrame]) -> None:
        thread = gaps["thread"].fill_null(NONE).to_numpy()
        row = (
            np.where(thread >= 0, self._context.callers[np.maximum(thread, 0)], NONE) if len(self._context.callers) else thread
        )
        columns = {name: gaps[name].to_numpy() for name in ("cause", "device", "begin")}
        frames.append(pl.DataFrame({**columns, "row": row, "end": gaps["start"].to_numpy()}, schema=_EACH))

    def each(self, devices: Mapping[int, Sequence[int]]) -> pl.DataFrame | None:
        """The gaps (columns of `removals.GAPS`) of some causes (as of `all_gaps`), each on some devices.

        None: they are not kept, or too many.
        """
        if self._each is None:
            return None
        gaps = pl.concat([pl.DataFrame(schema=_EACH), *self._each])
        of_causes = [(pl.col("cause") == cause) & pl.col("device").is_in(list(on)) for cause, on in devices.items()]
        matching = gaps.filter(pl.any_horizontal(of_causes))
        return (
            None if matching.height > MOST_GAPS else matching.select(pl.col(name).cast(dtype) for name, dtype in GAPS.items())
        )

    @property
    def kinds(self) -> Sequence[str]:
        """Rules that count gaps, by their numbers in the column `cause` of `all_gaps`."""
        return tuple(self._causes)

    @property
    def numbers(self) -> Sequence[int]:
        """All that the column `cause` can be of gaps after the first activity."""
        return (NO_CAUSE, UNKNOWN_LAUNCH, *range(len(self._causes)))

    def all_gaps(self) -> pl.DataFrame:
        """All gaps but those at the end: sums by `cause` (a place in `kinds`, or NO_CAUSE, UNKNOWN_LAUNCH, AT_START), `device`
        and `part`; columns as of `OccurrenceSums.frame`: `count`, `cost` (their length, ns) and CAUSE_COLUMNS."""
        return self._all.frame()

    def names(self, kind: str, devices: Sequence[int]) -> int:
        """How many different kernels (by device) follow the gaps of a rule that has `counts_names`."""
        return self._names[kind].rows.filter(pl.col("device").is_in(devices)).height

    def frame(self, kind: str) -> pl.DataFrame:
        """Sums of the gaps of a rule by device and part of the run, as of `OccurrenceSums.frame`."""
        return self._sums[kind].frame()

    def by_device(self, kind: str, *, worst: Literal["part", "occurrence"] = "part") -> list[DeviceStats]:
        """Statistics of the gaps of a rule; see `device_stats.by_device`."""
        return by_device(self._context, self.frame(kind), tuple(self._causes[kind].sums), worst=worst)

    def _neighbours(self) -> dict[str, pl.Expr]:
        is_copy, was_copy = (pl.col(name) == event_types.MEMORY_OPERATION for name in ("number", "former_number"))
        return {
            "before_kernel": pl.col("number").is_in(KERNEL_TYPES),
            "after_kernel": pl.col("former_number").is_in(KERNEL_TYPES),
            "before_copy": is_copy,
            "after_copy": was_copy,
            "before_upload": is_copy & (pl.col("value") == self._upload),
            "after_upload": was_copy & (pl.col("former_value") == self._upload),
            "after_download": was_copy & (pl.col("former_value") == self._download),
            "is_late": pl.col("launched") >= pl.col("begin"),
            "host": pl.col("host_ns") + pl.col("os_ns"),
        }


class _Names(Merging):
    """Different kernels by device."""

    def __init__(self) -> None:
        empty = pl.DataFrame(schema=dict.fromkeys(("device", "number", "value"), pl.Int64))
        super().__init__(lambda rows: rows.unique(maintain_order=True), empty, _PENDING_ROWS)


def value_of(types: Mapping[int, TypeNames], number: int, label: str) -> int:
    """Value of an event type with a label; NO_VALUE: the run has none."""
    names = types.get(number)
    return next((value for value, text in (names.values or {}).items() if text == label), NO_VALUE) if names else NO_VALUE
