"""The efficiency model: measured times, and one entry per efficiency from which every output follows.

Symbols in formulas: E is the length of the window and n the number of physical GPUs. Of a device, U is useful time, C
communication outside U, and A = U + C. Of a host thread of a process that uses a GPU, G is the time in CUDA calls, M that in
MPI calls outside G, and U the rest of E; M of a process is that of its thread that is in MPI longest.

Names and hierarchy follow the POP metrics (https://pop-coe.eu) and the TALP module of BSC's DLB. An efficiency is the product
of its factors. One without a meaning, such as the balance of devices without useful work, is None.

A new efficiency is an entry of DEVICE_TREE or HOST_TREE, and a new time too: all tables of trees have their columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.result_tables import NCCL_POLICY, Column, Table

HAS_MPI, HAS_GPUS = "MPI", "GPUs"
"""What a run can use: without them some efficiencies are absent, not 100 %."""


def uses(*, mpi: bool, gpus: bool) -> frozenset[str]:
    """What a run uses: HAS_MPI, HAS_GPUS."""
    return frozenset(use for use, is_used in ((HAS_MPI, mpi), (HAS_GPUS, gpus)) if is_used)


# -- measured times -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeviceTimes:
    """What the devices did in a window.

    Attributes
    ----------
    elapsed
        E, ns.
    useful, communication
        U and C of each device, ns.
    by_mask
        Time of each device (rows) by what runs on it, as bits (`measured_run.MASKS` columns), ns.
    """

    elapsed: int
    useful: Numbers
    communication: Numbers
    by_mask: Numbers

    @property
    def active(self) -> Numbers:
        """A of each device, ns."""
        return self.useful + self.communication

    @property
    def used(self) -> frozenset[str]:
        """HAS_GPUS where there is a device."""
        return uses(mpi=False, gpus=len(self.useful) > 0)


@dataclass(frozen=True)
class HostTimes:
    """What the hosts did in a window: one value for each host thread that counts.

    Attributes
    ----------
    windows, cuda, mpi
        E, G and M of each thread, ns.
    by_activity
        Time of each thread (rows) by what it does (`measured_run.ACTIVITIES` columns), ns.
    process
        Number of the process of each thread.
    used
        What the run uses, of HAS_MPI and HAS_GPUS.
    """

    windows: Numbers
    cuda: Numbers
    mpi: Numbers
    by_activity: Numbers
    process: Numbers
    used: frozenset[str]

    @cached_property
    def mpi_of_processes(self) -> Numbers:
        """M of each process, ns: of its thread that is in MPI longest. Helper threads don't lower it."""
        processes, place = np.unique(self.process, return_inverse=True)
        longest: Numbers = np.zeros(len(processes), dtype=np.int64)
        np.maximum.at(longest, place, self.mpi)
        return longest


Times = TypeVar("Times", DeviceTimes, HostTimes)
TreeRow = Mapping[str, Any]
"""Values of columns of a tree by name."""


@dataclass(frozen=True)
class Time(Generic[Times]):
    """A measured time, or a number of devices, processes or threads.

    Attributes
    ----------
    column
        In tables.
    measure
        Computes it; None: it is measured later, by `with_ideal_network`.
    of_whole_run, is_later
        As those of an `Efficiency`.
    """

    column: Column
    measure: Callable[[Times], Any] | None
    of_whole_run: bool = False
    is_later: bool = False

    def value(self, times: Times) -> float | None:
        """The value in the type of the column."""
        if self.measure is None:
            return None
        return int(self.measure(times)) if self.column.dtype is pl.Int64 else float(self.measure(times))


# -- efficiencies ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Efficiency:
    """One efficiency: all that outputs and documentation need to show it.

    Attributes
    ----------
    name, title, abbreviation
        Its column in tables, its name for people, and a heading for narrow tables.
    parent
        Name of the efficiency of which it is a factor; None for the root.
    product_of
        Efficiencies beside it whose product it is: it divides their loss in another way, and is no factor of its parent.
    formula
        How it is computed, in the symbols of this module.
    parts
        Numerator and denominator of the formula, from the times of the tree by their columns.
    reads_as
        Where time goes when it is low; of a root: what it is.
    loss
        What is lost, to be followed by the share; "" for a root.
    talp
        Its key in the JSON of TALP; "" when TALP does not have it.
    null_without
        Without which it has no meaning; "" when it always has one.
    needs
        It is absent from runs that use none of these: HAS_MPI, HAS_GPUS.
    of_whole_run
        Whether only the run as a whole has it: tables of its parts have no such column.
    is_later
        Whether it came after the first files of `table_registry.VERSION`, which lack it then.
    """

    name: str
    title: str
    abbreviation: str
    parent: str | None
    formula: str
    parts: Callable[[TreeRow], tuple[float | None, float | None]]
    reads_as: str
    loss: str
    talp: str = ""
    null_without: str = ""
    needs: tuple[str, ...] = ()
    product_of: tuple[str, ...] = ()
    of_whole_run: bool = False
    is_later: bool = False

    def value(self, times: TreeRow, used: frozenset[str]) -> float | None:
        """The efficiency, 0 to 1, in a run that uses HAS_MPI, HAS_GPUS, or both; None where it has no meaning."""
        if self.needs and used.isdisjoint(self.needs):
            return None
        numerator, denominator = self.parts(times)
        return numerator / denominator if numerator is not None and denominator else None

    @property
    def needs_mpi(self) -> bool:
        """Whether runs without MPI do not have it."""
        return self.needs == (HAS_MPI,)

    @property
    def needs_gpus(self) -> bool:
        """Whether runs without GPUs do not have it."""
        return self.needs == (HAS_GPUS,)

    @property
    def heading(self) -> str:
        """The title as a heading of a column: `MPI parallel eff.`"""
        words = self.title.replace("Efficiency", "eff.").split()
        return " ".join(word if word.isupper() else word.lower() for word in words)


@dataclass(frozen=True)
class EfficiencyTree(Generic[Times]):
    """A tree of efficiencies over the same measured times.

    Attributes
    ----------
    name, title
        For programs and for people.
    times
        Measured times, in the order of their columns.
    efficiencies
        In the order in which they are read: each after its parent.
    title_without_gpus
        Of a run in which no process uses a GPU.
    """

    name: str
    title: str
    times: tuple[Time[Times], ...]
    efficiencies: tuple[Efficiency, ...]
    title_without_gpus: str = ""

    @property
    def of_parts(self) -> tuple[Efficiency, ...]:
        """Efficiencies that parts of a run (nodes, iterations, ...) have too."""
        return tuple(efficiency for efficiency in self.efficiencies if not efficiency.of_whole_run)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of the times and efficiencies that parts of a run have too."""
        return tuple(time.column for time in self.times if not time.of_whole_run) + self._columns(self.of_parts)

    @property
    def columns_of_run(self) -> tuple[Column, ...]:
        """All columns of the times and efficiencies."""
        return tuple(time.column for time in self.times) + self._columns(self.efficiencies)

    def row(self, times: Times) -> dict[str, Any]:
        """Values of all columns."""
        measured = {time.column.name: time.value(times) for time in self.times}
        return measured | self.values(measured, times.used)

    def values(self, times: TreeRow, used: frozenset[str]) -> dict[str, float | None]:
        """All efficiencies by name, from the times by their columns, in a run that uses HAS_MPI, HAS_GPUS, or both."""
        return {efficiency.name: efficiency.value(times, used) for efficiency in self.efficiencies}

    def factors(self, efficiency: Efficiency) -> list[str]:
        """Names of the efficiencies whose product an efficiency is."""
        return [factor.name for factor in self.efficiencies if factor.parent == efficiency.name and not factor.product_of]

    def level(self, efficiency: Efficiency) -> int:
        """0 for the root, 1 for its factors, and so on."""
        return next((1 + self.level(parent) for parent in self.efficiencies if parent.name == efficiency.parent), 0)

    def _columns(self, efficiencies: Sequence[Efficiency]) -> tuple[Column, ...]:
        return tuple(Column.share(efficiency.name, self._meaning(efficiency)) for efficiency in efficiencies)

    def _meaning(self, efficiency: Efficiency) -> str:
        products = (efficiency.product_of, self.factors(efficiency))
        product = "".join(f"; the product of {_listed(names)}" for names in products if names)
        without = f"; null without {efficiency.null_without}" if efficiency.null_without else ""
        return efficiency.formula + product + without


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(f'`{name}`' for name in names[:-1])} and `{names[-1]}`"


def _mean_elapsed(run: TreeRow) -> float:
    """E, the mean of the windows of all threads, ns."""
    windows = run["host_useful_ns"] + run["cuda_ns"] + run["mpi_ns"]
    return windows / run["threads"] if run["threads"] else 0.0


def _outside_mpi(run: TreeRow) -> float:
    """E - mean M, ns."""
    return _mean_elapsed(run) - float(run["mean_mpi_ns"])


_REPLAY = (
    "a replay with an ideal network, which needs the graph of the run, NCCL kernels that count as communication, and all ranks "
    "of collectives and messages"
)

DEVICE_TREE: EfficiencyTree[DeviceTimes] = EfficiencyTree(
    "device",
    "Devices",
    times=(
        Time(Column.count("devices", "n, physical GPUs, also those that were idle throughout"), lambda gpus: len(gpus.useful)),
        Time(Column.ns("elapsed_ns", "E, length of the window"), lambda gpus: gpus.elapsed),
        Time(Column.ns("useful_ns", "sum over devices of U, the time in which at least one useful kernel ran"),
             lambda gpus: gpus.useful.sum()),
        Time(Column.ns("communication_ns", "sum over devices of C, the time in which data moved and no useful kernel ran"),
             lambda gpus: gpus.communication.sum()),
        Time(Column.ns("active_ns", "sum over devices of A = U + C"), lambda gpus: gpus.active.sum()),
        Time(Column.ns("max_useful_ns", "largest U of a device"), lambda gpus: gpus.useful.max(initial=0)),
        Time(Column.ns("max_active_ns", "largest A of a device"), lambda gpus: gpus.active.max(initial=0)),
        Time(Column.ns("ideal_network_ns", "E_ideal, length of a replay of the window in which transfers of collectives and "
                       "messages take no time, at least max U; null where there is none"),
             measure=None, of_whole_run=True),
    ),
    efficiencies=(
        Efficiency("device_parallel_efficiency", "Device Parallel Efficiency", "PE", parent=None,
                   formula="sum U / (E n)", parts=lambda run: (run["useful_ns"], run["elapsed_ns"] * run["devices"]),
                   reads_as="time in which devices compute", loss="", talp="gpuParallelEfficiency"),
        Efficiency("load_balance", "Load Balance", "LB", parent="device_parallel_efficiency",
                   formula="sum U / (n max U)", parts=lambda run: (run["useful_ns"], run["devices"] * run["max_useful_ns"]),
                   reads_as="devices are idle because another one has more useful work",
                   loss="lost to imbalance between devices", talp="gpuLoadBalance", null_without="useful time"),
        Efficiency("communication_efficiency", "Communication Efficiency", "CE", parent="device_parallel_efficiency",
                   formula="max U / max A", parts=lambda run: (run["max_useful_ns"], run["max_active_ns"]),
                   reads_as="devices are busy with moving data", loss="lost to exposed communication and copies",
                   talp="gpuCommunicationEfficiency", null_without="activity"),
        Efficiency("orchestration_efficiency", "Orchestration Efficiency", "OE", parent="device_parallel_efficiency",
                   formula="max A / E", parts=lambda run: (run["max_active_ns"], run["elapsed_ns"]),
                   reads_as="devices are idle because no work is pending", loss="lost to idle devices without pending work",
                   talp="gpuOrchestrationEfficiency", needs=(HAS_GPUS,)),
        Efficiency("progress_efficiency", "Communication x Orchestration", "CE x OE", parent="device_parallel_efficiency",
                   product_of=("communication_efficiency", "orchestration_efficiency"),
                   formula="max U / E", parts=lambda run: (run["max_useful_ns"], run["elapsed_ns"]),
                   reads_as="all devices move data, wait or are idle",
                   loss="lost to communication and idle devices, divided by cause", needs=(HAS_GPUS,), of_whole_run=True),
        Efficiency("transfer_efficiency", "Transfer Efficiency", "TE", parent="progress_efficiency",
                   formula="E_ideal / E", parts=lambda run: (run["ideal_network_ns"], run["elapsed_ns"]),
                   reads_as="the network takes time that an ideal one would not", loss="lost to transfers between ranks",
                   null_without=_REPLAY, of_whole_run=True),
        Efficiency("serialization_efficiency", "Serialization Efficiency", "SE", parent="progress_efficiency",
                   formula="max U / E_ideal", parts=lambda run: (run["max_useful_ns"], run["ideal_network_ns"]),
                   reads_as="waits that an ideal network would not end: order of work, launches, hosts, late ranks",
                   loss="lost to waits that an ideal network would not end", null_without=_REPLAY, of_whole_run=True),
    ),
)  # fmt: skip

HOST_TREE: EfficiencyTree[HostTimes] = EfficiencyTree(
    "host",
    "Hosts: threads that call CUDA or MPI, of processes that use a GPU",
    title_without_gpus="Hosts",
    times=(
        Time(Column.count("processes", "processes that use a GPU"), lambda hosts: len(hosts.mpi_of_processes)),
        Time(Column.count("threads", "their threads that call CUDA or MPI"), lambda hosts: len(hosts.windows)),
        Time(Column.ns("host_useful_ns", "sum over these threads of the time in neither CUDA nor MPI calls"),
             lambda hosts: (hosts.windows - hosts.cuda - hosts.mpi).sum()),
        Time(Column.ns("cuda_ns", "sum of G, the time in CUDA API calls"), lambda hosts: hosts.cuda.sum()),
        Time(Column.ns("mpi_ns", "sum of M, the time in MPI calls, outside CUDA API calls"), lambda hosts: hosts.mpi.sum()),
        Time(Column.mean_ns("mean_mpi_ns", "mean M of a process: of its thread that is in MPI longest"),
             lambda hosts: hosts.mpi_of_processes.sum() / max(len(hosts.mpi_of_processes), 1)),
        Time(Column.mean_ns("min_mpi_ns", "smallest M of a process"), lambda hosts: min(hosts.mpi_of_processes, default=0)),
    ),
    efficiencies=(
        Efficiency("host_parallel_efficiency", "Host Parallel Efficiency", "host PE", parent=None,
                   formula="(E - mean M) / E x sum U / sum (U + G)",
                   parts=lambda run: (_outside_mpi(run) * run["host_useful_ns"],
                                      _mean_elapsed(run) * (run["host_useful_ns"] + run["cuda_ns"])),
                   reads_as="time in which hosts are in no MPI or CUDA call", loss="", talp="parallelEfficiency",
                   null_without="MPI and GPUs", needs=(HAS_MPI, HAS_GPUS)),
        Efficiency("mpi_parallel_efficiency", "MPI Parallel Efficiency", "MPI PE", parent="host_parallel_efficiency",
                   formula="(E - mean M) / E", parts=lambda run: (_outside_mpi(run), _mean_elapsed(run)),
                   reads_as="hosts are in MPI calls", loss="lost to MPI calls", talp="mpiParallelEfficiency",
                   null_without="MPI", needs=(HAS_MPI,)),
        Efficiency("mpi_load_balance", "MPI Load Balance", "MPI LB", parent="mpi_parallel_efficiency",
                   formula="(E - mean M) / (E - min M)",
                   parts=lambda run: (_outside_mpi(run), _mean_elapsed(run) - run["min_mpi_ns"]),
                   reads_as="hosts wait for another one", loss="lost to imbalance between processes", talp="mpiLoadBalance",
                   null_without="MPI", needs=(HAS_MPI,)),
        Efficiency("mpi_communication_efficiency", "MPI Communication Efficiency", "MPI CE", parent="mpi_parallel_efficiency",
                   formula="(E - min M) / E", parts=lambda run: (_mean_elapsed(run) - run["min_mpi_ns"], _mean_elapsed(run)),
                   reads_as="all hosts move data, or wait in turn", loss="lost to communication and waits in turn",
                   talp="mpiCommunicationEfficiency", null_without="MPI", needs=(HAS_MPI,)),
        Efficiency("device_offload_efficiency", "Device Offload Efficiency", "DOE", parent="host_parallel_efficiency",
                   formula="sum U / sum (U + G)",
                   parts=lambda run: (run["host_useful_ns"], run["host_useful_ns"] + run["cuda_ns"]),
                   reads_as="hosts are in CUDA calls: they launch, copy and wait", loss="lost to CUDA calls",
                   talp="deviceOffloadEfficiency", needs=(HAS_GPUS,)),
    ),
)  # fmt: skip

TREES: tuple[EfficiencyTree[Any], ...] = (DEVICE_TREE, HOST_TREE)
EFFICIENCIES: Mapping[str, Efficiency] = {efficiency.name: efficiency for tree in TREES for efficiency in tree.efficiencies}
"""All efficiencies by name, in the order in which they are read."""
TREE_COLUMNS = (NCCL_POLICY, *DEVICE_TREE.columns, *HOST_TREE.columns)
"""Columns of tables that have both trees of a part of a run in one row."""
TREE_COLUMNS_OF_RUN = (NCCL_POLICY, *DEVICE_TREE.columns_of_run, *HOST_TREE.columns_of_run)
"""The same of a whole run."""
LATER_COLUMNS = frozenset(
    {time.column.name for tree in TREES for time in tree.times if time.is_later}
    | {efficiency.name for efficiency in EFFICIENCIES.values() if efficiency.is_later}
)
"""Columns of trees that came after the first files of the version of the results."""

TREE_TABLE = Table(
    "tree",
    "Efficiencies of the devices and of the hosts",
    "one efficiency",
    (
        NCCL_POLICY,
        Column.text("tree", "`device` or `host`"),
        Column.text("metric", "name of the column of `run`"),
        Column.text("title", "name for people"),
        Column.text("parent", "the metric whose factor it is; null for the root"),
        Column.text(
            "product_of",
            "metrics beside it, separated by blanks, whose product it is, instead of a factor of its parent; null for factors",
        ),
        Column.count("level", "0 for the root"),
        Column.share("value", "the efficiency; null where it has no meaning"),
        Column.text("reason", "what is missing where the value is null"),
        Column.text("formula", "how it is computed"),
        Column.text("reads_as", "what is lost where it is low"),
    ),
    by_nccl_policy=True,
    order=20,
)


def tree_rows(run: TreeRow) -> list[dict[str, Any]]:
    """Rows of the table `tree`, from the row of the table `run`; efficiencies of MPI and of GPUs are absent without these."""
    rows = []
    for efficiency in EFFICIENCIES.values():
        tree: EfficiencyTree[Any] = DEVICE_TREE if efficiency in DEVICE_TREE.efficiencies else HOST_TREE
        value, without = run[efficiency.name], efficiency.null_without
        of_gpus = tree is DEVICE_TREE or efficiency.needs_gpus
        if (efficiency.needs_mpi and value is None) or (of_gpus and not run["devices"]):
            continue
        rows.append(
            {
                "nccl": run[NCCL_POLICY.name],
                "tree": tree.name,
                "metric": efficiency.name,
                "level": tree.level(efficiency),
                "product_of": " ".join(efficiency.product_of) or None,
                "value": value,
                "reason": f"without {without}" if value is None and without else None,
                **{name: getattr(efficiency, name) for name in ("title", "parent", "formula", "reads_as")},
            }
        )
    return rows


def with_ideal_network(run: TreeRow, replayed: int) -> dict[str, Any]:
    """The row of the table `run` with what follows from an ideal network.

    After the POP metrics (https://pop-coe.eu): transfer efficiency is the length of a replay with an ideal network over the
    measured length, serialization efficiency is the rest. There, the replay is one of Dimemas, of MPI; here it is that of the
    graph of the run, whose processors are devices. It lets kernels of a device run at once that share it, and a device does not
    compute faster for that: the run takes as long as the useful time of each device, and no longer than it took.

    Parameters
    ----------
    replayed
        Length of the window in a replay in which transfers take no time, ns.
    """
    times = {**run, "ideal_network_ns": min(max(replayed, run["max_useful_ns"]), run["elapsed_ns"])}
    return times | DEVICE_TREE.values(times, uses(mpi=False, gpus=run["devices"] > 0))


def at_length(run: TreeRow, length: int) -> dict[str, Any]:
    """The row of the table `run` if the window had another length, ns, and all else were the same.

    Where clocks of hosts are not exactly known, the length is not; how long a device or a thread does something is.
    """
    longer = run["threads"] * (length - run["elapsed_ns"])
    times = {**run, "elapsed_ns": length, "host_useful_ns": run["host_useful_ns"] + longer}
    if run["ideal_network_ns"] is not None:
        times["ideal_network_ns"] = min(run["ideal_network_ns"], length)
    used = uses(mpi=run["mpi_parallel_efficiency"] is not None, gpus=run["devices"] > 0)
    return times | DEVICE_TREE.values(times, used) | HOST_TREE.values(times, used)
