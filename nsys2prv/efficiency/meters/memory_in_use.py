"""Memory that processes have allocated on devices, over time, from the allocations and frees that were recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.meters.meter import TableMeter
from nsys2prv.efficiency.meters.time_bins import Bins
from nsys2prv.efficiency.result_tables import DEVICE, Column, Filled, OnPage, Table
from nsys2prv.efficiency.run_events import MEMORY_CHANGES
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk

GROUPS: Mapping[str, frozenset[str]] = {
    "device": frozenset({"Device", "Array", "Device static", "Unknown"}),
    "managed": frozenset({"Managed", "Managed static"}),
    "host": frozenset({"Pinned", "Pageable"}),
}
"""Where memory is, by the kind of nsys: on the device; managed, which moves between host and device; on the host."""
_NAMES = tuple(GROUPS)
_MEMORY = Column.text(
    "memory", "`device`; `managed`, which may be on the host; or `host`: pinned memory of processes that use it"
)

MEMORY_IN_USE = Table(
    "memory_in_use",
    "GPU memory in use",
    "one kind of memory of one device",
    (
        DEVICE,
        _MEMORY,
        Column.bytes("peak_bytes", "most that was allocated at once; what a pool or a framework keeps for later counts"),
        Column.moment("peak_at_ns", "when that was reached first"),
        Column.bytes("begin_bytes", "allocated at the start of the window"),
        Column.bytes("end_bytes", "allocated at its end"),
        Column.bytes("before_bytes", "of these, allocated before the recording, as far as it is known: what was freed without "
                     "an allocation that was recorded. All numbers of bytes are at least so large"),
        Column.count("allocations", "in the window"),
        Column.bytes("allocated_bytes", "sum of their sizes"),
        Column.count("frees", "in the window"),
        Column.bytes("freed_bytes", "sum of their sizes"),
    ),
    when="`nsys profile --cuda-memory-usage=true`",
    order=450,
    page=OnPage("memory", worst_first="peak_bytes"),
    is_later=True,
)  # fmt: skip
MEMORY_BINS = Table(
    "memory_bins",
    "GPU memory in use over time",
    "one kind of memory of one device in one bin",
    (
        DEVICE,
        _MEMORY,
        Column.count("bin", "as in `bins`"),
        Column.bytes("peak_bytes", "most that was allocated at once in it"),
        Column.bytes("end_bytes", "allocated at its end"),
    ),
    when="`nsys profile --cuda-memory-usage=true`",
    is_later=True,
)

_NOTHING = np.iinfo(np.int64).min
_SERIES = ["row", "number"]


@dataclass
class _Use:
    """What is in use of one kind of memory on one device, without what was there before: bytes `now` and at the `begin` of the
    window, in each bin the most and that at its end (_NOTHING: no change), and the most of all and when, ns."""

    bin_peak: Numbers
    bin_end: Numbers
    now: int = 0
    begin: int = 0
    peak: int = 0
    peak_at: int = 0
    allocations: Numbers = field(default_factory=lambda: np.zeros(2, dtype=np.int64))
    frees: Numbers = field(default_factory=lambda: np.zeros(2, dtype=np.int64))

    @classmethod
    def over(cls, bins: int) -> _Use:
        """Nothing yet, in so many bins."""
        return cls(np.full(bins, _NOTHING), np.full(bins, _NOTHING))

    def add(self, sums: Numbers, times: Numbers, bins: Numbers) -> None:
        """Changes of the window: what is in use after each."""
        np.maximum.at(self.bin_peak, bins, sums)
        # Of several in a bin the last one stays.
        self.bin_end[bins] = sums
        if (highest := int(sums.max())) > self.peak:
            self.peak, self.peak_at = highest, int(times[np.argmax(sums)])

    def over_time(self) -> tuple[Numbers, Numbers]:
        """The most in each bin, and that at its end; without a change it stays what it was."""
        changed = self.bin_end != _NOTHING
        last = np.maximum.accumulate(np.where(changed, np.arange(len(changed)), -1))
        end = np.where(last >= 0, self.bin_end[np.maximum(last, 0)], self.begin)
        return np.maximum(self.bin_peak, np.append(self.begin, end[:-1])), end


class MemoryInUse(TableMeter):
    """Sums of allocations less frees; it needs the chunks before the window, too.

    What was in use before the first event of a kind of memory on a row is known where the events say how much is in use (of a
    selected part of a recording); otherwise it is at least what was freed later without an allocation. It is added at the end,
    as it was there all the time.
    """

    def __init__(self, context: SweepContext, bins: Bins) -> None:
        self._context = context
        self._edges = bins.edges
        self._has_events = MEMORY_CHANGES.name in context.events.collections
        self._uses: dict[tuple[int, int], _Use] = {}
        # By row and kind: the sum so far, the least it was, and what was there before by what the first event says.
        self._series = pl.DataFrame(schema=dict.fromkeys((*_SERIES, "device", "group", "sum", "least", "before"), pl.Int64))
        labels = {number: names.label.rpartition(": ")[2] for number, names in context.events.types.items()}
        # The place in GROUPS of each event type.
        self._groups = {
            number: next((place for place, kinds in enumerate(GROUPS.values()) if label in kinds), 0)
            for number, label in labels.items()
        }

    def update(self, chunk: TimeChunk) -> None:
        is_after = not chunk.is_measured and chunk.begin >= self._context.events.length
        if not self._has_events or is_after or (changes := self._changes(chunk)).is_empty():
            return
        self._follow_series(changes)
        for (device, group), part in changes.partition_by("device", "group", as_dict=True, maintain_order=True).items():
            use = self._uses.setdefault((int(device), int(group)), _Use.over(len(self._edges) - 1))
            sums = np.cumsum(part["change"].to_numpy()) + use.now
            use.now = int(sums[-1])
            if not chunk.is_measured:
                use.begin = use.peak = use.now
                continue
            times = part["start"].to_numpy()
            bins = np.searchsorted(self._edges, times, side="right") - 1
            use.add(sums, times, np.minimum(bins, len(self._edges) - 2))
            for counts, name in ((use.allocations, "allocated"), (use.frees, "freed")):
                counts += (part[name].count(), int(part[name].sum()))

    def _changes(self, chunk: TimeChunk) -> pl.DataFrame:
        """Columns `row`, `number`, `device`, `group`, `start`, `allocated`, `freed`, `change`, and `value`: what is in use of
        the kind after it."""
        found = self._context.events.rows.located(chunk.started[MEMORY_CHANGES.name])
        known = pl.any_horizontal(pl.col("allocated", "freed").is_not_null()) & (pl.col("device") >= 0)
        return found.filter(known).select(
            pl.col(*_SERIES, "device", "start", "value", "allocated", "freed").cast(pl.Int64),
            group=pl.col("number").replace_strict(self._groups, default=0, return_dtype=pl.Int64),
            change=pl.col("allocated").fill_null(0) - pl.col("freed").fill_null(0),
        )

    def _follow_series(self, changes: pl.DataFrame) -> None:
        """Add changes to the sums by row and kind."""
        found = (
            changes.with_columns(sum=pl.col("change").cum_sum().over(_SERIES))
            .group_by(_SERIES, maintain_order=True)
            .agg(
                pl.col("device", "group").first(),
                pl.col("sum").last(),
                least=pl.col("sum").min(),
                before=pl.col("value").first() - pl.col("change").first(),
            )
        )
        both = found.join(self._series, on=_SERIES, how="left", suffix="_former")
        former = pl.col("sum_former").fill_null(0)
        now = both.select(
            *(*_SERIES, "device", "group"),
            sum=pl.col("sum") + former,
            least=pl.min_horizontal(pl.col("least") + former, pl.col("least_former").fill_null(0)),
            before=pl.coalesce("before_former", "before"),
        )
        self._series = pl.concat([now, self._series.join(now, on=_SERIES, how="anti")])

    def tables(self) -> Filled:
        """The tables `memory_in_use` and `memory_bins`."""
        if not self._uses:
            return {}
        at_least = pl.max_horizontal("before", -pl.col("least"), 0)
        known = self._series.group_by("device", "group").agg(at_least.sum().alias("before"))
        before = {(device, group): there for device, group, there in known.iter_rows()}
        rows, bins = [], []
        for (device, group), use in sorted(self._uses.items()):
            there = before[device, group]
            key = {"device": self._context.events.rows.devices[device].name, "memory": tuple(GROUPS)[group]}
            peak, end = use.over_time()
            rows.append(
                {
                    **key,
                    "peak_bytes": use.peak + there,
                    "peak_at_ns": use.peak_at,
                    "begin_bytes": use.begin + there,
                    "end_bytes": use.now + there,
                    "before_bytes": there,
                    "allocations": int(use.allocations[0]),
                    "allocated_bytes": int(use.allocations[1]),
                    "frees": int(use.frees[0]),
                    "freed_bytes": int(use.frees[1]),
                }
            )
            of_bins = pl.DataFrame({"bin": np.arange(len(end)), "peak_bytes": peak + there, "end_bytes": end + there})
            bins.append(of_bins.with_columns(**{name: pl.lit(text) for name, text in key.items()}))
        return {MEMORY_IN_USE: rows, MEMORY_BINS: pl.concat(bins)}
