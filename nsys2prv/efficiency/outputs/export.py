"""Files of results: what is in them, which files they replace, and that they appear together when all are complete."""

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.efficiency.metrics import EFFICIENCIES, HAS_MPI, TreeRow
from nsys2prv.efficiency.result_tables import Table
from nsys2prv.errors import OutputError, OutputExists
from nsys2prv.execution.output_files import output_errors, publish, temporary_folder
from nsys2prv.exports.paths import check_kept
from nsys2prv.vocabulary import __version__
from nsys2prv.vocabulary.printable import safe_json, spreadsheet_cells

GENERATOR = b'<meta name="generator" content="nsys2prv '
"""Marks a page of this program, in its first lines."""
_STARTS = {
    "page_path": re.compile(re.escape(GENERATOR)),
    "json_path": re.compile(rb'\A{"format": "nsys2prv-'),
    "talp_path": re.compile(rb'\A{"dlbVersion": .*"nsys2prv": {"version": ', re.DOTALL),
}
"""How earlier outputs begin."""
_NO_PERMISSION = "there is no permission to write in {}"


def json_text(content: Mapping[str, Any]) -> str:
    """An object as JSON."""
    return safe_json(content, allow_nan=False) + "\n"


def csv_files(folder: Path, tables: Mapping[str, pl.DataFrame]) -> dict[Path, str | None]:
    """Each table that has rows as `TABLE.csv` of a folder; None for the others, so that tables of earlier runs are removed."""
    return {
        path: table.with_columns(map(spreadsheet_cells, table.select(pl.col(pl.String)))).write_csv() if table.height else None
        for name, table in tables.items()
        for path in [folder / f"{name}.csv"]
        if table.height or _starts(path, _table(table.columns))
    }


def as_talp(head: Mapping[str, Any], tables: Mapping[str, pl.DataFrame]) -> dict[str, Any]:
    """The object of a file as the TALP module of BSC's DLB writes it, for talp-pages to draw, from an `EfficiencyResult`: the
    run, and the NVTX regions of `--regions`.

    Times are sums in ns, efficiencies 0 to 1. What TALP measures and a trace does not have (hardware counters, OpenMP) is 0 or
    1, as TALP writes it for a program without them. The model is the same; only NCCL kernels may count differently: TALP
    counts them as useful (`--nccl useful`)."""
    run, nodes = tables["run"].row(0, named=True), tables["nodes"].height
    calls = [int(tables[name]["count"].sum()) for name in ("mpi_calls", "cuda_calls")]
    mpi_of_nodes = tables["nodes"].filter(pl.col("threads") > 0).select(pl.col("mpi_ns") / pl.col("threads")).to_series()
    of_run = _region(run, nodes, 1, calls, min(mpi_of_nodes.drop_nulls(), default=None))
    regions = {"Global": of_run}  # as TALP calls the region of the run
    for row in tables["regions"].drop_nulls("device_parallel_efficiency").iter_rows(named=True):
        name = row["region"] if row["region"] not in regions else f"{row['region']} ({row['domain']})"
        regions[name] = _region(row, nodes, row["count"], (0, 0), None)
    return {
        "dlbVersion": "3.6.0",
        # Near the start, where a file of this program is recognized by it.
        "nsys2prv": {"version": __version__, "nccl": head["nccl"], "inputs": head["inputs"]},
        "timestamp": head["began"] or datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S"),
        # talp-pages draws runs of the same resources as one series. How many threads call CUDA depends on the version of a
        # program: they are counted in its regions, and a process is one CPU here.
        "resources": {"numCpus": run["processes"], **{name: of_run[name] for name in ("numNodes", "numMpiRanks", "numGpus")}},
        "Application": regions,
    }


def _region(row: TreeRow, nodes: int, count: int, calls: Sequence[int], smallest_node: float | None) -> dict[str, Any]:
    """A region of TALP; `smallest_node`: the smallest MPI time of a node, as the mean over its threads, ns."""
    has_mpi, threads, least = row["mpi_parallel_efficiency"] is not None, row["threads"], row["min_mpi_ns"] or 0.0
    mean_elapsed = (row["host_useful_ns"] + row["cuda_ns"] + row["mpi_ns"]) / threads if threads else 0.0
    of_node = least if smallest_node is None else smallest_node
    inside = (mean_elapsed - of_node) / (mean_elapsed - least) if has_mpi and mean_elapsed > least else 1.0
    balance = row["mpi_load_balance"] if has_mpi else 1.0
    return {
        "numCpus": threads,
        "numMpiRanks": row["processes"] if has_mpi else 0,
        "numNodes": nodes,
        "avgCpus": float(threads),
        "numGpus": row["devices"],
        **dict.fromkeys(("cycles", "instructions"), 0),
        "numMeasurements": count,
        "numMpiCalls": calls[0],
        **dict.fromkeys(("numOmpParallels", "numOmpTasks"), 0),
        "numGpuRuntimeCalls": calls[1],
        "elapsedTime": row["elapsed_ns"],
        "usefulTime": row["host_useful_ns"],
        "mpiTime": row["mpi_ns"],
        **dict.fromkeys(("ompLoadImbalanceTime", "ompSchedulingTime", "ompSerializationTime"), 0),
        "gpuRuntimeTime": row["cuda_ns"],
        "minMpiNormdProc": round(least),
        "minMpiNormdNode": round(of_node),
        "gpuUsefulTime": row["useful_ns"],
        "gpuCommunicationTime": row["communication_ns"],
        "gpuInactiveTime": row["elapsed_ns"] * row["devices"] - row["active_ns"],
        "maxGpuUsefulTime": row["max_useful_ns"],
        "maxGpuActiveTime": row["max_active_ns"],
        # TALP writes 0 where the denominator is 0.
        **{
            efficiency.talp: 1.0 if efficiency.needs == (HAS_MPI,) and not has_mpi else row[efficiency.name] or 0.0
            for efficiency in EFFICIENCIES.values()
            if efficiency.talp
        },
        "mpiLoadBalanceIn": inside,
        "mpiLoadBalanceOut": balance / inside if balance is not None and inside else 1.0,
        **dict.fromkeys(
            ("ompParallelEfficiency", "ompLoadBalance", "ompSchedulingEfficiency", "ompSerializationEfficiency"), 1.0
        ),
    }


def check_places(
    inputs: Iterable[str | Path], tables: Iterable[Table], *, force: bool, csv_folder: Path | None = None, **files: Path | None
) -> None:
    """Check before long work that results can be written, and that they replace only what they may: earlier results, with
    `force` any file but an input or a report. `files` are called as in `write` of results.

    Raises OutputError where one of them can't be written, two are the same, or an input or a report is there, OutputExists
    where another file is there, unless `force`."""
    places = [(path, _STARTS[name]) for name, path in files.items() if path is not None]
    _check_files([path for path, _ in places])
    if csv_folder is not None:
        with output_errors(csv_folder):
            there = next(place for place in (csv_folder.absolute(), *csv_folder.absolute().parents) if place.exists())
            if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
                why = _NO_PERMISSION.format(there) if there.is_dir() else f"{there} is a file"
                raise OutputError.not_writable(csv_folder, why)
        places += [(csv_folder / f"{table.name}.csv", _table(table.schema)) for table in tables]
    check_kept([path for path, _ in places], inputs)
    for path, start in places:
        with output_errors(path):
            if not force and os.path.lexists(path) and not _starts(path, start):
                raise OutputExists(path)


def _table(columns: Iterable[str]) -> re.Pattern[bytes]:
    """How a CSV file with these columns begins."""
    return re.compile(rb"\A" + re.escape(",".join(columns).encode()) + rb"(\n|\Z)")


def _starts(path: Path, start: re.Pattern[bytes]) -> bool:
    """Whether a file, by its first 4096 bytes, starts as an earlier result does."""
    with output_errors(path):
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return start.search(file.read(4096)) is not None


def _check_files(files: Sequence[Path]) -> None:
    for place, path in enumerate(files):
        with output_errors(path):
            problems = {
                "this is the name of a folder": not path.name or path.is_dir(),
                f"there is no folder {path.parent}": not path.parent.is_dir(),
                _NO_PERMISSION.format(path.parent): not os.access(path.parent, os.W_OK | os.X_OK),
                "two results would have this name": path.absolute() in map(Path.absolute, files[:place]),
            }
            elsewhere = "another place" if path.parent.is_dir() else "another place, or make the folder"
        for why in (why for why, is_so in problems.items() if is_so):
            raise OutputError.not_writable(path, why, elsewhere)


def write_files(files: Mapping[Path, str | None]) -> None:
    """Write texts; with None a file is removed.

    All of them are complete before the first appears. When one can't be written, which raises an OutputError, existing files
    stay as they are."""
    folders: dict[Path, Path] = {}
    staged: dict[Path, dict[str, str | None]] = {}
    with contextlib.ExitStack() as stack:
        for number, (path, text) in enumerate(files.items()):
            parent, name = path.parent.absolute(), f"result{number}"
            with output_errors(path):
                if parent not in folders:
                    folders[parent] = stack.enter_context(temporary_folder(parent, path.name, with_parents=True))
                if text is not None:
                    (folders[parent] / name).write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
            staged.setdefault(folders[parent], {})[path.name] = None if text is None else name
        if staged:
            publish(staged)
