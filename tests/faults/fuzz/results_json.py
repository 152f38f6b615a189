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
def _results() -> bytes:
    report = ReportBuilder(host="node01", rank=0).gpu(0)
    for index in range(20):
        at = 100 * index
        report.kernel(f"kernel{index % 3}", at + 20, at + 80, launch=(at, at + 10))
    report.copy(2100, 2200, 64)
    report.nvtx_range("step", 0, 2500)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        nsys2prv.open_run(report.write(Path(folder) / "report.sqlite")).efficiency().to_json(path)
        return path.read_bytes()


class ResultsJson:
    name = "results-json"
    description = "JSON of `efficiency` with other, missing, repeated values anywhere, as `compare` reads it"

    def try_one(self, chance: random.Random, folder: Path, commands: Commands) -> str | None:
        (folder / "good.json").write_bytes(_results())
        bad = folder / "bad.json"
        how = chance.randrange(12)
        if how == 0:
            bad.write_bytes(_results()[: chance.randrange(len(_results()))])
        elif how == 1:
            odd = (
                b"",
                b"null",
                b"[" * 100_000,
                b'{"format": "nsys2prv-efficiency", "version": 2}',
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
            content = _results()
            for _ in range(chance.choice((1, 1, 1, 5))):
                content = changed_json(chance, content)
            bad.write_bytes(content)
        before = Surroundings(folder)
        runs = chance.choice((("good.json", "bad.json"), ("bad.json", "good.json"), ("bad.json", "bad.json")))
        to = chance.choice(((), ("--json",), ("--json-file", "OUT.json"), ("--csv", "OUT")))
        run = commands.run("compare", *runs, *to, folder=folder)
        is_json = to == ("--json",) and run.code == 0
        if is_json and not isinstance(json.loads(run.stdout), dict):
            return "what it prints is no object"
        return fault_of(run) or before.fault(("OUT",) if run.code == 0 else ())
