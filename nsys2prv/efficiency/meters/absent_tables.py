"""Tables of compute-absent time: its parts, what the tables have of them, and what they say where clocks contradict."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl

from nsys2prv.efficiency import host_states
from nsys2prv.efficiency.meters.gaps import CAUSE_COLUMNS, GAPS, LONGEST_GAPS, UNKNOWN_COLUMN
from nsys2prv.efficiency.result_tables import DEVICE, SPAN, Column, OnConsole, OnPage, Table

MOST_STRETCHES = 200
"""Single stretches that have a row each: the longest."""
MOST_HOST_ROWS = 500
"""Rows of `absent_calls` and of `absent_ranges`: those with most time."""
MOST_ITERATION_ROWS = 20_000
"""Rows of `absent_iterations`: those of the first iterations."""


class Part(NamedTuple):
    """One part of compute-absent time: its name for programs and its title for people, its group, for each of which the bar of
    the page has one colour, and what is counted."""

    name: str
    title: str
    group: str
    meaning: str

    @property
    def column(self) -> str:
        """Name of its column: of times, ns."""
        return f"{self.name}_ns"


STARVED, COMMUNICATION, COPIES, OTHER_KERNELS = "launch-starved", "communication", "copies", "other kernels"
QUEUED, START_UP, SHUT_DOWN, UNDECIDED = "queued", "start-up", "shut-down", "not decidable"


def _part_of_state(name: str, title: str, meaning: str) -> Part:
    """What is created once is a separate part, also before the first work of any device."""
    is_creation = name in host_states.NAMES[: host_states.FIRST_CALL]
    group, of_group = (START_UP, title) if is_creation else (STARVED, f"{STARVED}: {title}")
    before = "nothing runs on the device, the call that launches the next kernel has not ended, and its thread was "
    return Part(f"starved_{name}", of_group, group, before + meaning)


_BESIDE_STATES = (
    ("unified_memory", "unified memory", "in no call, while unified memory moved between host and this device"),
    ("unknown", "thread not known", "of which nothing is known"),
    ("ended", "no work follows", "to launch no more work while others work, or its launch is not known"),
)
PARTS: tuple[Part, ...] = (
    Part("start_up", "start-up", START_UP, "before the first work of any device"),
    *(_part_of_state(*state) for state in (*host_states.STATES, *_BESIDE_STATES)),
    Part("late_rank", "waiting for a late rank", COMMUNICATION, "an NCCL kernel ran before the next compute kernel was "
         "launched, or was waited for, and another rank of the collective had surely not arrived yet"),
    Part("transfer", "transfer", COMMUNICATION, "likewise in a collective in which all ranks had arrived"),
    Part("communication", "communication, not divided", COMMUNICATION, "likewise, and whether a late rank or the transfer was "
         "waited for is not decidable: `absent_parts` has the reason"),
    Part("copy", "copies and memsets", COPIES, "likewise a copy or a memset: it ran, or was waited for"),
    Part("unified_memory", "unified memory", COPIES, "it was launched and waited for nothing else that is known, there was "
         "none to come, or the thread was in a call, while unified memory moved between host and this device"),
    Part("other_kernel", "another kernel", OTHER_KERNELS, "it was launched and waited for a kernel of another device"),
    Part("queued", "queued", QUEUED, "the call that launched it had ended, and nothing is known that it waited for: latency or "
         "resources of the device"),
    Part("undecided", "not decidable", UNDECIDED, "the launch of the next compute kernel, or what it waited for, was not "
         "recorded, or times of the device contradict those of its host: `absent_parts` has the reason"),
    Part("shut_down", "shut-down", SHUT_DOWN, "after the last work of any device"),
)  # fmt: skip
"""All parts, in the order in which people read them. For one device they add up to its compute-absent time."""

PART_COLUMNS = [part.column for part in PARTS]
PART = pl.Enum([part.name for part in PARTS])
"""Type of the names of parts."""
OF_STATES = tuple(f"starved_{name}" for name in host_states.NAMES)
"""For each state of a host thread its part."""
TITLES = {part.name: part.title for part in PARTS}

REASONS = {
    "no launch was recorded in this run: neither CUDA API calls nor lines to what they start": "no launches were recorded",
    "the launch of the next compute kernel was not recorded, or is before the selected time": "its launch was not recorded",
    "streams wait for events (cudaStreamWaitEvent), these were not recorded, and other work of the process ran":
        "other work runs, CUDA events were not recorded",
    "streams wait for events (cudaStreamWaitEvent), these were not recorded, and NCCL kernels ran":
        "NCCL runs, CUDA events were not recorded",
    "times of the device contradict those of its host": "times of device and host contradict each other",
    "work of devices was not recorded": "work of devices was not recorded",
}  # fmt: skip
"""Why something is not decidable, and the same in a few words."""
NO_LAUNCHES, NO_LAUNCH, NO_EVENTS, NO_EVENTS_OF_NCCL, CONTRADICTED, LOST = REASONS
UNMATCHED, CLOCKS = (
    "other ranks of the collective are not in the run, or can't be matched",
    "ranks arrive closer together than their clocks are known",
)
"""Why communication is not divided."""
BESIDE_WORK, BESIDE_NCCL = "beside other work of the process", "beside NCCL kernels"
"""Details of queued time."""
DETAIL = pl.Enum([*REASONS, UNMATCHED, CLOCKS, BESIDE_WORK, BESIDE_NCCL])
"""Type of such details."""

_PARTS_OF_TIME = tuple(Column.ns(part.column, part.meaning) for part in PARTS)
_ABSENT = Column.ns("absent_ns", "compute-absent time: no kernel but NCCL's, and no graph, runs; the sum of the parts below")
_SHARE = Column.share("absent_share", "`absent_ns` / the time in question")
_PAGING = Column.ns(
    "paging_ns",
    "of `compute_ns`, kernels may wait for pages of unified memory: these move, and no prefetch asked for them, or faults are "
    "handled; without recorded faults all of a kernel in a twentieth of which pages move",
)
_THREAD = (
    Column.text("task", "task of the launching thread; null when not known"),
    Column.text("thread", "thread that launched the next compute kernel"),
)
_STARVED = (
    Column.ns("total_ns", "launch-starved time in it, over all devices"),
    Column.ns("off_cpu_ns", "of it, the thread was off its CPU; null where its scheduling was not recorded"),
)

_OF_WINDOW = (Column.ns("compute_ns", "of it, a compute kernel runs"), _PAGING, _ABSENT, _SHARE, *_PARTS_OF_TIME)

ABSENT_TIME = Table(
    "absent_time",
    "Compute-absent time",
    "one device",
    (DEVICE, Column.ns("elapsed_ns", "E"), Column.ns("compute_ns", "time in which a compute kernel runs"), _PAGING,
     _ABSENT, _SHARE, *_PARTS_OF_TIME,
     Column.ns("off_cpu_ns", "`starved_off_cpu_ns`; null where scheduling was not recorded")),
    page=OnPage("absent", columns=("device", "elapsed_ns", "compute_ns", "absent_ns", "absent_share", "start_up_ns",
        "starved_launch_ns", "starved_synchronization_ns", "starved_host_ns", "late_rank_ns", "transfer_ns", "communication_ns",
        "copy_ns", "queued_ns", "undecided_ns", "shut_down_ns"), worst_first="absent_ns"),
)  # fmt: skip
ABSENT_REGIONS = Table(
    "absent_regions",
    "Compute-absent time by region",
    "one device in the ranges of one name and domain",
    (Column.text("region", "text of the range"), Column.text("domain", "its NVTX domain"), DEVICE,
     Column.ns("elapsed_ns", "time in which a task that uses the device is in such a range"), *_OF_WINDOW),
    when="`--regions`",
    page=OnPage("absent", cells=2_000),
)  # fmt: skip
ABSENT_ITERATIONS = Table(
    "absent_iterations",
    "Compute-absent time by iteration",
    "one device in one iteration",
    (Column.count("iteration", "0, 1, ..., the same number on all devices"), DEVICE,
     Column.ns("elapsed_ns", "from its first work on the device until the next one begins there, as in `task_iterations`"),
     *_OF_WINDOW),
    when="Iterations that were found; with `--per-iteration` those of the ranges named",
    page=OnPage("absent", worst_first="absent_ns", cells=2_000),
)  # fmt: skip
ABSENT_PARTS = Table(
    "absent_parts",
    "Parts of compute-absent time",
    "one part on one device, by what it waited for",
    (
        DEVICE,
        Column.text("part", "title of the part"),
        Column.text("detail", "kind of copy, name of the collective or kernel, late rank, what else ran on the device, or the "
                    "reason why it is not decidable; null: nothing more is known"),
        Column.count("count", "pieces"),
        Column.ns("total_ns", "their sum"),
        Column.ns("longest_ns", "the longest"),
    ),
    page=OnPage("absent", cells=8_000),
    console=OnConsole(("device", "part", "detail", "count", "total_ns", "longest_ns"), spare=("count", "longest_ns")),
)  # fmt: skip
ABSENT_CALLS = Table(
    "absent_calls",
    "Launch-starved time by call",
    "calls of one name of one launching thread",
    (
        *_THREAD,
        Column.text("part", "title of the part"),
        Column.text("call", "name of the innermost call of this kind; null in none"),
        *_STARVED,
    ),
    page=OnPage("absent", cells=8_000),
)
ABSENT_RANGES = Table(
    "absent_ranges",
    "Launch-starved time by NVTX range",
    "NVTX ranges of one name of one launching thread",
    (*_THREAD, Column.text("range", "innermost NVTX range (push/pop) of the thread; null in none"), *_STARVED),
    when="NVTX ranges",
    page=OnPage("absent", cells=8_000),
)
ABSENT_FUNCTIONS = Table(
    "absent_functions",
    "Launch-starved time by function",
    "one function in one part of the time of one launching thread",
    (
        *_THREAD,
        Column.text("part", "title of the part"),
        Column.text("function", "innermost function of the call chain"),
        Column.text("module", "its library or program"),
        Column.count("samples", "CPU samples in this time; once for each device that waits"),
        Column.share("share", "of all such samples with a call chain"),
    ),
    when="CPU samples with call chains",
    page=OnPage("absent", cells=8_000),
)
ABSENT_STRETCHES = Table(
    "absent_stretches",
    "Longest stretches without computation",
    "one stretch of a device in which no compute kernel runs",
    (
        DEVICE,
        *SPAN,
        Column.text("next", "compute kernel that ends it; null at the end"),
        Column.moment("launched_ns", "when that was launched; null when not known"),
        *_THREAD,
        *_PARTS_OF_TIME,
    ),
    page=OnPage("absent", columns=("device", "begin_ns", "length_ns", "next", "launched_ns", "thread"), worst_first="length_ns",
        cells=8_000),
)  # fmt: skip
TABLES = (
    ABSENT_TIME, ABSENT_REGIONS, ABSENT_ITERATIONS, ABSENT_PARTS,
    ABSENT_CALLS, ABSENT_RANGES, ABSENT_FUNCTIONS, ABSENT_STRETCHES,
)  # fmt: skip


def not_compared(
    tables: Mapping[str, pl.DataFrame], devices: Sequence[str], tasks: Sequence[str], reason: str, start_up: int
) -> dict[str, pl.DataFrame]:
    """All tables, where those of compute-absent time and of gaps have no causes of devices whose times contradict those of
    their hosts (`device_clocks`), or whose work was not recorded (`lost_work`): the `reason`, CONTRADICTED or LOST.

    What is recorded of such a device is known. What comparing it with its host would say is not: why it waits, and what the
    host did meanwhile. Sums are the same; until `start_up`, ns, nothing was launched. `tables` are by name, with the columns of
    the registry; `tasks` use the devices."""
    if not devices:
        return dict(tables)
    changed = dict(tables)
    is_doubted = pl.col("device").is_in(list(devices))
    of_parts, of_causes = (PART_COLUMNS, "undecided_ns"), (CAUSE_COLUMNS, UNKNOWN_COLUMN)
    for table, (columns, undivided) in (
        *((table, of_parts) for table in (ABSENT_TIME, ABSENT_REGIONS, ABSENT_ITERATIONS, ABSENT_STRETCHES)),
        *((table, of_causes) for table in (GAPS, LONGEST_GAPS)),
    ):
        # The total is in one of the columns.
        changed[table.name] = tables[table.name].with_columns(
            pl.when(is_doubted).then(pl.sum_horizontal(columns) if name == undivided else 0).otherwise(name).alias(name)
            for name in columns
        )
    off_cpu = pl.when(~is_doubted).then("off_cpu_ns").alias("off_cpu_ns")
    before_launches = pl.when(is_doubted).then(pl.lit(start_up, pl.Int64)).otherwise(0)
    changed[ABSENT_TIME.name] = changed[ABSENT_TIME.name].with_columns(
        off_cpu, pl.col("undecided_ns") - before_launches, pl.col("start_up_ns") + before_launches
    )
    for table in (ABSENT_CALLS, ABSENT_RANGES, ABSENT_FUNCTIONS):
        changed[table.name] = tables[table.name].filter(~pl.col("task").is_in(list(tasks)))
    texts = {"part": pl.lit(TITLES["undecided"]), "detail": pl.lit(reason)}
    named = [pl.when(is_doubted).then(text).otherwise(name).alias(name) for name, text in texts.items()]
    sums = pl.col("count", "total_ns").sum(), pl.col("longest_ns").max()
    rows = tables[ABSENT_PARTS.name].with_columns(named).group_by("device", *texts, maintain_order=True).agg(sums)
    at_start = {"part": pl.lit(TITLES["start_up"]), "detail": None, "total_ns": before_launches, "longest_ns": before_launches}
    start_ups = rows.filter(is_doubted & (before_launches > 0)).with_columns(**at_start)
    rows = pl.concat([rows.with_columns(pl.col("total_ns") - before_launches), start_ups])
    changed[ABSENT_PARTS.name] = rows.sort("total_ns", descending=True, maintain_order=True)
    return changed
