"""Made reports, full of equal times and contradictions, give the same trace and numbers in any order of rows."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.report_builder import ReportBuilder
from support.shuffled import differences, shuffled, trace_files

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.errors import NoDevices
from nsys2prv.execution import external_sort
from nsys2prv.execution.row_order import one_of_each, order_repeated, order_ties
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions

WORLD, OTHER = 94577367172512, 94577818734192
_TICK = 1000
"""Times are few, so that many events are equal in start, in end, or in both."""

Add = Callable[[ReportBuilder, int, int, int], object]
"""Adds an event to a report: its start, its end (ns), and a number from 0 to 2."""

EVENTS: tuple[Add, ...] = (
    lambda r, a, b, n: r.kernel(f"gemm_{n}", a, b, launch=(max(a - 500, 0), a), stream=7 + n),
    lambda r, a, b, n: r.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", a, b, launch=(max(a - 700, 0), a), stream=7 + n),
    lambda r, a, b, n: r.kernel(f"same call {n}", a, b, correlation=n + 1),
    lambda r, a, b, n: r.api_call(f"cuLaunch_{n}", a, b, correlation=n + 1, driver=True),
    lambda r, a, b, n: r.copy(a, b, 100 + n, launch=(a, a + 10), stream=8),
    lambda r, a, b, n: r.memset(a, b, n, launch=(a, b), stream=8),
    lambda r, a, b, n: r.graph(a, b, graph=n, stream=9, launch=(a, a + 5)),
    lambda r, a, b, n: r.synchronization(a, b, correlation=n + 1),
    lambda r, a, b, n: r.synchronization(a, b, correlation=90 + n),
    lambda r, a, b, n: r.event_record(n, correlation=n + 1),
    lambda r, a, b, n: r.memory_use(a, 64 + n, freed=n == 2),
    lambda r, a, b, n: r.gpu_page_fault(a, b, n),
    lambda r, a, b, n: r.nvtx_range(f"step {n}", a, b, domain="" if n else "app", payload={"loss": n} if n else None),
    lambda r, a, b, n: r.nvtx_range(f"open {n}", a, None, int64Value=n),
    lambda r, a, b, n: r.nvtx_start_end(f"range {n}", a, b, category=n),
    lambda r, a, b, n: r.nvtx_mark(f"mark {n}", a, payload={"why": f"text {n}"}),
    lambda r, a, b, n: r.nvtx_category(1, f"category {n}", time=a),
    lambda r, a, b, n: r.nvtx_thread_name(f"thread {n}", time=a),
    lambda r, a, b, n: r.communicator(OTHER, rank=n % 2, size=2, parent=WORLD, time=a),
    lambda r, a, b, n: r.mpi_p2p("MPI_Send", a, b, partner=1, size=8, tag=n),
    lambda r, a, b, n: r.mpi_p2p("MPI_Recv", a, b, partner=0, size=8, tag=n),
    lambda r, a, b, n: r.mpi_p2p("MPI_Recv", a, b, partner=0, size=8, tag=-1),
    lambda r, a, b, n: r.mpi_p2p("MPI_Sendrecv", a, b, partner=n % 2, size=8 + n),
    lambda r, a, b, n: r.mpi_p2p("MPI_Irecv", a, b, partner=0, size=8, request=n, communicator=OTHER),
    lambda r, a, b, n: r.mpi_p2p("MPI_Isend", a, b, partner=1, size=8, request=n, communicator=OTHER),
    lambda r, a, b, n: r.mpi_wait("MPI_Waitall", a, b, requests=(n, (n + 1) % 3)),
    lambda r, a, b, n: r.mpi_collective("MPI_Allreduce", a, b, size=n, communicator=OTHER if n else WORLD),
    lambda r, a, b, n: r.mpi_other("MPI_Init", a, b),
    lambda r, a, b, n: r.os_call(("read", "poll", "pthread_mutex_lock")[n], a, b),
    lambda r, a, b, n: r.switch(a, n, on=b % 3 == 0),
    lambda r, a, b, n: r.cpu_sample(a, [(f"f{n}", "libm.so"), ("main", "a.out")], cpu=n),
    lambda r, a, b, n: r.metric(("SM Active", "DRAM", "GR Active")[n], a, b % 100),
    lambda r, a, b, n: r.plugin_event("disk", "io", a, {"device": f"sd{n}", "bytes": b} if n else {"device": "sda", "ops": b}),
    lambda r, a, b, n: r.diagnostic(f"Not all {n} events were collected.", time=a),
    lambda r, a, b, n: r.row("StringIds", id=1 + n, value=f"another text {a}"),
    lambda r, a, b, n: r.row("ThreadNames", globalTid=r.global_tid(), nameId=r.string(f"name {n}")),
    lambda r, a, b, n: r.row("PROCESSES", globalPid=r.global_pid(), pid=r.pid, name=f"program {n}"),
    lambda r, a, b, n: r.row("TARGET_INFO_SYSTEM_ENV", name="Hostname", value=f"node0{n}"),
    lambda r, a, b, n: r.row("TARGET_INFO_GPU_METRICS", typeId=a, metricId=n, metricName=f"metric {b}"),
)

_events = st.lists(
    st.tuples(st.sampled_from(range(len(EVENTS))), st.integers(0, 12), st.integers(0, 4), st.integers(0, 2)),
    min_size=10,
    max_size=120,
)


def _report(rank: int, events: Iterable[tuple[int, int, int, int]]) -> ReportBuilder:
    builder = ReportBuilder(host="node01", pid=1000 + rank, rank=rank, ranks=2, with_mpi=True, schema="3.24.0")
    builder.gpu()
    for kind, start, length, number in events:
        EVENTS[kind](builder, start * _TICK, (start + length) * _TICK, number)
    return builder


def _outcome(reports: list[Path], folder: Path) -> tuple[dict[str, str], object]:
    files = trace_files(translate(reports, folder / "trace", TranslateOptions(align="utc")).prv, reports[0].parent)
    try:
        measured = json.dumps(measure(reports, EfficiencyOptions(align="utc", regions=("*",), bins=5)).as_json())
    except NoDevices:
        measured = "{}"
    return files, json.loads(measured.replace(str(reports[0].parent), "REPORTS"))


@pytest.mark.parametrize("examples", [1, pytest.param(300, marks=pytest.mark.thorough)])
def test_any_order_of_rows_gives_the_same_trace_and_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, examples: int
) -> None:
    @settings(deadline=None, max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(
        ranks=st.tuples(_events, _events),
        seed=st.integers(0, 2**32),
        sizes=st.sampled_from([(40_000, 90_000, 8_192), (20, 15, 4), (7, 30, 7)]),
    )
    def check(ranks: tuple[list[tuple[int, int, int, int]], ...], seed: int, sizes: tuple[int, int, int]) -> None:
        folder = tmp_path / "example"
        # What is read has the same name, as it is in titles.
        for name in ("written/run", "copies/run"):
            (folder / name).mkdir(parents=True)
        written = [_report(rank, events).write(folder / "written/run" / f"r{rank}.sqlite") for rank, events in enumerate(ranks)]
        copies = [shuffled(report, folder / "copies/run", seed) for report in written]
        files, measured = _outcome(written, folder / "written")
        with monkeypatch.context() as patch:
            # Rows in another order also fall into other pieces.
            for name, size in zip(("RUN_ROWS", "WINDOW_ROWS", "_BATCH_ROWS"), sizes, strict=True):
                patch.setattr(external_sort, name, size)
            files_of_copies, measured_of_copies = _outcome(copies, folder / "copies")
        assert files_of_copies == files
        assert list(differences(measured, measured_of_copies)) == []
        shutil.rmtree(folder)

    check()


_ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.none() | st.sampled_from("abc")), max_size=30)


@settings(deadline=None)
@given(rows=_ROWS, seed=st.integers(0, 2**32))
def test_rows_are_ordered_and_chosen_by_what_is_in_them(rows: list[tuple[int, int, str | None]], seed: int) -> None:
    schema = {"key": pl.Int64, "other": pl.Int64, "text": pl.String}
    frame = pl.DataFrame(rows, schema, orient="row")
    mixed = pl.DataFrame(random.Random(seed).sample(rows, len(rows)), schema, orient="row")
    ordered = order_ties(mixed.sort("key", descending=True), ["key"])
    assert ordered.equals(frame.sort("key", "other", "text", descending=[True, False, False]))
    repeated = order_repeated(mixed, ["key", "other"])
    for _, of_key in repeated.group_by("key", "other"):
        assert of_key.equals(of_key.sort("text"))
    assert repeated.sort(repeated.columns).equals(frame.sort(frame.columns))
    chosen = one_of_each(mixed, "key").sort("key")
    assert chosen.rows() == [
        min((row for row in rows if row[0] == key), key=lambda row: (row[1], row[2] is None, row[2] or ""))
        for key in sorted({row[0] for row in rows})
    ]
