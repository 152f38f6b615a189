"""Other tools of BSC know rows and traces by rules of their own, which are restated here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.paramedir import VIEW, Paramedir, read_tables
from support.report_builder import ReportBuilder

from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions

# basicanalysis: rows of streams, in traces of nsys2prv and in those of Extrae; rows of metrics, the others are host threads.
_STREAM = re.compile(r"^(?:CUDA|HIP)-(D\d+)\.S(\d+)(?:-(\S+))?\s*$")
_STREAM_OF_EXTRAE = re.compile(r"^(?:CUDA|HIP)-(D\d+)\.[^-]*-([^\s]+)\s*$")
_METRICS = re.compile(r"^Metrics GPU\d+\s*$")


def is_taken_for_nsys2prv(pcf: bytes) -> bool:
    """Whether basicanalysis analyses a trace as one of nsys2prv: it has no STATES, and one of two labels."""
    return not re.search(rb"^STATES\s*$", pcf, re.MULTILINE) and any(
        label in pcf for label in (b"CUDA memcpy kernel", b"NCCL kernel")
    )


def two_nodes() -> list[ReportBuilder]:
    reports = []
    for rank in range(2):
        report = ReportBuilder(rank=rank, pid=10, host=f"n-{rank}")
        report.gpu(0, uuid=f"uuid-{rank}").metric("SM Active", 5, 50)
        report.kernel("k", 20, 30, launch=(0, 10))
        reports.append(report)
    return reports


@pytest.mark.parametrize("copies", [True, False])
def test_basicanalysis_knows_the_trace_its_streams_and_its_metrics(tmp_path: Path, copies: bool) -> None:
    reports = two_nodes()
    if copies:
        reports[0].copy(40, 50, 8)
    paths = [report.write(tmp_path / f"{rank}.sqlite") for rank, report in enumerate(reports)]
    prv = translate(paths, tmp_path / "out", TranslateOptions(align="none")).prv
    names = prv.with_suffix(".row").read_text().partition("LEVEL THREAD SIZE")[2].split("\n\n")[0].splitlines()[1:]

    assert is_taken_for_nsys2prv(prv.with_suffix(".pcf").read_bytes())
    for pattern, groups in ((_STREAM, (1, 3)), (_STREAM_OF_EXTRAE, (1, 2))):
        found = [pattern.match(name) for name in names]
        assert [one.group(*groups) for one in found if one] == [("D0", "n-0"), ("D0", "n-1")]
    assert sum(_METRICS.match(name) is not None for name in names) == 2


def test_basicanalysis_does_not_take_a_trace_without_gpus_for_one_with_them(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.os_call("read", 0, 5)
    prv = translate([report.write(tmp_path / "r.sqlite")], tmp_path / "out").prv
    assert not is_taken_for_nsys2prv(prv.with_suffix(".pcf").read_bytes())


def test_paraver_shows_the_names_of_the_states(tmp_path: Path, paramedir: Paramedir) -> None:
    prv = translate([two_nodes()[0].write(tmp_path / "r.sqlite")], tmp_path / "out").prv
    states = VIEW.format(function="State As Is", types="All", composition="As Is")
    histogram = """
< NEW ANALYZER2D >
Analyzer2D.Name: states
Analyzer2D.ControlWindow: 1
Analyzer2D.DataWindow: 1
Analyzer2D.Accumulator: Semantic
Analyzer2D.Statistic: Time
Analyzer2D.CalculateAll: True
Analyzer2D.HideCols: True
Analyzer2D.HorizVert: Horizontal
Analyzer2D.AnalysisLimits: Alltrace
Analyzer2D.ComputeYScale: True
Analyzer2D.ComputeYScaleZero: True
Analyzer2D.Minimum: 0
Analyzer2D.Maximum: 20
Analyzer2D.Delta: 1
Analyzer2D.UseFixedDelta: True
"""
    (table,) = read_tables(paramedir.show_one(prv, states + histogram)).values()
    assert {"Running", "Idle"} <= set(table.columns)
