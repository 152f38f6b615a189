"""The real reports in ../shared/reports, each translated once; tests are skipped where they are missing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.checkout import REAL_REPORTS

from nsys2prv.paraver.trace_reader import Trace, open_trace
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions

_ONE_EACH = ("*.sqlite", "v100x8/*.sqlite", "mpi4/*.sqlite", "mpi4_parquet/*_pqtdir")
_MERGED = {"v100x8": "*.sqlite", "mpi4": "*.sqlite", "mpi4_parquet": "*_pqtdir"}


@dataclass(frozen=True, eq=False)
class Translated:
    """Some reports and the trace they gave.

    Attributes
    ----------
    reports
        What was translated.
    databases
        The same as SQLite files.
    trace
        The trace, open.
    """

    reports: tuple[Path, ...]
    databases: tuple[Path, ...]
    trace: Trace

    def query(self, sql: str) -> list[tuple]:  # type: ignore[type-arg]
        """Rows of a query over all reports, one after the other."""
        rows: list[tuple] = []  # type: ignore[type-arg]
        for path in self.databases:
            with sqlite3.connect(f"file:{path}?immutable=1", uri=True) as database:
                rows += database.execute(sql).fetchall()
        return rows


def _found_reports() -> dict[str, tuple[Path, ...]]:
    alone = [path for pattern in _ONE_EACH for path in sorted(REAL_REPORTS.glob(pattern))]
    found: dict[str, tuple[Path, ...]] = {str(path.relative_to(REAL_REPORTS).with_suffix("")): (path,) for path in alone}
    for folder, pattern in _MERGED.items():
        if paths := tuple(sorted((REAL_REPORTS / folder).glob(pattern))):
            found[folder] = paths
    return found


REPORTS: dict[str, tuple[Path, ...]] = _found_reports()
"""What is translated together, by name."""


def _database(report: Path) -> Path:
    if report.suffix == ".sqlite":
        return report
    return REAL_REPORTS / "mpi4" / f"{report.name.removesuffix('_pqtdir')}.sqlite"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `name` runs once for each of REPORTS, or is skipped when there are none."""
    if "name" in metafunc.fixturenames:
        absent = pytest.param("", marks=pytest.mark.skip(reason=f"no reports in {REAL_REPORTS}"))
        metafunc.parametrize("name", list(REPORTS) or [absent])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.real)


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
            done[name] = Translated(paths, tuple(map(_database, paths)), open_trace(f"{out}.prv"))
        return done[name]

    return of


@pytest.fixture
def translated(name: str, translation: Callable[[str], Translated]) -> Translated:
    return translation(name)
