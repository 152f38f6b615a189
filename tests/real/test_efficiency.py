"""Efficiency numbers of the real reports: against SQL and numpy, against their traces, against Paraver's views."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support import few_of
from support.measured import union_length
from support.real_reports import REPORTS

from nsys2prv.efficiency.results import EfficiencyResult

from .conftest import Translated

Translation = Callable[[str], Translated]
Measured = Callable[[str, str], EfficiencyResult]

_NCCL = re.compile(r"\bnccl\w*kernel", re.IGNORECASE)


def tables_of(translated: Translated) -> set[str]:
    return {name for (name,) in translated.query("SELECT name FROM sqlite_master WHERE type = 'table'")}


def stretches_by_device(translated: Translated, database: Path) -> dict[tuple[str, int], dict[str, list[tuple[int, int]]]]:
    """Begins and ends of kernels, NCCL kernels and memory operations of one report, by process and device."""
    one = Translated((database,), (database,), translated.trace)
    there = tables_of(one)
    found: dict[tuple[str, int], dict[str, list[tuple[int, int]]]] = {}

    def add(kind: str, rows: list[tuple]) -> None:  # type: ignore[type-arg]
        for process, device, begin, end in rows:
            of_device = found.setdefault((f"{database}:{process}", device), {"kernel": [], "nccl": [], "memory": []})
            of_device[kind].append((begin, end))

    key = "globalPid, deviceId, start, end"
    if "CUPTI_ACTIVITY_KIND_KERNEL" in there:
        names = "CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName"
        for *rest, name in one.query(f"SELECT {key}, value FROM {names}"):
            add("nccl" if _NCCL.search(name) else "kernel", [tuple(rest)])
    if "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" in there:
        add("kernel", one.query(f"SELECT {key} FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE"))
    for table in ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"):
        if table in there:
            add("memory", one.query(f"SELECT {key} FROM {table}"))
    return found


def test_times_of_devices_are_those_of_the_tables(name: str, translation: Translation, efficiency: Measured) -> None:
    assert_times_of_tables(translation(name), efficiency(name, "communication"), reading="communication")


@pytest.mark.parametrize("report", few_of(REPORTS, ()))
def test_times_of_devices_are_those_of_the_tables_when_nccl_kernels_are_useful(
    report: str, translation: Translation, efficiency: Measured
) -> None:
    measured = efficiency(report, "useful")
    assert_times_of_tables(translation(report), measured, reading="useful")


def assert_times_of_tables(translated: Translated, measured: EfficiencyResult, reading: str) -> None:
    """Useful, communication and active time of each device, to the nanosecond, from SQL and a loop."""
    devices = measured.tables["devices"]
    wanted = []
    for database in translated.databases:
        for kinds in stretches_by_device(translated, database).values():
            useful = kinds["kernel"] + (kinds["nccl"] if reading == "useful" else [])
            active = union_length([*kinds["kernel"], *kinds["nccl"], *kinds["memory"]])
            wanted.append((union_length(useful), active - union_length(useful), active))

    columns = ("useful_ns", "communication_ns", "active_ns")
    assert sorted(devices.select(columns).rows()) == sorted(wanted)
    run = measured.tables["run"].row(0, named=True)
    window, length = measured.head["window"], run["elapsed_ns"]
    assert window["recorded_ns"] == translated.trace.header.end
    assert (window["length_ns"], window["offset_ns"] + length <= window["recorded_ns"]) == (length, True)
    used, most_active = [row[0] for row in wanted], max(row[2] for row in wanted)
    assert run["device_parallel_efficiency"] == pytest.approx(sum(used) / (length * len(wanted)), rel=1e-12)
    assert run["orchestration_efficiency"] == pytest.approx(most_active / length, rel=1e-12)


_OF_PROGRAM = re.compile(r"CUPTI_ACTIVITY_KIND_(KERNEL|MEMCPY|MEMSET|RUNTIME|GRAPH_TRACE)|OSRT_API|MPI_\w+_EVENTS|NVTX_EVENTS")

_SAMPLES_OF_PROGRAM = """
    SELECT min(sample.start), max(sample.start) FROM COMPOSITE_EVENTS sample
    WHERE sample.globalTid IN (SELECT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME) AND sample.id NOT IN (
        SELECT chain.id FROM SAMPLING_CALLCHAINS chain JOIN StringIds name ON name.id = chain.module
        WHERE chain.stackDepth = 0 AND name.value LIKE '%Nsight_Systems%')"""


@pytest.mark.parametrize(
    ("report", "milliseconds", "orchestration"),
    [
        pytest.param("openacc-mpas", 2362, 0.093, marks=pytest.mark.thorough),
        ("no-metadata-2020", 115, None),
        pytest.param("cloverleaf-3.13", 869, None, marks=pytest.mark.thorough),
    ],
)
def test_the_length_is_that_of_the_program(
    report: str, milliseconds: int, orchestration: float | None, translation: Translation, efficiency: Measured
) -> None:
    """Recorded are 2,524, 401 and 1,036 ms: with the profiler, scheduling and GPU samples before and after."""
    translated, measured = translation(report), efficiency(report, "communication")
    spans = [
        translated.query(f"SELECT min(start), max(end) FROM {table}")[0]
        for table in tables_of(translated)
        if _OF_PROGRAM.fullmatch(table)
    ]
    if "COMPOSITE_EVENTS" in tables_of(translated):
        spans += translated.query(_SAMPLES_OF_PROGRAM)
    begin, end = min(first for first, _ in spans if first is not None), max(last for _, last in spans if last is not None)
    length = measured.tables["run"]["elapsed_ns"].item()
    assert length == end - begin
    assert round(length / 1e6) == milliseconds
    if orchestration is not None:
        assert measured.tables["run"]["orchestration_efficiency"].item() == pytest.approx(orchestration, abs=0.0005)
    assert any("the trace lasts" in warning for warning in measured.head["warnings"])


def test_products_and_sums_hold(name: str, efficiency: Measured) -> None:
    tables = efficiency(name, "communication").tables
    run = tables["run"].row(0, named=True)
    factors = [run[factor] for factor in ("load_balance", "communication_efficiency", "orchestration_efficiency")]
    if None not in factors:
        assert run["device_parallel_efficiency"] == pytest.approx(float(np.prod(factors)), rel=1e-12)
    assert tables["gaps"]["total_ns"].sum() == tables["devices"]["idle_ns"].sum()
    assert tables["bins"]["useful_ns"].sum() == run["useful_ns"]
    assert tables["threads"]["cuda_ns"].sum() == run["cuda_ns"]


def rows_of_table(csv: Path) -> list[list[float]]:
    """Rows of a histogram before its totals, without their names."""
    lines = csv.read_text().splitlines()[1:]
    cells = lines[: lines.index("")]
    return [[float(cell) for cell in line.split("\t")[1:] if cell.strip()] for line in cells]


@pytest.mark.parametrize(("view", "column"), [("useful_time", "useful_ns"), ("active_time", "active_ns")])
def test_paraver_computes_the_same_times(
    name: str, view: str, column: str, efficiency: Measured, shown_views: Callable[[str], dict[str, Path]]
) -> None:
    devices = efficiency(name, "communication").tables["devices"]
    found: list[float] = []
    # A device each where one process uses several.
    for path in (path for shown, path in shown_views(name).items() if shown.rpartition("/")[2].startswith(view)):
        found += [value for row in rows_of_table(path) for value in row]
    assert sorted(found) == sorted(float(value) for value in devices[column] if value)
