"""The real reports in ../shared/reports, each translated once; tests are skipped where they are missing."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import few_of
from support.checkout import NO_REPORTS, REAL_REPORTS
from support.paramedir import paramedir_or_skip
from support.real_reports import REPORTS, report_of_test
from support.whole_trace import WholeTrace, open_whole

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions

_NO_GPU = ("cpu-only", "mpi2_one_report", "mpi4", "nvtx-", "sched")


@dataclass(frozen=True, eq=False)
class Translated:
    """Some reports and the trace they gave."""

    reports: tuple[Path, ...]
    databases: tuple[Path, ...]
    trace: WholeTrace

    def query(self, sql: str) -> list[tuple]:  # type: ignore[type-arg]
        """Rows of a query over all reports, one after the other."""
        rows: list[tuple] = []  # type: ignore[type-arg]
        for path in self.databases:
            with sqlite3.connect(f"file:{path}?immutable=1", uri=True) as database:
                rows += database.execute(sql).fetchall()
        return rows


def _database(report: Path) -> Path:
    if report.suffix == ".sqlite":
        return report
    return REAL_REPORTS / "mpi4" / f"{report.name.removesuffix('_pqtdir')}.sqlite"


TYPICAL = {"cuda-graphs", "mpi4", "mpi-openacc-4gpu", "no-metadata-2020"}
"""Between them: most kinds of tables, and an early version of them."""
# Paraver shows all views of a report in up to 13 s.
SHOWN = {"mpi-openacc-4gpu", "mpi4"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `name` runs once for each of REPORTS."""
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", few_of(REPORTS, SHOWN if "shown_views" in metafunc.fixturenames else TYPICAL))


def pytest_itemcollected(item: pytest.Item) -> None:
    if Path(__file__).parent in item.path.parents:
        item.add_marker(pytest.mark.real)
        if not REPORTS:
            item.add_marker(pytest.mark.skip(reason=NO_REPORTS), append=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of a report follow each other: then the records of no other one need to be in memory."""
    places = [place for place, item in enumerate(items) if Path(__file__).parent in item.path.parents]
    by_report = sorted((items[place] for place in places), key=lambda item: report_of_test(item.nodeid) or "")
    for place, item in zip(places, by_report, strict=True):
        items[place] = item


@pytest.fixture(scope="session")
def translation(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Translated]:
    """Gives the trace of one of REPORTS; each is translated once."""
    done: dict[str, Translated] = {}

    def of(name: str) -> Translated:
        if name not in REPORTS:
            pytest.skip(f"no report {name} in {REAL_REPORTS}")
        if name not in done:
            paths = REPORTS[name]
            out = tmp_path_factory.mktemp("real") / "trace"
            translate(list(paths), out=out, options=TranslateOptions())
            for former in done.values():
                former.trace.forget_records()
            done[name] = Translated(paths, tuple(map(_database, paths)), open_whole(f"{out}.prv"))
        return done[name]

    return of


@pytest.fixture
def translated(name: str, translation: Callable[[str], Translated]) -> Translated:
    return translation(name)


@pytest.fixture(scope="session")
def shown_views(
    translation: Callable[[str], Translated], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, Path]]:
    """Gives what paramedir writes for every view of the trace of one of REPORTS, by name of the view; each is shown once."""
    done: dict[str, dict[str, Path]] = {}

    def of(name: str) -> dict[str, Path]:
        if name not in done:
            prv = translation(name).trace.path
            done[name] = paramedir_or_skip(tmp_path_factory.mktemp("shown")).show(prv, prv.with_suffix(".cfgs"))
        return done[name]

    return of


@pytest.fixture(scope="session")
def efficiency() -> Callable[[str, str], EfficiencyResult]:
    """Gives the numbers of one of REPORTS for a policy of NCCL; each is measured once."""
    done: dict[tuple[str, str], EfficiencyResult] = {}

    def of(name: str, nccl: str = "communication") -> EfficiencyResult:
        if name not in REPORTS:
            pytest.skip(f"no report {name} in {REAL_REPORTS}")
        if name.startswith(_NO_GPU):
            pytest.skip("no process in it uses a GPU")
        if (name, nccl) not in done:
            found = measure(list(REPORTS[name]), EfficiencyOptions(nccl=nccl, regions=("*",), bins=20))
            # Tests of a report follow each other: those of the former one are over.
            for former in [key for key in done if key[0] != name]:
                del done[former]
            assert found.tables["run"]["devices"][0]
            done[name, nccl] = found
        return done[name, nccl]

    return of
