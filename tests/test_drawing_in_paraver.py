"""What is drawn of a view is what Paraver computes for it: every window and table of a small run, against paramedir."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from paraver import paraver_or_skip, read_table, read_timeline

from nsys2prv.demo import Cluster, write_reports
from nsys2prv.paraver.cfg import Cfg, parse_cfg
from nsys2prv.paraver.reader import Trace, open_trace
from nsys2prv.paraver.semantics import NotDrawn, Semantics
from nsys2prv.translate import translate

SMALL = Cluster(nodes=2, gpus_per_node=2, iterations=4, layers=2, slow_gpu=1, slow_factor=1.5, gpu_metrics_hz=5000)
ROUNDING = 0.0051
"""paramedir prints two decimals."""


def joined(begins: np.ndarray, values: np.ndarray) -> list[tuple[float, float]]:
    """Begin and value where the value changes."""
    changes = np.concatenate([[True], np.abs(np.diff(values)) > ROUNDING])
    return list(zip(begins[changes].tolist(), values[changes].tolist(), strict=True))


def row_name(trace: Trace, level: str, row: int) -> str:
    if level == "task":
        return f"1.{row + 1}"
    task = max(index for index, one in enumerate(trace.header.tasks) if one.first_row <= row)
    return f"1.{task + 1}.{row - trace.header.tasks[task].first_row + 1}"


def compare_timeline(trace: Trace, semantics: Semantics, cfg: Cfg, printed: Path) -> None:
    number = len(cfg.windows)
    told = {row.removeprefix("THREAD ").removeprefix("TASK "): spans for row, spans in read_timeline(printed).items()}
    for (row,), steps in semantics.steps(number).group_by("row", maintain_order=True):
        name = row_name(trace, semantics.level(number), int(str(row)))
        spans = np.array([(begin, value) for begin, length, value in told[name] if length > 0])
        ours = joined(steps["begin"].to_numpy(), steps["value"].to_numpy())
        theirs = joined(spans[:, 0], spans[:, 1])
        assert [begin for begin, _ in ours] == [begin for begin, _ in theirs], name
        assert [value for _, value in ours] == pytest.approx([value for _, value in theirs], abs=ROUNDING, rel=1e-9), name


def compare_table(trace: Trace, semantics: Semantics, printed: Path) -> None:
    ours, theirs = semantics.table(), read_table(printed)
    names = trace.names["TASK" if ours.level == "task" else "THREAD"]
    assert [name for name, _ in theirs.rows] == [names[row] for row in ours.rows]
    cells = np.array([numbers for _, numbers in theirs.rows])
    assert np.nan_to_num(ours.cells) == pytest.approx(cells, abs=ROUNDING, rel=1e-9)
    for name, numbers in ours.totals().items():
        assert numbers == pytest.approx(theirs.totals[name], abs=ROUNDING, rel=1e-9), name


@pytest.mark.slow
def test_every_view_that_is_drawn_shows_what_paraver_shows(tmp_path: Path) -> None:
    paraver = paraver_or_skip(tmp_path / "home")
    (tmp_path / "home").mkdir()
    summary = translate(write_reports(tmp_path / "reports", SMALL), tmp_path / "small")
    trace = open_trace(summary.prv)
    printed = paraver.show(summary.prv, tmp_path / "small.cfgs")
    compared = 0
    for name, path in printed.items():
        cfg = parse_cfg((tmp_path / "small.cfgs" / f"{name}.cfg").read_text(encoding="utf-8"), name)
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
    assert compared > 100
