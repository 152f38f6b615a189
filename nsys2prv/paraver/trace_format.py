"""Paraver as an output format of traces: .prv, .pcf and .row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nsys2prv.paraver.object_limits import fit_rows
from nsys2prv.paraver.pcf import write_pcf
from nsys2prv.paraver.prv import PrvWriter, join_parts
from nsys2prv.paraver.row import write_row
from nsys2prv.timeline.labels import UsedType
from nsys2prv.timeline.records import TimelineHead
from nsys2prv.timeline.rows import Rows


@dataclass(frozen=True)
class ParaverFormat:
    """Writes a trace for Paraver (`trace.output_format.TraceFormat`); `compressed`: as .prv.gz."""

    compressed: bool = False

    @property
    def suffix(self) -> str:
        """Suffix of the file of records."""
        return ".prv.gz" if self.compressed else ".prv"

    def fit(self, rows: Rows) -> Rows:
        """Rows within Paraver's limits; raises TooManyRows."""
        return fit_rows(rows)

    def writer(self, path: Path, head: TimelineHead, *, is_first: bool) -> PrvWriter:
        """Writes records to a file."""
        return PrvWriter(path, head, is_first=is_first)

    def join(self, whole: Path, parts: Iterable[Path]) -> None:
        """Append parts to a file."""
        join_parts(whole, parts)

    def write_names(self, base: Path, head: TimelineHead, used: Sequence[UsedType], title: str) -> None:
        """Write the .pcf and the .row."""
        write_pcf(base.with_name(f"{base.name}.pcf"), used)
        write_row(base.with_name(f"{base.name}.row"), head.rows, title)
