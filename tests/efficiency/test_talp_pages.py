"""talp-pages of BSC, where it is installed, reads the files of `efficiency --talp` and draws runs as one series over time."""

import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.results import EfficiencyResult


@pytest.fixture
def talp() -> str:
    """The program of talp-pages, or the test is skipped."""
    found = shutil.which("talp")
    if found is None:
        pytest.skip("talp-pages is not installed: .venv/bin/pip install talp-pages && make test")
    return found


def measured(folder: Path, name: str, useful: int, threads: int, *, with_mpi: bool, ranks: int = 2) -> EfficiencyResult:
    """A run in which each rank computes so many of 1000 ns, and so many threads call CUDA."""
    (folder / name).mkdir()
    for rank in range(ranks):
        report = ReportBuilder(rank=rank, ranks=ranks, pid=1000 + rank, with_mpi=with_mpi).gpu(rank)
        report.api_call("cudaFree_v3020", 0, 10)
        report.kernel("gemm", 100, 100 + useful, launch=(20, 30))
        for thread in range(threads):
            report.api_call("cudaDeviceSynchronize_v3020", 990, 1000, tid=2000 + thread)
        report.write(folder / name / f"rank{rank}.sqlite")
    return measure([folder / name])


@pytest.mark.parametrize("with_mpi", [True, False], ids=["mpi", "no mpi"])
def test_versions_of_a_program_are_one_series(tmp_path: Path, talp: str, with_mpi: bool) -> None:
    files = tmp_path / "talp" / "program"
    files.mkdir(parents=True)
    efficiencies = (0.8, 0.6, 0.9)
    for day, efficiency in enumerate(efficiencies, 1):
        # A later version has more threads.
        one = measured(tmp_path, f"version{day}", round(1000 * efficiency), day, with_mpi=with_mpi)
        EfficiencyResult({**one.head, "began": f"2026-01-0{day}T12:00:00"}, one.tables).to_talp(files / f"version{day}.json")

    done = subprocess.run(
        [talp, "ci-report", "-i", tmp_path / "talp", "-o", tmp_path / "pages", "--no-badge"],
        capture_output=True, text=True, timeout=600, cwd=tmp_path,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "critical" not in done.stderr.lower()
    (page,) = (tmp_path / "pages" / "program").glob("evolution_*.html")
    series = drawn(page)
    assert {tuple(one["x"]) for one in series} == {tuple(f"2026-01-0{day}T12:00:00.000000000" for day in (3, 2, 1))}
    assert pytest.approx([0.9, 0.6, 0.8]) in [numbers(one["y"]) for one in series]


def drawn(page: Path) -> list[dict[str, Any]]:
    """The lines that a page of talp-pages draws with Plotly."""
    _, _, arguments = page.read_text(encoding="utf-8").rpartition("Plotly.newPlot(")
    lines: list[dict[str, Any]] = json.JSONDecoder().raw_decode(arguments[arguments.index("[") :])[0]
    return lines


def numbers(values: list[float] | dict[str, str]) -> list[float]:
    """Numbers as Plotly writes them."""
    if isinstance(values, list):
        return values
    return np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"]).tolist()
