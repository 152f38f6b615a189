"""Programs that record CUDA events and wait for them, as reports."""

from collections import defaultdict

from support.report_builder import ReportBuilder

NO_ID = 4294967295


def stream(number: int, device: int = 0) -> str:
    """Name of the row of a stream."""
    return f"CUDA-D{device}.S{number}-node01"


class Program:
    """What a process does, call by call: each call takes 2 ns, every 10 ns."""

    def __init__(
        self, *, pid: int = 1000, with_records: bool = True, with_numbers: bool = True, with_device_times: bool = True
    ) -> None:
        # Time 0 of the trace is that of the first call.
        self.report = ReportBuilder(schema="3.25.0", pid=pid, rank=pid % 1000).gpu(0)
        self.pid = pid
        self.now = 0
        self.with_records = with_records
        self.with_numbers, self.with_device_times = with_numbers, with_device_times
        self.number = 100
        self.numbers: dict[int, int] = {}
        self.operations: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.report.api_call("cudaFree_v3020", 0, 2, pid=pid)

    def launch(self, stream: int, start: int, end: int) -> None:
        """Launch a kernel on a stream; it runs from `start` to `end`."""
        self.now += 10
        self.operations[stream].append((start, end))
        self.report.kernel("k", start, end, stream=stream, launch=(self.now, self.now + 2), pid=self.pid)

    def record(self, event: int, stream: int, time: int | None = None) -> None:
        """Record an event on a stream, which the device reaches at `time`."""
        self.now += 10
        if not self.with_records:
            self.report.api_call("cudaEventRecord_v3020", self.now, self.now + 2, pid=self.pid)
            return
        self.number += 1
        self.numbers[event] = self.number
        call = self.report.api_call("cudaEventRecord_v3020", self.now, self.now + 2, pid=self.pid)
        number = self.number if self.with_numbers else None
        self.report.event_record(
            event, stream=stream, correlation=call, sync=number, time=time if self.with_device_times else None, pid=self.pid
        )

    def wait(self, stream: int, event: int, number: int | None = None) -> None:
        """Let a stream wait for an event; `number` is that of the record, by default the last one."""
        self._wait("cudaStreamWaitEvent_v3020", stream, event, number, 1)

    def synchronize(self, event: int, until: int) -> None:
        """Wait for an event until a time."""
        self._wait("cudaEventSynchronize_v3020", NO_ID, event, None, until - self.now - 10)

    def _wait(self, name: str, stream: int, event: int, number: int | None, length: int) -> None:
        self.now += 10
        call = self.report.api_call(name, self.now, self.now + length + 1, pid=self.pid)
        sync = (number or self.numbers.get(event, 0)) if self.with_numbers else None
        self.report.synchronization(
            self.now, self.now + length, correlation=call, stream=stream, event=event, sync=sync, pid=self.pid
        )
        self.now += length
