"""Drawn views have the values that Paraver computes: every window and table of a small run, against paramedir."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.paramedir import Paramedir, read_table, read_timeline
from support.report_builder import ReportBuilder
from support.view_parser import Cfg, parse_views
from support.view_semantics import NotDrawn, Semantics
from support.whole_trace import WholeTrace, open_whole

from nsys2prv.demo import Cluster, write_reports
from nsys2prv.trace.translate import translate

SMALL = Cluster(nodes=2, gpus_per_node=2, iterations=4, layers=2, slow_gpu=1, slow_factor=1.5, gpu_metrics_hz=5000)
ROUNDING = 0.0051
"""paramedir prints two decimals."""


def joined(starts: np.ndarray, values: np.ndarray) -> list[tuple[float, float]]:
    """Start and value where the value changes."""
    changes = np.concatenate([[True], np.abs(np.diff(values)) > ROUNDING])
    return list(zip(starts[changes].tolist(), values[changes].tolist(), strict=True))


def row_name(trace: WholeTrace, level: str, row: int) -> str:
    if level == "task":
        return f"1.{row + 1}"
    task = max(index for index, one in enumerate(trace.header.tasks) if one.first_row <= row)
    return f"1.{task + 1}.{row - trace.header.tasks[task].first_row + 1}"


def compare_timeline(trace: WholeTrace, semantics: Semantics, cfg: Cfg, printed: Path) -> None:
    number = len(cfg.windows)
    shown = {row.removeprefix("THREAD ").removeprefix("TASK "): spans for row, spans in read_timeline(printed).items()}
    for (row,), steps in semantics.steps(number).group_by("row", maintain_order=True):
        name = row_name(trace, semantics.level(number), int(str(row)))
        spans = np.array([(begin, value) for begin, length, value in shown[name] if length > 0])
        ours = joined(steps["begin"].to_numpy(), steps["value"].to_numpy())
        theirs = joined(spans[:, 0], spans[:, 1])
        assert [begin for begin, _ in ours] == [begin for begin, _ in theirs], name
        assert [value for _, value in ours] == pytest.approx([value for _, value in theirs], abs=ROUNDING, rel=1e-9), name


def compare_table(trace: WholeTrace, semantics: Semantics, printed: Path) -> None:
    ours, theirs = semantics.table(), read_table(printed)
    names = trace.names["TASK" if ours.level == "task" else "THREAD"]
    assert [name for name, _ in theirs.rows] == [names[row] for row in ours.rows]
    cells = np.array([numbers for _, numbers in theirs.rows])
    assert np.nan_to_num(ours.cells) == pytest.approx(cells, abs=ROUNDING, rel=1e-9)
    for name, numbers in ours.totals().items():
        assert numbers == pytest.approx(theirs.totals[name], abs=ROUNDING, rel=1e-9), name


@pytest.mark.slow
@pytest.mark.thorough
def test_every_drawn_view_shows_what_paraver_shows(tmp_path: Path, paramedir: Paramedir) -> None:
    summary = translate(write_reports(tmp_path / "reports", SMALL), tmp_path / "small")
    assert compared_views(paramedir, summary.prv) > 100


def one_process_with_two_gpus(**options: Any) -> ReportBuilder:
    report = ReportBuilder(**options).gpu(0, cuda=0).gpu(1, cuda=1)
    for device, first in ((0, 100), (1, 150)):
        for place in range(6):
            begin = first + 100 * place
            report.kernel(
                f"kernel_{place % 2}", begin, begin + 60 + 10 * device, device=device, launch=(begin - 50, begin - 40)
            )
            report.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", begin + 30, begin + 70, device=device, stream=13)
            report.copy(begin + 60, begin + 90, 4096, device=device, stream=14)
        for time in range(40, 800, 40):
            report.metric("Tensor Active [Throughput %]", time + device, (time + 7 * device) % 90, gpu=device)
    return report


def test_views_of_a_process_with_several_gpus_show_each_of_them(tmp_path: Path, paramedir: Paramedir) -> None:
    """Paraver adds up all threads of a task, so the rows of other devices must have the value 0."""
    report = one_process_with_two_gpus().write(tmp_path / "one.sqlite")
    prv = translate([report], tmp_path / "one").prv

    assert compared_views(paramedir, prv) > 60
    shown = [read_table(paramedir.show(prv, only(tmp_path, f"useful_time_d{device}"))["view"]).rows[0][1] for device in (0, 1)]
    assert shown == [(360.0,), (420.0,)]


def test_views_of_a_shared_gpu_show_all_of_its_processes(tmp_path: Path, paramedir: Paramedir) -> None:
    reports = []
    for pid, (first, second) in ((1000, ((0, 60), (100, 110))), (1001, ((40, 100), (300, 320)))):
        report = ReportBuilder(pid=pid).gpu(0, cuda=0).gpu(1, cuda=1)
        report.kernel("k", *first, device=0)
        report.kernel("k", *second, device=1)
        reports.append(report.write(tmp_path / f"{pid}.sqlite"))
    prv = translate(reports, tmp_path / "one").prv

    shown = [
        read_table(paramedir.show(prv, only(tmp_path, f"useful_time_node01_d{device}"))["view"]).rows[0][1] for device in (0, 1)
    ]
    assert shown == [(100.0,), (30.0,)]


@pytest.mark.parametrize("computes", [True, False], ids=["both", "communication alone"])
def test_columns_of_activities_have_names_also_where_nothing_computes(
    computes: bool, tmp_path: Path, paramedir: Paramedir
) -> None:
    report = ReportBuilder(pid=1000).gpu(0)
    report.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 300, 400, launch=(30, 40), stream=13)
    if computes:
        report.kernel("k", 100, 200, launch=(10, 20))
    prv = translate([report.write(tmp_path / "a.sqlite")], tmp_path / "one").prv

    shown = read_table(paramedir.show(prv, only(tmp_path, "device_activity_time"))["view"])
    assert list(zip(shown.columns, shown.rows[0][1], strict=True)) == [
        *([("Running", 100.0)] if computes else []), ("Group Communication", 100.0),
    ]  # fmt: skip
    on_hosts = read_table(paramedir.show(prv, only(tmp_path, "host_activity_time"))["view"])
    assert on_hosts.columns == ("Running", "Configuring accelerator")
    (row,) = read_timeline(paramedir.show(prv, only(tmp_path, "device_activity"))["view"]).values()
    assert [value for *_, value in row if value] == [*([1.0] if computes else []), 13.0]


@pytest.mark.parametrize("late", [0, 7], ids=["in step", "one after the other"])
def test_iterations_of_ranks_that_share_a_gpu_have_a_column_each(late: int, tmp_path: Path, paramedir: Paramedir) -> None:
    reports = []
    for rank in range(5):
        report = ReportBuilder(rank=rank, pid=1000 + rank).gpu(0, cuda=0)
        for number in range(3):
            begin = 1000 * number + late * rank
            report.nvtx_range("iteration", begin, begin + 900, registered=True)
            report.kernel("k", begin + 100 + 20 * rank, begin + 110 + 20 * rank)
            report.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", begin + 500, begin + 600 - late * rank, stream=13)
        reports.append(report.write(tmp_path / f"rank{rank}.sqlite"))
    prv = translate(reports, tmp_path / "one").prv

    useful, nccl = (
        read_table(paramedir.show(prv, only(tmp_path, f"{name}_per_iteration_node01_d0"))["view"])
        for name in ("useful", "nccl")
    )
    assert useful.columns == nccl.columns == ("1", "2", "3")
    assert useful.rows[0][1] == (50.0, 50.0, 50.0)
    assert nccl.rows[0][1] == (100.0, 100.0, 100.0)


def only(folder: Path, view: str) -> Path:
    """A folder with one of the views."""
    alone = folder / view
    alone.mkdir()
    (alone / "view.cfg").write_text(next((folder / "one.cfgs").glob(f"*/{view}.cfg")).read_text())
    return alone


_CUT = ("useful_bursts_d", "gaps_d", "gaps_by_length_d")
"""Paraver joins bursts of the same value, except where rows of other devices change."""


def compared_views(paramedir: Paramedir, prv: Path) -> int:
    """Compare the values of each view with those of Paraver; returns how many were compared."""
    folder = prv.with_suffix(".cfgs")
    trace = open_whole(prv)
    views = parse_views(folder)
    printed = paramedir.show(prv, folder)
    compared = 0
    for name, path in printed.items():
        if name.split("/")[1].startswith(_CUT):
            continue
        cfg = views[f"{name}.cfg"]
        semantics = Semantics(trace, cfg)
        try:
            if cfg.kind == "timeline":
                compare_timeline(trace, semantics, cfg, path)
            else:
                compare_table(trace, semantics, path)
        except NotDrawn:
            continue
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
        compared += 1
    return compared
