"""How fast, and how much memory: nsys2prv beside nsys2prv 0.5.8 of PyPI; long and many reports; clocks beside the true ones.

    python tests/bench/run.py [--only PART] [--quick] [--write-docs]

Long reports are made from a real one in ../shared/reports by ../shared/tools/repeat_report.py, and kept with the other tool's
environment in .bench/.
"""

import argparse
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.clocks import clock_lines, clock_results, write_clock_table
from bench.measuring import Missing, Run, call, say
from bench.results import CHECKOUT, Line, lines_text, write_rows
from bench.workplace import INTERVALS_OF_COPY, OTHER_VERSION, QUICK, Sizes, Workplace

BUSY = 0.7
"""Load of a machine that does something else as well."""
SAME_SOURCES = ("--only", "cuda-api,kernels,copies,memsets,graphs,nvtx")
"""What the other tool reads: calls, kernels, memory operations, push/pop ranges."""


def median(runs: Iterable[Run]) -> float:
    """Median of wall times."""
    return statistics.median(run.seconds for run in runs)


def cpu_median(runs: Iterable[Run]) -> float:
    """Median of processor times."""
    return statistics.median(run.cpu_seconds for run in runs)


def million_intervals(copies: int) -> float:
    """Intervals of a long report, in millions."""
    return copies * INTERVALS_OF_COPY / 1e6


def _size(copies: int) -> str:
    return f"{million_intervals(copies):.2g} million intervals"


def _translate(place: Workplace, report: Path, *options: str, watch: bool = False, **environment: str) -> Run:
    return place.run("translate", report, "-o", "OUT", *options, watch=watch, **environment)


def speed(place: Workplace) -> list[Line]:
    """Both tools on the same report; then one ten times as long."""
    sizes = place.sizes
    short, long = place.report(sizes.short), place.report(sizes.long)
    ours, others, everything = place.in_turns(
        lambda: _translate(place, short, *SAME_SOURCES),
        lambda: place.translate_with_other(short),
        lambda: _translate(place, short),
    )
    ours_long, everything_long = place.in_turns(lambda: _translate(place, long, *SAME_SOURCES), lambda: _translate(place, long))
    lines = []
    for copies, other, how, goal, same, all_sources in (
        (sizes.short, median(others), "", 30.0, ours, everything),
        (sizes.long, median(others) * sizes.long / sizes.short, ", extrapolated", 50.0, ours_long, everything_long),
    ):
        lines.append(Line(f"{_size(copies)}: nsys2prv {OTHER_VERSION}{how}", other, "s"))
        for what, runs in (("the sources that it reads", same), ("all sources", all_sources)):
            faster = f" ({other / median(runs):.3g} times as fast)"
            lines.append(Line(f"{_size(copies)}: translate, {what}", median(runs), "s", faster))
        lines.append(Line(f"{_size(copies)}: times as fast", other / median(same), "", at_least=goal, is_detail=True))
    cpu = cpu_median(everything_long) / million_intervals(sizes.long)
    return [*lines, Line(f"{_size(sizes.long)}: processor time for each million", cpu, "s", at_most=4.5)]


def memory(place: Workplace, *, with_longest: bool = False) -> list[Line]:
    """Highest memory on reports of growing length."""
    lines = []
    for copies in (place.sizes.short, place.sizes.long, *((place.sizes.longest,) if with_longest else ())):
        for name, options in (("one process", ()), ("two workers", ("--workers", "2"))):
            run = _translate(place, place.report(copies), *options, watch=True)
            lines.append(Line(f"{_size(copies)}, {name}: largest process", run.megabytes, "MB", at_most=500))
            if options:
                lines.append(Line(f"{_size(copies)}, {name}: all processes together", run.together_megabytes, "MB"))
    return lines


def workers(place: Workplace) -> list[Line]:
    """Two workers on one long report, beside one process of one thread."""
    report = place.report(place.sizes.long)
    names = ("one process, one thread (POLARS_MAX_THREADS=1)", "one process, all threads", "two workers (--workers 2)")
    runs = place.in_turns(
        lambda: _translate(place, report, POLARS_MAX_THREADS="1"),
        lambda: _translate(place, report),
        lambda: _translate(place, report, "--workers", "2"),
    )
    lines = [
        Line(f"{_size(place.sizes.long)}, {name}", median(of_name), "s", f", {cpu_median(of_name):.3g} s of processors")
        for name, of_name in zip(names, runs, strict=True)
    ]
    faster = median(runs[0]) / median(runs[2])
    return [*lines, Line("two workers beside one thread", faster, "times as fast", at_least=1.6, is_detail=True)]


def gzip(place: Workplace) -> list[Line]:
    """Compressed output beside plain output."""
    report = place.report(place.sizes.long)
    plain, packed = place.in_turns(lambda: _translate(place, report), lambda: _translate(place, report, "--gzip"))
    return [
        Line(f"{_size(place.sizes.long)}, plain output", median(plain), "s"),
        Line(f"{_size(place.sizes.long)}, compressed output", median(packed), "s"),
        Line("compressed beside plain", median(packed) / median(plain), "times", at_most=1.5, is_detail=True),
    ]


def readers(place: Workplace) -> list[Line]:
    """Commands that read a trace."""
    with tempfile.TemporaryDirectory(dir=place.cache) as folder:
        trace = Path(folder, "OUT.prv")
        call([place.program(), "translate", place.report(place.sizes.long), "-o", trace])
        size = trace.stat().st_size / 1e6
        seconds = {command: median(place.run(command, trace) for _ in range(place.runs)) for command in ("check", "views")}
    return [
        Line(f"{command} of a trace of {size:,.0f} MB", size / taken, "MB/s", f" ({taken:.3g} s)", at_least=200)
        for command, taken in seconds.items()
    ]


def many(place: Workplace) -> list[Line]:
    """A few small reports of one run, before and after many: these take minutes, in which a machine may become slower."""
    few, many = place.sizes.reports
    of_few = [_translate(place, place.many(few)) for _ in range(place.runs)]
    of_many = _translate(place, place.many(many), watch=True)
    of_few += [_translate(place, place.many(few)) for _ in range(place.runs)]
    each, each_of_many = median(of_few) / few * 1e3, of_many.seconds / many * 1e3
    return [
        Line(f"{few} reports", median(of_few), "s", f" ({each:.0f} ms each)"),
        Line(f"{many:,} reports", of_many.seconds, "s", f" ({each_of_many:.0f} ms each)"),
        Line("time for each, beside a few", each_of_many / each, "times", at_most=1.25, is_detail=True),
        Line(f"memory of {many:,} reports", of_many.megabytes, "MB", at_most=1_000),
        Line(f"open files with {many:,} reports", of_many.open_files, "files", at_most=255),
    ]


def start(place: Workplace) -> list[Line]:
    """Commands on small reports, after one run that does not count: most of what they take is their start."""
    commands: dict[str, tuple[tuple[str | Path, ...], float]] = {"--version": (("--version",), 0.1)}
    for name in ("cuda-graphs", "cpu-only"):
        report = place.shared / "reports" / f"{name}.sqlite"
        commands[f"inspect {name}"] = ("inspect", report), 0.7
        commands[f"translate {name}, with views"] = ("translate", report, "-o", "OUT"), 1.2
    lines = []
    for name, (arguments, goal) in commands.items():
        runs = [place.run(*arguments) for _ in range(1 + 3 * place.runs)][1:]
        lines.append(Line(name, median(runs), "s", f", {cpu_median(runs):.3g} s of processors", at_most=goal))
    return lines


def efficiency(place: Workplace) -> list[Line]:
    """`efficiency` beside `translate` of the same reports: time, memory for each interval, and two workers."""
    lines, megabytes, runs = [], [], []
    for copies, goal in ((place.sizes.short, 1.3), (place.sizes.long, 1.5)):
        report = place.report(copies)
        translated, runs = place.in_turns(partial(_translate, place, report), partial(place.run, "efficiency", report))
        beside = median(runs) / median(translated)
        megabytes.append(max(run.megabytes for run in runs))
        lines += [
            Line(_size(copies), median(runs), "s", f" ({beside:.3g} times as long as translate)"),
            Line(f"{_size(copies)}: beside translate", beside, "times", at_most=goal, is_detail=True),
            Line(f"{_size(copies)}: memory", megabytes[-1], "MB"),
        ]
    further = million_intervals(place.sizes.long - place.sizes.short)
    spread = [place.run("efficiency", place.report(place.sizes.long), "--workers", "2") for _ in range(place.runs)]
    return [
        *lines,
        Line("memory for each further interval", (megabytes[1] - megabytes[0]) / further, "bytes", at_most=100),
        Line("two workers, beside one process", median(runs) / median(spread), "times as fast", at_least=1.3),
    ]


PARTS: dict[str, Callable[[Workplace], list[Line]]] = {
    "speed": speed,
    "efficiency": efficiency,
    "memory": memory,
    "workers": workers,
    "gzip": gzip,
    "readers": readers,
    "many": many,
    "start": start,
}
"""Parts with rows in docs/performance.md."""
CLOCKS = "clocks"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[*PARTS, CLOCKS], action="append", help="run one part (may be given several times)")
    parser.add_argument("--write-docs", action="store_true", help="write the tables of docs/performance.md and of clocks")
    parser.add_argument("--quick", action="store_true", help="small sizes and one run of each: tries the benchmark itself")
    parser.add_argument("--longest", action="store_true", help="memory: also a report of 60 million intervals (64 GB of disk)")
    parser.add_argument("--runs", type=int, help="runs of each program on each report (default: 3)")
    parser.add_argument("--shared", type=Path, default=CHECKOUT.parent / "shared", help="folder of the real reports and tools")
    parser.add_argument("--cache", type=Path, default=CHECKOUT / ".bench", help="keeps long reports and the other tool")
    options = parser.parse_args()
    if options.quick and options.write_docs:
        parser.error("--quick measures nothing for the documentation")
    options.cache.mkdir(parents=True, exist_ok=True)
    runs, sizes = options.runs or (1 if options.quick else 3), QUICK if options.quick else Sizes()
    place = Workplace(options.shared.resolve(), options.cache.resolve(), runs, sizes)
    load = os.getloadavg()[0]
    if load > BUSY:
        say(f"other programs are running (load {load:.1f}): they slow a program of many threads more than one of one")
    failed = False
    for name, part in {**PARTS, "memory": partial(memory, with_longest=options.longest)}.items():
        if not options.only or name in options.only:
            try:
                lines = part(place)
            except Missing as error:
                failed = True
                say(f"{name}: {error}")
                continue
            print(lines_text(name, lines), flush=True)
            if options.write_docs:
                version = call([place.program(), "--version"]).strip()
                how = f"{version}, {os.cpu_count()} cores ({platform.machine()}), medians of {runs} runs:"
                write_rows(name, lines, how, f"{load:.1f}" if load > BUSY else "")
    if not options.only or CLOCKS in options.only:
        results = clock_results(place)
        print(lines_text(CLOCKS, clock_lines(results)))
        if options.write_docs:
            write_clock_table(results)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
