"""Compute-absent time: the time in which no compute kernel runs on a device, divided into its causes without a rest.

It is a row for each gap between compute kernels, which `absent_pieces` cuts into pieces of one part each; here pieces are added
up: over devices, over what threads did, and inside NVTX ranges and iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from nsys2prv.efficiency.activity_times import SlotWindows, members_by_device, merged_windows
from nsys2prv.efficiency.graph.event_waits import EventEdges
from nsys2prv.efficiency.intervals import Numbers, search, time_by
from nsys2prv.efficiency.measured_run import KERNEL, KINDS_OF_NUMBER, LAUNCH, NO_CALL, OS, OTHER_CUDA, MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.meters import absent_tables as parts
from nsys2prv.efficiency.meters.absent_pieces import PiecesOfGaps
from nsys2prv.efficiency.meters.absent_tables import PART_COLUMNS, PARTS
from nsys2prv.efficiency.meters.gaps import blocks_of, gaps_between, longest_of, names_of_threads
from nsys2prv.efficiency.meters.nccl_stats import Nccl
from nsys2prv.efficiency.meters.regions import MOST_REGIONS, NamedRanges
from nsys2prv.efficiency.result_tables import Filled
from nsys2prv.efficiency.run_events import FUNCTION_SAMPLES, OFF_CPU_TIMES, RANGES
from nsys2prv.efficiency.steps import expanded
from nsys2prv.sources.host import call_chains
from nsys2prv.vocabulary import event_types

COMPUTE_TYPES = tuple(number for number, kind in KINDS_OF_NUMBER.items() if kind == KERNEL)
"""Event types of compute kernels, and of graphs."""
MOST_STARVED = 1_000_000
"""Times in which devices are launch-starved beside NCCL kernels that are looked at one by one."""
_STARVED_PARTS = [parts.PART_OF_ACTIVITY[activity] for activity in (LAUNCH, OTHER_CUDA, OS, NO_CALL)]
_WHILE_NCCL = [place for place, text in enumerate(parts.WHILE) if text and "NCCL" in text]
_NCCL_PARTS = [parts.PART_LATE, parts.PART_TRANSFER, parts.PART_COMMUNICATION]
_LENGTH = pl.col("end") - pl.col("begin")
_PART_KEY = ["device", "part", "detail", "task", "number", "value", "source", "destination"]
_HOST_KEY = ["thread", "part", "call_number", "call_value", "range_number", "range_value"]
_FUNCTION_KEY = ["thread", "part", "function", "module"]
_SLOT_KEY = ["slot", "device", "part"]


@dataclass(frozen=True)
class AbsentTime(Measurement):
    """Compute-absent time of all devices.

    Attributes
    ----------
    by_part
        By device, part, detail and attributes of what was waited for: `count` of gaps, `total` and `longest` (ns).
    by_host
        Launch-starved time (`total`, and `off_cpu` of it, ns) by thread, part, call and NVTX range.
    by_function
        `samples` of functions in this time.
    off_cpu
        Of each device the time of PART_HOST in which the launching thread was off its CPU, ns.
    longest
        The longest gaps, with their parts.
    iterations, regions
        Columns `slot`, `device`, `elapsed` and PART_COLUMNS, ns; the regions are None without `--regions`.
    waits_for_nccl
        Pieces (`device`, `begin`, `end`) in which the next compute kernel waits for an NCCL kernel (`row`, `start`), with
        their `part`.
    starved_beside_nccl
        When devices are launch-starved while NCCL kernels run on them: the next kernel could run beside the collective, and is
        not launched. Where the launching thread waits for the device, or moves memory, it may wait for the collective: that
        does not count. `device`, `row` of the launching thread, `begin`, `end` (ns); None: they are too many.
    """

    run: MeasuredRun
    by_part: pl.DataFrame
    by_host: pl.DataFrame
    by_function: pl.DataFrame
    off_cpu: Numbers
    longest: pl.DataFrame
    iterations: pl.DataFrame
    regions: pl.DataFrame | None
    waits_for_nccl: pl.DataFrame
    starved_beside_nccl: pl.DataFrame | None

    def tables(self) -> Filled:
        """The tables of compute-absent time."""
        filled: Filled = {
            parts.ABSENT_TIME: self._by_device(),
            parts.ABSENT_ITERATIONS: self._of_windows(self.iterations.head(parts.MOST_ITERATION_ROWS), "slot"),
            parts.ABSENT_PARTS: self._details(),
            parts.ABSENT_CALLS: self._host_rows("call", "part").with_columns(part=_titles("part")),
            parts.ABSENT_FUNCTIONS: self._functions(),
            parts.ABSENT_STRETCHES: self._longest_gaps(),
        }
        if self.by_host["range_number"].null_count() < self.by_host.height:
            filled = {**filled, parts.ABSENT_RANGES: self._host_rows("range")}
        return filled if self.regions is None else {**filled, parts.ABSENT_REGIONS: self._regions(self.regions)}

    def _by_device(self) -> pl.DataFrame:
        """Columns of the table `absent_time`."""
        run, rows = self.run, self.run.events.rows
        device, part, total = (self.by_part[name].to_numpy() for name in ("device", "part", "total"))
        sums = np.zeros((len(rows.devices), len(PARTS)), dtype=np.int64)
        np.add.at(sums, (device, part), total)
        is_scheduled = _is_scheduled(run)
        tasks = [list(rows.tasks_of_device.get(device, ())) for device in range(len(rows.devices))]
        of_devices = pl.Series([bool(is_scheduled[of_device].any()) for of_device in tasks], dtype=pl.Boolean)
        frame = pl.DataFrame(dict(zip(PART_COLUMNS, sums.T, strict=True))).with_row_index("device")
        elapsed = pl.Series("elapsed", np.full(frame.height, run.events.length))
        return _with_totals(frame.with_columns(elapsed)).with_columns(
            device=run.device_names(pl.col("device")), off_cpu_ns=pl.when(of_devices).then(pl.Series(self.off_cpu))
        )

    def _of_windows(self, sums: pl.DataFrame, slot: str) -> pl.DataFrame:
        return _with_totals(sums).with_columns(device=self.run.device_names(pl.col("device")), iteration=slot)

    def _regions(self, regions: pl.DataFrame) -> pl.DataFrame:
        """Columns of the table `absent_regions`, the longest regions first."""
        by_slot = regions.group_by("slot").agg(pl.col("elapsed").sum())
        longest = by_slot.sort("elapsed", "slot", descending=[True, False]).head(MOST_REGIONS).with_row_index("order")
        regions = regions.join(longest.select("slot", "order"), on="slot").sort("order", "device")
        names = NamedRanges(self.run.events, self.run.options.regions or ()).names
        texts = pl.DataFrame(names, schema={"region": pl.String, "domain": pl.String}, orient="row")
        return self._of_windows(regions, "slot").with_columns(texts[regions["slot"].to_numpy()])

    def _details(self) -> pl.DataFrame:
        """Columns of the table `absent_parts`, those with most time first."""
        run, by_part, part = self.run, self.by_part, pl.col("part")
        kinds = run.events.types.get(event_types.SOURCE_MEMORY), run.events.types.get(event_types.DESTINATION_MEMORY)
        source, destination = (
            pl.col(name).replace_strict((kind.values if kind else None) or {}, default=None, return_dtype=pl.String)
            for name, kind in zip(("source", "destination"), kinds, strict=True)
        )
        no_launch = parts.NO_LAUNCHES if run.events.launches is None else parts.NO_LAUNCH
        reason = pl.when(pl.col("detail") == parts.NO_LAUNCH).then(no_launch).otherwise("detail")
        texts = (
            pl.when(part == parts.PART_LATE).then(run.task_names(pl.col("task")))
            .when(part == parts.PART_COMMUNICATION).then(_text(pl.col("detail"), parts.UNDIVIDED))
            .when(part == parts.PART_UNDECIDED).then(_text(reason, tuple(parts.REASONS)))
            .when(part == parts.PART_QUEUED).then(_text(pl.col("detail"), parts.BESIDE))
            .when(pl.col("number").is_null()).then(_text(pl.col("detail"), parts.WHILE))
            .when(part == parts.PART_COPY).then(
                pl.concat_str("named", pl.format(" from {}", source), pl.format(" to {}", destination), ignore_nulls=True))
            .otherwise("named")
        )  # fmt: skip
        return (
            by_part.with_columns(named=run.events.named(by_part["number"], by_part["value"]))
            .group_by("device", "part", detail=texts)
            .agg(pl.col("count").sum(), total_ns=pl.col("total").sum(), longest_ns=pl.col("longest").max())
            .sort("total_ns", "device", "part", "detail", descending=[True, False, False, False], nulls_last=True)
            .with_columns(device=run.device_names(pl.col("device")), part=_titles("part"))
        )

    def _host_rows(self, name: str, *key: str) -> pl.DataFrame:
        """Launch-starved time by thread and `name` (call, range), most first; with its `task` and `thread`."""
        run, named = self.run, [f"{name}_number", f"{name}_value"]
        order = ["thread", *named, *key]
        sums = self.by_host.group_by(order).agg(total_ns=pl.col("total").sum(), off_cpu_ns=pl.col("off_cpu").sum())
        sums = sums.sort("total_ns", *order, descending=[True, *[False] * len(order)]).head(parts.MOST_HOST_ROWS)
        is_scheduled = pl.lit(pl.Series(_is_scheduled(run)[run.events.rows.task[run.callers]])).gather("thread")
        return sums.with_columns(
            run.events.named(*sums.select(named)).alias(name),
            off_cpu_ns=pl.when(is_scheduled).then("off_cpu_ns"),
            **names_of_threads(run, pl.col("thread")),
        )

    def _functions(self) -> pl.DataFrame:
        """Columns of the table `absent_functions`, the functions with most samples first."""
        run, sums = self.run, self.by_function
        rows = sums.sort("samples", *_FUNCTION_KEY, descending=[True, *[False] * len(_FUNCTION_KEY)])
        rows = rows.head(parts.MOST_HOST_ROWS)
        names = {
            name: run.events.named(pl.repeat(int(number), rows.height, dtype=pl.Int64, eager=True), rows[name])
            for name, number in (("function", call_chains.SAMPLED_FUNCTION), ("module", call_chains.SAMPLED_MODULE))
        }
        share = pl.col("samples") / max(int(sums["samples"].sum()), 1)
        return rows.with_columns(**names_of_threads(run, pl.col("thread")), **names, part=_titles("part"), share=share)

    def _longest_gaps(self) -> pl.DataFrame:
        """Columns of the table `absent_stretches`."""
        run, longest = self.run, self.longest
        following = run.operations.select(pl.col("number", "value").gather(pl.lit(longest["next"].replace(-1, None))))
        return longest.select(
            *PART_COLUMNS,
            device=run.device_names(pl.col("device")),
            begin_ns="begin",
            end_ns="end",
            length_ns="length",
            next=run.events.named(following["number"], following["value"]),
            launched_ns="launched",
            **names_of_threads(run, pl.col("thread")),
        )


def measure_absent_time(run: MeasuredRun) -> AbsentTime:
    """Time without computation of all devices, by its parts."""
    computing = run.on_devices.where(run.on_devices.counts[KERNEL] > 0)
    gaps = gaps_between(run, computing, run.operations["number"].is_in(COMPUTE_TYPES).to_numpy())
    pieces_of_gaps = PiecesOfGaps(run, run.measured(Nccl), run.measured(EventEdges))
    sums = _Sums(run)
    for block in blocks_of(gaps):
        sums.add(block, *pieces_of_gaps.of_gaps(block))
    return sums.measured()


# -- sums of pieces ----------------------------------------------------------------------------------


@dataclass
class _Sums:
    """Sums of the pieces of blocks of gaps."""

    run: MeasuredRun
    by_part: list[pl.DataFrame] = field(default_factory=list)
    by_host: list[pl.DataFrame] = field(default_factory=list)
    by_function: list[pl.DataFrame] = field(default_factory=list)
    longest: list[pl.DataFrame] = field(default_factory=list)
    waits_for_nccl: list[pl.DataFrame] = field(default_factory=list)
    starved: list[pl.DataFrame] = field(default_factory=list)

    def __post_init__(self) -> None:
        run = self.run
        self._off_cpu: Numbers = np.zeros(len(run.events.rows.devices), dtype=np.int64)
        self._iterations, self._regions = _PartsInWindows(_iterations(run)), _PartsInWindows(_regions(run))
        samples = run.frame(FUNCTION_SAMPLES).drop_nulls("function")
        thread = pl.Series(run.place_of_caller[samples["row"].to_numpy()], dtype=pl.Int32)
        samples = samples.select("start", "function", "module", thread=thread).filter(pl.col("thread") >= 0)
        self._samples = samples.sort("thread", "start", "function", "module")

    def add(self, gaps: pl.DataFrame, pieces: pl.DataFrame, starved: pl.DataFrame) -> None:
        """Add gaps in the order of device and time, with what `PiecesOfGaps.of_gaps` returns for them."""
        pieces = pieces.with_columns(gaps["device"].gather(pieces["gap"]))
        attributes = self.run.operations.select(
            pl.col("number", "value", "source", "destination", "row", "start").gather(pl.lit(pieces["operation"]))
        )
        pieces = pieces.with_columns(attributes)
        of_gap = pieces.group_by("gap", *_PART_KEY).agg(total=_LENGTH.sum())
        count = pl.len().cast(pl.Int64)
        self.by_part.append(
            of_gap.group_by(_PART_KEY).agg(count=count, longest=pl.col("total").max(), total=pl.col("total").sum())
        )
        waits = pieces.filter(pl.col("part").is_in(_NCCL_PARTS))
        self.waits_for_nccl.append(waits.select("device", "row", "start", "begin", "end", "part"))
        ordered = pieces.select("device", "begin", "end", "part").sort("device", "begin")
        self._iterations.add(ordered)
        self._regions.add(ordered)
        self._add_longest(gaps, pieces)
        self._add_starved(starved)

    def _add_longest(self, gaps: pl.DataFrame, pieces: pl.DataFrame) -> None:
        longest = longest_of(gaps.with_columns(length=_LENGTH).with_row_index("gap"), parts.MOST_STRETCHES)
        place: Numbers = np.full(gaps.height, -1, dtype=np.int64)
        place[longest["gap"].to_numpy()] = np.arange(longest.height)
        of_piece = place[pieces["gap"].to_numpy()]
        theirs = pieces.filter(of_piece >= 0)
        lengths = theirs.select(_LENGTH).to_series().to_numpy()
        sums = time_by(theirs["part"].to_numpy().astype(np.int64), lengths, len(PARTS), of_piece[of_piece >= 0], longest.height)
        self.longest.append(longest.hstack(pl.DataFrame(dict(zip(PART_COLUMNS, sums.T, strict=True)))))

    def _add_starved(self, starved: pl.DataFrame) -> None:
        run = self.run
        calls = run.calls.select(pl.col("number", "value").gather(pl.lit(starved["call"].replace(-1, None))))
        ranges = run.frame(RANGES).select(pl.col("number", "value").gather(pl.lit(starved["range"].replace(-1, None))))
        of_hosts = starved.select(
            "device", "thread", "part", "off_cpu", total=_LENGTH,
            call_number=calls["number"], call_value=calls["value"], range_number=ranges["number"], range_value=ranges["value"],
        )  # fmt: skip
        off_cpu = pl.col("total").filter(pl.col("off_cpu") > 0).sum()
        self.by_host.append(of_hosts.group_by(_HOST_KEY).agg(pl.col("total").sum(), off_cpu=off_cpu))
        of_devices = of_hosts.filter(pl.col("part") == parts.PART_HOST).group_by("device").agg(off_cpu)
        self._off_cpu[of_devices["device"].to_numpy()] += of_devices["total"].to_numpy()
        self._add_functions(starved)
        beside_nccl = starved.filter(pl.col("part").is_in(_STARVED_PARTS) & pl.col("detail").is_in(_WHILE_NCCL))
        row = pl.Series(run.callers, dtype=pl.Int64).gather(beside_nccl["thread"])
        ordered = beside_nccl.select("device", "begin", "end", row=row).sort("device", "begin")
        # They are cut by what the thread did.
        is_new = (pl.col("begin") != pl.col("end").shift()) | (pl.col("device") != pl.col("device").shift())
        merged = ordered.group_by(is_new.fill_null(value=True).cum_sum().alias("run"), maintain_order=True).agg(
            pl.col("device", "row", "begin").first(), pl.col("end").last()
        )
        self.starved.append(merged.select(pl.col("device").cast(pl.Int64), "row", "begin", "end"))

    def _add_functions(self, starved: pl.DataFrame) -> None:
        """Count the samples in launch-starved time."""
        thread, time = (self._samples[name].to_numpy().astype(np.int64) for name in ("thread", "start"))
        window: Numbers = np.zeros(0, dtype=np.int64)
        place = window
        if len(thread):
            of_thread, begin, end = (starved[name].to_numpy().astype(np.int64) for name in ("thread", "begin", "end"))
            first = search(thread, time, of_thread, begin - 1) + 1
            window, place = expanded(first, search(thread, time, of_thread, end - 1))
        samples = self._samples[place].with_columns(starved["part"].gather(window))
        self.by_function.append(samples.group_by(_FUNCTION_KEY).agg(samples=pl.len().cast(pl.Int64)))

    def measured(self) -> AbsentTime:
        """The sums of all blocks."""
        total = pl.col("total").sum()
        by_part = pl.concat(self.by_part).group_by(_PART_KEY).agg(pl.col("count").sum(), pl.col("longest").max(), total)
        starved = pl.concat(self.starved)
        return AbsentTime(
            run=self.run,
            by_part=by_part,
            by_host=pl.concat(self.by_host).group_by(_HOST_KEY).sum(),
            by_function=pl.concat(self.by_function).group_by(_FUNCTION_KEY).sum(),
            off_cpu=self._off_cpu,
            longest=longest_of(pl.concat(self.longest), parts.MOST_STRETCHES),
            iterations=self._iterations.sums(),
            regions=self._regions.sums() if self.run.options.regions else None,
            waits_for_nccl=pl.concat(self.waits_for_nccl),
            starved_beside_nccl=starved if starved.height <= MOST_STARVED else None,
        )


class _PartsInWindows:
    """Times of parts in windows (regions, iterations), by their slot and device.

    Windows of one slot and device do not overlap. A piece counts in all windows that it is in, cut at their edges.
    """

    def __init__(self, windows: SlotWindows) -> None:
        columns = {"slot": windows.slot, "device": windows.group, "begin": windows.begin, "end": windows.end}
        self._windows = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int64)).filter(pl.col("end") > pl.col("begin"))
        self._sums = [pl.DataFrame(schema={**dict.fromkeys(_SLOT_KEY, pl.Int64), "total": pl.Int64})]

    def add(self, pieces: pl.DataFrame) -> None:
        """Add pieces (`device`, `begin`, `end`, `part`), which do not overlap on a device, in the order of device and time."""
        windows = self._windows
        if windows.is_empty() or pieces.is_empty():
            return
        device, begin, end = (pieces[name].to_numpy().astype(np.int64) for name in ("device", "begin", "end"))
        windows = windows.filter(pl.col("device").is_between(int(device[0]), int(device[-1])))
        windows = windows.filter((pl.col("begin") < int(end.max())) & (pl.col("end") > int(begin.min())))
        of_device, since, until = (windows[name].to_numpy() for name in ("device", "begin", "end"))
        first = np.maximum(search(device, begin, of_device, since), 0)
        window, place = expanded(first, search(device, begin, of_device, until - 1))
        total = np.minimum(end[place], until[window]) - np.maximum(begin[place], since[window])
        inside = (device[place] == of_device[window]) & (total > 0)
        cut = windows.select("slot", "device")[window[inside]].with_columns(
            part=pieces["part"].gather(place[inside]).cast(pl.Int64), total=pl.Series(total[inside])
        )
        self._sums.append(cut.group_by(_SLOT_KEY).agg(pl.col("total").sum()))

    def sums(self) -> pl.DataFrame:
        """Columns `slot`, `device`, `elapsed` (ns in windows), and PART_COLUMNS, sorted."""
        by_part = (
            pl.concat(self._sums)
            .group_by("slot", "device")
            .agg(pl.col("total").filter(pl.col("part") == part).sum().alias(name) for part, name in enumerate(PART_COLUMNS))
        )
        lengths = self._windows.group_by("slot", "device").agg(elapsed=_LENGTH.sum())
        joined = lengths.join(by_part, on=["slot", "device"], how="left").sort("slot", "device")
        return joined.with_columns(pl.col(PART_COLUMNS).fill_null(0))


def _iterations(run: MeasuredRun) -> SlotWindows:
    """Iterations that lie in the window, of each device: where tasks of one device overlap they are one."""
    offset, length = run.events.offset, run.events.length
    iterations = run.window.iterations.iterations.select("begin", "end", slot="number", group="device")
    moved = iterations.with_columns(pl.col("begin", "end") - offset)
    return merged_windows(moved.filter((pl.col("begin") >= 0) & (pl.col("end") <= length)), len(run.events.rows.devices))


def _regions(run: MeasuredRun) -> SlotWindows:
    """Ranges of `--regions`, on the devices that their tasks use."""
    rows = run.events.rows
    nothing = pl.DataFrame(schema=dict.fromkeys(("slot", "group", "begin", "end"), pl.Int64))
    if not run.options.regions:
        return merged_windows(nothing, len(rows.devices))
    slots = NamedRanges(run.events, run.options.regions).slots
    ranges = run.frame(RANGES).join(slots, on=["number", "value"], how="inner")
    of_tasks = ranges.select("slot", "start", "end", task=pl.Series(rows.task[ranges["row"].to_numpy()], dtype=pl.Int64))
    on_devices = of_tasks.join(members_by_device(rows), on="task").rename({"member": "group", "start": "begin"})
    return merged_windows(on_devices, len(rows.devices))


# -- columns of tables -------------------------------------------------------------------------------


def _is_scheduled(run: MeasuredRun) -> np.ndarray:
    """Whether the scheduling of each task was recorded."""
    rows = run.events.rows
    is_scheduled = np.zeros(len(rows.tasks), dtype=bool)
    is_scheduled[rows.task[run.frame(OFF_CPU_TIMES)["row"].to_numpy()]] = True
    return is_scheduled


def _with_totals(sums: pl.DataFrame) -> pl.DataFrame:
    """PART_COLUMNS and `elapsed` with the columns `elapsed_ns`, `compute_ns`, `absent_ns`, `absent_share`."""
    totals = sums.with_columns(elapsed_ns=pl.col("elapsed"), absent_ns=pl.sum_horizontal(PART_COLUMNS))
    share = pl.when(pl.col("elapsed_ns") > 0).then(pl.col("absent_ns") / pl.col("elapsed_ns"))
    return totals.with_columns(compute_ns=pl.col("elapsed_ns") - pl.col("absent_ns"), absent_share=share)


def _titles(part: str) -> pl.Expr:
    return pl.lit(pl.Series([part.title for part in PARTS])).gather(part)


def _text(place: pl.Expr, texts: Sequence[str | None]) -> pl.Expr:
    """The text at a place; null at others."""
    return place.replace_strict(
        {number: text for number, text in enumerate(texts) if text}, default=None, return_dtype=pl.String
    )
