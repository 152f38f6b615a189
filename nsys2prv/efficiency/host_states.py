"""What host threads do: in which calls they are, whether they sleep, wait or compute, and whether they create something once.

A thread that creates an NCCL communicator or the context of its process is in that, whatever it calls meanwhile. Else the call
counts in which it is; outside of calls its scheduling says whether it computes, where that was recorded."""

from collections.abc import Mapping

import polars as pl

from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.name_rules import first_match

STATES: tuple[tuple[str, str, str], ...] = (
    ("profiler", "profiler", "in the set-up of the profiler itself, which takes no time without it"),
    ("communicator", "creating communicators", "in a call that creates NCCL communicators, as far as NVTX ranges of NCCL were "
     "recorded"),
    ("context", "creating the context", "in the call that creates the CUDA context of the process, the first ones that take "
     "far longer than later ones, or starts the CUDA runtime again, of which libraries such as cuBLAS have their own copies"),
    ("launch", "launching", "in calls that launch"),
    ("synchronization", "waiting for the device", "in calls that wait for the device"),
    ("memory", "in copy calls", "in copies and memsets, also while these wait for what runs on a device"),
    ("allocation", "allocating", "in calls that allocate or free memory"),
    ("other_cuda", "other CUDA calls", "in other CUDA calls"),
    ("mpi", "MPI", "in MPI calls"),
    ("asleep", "host asleep", "in calls of the OS runtime that sleep (as far as they were recorded, here and below)"),
    ("polling", "host waiting for events", "in calls that wait for files, sockets or signals: poll, select, sigwait"),
    ("processes", "host waiting for processes", "in calls that wait for other processes: waitpid, system"),
    ("locked", "host waiting for threads", "in calls that wait for other threads: conditions, locks, semaphores, barriers"),
    ("io", "host in I/O", "in calls that read, write or open files, or send and receive"),
    ("os", "other OS calls", "in other calls of the OS runtime, such as ioctl, in which the driver works"),
    ("off_cpu", "host off its CPU", "in none of these, and off its CPU: it slept, waited, or others ran in its place"),
    ("computing", "host computing", "in none of these, and on its CPU, as its scheduling says"),
    ("host", "host computing or off its CPU", "in none of these, and scheduling was not recorded"),
)  # fmt: skip
"""States of host threads: name, title, meaning. Where several hold, the first counts."""
NAMES = tuple(name for name, _, _ in STATES)
PROFILER, COMMUNICATOR, CONTEXT, FIRST_CALL = range(4)
"""Places of what is created, by the profiler or the program, and of the first state that a call alone shows."""
ASLEEP, POLLING, PROCESSES, LOCKED, IN_IO, IN_OS, OFF_CPU, COMPUTING, UNSCHEDULED = range(9, 18)
WAITING = (ASLEEP, POLLING, PROCESSES, LOCKED, IN_IO, OFF_CPU)
"""States in which a thread sleeps or waits, and neither computes nor is in CUDA or MPI."""

_OS_STATES = (
    (r"^_*(u|nano|clock_nano)?sleep$", ASLEEP),
    (r"^pthread_(cond_(timed|clock)?wait|mutex_.*lock$|rwlock_.*lock$|spin_lock|barrier_wait|.*join)|^sem_.*wait|futex|^flock$",
     LOCKED),
    (r"p?poll|p?select|epoll_p?wait|^sig(timed)?wait|^pause$", POLLING),
    (r"^(system|wait(pid|id|3|4)?)$", PROCESSES),
    (r"^_*(recv|send|accept|connect)", IN_IO),
)  # fmt: skip
_COMMUNICATOR = r"^p?ncclComm(Init|Split|Shrink|Grow)|^p?ncclGetUniqueId$|(?i)^(nccl)?bootstrap(init|split)"
_GROUP = r"^p?ncclGroup(Start|End)"

LONG_CREATION = 20_000_000
"""ns: the creation of a context takes 30 to 1,500 ms; other first calls some µs."""
_LONGEST_CREATION = 1_000_000_000
"""ns of a pause in which that can be: of a longer one it is a part."""
LONGER = 10
"""The same against later calls of the name in the process."""
_CREATING = r"^cu(CtxCreate|DevicePrimaryCtxRetain)"
"""Calls that do nothing else: later ones may take as long."""
_LIGHT = (
    r"^cuda(Free|Malloc|MallocPitch|MallocAsync|StreamCreate\w*|EventCreate\w*|StreamIsCapturing|SetDevice|InitDevice|MemGetInfo"
    rf"|DeviceSetLimit|DeviceGetStreamPriorityRange)$|{_CREATING}"
)
"""Calls that take long only where they create a context. Work of devices that they could wait for has not begun."""
_HEAVY = r"^cuda(MallocManaged|MallocHost|Host(Alloc|Register)|Memcpy|Memset|LaunchKernel|DeviceSynchronize)"
"""Calls that may take long for other reasons, and create the context where they are the first of their process."""
_IN_CONTEXT = r"^cu(Mem(Alloc|Free|cpy|set)|Launch|Stream|Event)|^cudaBind"
"""Other calls that need a context: what follows them does not create it."""


def os_states(names: pl.Series, number: int) -> pl.Series:
    """State in calls of the OS runtime, by their names; `number` is their event type."""
    default = IN_IO if number == event_types.IO_CALL else IN_OS
    return names.to_frame("name").select(first_match(pl.col("name"), _OS_STATES, default)).to_series()


def creates_communicators(ranges: pl.DataFrame) -> pl.DataFrame:
    """Those ranges of NCCL's calls (columns `row`, `name`; sorted by start) in which communicators are created.

    Calls between ncclGroupStart and ncclGroupEnd only say what is to be created: the latter does it."""
    name = pl.col("name")
    is_creation = name.str.contains(_COMMUNICATOR)
    is_after_creation = pl.when(~name.str.contains(_GROUP)).then(is_creation).forward_fill().over("row")
    return ranges.filter(is_creation | (name.str.contains(r"ncclGroupEnd") & is_after_creation))


def creates_context(calls: pl.DataFrame, devices: pl.DataFrame, names: Mapping[int, str], set_up: pl.DataFrame) -> pl.DataFrame:
    """Those calls of CUDA (columns `task`, `value`, a key of `names`, `start`, `end`, ns) from the start of the program on in
    which contexts are created.

    As many of a process as it uses `devices` (`task`, `devices`, how many, and `until`, when the first work begins on the
    last, ns), and those that began meanwhile: others wait until the context is there. CUPTI prepares each context in the call
    that creates it: where it did so (`set_up`: `task`, `start`, `since`, ns) is such a call. So are long calls that free memory
    before any is allocated, and those right after cuInit: further copies of the CUDA runtime in the process start with them."""
    length, is_early = pl.col("end") - pl.col("start"), pl.col("start") < pl.col("until")
    initializes, asks = (
        [value for value, called in names.items() if called.startswith(name)] for name in ("cuInit", "cuModuleGetLoadingMode")
    )
    # A newer runtime asks how to load code in between.
    before = pl.when(~pl.col("value").is_in(asks)).then("value").forward_fill().shift().over("row")
    starts_runtime = before.is_in(initializes).fill_null(value=False)
    of_devices = calls.with_columns(starts_runtime=starts_runtime).join(devices, on="task", how="inner")
    usual = length.filter(~is_early).mean().over("task", "value")
    name = pl.col("value").replace_strict(names, default="", return_dtype=pl.String)
    allocated = pl.col("start").filter(name.str.contains("(?i)alloc")).min().over("task")
    early = of_devices.with_columns(usual=usual).filter(is_early).sort("start").with_columns(allocated=allocated)
    needs_context = name.str.contains(f"{_LIGHT}|{_HEAVY}") & (name != "cudaSetDevice")
    is_first = pl.col("start") == pl.col("start").filter(needs_context | name.str.contains(_IN_CONTEXT)).min().over("task")
    is_longer = name.str.contains(_CREATING) | (length >= LONGER * pl.col("usual")).fill_null(value=True)
    is_long = (length >= LONG_CREATION) & is_longer
    is_set_up = (pl.col("since") <= pl.col("end")).fill_null(value=False) & ~name.str.contains("Destroy|Reset")
    is_creating = is_long & (name.str.contains(_LIGHT) | (needs_context & is_first))
    prepared = early.join_asof(set_up, on="start", by="task", strategy="forward", check_sortedness=False)
    long = prepared.filter(is_creating | (is_set_up & (length >= LONG_CREATION))).drop("since")
    is_counted = pl.int_range(pl.len()).over("task") < pl.col("devices")
    frees_nothing = (name == "cudaFree") & (pl.col("start") < pl.col("allocated")).fill_null(value=True)
    creating = long.filter((pl.col("start") < pl.col("end").filter(is_counted).max().over("task")) | frees_nothing)
    again = of_devices.filter("starts_runtime", length >= LONG_CREATION)
    again = again.filter(name.str.contains(f"{_LIGHT}|^cudaLaunchKernel"))
    return pl.concat(frame.select(calls.columns) for frame in (creating, again)).unique(["row", "start"]).sort("start")


def unrecorded_creations(calls: pl.DataFrame, set_up: pl.DataFrame) -> pl.DataFrame:
    """Pauses between calls of CUDA (`row`, `start`, `end`, ns, sorted by start) in which CUPTI prepares a context (`row` and
    `start` of `set_up`, likewise): a call that was not recorded creates it, such as cudaDeviceEnablePeerAccess."""
    of_threads = calls.filter(pl.col("row").is_in(set_up["row"].unique().implode()))
    until, following = pl.col("end").cum_max().over("row"), pl.col("start").shift(-1).over("row")
    begun = of_threads.select("row", at="start", start=until, end=following)
    marks = set_up.select("row", at="start")
    around = marks.join_asof(begun, on="at", by="row", allow_exact_matches=False, check_sortedness=False)
    is_inside = (pl.col("start") <= pl.col("at")) & (pl.col("at") < pl.col("end"))
    is_long = (pl.col("end") - pl.col("start")).is_between(LONG_CREATION, _LONGEST_CREATION)
    return around.filter(is_inside & is_long).select("row", "start", "end").unique(maintain_order=True)
