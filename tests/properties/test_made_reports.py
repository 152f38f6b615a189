"""What holds for all reports, tried with made ones that are full of equal times and contradictions."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import trace_properties as holds
from support.made_reports import drawn_events, made_report

import nsys2prv as np
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.execution.memory import limited
from nsys2prv.trace.translate import Summary
from nsys2prv.trace.translate_options import TranslateOptions

OPTIONS = TranslateOptions(align="utc")


class _Made(NamedTuple):
    """Two made reports with their trace, and what was drawn for them."""

    reports: list[Path]
    whole: Summary
    folder: Path
    copy: str
    share: float
    cuts: list[int]
    choice: int


def _same_bytes(made: _Made) -> None:
    (made.folder / "copies").mkdir()
    copies = [
        holds.COPIES[made.copy](report, made.folder / "copies" / report.name, number)
        for number, report in enumerate(made.reports)
    ]
    with limited(round(200_000_000 * (1 + made.share))):
        holds.assert_same_bytes(made.whole, copies[::-1], made.folder / "again", OPTIONS)


def _one_source(made: _Made) -> None:
    with np.open_run(made.reports, align="utc") as run:
        groups = holds.sources_together(run.sources)
    holds.assert_only_is_its_part(made.whole, made.reports, groups[made.choice % len(groups)], made.folder / "only", OPTIONS)


PROPERTIES: tuple[Callable[[_Made], object], ...] = (
    _same_bytes,
    _one_source,
    lambda made: holds.assert_parts_add_up(made.whole, made.reports, made.cuts, made.folder / "parts", OPTIONS, nested=False),
    lambda made: holds.assert_busy_times_of_parts_add_up(made.reports, made.cuts, EfficiencyOptions(align="utc")),
    lambda made: holds.assert_events_are_read_back(made.whole, made.reports, made.folder, OPTIONS),
)


@pytest.mark.parametrize(("examples", "tried"), [(1, 1), pytest.param(8, len(PROPERTIES), marks=pytest.mark.thorough)])
def test_what_holds_for_all_reports(tmp_path: Path, examples: int, tried: int) -> None:
    @settings(deadline=None, max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(
        ranks=st.tuples(drawn_events, drawn_events),
        first=st.integers(0, len(PROPERTIES) - 1),
        copy=st.sampled_from(sorted(holds.COPIES)),
        share=st.sampled_from([1.0, 0.001, 0.0001]),
        cuts=st.sets(st.integers(1, 16_000), min_size=1, max_size=2),
        choice=st.integers(0, 100),
    )
    def check(
        ranks: tuple[list[tuple[int, int, int, int]], ...], first: int, copy: str, share: float, cuts: set[int], choice: int
    ) -> None:
        folder = tmp_path / "example"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        reports = [made_report(rank, events).write(folder / f"r{rank}.sqlite") for rank, events in enumerate(ranks)]
        whole = holds.translated(reports, folder / "whole", OPTIONS)
        made = _Made(reports, whole, folder, copy, share, sorted(cuts), choice)
        holds.assert_account_balances(whole.content)
        for place in range(first, first + tried):
            PROPERTIES[place % len(PROPERTIES)](made)

    check()
