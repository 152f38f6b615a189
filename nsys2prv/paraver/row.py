"""Names of rows, .row."""

from __future__ import annotations

from pathlib import Path

from nsys2prv.timeline.labels import readable
from nsys2prv.timeline.rows import Rows


def write_row(path: Path, rows: Rows, title: str) -> None:
    """Write the names of all rows.

    Parameters
    ----------
    path
        File to write.
    rows
        The rows of the trace.
    title
        Name of the workload.
    """
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
