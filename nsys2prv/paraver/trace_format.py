"""Paraver as an output format of traces: its files, its limits, and records as the lines of a .prv or .prv.gz."""

from __future__ import annotations

import collections
import contextlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO, Literal

from nsys2prv.errors import TooManyRows
from nsys2prv.execution.output_files import remove_file
from nsys2prv.execution.process import max_threads
from nsys2prv.paraver.label_files import write_pcf, write_row
from nsys2prv.paraver.record_text import RecordText
from nsys2prv.paraver.trace_files import MOST_OBJECTS, VIEWS, companion, without_suffix
from nsys2prv.paraver.trace_reader import open_trace
from nsys2prv.paraver.views.trace_content import Occurring, TraceContent
from nsys2prv.sources.source import RowKind
from nsys2prv.timeline.labels import UsedType
from nsys2prv.timeline.records import EncodedRecords, RecordBatch, RowRanges, TimelineHead
from nsys2prv.timeline.rows import LANE, Node, Rows

LARGE_BYTES = 500_000_000
"""wxParaver asks to cut traces above this size."""
_PIECE_BYTES = 1 << 20
"""Bytes that are written at once: for 20 MB a system can take five times as long, as it looks for memory in large blocks."""
_BLOCK_BYTES = 1 << 20
"""Bytes of a block before compression: what repeats is found within 32 KiB, so larger blocks give no smaller file."""
_LEVEL = 4
"""Half the time of the default for a few percent more bytes."""
_WITH_GZIP_HEADER = 16 + zlib.MAX_WBITS
"""Its header has neither name nor time: the same content gives the same file."""
_APPLICATION = 1
"""A trace has one application."""

Write = Callable[[bytes | memoryview], object]


@dataclass(frozen=True)
class ParaverFormat:
    """Writes a trace for Paraver (`trace.write.TraceFormat`).

    Attributes
    ----------
    compressed
        Whether the records are a .prv.gz.
    with_views
        Whether views are written.
    """

    compressed: bool = False
    with_views: bool = True

    companions = (VIEWS, ".pcf", ".row")
    """Suffixes of what lies beside the records, in the order in which it gets its name."""
    folders = (VIEWS,)
    """Those of them that are folders."""
    suffixes = (".prv", ".prv.gz")
    """Suffixes of a file of records."""

    @property
    def suffix(self) -> str:
        """Suffix of the file of records."""
        return self.suffixes[self.compressed]

    def fit(self, rows: Rows) -> Rows:
        """Rows within Paraver's limits: where hosts have too many CPUs, only those with events count, or one per host.

        Raises
        ------
        TooManyRows
            When there are more rows than Paraver takes.
        """
        if rows.table.height > MOST_OBJECTS:
            streams = sum(keys.drop("row", LANE).n_unique() for (_, kind), keys in rows.keys.items() if kind is RowKind.STREAM)
            raise TooManyRows(rows.table.height, MOST_OBJECTS, streams if streams > sum(map(len, rows.devices.values())) else 0)
        if sum(node.cpus for node in rows.nodes) <= MOST_OBJECTS:
            return rows
        with_events = tuple(replace(node, cpus=node.cpus_with_events) for node in rows.nodes)
        if sum(node.cpus for node in with_events) <= MOST_OBJECTS:
            return replace(rows, nodes=with_events)
        # Paraver crashes on a node without a CPU.
        return replace(rows, nodes=tuple(Node(node.name, 1) for node in rows.nodes), has_cpus=False)

    @contextlib.contextmanager
    def writer(self, path: Path, head: TimelineHead, *, is_first: bool) -> Iterator[PrvWriter]:
        """Writes the first file, which starts with the header and is compressed when its name ends in .gz, or another part:
        those are compressed when they are joined, so that the trace does not depend on them."""
        if is_first:
            # In a separate block, as where parts are joined behind it.
            with _opened(path, "wb") as write:
                write(f"{_header(head)}\n".encode())
        with _opened(path, "ab") as write:
            yield PrvWriter(write, RecordText(head.rows.table))

    def join(self, first: Path, parts: Iterable[Path]) -> None:
        """Append parts to the first file, in their order; each is removed when it is appended."""
        with _opened(first, "ab") as write:
            for part in parts:
                with part.open("rb", buffering=0) as file:
                    while content := file.read(_PIECE_BYTES):
                        write(content)
                remove_file(part)

    def finish(
        self,
        staged: Path,
        final: Path,
        head: TimelineHead,
        used: Sequence[UsedType],
        on_rows: Mapping[int, RowRanges],
        senders: RowRanges,
    ) -> dict[str, Any]:
        """Write the .pcf, the .row and the views; what a user put into former views is kept."""
        write_pcf(companion(staged, ".pcf"), used)
        write_row(companion(staged, ".row"), head.rows, without_suffix(final).name)
        # Templates are not loaded where no views are written.
        from nsys2prv.paraver.views.folder import keep_user_files, write_views

        content = {}
        if self.with_views:
            of_trace = TraceContent.of(open_trace(staged), Occurring(on_rows, senders))
            rendered = write_views(companion(staged, VIEWS), of_trace, final, companion(final, VIEWS))
            content = {"views": [{"path": view.path, "title": view.title} for view in rendered]}
        if companion(final, VIEWS).exists():
            keep_user_files(companion(final, VIEWS), companion(staged, VIEWS))
        return content

    def warnings(self, size: int) -> list[str]:
        """What a trace of a size (bytes) does not go well with."""
        if size <= LARGE_BYTES:
            return []
        return [
            f"the trace has {size / 1e6:.0f} MB and Paraver asks to cut traces above {LARGE_BYTES / 1e6:.0f} MB: "
            f"--time, --nvtx, --ranks, --skip and --min-duration make it smaller"
        ]


class PrvWriter:
    """Writes records of a trace as lines; `records` counts them."""

    def __init__(self, write: Write, text: RecordText) -> None:
        self._write = write
        self._text = text
        self.records = 0

    def encode(self, batches: Sequence[RecordBatch]) -> EncodedRecords:
        """Lines of the records of one window. May be called on several threads."""
        return self._text.encode(batches)

    def write(self, encoded: EncodedRecords) -> None:
        """Append the lines of a window, as `encode` returns them."""
        for start in range(0, len(encoded.content), _PIECE_BYTES):
            self._write(encoded.content[start : start + _PIECE_BYTES])
        self.records += encoded.records


def _header(head: TimelineHead) -> str:
    """First line of a trace, and those of communicators, which it announces.

    Its date is that of the run, not of the translation: the same reports give the same file."""
    moment = datetime.fromtimestamp((head.start_utc or 0) // 10**9, tz=timezone.utc)
    nodes, tasks = head.rows.nodes, head.rows.tasks
    cpus = ",".join(str(node.cpus) for node in nodes)
    threads = ",".join(f"{len(task.threads)}:{task.node + 1}" for task in tasks)
    line = f"#Paraver ({moment:%d/%m/%Y at %H:%M}):{head.length}_ns:{len(nodes)}({cpus}):1:{len(tasks)}({threads})"
    if head.communicators:
        line += f",{len(head.communicators)}"
    communicators = (("c", _APPLICATION, group.number, len(group.tasks), *group.tasks) for group in head.communicators)
    return "\n".join([line, *(":".join(map(str, fields)) for fields in communicators)])


@contextlib.contextmanager
def _opened(path: Path, mode: Literal["wb", "ab"]) -> Iterator[Write]:
    """What writes to the file of a trace, compressed or not."""
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(path.open(mode))
        yield stack.enter_context(gzip_blocks(file)) if path.suffix == ".gz" else file.write


@contextlib.contextmanager
def gzip_blocks(file: BinaryIO) -> Iterator[Write]:
    """What writes to a gzip file that several threads compress, in blocks of one size: each is a member of the file, and
    readers decompress all of them as one stream (RFC 1952, 2.2).

    The file depends on the bytes that are written alone, not on how they are divided, nor on the number of threads.

    Parameters
    ----------
    file
        The compressed file; it is not closed.
    """
    content, threads = bytearray(), max_threads()
    members: collections.deque[Future[bytes]] = collections.deque()

    def write(more: bytes | memoryview, least: int = _BLOCK_BYTES) -> None:
        content.extend(more)
        while len(content) >= least:
            members.append(pool.submit(_member, bytes(content[:_BLOCK_BYTES])))
            del content[:_BLOCK_BYTES]
            # Each thread has a block to go on with while finished ones are written.
            while len(members) > 2 * threads:
                file.write(members.popleft().result())

    with ThreadPoolExecutor(threads) as pool:
        try:
            yield write
            if content:
                write(b"", least=1)
            for member in members:
                file.write(member.result())
        finally:
            pool.shutdown(cancel_futures=True)


def _member(block: bytes) -> bytes:
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WITH_GZIP_HEADER)
    return compressor.compress(block) + compressor.flush()
