"""How well clocks are known, and what follows for the run as a whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions

US = 1000


def trace(folder: Path, spans: Sequence[tuple[int, int]], hosts: Sequence[str] = ("node01", "node02")) -> Path:
    """A trace of a rank per host, with a kernel over a time each, ns."""
    paths = []
    for rank, ((start, end), host) in enumerate(zip(spans, hosts, strict=True)):
        report = ReportBuilder(rank=rank, with_mpi=True, ranks=len(hosts), pid=1000 + rank, host=host).gpu(0)
        report.kernel("k", start, end)
        paths.append(report.write(folder / f"rank{rank}.sqlite"))
    return translate(paths, folder / "OUT", TranslateOptions(align="utc")).prv


def with_clocks(prv: Path, *clocks: dict[str, Any]) -> Path:
    """With what a translation knows of each clock."""
    account = prv.with_suffix(".json")
    content = json.loads(account.read_text())
    for clock, known in zip(content["clocks"], clocks, strict=True):
        clock |= known
    account.write_text(json.dumps(content))
    return prv


def known_to(*half_widths: int, times: Sequence[int] = (0,)) -> dict[str, Any]:
    return {
        "interval_ns": {
            "best": min(half_widths), "worst": max(half_widths), "times": list(times), "half_widths": list(half_widths)
        }
    }  # fmt: skip


def test_the_table_has_all_that_is_known_of_each_clock(tmp_path: Path) -> None:
    estimated = {
        **known_to(4_000, 9_000, times=(0, 1000)),
        "method": "collectives", "by_messages_ns": -7, "anchors": 12, "offset_ns": 1234, "drift_ppm": 1.5,
        "drift_error_ppm": 0.25,
        "anchors_by_kind": {"nccl": {"used": 10, "outliers": 3}, "messages": {"used": 2, "outliers": 0}},
        "contradiction_ns": 40,
        "steps": [{"after_ns": 1, "before_ns": 2, "size_ns": -2_000_000}, {"after_ns": 3, "before_ns": 4, "size_ns": 500}],
        "error_ns": {"median": 100, "percentile_95": 200, "largest": 300, "over_time": [5, None]},
    }  # fmt: skip
    result = measure([with_clocks(trace(tmp_path, [(0, 100), (50, 150)]), estimated, {})])

    assert result.clocks.row(0, named=True) == {
        "host": "node01", "method": "collectives", "reports": 1, "group": 0, "interval_ns": 9_000, "best_interval_ns": 4_000,
        "of_report_ns": 0, "offset_ns": 1234, "drift_ppm": 1.5, "drift_error_ppm": 0.25, "anchors": 12, "nccl_anchors": 10,
        "nccl_outliers": 3, "mpi_anchors": None, "mpi_outliers": None, "messages_anchors": 2, "messages_outliers": 0,
        "contradiction_ns": 40, "steps": 2, "largest_step_ns": -2_000_000, "by_messages_ns": -7, "median_error_ns": 100,
        "p95_error_ns": 200, "largest_error_ns": 300,
    }  # fmt: skip
    nothing = {name: value for name, value in result.clocks.row(1, named=True).items() if value is not None}
    assert nothing == {"host": "node02", "method": "utc", "reports": 1, "group": 0, "of_report_ns": 0, "steps": 0,
                       "by_messages_ns": 0}  # fmt: skip
    assert result.clock_bins.rows() == [("node01", 0, 5), ("node01", 1, None)]
    assert "node01 collectives 9.000 µs 1.234 µs 1.5 12 40 ns" in " ".join(result.as_text().split())


@pytest.mark.parametrize(
    ("spans", "widths", "time", "expected"),
    [
        # The first event and the last are of two hosts.
        ([(0, 700 * US), (300 * US, 1000 * US)], (10 * US, 20 * US), None, (970 * US, 1030 * US)),
        # One host has both; the other may reach over them.
        ([(0, 1000 * US), (5 * US, 700 * US)], (10 * US, 20 * US), None, (1000 * US, 1025 * US)),
        ([(0, 1000 * US), (300 * US, 700 * US)], (0, 0), None, (1000 * US, 1000 * US)),
        # Nothing is known: the run takes as long as its longest clock at least.
        ([(0, 700 * US), (300 * US, 1000 * US)], (None, None), None, (700 * US, None)),
        # What the user chooses is as long as it is.
        ([(0, 700 * US), (300 * US, 1000 * US)], (10 * US, 20 * US), "100us:600us", (500 * US, 500 * US)),
        ([(0, 700 * US), (300 * US, 1000 * US)], (10 * US, 20 * US), "100us:", (880 * US, 920 * US)),
    ],
)
def test_the_length_of_the_run_is_known_as_well_as_clocks_are(
    tmp_path: Path, spans: list[tuple[int, int]], widths: tuple[int, int], time: str | None, expected: tuple[int, int | None]
) -> None:
    clocks = [known_to(width) if width is not None else {} for width in widths]
    result = measure([with_clocks(trace(tmp_path, spans), *clocks)], EfficiencyOptions(time=time))

    assert result.head["length_interval"] == {"least_ns": expected[0], "most_ns": expected[1]}
    told = [text for text in result.head["warnings"] if "as clocks are placed" in text]
    assert len(told) == (expected[1] is None or expected[1] - expected[0] > 0.01 * result.head["window"]["length_ns"])


def test_the_warning_says_what_the_length_can_be(tmp_path: Path) -> None:
    prv = with_clocks(trace(tmp_path, [(0, 700 * US), (300 * US, 1000 * US)]), known_to(10 * US), known_to(20 * US))

    assert measure([prv], EfficiencyOptions(bins=100)).head["warnings"] == [
        "the run takes 1.000 ms as clocks are placed; they allow at least 970.000 µs, and at most 1.030 ms: efficiencies that "
        "divide by its length are as uncertain",
        "clocks are known to 20.000 µs and each of the 100 bins over time has 10.000 µs: activity of a host can be in a bin "
        "beside its own",
    ]
    assert "1.000 ms (clocks allow 970.000 µs to 1.030 ms)" in page_of(prv, tmp_path)


def page_of(prv: Path, folder: Path) -> str:
    measure([prv]).to_html(folder / "page.html")
    return (folder / "page.html").read_text()
