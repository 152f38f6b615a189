"""The efficiency model: measured times, and one entry per efficiency from which every output follows.

Symbols in formulas: E is the length of the window and n the number of physical GPUs. Of a device, U is useful time, C
communication outside U, and A = U + C. Of a host thread of a process that uses a GPU, G is the time in CUDA calls, M that in
MPI calls outside G, and U the rest of E; M of a process is that of its thread that is in MPI longest.

Names and hierarchy follow the POP metrics (https://pop-coe.eu) and the TALP module of BSC's DLB. An efficiency is the product
of its factors. One without a meaning, such as the balance of devices without useful work, is None."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from nsys2prv.efficiency.result_tables import NCCL_POLICY, Column, Table
from nsys2prv.vocabulary.wording import listed

HAS_MPI, HAS_GPUS, HAS_SCHEDULING = "MPI", "GPUs", "scheduling of threads"
"""What a run can use: without them some efficiencies are absent, not 100 %."""
TreeRow = Mapping[str, Any]
"""Values of columns of trees by name."""


@dataclass(frozen=True)
class Efficiency:
    """One efficiency: all that outputs and documentation need to show it.

    `name`, `title`, `abbreviation`: its column in tables, its name for people, and a heading for narrow tables.
    `parent`: name of the efficiency of which it is a factor; None for the root.
    `product_of`: efficiencies beside it whose product it is: it divides their loss in another way, as no factor of its parent.
    `formula`: how it is computed, in the symbols of this module.
    `parts`: numerator and denominator of the formula, columns of the times; `mean_window_ns` is E, the mean over threads.
    `reads_as`: where time goes when it is low; of a root: what it is.
    `loss`: what is lost, to be followed by the share; "" for a root.
    `talp`: its key in the JSON of TALP; "" when TALP does not have it.
    `null_without`: without which it has no meaning; "" when it always has one.
    `needs`: it is absent from runs that have none of these: HAS_MPI, HAS_GPUS, HAS_SCHEDULING.
    `of_whole_run`: whether only the run as a whole has it: tables of its parts have no such column."""

    name: str
    title: str
    abbreviation: str
    parent: str | None
    formula: str
    parts: tuple[str, str]
    reads_as: str
    loss: str
    talp: str = ""
    null_without: str = ""
    needs: tuple[str, ...] = ()
    product_of: tuple[str, ...] = ()
    of_whole_run: bool = False

    @property
    def heading(self) -> str:
        """The title as a heading of a column: `MPI parallel eff.`"""
        words = self.title.replace("Efficiency", "eff.").split()
        return " ".join(word if word.isupper() else word.lower() for word in words)


@dataclass(frozen=True)
class EfficiencyTree:
    """A tree of `efficiencies`, in the order in which they are read, each after its parent, over the same measured `times`
    (columns). It has a `name` for programs and a `title` for people; another one for runs in which no process uses a GPU."""

    name: str
    title: str
    times: tuple[Column, ...]
    efficiencies: tuple[Efficiency, ...]
    title_without_gpus: str = ""

    @property
    def of_parts(self) -> tuple[Efficiency, ...]:
        """Efficiencies that parts of a run (nodes, iterations, ...) have too."""
        return tuple(efficiency for efficiency in self.efficiencies if not efficiency.of_whole_run)

    @property
    def columns_of_run(self) -> tuple[Column, ...]:
        """All columns of the times and efficiencies."""
        return self.times + tuple(map(self._column, self.efficiencies))

    def factors(self, efficiency: Efficiency) -> list[str]:
        """Names of the efficiencies whose product an efficiency is."""
        return [factor.name for factor in self.efficiencies if factor.parent == efficiency.name and not factor.product_of]

    def level(self, efficiency: Efficiency) -> int:
        """0 for the root, 1 for its factors, and so on."""
        return next((1 + self.level(parent) for parent in self.efficiencies if parent.name == efficiency.parent), 0)

    def _column(self, efficiency: Efficiency) -> Column:
        products = (efficiency.product_of, self.factors(efficiency))
        product = "".join(f"; the product of {listed(map('`{}`'.format, names))}" for names in products if names)
        without = f"; null without {efficiency.null_without}" if efficiency.null_without else ""
        return Column.share(efficiency.name, efficiency.formula + product + without)


_REPLAY = (
    "a replay with an ideal network, which needs the graph of the run, NCCL kernels that count as communication, collectives "
    "or messages between ranks that were recorded, and all ranks of them"
)

DEVICE_TREE: EfficiencyTree = EfficiencyTree(
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
        Column.ns("ideal_network_ns", "E_ideal, length of a replay of the window in which transfers of collectives and "
                  "messages take no time, at least max U; null where there is none"),
    ),
    efficiencies=(
        Efficiency("device_parallel_efficiency", "Device Parallel Efficiency", "PE", parent=None,
                   formula="sum U / (E n)", parts=("useful_ns", "elapsed_ns * devices"),
                   reads_as="time in which devices compute", loss="", talp="gpuParallelEfficiency"),
        Efficiency("load_balance", "Load Balance", "LB", parent="device_parallel_efficiency",
                   formula="sum U / (n max U)", parts=("useful_ns", "devices * max_useful_ns"),
                   reads_as="devices are idle because another one computes for longer",
                   loss="lost to imbalance between devices", talp="gpuLoadBalance", null_without="useful time"),
        Efficiency("communication_efficiency", "Communication Efficiency", "CE", parent="device_parallel_efficiency",
                   formula="max U / max A", parts=("max_useful_ns", "max_active_ns"),
                   reads_as="devices are busy with moving data", loss="lost to exposed communication and copies",
                   talp="gpuCommunicationEfficiency", null_without="activity"),
        Efficiency("orchestration_efficiency", "Orchestration Efficiency", "OE", parent="device_parallel_efficiency",
                   formula="max A / E", parts=("max_active_ns", "elapsed_ns"),
                   reads_as="devices are idle because no work is pending", loss="lost to idle devices without pending work",
                   talp="gpuOrchestrationEfficiency", needs=(HAS_GPUS,)),
        Efficiency("progress_efficiency", "Communication x Orchestration", "CE x OE", parent="device_parallel_efficiency",
                   product_of=("communication_efficiency", "orchestration_efficiency"),
                   formula="max U / E", parts=("max_useful_ns", "elapsed_ns"),
                   reads_as="all devices move data, wait or are idle",
                   loss="lost to the two above together, by cause below", needs=(HAS_GPUS,), of_whole_run=True),
        Efficiency("transfer_efficiency", "Transfer Efficiency", "TE", parent="progress_efficiency",
                   formula="E_ideal / E", parts=("ideal_network_ns", "elapsed_ns"),
                   reads_as="the network takes time that an ideal one would not", loss="lost to transfers between ranks",
                   null_without=_REPLAY, of_whole_run=True),
        Efficiency("serialization_efficiency", "Serialization Efficiency", "SE", parent="progress_efficiency",
                   formula="max U / E_ideal", parts=("max_useful_ns", "ideal_network_ns"),
                   reads_as="waits that an ideal network would not end: order of work, launches, hosts, late ranks",
                   loss="lost to waits that an ideal network would not end", null_without=_REPLAY, of_whole_run=True),
    ),
)  # fmt: skip

HOST_TREE: EfficiencyTree = EfficiencyTree(
    "host",
    "Hosts: threads that call CUDA or MPI, of processes that use a GPU",
    title_without_gpus="Hosts",
    times=(
        Column.count("processes", "processes that use a GPU"),
        Column.count("threads", "their threads that call CUDA or MPI"),
        Column.ns("host_useful_ns", "sum over these threads of the time in neither CUDA nor MPI calls"),
        Column.ns("host_waiting_ns", "W, the part of that in which they sleep or wait: off their CPUs, or in calls of the OS "
                  "runtime that wait, or in the set-up of the profiler; null where scheduling was not recorded of all"),
        Column.ns("cuda_ns", "sum of G, the time in CUDA API calls"),
        Column.ns("mpi_ns", "sum of M, the time in MPI calls, outside CUDA API calls"),
        Column.mean_ns("mean_mpi_ns", "mean M of a process: of its thread that is in MPI longest"),
        Column.mean_ns("min_mpi_ns", "smallest M of a process"),
    ),
    efficiencies=(
        Efficiency("host_parallel_efficiency", "Host Parallel Efficiency", "host PE", parent=None,
                   formula="(E - mean M) / E x sum U / sum (U + G)",
                   parts=("(mean_window_ns - mean_mpi_ns) * host_useful_ns", "mean_window_ns * (host_useful_ns + cuda_ns)"),
                   reads_as="time in which hosts are in no MPI or CUDA call", loss="", talp="parallelEfficiency",
                   null_without="MPI and GPUs", needs=(HAS_MPI, HAS_GPUS)),
        Efficiency("mpi_parallel_efficiency", "MPI Parallel Efficiency", "MPI PE", parent="host_parallel_efficiency",
                   formula="(E - mean M) / E", parts=("mean_window_ns - mean_mpi_ns", "mean_window_ns"),
                   reads_as="hosts are in MPI calls", loss="lost to MPI calls", talp="mpiParallelEfficiency",
                   null_without="MPI", needs=(HAS_MPI,)),
        Efficiency("mpi_load_balance", "MPI Load Balance", "MPI LB", parent="mpi_parallel_efficiency",
                   formula="(E - mean M) / (E - min M)",
                   parts=("mean_window_ns - mean_mpi_ns", "mean_window_ns - min_mpi_ns"),
                   reads_as="hosts wait for another one", loss="lost to imbalance between processes", talp="mpiLoadBalance",
                   null_without="MPI", needs=(HAS_MPI,)),
        Efficiency("mpi_communication_efficiency", "MPI Communication Efficiency", "MPI CE", parent="mpi_parallel_efficiency",
                   formula="(E - min M) / E", parts=("mean_window_ns - min_mpi_ns", "mean_window_ns"),
                   reads_as="all hosts move data, or wait in turn", loss="lost to communication and waits in turn",
                   talp="mpiCommunicationEfficiency", null_without="MPI", needs=(HAS_MPI,)),
        Efficiency("device_offload_efficiency", "Device Offload Efficiency", "DOE", parent="host_parallel_efficiency",
                   formula="sum U / sum (U + G)", parts=("host_useful_ns", "host_useful_ns + cuda_ns"),
                   reads_as="hosts are in CUDA calls: they launch, copy and wait", loss="lost to CUDA calls",
                   talp="deviceOffloadEfficiency", needs=(HAS_GPUS,)),
        Efficiency("host_computing_efficiency", "Host Computing Efficiency", "host CE", parent=None,
                   formula="(E - mean M) / E x (sum U - W) / sum (U + G)",
                   parts=("(mean_window_ns - mean_mpi_ns) * (host_useful_ns - host_waiting_ns)",
                          "mean_window_ns * (host_useful_ns + cuda_ns)"),
                   reads_as="time in which hosts compute: in no MPI or CUDA call, and neither asleep nor waiting", loss="",
                   null_without="scheduling of threads", needs=(HAS_SCHEDULING,)),
    ),
)  # fmt: skip

TREES = (DEVICE_TREE, HOST_TREE)
EFFICIENCIES: Mapping[str, Efficiency] = {efficiency.name: efficiency for tree in TREES for efficiency in tree.efficiencies}
"""All efficiencies by name, in the order in which they are read."""
TREE_COLUMNS_OF_RUN = (NCCL_POLICY, *DEVICE_TREE.columns_of_run, *HOST_TREE.columns_of_run)
"""Columns of a table that has both trees of a run in one row."""
_OF_WHOLE_RUN = {"ideal_network_ns", *(name for name, efficiency in EFFICIENCIES.items() if efficiency.of_whole_run)}
TREE_COLUMNS = tuple(column for column in TREE_COLUMNS_OF_RUN if column.name not in _OF_WHOLE_RUN)
"""The same of a part of a run."""
_TIMES = tuple(column.name for tree in TREES for column in tree.times)

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
        Column.text("product_of", "metrics beside it, separated by blanks, whose product it is, instead of a factor of its "
                    "parent; null for factors"),
        Column.count("level", "0 for the root"),
        Column.share("value", "the efficiency; null where it has no meaning"),
        Column.text("reason", "what is missing where the value is null"),
        Column.text("formula", "how it is computed"),
        Column.text("reads_as", "what is lost where it is low"),
    ),
)  # fmt: skip


def tree_rows(run: TreeRow, lost: str | None = None) -> list[dict[str, Any]]:
    """Rows of the table `tree`, from the row of `run`, without those of MPI or GPUs it has not; `lost`: why values are null."""
    rows = []
    for efficiency in EFFICIENCIES.values():
        tree = next(tree for tree in TREES if efficiency in tree.efficiencies)
        value, without = run[efficiency.name], efficiency.null_without
        of_gpus = tree is DEVICE_TREE or efficiency.needs == (HAS_GPUS,)
        is_absent = value is None and efficiency.needs in ((HAS_MPI,), (HAS_SCHEDULING,))
        if is_absent or (of_gpus and not run["devices"]):
            continue
        rows.append(
            {
                "nccl": run[NCCL_POLICY.name],
                "tree": tree.name,
                "metric": efficiency.name,
                "level": tree.level(efficiency),
                "product_of": " ".join(efficiency.product_of) or None,
                "value": value,
                "reason": (lost or (f"without {without}" if without else None)) if value is None else None,
                **{name: getattr(efficiency, name) for name in ("title", "parent", "formula", "reads_as")},
            }
        )
    return rows


def efficiencies(times: pl.DataFrame, *, mpi: bool) -> pl.DataFrame:
    """All efficiencies, a row for each one of the times of both trees; `mpi`: whether the run uses MPI."""
    # Numbers of the longest runs would not fit into whole numbers.
    numbers = times.select(pl.col(_TIMES).cast(pl.Float64))
    windows = pl.col("host_useful_ns") + pl.col("cuda_ns") + pl.col("mpi_ns")
    numbers = numbers.with_columns(mean_window_ns=pl.when(pl.col("threads") > 0).then(windows / pl.col("threads")))
    is_used = {HAS_MPI: pl.lit(mpi), HAS_GPUS: pl.col("devices") > 0, HAS_SCHEDULING: pl.col("host_waiting_ns").is_not_null()}
    columns = {}
    for name, efficiency in EFFICIENCIES.items():
        numerator, denominator = map(pl.sql_expr, efficiency.parts)
        applies = pl.any_horizontal(is_used[need] for need in efficiency.needs) if efficiency.needs else pl.lit(value=True)
        columns[name] = pl.when(applies & (denominator != 0)).then(numerator / denominator)
    return numbers.select(**columns)


def _recomputed(run: TreeRow) -> dict[str, Any]:
    frame = pl.DataFrame([run], schema=dict.fromkeys(_TIMES, pl.Float64))
    return {**run, **efficiencies(frame, mpi=run["mpi_parallel_efficiency"] is not None).row(0, named=True)}


def with_ideal_network(run: TreeRow, replayed: int) -> dict[str, Any]:
    """The row of the table `run` with what follows from an ideal network; `replayed`: the length of the window in a replay in
    which transfers take no time, ns.

    After the POP metrics (https://pop-coe.eu): transfer efficiency is the length of a replay with an ideal network over the
    measured length, serialization efficiency is the rest. There, the replay is one of Dimemas, of MPI; here it is that of the
    graph of the run, whose processors are devices. It lets kernels of a device run at once that share it, and a device does not
    compute faster for that: the run takes as long as the useful time of each device, and no longer than it took."""
    return _recomputed({**run, "ideal_network_ns": min(max(replayed, run["max_useful_ns"]), run["elapsed_ns"])})


def at_length(run: TreeRow, length: int) -> dict[str, Any]:
    """The row of the table `run` if the window had another length, ns, and all else were the same.

    Where clocks of hosts are not exactly known, the length is not; how long a device or a thread does something is."""
    longer = run["threads"] * (length - run["elapsed_ns"])
    ideal = None if run["ideal_network_ns"] is None else min(run["ideal_network_ns"], length)
    lengths = {"elapsed_ns": length, "host_useful_ns": run["host_useful_ns"] + longer, "ideal_network_ns": ideal}
    return _recomputed({**run, **lengths})
