"""What holds for all reports, tried with all real ones."""

from pathlib import Path

import pytest
from support import trace_properties as holds
from support.checkout import NO_REPORTS
from support.real_reports import RUNS, WITHOUT_METADATA

import nsys2prv as np
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.execution.memory import limited
from nsys2prv.trace.translate import Summary
from nsys2prv.trace.translate_options import TranslateOptions

pytestmark = [pytest.mark.real, pytest.mark.thorough, pytest.mark.skipif(not RUNS, reason=NO_REPORTS)]

OPTIONS = TranslateOptions()


@pytest.fixture(scope="module", params=RUNS)
def run(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def whole(run: str, tmp_path_factory: pytest.TempPathFactory) -> Summary:
    return holds.translated(RUNS[run], tmp_path_factory.mktemp("whole") / "of", OPTIONS)


def cuts_of(whole: Summary) -> list[int]:
    length = int(whole.content["trace"]["length_ns"])
    return [length // 7, length // 3, length * 9 // 10]


@pytest.mark.parametrize("copy", holds.COPIES)
def test_another_export_of_the_recording(run: str, copy: str, whole: Summary, tmp_path: Path) -> None:
    if copy == "in UTC or shifted" and (run in WITHOUT_METADATA or run.endswith("-utc")):
        pytest.skip("it has no times that could be shifted, or they are in UTC already")
    (tmp_path / "copies").mkdir()
    copies = [holds.COPIES[copy](report, tmp_path / "copies" / report.name, number) for number, report in enumerate(RUNS[run])]
    # In another order, and by two workers.
    holds.assert_same_bytes(whole, copies[::-1], tmp_path / "trace", TranslateOptions(workers=2))


def test_little_memory(run: str, whole: Summary, tmp_path: Path) -> None:
    with limited(204_000_000):
        holds.assert_same_bytes(whole, RUNS[run], tmp_path / "trace", OPTIONS)


def test_parts_of_the_time(run: str, whole: Summary, tmp_path: Path) -> None:
    assert holds.assert_parts_add_up(whole, RUNS[run], cuts_of(whole), tmp_path, OPTIONS) == 4


def test_busy_times_of_parts(run: str, whole: Summary) -> None:
    if not holds.assert_busy_times_of_parts_add_up(RUNS[run], cuts_of(whole), EfficiencyOptions()):
        pytest.skip("no process in it uses a GPU")


def test_each_source_alone(run: str, whole: Summary, tmp_path: Path) -> None:
    with np.open_run(list(RUNS[run])) as opened:
        groups = holds.sources_together(opened.sources)
    # Runs take turns: each source is that of many.
    for group in groups[list(RUNS).index(run) % 2 :: 2]:
        holds.assert_only_is_its_part(whole, RUNS[run], group, tmp_path / group[0], OPTIONS)


def test_what_is_read_back(run: str, whole: Summary, tmp_path: Path) -> None:
    assert sum(holds.assert_events_are_read_back(whole, RUNS[run], tmp_path, OPTIONS).values())
