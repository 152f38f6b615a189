"""Results on terminals that are narrower than their tables: nothing is wider than the terminal, and no number is cut."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from support.measured import written
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.comparison import compare
from nsys2prv.efficiency.efficiency_options import CompareOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.vocabulary.terminal import grid

NARROW = 80
NUMBER = re.compile(r"(?<![\w.])[\d,]+(?:\.\d+)? (?:%|[nµm]?s|[KMGT]i?B|[kMGT]?B/s)(?![\w.])")


def is_fit(text: Callable[..., str], width: int = NARROW) -> str:
    """The text for a narrow terminal, after it is compared with the wide one."""
    wide, narrow = text(), text(width=width)
    assert max(map(len, wide.splitlines())) > width, "this would not show anything"
    assert [line for line in narrow.splitlines() if len(line) > width] == []
    assert set(NUMBER.findall(narrow)) <= set(NUMBER.findall(" ".join(wide.split()) + wide))
    assert text(width=10_000) == wide
    return narrow


def test_the_efficiency_of_a_run_fits_into_eighty_columns(slow_gpu: EfficiencyResult) -> None:
    narrow = is_fit(lambda width=None: slow_gpu.as_text(verbose=True, width=width))
    for title in ("Parts of the run", "Kernel durations", "Stragglers in NCCL collectives", "How well clocks are known"):
        assert f"\n{title}" in narrow
    # Lines that follow begin where the first one has its text.
    assert re.search(r"\n   1\.  +\d+\.\d %  +\S+ \S+  (?=(\S.*))\1\n {4,}\S", narrow)


def test_why_an_efficiency_is_missing_is_told_in_a_phrase(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel("gemm", 2_000, 9_000, launch=(1_000, 1_500))
    measured = measure([report.write(tmp_path / "run.sqlite")])
    assert measured.tree.filter(metric="transfer_efficiency")["reason"].str.contains("all ranks").all()
    for title in ("Transfer", "Serialization"):
        assert re.search(rf"\n    [=x] {title} Efficiency +-   without a replay with an ideal network\n", measured.as_text())


def test_a_run_without_gpus_fits_into_eighty_columns(tmp_path: Path) -> None:
    reports = [ReportBuilder(host="a-host-with-a-long-name.example.org", pid=9 + rank).mpi_rank(rank) for rank in range(2)]
    for rank, report in enumerate(reports):
        report.mpi_collective("MPI_Barrier", 300_000, 400_000 + rank)
    measured = measure(written(tmp_path, *reports))
    narrow = is_fit(lambda width=None: measured.as_text(verbose=True, width=width))
    assert re.search(r"\n  process +threads +of MPI +MPI +calls\n", narrow)


def test_a_comparison_of_three_runs_fits_into_eighty_columns_and_keeps_what_is_compared(slow_gpu: EfficiencyResult) -> None:
    runs = [slow_gpu, replace(slow_gpu), replace(slow_gpu)]
    compared = compare(runs, CompareOptions(label=("before the change", "after the change", "with another network")))
    narrow = is_fit(lambda width=None: compared.as_text(width=width))
    assert re.search(r"\n  cause +A +B +C\n", narrow)
    assert re.search(r"\n  cause +A +B +C  difference B  difference C\n", compared.as_text())


def test_a_table_that_can_not_be_narrower_is_wider_than_the_terminal_and_whole() -> None:
    cells = [["a kernel with a long name", "1,234,567.890 ms", "2,345,678.901 ms"]]
    assert grid(["kernel", "total", "mean of all"], cells, frozenset({0}), 40) == [
        "  kernel                   total       mean of all",
        "  a ker...name  1,234,567.890 ms  2,345,678.901 ms",
    ]
