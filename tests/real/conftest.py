"""The real reports in ../shared/reports, each translated once; and paramedir, BSC's command-line reader of traces.

Both are looked for, never needed: tests are skipped, with a reason, where they are not.
"""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from nsys2prv.paraver.trace_reader import Trace, open_trace
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions

REPORTS_FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "reports"
LARGEST_OUTPUT = 2 << 30
"""Bytes that paramedir may write: on some damage it prints without end."""

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
    alone = [path for pattern in _ONE_EACH for path in sorted(REPORTS_FOLDER.glob(pattern))]
    found: dict[str, tuple[Path, ...]] = {str(path.relative_to(REPORTS_FOLDER).with_suffix("")): (path,) for path in alone}
    for folder, pattern in _MERGED.items():
        if paths := tuple(sorted((REPORTS_FOLDER / folder).glob(pattern))):
            found[folder] = paths
    return found


REPORTS: dict[str, tuple[Path, ...]] = _found_reports()
"""What is translated together, by name."""


def _database(report: Path) -> Path:
    if report.suffix == ".sqlite":
        return report
    return REPORTS_FOLDER / "mpi4" / f"{report.name.removesuffix('_pqtdir')}.sqlite"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `name` runs once for each of REPORTS, or is skipped when there are none."""
    if "name" in metafunc.fixturenames:
        absent = pytest.param("", marks=pytest.mark.skip(reason=f"no reports in {REPORTS_FOLDER}"))
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
            pytest.skip(f"no report {name} in {REPORTS_FOLDER}")
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


@pytest.fixture
def paramedir(tmp_path: Path) -> Callable[[Path, str], Path]:
    """Loads a trace with a view (text of a .cfg) and gives the CSV of the view; any message is a failure."""
    program = shutil.which("paramedir")
    if program is None:
        pytest.skip("paramedir is not on PATH")

    def load(prv: Path, view: str) -> Path:
        cfg, csv = tmp_path / "view.cfg", tmp_path / "view.csv"
        cfg.write_text(view)
        done = subprocess.run(
            [program, str(prv), str(cfg), str(csv.with_suffix(""))],
            cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,
            preexec_fn=partial(resource.setrlimit, resource.RLIMIT_FSIZE, (LARGEST_OUTPUT, LARGEST_OUTPUT)),
        )
        # Its exit code says nothing; its messages do.
        assert done.stderr == ""
        assert [line for line in done.stdout.splitlines() if not line.endswith("file written.")] == []
        # A time line has the suffix, a histogram has none.
        written = csv if csv.is_file() else csv.with_suffix("")
        assert written.is_file()
        return written

    return load
