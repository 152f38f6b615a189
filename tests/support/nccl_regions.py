"""Regions of NCCL with payloads, for reports that tests make."""

import struct

from support.report_builder import ReportBuilder

UINT64, INT, SIZE, DOUBLE = 18, 5, 22, 20
STATIC = 1 << 24
OPERATION = STATIC + 16
COMMUNICATOR = 0xFEDC_BA98_7654_1A2B
NCCL_SCHEMAS: dict[str, tuple[int, list[tuple[str, int, int]], str]] = {
    "ncclCommInitRank": (
        STATIC + 2,
        [("NCCL communicator ID", UINT64, 0), ("No. of ranks", INT, 8), ("Rank", INT, 12), ("CUDA device", INT, 16)],
        "<Qiii4x",
    ),
    "ncclAllReduce": (
        STATIC + 7,
        [("NCCL communicator ID", UINT64, 0), ("Message size [bytes]", SIZE, 8), ("Reduction operation", OPERATION, 16)],
        "<QQi4x",
    ),
    "ncclBroadcast": (
        STATIC + 6,
        [("NCCL communicator ID", UINT64, 0), ("Message size [bytes]", SIZE, 8), ("Root", INT, 16)],
        "<QQi4x",
    ),
    "ncclSend": (
        STATIC + 9,
        [("NCCL communicator ID", UINT64, 0), ("Message size [bytes]", SIZE, 8), ("Peer rank", INT, 16)],
        "<QQi4x",
    ),
}


def payload_blob(domain: int, schema: int, payload: bytes) -> bytes:
    """A binary payload as nsys writes it: a head of 32 bytes, then the bytes of the program."""
    return struct.pack("<4Q", domain, schema, len(payload), 32 + len(payload)) + payload


class Nccl:
    """Adds regions of NCCL with payloads to a report: as blobs, or as JSON."""

    def __init__(self, report: ReportBuilder, *, binary: bool, pid: int | None = None) -> None:
        self.report, self.binary, self.pid = report, binary, pid
        if binary:
            for schema, laid, _ in NCCL_SCHEMAS.values():
                report.nvtx_schema(schema, laid, 24, domain="NCCL", pid=pid)

    def call(self, name: str, start: int, end: int, *values: int) -> None:
        domain = self.report.nvtx_domain("NCCL", pid=self.pid)
        if not values:
            self.report.nvtx_range(name, start, end, domain="NCCL", pid=self.pid, registered=True)
            return
        schema, laid, form = NCCL_SCHEMAS["ncclSend" if name == "ncclRecv" else name]
        if self.binary:
            blob = payload_blob(domain, schema, struct.pack(form, *values))
            self.report.nvtx_range(name, start, end, domain="NCCL", pid=self.pid, registered=True, binaryData=blob)
        else:
            names = {0: "Sum", 1: "Product", 2: "Max", 3: "Min", 4: "Avg"}
            payload = {
                field: names[value] if code == OPERATION else value
                for (field, code, _), value in zip(laid, values, strict=True)
            }
            self.report.nvtx_range(name, start, end, domain="NCCL", pid=self.pid, registered=True, payload=payload)
