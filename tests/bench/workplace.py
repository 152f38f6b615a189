"""What the parts of the benchmark share: folders, long reports, and the programs that are measured."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.measuring import Missing, Run, call, measure, say

OTHER_VERSION = "0.5.8"
SOURCE, WITHOUT = "gpu-metrics-a100", "GPU_METRICS,SCHED_EVENTS,COMPOSITE_EVENTS,OSRT_API"
"""The report that is repeated, and what is left out of it: CUDA remains."""
INTERVALS_OF_COPY = 2_032


class Sizes(NamedTuple):
    """Copies in a short report, in a long one and in the longest; numbers of reports; runs of each kind of cluster."""

    short: int = 300
    long: int = 3_000
    longest: int = 30_000
    reports: tuple[int, int] = (32, 1_024)
    clock_runs: int = 50


QUICK = Sizes(3, 30, 60, (4, 16), 1)
"""For trying the benchmark itself."""


class Workplace(NamedTuple):
    """The folder of the real reports and tools, one that keeps long reports and the other tool, and how often each runs."""

    shared: Path
    cache: Path
    runs: int
    sizes: Sizes

    def report(self, copies: int) -> Path:
        """A report repeated along the time axis, made where it is not there yet."""
        source, tool = self.shared / "reports" / f"{SOURCE}.sqlite", self.shared / "tools" / "repeat_report.py"

        def make(made: Path) -> None:
            for needed in (source, tool):
                if not needed.exists():
                    raise Missing(f"{needed} is not there; the benchmark repeats real reports, name their folder with --shared")
            # The report may be read-only, and its copy would be too.
            short = Path(shutil.copyfile(source, made.with_name("short.sqlite")))
            call([sys.executable, tool, short, made, str(copies), WITHOUT])

        return self._made_once(f"{SOURCE}-x{copies}.sqlite", make)

    def many(self, count: int) -> Path:
        """A folder of small reports of one run, made where it is not there yet."""
        gpus = min(count, 8)
        cluster = f"Cluster(nodes={count // gpus}, gpus_per_node={gpus}, iterations=3, layers=3, gpu_metrics_hz=100)"
        code = f"import sys; from nsys2prv.demo import *; write_reports(sys.argv[1], {cluster})"
        return self._made_once(f"many-{count}", lambda made: call([sys.executable, "-c", code, made]))

    def _made_once(self, name: str, make: Callable[[Path], object]) -> Path:
        path = self.cache / "reports" / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            say(f"making {name}")
            with tempfile.TemporaryDirectory(dir=self.cache) as folder:
                make(Path(folder, name))
                Path(folder, name).replace(path)
        return path

    def program(self) -> Path:
        """nsys2prv of this environment."""
        program = Path(sys.executable).with_name("nsys2prv")
        if not program.exists():
            raise Missing(f"{program} is not there; install this checkout first (`make bench` does it)")
        return program

    def run(self, *arguments: str | Path, watch: bool = False, **environment: str) -> Run:
        """Run nsys2prv in a folder that is removed."""
        with tempfile.TemporaryDirectory(dir=self.cache) as folder:
            run = measure([self.program(), *arguments], Path(folder), environment, watch=watch)
        words = " ".join(one if isinstance(one, str) else one.name for one in arguments)
        say(f"  {run.seconds:7.2f} s ({run.cpu_seconds:.2f} s CPU) {run.megabytes:6.0f} MB  nsys2prv {words}")
        return run

    def in_turns(self, *ways: Callable[[], Run]) -> list[list[Run]]:
        """Runs of several programs in turns, so that what else the machine does hits all of them."""
        turns = [[way() for way in ways] for _ in range(self.runs)]
        return [list(of_way) for of_way in zip(*turns, strict=True)]

    def translate_with_other(self, report: Path) -> Run:
        """Translate a report with the other tool, which is installed where it is not there yet."""
        environment = self.cache / f"nsys2prv-{OTHER_VERSION}"
        program = environment / "bin" / "nsys2prv"
        if not program.exists():
            say(f"installing nsys2prv {OTHER_VERSION} into {environment}")
            call([sys.executable, "-m", "venv", "--clear", environment])
            call([environment / "bin" / "python", "-m", "pip", "install", "--quiet", f"nsys2prv=={OTHER_VERSION}"])
        with tempfile.TemporaryDirectory(dir=self.cache) as folder:
            shutil.copyfile(report, Path(folder, "R.sqlite"))
            # It takes the export that lies beside a report, and opens the report itself for nothing.
            Path(folder, "R.nsys-rep").touch()
            # A stand-in for nsys writes the one table of API calls that this version wants from it.
            path = os.pathsep.join([str(self.shared / "tools"), os.environ.get("PATH", "")])
            command: list[str | Path] = [program, "-t", "cuda_api_trace,nvtx_pushpop_trace", "R.nsys-rep", "OUT"]
            # Both have packages of the same name.
            run = measure(command, Path(folder), {"PATH": path, "PYTHONPATH": ""})
            if not Path(folder, "OUT.prv").exists():
                raise Missing(f"nsys2prv {OTHER_VERSION} wrote no trace of {report.name}")
            return run
