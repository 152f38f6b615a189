"""Names of rows, .row: writer and strict reader."""

from __future__ import annotations

import re
from pathlib import Path

from nsys2prv.paraver.trace_files import MOST_DIGITS, OnMalformed, raising, shown, text_lines
from nsys2prv.timeline.labels import readable
from nsys2prv.timeline.rows import Rows

_LEVEL = re.compile(rf"LEVEL (WORKLOAD|APPL|TASK|THREAD|SYSTEM|NODE|CPU) SIZE ([0-9]{{1,{MOST_DIGITS}}})")


def write_row(path: Path, rows: Rows, title: str) -> None:
    """Write the names of all rows of a trace; `title` is that of the workload."""
    cpus = [f"CPU {cpu + 1}.{node.name}" for node in rows.nodes for cpu in range(node.cpus)]
    levels = {
        "WORKLOAD": [title],
        "APPL": [title],
        "TASK": [task.name for task in rows.tasks],
        "THREAD": [thread.name for task in rows.tasks for thread in task.threads],
        "SYSTEM": [title],
        "NODE": [node.name for node in rows.nodes],
        "CPU": cpus,
    }
    blocks = ["\n".join([f"LEVEL {level} SIZE {len(names)}", *map(readable, names)]) for level, names in levels.items()]
    path.write_text("\n\n".join(blocks) + "\n", encoding="utf-8", newline="\n")


def read_row(path: Path, on_malformed: OnMalformed | None = None) -> dict[str, tuple[str, ...]]:
    """Names of a .row: level -> names in order.

    `on_malformed` is called for each malformed line, which is then skipped; without it the first one raises a TraceError. So
    does a file that can't be read.
    """
    on_malformed = on_malformed or raising(path)
    names: dict[str, tuple[str, ...]] = {}
    lines = text_lines(path, on_malformed)
    for line, text in lines:
        if not text or text.startswith("#"):
            continue
        form = _LEVEL.fullmatch(text)
        if form is None:
            on_malformed(
                line, f"{shown(text)} is not `LEVEL <level> SIZE <number>`, or one name too many of the level before it"
            )
            continue
        level, size = form[1], int(form[2])
        if level in names:
            on_malformed(line, f"level {level} appears twice")
        of_level = [name for _, (_, name) in zip(range(size), lines, strict=False)]
        if len(of_level) < size:
            on_malformed(line, f"level {level} announces {size} names and has {len(of_level)}")
        for position, name in enumerate(of_level, start=1):
            if not name:
                on_malformed(line + position, f"name {position} of level {level} is empty")
        names[level] = tuple(of_level)
    return names
