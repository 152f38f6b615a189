"""What an output format of traces provides; `paraver.trace_format.ParaverFormat` is one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

from nsys2prv.timeline.labels import UsedType
from nsys2prv.timeline.records import EncodedRecords, RecordBatch, TimelineHead
from nsys2prv.timeline.rows import Rows


class RecordWriter(Protocol):
    """Writes records to one file.

    Attributes
    ----------
    records
        How many it has written.
    """

    records: int

    def encode(self, batches: Sequence[RecordBatch]) -> EncodedRecords:
        """The records of one window of time as they are written. Called on several threads."""

    def write(self, encoded: EncodedRecords) -> None:
        """Append what `encode` made of a window; called in the order of time."""


W = TypeVar("W", bound=RecordWriter, covariant=True)


class TraceFormat(Protocol[W]):
    """An output format. It can be pickled: records may be encoded in other processes, in parts that are joined."""

    @property
    def suffix(self) -> str:
        """Suffix of the file of records."""

    def fit(self, rows: Rows) -> Rows:
        """Rows within the limits of the format.

        Raises
        ------
        TooManyRows
            When there are more than it takes.
        """

    def writer(self, path: Path, head: TimelineHead, *, is_first: bool) -> AbstractContextManager[W]:
        """What writes a file: that of the trace, or a part of it that is not the first."""

    def join(self, whole: Path, parts: Iterable[Path]) -> None:
        """Append parts to the first file, in their order, and remove them."""

    def write_names(self, base: Path, head: TimelineHead, used: Sequence[UsedType], title: str) -> None:
        """Write names of rows, event types and values to files beside the records; `base` is their path without suffix."""
