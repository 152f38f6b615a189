"""The efficiency model: measured times, and one entry per efficiency from which every output follows.

Symbols in formulas: E is the length of the window and n the number of physical GPUs. Of a device, U is useful time, C
communication outside U, and A = U + C. Of a host thread of a process that uses a GPU, G is the time in CUDA calls, M that in
MPI calls outside G, and U the rest of E; M of a process is that of its thread that is in MPI longest.

Names and hierarchy follow the POP metrics (https://pop-coe.eu) and the TALP module of BSC's DLB. An efficiency is the product
of its factors. One without a meaning, such as the balance of devices without useful work, is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, TypeVar

from nsys2prv.efficiency.result_tables import NCCL_POLICY, Column, Table

# -- measured times -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeviceTimes:
    """What the devices did in a window; the meaning of each attribute is that of its column in DEVICE_TREE."""

    elapsed_ns: int
    devices: int
    useful_ns: int
    communication_ns: int
    max_useful_ns: int
    max_active_ns: int
    ideal_network_ns: int | None = None
    has_mpi = False

    @property
    def uses_gpus(self) -> bool:
        """Whether there is a device."""
        return self.devices > 0

    @classmethod
    def of(cls, elapsed: int, useful: Sequence[int], communication: Sequence[int]) -> DeviceTimes:
        """From U and C of each device, ns."""
        active = [u + c for u, c in zip(useful, communication, strict=True)]
        return cls(elapsed, len(useful), sum(useful), sum(communication), max(useful, default=0), max(active, default=0))

    def with_ideal_network(self, replayed: int) -> DeviceTimes:
        """With the length of a replay in which transfers take no time, ns.

        A replay lets kernels of a device run at once that share it, and a device does not compute faster for that: the run
        takes as long as the useful time of each device, and no longer than it took.
        """
        return replace(self, ideal_network_ns=min(max(replayed, self.max_useful_ns), self.elapsed_ns))

    @property
    def active_ns(self) -> int:
        """sum A."""
        return self.useful_ns + self.communication_ns


@dataclass(frozen=True)
class ProcessTimes:
    """Threads of one process that count, their sums of G (`cuda`) and M (`mpi`), and the largest M of one, ns.

    A process is in MPI when its thread that calls MPI is: helper threads, which only launch, don't make it less.
    """

    threads: int
    cuda: int
    mpi: int
    longest_mpi: int


@dataclass(frozen=True)
class HostTimes:
    """What the hosts did in a window; the meaning of each attribute is that of its column in HOST_TREE.

    Attributes
    ----------
    elapsed
        Sum of the windows of all threads, ns: E is their mean.
    has_mpi, uses_gpus
        Whether the run has MPI calls, and whether a process of it uses a GPU: without them the efficiencies of these are
        absent, not 100 %.
    """

    elapsed: int
    processes: int
    threads: int
    host_useful_ns: int
    cuda_ns: int
    mpi_ns: int
    mean_mpi_ns: float
    min_mpi_ns: float
    has_mpi: bool
    uses_gpus: bool = True

    @classmethod
    def of(cls, elapsed: int, processes: Sequence[ProcessTimes], *, has_mpi: bool, uses_gpus: bool = True) -> HostTimes:
        """From the times of each process, and the sum of the windows of all their threads.

        M of a process is that of its thread that is in MPI longest; means and minima are over processes.
        """
        threads = sum(one.threads for one in processes)
        cuda, mpi = sum(one.cuda for one in processes), sum(one.mpi for one in processes)
        by_process = [float(one.longest_mpi) for one in processes]
        mean = math.fsum(by_process) / len(by_process) if by_process else 0.0
        least = min(by_process, default=0.0)
        return cls(elapsed, len(processes), threads, elapsed - cuda - mpi, cuda, mpi, mean, least, has_mpi, uses_gpus)

    @property
    def mean_elapsed(self) -> float:
        """E, the mean of the windows of all threads, ns."""
        return self.elapsed / self.threads if self.threads else 0.0

    @property
    def outside_mpi(self) -> float:
        """E - mean M, ns."""
        return self.mean_elapsed - (self.mean_mpi_ns if self.has_mpi else 0.0)


# -- efficiencies ---------------------------------------------------------------------------------------------------------

Times = TypeVar("Times", DeviceTimes, HostTimes)


@dataclass(frozen=True)
class Efficiency(Generic[Times]):
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
        Numerator and denominator of the formula.
    reads_as
        Where time goes when it is low; of a root: what it is.
    loss
        What is lost, to be followed by the share; "" for a root.
    talp
        Its key in the JSON of TALP; "" when TALP does not have it.
    null_without
        Without which it has no meaning; "" when it always has one.
    needs_mpi, needs_gpus
        Whether it is absent from trees without MPI, and from those of a run in which no process uses a GPU.
    of_whole_run
        Whether only the run as a whole has it: tables of its parts have no such column.
    """

    name: str
    title: str
    abbreviation: str
    parent: str | None
    formula: str
    parts: Callable[[Times], tuple[float | None, float | None]]
    reads_as: str
    loss: str
    talp: str = ""
    null_without: str = ""
    needs_mpi: bool = False
    needs_gpus: bool = False
    product_of: tuple[str, ...] = ()
    of_whole_run: bool = False

    def value(self, times: Times) -> float | None:
        """The efficiency, 0 to 1; None where it has no meaning."""
        part, whole = self.parts(times)
        has_meaning = (times.has_mpi or not self.needs_mpi) and (times.uses_gpus or not self.needs_gpus)
        return part / whole if part is not None and whole and has_meaning else None

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
        Columns of the measured times; each is an attribute of the times.
    title_without_gpus
        Of a run in which no process uses a GPU.
    times_of_run
        Those that only the run as a whole has.
    efficiencies
        In the order in which they are read: each after its parent.
    """

    name: str
    title: str
    times: tuple[Column, ...]
    efficiencies: tuple[Efficiency[Times], ...]
    times_of_run: tuple[Column, ...] = ()
    title_without_gpus: str = ""

    @property
    def of_parts(self) -> tuple[Efficiency[Times], ...]:
        """Efficiencies that parts of a run have too: nodes, iterations, ..."""
        return tuple(one for one in self.efficiencies if not one.of_whole_run)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of the times and of the efficiencies that parts of a run have too."""
        return (*self.times, *self._shares(self.of_parts))

    @property
    def columns_of_run(self) -> tuple[Column, ...]:
        """All columns of the times and of the efficiencies."""
        return (*self.times, *self.times_of_run, *self._shares(self.efficiencies))

    def row(self, times: Times) -> dict[str, Any]:
        """Values of all columns."""
        measured = {column.name: getattr(times, column.name) for column in (*self.times, *self.times_of_run)}
        return measured | {one.name: one.value(times) for one in self.efficiencies}

    def factors(self, one: Efficiency[Times]) -> list[str]:
        """Names of the efficiencies whose product an efficiency is."""
        return [other.name for other in self.efficiencies if other.parent == one.name and not other.product_of]

    def _shares(self, efficiencies: Sequence[Efficiency[Times]]) -> list[Column]:
        return [Column.share(one.name, self._meaning(one)) for one in efficiencies]

    def level(self, one: Efficiency[Times]) -> int:
        """0 for the root, 1 for its factors, and so on."""
        return next((1 + self.level(other) for other in self.efficiencies if other.name == one.parent), 0)

    def _meaning(self, one: Efficiency[Times]) -> str:
        product = "".join(f"; the product of {_listed(names)}" for names in (one.product_of, self.factors(one)) if names)
        without = f"; null without {one.null_without}" if one.null_without else ""
        return one.formula + product + without


_REPLAY = (
    "a replay with an ideal network, which needs the graph of the run, NCCL kernels that count as communication, and all ranks "
    "of collectives and messages"
)


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(f'`{name}`' for name in names[:-1])} and `{names[-1]}`"


DEVICE_TREE: EfficiencyTree[DeviceTimes] = EfficiencyTree(
    "device",
    "Devices",
    times=(
        Column.count("devices", "n, physical GPUs, also those that were idle throughout"),
        Column.ns("elapsed_ns", "E, length of the window"),
        Column.ns("useful_ns", "sum over devices of U, the time in which at least one useful kernel ran"),
        Column.ns("communication_ns", "sum over devices of C, the time in which data moved and no useful kernel ran"),
        Column.ns("active_ns", "sum over devices of A = U + C"),
        Column.ns("max_useful_ns", "largest U of a device"),
        Column.ns("max_active_ns", "largest A of a device"),
    ),
    times_of_run=(
        Column.ns(
            "ideal_network_ns",
            "E_ideal, length of a replay of the window in which transfers of collectives and messages take no time, at least "
            "max U; null where there is none",
        ),
    ),
    efficiencies=(
        Efficiency(
            "device_parallel_efficiency",
            "Device Parallel Efficiency",
            "PE",
            parent=None,
            formula="sum U / (E n)",
            parts=lambda times: (times.useful_ns, times.elapsed_ns * times.devices),
            reads_as="time in which devices compute",
            loss="",
            talp="gpuParallelEfficiency",
        ),
        Efficiency(
            "load_balance",
            "Load Balance",
            "LB",
            parent="device_parallel_efficiency",
            formula="sum U / (n max U)",
            parts=lambda times: (times.useful_ns, times.devices * times.max_useful_ns),
            reads_as="devices are idle because another one has more useful work",
            loss="lost to imbalance between devices",
            talp="gpuLoadBalance",
            null_without="useful time",
        ),
        Efficiency(
            "communication_efficiency",
            "Communication Efficiency",
            "CE",
            parent="device_parallel_efficiency",
            formula="max U / max A",
            parts=lambda times: (times.max_useful_ns, times.max_active_ns),
            reads_as="devices are busy with moving data",
            loss="lost to exposed communication and copies",
            talp="gpuCommunicationEfficiency",
            null_without="activity",
        ),
        Efficiency(
            "orchestration_efficiency",
            "Orchestration Efficiency",
            "OE",
            parent="device_parallel_efficiency",
            formula="max A / E",
            parts=lambda times: (times.max_active_ns, times.elapsed_ns),
            needs_gpus=True,
            reads_as="devices are idle because no work is pending",
            loss="lost to idle devices without pending work",
            talp="gpuOrchestrationEfficiency",
        ),
        Efficiency(
            "progress_efficiency",
            "Communication x Orchestration",
            "CE x OE",
            parent="device_parallel_efficiency",
            product_of=("communication_efficiency", "orchestration_efficiency"),
            of_whole_run=True,
            formula="max U / E",
            parts=lambda times: (times.max_useful_ns, times.elapsed_ns),
            needs_gpus=True,
            reads_as="all devices move data, wait or are idle",
            loss="lost to communication and idle devices, divided by cause",
        ),
        Efficiency(
            "transfer_efficiency",
            "Transfer Efficiency",
            "TE",
            parent="progress_efficiency",
            of_whole_run=True,
            formula="E_ideal / E",
            parts=lambda times: (times.ideal_network_ns, times.elapsed_ns),
            reads_as="the network takes time that an ideal one would not",
            loss="lost to transfers between ranks",
            null_without=_REPLAY,
        ),
        Efficiency(
            "serialization_efficiency",
            "Serialization Efficiency",
            "SE",
            parent="progress_efficiency",
            of_whole_run=True,
            formula="max U / E_ideal",
            parts=lambda times: (times.max_useful_ns, times.ideal_network_ns),
            reads_as="waits that an ideal network would not end: order of work, launches, hosts, late ranks",
            loss="lost to waits that an ideal network would not end",
            null_without=_REPLAY,
        ),
    ),
)

HOST_TREE: EfficiencyTree[HostTimes] = EfficiencyTree(
    "host",
    "Hosts: threads that call CUDA or MPI, of processes that use a GPU",
    title_without_gpus="Hosts",
    times=(
        Column.count("processes", "processes that use a GPU"),
        Column.count("threads", "their threads that call CUDA or MPI"),
        Column.ns("host_useful_ns", "sum over these threads of the time in neither CUDA nor MPI calls"),
        Column.ns("cuda_ns", "sum of G, the time in CUDA API calls"),
        Column.ns("mpi_ns", "sum of M, the time in MPI calls, outside CUDA API calls"),
        Column.mean_ns("mean_mpi_ns", "mean M of a process: of its thread that is in MPI longest"),
        Column.mean_ns("min_mpi_ns", "smallest M of a process"),
    ),
    efficiencies=(
        Efficiency(
            "host_parallel_efficiency",
            "Host Parallel Efficiency",
            "host PE",
            parent=None,
            formula="(E - mean M) / E x sum U / sum (U + G)",
            parts=lambda times: (
                times.outside_mpi * times.host_useful_ns if times.has_mpi or times.uses_gpus else None,
                times.mean_elapsed * (times.host_useful_ns + times.cuda_ns),
            ),
            null_without="MPI and GPUs",
            reads_as="time in which hosts are in no MPI or CUDA call",
            loss="",
            talp="parallelEfficiency",
        ),
        Efficiency(
            "mpi_parallel_efficiency",
            "MPI Parallel Efficiency",
            "MPI PE",
            parent="host_parallel_efficiency",
            formula="(E - mean M) / E",
            parts=lambda times: (times.outside_mpi, times.mean_elapsed),
            reads_as="hosts are in MPI calls",
            loss="lost to MPI calls",
            talp="mpiParallelEfficiency",
            null_without="MPI",
            needs_mpi=True,
        ),
        Efficiency(
            "mpi_load_balance",
            "MPI Load Balance",
            "MPI LB",
            parent="mpi_parallel_efficiency",
            formula="(E - mean M) / (E - min M)",
            parts=lambda times: (times.outside_mpi, times.mean_elapsed - times.min_mpi_ns),
            reads_as="hosts wait for another one",
            loss="lost to imbalance between processes",
            talp="mpiLoadBalance",
            null_without="MPI",
            needs_mpi=True,
        ),
        Efficiency(
            "mpi_communication_efficiency",
            "MPI Communication Efficiency",
            "MPI CE",
            parent="mpi_parallel_efficiency",
            formula="(E - min M) / E",
            parts=lambda times: (times.mean_elapsed - times.min_mpi_ns, times.mean_elapsed),
            reads_as="all hosts move data, or wait in turn",
            loss="lost to communication and waits in turn",
            talp="mpiCommunicationEfficiency",
            null_without="MPI",
            needs_mpi=True,
        ),
        Efficiency(
            "device_offload_efficiency",
            "Device Offload Efficiency",
            "DOE",
            parent="host_parallel_efficiency",
            formula="sum U / sum (U + G)",
            parts=lambda times: (times.host_useful_ns, times.host_useful_ns + times.cuda_ns),
            needs_gpus=True,
            reads_as="hosts are in CUDA calls: they launch, copy and wait",
            loss="lost to CUDA calls",
            talp="deviceOffloadEfficiency",
        ),
    ),
)

TREES: tuple[EfficiencyTree[Any], ...] = (DEVICE_TREE, HOST_TREE)
EFFICIENCIES: Mapping[str, Efficiency[Any]] = {one.name: one for tree in TREES for one in tree.efficiencies}
"""All efficiencies by name, in the order in which they are read."""
TREE_COLUMNS = (NCCL_POLICY, *DEVICE_TREE.columns, *HOST_TREE.columns)
"""Columns of tables that have both trees of a part of a run in one row."""
TREE_COLUMNS_OF_RUN = (NCCL_POLICY, *DEVICE_TREE.columns_of_run, *HOST_TREE.columns_of_run)
"""The same of a whole run."""

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


def tree_rows(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of the table `tree`, from the row of the table `run`; efficiencies of MPI and of GPUs are absent without these."""
    return [
        {
            "nccl": run[NCCL_POLICY.name],
            "tree": tree.name,
            "metric": one.name,
            "level": tree.level(one),
            "product_of": " ".join(one.product_of) or None,
            "value": run[one.name],
            "reason": f"without {one.null_without}" if run[one.name] is None and one.null_without else None,
            **{name: getattr(one, name) for name in ("title", "parent", "formula", "reads_as")},
        }
        for tree in TREES
        for one in tree.efficiencies
        if not (one.needs_mpi and run[one.name] is None) and (run["devices"] or (tree is HOST_TREE and not one.needs_gpus))
    ]


def with_ideal_network(run: Mapping[str, Any], replayed: int) -> dict[str, Any]:
    """The row of the table `run` with what follows from an ideal network.

    After the POP metrics (https://pop-coe.eu): transfer efficiency is the length of a replay with an ideal network over the
    measured length, serialization efficiency is the rest. There, the replay is one of Dimemas, of MPI; here it is that of the
    graph of the run, whose processors are devices.

    Parameters
    ----------
    replayed
        Length of the window in a replay in which transfers take no time, ns.
    """
    times = DeviceTimes(**{field.name: run[field.name] for field in fields(DeviceTimes)})
    return {**run, **DEVICE_TREE.row(times.with_ideal_network(replayed))}


def at_length(run: Mapping[str, Any], length: int) -> dict[str, Any]:
    """The row of the table `run` if the window had another length, ns, and all else were the same.

    Where clocks of hosts are not exactly known, the length is not; how long a device or a thread does something is.
    """
    devices = {field.name: run[field.name] for field in fields(DeviceTimes)} | {"elapsed_ns": length}
    if devices["ideal_network_ns"] is not None:
        devices["ideal_network_ns"] = min(devices["ideal_network_ns"], length)
    longer = run["threads"] * (length - run["elapsed_ns"])
    hosts = {field.name: run[field.name] for field in fields(HostTimes) if field.name in run}
    hosts |= {
        "elapsed": run["host_useful_ns"] + run["cuda_ns"] + run["mpi_ns"] + longer,
        "host_useful_ns": run["host_useful_ns"] + longer,
        "has_mpi": run["mpi_parallel_efficiency"] is not None,
    }
    return {**run, **DEVICE_TREE.row(DeviceTimes(**devices)), **HOST_TREE.row(HostTimes(**hosts))}
