"""Hostile texts in all columns of texts: nothing acts on the screen, in results, traces, views and pages."""

from __future__ import annotations

import random
from pathlib import Path

from support.acting import outputs_fault, screen_fault
from support.hostile_report import AtRandom, write_hostile_report

from .commands import Commands
from .oracle import Surroundings, fault_of, trace_fault

_RESULTS = {
    "-o": "OUT.page.html",
    "--json-file": "OUT.all.json",
    "--csv": "OUT.csv",
    "--talp": "OUT.talp.json",
    "--regions": "*",
    "--per-iteration": "step",
}
_REPORT = "report.sqlite"


class HostileTexts:
    name = "texts"
    description = "control characters, scripts, formulas, templates, line ends, paths in all texts of reports and file names"

    def try_one(self, chance: random.Random, folder: Path, commands: Commands) -> str | None:
        name = chance.choice((_REPORT, _REPORT, "\x1b[31m\n<b>{{7*7}}.sqlite", "=1+1\u202e'\".sqlite", "a\udcff\x9b.sqlite"))
        write_hostile_report(folder / _REPORT, AtRandom(chance, chance.choice((0.05, 0.3, 1.0))))
        (folder / _REPORT).rename(folder / name)
        before = Surroundings(folder)
        kind = chance.choice(("inspect", "translate", "efficiency", "trace"))
        if kind == "inspect":
            return self._fault(commands, folder, before, "inspect", name, *chance.choice(((), ("--json",), ("--clocks",))))
        if kind == "efficiency":
            return self._fault(commands, folder, before, "efficiency", name, *self._results(chance))
        translate = ("translate", name, "-o", "OUT", *chance.choice(((), ("--json",), ("--no-views",), ("--fold-streams",))))
        fault = self._fault(commands, folder, before, *translate)
        if fault or not (folder / "OUT.prv").exists():
            return fault
        if fault := trace_fault(folder / "OUT.prv"):
            return fault
        if kind == "translate":
            return None
        later = chance.choice(
            (
                ("check", "OUT.prv"),
                ("efficiency", "OUT.prv", *self._results(chance)),
                ("compare", name, "OUT.prv", "--csv", "OUT.compared", "--json-file", "OUT.compared.json"),
                ("views", "OUT.prv", "-o", "OUT.views"),
            )
        )
        return self._fault(commands, folder, before, *later)

    @staticmethod
    def _results(chance: random.Random) -> list[str]:
        chosen = [pair for pair in _RESULTS.items() if chance.random() < 0.5]
        return [*(one for pair in chosen for one in pair), *(["--json"] if chance.random() < 0.3 else [])]

    @staticmethod
    def _fault(commands: Commands, folder: Path, before: Surroundings, *arguments: str) -> str | None:
        run = commands.run(*arguments, folder=folder)
        return (
            fault_of(run)
            or screen_fault(run.stdout + run.stderr)
            or before.fault(("OUT",))
            or (outputs_fault(folder) if run.code == 0 else None)
        )
