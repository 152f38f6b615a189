"""Compute-absent time: the time in which no compute kernel runs on a device, divided into its causes without a rest.

It is a row for each gap between compute kernels, which `absent_pieces` cuts into pieces of one part each; here pieces are added
up: over devices, over what threads did, and inside NVTX ranges and iterations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys2prv.efficiency import host_states
from nsys2prv.efficiency.activity_times import devices_of_tasks, merged_windows
from nsys2prv.efficiency.graph.cuda_waits import EventEdges
from nsys2prv.efficiency.intervals import NONE, Intervals, expanded, moments_inside, search
from nsys2prv.efficiency.measured_run import KERNEL, KINDS_OF_NUMBER, MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.meters import absent_tables as parts
from nsys2prv.efficiency.meters.absent_pieces import IS_IDLE, PiecesOfGaps
from nsys2prv.efficiency.meters.absent_tables import PART_COLUMNS, PARTS
from nsys2prv.efficiency.meters.gaps import blocks_of, gaps_between, longest_of, names_of_threads
from nsys2prv.efficiency.meters.nccl_stats import Nccl
from nsys2prv.efficiency.meters.regions import MOST_REGIONS, named_ranges
from nsys2prv.efficiency.result_tables import Filled
from nsys2prv.efficiency.run_events import FUNCTION_SAMPLES, RANGES
from nsys2prv.sources.host import call_chains
from nsys2prv.vocabulary import event_types

COMPUTE_TYPES = tuple(number for number, kind in KINDS_OF_NUMBER.items() if kind == KERNEL)
"""Event types of compute kernels, and of graphs."""
_WAITS_FOR_DEVICE = ("synchronization", "memory", "allocation", "mpi")
MOST_STARVED = 1_000_000
"""Times in which devices are launch-starved beside NCCL kernels that are looked at one by one."""
_STARVED_PARTS = [
    name for name, state in zip(parts.OF_STATES, host_states.NAMES, strict=True) if state not in _WAITS_FOR_DEVICE
]
_FOUND_PARTS = [parts.OF_STATES[state] for state in (host_states.COMMUNICATOR, host_states.CONTEXT, *host_states.WAITING)]
_NCCL_PARTS = ["late_rank", "transfer", "communication"]
_LENGTH = pl.col("end") - pl.col("begin")
_PART_KEY = ["device", "part", "detail", "task", "number", "value", "source", "destination"]
_HOST_KEY = ["thread", "part", "call_number", "call_value", "range_number", "range_value"]
_FUNCTION_KEY = ["thread", "part", "function", "module"]
_TITLE = pl.col("part").cast(pl.String).replace_strict(parts.TITLES, return_dtype=pl.String)
_NEVER = np.iinfo(np.int64).max


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
    of_hosts
        Pieces (`device`, `thread`, `begin`, `end`, `part`) in which the launching thread creates something, sleeps or waits.
    longest
        The longest gaps, with their parts.
    iterations, regions
        Columns `slot`, `device`, `elapsed` and PART_COLUMNS, ns.
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
    of_hosts: pl.DataFrame
    longest: pl.DataFrame
    iterations: pl.DataFrame
    regions: pl.DataFrame
    waits_for_nccl: pl.DataFrame
    starved_beside_nccl: pl.DataFrame | None

    def tables(self) -> Filled:
        """The tables of compute-absent time."""
        filled: Filled = {
            parts.ABSENT_TIME: self._by_device(),
            parts.ABSENT_REGIONS: self._longest_regions(),
            parts.ABSENT_ITERATIONS: self._of_windows(self.iterations.head(parts.MOST_ITERATION_ROWS)),
            parts.ABSENT_PARTS: self._details(),
            parts.ABSENT_CALLS: self._host_rows("call", "part").with_columns(part=_TITLE),
            parts.ABSENT_FUNCTIONS: self._functions(),
            parts.ABSENT_STRETCHES: self._longest_gaps(),
        }
        if self.by_host["range_number"].null_count() < self.by_host.height:
            filled = {**filled, parts.ABSENT_RANGES: self._host_rows("range")}
        return filled

    def _by_device(self) -> pl.DataFrame:
        """Columns of the table `absent_time`."""
        run, rows = self.run, self.run.events.rows
        scheduled = np.unique(rows.task[run.callers[run.is_scheduled]])
        users = [rows.tasks_of_device.get(device, ()) for device in range(len(rows.devices))]
        devices = pl.DataFrame(
            {"device": range(len(users)), "is_scheduled": [bool(np.isin(scheduled, tasks).any()) for tasks in users]},
            schema={"device": pl.Int32, "is_scheduled": pl.Boolean},
        ).with_columns(elapsed=pl.lit(run.events.length, pl.Int64))
        frame = _with_totals(_by_columns(self.by_part, devices, "device"))
        off_cpu = pl.when("is_scheduled").then("starved_off_cpu_ns")
        return frame.with_columns(device=run.device_names(pl.col("device")), off_cpu_ns=off_cpu)

    def _of_windows(self, sums: pl.DataFrame) -> pl.DataFrame:
        return _with_totals(sums).with_columns(device=self.run.device_names(pl.col("device")), iteration="slot")

    def _longest_regions(self) -> pl.DataFrame:
        """Columns of the table `absent_regions`, the longest regions first."""
        by_slot = self.regions.group_by("slot").agg(pl.col("elapsed").sum())
        longest = by_slot.sort("elapsed", "slot", descending=[True, False]).head(MOST_REGIONS).with_row_index("order")
        regions = self.regions.join(longest.select("slot", "order"), on="slot").sort("order", "device")
        names = named_ranges(self.run.events, self.run.options.regions or ()).select("slot", "region", "domain").unique("slot")
        return self._of_windows(regions.join(names, on="slot", how="left", maintain_order="left"))

    def _details(self) -> pl.DataFrame:
        """Columns of the table `absent_parts`, those with most time first."""
        run, by_part, part = self.run, self.by_part, pl.col("part")
        of_copies = _named(run, by_part, source=event_types.SOURCE_MEMORY, destination=event_types.DESTINATION_MEMORY)
        text = (
            pl.when(part == "late_rank").then(run.task_names(pl.col("task")))
            .when(part == "copy").then(
                pl.concat_str("named", pl.format(" from {}", "source"), pl.format(" to {}", "destination"), ignore_nulls=True))
            .otherwise(pl.coalesce(pl.col("detail").cast(pl.String), "named"))
        )  # fmt: skip
        return (
            by_part.with_columns(*of_copies, named=run.events.named(by_part["number"], by_part["value"]))
            .group_by("device", "part", detail=text)
            .agg(pl.col("count").sum(), total_ns=pl.col("total").sum(), longest_ns=pl.col("longest").max())
            .sort("total_ns", "device", "part", "detail", descending=[True, False, False, False], nulls_last=True)
            .with_columns(device=run.device_names(pl.col("device")), part=_TITLE)
        )

    def _host_rows(self, name: str, *key: str) -> pl.DataFrame:
        """Launch-starved time by thread and `name` (call, range), most first; with its `task` and `thread`."""
        run, named = self.run, [f"{name}_number", f"{name}_value"]
        order = ["thread", *named, *key]
        sums = self.by_host.group_by(order).agg(total_ns=pl.col("total").sum(), off_cpu_ns=pl.col("off_cpu").sum())
        sums = sums.sort("total_ns", *order, descending=[True, *[False] * len(order)]).head(parts.MOST_HOST_ROWS)
        is_scheduled = pl.lit(pl.Series(run.is_scheduled)).gather("thread")
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
        names = _named(run, rows, function=call_chains.SAMPLED_FUNCTION, module=call_chains.SAMPLED_MODULE)
        share = pl.col("samples") / max(int(sums["samples"].sum()), 1)
        return rows.with_columns(*names, **names_of_threads(run, pl.col("thread")), part=_TITLE, share=share)

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
    windows, samples = {"iterations": _iterations(run), "regions": _regions(run)}, _samples(run)
    sums: list[dict[str, pl.DataFrame]] = []
    for block in blocks_of(gaps):
        pieces, starved = pieces_of_gaps.of_gaps(block)
        ordered = pieces.with_columns(block["device"].gather(pieces["gap"])).sort("device", "begin")
        sums.append(
            {
                **_sums_of_pieces(run, ordered),
                **_sums_of_threads(run, starved),
                "by_function": _functions(samples, starved.filter(IS_IDLE)),
                "longest": _longest(block, pieces),
                **{name: _in_windows(ordered, of_slots) for name, of_slots in windows.items()},
            }
        )
    frames = {name: pl.concat(block[name] for block in sums) for name in sums[0]}
    total = pl.col("total").sum()
    frames |= {
        "by_part": frames["by_part"].group_by(_PART_KEY).agg(pl.col("count").sum(), pl.col("longest").max(), total),
        "by_host": frames["by_host"].group_by(_HOST_KEY).sum(),
        "by_function": frames["by_function"].group_by(_FUNCTION_KEY).sum(),
        "longest": longest_of(frames["longest"], parts.MOST_STRETCHES),
    }
    for name, of_slots in windows.items():
        lengths = of_slots.group_by("slot", "device").agg(elapsed=_LENGTH.sum())
        frames[name] = _by_columns(frames[name], lengths, "slot", "device").sort("slot", "device")
    starved = frames.pop("starved_beside_nccl")
    return AbsentTime(run=run, starved_beside_nccl=starved if starved.height <= MOST_STARVED else None, **frames)


# -- sums of the pieces of a block of gaps -----------------------------------------------------------


def _sums_of_pieces(run: MeasuredRun, pieces: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """`by_part` and `waits_for_nccl`, as of `AbsentTime`."""
    columns = pl.col("number", "value", "source", "destination", "row", "start")
    pieces = pieces.hstack(run.operations.select(columns.gather(pl.lit(pieces["operation"]))))
    of_gaps = pieces.group_by("gap", *_PART_KEY).agg(total=_LENGTH.sum())
    total = pl.col("total")
    by_part = of_gaps.group_by(_PART_KEY).agg(count=pl.len().cast(pl.Int64), longest=total.max(), total=total.sum())
    waits = pieces.filter(pl.col("part").is_in(_NCCL_PARTS) & pl.col("is_waited")).select(
        "device", "row", "start", "begin", "end", "part"
    )
    return {"by_part": by_part, "waits_for_nccl": waits}


def _longest(gaps: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """The longest gaps, with PART_COLUMNS."""
    longest = longest_of(gaps.with_columns(length=_LENGTH).with_row_index("gap"), parts.MOST_STRETCHES)
    of_longest = pieces.join(longest.select("gap"), on="gap", how="semi").group_by("gap", "part").agg(total=_LENGTH.sum())
    return _by_columns(of_longest, longest.with_columns(pl.col("gap").cast(pl.Int32)), "gap")


def _sums_of_threads(run: MeasuredRun, starved: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """`by_host`, `of_hosts` and `starved_beside_nccl`, as of `AbsentTime`."""
    beside_nccl = starved.filter(pl.col("part").is_in(_STARVED_PARTS) & (pl.col("nccl") != NONE))
    starved = starved.filter(IS_IDLE & (pl.col("part") != "start_up"))
    names = [
        events.select(
            pl.col(name).gather(pl.lit(starved[kind].replace(-1, None))).alias(f"{kind}_{name}") for name in ("number", "value")
        )
        for kind, events in (("call", run.calls), ("range", run.frame(RANGES)))
    ]
    of_hosts = pl.concat([starved.select("device", "thread", "part", "off_cpu", total=_LENGTH), *names], how="horizontal")
    off_cpu = pl.col("total").filter(pl.col("off_cpu") > 0).sum()
    row = pl.Series(run.callers, dtype=pl.Int64).gather(beside_nccl["thread"])
    return {
        "by_host": of_hosts.group_by(_HOST_KEY).agg(pl.col("total").sum(), off_cpu=off_cpu),
        "of_hosts": _joined(starved.filter(pl.col("part").is_in(_FOUND_PARTS)), "thread", "part"),
        "starved_beside_nccl": _joined(beside_nccl.with_columns(row=row), "row"),
    }


def _joined(pieces: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Pieces of devices with further columns; those that follow each other, and are alike in these, are one."""
    ordered = pieces.select(pl.col("device").cast(pl.Int64), "begin", "end", *columns).sort("device", "begin")
    follows = pl.all_horizontal(pl.col(name) == pl.col(name).shift() for name in ("device", *columns))
    is_new = ~(follows & (pl.col("begin") == pl.col("end").shift())).fill_null(value=False)
    joined = ordered.group_by(is_new.cum_sum().alias("run"), maintain_order=True)
    return joined.agg(pl.col("device", "begin", *columns).first(), pl.col("end").last()).drop("run")


def _functions(samples: pl.DataFrame, starved: pl.DataFrame) -> pl.DataFrame:
    """Numbers of `samples` (as of `_samples`) by thread, part and function in launch-starved time."""
    thread, time = (samples[name].to_numpy().astype(np.int64) for name in ("thread", "start"))
    window, place = moments_inside(thread, time, Intervals.of(*starved.select("thread", "begin", "end")))
    counted = samples[place].with_columns(starved["part"].gather(window))
    return counted.group_by(_FUNCTION_KEY).agg(samples=pl.len().cast(pl.Int64))


def _in_windows(pieces: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Times (`total`, ns) of parts in windows, by `slot`, `device` and `part`.

    Parameters
    ----------
    pieces
        Columns `device`, `begin`, `end`, `part`, in the order of device and time; they do not overlap on a device. A piece
        counts in all windows that it is in, cut at their edges.
    windows
        As of `_regions`.
    """
    device, begin, end = (pieces[name].to_numpy().astype(np.int64) for name in ("device", "begin", "end"))
    meets = (pl.col("begin") < int(end.max(initial=0))) & (pl.col("end") > int(begin.min(initial=_NEVER)))
    windows = windows.filter(meets & pl.col("device").is_in(pieces["device"].unique().implode()))
    of_device, since, until = (windows[name].to_numpy() for name in ("device", "begin", "end"))
    first = np.maximum(search(device, begin, of_device, since), 0)
    window, place = expanded(first, search(device, begin, of_device, until - 1))
    total = np.minimum(end[place], until[window]) - np.maximum(begin[place], since[window])
    inside = (device[place] == of_device[window]) & (total > 0)
    cut: pl.DataFrame = windows.select("slot", "device")[window[inside]]
    cut = cut.with_columns(pieces["part"].gather(place[inside]), total=pl.Series(total[inside]))
    return cut.group_by("slot", "device", "part").agg(pl.col("total").sum())


def _by_columns(sums: pl.DataFrame, rows: pl.DataFrame, *key: str) -> pl.DataFrame:
    """Rows with PART_COLUMNS from sums (`part`, `total`, ns), by a key."""
    of_parts = [pl.col("total").filter(pl.col("part") == part.name).sum().alias(part.column) for part in PARTS]
    joined = rows.join(sums.group_by(key).agg(of_parts), on=key, how="left", maintain_order="left")
    return joined.with_columns(pl.col(PART_COLUMNS).fill_null(0))


# -- of the run --------------------------------------------------------------------------------------


def _samples(run: MeasuredRun) -> pl.DataFrame:
    """CPU samples of calling threads with call chains: `thread`, `start`, `function`, `module`, in this order."""
    samples = run.frame(FUNCTION_SAMPLES).drop_nulls("function")
    thread = pl.Series(run.place_of_caller[samples["row"].to_numpy()], dtype=pl.Int32)
    located = samples.select("start", "function", "module", thread=thread).filter(pl.col("thread") >= 0)
    return located.sort("thread", "start", "function", "module")


def _iterations(run: MeasuredRun) -> pl.DataFrame:
    """Iterations that lie in the window, of each device, as of `_regions`."""
    offset, length = run.events.offset, run.events.length
    iterations = run.window.iterations.iterations.select("begin", "end", slot="number", group="device")
    moved = iterations.with_columns(pl.col("begin", "end") - offset)
    return _merged(run, moved.filter((pl.col("begin") >= 0) & (pl.col("end") <= length)))


def _regions(run: MeasuredRun) -> pl.DataFrame:
    """Ranges of `--regions` on the devices that their tasks use: `slot`, `device`, `begin`, `end`; those of one slot and device
    do not overlap."""
    if not run.options.regions:
        return pl.DataFrame(schema=dict.fromkeys(("slot", "device", "begin", "end"), pl.Int64))
    ranges = run.frame(RANGES).join(named_ranges(run.events, run.options.regions), on=["number", "value"], how="inner")
    task = pl.Series(run.events.rows.task[ranges["row"].to_numpy()], dtype=pl.Int64)
    of_tasks = ranges.select("slot", "end", task=task, begin="start")
    return _merged(run, of_tasks.join(devices_of_tasks(run.events.rows), on="task"))


def _merged(run: MeasuredRun, ranges: pl.DataFrame) -> pl.DataFrame:
    return merged_windows(ranges, len(run.events.rows.devices)).rename({"group": "device"})


# -- columns of tables -------------------------------------------------------------------------------


def _with_totals(sums: pl.DataFrame) -> pl.DataFrame:
    """PART_COLUMNS and `elapsed` with the columns `elapsed_ns`, `compute_ns`, `absent_ns`, `absent_share`."""
    totals = sums.with_columns(elapsed_ns=pl.col("elapsed"), absent_ns=pl.sum_horizontal(PART_COLUMNS))
    share = pl.when(pl.col("elapsed_ns") > 0).then(pl.col("absent_ns") / pl.col("elapsed_ns"))
    return totals.with_columns(compute_ns=pl.col("elapsed_ns") - pl.col("absent_ns"), absent_share=share)


def _named(run: MeasuredRun, rows: pl.DataFrame, **numbers: int) -> list[pl.Series]:
    """Names of values in columns, by their event types."""
    return [run.events.named(int(number), rows[name]).alias(name) for name, number in numbers.items()]
