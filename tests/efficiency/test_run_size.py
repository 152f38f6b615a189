"""A run that does not fit in the memory is refused before it is read, with a part of it that fits."""

from pathlib import Path

import pytest
from support.measured import MS
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.event_input import read_events
from nsys2prv.errors import RunTooLarge
from nsys2prv.execution import memory


@pytest.fixture
def reports(tmp_path: Path) -> list[Path]:
    """Four ranks with 100 kernels of a ms each, and as many calls."""
    paths = []
    for rank in range(4):
        report = ReportBuilder(rank=rank, with_mpi=True, ranks=4, pid=1000 + rank).gpu(rank)
        for number in range(100):
            start = number * MS
            report.kernel("k", start, start + MS, launch=(start - 1000, start - 500) if number else (0, 100))
        paths.append(report.write(tmp_path / f"rank{rank}.sqlite"))
    return paths


def read(reports: list[Path], folder: Path, **options: str) -> None:
    read_events(reports, EfficiencyOptions(align="utc", **options), folder)  # type: ignore[arg-type]


def test_a_run_that_does_not_fit_is_refused_with_what_would(
    reports: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 380 bytes for each of 800 intervals are 304,000.
    monkeypatch.setattr(memory, "left", lambda cap: 190_000)
    with pytest.raises(RunTooLarge) as refused:
        read(reports, tmp_path / "all")
    assert str(refused.value) == (
        "to measure 800 intervals takes about 0 MB, and 0 MB are left; measure a part of the run (--time 0.025s:0.075s or "
        "--ranks 0-1), or give more memory (--memory, or that of the job)"
    )
    assert refused.value.exit_code == 11
    read(reports, tmp_path / "time", time="0.025s:0.075s")
    read(reports, tmp_path / "ranks", ranks="0-1")
    monkeypatch.setattr(memory, "left", lambda cap: 304_000)
    read(reports, tmp_path / "fits")


def test_a_cap_leaves_what_is_not_taken() -> None:
    assert 0.9e12 < memory.left(10**12) <= 10**12
    assert memory.left(0) == 0
