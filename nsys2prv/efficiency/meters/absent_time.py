"""Compute-absent time: the time in which no compute kernel runs on a device, divided into its causes without a rest.

It is a row for each gap between compute kernels, which `absent_pieces` cuts into pieces of one part each; here pieces are added
up: over devices, over what threads did, and inside NVTX ranges and iterations."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys2prv.efficiency import host_states
from nsys2prv.efficiency.activity_times import devices_of_tasks, merged_windows
from nsys2prv.efficiency.graph.cuda_waits import EventEdges
from nsys2prv.efficiency.intervals import NONE, Intervals, Spans, moments_inside, segments
from nsys2prv.efficiency.measured_run import KERNEL, KINDS_OF_NUMBER, LATE_START, PAGE_MOVES, MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.meters import absent_tables as parts
from nsys2prv.efficiency.meters.absent_pieces import IS_IDLE, PiecesOfGaps, Timeline
from nsys2prv.efficiency.meters.gaps import blocks_of, gaps_between, longest_of
from nsys2prv.efficiency.meters.nccl_stats import Nccl
from nsys2prv.efficiency.meters.recording_checks import DeviceClocks, LostWork
from nsys2prv.efficiency.meters.regions import MOST_REGIONS, iterations_in_window, named_ranges, ranges_of_tasks
from nsys2prv.efficiency.run_events import FUNCTION_SAMPLES, RANGES
from nsys2prv.errors import counted
from nsys2prv.sources.host import call_chains
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import time

COMPUTE_TYPES = tuple(number for number, kind in KINDS_OF_NUMBER.items() if kind == KERNEL)
"""Event types of compute kernels, and of graphs."""
_WAITS_FOR_DEVICE = ("synchronization", "memory", "allocation", "mpi")
_STARVED_PARTS = [
    name for name, state in zip(parts.OF_STATES, host_states.NAMES, strict=True) if state not in _WAITS_FOR_DEVICE
]
_FOUND_PARTS = [parts.OF_STATES[state] for state in (*range(host_states.FIRST_CALL), *host_states.WAITING)]
_MUCH_QUEUED = 0.03
"""Part of the time of devices from which on work that starts late without a recorded reason is a warning."""
_LENGTH = pl.col("end") - pl.col("begin")
_PART_KEY = ["device", "part", "detail", "task", "number", "value", "source", "destination"]
_HOST_KEY = ["thread", "part", "call_number", "call_value", "range_number", "range_value"]
_FUNCTION_KEY = ["thread", "part", "function", "module"]
_TITLE = pl.col("part").cast(pl.String).replace_strict(parts.TITLES, return_dtype=pl.String)


@dataclass(frozen=True)
class AbsentTime(Measurement):
    """Compute-absent time of all devices, as pieces with a `device`, `begin` and `end` (ns).

    In `of_hosts` the launching `thread` creates something, sleeps or waits, and in `waits_for_nccl` the next compute kernel
    waits for an NCCL kernel (`row`, `start`), both with their `part`. In `starved_beside_nccl` the device is launch-starved
    while NCCL kernels run on it: the next kernel could run beside the collective, and is not launched by its thread (`row`).
    Where that waits for the device, or moves memory, it may wait for the collective: that does not count."""

    of_hosts: pl.DataFrame
    waits_for_nccl: pl.DataFrame
    starved_beside_nccl: pl.DataFrame


def measure_absent_time(run: MeasuredRun) -> AbsentTime:
    """Time without computation of all devices, by its parts."""
    computing = run.on_devices.where(run.on_devices.counts[KERNEL] > 0)
    gaps = gaps_between(run, computing, run.operations["number"].is_in(COMPUTE_TYPES).to_numpy()).with_row_index("gap")
    pieces_of_gaps = PiecesOfGaps(run, run.measured(Nccl), run.measured(EventEdges))
    samples, ranges = _samples(run), ranges_of_tasks(run, run.options.regions or ())
    on_devices = ranges.join(devices_of_tasks(run.events.rows), on="task")
    in_iterations = iterations_in_window(run).select("begin", "end", slot="number", group="device")
    regions, iterations = (merged_windows(of, len(run.events.rows.devices)) for of in (on_devices, in_iterations))
    blocks: list[dict[str, pl.DataFrame]] = []
    for block in blocks_of(gaps):
        pieces, starved = pieces_of_gaps.of_gaps(block)
        ordered = pieces[np.lexsort((pieces["begin"].to_numpy(), pieces["device"].to_numpy()))]
        longest = longest_of(block.with_columns(length=_LENGTH), parts.MOST_STRETCHES)
        of_longest = ordered.join(longest.select("gap"), on="gap", how="semi").with_columns(total=_LENGTH)
        block_sums = _sums_of_pieces(run, ordered) | _sums_of_threads(run, starved)
        block_sums |= _in_windows(ordered, iterations=iterations, regions=regions)
        block_sums["functions"] = _functions(samples, starved.filter(IS_IDLE))
        block_sums["longest"] = _by_columns(of_longest, longest, "gap")
        blocks.append(block_sums)
    sums = {name: pl.concat(block[name] for block in blocks) for name in blocks[0]}
    paging = _paging(run)
    of_iterations = _of_windows(run, sums["iterations"], iterations, paging).head(parts.MOST_ITERATION_ROWS)
    whole = pl.DataFrame({"slot": 0, "group": range(len(run.events.rows.devices)), "begin": 0, "end": run.events.length})
    of_run = sums["parts"].with_columns(pl.col("device").cast(pl.Int64), slot=pl.lit(0, pl.Int64))
    of_devices = _of_windows(run, of_run, whole.cast(pl.Int64), paging)
    filled = {
        parts.ABSENT_TIME: of_devices,
        parts.ABSENT_REGIONS: _longest_regions(run, _of_windows(run, sums["regions"], regions, paging)),
        parts.ABSENT_ITERATIONS: of_iterations.with_columns(iteration="slot"),
        parts.ABSENT_PARTS: _details(run, sums["parts"]),
        parts.ABSENT_CALLS: _host_rows(run, sums["hosts"], "call", "part").with_columns(part=_TITLE),
        parts.ABSENT_FUNCTIONS: _function_rows(run, sums["functions"]),
        parts.ABSENT_STRETCHES: _longest_gaps(run, longest_of(sums["longest"], parts.MOST_STRETCHES)),
    }
    if sums["hosts"]["range_number"].count():
        filled[parts.ABSENT_RANGES] = _host_rows(run, sums["hosts"], "range")
    spent, kernels = (int(of_devices[name].sum()) for name in ("paging_ns", "compute_ns"))
    text = f"kernels may wait for pages of unified memory in {time(spent)} of {time(kernels)}: efficiencies count it as useful"
    warnings = [text] if spent > PAGE_MOVES * kernels else []
    is_compared = ~pl.col("device").is_in(list(run.measured(DeviceClocks).contradictions))
    queued, times_late = sums["parts"].filter(is_compared, part="queued").select(pl.col("late", "times_late").sum()).row(0)
    if queued > _MUCH_QUEUED * float(of_devices["elapsed_ns"].sum()) and run.measured(LostWork).reason is None:
        late = f"work starts {time(queued / times_late)} (mean of {counted(times_late, 'time')}) after it was launched"
        why = "other processes may use it (nvidia-smi), or it sleeps"
        warnings.append(f"{late}, while nothing that was recorded runs on its device: {why}")
    waits = (sums[name] for name in ("of_hosts", "waits_for_nccl", "starved_beside_nccl"))
    return AbsentTime(*waits, tables=filled, warnings=warnings)


def _paging(run: MeasuredRun) -> Spans:
    """When compute kernels of each device may wait for pages."""
    _, segment, begin, end = run.on_devices.cut(run.page_waits.merged)
    is_computing = run.on_devices.counts[KERNEL][segment] > 0
    return Spans(column[is_computing] for column in (run.on_devices.group[segment], begin, end))


def _of_windows(run: MeasuredRun, sums: pl.DataFrame, windows: pl.DataFrame, paging: Spans) -> pl.DataFrame:
    """Columns that tables of devices share, by `slot` and device, from sums by `part` and windows, as of `merged_windows`."""
    windows = windows.with_columns(paging_ns=pl.Series(paging.inside(*windows.select("group", "begin", "end").to_numpy().T)))
    of_slots = windows.group_by("slot", device="group").agg(pl.col("paging_ns").sum(), elapsed_ns=_LENGTH.sum())
    is_scheduled = pl.col("task").is_in(run.events.rows.task[run.callers[run.is_scheduled]].tolist())
    scheduled = devices_of_tasks(run.events.rows).filter(is_scheduled)["group"].to_list()
    elapsed, absent = pl.col("elapsed_ns"), pl.sum_horizontal(parts.PART_COLUMNS)
    return _by_columns(sums, of_slots.sort("slot", "device"), "slot", "device").with_columns(
        device=run.device_names(pl.col("device")),
        compute_ns=elapsed - absent,
        absent_ns=absent,
        absent_share=pl.when(elapsed > 0).then(absent / elapsed),
        off_cpu_ns=pl.when(pl.col("device").is_in(scheduled)).then("starved_off_cpu_ns"),
    )


def _longest_regions(run: MeasuredRun, regions: pl.DataFrame) -> pl.DataFrame:
    """Columns of the table `absent_regions`, the longest regions first."""
    total = pl.col("elapsed_ns").sum().over("slot")
    ordered = regions.sort(total, "slot", descending=[True, False], maintain_order=True)
    names = named_ranges(run.events, run.options.regions or ()).select("slot", "region", "domain").unique("slot")
    return ordered.filter(pl.col("slot").rle_id() < MOST_REGIONS).join(names, on="slot", how="left", maintain_order="left")


def _details(run: MeasuredRun, by_part: pl.DataFrame) -> pl.DataFrame:
    """Columns of the table `absent_parts`, those with most time first."""
    part = pl.col("part")
    of_copies = run.events.names_of(by_part, source=event_types.SOURCE_MEMORY, destination=event_types.DESTINATION_MEMORY)
    text = (
        pl.when(part == "late_rank").then(run.task_names(pl.col("task")))
        .when(part == "copy").then(
            pl.concat_str("named", pl.format(" from {}", "source"), pl.format(" to {}", "destination"), ignore_nulls=True))
        .otherwise(pl.coalesce(pl.col("detail").cast(pl.String), "named"))
    )  # fmt: skip
    named = by_part.with_columns(*of_copies, named=run.events.named(by_part["number"], by_part["value"]))
    by_detail = named.group_by("device", "part", detail=text)
    sums = by_detail.agg(pl.col("count").sum(), total_ns=pl.col("total").sum(), longest_ns=pl.col("longest").max())
    ordered = sums.sort("total_ns", "device", "part", "detail", descending=[True, False, False, False], nulls_last=True)
    return ordered.with_columns(device=run.device_names(pl.col("device")), part=_TITLE)


def _host_rows(run: MeasuredRun, by_host: pl.DataFrame, name: str, *key: str) -> pl.DataFrame:
    """Launch-starved time by thread and `name` (call, range), most first; with its `task` and `thread`."""
    named = [f"{name}_number", f"{name}_value"]
    order = ["thread", *named, *key]
    sums = by_host.group_by(order).agg(total_ns=pl.col("total").sum(), off_cpu_ns=pl.col("off_cpu").sum())
    sums = sums.sort("total_ns", *order, descending=[True, *[False] * len(order)]).head(parts.MOST_HOST_ROWS)
    return sums.with_columns(
        run.events.named(*sums.select(named)).alias(name),
        off_cpu_ns=pl.when(pl.lit(pl.Series(run.is_scheduled)).gather("thread")).then("off_cpu_ns"),
        **run.names_of_threads(pl.col("thread")),
    )


def _function_rows(run: MeasuredRun, by_function: pl.DataFrame) -> pl.DataFrame:
    """Columns of the table `absent_functions`, the functions with most samples first."""
    sums = by_function.group_by(_FUNCTION_KEY).sum()
    rows = sums.sort("samples", *_FUNCTION_KEY, descending=[True, *[False] * len(_FUNCTION_KEY)]).head(parts.MOST_HOST_ROWS)
    names = run.events.names_of(rows, function=call_chains.SAMPLED_FUNCTION, module=call_chains.SAMPLED_MODULE)
    share = pl.col("samples") / max(int(sums["samples"].sum()), 1)
    return rows.with_columns(*names, **run.names_of_threads(pl.col("thread")), part=_TITLE, share=share)


def _longest_gaps(run: MeasuredRun, longest: pl.DataFrame) -> pl.DataFrame:
    """Columns of the table `absent_stretches`."""
    following = run.operations.select(pl.col("number", "value").gather(pl.lit(longest["next"].replace(NONE, None))))
    return longest.select(
        *parts.PART_COLUMNS,
        device=run.device_names(pl.col("device")),
        begin_ns="begin",
        end_ns="end",
        length_ns="length",
        next=run.events.named(*following),
        launched_ns="launched",
        **run.names_of_threads(pl.col("thread")),
    )


def _sums_of_pieces(run: MeasuredRun, pieces: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """`parts`: `count` of gaps, `total` and `longest` (ns) by device, part, detail and attributes of what was waited for, and
    the time (`late`) and number (`times_late`) of those of them longer than LATE_START; and `waits_for_nccl`, as of
    `AbsentTime`."""
    columns = pl.col("number", "value", "source", "destination", "row", "start")
    pieces = pieces.hstack(run.operations.select(columns.gather(pl.lit(pieces["operation"]))))
    total, long = pl.col("total"), _LENGTH.filter(_LENGTH > LATE_START)
    of_gaps = pieces.group_by("gap", *_PART_KEY).agg(total=_LENGTH.sum(), late=long.sum(), times_late=long.len().cast(pl.Int64))
    sums = {"count": pl.len().cast(pl.Int64), "longest": total.max()}
    by_part = of_gaps.group_by(_PART_KEY).agg(pl.col("total", "late", "times_late").sum(), **sums)
    waits = pieces.filter(pl.col("part").is_in(["late_rank", "transfer", "communication"]) & pl.col("is_waited"))
    return {"parts": by_part, "waits_for_nccl": waits.select("device", "row", "start", "begin", "end", "part")}


def _sums_of_threads(run: MeasuredRun, starved: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """`hosts`: launch-starved time (`total`, and `off_cpu` of it, ns) by thread, part, call and NVTX range; and `of_hosts` and
    `starved_beside_nccl`, as of `AbsentTime`."""
    beside_nccl = starved.filter(pl.col("part").is_in(_STARVED_PARTS) & (pl.col("nccl") != NONE))
    starved = starved.filter(IS_IDLE & (pl.col("part") != "start_up"))
    for kind, events in (("call", run.calls), ("range", run.frame(RANGES))):
        named = pl.col("number", "value").gather(pl.lit(starved[kind].replace(NONE, None))).name.prefix(f"{kind}_")
        starved = starved.hstack(events.select(named))
    row = pl.Series(run.callers, dtype=pl.Int64).gather(beside_nccl["thread"])
    return {
        "hosts": starved.group_by(_HOST_KEY).agg(total=_LENGTH.sum(), off_cpu=_LENGTH.filter(pl.col("off_cpu") > 0).sum()),
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
    thread, start = (samples[name].to_numpy().astype(np.int64) for name in ("thread", "start"))
    window, place = moments_inside(thread, start, Intervals.of(*starved.select("thread", "begin", "end")))
    counted = samples[place].with_columns(starved["part"].gather(window))
    return counted.group_by(_FUNCTION_KEY).agg(samples=pl.len().cast(pl.Int64))


def _in_windows(pieces: pl.DataFrame, **windows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Times (`total`, ns) by `slot`, `device` and `part` of pieces, which are in the order of device and time and do not
    overlap on a device, in all windows (as of `merged_windows`) that they are in, cut at their edges."""
    edges = segments(Intervals.of(*pieces.select("device", "begin", "end")))
    # Pieces are in the order of their segments.
    is_piece = edges.counts[0] > 0
    places = Timeline(edges, {"piece": np.where(is_piece, np.cumsum(is_piece) - 1, NONE)})
    first, last = (pl.lit(edge, pl.Int64) for edge in (pieces["begin"].min(), pieces["end"].max()))
    meets, part = (pl.col("begin") < last) & (pl.col("end") > first), pl.lit(pieces["part"])
    sums = {}
    for name, of_slots in windows.items():
        cut = places.cut(of_slots.filter(meets), "group").filter(pl.col("piece") != NONE)
        sums[name] = cut.group_by("slot", device="group", part=part.gather("piece")).agg(total=_LENGTH.sum())
    return sums


def _by_columns(sums: pl.DataFrame, rows: pl.DataFrame, *key: str) -> pl.DataFrame:
    """Rows with PART_COLUMNS from sums (`part`, `total`, ns), by a key."""
    of_parts = [pl.col("total").filter(pl.col("part") == part.name).sum().alias(part.column) for part in parts.PARTS]
    joined = rows.join(sums.group_by(key).agg(of_parts), on=key, how="left", maintain_order="left")
    return joined.with_columns(pl.col(parts.PART_COLUMNS).fill_null(0))


def _samples(run: MeasuredRun) -> pl.DataFrame:
    """CPU samples of calling threads with call chains: `thread`, `start`, `function`, `module`, in this order."""
    samples = run.frame(FUNCTION_SAMPLES).drop_nulls("function")
    thread = pl.Series(run.place_of_caller[samples["row"].to_numpy()], dtype=pl.Int32)
    located = samples.select("start", "function", "module", thread=thread).filter(pl.col("thread") >= 0)
    return located.sort("thread", "start", "function", "module")
