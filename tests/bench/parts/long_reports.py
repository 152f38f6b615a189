"""One long report: beside the other tool, beside the floor, memory, several processes, compressed, and where the time goes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from bench.measuring import Run
from bench.results import DETAIL, Line, at_least, at_most, plain, with_lines
from bench.workplace import OTHER_VERSION, SAME_SOURCES, LongReport, Translation, Workplace

FASTER_GOAL, FASTER_GOAL_LONG = 30.0, 50.0
"""Times faster than the other tool, at 0.6 and at 6 million intervals."""
CPU_GOAL = 4.5
"""Seconds of processor time for each million intervals."""
INTERVALS_OF_COPY = 2_032
"""Kernels, calls, memory operations and ranges in the report that is repeated."""
FLOOR_GOAL = 1.7
MEGABYTES_GOAL = 500.0
WORKERS_GOAL = 1.6
GZIP_GOAL = 1.5

SAME = ("--only", SAME_SOURCES)


def median(runs: Iterable[Run]) -> float:
    """Median of wall times."""
    return statistics.median(run.seconds for run in runs)


def cpu_median(runs: Iterable[Run]) -> float:
    """Median of processor times."""
    return statistics.median(run.cpu_seconds for run in runs)


def million_intervals(report: LongReport) -> float:
    """Intervals of a long report, in millions."""
    return report.times * INTERVALS_OF_COPY / 1e6


def _size(report: LongReport) -> str:
    return f"{million_intervals(report):.2g} million intervals"


def _faster(other: float, runs: Iterable[Run]) -> str:
    return f" ({other / median(runs):.3g} times as fast)"


def _as_json(**runs: Iterable[Run]) -> dict[str, Any]:
    return {name: [asdict(run) for run in of_name] for name, of_name in runs.items()}


def speed(place: Workplace) -> dict[str, Any]:
    """Both tools on the same report, in turns, so that what else the machine does hits both; then one ten times as long."""
    short, long = place.report(place.short), place.report(place.long)
    ours: list[Run] = []
    others: list[Run] = []
    everything: list[Run] = []
    for _ in range(place.runs):
        ours.append(place.translate(short, *SAME).run)
        others.append(place.translate_with_other(short))
        everything.append(place.translate(short).run)
    ours_long = [place.translate(long, *SAME).run for _ in range(place.runs)]
    everything_long = [place.translate(long).run for _ in range(place.runs)]
    other = median(others)
    other_long = other * place.long.times / place.short.times
    lines = [
        plain(f"{_size(place.short)}: nsys2prv {OTHER_VERSION}", other, "s"),
        plain(f"{_size(place.short)}: translate, the sources that it reads", median(ours), "s", _faster(other, ours)),
        plain(f"{_size(place.short)}: translate, all sources", median(everything), "s", _faster(other, everything)),
        plain(f"{_size(place.long)}: nsys2prv {OTHER_VERSION}, extrapolated", other_long, "s"),
        plain(
            f"{_size(place.long)}: translate, the sources that it reads", median(ours_long), "s", _faster(other_long, ours_long)
        ),
        plain(
            f"{_size(place.long)}: translate, all sources", median(everything_long), "s", _faster(other_long, everything_long)
        ),
        at_least(f"{DETAIL} short, beside the other tool", other / median(ours), FASTER_GOAL, "times as fast"),
        at_least(f"{DETAIL} long, beside the other tool", other_long / median(ours_long), FASTER_GOAL_LONG, "times as fast"),
        at_most(
            f"{_size(place.long)}: processor time for each million",
            cpu_median(everything_long) / million_intervals(place.long),
            CPU_GOAL,
            "s",
        ),
    ]
    return with_lines(
        lines, **_as_json(ours=ours, other=others, everything=everything, long=ours_long, everything_long=everything_long)
    )


def floor(place: Workplace) -> dict[str, Any]:
    """A translation beside what it can't do without: reading the same columns, and writing the same number of bytes."""
    report = place.report(place.long)
    made: list[Translation] = []
    floors: list[dict[str, float]] = []
    for _ in range(place.runs):
        made.append(place.translate(report, "--no-views"))
        floors.append(place.script("floor", report, "", str(made[-1].bytes))[1])
    wall, cpu = (statistics.median(one[name] for one in floors) for name in ("seconds", "cpu_seconds"))
    reading, writing = (statistics.median(one[f"{name}_seconds"] for one in floors) for name in ("read", "write"))
    runs = [one.run for one in made]
    lines = [
        plain("the floor: columns read once, and as many bytes written", wall, "s", f" ({reading:.3g} + {writing:.3g})"),
        plain("the floor, processor time", cpu, "s"),
        plain("ours, all sources, without views", median(runs), "s"),
        plain("ours, processor time", cpu_median(runs), "s"),
        at_most("wall time beside the floor", median(runs) / wall, FLOOR_GOAL, "times"),
        plain("processor time beside the floor", cpu_median(runs) / cpu, "times"),
    ]
    return with_lines(lines, floors=floors, bytes=made[0].bytes, **_as_json(ours=runs))


def memory(place: Workplace, *, with_longest: bool = False) -> dict[str, Any]:
    """Highest memory on reports of growing length."""
    reports = [place.short, place.long, *([place.longest] if with_longest else [])]
    lines: list[Line] = []
    runs: dict[str, Run] = {}
    for one in reports:
        for name, options in (("one process", ()), ("two workers", ("--workers", "2"))):
            run = place.translate(place.report(one), *options, watch=True).run
            runs[f"{one.name}, {name}"] = run
            lines.append(at_most(f"{_size(one)}, {name}: largest process", run.megabytes, MEGABYTES_GOAL, "MB"))
            if options:
                lines.append(plain(f"{_size(one)}, {name}: all processes together", run.together_megabytes, "MB"))
    return with_lines(lines, runs={name: asdict(run) for name, run in runs.items()})


def workers(place: Workplace) -> dict[str, Any]:
    """Two workers on one long report, beside one process of one thread."""
    report = place.report(place.long)
    ways: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
        "one process, one thread (POLARS_MAX_THREADS=1)": ((), {"POLARS_MAX_THREADS": "1"}),
        "one process, all threads": ((), {}),
        "two workers (--workers 2)": (("--workers", "2"), {}),
    }
    found = _in_turns(
        place,
        {name: lambda w=way: place.translate(report, *w[0], environment=w[1]).run for name, way in ways.items()},
    )
    alone, together, spread = found.values()
    lines = [
        plain(f"{_size(place.long)}, {name}", median(runs), "s", f", {cpu_median(runs):.3g} s of processors")
        for name, runs in found.items()
    ]
    lines.append(
        at_least(f"{DETAIL} two workers beside one thread", median(alone) / median(spread), WORKERS_GOAL, "times as fast")
    )
    lines.append(plain(f"{DETAIL} two workers beside all threads", median(together) / median(spread), "times as fast"))
    return with_lines(lines, runs=_as_json(**found))


def gzip(place: Workplace) -> dict[str, Any]:
    """Compressed output beside plain output."""
    report = place.report(place.long)
    found = _in_turns(
        place,
        {"plain": lambda: place.translate(report).run, "compressed": lambda: place.translate(report, "--gzip").run},
    )
    lines = [plain(f"{_size(place.long)}, {name} output", median(runs), "s") for name, runs in found.items()]
    lines.append(
        at_most(f"{DETAIL} compressed beside plain", median(found["compressed"]) / median(found["plain"]), GZIP_GOAL, "times")
    )
    return with_lines(lines, runs=_as_json(**found))


def phases(place: Workplace) -> dict[str, Any]:
    """Wall and processor time of each step that the progress of a translation shows."""
    report = place.report(place.long)
    found = [place.script("phases", report)[1] for _ in range(place.runs)]
    steps = {
        name: {what: statistics.median(one[name][what] for one in found) for what in ("seconds", "cpu_seconds")}
        for name in found[0]
    }
    lines = [plain(name, one["seconds"], "s", f", {one['cpu_seconds']:.3g} s of processors") for name, one in steps.items()]
    return with_lines(lines, steps=steps)


def _in_turns(place: Workplace, ways: dict[str, Callable[[], Run]]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {name: [] for name in ways}
    for _ in range(place.runs):
        for name, run in ways.items():
            found[name].append(run())
    return found
