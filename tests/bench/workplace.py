"""What the parts of the benchmark share: sizes, folders, long reports, and the programs that are measured."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.measuring import Missing, Run, call, measure, say

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).resolve().parent / "scripts"
OTHER_VERSION = "0.5.8"
SAME_SOURCES = "cuda-api,kernels,copies,memsets,graphs,nvtx"
"""What the other tool is asked for too: calls, kernels, memory operations, push/pop ranges."""
SAMPLED = ("GPU_METRICS", "SCHED_EVENTS", "COMPOSITE_EVENTS", "OSRT_API")


@dataclass(frozen=True)
class LongReport:
    """A report repeated along the time axis."""

    source: str
    times: int
    without: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"{self.source} x{self.times}" + (" (CUDA only)" if self.without else "")


@dataclass(frozen=True)
class Sizes:
    """How large everything is that is measured."""

    short: int = 300  # times that the report is repeated, which has about 2,000 intervals: 0.6 million
    long: int = 3_000
    longest: int = 30_000
    again: int = 10  # times as long as they are, for other reports
    heavy_rows: int = 3_000_000
    reports: tuple[int, int] = (32, 1_024)
    clock_runs: int = 50


QUICK = Sizes(3, 30, 60, 2, 20_000, (4, 16), 1)
"""For trying the benchmark itself."""


@dataclass(frozen=True)
class Translation:
    """A translation: what it took, and what it wrote."""

    run: Run
    bytes: int
    records: int


class Workplace:
    """Folders and programs.

    Parameters
    ----------
    shared
        Folder of the real reports and tools.
    cache
        Keeps long reports and the other tool.
    runs
        Runs of each program.
    """

    def __init__(self, shared: Path, cache: Path, runs: int, sizes: Sizes) -> None:
        self.shared = shared
        self.cache = cache
        self.runs = runs
        self.sizes = sizes

    @property
    def short(self) -> LongReport:
        """The report on which both tools are measured."""
        return LongReport("gpu-metrics-a100", self.sizes.short, SAMPLED)

    @property
    def long(self) -> LongReport:
        """The same, ten times as long."""
        return LongReport("gpu-metrics-a100", self.sizes.long, SAMPLED)

    @property
    def longest(self) -> LongReport:
        """The same, a hundred times as long."""
        return LongReport("gpu-metrics-a100", self.sizes.longest, SAMPLED)

    def report(self, wanted: LongReport) -> Path:
        """A long report, made where it is not there yet."""
        name = wanted.source + (f"-x{wanted.times}" if wanted.times > 1 else "") + ("-cuda" if wanted.without else "")
        source, tool = self.shared / "reports" / f"{wanted.source}.sqlite", self.shared / "tools" / "repeat_report.py"

        def make(folder: Path, made: Path) -> None:
            for needed in (source, tool):
                if not needed.exists():
                    raise Missing(f"{needed} is not there; the benchmark repeats real reports, name their folder with --shared")
            # The report may be read-only, and its copy would be too.
            shutil.copyfile(source, folder / "short.sqlite")
            arguments = [str(wanted.times), *([",".join(wanted.without)] if wanted.without else [])]
            call([sys.executable, tool, folder / "short.sqlite", made, *arguments])

        return self.kept(f"{name}.sqlite", make)

    def many(self, count: int) -> Path:
        """A folder of small reports of one run, made where it is not there yet."""

        def make(_: Path, made: Path) -> None:
            call([sys.executable, SCRIPTS / "make_many.py", made, str(count)])

        return self.kept(f"many-{count}", make)

    def kept(self, name: str, make: Callable[[Path, Path], None]) -> Path:
        """A file or folder that is made once; `make` gets a folder for what it needs, and the path to make."""
        kept = self.cache / "reports" / name
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            say(f"making {name}")
            with tempfile.TemporaryDirectory(dir=self.cache) as folder:
                made = Path(folder, "made", name)
                made.parent.mkdir()
                make(Path(folder), made)
                made.replace(kept)
        return kept

    def program(self) -> Path:
        """nsys2prv of this environment."""
        program = Path(sys.executable).with_name("nsys2prv")
        if not program.exists():
            raise Missing(f"{program} is not there; install this checkout first (`make bench` does it)")
        return program

    def run(
        self, *arguments: str | Path, environment: dict[str, str] | None = None, watch: bool = False, times: int = 1
    ) -> list[Run]:
        """Run nsys2prv with arguments, some times one after the other."""
        found = []
        for _ in range(times):
            with tempfile.TemporaryDirectory(dir=self.cache) as folder:
                run = measure([self.program(), *arguments], Path(folder), environment, watch=watch)
            words = " ".join(one if isinstance(one, str) else one.name for one in arguments)
            _say_run(run, f"nsys2prv {words}")
            found.append(run)
        return found

    def translate(
        self, report: Path, *options: str, environment: dict[str, str] | None = None, watch: bool = False
    ) -> Translation:
        """Translate a report or a folder of reports."""
        with self.trace(report, *options, environment=environment, watch=watch) as (_, translation):
            return translation

    @contextmanager
    def trace(
        self, report: Path, *options: str, environment: dict[str, str] | None = None, watch: bool = False
    ) -> Iterator[tuple[Path, Translation]]:
        """Translate, and keep the trace for the block: its path without suffix, and what it took."""
        with tempfile.TemporaryDirectory(dir=self.cache) as folder:
            out = Path(folder, "OUT")
            command: list[str | Path] = [self.program(), "translate", report, "-o", out, *options]
            run = measure(command, Path(folder), environment, watch=watch)
            _say_run(run, f"nsys2prv translate {' '.join([report.name, *options])}")
            trace = json.loads(out.with_name("OUT.json").read_text(encoding="utf-8"))["trace"]
            yield out, Translation(run, trace["bytes"], trace["records"])

    def translate_with_other(self, report: Path) -> Run:
        """Translate a report with the other tool."""
        program = self._other_tool()
        with tempfile.TemporaryDirectory(dir=self.cache) as folder:
            shutil.copyfile(report, Path(folder, "R.sqlite"))
            # It takes the export that lies beside a report, and opens the report itself for nothing.
            Path(folder, "R.nsys-rep").touch()
            # The stand-in writes the one table of API calls that this version wants from nsys itself.
            path = os.pathsep.join([str(self.shared / "tools"), os.environ.get("PATH", "")])
            command: list[str | Path] = [program, "-t", "cuda_api_trace,nvtx_pushpop_trace", "R.nsys-rep", "OUT"]
            # Both have packages of the same name.
            run = measure(command, Path(folder), {"PATH": path, "PYTHONPATH": ""})
            if not Path(folder, "OUT.prv").exists():
                raise Missing(f"nsys2prv {OTHER_VERSION} wrote no trace of {report.name}")
            _say_run(run, f"nsys2prv {OTHER_VERSION} on {report.name}")
            return run

    def script(self, name: str, *arguments: str | Path, environment: dict[str, str] | None = None) -> tuple[Run, Any]:
        """Run one of the scripts; the result is what it took, and what it prints as JSON."""
        with tempfile.TemporaryDirectory(dir=self.cache) as folder:
            paths = {"PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "tests")])}
            command = [sys.executable, SCRIPTS / f"{name}.py", *arguments]
            run = measure(command, Path(folder), {**paths, **(environment or {})})
            return run, json.loads(Path(folder, "output.txt").read_text(encoding="utf-8").splitlines()[-1])

    def _other_tool(self) -> Path:
        environment = self.cache / f"nsys2prv-{OTHER_VERSION}"
        program = environment / "bin" / "nsys2prv"
        stand_in = self.shared / "tools" / "nsys"
        if not stand_in.exists():
            raise Missing(f"{stand_in} is not there; nsys2prv {OTHER_VERSION} needs it where nsys is not")
        if not program.exists():
            say(f"installing nsys2prv {OTHER_VERSION} into {environment}")
            call([sys.executable, "-m", "venv", "--clear", environment])
            try:
                call([environment / "bin" / "python", "-m", "pip", "install", "--quiet", f"nsys2prv=={OTHER_VERSION}"])
            except Missing as error:
                raise Missing(
                    f"nsys2prv {OTHER_VERSION} can't be installed from PyPI, is there a network? Other parts do without it: "
                    f"`--only` ({error})"
                ) from None
        return program


def _say_run(run: Run, what: str) -> None:
    say(f"  {run.seconds:7.2f} s ({run.cpu_seconds:.2f} s CPU) {run.megabytes:6.0f} MB  {what}")
