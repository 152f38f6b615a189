"""Calls of the OS runtime: C library, pthreads, files."""

from __future__ import annotations

import polars as pl

from nsys2prv import events
from nsys2prv.reports import Report
from nsys2prv.sources.source import RowKind, Source, first_match, named

# (what a call's name looks like, Paraver state meanwhile); first match counts.
_STATES = (
    (r"wait|join|lock|poll|select|sleep|futex|pause|^sem_|barrier|accept|recv|yield", events.STATE_BLOCKED),
    (
        r"read|write|open|close|seek|sync|stat|sendfile|splice|getc|putc|gets|puts|printf|scanf|flush|ioctl|mmap",
        events.STATE_IO,
    ),
)


def _frame(report: Report) -> pl.LazyFrame:
    states = report.strings.select("id", label="value", state=first_match(pl.col("value"), _STATES, events.STATE_OTHERS))
    return named(CALLS.scan(report), "nameId", states).select(
        "globalTid", "start", "end", "label", "state", type=pl.lit(events.OS_CALL, pl.Int64)
    )


CALLS = Source(
    name="os-runtime",
    title="OS runtime calls",
    table="OSRT_API",
    required=("start", "end", "globalTid", "nameId"),
    optional=(),
    row=RowKind.THREAD,
    types=(events.OS_CALL,),
    frame=_frame,
)
