"""What matters first about a measured run: one sentence, the wall time by cause, and four numbers.

The page, the console and notebooks show these in this order. All of it follows from the head and the tables of an
`EfficiencyResult`, and a number that is not known says why."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from nsys2prv.efficiency.clock_accuracy import LEAST_UNCERTAINTY
from nsys2prv.efficiency.efficiency_options import ALL, CHOSEN, STEADY, NcclPolicy
from nsys2prv.efficiency.findings.engine import BY_REPLAY
from nsys2prv.efficiency.meters import absent_tables as parts
from nsys2prv.errors import counted
from nsys2prv.vocabulary.call_names import SHUT_DOWN_CALLS, START_UP_CALLS
from nsys2prv.vocabulary.name_rules import unit_of_metric
from nsys2prv.vocabulary.wording import percent, short, time

WINDOW_TITLES = {ALL: "the whole run", STEADY: "the steady part", CHOSEN: "the chosen window"}
"""What windows are called."""

GOOD, FAIR, POOR = "good", "fair", "poor"
"""Levels of a share: outputs colour by them, and nothing below 80 % is good."""
_LEAST_PART = 0.005
"""Least share of the wall time that has a part of the bar."""
_LEAST_OF_RECORDING = 0.9
"""Part of the recording below which it is said that there is more than what was measured."""
_LEAST_IN_RANGE = 0.2
"""Part of the time of host threads in NVTX ranges of a name from which on these are named."""
_SAMPLED = (("tensor_active", "Tensor activity", r"(?i)^tensor[^\[]*active"), ("sm_active", "SM activity", r"(?i)^sms? active"))
"""Sampled metrics of a tile, the first that was sampled: name, title, pattern of the metric."""
_COMPUTING = (
    ("host_parallel_efficiency", "Outside of MPI", "mean over host threads"),
    ("host_computing_efficiency", "Computing", "neither asleep nor waiting, outside of MPI, mean over host threads"),
)
_OF_MPI = (
    ("mpi_load_balance", "MPI load balance", "mean over largest time outside of MPI of a process"),
    ("mpi_communication_efficiency", "MPI communication efficiency", "of the process that is longest outside of MPI"),
)
"""Names, titles and notes of tiles of runs without a GPU; the second of the first two where scheduling was recorded."""
BAR_COLUMNS = ("elapsed_ns", "compute_ns", "paging_ns", *parts.PART_COLUMNS)
"""Of `absent_time`: what its parts of the wall time are made of."""
_Spent = tuple[str, str, str, float]
"""Name, title, group and time of a part of the wall time."""


class BarPart(NamedTuple):
    """A part of the wall time: its name for programs (`compute`, `late_rank`, `other`, ...) and its title for people.

    Its `group` is `compute`, `other`, or one of `absent_tables`: like parts have like colours. `value` is its time, ns, as a
    mean over devices (without GPUs: over host threads while they are there), and `share` the same, of the wall time, 0 to 1."""

    name: str
    title: str
    group: str
    value: float
    share: float


class Tile(NamedTuple):
    """One of the four numbers, with its name for programs and its title for people.

    `value` is 0 to 1, or None where it is not known; `level` is GOOD, FAIR or POOR, or None where it is not known, or no level
    is right for all programs; `note` says what the value describes, or why it is unknown."""

    name: str
    title: str
    value: float | None
    level: str | None
    note: str


class Verdict(NamedTuple):
    """What matters first: how much of the wall time was computed, in which window, the largest part of the rest, and what costs
    most of all findings, in one sentence; the wall time by cause, in the order in which it is read (shares add up to 1; empty
    where nothing was measured); and four numbers."""

    sentence: str
    bar: tuple[BarPart, ...]
    tiles: tuple[Tile, ...]


def level(value: float | None) -> str | None:
    """The level of an efficiency.

    >>> level(0.8), level(0.799), level(0.5), level(0.499), level(None)
    ('good', 'fair', 'fair', 'poor', None)
    """
    return None if value is None else GOOD if value >= 0.8 else FAIR if value >= 0.5 else POOR


def verdict(head: Mapping[str, Any], tables: Mapping[str, pl.DataFrame]) -> Verdict:
    """What matters first, from the head and the tables of an `EfficiencyResult`."""
    bar = _shown(wall_time_parts(tables))
    return Verdict(_sentence(head, tables, bar), bar, _tiles(tables))


def wall_time_parts(tables: Mapping[str, pl.DataFrame]) -> tuple[BarPart, ...]:
    """All parts of the wall time that are not 0: of devices those of compute-absent time, else what host threads did."""
    devices = tables["absent_time"]
    if devices.is_empty():
        return wall_time_of_hosts(tables)
    means = {name: _sum(devices[name]) / devices.height for name in BAR_COLUMNS}
    spent: list[_Spent] = [
        ("compute", "computing", "compute", means["compute_ns"] - means["paging_ns"]),
        ("paging", "kernels that may wait for pages", parts.COPIES, means["paging_ns"]),
    ]
    for part in parts.PARTS:
        if part.name == "undecided":
            spent += _undecided(part, tables["absent_parts"], devices.height, means[part.column])
        else:
            group, _, cause = part.title.partition(": ")
            spent.append((part.name, f"{group} ({cause})" if cause else part.title, part.group, means[part.column]))
    return _bar(spent, means["elapsed_ns"])


def _bar(spent: Sequence[_Spent], elapsed: float) -> tuple[BarPart, ...]:
    return tuple(BarPart(*part, part[-1] / elapsed if elapsed else 0.0) for part in spent if part[-1] or part[0] == "compute")


def _undecided(part: parts.Part, of_parts: pl.DataFrame, devices: int, mean: float) -> list[_Spent]:
    """What is not decidable, by what is missing."""
    by_reason = dict(of_parts.filter(pl.col("part") == part.title).group_by("detail").agg(pl.col("total_ns").sum()).rows())
    divided = [
        (f"undecided_{place}", f"not decidable ({short})", part.group, by_reason[reason] / devices)
        for place, (reason, short) in enumerate(parts.REASONS.items())
        if reason in by_reason
    ]
    remaining = mean - sum(value for *_, value in divided)
    return [*divided, (part.name, part.title, part.group, remaining)] if remaining > 1 else divided


def wall_time_of_hosts(tables: Mapping[str, pl.DataFrame], *, with_mpi: bool | None = None) -> tuple[BarPart, ...]:
    """Parts of the wall time that are not 0, of what host threads did; `with_mpi`: without MPI, calls of the OS are all that is
    known of hosts; with it they are part of computing, as in the tree. None: as the run has it."""
    run, threads = tables["run"].row(0, named=True), tables["threads"]
    has_mpi = _has_mpi(run) if with_mpi is None else with_mpi
    os = 0 if has_mpi else int(threads["os_ns"].sum())
    is_scheduled = run["host_waiting_ns"] is not None
    profiler = int(threads["profiler_ns"].sum())
    waiting = 0 if not is_scheduled else run["host_waiting_ns"] - profiler if has_mpi else int(threads["off_cpu_ns"].sum())
    phases = (tables["mpi_calls"].filter(pl.col("call").str.contains(phase)) for phase in (START_UP_CALLS, SHUT_DOWN_CALLS))
    starting, ending = (int(of_phase["total_ns"].sum()) for of_phase in phases)
    # Nested calls count once.
    starting, ending = min(starting, run["mpi_ns"]), min(ending, max(run["mpi_ns"] - starting, 0))
    mpi = "other MPI calls" if starting + ending else "MPI calls"
    computing = run["host_useful_ns"] - os - waiting - profiler
    outside = " outside of OS calls" if os else ""
    spent = (
        ("compute", f"computing{outside}" if has_mpi or is_scheduled else "computing, or off the CPU", "compute", computing),
        ("profiler", "set-up of the profiler", parts.STARVED, profiler),
        ("waiting", "asleep or waiting" if has_mpi else "off the CPU", parts.STARVED, waiting),
        ("cuda", "CUDA calls", parts.STARVED, run["cuda_ns"]),
        ("mpi_start_up", "MPI start-up (MPI_Init)", parts.START_UP, starting),
        ("mpi", mpi, parts.COMMUNICATION, run["mpi_ns"] - starting - ending),
        ("mpi_shut_down", "MPI shut-down (MPI_Finalize)", parts.SHUT_DOWN, ending),
        ("os", "OS calls", parts.STARVED, os),
    )
    total = sum(value for *_, value in spent)
    return tuple(part._replace(value=part.value / run["threads"]) for part in _bar(spent, total)) if total else ()


def _has_mpi(run: Mapping[str, Any]) -> bool:
    return run["mpi_parallel_efficiency"] is not None


def _shown(bar: tuple[BarPart, ...]) -> tuple[BarPart, ...]:
    """Parts with at least _LEAST_PART of the wall time; the rest are one part."""
    large = tuple(part for part in bar if part.name == "compute" or part.share >= _LEAST_PART)
    small = [part for part in bar if part not in large]
    if len(small) < 2:
        return (*large, *small)
    value, share = sum(part.value for part in small), sum(part.share for part in small)
    return (*large, BarPart("other", "less than 0.5 % each", "other", value, share))


def _sentence(head: Mapping[str, Any], tables: Mapping[str, pl.DataFrame], bar: tuple[BarPart, ...]) -> str:
    window = head["window"]
    what = WINDOW_TITLES[window["name"]]
    # Before its first recorded event, and after its last one, the program may have worked as well.
    if window["name"] == ALL and window["length_ns"] < _LEAST_OF_RECORDING * window["recorded_ns"]:
        what = f"the program's first to last event, of {time(window['recorded_ns'])} in the trace"
    length = f"{time(window['length_ns'])} ({what}{_clocks_allow(head)})"
    if not bar:
        return f"nothing was measured in {length}"
    run = tables["run"].row(0, named=True)
    threads = counted(run["threads"], "host thread")
    alive = sum(run[name] for name in ("host_useful_ns", "cuda_ns", "mpi_ns")) / max(run["threads"], 1)
    there = f"the time in which they are there, {time(alive)} on average, in {length}"
    of_hosts = there if alive < run["elapsed_ns"] else length
    if not run["devices"] and not _has_mpi(run) and run["host_waiting_ns"] is None:
        most = max(bar, key=lambda part: part.share)
        if tables["os_calls"].is_empty() and most.name != "cuda":
            return f"neither work of GPUs, MPI nor calls of the OS were recorded in {length} of {threads}{_in_range(tables)}"
        longest = f"largest part of {of_hosts} of {threads}: {_titled(most, tables)}, {percent(most.share)}"
        return f"neither work of GPUs nor MPI was recorded; {longest}{_in_range(tables)}"
    who = counted(run["devices"], "GPU") if run["devices"] else f"no work of GPUs was recorded; {threads}"
    length = length if run["devices"] else of_hosts
    # NCCL kernels that count as useful work are part of what was computed, and no loss.
    is_useful = head["nccl"] == NcclPolicy.USEFUL and run["devices"] > 0
    useful = run["device_parallel_efficiency"] if is_useful else bar[0].share
    waiting = 0.0 if is_useful else sum(part.share for part in bar if part.name == "paging")
    useful_group = parts.COMMUNICATION if is_useful else ""
    losses = [part for part in bar[1:] if part.name not in ("paging", "other") and part.group != useful_group]
    largest = sorted(losses, key=lambda part: -part.share)[:1]
    # The finding may be about this time: said first, it is no further loss.
    rest = "; largest part of the rest"
    largest_part = "".join(f"{rest}: {_titled(part, tables)}, {percent(part.share)}" for part in largest)
    computed = "computed or ran NCCL kernels" if is_useful else bar[0].title.replace("computing", "computed")
    computed += " at least" if _is_lost(tables) else ""
    share = f"{percent(useful)} to {percent(useful + waiting)}" if waiting else percent(useful)
    busiest = "" if run["devices"] or _has_mpi(run) or run["threads"] < 2 else _busiest_thread(tables["threads"])
    in_range = "" if run["devices"] or _has_mpi(run) else _in_range(tables)
    return f"{who} {computed} {share} of {length}{busiest}{largest_part}{in_range}{_first_finding(tables['findings'])}"


def _titled(part: BarPart, tables: Mapping[str, pl.DataFrame]) -> str:
    """Title of a part of the wall time, with the call of CUDA or the OS that takes most of it."""
    calls = tables["os_calls" if part.name == "os" else "cuda_calls"]
    # Threads that do not count are in calls of the OS as well.
    is_known = part.name == "cuda" or (
        part.name == "os" and _sum(calls["total_ns"]) <= part.value * tables["run"]["threads"][0]
    )
    calls = calls.select("call", part=pl.col("total_ns") / pl.col("total_ns").sum())
    for call, share in calls.sort("part", "call", descending=[True, False]).head(is_known).iter_rows():
        return f"{part.title} ({percent(share)} in {call})"
    return part.title


def _in_range(tables: Mapping[str, pl.DataFrame]) -> str:
    """The NVTX range in which most time is that is in none inside of it, if that is much of the time of host threads."""
    spent = tables["run"].select(pl.sum_horizontal("host_useful_ns", "cuda_ns", "mpi_ns")).item()
    for name, own in tables["nvtx_tree"].sort("own_ns", "node").select("range", "own_ns").tail(1).iter_rows():
        if _LEAST_IN_RANGE * spent <= own <= spent:
            return f"; {time(own)} ({percent(own / spent)}) in ranges of NVTX named {short(name)}"
    return ""


def _busiest_thread(threads: pl.DataFrame) -> str:
    """The thread that computes longest of a run without GPUs and MPI: a mean says little where others are helpers."""
    computing = pl.col("host_useful_ns") - pl.sum_horizontal("os_ns", "off_cpu_ns", "profiler_ns")
    rows = threads.select("thread", alive=pl.col("host_useful_ns") + pl.col("cuda_ns"), computing=computing)
    thread, alive, busiest = rows.sort("computing", descending=True, maintain_order=True).row(0)
    return f"; the busiest, {thread.strip()}, {percent(busiest / alive)} of {time(alive)}"


def _first_finding(findings: pl.DataFrame) -> str:
    """The finding that costs most, with what it costs and who it is; "" where there is none."""
    # That there is little work of GPUs is no cause.
    for row in findings.sort("place").filter(pl.col("kind") != "little-gpu-work").head(1).iter_rows(named=True):
        what, (_, on, who) = row["title"].partition(":")[0], row["title"].rpartition(", on ")
        # A result of an earlier version may not say how.
        how = (row["saved_how"] or BY_REPLAY).partition(", ")[0]
        saved = f"{'' if how == BY_REPLAY else f'{how} '}{time(row['saved_ns'])} ({percent(row['saved_share'])})"
        return f"; it would be {saved} shorter without: {what}{f' on {who}' if on and on not in what else ''}"
    return ""


def _clocks_allow(head: Mapping[str, Any]) -> str:
    """Where clocks leave the length open: what they allow."""
    least, most, length = *(head["length_interval"][name] for name in ("least_ns", "most_ns")), head["window"]["length_ns"]
    if most is not None and most - least <= LEAST_UNCERTAINTY * length:
        return ""
    return f"; clocks allow {time(least)} to {'more' if most is None else time(most)}"


def _tiles(tables: Mapping[str, pl.DataFrame]) -> tuple[Tile, ...]:
    run, devices = tables["run"].row(0, named=True), tables["devices"]
    if devices.is_empty() and _has_mpi(run):
        of_hosts = (_COMPUTING[run["host_computing_efficiency"] is not None], *_OF_MPI)
        efficiencies = (Tile(name, title, run[name], level(run[name]), note) for name, title, note in of_hosts)
        return (*efficiencies, _largest_call(tables["mpi_calls"]))
    elapsed, balance = run["elapsed_ns"] * run["devices"], run["load_balance"] if run["devices"] > 1 else None
    is_lost, running = _is_lost(tables), "kernels, NCCL or copies run, mean over GPUs"
    busy = _sum(devices["active_ns"]) / elapsed if elapsed and not is_lost else None
    without = "one GPU" if run["devices"] == 1 else "no useful kernel ran"
    of_balance = without if balance is None else "mean over largest useful time of a GPU"
    tiles = (
        Tile("gpu_busy", "GPU busy", busy, level(busy), parts.LOST if is_lost else running),
        _exposed(tables),
        Tile("load_balance", "Load balance", balance, level(balance), of_balance),
        _sampled(tables["sampled_bins"]),
    )
    return tiles if devices.height else tuple(tile._replace(note="no work of GPUs was recorded") for tile in tiles)


def _is_lost(tables: Mapping[str, pl.DataFrame]) -> bool:
    """Whether work of devices was not recorded."""
    return parts.LOST in tables["absent_parts"]["detail"]


def _largest_call(calls: pl.DataFrame) -> Tile:
    """The call of MPI that takes most time."""
    share, note = None, "no MPI call in this window"
    for call in calls.sort("total_ns", "call", descending=[True, False]).head(1).iter_rows(named=True):
        share, note = call["share"], f"{call['call']}, of the time of threads that call MPI"
    return Tile("largest_mpi_call", "Largest MPI call", share, None, note)


def _exposed(tables: Mapping[str, pl.DataFrame]) -> Tile:
    named = ("exposed_communication", "Exposed communication")
    elapsed, nccl, alone = (_sum(tables["devices"][column]) for column in ("elapsed_ns", "nccl_ns", "nccl_alone_ns"))
    if not nccl:
        mpi = _sum(tables["absent_time"]["starved_mpi_ns"])
        waits = f"; GPUs wait for hosts in MPI for {percent(mpi / elapsed)}" if mpi and elapsed else ""
        return Tile(*named, None, None, f"no NCCL kernels{waits}")
    note = f"NCCL runs and no other kernel does; {percent(1 - alone / nccl)} of the NCCL time is hidden"
    return Tile(*named, alone / elapsed, level(1 - alone / elapsed), note)


def _sampled(bins: pl.DataFrame) -> Tile:
    """Activity of tensor cores, else of SMs, as a mean over samples. What is right for it depends on what runs: no level."""
    for name, title, pattern in _SAMPLED:
        rows = bins.filter(pl.col("metric").str.contains(pattern) & (pl.col("samples") > 0))
        rows = rows.filter(pl.col("metric") == pl.col("metric").first())
        if rows.height and unit_of_metric(str(rows["metric"][0])) == "%":
            samples = _sum(rows["samples"])
            mean = _sum(rows["mean"] * rows["samples"]) / samples / 100
            return Tile(name, title, mean, None, f"mean of {samples:,.0f} samples")
    return Tile(*_SAMPLED[0][:2], None, None, "no samples: record with --gpu-metrics-devices=all")


def _sum(column: pl.Series) -> float:
    return float(column.sum())
