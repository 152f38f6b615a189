"""JSON that `compare` reads, with changes anywhere."""

from __future__ import annotations

import json
import os
import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from support.report_builder import ReportBuilder

import nsys2prv

from .commands import Commands
from .mutated_traces import changed_json
from .oracle import Surroundings, fault_of


@cache
def results() -> bytes:
    report = ReportBuilder(host="node01", rank=0).gpu(0)
    for index in range(24):
        at = 100 * index
        report.kernel(f"kernel{index % 3}", at + 20, at + 80, launch=(at, at + 10))
        if index % 3 == 0:
            report.nvtx_range("step", at, at + 300)
    report.copy(2410, 2500, 64)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        nsys2prv.open_run(report.write(Path(folder) / "report.sqlite")).efficiency().to_json(path)
        return path.read_bytes()


_INTEGERS = (0, 1, -1, 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), None)
_REALS = (0.0, -0.0, -1.0, 1e-320, 1e308, -1e308, float("nan"), float("inf"), None)
_TEXTS = ("", "x", "A", "useful", "communication", "\u0130", "\x1b[2J", "=1+1", "x" * 10_000, None)


def _of_same_type(chance: random.Random, content: bytes) -> bytes:
    """A value of a table or of the head, or a whole column, is another one of its type, or null."""
    whole = json.loads(content)
    # An earlier change may have put something else in the place of a table.
    all_tables = whole["tables"].values() if isinstance(whole["tables"], dict) else ()
    tables = [table for table in all_tables if isinstance(table, dict) and any(table.values())]
    columns = list(chance.choice(tables).values()) if tables and chance.random() < 0.9 else [whole["window"], whole]
    column = chance.choice([one for one in columns if one and isinstance(one, dict | list)] or [whole])
    places = list(column) if isinstance(column, dict) else range(len(column))
    for place in chance.choice(([chance.choice(list(places))], places)):
        if isinstance(value := column[place], int | float | str):
            odd = _TEXTS if isinstance(value, str) else _REALS if isinstance(value, float) else _INTEGERS
            column[place] = chance.choice(odd)
    return json.dumps(whole).encode()


class ResultsJson:
    name = "results-json"
    description = "JSON of `efficiency` with other, missing, repeated values anywhere, as `compare` reads it"

    def try_one(self, chance: random.Random, folder: Path, commands: Commands) -> str | None:
        (folder / "good.json").write_bytes(results())
        bad = folder / "bad.json"
        how = chance.randrange(12)
        if how == 0:
            bad.write_bytes(results()[: chance.randrange(len(results()))])
        elif how == 1:
            odd = (
                b"",
                b"null",
                b"[" * 100_000,
                b'{"format": "nsys2prv-efficiency", "version": 3}',
                results().replace(b"nsys2prv-efficiency", b"nsys2prv-what-if"),
                b"\xff",
                b"9" * 5000,
                b"[NaN]",
            )
            bad.write_bytes(chance.choice(odd))
        elif how == 2:
            chance.choice(
                (lambda: os.mkfifo(bad), bad.mkdir, lambda: bad.symlink_to(bad.name), lambda: bad.symlink_to("/dev/zero"))
            )()
        else:
            content = results()
            for _ in range(chance.choice((1, 1, 1, 5))):
                content = (changed_json if chance.random() < 0.3 else _of_same_type)(chance, content)
            bad.write_bytes(content)
        before = Surroundings(folder)
        runs = chance.choice((("good.json", "bad.json"), ("bad.json", "good.json"), ("bad.json", "bad.json")))
        to = chance.choice(((), ("--json",), ("--json-file", "OUT.json"), ("--csv", "OUT")))
        run = commands.run("compare", *runs, *to, folder=folder)
        is_json = to == ("--json",) and run.code == 0
        if is_json and not isinstance(json.loads(run.stdout), dict):
            return "what it prints is no object"
        return fault_of(run) or before.fault(("OUT",) if run.code == 0 else ())
