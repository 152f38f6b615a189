"""What holds for all reports, tried with made ones that are full of equal times and contradictions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.made_reports import drawn_events, made_report
from support.trace_properties import (
    COPIES,
    assert_account_balances,
    assert_busy_times_of_parts_add_up,
    assert_events_are_read_back,
    assert_folded_streams_keep_times,
    assert_only_is_its_part,
    assert_parts_add_up,
    assert_same_bytes,
    sources_together,
    translated,
)

import nsys2prv as np
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.execution.memory import Allotment, limited
from nsys2prv.trace.translate_options import TranslateOptions

OPTIONS = TranslateOptions(align="utc")


@pytest.mark.parametrize("examples", [2, pytest.param(100, marks=pytest.mark.thorough)])
def test_what_holds_for_all_reports(tmp_path: Path, examples: int) -> None:
    @settings(deadline=None, max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(
        ranks=st.tuples(drawn_events, drawn_events),
        copy=st.sampled_from(sorted(COPIES)),
        share=st.sampled_from([1.0, 0.001, 0.0001]),
        cuts=st.sets(st.integers(1, 16_000), min_size=1, max_size=2),
        choice=st.integers(0, 100),
    )
    def check(ranks: tuple[list[tuple[int, int, int, int]], ...], copy: str, share: float, cuts: set[int], choice: int) -> None:
        folder = tmp_path / "example"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "copies").mkdir(parents=True)
        reports = [made_report(rank, events).write(folder / f"r{rank}.sqlite") for rank, events in enumerate(ranks)]
        copies = [COPIES[copy](report, folder / "copies" / report.name, number) for number, report in enumerate(reports)]
        whole = translated(reports, folder / "whole", OPTIONS)
        with limited(Allotment(share)):
            assert_same_bytes(whole, copies[::-1], folder / "again", OPTIONS)
        assert_account_balances(whole.content)
        assert_parts_add_up(whole, reports, sorted(cuts), folder / "parts", OPTIONS, nested=False)
        assert_busy_times_of_parts_add_up(reports, sorted(cuts), EfficiencyOptions(align="utc"))
        assert_folded_streams_keep_times(whole, reports, folder / "folded", OPTIONS)
        assert_events_are_read_back(whole, reports, folder, OPTIONS)
        with np.open_run(reports, align="utc") as run:
            groups = sources_together(run.sources)
        assert_only_is_its_part(whole, reports, groups[choice % len(groups)], folder / "only", OPTIONS)

    check()
