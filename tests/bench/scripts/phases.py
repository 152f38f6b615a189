"""Wall and processor time of each step of a translation that its progress shows, as JSON: `phases.py REPORT [SOURCES]`."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nsys2prv.cli.main import prepare_libraries


def taken() -> list[float]:
    """Wall and processor time in s since this process was started."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return [time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"), time.process_time()]


def main() -> None:
    prepare_libraries()
    import nsys2prv.paraver.views.render  # noqa: F401  # loaded with the rest, for the time of the start
    from nsys2prv.execution.progress import progress_bar
    from nsys2prv.run import session
    from nsys2prv.trace.translate import translate
    from nsys2prv.trace.translate_options import TranslateOptions

    steps = {"starting": taken()}

    @contextlib.contextmanager
    def timed(what: str, *arguments: Any, **more: Any) -> Iterator[Any]:
        began = taken()
        with progress_bar(what, *arguments, **more) as bar:
            yield bar
        ended, former = taken(), steps.get(what, [0.0, 0.0])
        steps[what] = [former[one] + ended[one] - began[one] for one in range(2)]

    session.progress_bar = timed
    only = tuple(filter(None, sys.argv[2].split(","))) if len(sys.argv) > 2 else ()
    translate([sys.argv[1]], Path("OUT"), TranslateOptions(only=only))
    whole = taken()
    steps["all else"] = [whole[one] - sum(step[one] for step in steps.values()) for one in range(2)]
    steps["together"] = whole
    print(json.dumps({name: {"seconds": wall, "cpu_seconds": cpu} for name, (wall, cpu) in steps.items()}))


if __name__ == "__main__":
    main()
