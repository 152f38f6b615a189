"""Names of rows and tasks: how they are written, and what can be read from them.

Tools know rows of a trace by their names alone, so what writes a name and what parses it must agree. Names in traces of other
tools are understood too: those of HIP have another prefix, those of nsys2prv 0.5.8 no node."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nsys2prv.vocabulary.printable import on_one_line

NIC, SWITCH, CPU = "NIC {}", "Switch {}", "CPU {}"
"""Patterns, for `str.format` and `pl.format`, of the names of parts of a node."""
OF_PROFILER = re.compile(r"\[NSys|\*\d|CUPTI worker|cuda-EvtHandlr|cuda[0-9a-f]{8}")
"""What names of threads begin with that nsys and the driver of CUDA start in the program."""

# Names of foreign traces may have numbers of any length: longer ones than columns hold are none of ours.
_STREAM = re.compile(r"(?:CUDA|HIP)-D(\d{1,9})\.S(\d{1,18})(?:-(\S+))?\s*")
_METRICS = re.compile(r"Metrics GPU(\d{1,9})(?:/-?\d+)?\s*")
# Versions before 1.0 called switches "IB switch".
_COMPONENT = re.compile(r"NIC |CPU \d|(?:IB s|S)witch ")
_RANK = re.compile(r"Rank (\d{1,9})\b")


class StreamName(NamedTuple):
    """What the name of a stream's row says: device on its node, stream, and the node, "" where the name has none."""

    device: int
    stream: int
    node: str


def stream_name(device: int, stream: int, node: str) -> str:
    """Name of the row of a CUDA stream on a node, as Extrae writes it.

    Rows of several contexts, and of events that overlap, share a name: tools sum up a device by it, and would take a further
    suffix for a part of the name of the node.

    >>> stream_name(0, 7, "node1")
    'CUDA-D0.S7-node1'
    """
    # Tools read the name of the node up to a blank.
    return f"CUDA-D{device}.S{stream}-{'_'.join(node.split())}"


def parse_stream_name(name: str) -> StreamName | None:
    """What the name of a stream's row says; None for other rows.

    >>> parse_stream_name("CUDA-D0.S7-node1")
    StreamName(device=0, stream=7, node='node1')
    """
    match = _STREAM.fullmatch(name)
    return StreamName(int(match[1]), int(match[2]), match[3] or "") if match else None


def first_rows_of_streams(names: Iterable[Sequence[str]]) -> list[int]:
    """For each row the first row of its stream, for others the row itself; `names` are those of the rows of each task.

    Rows of a task with one name are one stream: its lanes in a trace, and streams with one id of several contexts. A trace does
    not tell these apart, and reports have no lanes: with all events on the first of such rows, both are the same.
    """
    first_rows: list[int] = []
    for of_task in names:
        first: dict[str, int] = {}
        for row, name in enumerate(of_task, start=len(first_rows)):
            first_rows.append(first.setdefault(name, row) if parse_stream_name(name) else row)
    return first_rows


def metrics_name(device: int, instance: int | None = None) -> str:
    """Name of the row of a GPU as a whole, or of an instance of it (MIG).

    It has no node: BSC's basicanalysis takes a row whose name goes on behind the number for a host thread.

    >>> metrics_name(1), metrics_name(1, 2)
    ('Metrics GPU1', 'Metrics GPU1/2')
    """
    return f"Metrics GPU{device}" if instance is None else f"Metrics GPU{device}/{instance}"


def device_of_metrics(name: str) -> int | None:
    """Device whose metrics are on a row of this name; None for other rows.

    >>> device_of_metrics("Metrics GPU1/2"), device_of_metrics("Metrics GPU1/-2"), device_of_metrics("CUDA-D0.S7")
    (1, 1, None)
    """
    match = _METRICS.fullmatch(name)
    return int(match[1]) if match else None


def is_component(name: str) -> bool:
    """Whether the name is that of a part of a node: a network adapter, a switch, a CPU.

    >>> is_component("Switch 0x08c0eb0300a1b2c3 port 12"), is_component("python3 tid 1000")
    (True, False)
    """
    return _COMPONENT.match(name) is not None


def thread_name(name: str, tid: int) -> str:
    """Name of the row of a host thread.

    >>> thread_name("data loader", 1001), thread_name("", 7)
    ('data loader tid 1001', 'tid 7')
    """
    return f"{on_one_line(name)} tid {tid}".strip()


def process_name(rank: int | None, host: str, pid: int, program: str) -> str:
    """Name of the task of a process.

    >>> process_name(3, "node01", 4711, "python3"), process_name(None, "node01", 4712, "")
    ('Rank 3 node01 pid 4711 python3', 'node01 pid 4712')
    """
    words = (f"Rank {rank}" if rank is not None else "", host, f"pid {pid}", program)
    return " ".join(filter(None, words))


def rank_of_process(name: str) -> int | None:
    """Rank in the name of a task; None where it has none.

    >>> rank_of_process("Rank 3 node01 pid 4711 python3"), rank_of_process("Node node01"), rank_of_process("Rank 9999999999")
    (3, None, None)
    """
    match = _RANK.match(name)
    return int(match[1]) if match else None


def node_task_name(host: str) -> str:
    """Name of the task of what belongs to a node and to no process.

    >>> node_task_name("node01")
    'Node node01'
    """
    return f"Node {host}"
