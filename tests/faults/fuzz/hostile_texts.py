"""Hostile texts in all columns of texts: nothing acts on the screen, in results, traces, views and pages."""

from __future__ import annotations

import random
import re
from pathlib import Path

from support.acting import outputs_fault, screen_fault
from support.hostile_report import BEFORE, BEHIND, Alike, AtRandom, write_hostile_report, write_hostile_training

from .commands import Commands
from .hostile_options import prepare
from .oracle import Surroundings, fault_of, trace_fault

_RESULTS = {
    "-o": "OUT.page.html",
    "--json-file": "OUT.all.json",
    "--csv": "OUT.csv",
    "--talp": "OUT.talp.json",
    "--regions": "*",
    "--per-iteration": "step",
}
_CHANGES = ("--ideal-network", "--no-late-ranks", "--no-launch-cost", "--data-loading", "0")
_REPLAYED = ("--json-file", "OUT.whatif.json", "--csv", "OUT.whatif")
_REPORT = "report.sqlite"
_NAMED = re.compile(r"[0-9]+ +\S|[^A-Z#]")
"""Lines of a .pcf or .row that hold a name."""


class HostileTexts:
    name = "texts"
    description = "control characters, scripts, formulas, templates, line ends, paths in all texts of reports and file names"

    def try_one(self, chance: random.Random, folder: Path, commands: Commands) -> str | None:
        of_what = chance.choice((self._of_trace, self._of_training, self._of_report, self._of_report))
        return of_what(chance, folder, commands)

    def _of_trace(self, chance: random.Random, folder: Path, commands: Commands) -> str | None:
        prepare(folder, commands)
        inputs = ("trace.pcf", "trace.row")
        for name in inputs:
            (folder / name).write_bytes(_with_pieces((folder / name).read_text(), chance))
        before = Surroundings(folder)
        return self._fault(commands, folder, before, *self._command_on("trace.prv", "report.sqlite", chance), inputs=inputs)

    def _of_training(self, chance: random.Random, folder: Path, commands: Commands) -> str | None:
        """A run with iterations and findings."""
        is_before = chance.random() < 0.3
        write_hostile_training(folder / "run", Alike(chance.choice(BEFORE if is_before else BEHIND), is_before=is_before))
        before = Surroundings(folder)
        window = chance.choice(((), ("--window", "steady")))
        command = chance.choice(
            (
                ("efficiency", "run", "-o", "OUT.page.html", *window, *self._results(chance)),
                ("translate", "run", "-o", "OUT", "--critical-path"),
                _what_if("run", chance),
            )
        )
        return self._fault(commands, folder, before, *command)

    def _of_report(self, chance: random.Random, folder: Path, commands: Commands) -> str | None:
        name = chance.choice((_REPORT, _REPORT, "\x1b[31m\n<b>{{7*7}}.sqlite", "=1+1\u202e'\".sqlite", "a\udcff\x9b.sqlite"))
        write_hostile_report(folder / _REPORT, AtRandom(chance, chance.choice((0.05, 0.3, 1.0))))
        (folder / _REPORT).rename(folder / name)
        before = Surroundings(folder)
        kind = chance.choice(("inspect", "translate", "efficiency", "whatif", "trace"))
        if kind == "inspect":
            return self._fault(commands, folder, before, "inspect", name, *chance.choice(((), ("--json",), ("--clocks",))))
        if kind == "efficiency":
            return self._fault(commands, folder, before, "efficiency", name, *self._results(chance))
        if kind == "whatif":
            return self._fault(commands, folder, before, *_what_if(name, chance))
        translate = (
            "translate",
            name,
            "-o",
            "OUT",
            *chance.choice(((), ("--json",), ("--no-views",), ("--fold-streams",), ("--critical-path",))),
        )
        fault = self._fault(commands, folder, before, *translate)
        if fault or not (folder / "OUT.prv").exists():
            return fault
        if fault := trace_fault(folder / "OUT.prv"):
            return fault
        if kind == "translate":
            return None
        return self._fault(commands, folder, before, *self._command_on("OUT.prv", name, chance))

    def _command_on(self, trace: str, report: str, chance: random.Random) -> tuple[str, ...]:
        return chance.choice(
            (
                ("check", trace),
                ("check", trace, "--json"),
                ("efficiency", report, *self._results(chance)),
                _what_if(report, chance),
                ("compare", report, report, "--csv", "OUT.compared", "--json-file", "OUT.compared.json"),
                ("views", trace, "-o", "OUT.views"),
                ("views", trace, "-o", "OUT.views", "--json"),
            )
        )

    @staticmethod
    def _results(chance: random.Random) -> list[str]:
        chosen = [pair for pair in _RESULTS.items() if chance.random() < 0.5]
        return [*(one for pair in chosen for one in pair), *(["--json"] if chance.random() < 0.3 else [])]

    @staticmethod
    def _fault(
        commands: Commands, folder: Path, before: Surroundings, *arguments: str, inputs: tuple[str, ...] = ()
    ) -> str | None:
        run = commands.run(*arguments, folder=folder)
        return (
            fault_of(run)
            or screen_fault(run.stdout + run.stderr)
            or before.fault(("OUT",))
            or (outputs_fault(folder, inputs) if run.code == 0 else None)
        )


def _what_if(name: str, chance: random.Random) -> tuple[str, ...]:
    return ("whatif", name, *_CHANGES, *chance.choice(((), _REPLAYED, ("--json",), ("--scale", "*=2", *_REPLAYED))))


def _with_pieces(names: str, chance: random.Random) -> bytes:
    """Lines of a .pcf or .row with hostile pieces behind some names, each still on its line."""
    share = chance.choice((0.02, 0.3, 1.0))
    lines = [
        line + " ".join(chance.choice(BEHIND).split("\n")) if _NAMED.match(line) and chance.random() < share else line
        for line in names.split("\n")
    ]
    return "\n".join(lines).encode().replace("\ue000".encode(), b"\xed\xa0\x80")
