"""Reports of a simulated run as nsys writes them, one per rank."""

from collections.abc import Callable
from pathlib import Path

from nsys2prv.exports.columns import NOT_APPLICABLE
from support.report_builder import ReportBuilder, Value
from support.simulated_run.cluster import HALO
from support.simulated_run.records import COPY, GRAPH, KERNEL, MEMSET, NCCL_KERNEL, HostCall, Operation, Range, Wait
from support.simulated_run.truth import SimulatedRun

_UTC = 1_748_872_800_000_000_000
_UP = 1_730_412_000_000_000
"""The clocks of the first node at true time 0, ns: UTC, and its monotonic clock."""
_FIRST_PID = 4_000
_BEFORE = 5_000_000
"""Recording starts so long before the programs."""
_WAIT_BEGINS, _WAIT_ENDS = 600, 300
"""A wait is inside its call."""
_PAGE = 2 << 20
_MIGRATION_TO_DEVICE, _MIGRATION_TO_HOST, _UNKNOWN_MEMORY = 11, 12, 7


def write_reports(run: SimulatedRun, folder: Path) -> list[Path]:
    """Write ``rank0000.sqlite``, ... to a folder; gives their paths, by rank."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_RankReport(run, rank).built().write(folder / f"rank{rank:04d}.sqlite") for rank in range(run.cluster.ranks)]


class _RankReport:
    """Writes the report of one rank."""

    def __init__(self, run: SimulatedRun, rank: int) -> None:
        cluster = run.cluster
        self.run, self.rank, self.cluster = run, rank, cluster
        node = cluster.node(rank)
        self.drift = (cluster.clock_drifts or (0.0,) * cluster.nodes)[node]
        offset = (cluster.clock_offsets or (0,) * cluster.nodes)[node]
        self.session = -_BEFORE - 310_000 * (rank % cluster.gpus)
        started = self.elapsed(self.session)
        self.report = ReportBuilder(
            host=f"gpu{node + 1:03d}",
            pid=_FIRST_PID + 16 * (rank % cluster.gpus),
            rank=rank,
            ranks=cluster.ranks,
            with_mpi=cluster.pattern == HALO,
            utc_ns=_UTC + offset + started,
            monotonic_ns=_UP * (1 + node) + started,
        )

    def elapsed(self, time: int) -> int:
        """Time of the clock of the node since true time 0."""
        return time + round(time * self.drift * 1e-6)

    def local(self, time: int) -> int:
        """A true time as the report has it."""
        return self.elapsed(time) - self.elapsed(self.session)

    def thread(self, number: int) -> int:
        return self.report.pid + number

    def built(self) -> ReportBuilder:
        """The report with all that the rank did."""
        local, recorded = self.rank % self.cluster.gpus, self.run.recorded
        self.report.gpu(local).cuda_device(0, local).context()
        self.report.thread(self.thread(1), name="pt_autograd_0")
        self._communicators()
        write: dict[str, Callable[[HostCall], None]] = {
            "cuda": self._cuda,
            "os": self._system,
            "mpi-collective": self._mpi_collective,
            "mpi-message": self._mpi_message,
            "mpi-wait": self._mpi_wait,
        }
        for call in recorded.calls:
            if call.rank == self.rank:
                write[call.kind](call)
        for operation in recorded.operations:
            if operation.rank == self.rank:
                self._operation(operation)
        for wait in recorded.waits:
            if wait.call.rank == self.rank:
                self._wait(wait)
        self._records()
        for one in recorded.ranges:
            if one.rank == self.rank:
                self._range(one)
        return self.report

    def _communicators(self) -> None:
        """NCCL's communicators are created first, in the first ms, while the program starts."""
        of_rank = [one.communicator for one in self.run.recorded.ranges if one.rank == self.rank and one.communicator]
        for place, communicator in enumerate(dict.fromkeys(of_rank)):
            start = self.local(100_000 + 60_000 * place)
            payload = {
                "NCCL communicator ID": communicator.identifier,
                "No. of ranks": len(communicator.ranks),
                "Rank": communicator.ranks.index(self.rank),
                "CUDA device": 0,
            }
            self.report.nvtx_range("ncclCommInitRank", start, start + 40_000, domain="NCCL", payload=payload)

    # -- host -----------------------------------------------------------------------------------------------------------

    def _times(self, call: HostCall | Range) -> tuple[int, int]:
        return self.local(call.start), self.local(call.end.time)

    def _cuda(self, call: HostCall) -> None:
        self.report.api_call(
            call.name, *self._times(call), tid=self.thread(call.thread), correlation=call.correlation,
            driver=not call.name.startswith("cuda"),
        )  # fmt: skip

    def _system(self, call: HostCall) -> None:
        self.report.os_call(call.name, *self._times(call), tid=self.thread(call.thread))

    def _mpi_collective(self, call: HostCall) -> None:
        size = None if call.name == "MPI_Barrier" else call.size
        self.report.mpi_collective(call.name, *self._times(call), size=size, received=size)

    def _mpi_message(self, call: HostCall) -> None:
        assert call.partner is not None
        assert call.size is not None
        request = call.requests[0] if call.requests else None
        self.report.mpi_p2p(
            call.name, *self._times(call), partner=call.partner, size=call.size, tag=call.tag or 0,
            request=None if request is None else 700 + request,
        )  # fmt: skip

    def _mpi_wait(self, call: HostCall) -> None:
        self.report.mpi_wait(call.name, *self._times(call), requests=tuple(700 + request for request in call.requests))

    def _range(self, one: Range) -> None:
        payload: dict[str, int | float | str] | None = None
        if one.communicator is not None:
            payload = {"NCCL communicator ID": one.communicator.identifier, "Message size [bytes]": one.size}
            payload |= {} if one.peer is None else {"Peer rank": one.peer}
            payload |= {"Reduction operation": "Sum"} if "Reduce" in one.name else {}
        self.report.nvtx_range(
            one.name, *self._times(one), domain="" if payload is None else "NCCL", tid=self.thread(one.thread),
            registered=payload is None, payload=payload,
        )  # fmt: skip

    def _on_stream(self, call: HostCall, stream: int | None) -> dict[str, Value]:
        return {
            "deviceId": 0, "contextId": 1, "streamId": NOT_APPLICABLE if stream is None else stream,
            "correlationId": call.correlation, "globalPid": self.report.global_pid(),
        }  # fmt: skip

    def _wait(self, wait: Wait) -> None:
        start, end = self._times(wait.call)
        self.report.row(
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **self._on_stream(wait.call, wait.stream), syncType=wait.kind,
            start=start + _WAIT_BEGINS, end=end - _WAIT_ENDS, eventId=NOT_APPLICABLE if wait.event is None else wait.event,
            **({"eventSyncId": wait.record or 0} if self.cluster.event_ids else {}),
        )  # fmt: skip

    def _records(self) -> None:
        for record in self.run.recorded.records:
            if record.call.rank == self.rank:
                self.report.row(
                    "CUPTI_ACTIVITY_KIND_CUDA_EVENT", **self._on_stream(record.call, record.stream), eventId=record.event,
                    **({"eventSyncId": record.number, "timestamp": 0} if self.cluster.event_ids else {}),
                )  # fmt: skip

    # -- device ---------------------------------------------------------------------------------------------------------

    def _operation(self, operation: Operation) -> None:
        report, start, end = self.report, self.local(operation.start.time), self.local(operation.end.time)
        correlation, stream = operation.call.correlation, operation.stream
        if operation.kind in (KERNEL, NCCL_KERNEL):
            report.kernel(operation.name, start, end, correlation=correlation, stream=stream, gridX=operation.grid)
            self._migrations(operation)
        elif operation.kind == COPY:
            report.copy(
                start, end, operation.size, kind=operation.copy_kind, pageable=operation.pageable, correlation=correlation,
                stream=stream,
            )  # fmt: skip
        elif operation.kind == MEMSET:
            report.memset(start, end, operation.size, correlation=correlation, stream=stream)
        else:
            assert operation.kind == GRAPH
            report.graph(start, end, graph=operation.graph, correlation=correlation, stream=stream)

    def _migrations(self, operation: Operation) -> None:
        """Pages of unified memory that move while a kernel runs: to the device, and as many back to the host."""
        for page in range(operation.migrations):
            start = self.local(operation.start.time + page * operation.migration_ns)
            end = start + operation.migration_ns // 2
            self.report.gpu_page_fault(start, end, 64)
            for kind, begin in ((_MIGRATION_TO_DEVICE, start), (_MIGRATION_TO_HOST, end)):
                self.report.copy(
                    begin, begin + operation.migration_ns // 2, _PAGE, kind=kind, stream=0, context=0, srcKind=_UNKNOWN_MEMORY,
                    dstKind=_UNKNOWN_MEMORY,
                )  # fmt: skip
