"""paramedir, BSC's command-line reader of traces: many views of one trace at once, and its tables as numbers."""

import os
import resource
import shutil
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

LARGEST_OUTPUT = 2 << 30
"""Bytes that paramedir may write: on some damage it prints without end."""
MOST_SECONDS = 600

TOTALS = ("Total", "Average", "Maximum", "Minimum", "StDev", "Avg/Max")


VIEW = Path(__file__).with_name("timeline.cfg").read_text(encoding="utf-8")
"""A timeline, to be filled in as a text of `str.format`."""
STATES_VIEW = VIEW.format(function="State As Is", types="All", composition="As Is")


class Table(NamedTuple):
    """A table that paramedir printed: names of columns, and of each row its name and numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float, ...]], ...]
    totals: Mapping[str, tuple[float, ...]]

    def column(self, name: str) -> list[float]:
        place = self.columns.index(name)
        return [numbers[place] for _, numbers in self.rows]

    def row(self, name: str) -> dict[str, float]:
        return dict(zip(self.columns, dict(self.rows)[name], strict=True))


class Paramedir(NamedTuple):
    """paramedir with a separate home folder."""

    program: str
    home: Path

    def load(self, prv: Path, views: Path) -> tuple[dict[str, Path], dict[str, str]]:
        """What paramedir writes for every view of a folder, and what it says about some; by path without suffix."""
        files = sorted(views.rglob("*.cfg"))
        names = {str(path): str(path.relative_to(views).with_suffix("")) for path in files}
        outputs = {names[str(path)]: self.home / f"view{at}" for at, path in enumerate(files)}
        done = subprocess.run(
            [self.program, str(prv), *(str(one) for pair in zip(files, outputs.values(), strict=True) for one in pair)],
            cwd=self.home,
            env={**os.environ, "HOME": str(self.home)},
            capture_output=True,
            text=True,
            timeout=MOST_SECONDS,
            preexec_fn=partial(resource.setrlimit, resource.RLIMIT_FSIZE, (LARGEST_OUTPUT, LARGEST_OUTPUT)),
        )
        # Its exit code says nothing; its messages do.
        assert done.stderr == ""
        said = [line.split(".cfg: ", 1) for line in done.stdout.splitlines() if not line.endswith("file written.")]
        messages = {names[f"{line[0]}.cfg"]: line[1] for line in said}
        written = {}
        for file, (name, output) in zip(files, outputs.items(), strict=True):
            is_table = "< NEW ANALYZER2D >" in file.read_text(encoding="utf-8")
            path = output if is_table else output.with_name(f"{output.name}.csv")
            if path.is_file():
                written[name] = path
        return written, messages

    def show_one(self, prv: Path, view: str) -> Path:
        """What paramedir writes for the text of one view; any message is a failure."""
        folder = self.home / "one"
        folder.mkdir(exist_ok=True)
        (folder / "view.cfg").write_text(view, encoding="utf-8")
        return self.show(prv, folder)["view"]

    def show(self, prv: Path, views: Path) -> dict[str, Path]:
        """What paramedir writes for every view of a folder; any message, and any view without output, is a failure."""
        written, messages = self.load(prv, views)
        assert messages == {}
        assert set(written) == {str(path.relative_to(views).with_suffix("")) for path in views.rglob("*.cfg")}
        return written


def paramedir_or_skip(home: Path) -> Paramedir:
    """paramedir that keeps its files in a folder; the test is skipped where it is not installed."""
    program = shutil.which("paramedir")
    if program is None:
        pytest.skip("paramedir of Paraver is not on PATH; when it is: make test")
    return Paramedir(program, home)


def read_tables(path: Path) -> dict[str, Table]:
    """Tables that paramedir wrote, by the name of their plane ("" of a table that has none)."""
    tables: dict[str, Table] = {}
    plane, columns, rows, totals = "", (), [], {}  # type: ignore[var-annotated]
    for line in path.read_text(encoding="utf-8").splitlines():
        cells = line.split("\t")
        if line.startswith("\t"):
            columns, rows, totals = tuple(cells[1:-1]), [], {}
        elif len(cells) > 1:
            numbers = tuple(map(float, cells[1:-1]))
            if cells[0] in TOTALS:
                totals[cells[0]] = numbers
            else:
                rows.append((cells[0], numbers))
            if cells[0] == TOTALS[-1]:
                tables[plane] = Table(columns, tuple(rows), totals)
        elif line:
            plane = line
    return tables


def read_table(path: Path) -> Table:
    """The one table that paramedir wrote."""
    (table,) = read_tables(path).values()
    return table


def read_timeline(path: Path) -> dict[str, list[tuple[float, float, float]]]:
    """Begin, duration (ns) and value of each stretch of a timeline, by row (`THREAD 1.1.1`, or its name)."""
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row, begin, duration, value = line.split("\t")
        rows.setdefault(row, []).append((float(begin), float(duration), float(value)))
    return rows
