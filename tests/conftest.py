"""Fixtures that tests of several folders need."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("support")

from support import QUICK  # noqa: E402
from support.browser import Browser, browser_or_skip  # noqa: E402
from support.checkout import NO_REPORTS, REAL_REPORTS  # noqa: E402
from support.command_line import CommandLine  # noqa: E402
from support.paramedir import Paramedir, paramedir_or_skip  # noqa: E402
from support.real_reports import report_of_test  # noqa: E402
from support.report_builder import ReportBuilder  # noqa: E402

from nsys2prv.demo import write_report  # noqa: E402

DRAWN = {"test_page.py", "test_page_first_screen.py", "test_comparison_page.py", "test_narrow_terminals.py"}
"""Files whose tests look at the run `slow_gpu`."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests of one real report, and the other tests of one file, run in one process: what they share is made once."""
    from xdist.scheduler import LoadScopeScheduling

    class ByReportOrFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return report_of_test(nodeid) or ("slow_gpu" if Path(file).name in DRAWN else file)

    return ByReportOrFile(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """`make test` measures less, and tries fewer examples of hypothesis; how long one takes is up to the machine."""
    QUICK.update({"no_critical_path": True} if "not thorough" in config.option.markexpr else {})
    checks = [HealthCheck.function_scoped_fixture]
    settings.register_profile("nsys2prv", deadline=None, max_examples=15 if QUICK else 200, suppress_health_check=checks)
    settings.load_profile("nsys2prv")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """A line for each reason of skipped tests, with the command that runs them; `-rs` has also those that can run nowhere."""
    skipped = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", ()))
    for reason, count in skipped.most_common():
        if "make " in reason:
            terminalreporter.write_line(f"SKIPPED [{count}] {reason}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever asks for the real reports is marked, so that `-m "not real"` leaves them out; what is thorough may take hours."""
    for item in items:
        if item.get_closest_marker("thorough"):
            item.add_marker(pytest.mark.timeout(0))
        if "real_reports" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.real)


@pytest.fixture(scope="session")
def real_reports() -> Path:
    """The folder of real reports; a test that needs it is skipped where it is not."""
    if not REAL_REPORTS.is_dir():
        pytest.skip(NO_REPORTS)
    return REAL_REPORTS


@pytest.fixture
def command_line(tmp_path: Path) -> CommandLine:
    """nsys2prv as a process, with the test's own folder as its working directory."""
    return CommandLine(tmp_path)


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    """Chromium, or the test is skipped."""
    return browser_or_skip(tmp_path)


@pytest.fixture
def paramedir(tmp_path: Path) -> Paramedir:
    """paramedir, or the test is skipped."""
    (tmp_path / "paramedir").mkdir()
    return paramedir_or_skip(tmp_path / "paramedir")


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


@pytest.fixture(scope="session")
def long_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of 600 000 kernels, with the calls that launch them."""
    path = tmp_path_factory.mktemp("long") / "long.sqlite"
    builder = ReportBuilder(host="node01")
    for index in range(6):
        builder.kernel(f"kernel_{index}", 1000 * index + 300, 1000 * index + 900, launch=(1000 * index, 1000 * index + 100))
    write_report(path, repeated(builder, 100_000, ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL"), period=6000))
    return path
