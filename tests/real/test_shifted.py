"""A real report gives the same trace, byte for byte, when it is exported with times in UTC or shifted."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from support.real_reports import REPORTS, WITHOUT_METADATA
from support.shifted_exports import shift_export

from nsys2prv.exports import open_report
from nsys2prv.trace.translate import translate

from .conftest import Translated

SMALL = ("cuda-graphs", "mpi2_one_report", "mpi4_parquet")
"""Between them: CUDA, a time of an event record, MPI with handles of communicators that are used again, and both forms."""

EACH = [
    pytest.param(name, marks=[] if name in SMALL else [pytest.mark.thorough])
    for name in REPORTS
    if name not in WITHOUT_METADATA and "/" not in name
]


@pytest.mark.parametrize("report", EACH)
def test_a_shifted_export_gives_the_same_trace(report: str, translation: Callable[[str], Translated], tmp_path: Path) -> None:
    plain = translation(report)
    # Of several reports every second one is in UTC, and the others are shifted by a little: forward, and backward.
    shifted = [
        shift_export(path, tmp_path / path.name, normalize=index % 2 == 0, shift=(0, -5_000_000, 250, 3_000_000_000)[index % 4])
        for index, path in enumerate(plain.reports)
    ]
    prv = translate(shifted, tmp_path / "trace").prv
    for suffix in (".prv", ".pcf", ".row"):
        assert prv.with_suffix(suffix).read_bytes() == plain.trace.path.with_suffix(suffix).read_bytes()


@pytest.mark.thorough
def test_a_real_export_in_utc_gives_the_same_trace_as_one_that_is_not(real_reports: Path, tmp_path: Path) -> None:
    in_utc = sorted((real_reports / "nccl-2nodes-6gpus-utc").glob("*.sqlite"))
    plain = [_not_in_utc(path, tmp_path / path.name) for path in in_utc]
    traces = []
    for name, reports in (("utc", in_utc), ("plain", plain), ("mixed", [*in_utc[:3], *plain[3:]])):
        (tmp_path / name).mkdir()
        traces.append(translate(reports, tmp_path / name / "trace").prv)
    for suffix in (".prv", ".pcf", ".row"):
        assert len({trace.with_suffix(suffix).read_bytes() for trace in traces}) == 1


def _not_in_utc(report: Path, out: Path) -> Path:
    start = open_report(report).session_start[0]
    assert start is not None
    shift_export(report, out, shift=-start)
    with contextlib.closing(sqlite3.connect(out)) as database, database:
        database.execute("update META_DATA_EXPORT set value = '0' where name like 'EXPORT_%_TIME_SHIFT'")
    return out
