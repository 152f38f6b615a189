"""How fast, how much memory, how exact: nsys2prv beside nsys2prv 0.5.8 of PyPI, and beside the floor of reading and writing the
same; long and many reports, heavy kinds, readers of traces; clocks beside the true ones of simulated clusters.

    python tests/bench/run.py [--only PART] [--quick] [--json] [--write-docs]

Long reports are made from real ones in ../shared/reports by ../shared/tools/repeat_report.py, and kept with the other tool's
environment in .bench/.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.measuring import Missing, call, say
from bench.parts.clocks import clocks, clocks_table, write_clocks_table
from bench.parts.kinds import kinds
from bench.parts.long_reports import floor, gzip, memory, phases, speed, workers
from bench.parts.many_reports import many
from bench.parts.measuring_runs import efficiency
from bench.parts.readers import readers
from bench.parts.scaling import scaling
from bench.parts.start import start
from bench.results import lines_text, write_rows
from bench.workplace import CHECKOUT, QUICK, Sizes, Workplace

PARTS: dict[str, Callable[[Workplace], dict[str, Any]]] = {
    "speed": speed,
    "floor": floor,
    "phases": phases,
    "memory": memory,
    "workers": workers,
    "gzip": gzip,
    "kinds": kinds,
    "readers": readers,
    "many": many,
    "start": start,
    "scaling": scaling,
    "efficiency": efficiency,
    "clocks": clocks,
}
DOCUMENTED = ("speed", "efficiency", "memory", "workers", "gzip", "readers", "many", "start")
"""Parts with rows in docs/performance.md."""
BUSY = 0.7
"""Load of a machine that does something else as well."""


def circumstances(place: Workplace) -> str:
    """What the measured times depend on, as a sentence."""
    version = call([place.program(), "--version"]).strip()
    return f"{version}, {os.cpu_count()} cores ({platform.machine()}), medians of {place.runs} runs:"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append", help="run one part (may be given several times)")
    parser.add_argument("--json", action="store_true", help="print numbers as JSON instead of tables")
    parser.add_argument("--write-docs", action="store_true", help="write the tables of docs/performance.md and of clocks")
    parser.add_argument("--quick", action="store_true", help="small sizes and one run of each: tries the benchmark itself")
    parser.add_argument("--longest", action="store_true", help="memory: also a report of 60 million intervals (64 GB of disk)")
    parser.add_argument("--runs", type=int, help="runs of each program on each report (default: 3)")
    parser.add_argument("--shared", type=Path, default=CHECKOUT.parent / "shared", help="folder of the real reports and tools")
    parser.add_argument("--cache", type=Path, default=CHECKOUT / ".bench", help="keeps long reports and the other tool")
    arguments = parser.parse_args()
    if arguments.quick and arguments.write_docs:
        parser.error("--quick measures nothing for the documentation")
    arguments.cache.mkdir(parents=True, exist_ok=True)
    runs, sizes = arguments.runs or (1 if arguments.quick else 3), QUICK if arguments.quick else Sizes()
    place = Workplace(arguments.shared.resolve(), arguments.cache.resolve(), runs, sizes)
    parts = {**PARTS, "memory": partial(memory, with_longest=arguments.longest)}
    load = os.getloadavg()[0]
    if load > BUSY:
        say(f"other programs are running (load {load:.1f}): they slow a program of many threads more than one of one")
    results: dict[str, Any] = {"load_before": load}
    failed = False
    for name, part in parts.items():
        if arguments.only and name not in arguments.only:
            continue
        try:
            results[name] = found = part(place)
        except Missing as error:
            failed = True
            say(f"{name}: {error}")
            continue
        if not arguments.json:
            print(clocks_table(found) if name == "clocks" else lines_text(name, found), flush=True)
        if arguments.write_docs and name == "clocks":
            write_clocks_table(found)
        elif arguments.write_docs and name in DOCUMENTED:
            write_rows(name, found, circumstances(place), f"{load:.1f}" if load > BUSY else "")
    if arguments.json:
        print(json.dumps(results, indent=2))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
