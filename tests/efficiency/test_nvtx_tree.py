"""NVTX ranges inside of each other: made ranges, of which every ns is known."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import rest
from support.measured import measured_tables
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions, window_choice
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.outputs.page.charts import icicle


def tree(report: ReportBuilder, folder: Path, **options: Any) -> list[tuple[Any, ...]]:
    """Parent, level, range, count, total and own time of each node."""
    found = measured_tables([report.write(folder / "report.sqlite")], ("nvtx_tree",), align="auto", **options)["nvtx_tree"]
    assert found["node"].to_list() == list(range(found.height))
    return found.select("parent", "level", "range", "count", "total_ns", "own_ns").rows()


def training() -> ReportBuilder:
    """Two iterations with loading, and a forward part with two layers each; a second thread has ranges beside them."""
    report = ReportBuilder().gpu(0)
    for number in range(2):
        begin = 1_000 * number
        report.nvtx_range(f"iteration {number}", begin, begin + 1_000).nvtx_range("load", begin, begin + 300)
        report.nvtx_range("forward", begin + 300, begin + 900)
        report.nvtx_range("layer 1", begin + 300, begin + 500).nvtx_range("layer 2", begin + 500, begin + 800)
        report.kernel("k", begin + 320, begin + 900, launch=(begin + 310, begin + 320))
    return report.nvtx_range("load", 100, 400, tid=77)


def test_ranges_are_inside_of_those_around_them_on_their_thread(tmp_path: Path) -> None:
    assert tree(training(), tmp_path) == [
        (None, 0, "iteration #", 2, 2_000, 200),
        (0, 1, "forward", 2, 1_200, 200),
        (1, 2, "layer #", 4, 1_000, 1_000),
        (0, 1, "load", 2, 600, 600),
        (None, 0, "load", 1, 300, 300),
    ]


def test_the_window_cuts_ranges(tmp_path: Path) -> None:
    found = tree(training(), tmp_path, window=window_choice("1100ns:2000ns"))
    assert found[0] == (None, 0, "iteration #", 1, 900, 100)
    assert found[-1] == (0, 1, "load", 1, 200, 200)


def test_without_ranges_there_is_no_tree(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.kernel("k", 10, 20, launch=(0, 5))
    assert tree(report, tmp_path) == []


@pytest.mark.parametrize("seed", [0, 1, *rest(*range(2, 9))])
def test_a_range_is_inside_of_the_innermost_one_around_it(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    begin, length = random.integers(0, 60, 26), random.integers(1, 30, 26)
    order = np.lexsort((-(begin + length), begin))
    ranges = list(zip("abcdefghijklmnopqrstuvwxyz", begin[order].tolist(), (begin + length)[order].tolist(), strict=True))
    report = ReportBuilder().gpu(0)
    report.kernel("k", 10, 100, launch=(0, 5))
    for name, start, end in reversed(ranges):
        report.nvtx_range(name, start, end)

    nodes = tree(report, tmp_path)
    expected = {
        name: next((around for around, _, until in reversed(ranges[:place]) if until >= end), None)
        for place, (name, _, end) in enumerate(ranges)
    }
    assert {name: None if parent is None else nodes[parent][2] for parent, _, name, *_ in nodes} == expected


def test_an_icicle_has_ranges_below_those_around_them(tmp_path: Path) -> None:
    measured = measure([training().write(tmp_path / "report.sqlite")], EfficiencyOptions(progress=False))
    bars = icicle(measured.tables["nvtx_tree"])
    placed = {(bar["name"], bar["level"]): (round(bar["start"], 2), round(bar["width"], 2)) for bar in bars}
    assert placed == {
        ("iteration #", 0): (0, 86.96), ("forward", 1): (0, 52.17), ("layer #", 2): (0, 43.48), ("load", 1): (52.17, 26.09),
        ("load", 0): (86.96, 13.04),
    }  # fmt: skip


def test_equal_ranges_and_equal_times_are_in_one_order(tmp_path: Path) -> None:
    report = ReportBuilder().gpu()
    for start in range(0, 600, 20):
        report.kernel("k", start, start + 10)
    for text, start, end in (("b", 0, 100), ("a", 0, 100), ("d", 200, 300), ("c", 400, 500)):
        report.nvtx_range(text, start, end)
    found = measure([report.write(tmp_path / "report.sqlite")]).nvtx_tree
    assert found.select("range", "level").rows() == [("a", 0), ("b", 1), ("c", 0), ("d", 0)]
