"""Made reports, full of equal times and contradictions: events of all kinds, drawn at random by hypothesis."""

from collections.abc import Callable, Iterable

from hypothesis import strategies as st

from support.report_builder import ReportBuilder

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

drawn_events = st.lists(
    st.tuples(st.sampled_from(range(len(EVENTS))), st.integers(0, 12), st.integers(0, 4), st.integers(0, 2)),
    min_size=10,
    max_size=120,
)
"""Events of one rank: their kind, start, length (ticks) and number."""


def made_report(rank: int, events: Iterable[tuple[int, int, int, int]]) -> ReportBuilder:
    """The report of one of two ranks."""
    builder = ReportBuilder(host="node01", pid=1000 + rank, rank=rank, ranks=2, with_mpi=True, schema="3.24.0")
    builder.gpu()
    for kind, start, length, number in events:
        EVENTS[kind](builder, start * _TICK, (start + length) * _TICK, number)
    return builder
