"""Parts of compute-absent time in windows: in the NVTX ranges of a name, or in an iteration, of each device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from nsys2prv.efficiency.activity_times import SlotWindows
from nsys2prv.efficiency.intervals import Numbers, search
from nsys2prv.efficiency.meters import absent_tables as parts
from nsys2prv.efficiency.meters.absent_tables import PARTS
from nsys2prv.efficiency.steps import expanded
from nsys2prv.execution.merging import Sums

_WINDOW_SCHEMA = dict.fromkeys(("slot", "device", "begin", "end"), pl.Int64)
_LENGTH_SCHEMA = dict.fromkeys(("slot", "device", "elapsed"), pl.Int64)
_SUM_SCHEMA = dict.fromkeys(("slot", "device", "part", "task", "total"), pl.Int64)
_SUM_KEY = ["slot", "device", "part", "task"]


class PartsInWindows:
    """Times of parts in windows, summed by slot (a region, an iteration) and device.

    Windows of one slot and device do not overlap. A piece counts in all windows that it is in, cut at their edges. Windows are
    kept until all pieces in them are known: until the device computes again.
    """

    def __init__(self) -> None:
        self._windows = pl.DataFrame(schema=_WINDOW_SCHEMA)
        self._lengths = Sums(_LENGTH_SCHEMA, ["slot", "device"])
        self._sums = Sums(_SUM_SCHEMA, _SUM_KEY)
        self._collectives: list[pl.DataFrame] = []

    def add_windows(self, windows: SlotWindows) -> None:
        """Add windows; their groups are devices."""
        columns = (windows.slot, windows.group, windows.begin, windows.end)
        found = pl.DataFrame(dict(zip(_WINDOW_SCHEMA, columns, strict=True)), schema=_WINDOW_SCHEMA)
        found = found.filter(pl.col("end") > pl.col("begin"))
        self._lengths.add(found.with_columns(elapsed=pl.col("end") - pl.col("begin")))
        self._windows = pl.concat([self._windows, found])

    def add(self, pieces: pl.DataFrame) -> None:
        """Add pieces, which do not overlap on a device: columns `device`, `begin`, `end`, `part`, `value`, `task`, and those
        that `divide` of `sums` needs."""
        if self._windows.is_empty():
            return
        cut = self._cut(pieces)
        is_collective = pl.col("part") == parts.PART_COMMUNICATION
        if (collectives := cut.filter(is_collective)).height:
            self._collectives.append(collectives)
        # Only of queued time beside other work it matters whose it is.
        is_beside = (pl.col("part") == parts.PART_QUEUED) & (pl.col("value") > 0)
        self._sums.add(_with_total(cut.filter(~is_collective).with_columns(task=pl.when(is_beside).then("task"))))

    def _cut(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """The parts of pieces that are in windows, with the column `slot`."""
        pieces = pieces.sort("device", "begin")
        device, begin, end = (pieces[name].to_numpy() for name in ("device", "begin", "end"))
        windows = self._windows.filter(pl.col("begin") < int(end.max(initial=0))) if len(end) else self._windows.clear()
        of_device, since, until = (windows[name].to_numpy() for name in ("device", "begin", "end"))
        if windows.is_empty():
            return pieces.clear().with_columns(slot=pl.lit(None, pl.Int64))
        first = np.maximum(search(device, begin, of_device, since), 0)
        window, place = expanded(first, search(device, begin, of_device, until - 1))
        cut_begin, cut_end = np.maximum(begin[place], since[window]), np.minimum(end[place], until[window])
        inside = (device[place] == of_device[window]) & (cut_end > cut_begin)
        chosen: pl.DataFrame = pieces[place[inside]]
        return chosen.with_columns(
            begin=pl.Series(cut_begin[inside]), end=pl.Series(cut_end[inside]), slot=windows["slot"][window[inside]]
        )

    def keep(self, since: Numbers) -> None:
        """Forget windows that end until their device computed last: `since` of each device, ns."""
        if self._windows.height:
            kept = self._windows["end"].to_numpy() > since[self._windows["device"].to_numpy()]
            self._windows = self._windows.filter(pl.Series(kept))

    def sums(self, divide: Callable[[pl.DataFrame], pl.DataFrame], event_waits: set[int]) -> pl.DataFrame:
        """Times of all slots and devices.

        Parameters
        ----------
        divide
            Divides pieces in which NCCL kernels were waited for, as late ranks, transfer, and what is not decidable of these;
            the column `slot` is kept.
        event_waits
            Tasks in which streams wait for events that were not recorded: their queued time beside other work is not decidable.

        Returns
        -------
        Columns `slot`, `device`, `elapsed` (ns in windows), and one by the name of each of PART_COLUMNS, sorted.
        """
        divided = [_with_total(divide(pl.concat(self._collectives)).with_columns(task=None))] if self._collectives else []
        found = pl.concat([self._sums.rows, *(frame.select(self._sums.rows.columns) for frame in divided)])
        is_missing = pl.col("task").is_in(sorted(event_waits))
        part = pl.when(is_missing).then(parts.PART_UNDECIDED).otherwise("part")
        by_part = found.group_by("slot", "device").agg(
            pl.col("total").filter(part == place).sum().alias(name) for place, name in enumerate(parts.PART_COLUMNS)
        )
        joined = self._lengths.rows.join(by_part, on=["slot", "device"], how="left").sort("slot", "device")
        return joined.with_columns(pl.col(parts.PART_COLUMNS).fill_null(0))


def _with_total(pieces: pl.DataFrame) -> pl.DataFrame:
    return pieces.with_columns(total=pl.col("end") - pl.col("begin")).select(
        pl.col(name).cast(dtype) for name, dtype in _SUM_SCHEMA.items()
    )


def part_sums(sums: pl.DataFrame) -> Numbers:
    """Columns of `PartsInWindows.sums` as a row of times by part for each row."""
    found: Numbers = sums.select(parts.PART_COLUMNS).to_numpy().reshape(-1, len(PARTS))
    return found
