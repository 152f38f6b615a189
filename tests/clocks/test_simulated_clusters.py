"""Simulated clusters: their reports are true, and the true offsets of clocks lie in the intervals that nsys2prv tells."""

from dataclasses import replace

import numpy as np
import pytest
from support import QUICK, few_of, rest
from support.checkout import CHECKOUT
from support.simulated_clocks import KINDS, simulate
from support.told_intervals import HONEST, PairsOfReports, aligned, compare_with_truth, try_kind


def test_the_documentation_has_the_result_of_each_kind() -> None:
    page = (CHECKOUT / "docs" / "reference" / "simulated-clusters.md").read_text(encoding="utf-8")
    table = page[page.index("<!-- measured by make bench -->") : page.index("<!-- end -->")]
    rows = [line.split(" | ")[:2] for line in table.splitlines() if line.startswith("| ")][2:]
    assert [(name.removeprefix("| "), text) for name, text in rows] == [(name, kind.text) for name, kind in KINDS.items()]


_LIKE_OTHERS = {
    *("one ring collective", "few MPI collectives", "UTC seconds apart", "shifted", "some shifted", "MPI", "jump"),
    *("a host without collectives", "regular iterations, UTC within 0.1 ms", "jump, messages", "UTC only"),
    *("lost collectives, 16 nodes", "UTC within 0.1 ms", "NCCL", "MPI messages", "MPI and its messages", "missing ranks"),
    *("two tree collectives", "few collectives", "tree", "recorded from the middle", "every third collective"),
    *("a host by itself", "anchors at the start"),
}
"""Kinds that differ little from others, which `make test` has here or in `test_align`."""


@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 12), marks=pytest.mark.thorough)], ids=["one", "more"])
@pytest.mark.parametrize("kind", few_of(KINDS, KINDS.keys() - _LIKE_OTHERS))
def test_true_offsets_are_inside_the_told_intervals(kind: str, seeds: range) -> None:
    result = try_kind(kind, seeds)
    assert result.is_honest, result
    assert result.is_useful, result


@pytest.mark.thorough
def test_messages_that_are_not_precise_do_not_bend_the_line_of_a_clock_that_jumps() -> None:
    result = try_kind("jump, messages", (9, 12, 17))
    assert result.inside == 1
    assert result.margin_median < 30_000


@pytest.mark.parametrize("iterations", [20, *rest(60)])
@pytest.mark.parametrize("lasts", [0, 4_000_000_000])
def test_where_a_clock_jumps_or_is_slewed_at_any_place_the_interval_holds_it(iterations: int, lasts: int) -> None:
    kind = replace(
        KINDS["jump"], nodes=4, nccl=1, iterations=iterations, jump_lasts=lasts, jump_place=(0.05, 0.95),
        jump=(2_000_000, 2_000_000) if lasts else (100_000, 20_000_000),
    )  # fmt: skip
    runs = [simulate(kind, seed) for seed in range(1 if QUICK else 2)]
    pairs = PairsOfReports.joined([compare_with_truth(reports, aligned(reports)) for reports in runs]).of_hosts(same=False)
    assert pairs.inside.mean() >= HONEST
    assert iterations < 60 or np.nanmedian(pairs.margins) < 10 * np.median(np.nanmax(pairs.errors, axis=1))
