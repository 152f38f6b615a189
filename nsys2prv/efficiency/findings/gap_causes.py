"""Causes of idle devices: gaps by the first rule whose condition they meet; time in allocation calls is counted apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from nsys2prv.efficiency.findings.aggregate import OccurrenceSums, part_of
from nsys2prv.efficiency.findings.device_stats import DeviceStats, by_device
from nsys2prv.efficiency.run_events import TypeNames
from nsys2prv.efficiency.sweep import KERNEL_TYPES, SweepContext
from nsys2prv.vocabulary import event_types

_NO_CAUSE = -1


@dataclass(frozen=True)
class GapCause:
    """The gaps that a rule counts: expressions over the columns of gaps (see `GapCauses`), costs in ns.

    A gap has at most one exclusive cause: that of the first rule it matches.
    """

    matches: pl.Expr
    cost: pl.Expr = field(default_factory=lambda: pl.col("length") - pl.col("allocation_ns"))
    sums: Mapping[str, pl.Expr] = field(default_factory=dict)
    is_exclusive: bool = True


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
    """

    def __init__(self, context: SweepContext, causes: Mapping[str, GapCause]) -> None:
        self._context = context
        self._causes = dict(causes)
        self._upload, self._download = (
            value_of(context.events.types, event_types.MEMORY_OPERATION, event_types.COPY_KINDS[kind]) for kind in (1, 2)
        )
        self._sums = {
            kind: OccurrenceSums(("device", "part"), ("count", "cost", *cause.sums)) for kind, cause in causes.items()
        }

    def update(self, gaps: pl.DataFrame) -> None:
        """Add gaps, as `Gaps` passes them to its listener."""
        # Gaps at the start and the end of the run, and those of unknown launching threads, have no known cause.
        inner = gaps.filter((pl.col("former_number") > 0) & pl.col("number").is_not_null() & (pl.col("unknown_ns") == 0))
        if inner.is_empty():
            return
        inner = inner.with_columns(**self._neighbours())
        exclusive: pl.Expr = pl.lit(_NO_CAUSE)
        for place, cause in reversed(list(enumerate(self._causes.values()))):
            if cause.is_exclusive:
                exclusive = pl.when(cause.matches).then(place).otherwise(exclusive)
        inner = inner.with_columns(cause=exclusive)
        for place, (kind, cause) in enumerate(self._causes.items()):
            matching = inner.filter(pl.col("cause") == place if cause.is_exclusive else cause.matches)
            self._sums[kind].add(
                matching.select(
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
            )

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


def value_of(types: Mapping[int, TypeNames], number: int, label: str) -> int:
    """Value of an event type with a label; -1: the run has none."""
    names = types.get(number)
    return next((value for value, text in (names.values or {}).items() if text == label), -1) if names else -1
