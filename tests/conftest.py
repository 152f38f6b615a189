"""What tests of several modules need: the real reports, the command line as a process, and a report of some length."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pytest

from nsys2prv.demo import ReportBuilder, write_report

CHECKOUT = Path(__file__).resolve().parents[1]
REAL_REPORTS = CHECKOUT.parent / "shared" / "reports"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever asks for the real reports is marked, so that `-m "not real"` leaves them out."""
    for item in items:
        if "real_reports" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.real)


@pytest.fixture(scope="session")
def real_reports() -> Path:
    """The folder of real reports; a test that needs it is skipped where it is not."""
    if not REAL_REPORTS.is_dir():
        pytest.skip(f"the real reports are not there ({REAL_REPORTS})")
    return REAL_REPORTS


@dataclass(frozen=True)
class CommandLine:
    """nsys2prv as users call it: a process of its own, in English, without an nsys that may be installed here."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, *arguments: str | Path, prepare: Callable[[], object] | None = None) -> subprocess.Popen[str]:
        """A running nsys2prv; `prepare` is called in the new process before it starts."""

        def prepared() -> None:
            # A test run in the background ignores Ctrl-C, and so would its children.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if prepare is not None:
                prepare()

        kept = {name: value for name, value in os.environ.items() if name not in {"NSYS_HOME", "COLUMNS"}}
        return subprocess.Popen(
            [sys.executable, "-m", "nsys2prv", *map(str, arguments)],
            cwd=self.folder,
            env={**kept, "PATH": str(self.folder / "no-programs"), "PYTHONPATH": str(CHECKOUT), **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            preexec_fn=prepared,
        )

    def run(self, *arguments: str | Path, prepare: Callable[[], object] | None = None) -> subprocess.CompletedProcess[str]:
        """Run nsys2prv to its end."""
        process = self.start(*arguments, prepare=prepare)
        stdout, stderr = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


@pytest.fixture
def command_line(tmp_path: Path) -> CommandLine:
    """nsys2prv as a process, with the test's own folder as its working directory."""
    return CommandLine(tmp_path)


@pytest.fixture(scope="session")
def long_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of 600 000 kernels, with the calls that launch them."""
    path = tmp_path_factory.mktemp("long") / "long.sqlite"
    builder = ReportBuilder(host="node01")
    for index in range(6):
        builder.kernel(f"kernel_{index}", 1000 * index + 300, 1000 * index + 900, launch=(1000 * index, 1000 * index + 100))
    write_report(path, repeated(builder, 100_000, ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL"), period=6000))
    return path


def repeated(builder: ReportBuilder, times: int, tables: Sequence[str], period: int) -> dict[str, pl.DataFrame]:
    """Tables of a report where those named repeat every `period` ns; correlation ids move on with them."""
    copies = pl.DataFrame({"copy": range(times)})
    frames = builder.tables()
    for name in tables:
        frame = frames[name]
        step = int(frame["correlationId"].max())  # type: ignore[arg-type]
        frames[name] = copies.join(frame, how="cross").select(
            pl.col("start", "end") + pl.col("copy") * period,
            pl.col("correlationId") + pl.col("copy") * step,
            pl.exclude("start", "end", "correlationId", "copy"),
        )
    return frames
