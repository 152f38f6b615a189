"""Limits of the system, streams that are closed or full, and environments that lack what is usually there."""

from __future__ import annotations

import random
import signal
from collections.abc import Mapping
from pathlib import Path

from .commands import Commands, Run
from .oracle import Surroundings, fault_of, trace_fault
from .report_commands import ranked_report

_COMMANDS = (
    ("translate", "rank0.sqlite", "rank1.sqlite", "-o", "OUT", "--force"),
    ("translate", "rank0_pqtdir", "-o", "OUT", "--force", "-z"),
    ("translate", "rank0_arwdir", "-o", "OUT", "--force", "--json"),
    ("efficiency", "rank0.sqlite", "rank1.sqlite", "--json-file", "OUT.json", "--csv", "OUT.csv", "-o", "OUT.html"),
    ("translate", "rank0.sqlite", "rank1.sqlite", "-o", "OUT", "--critical-path"),
    ("efficiency", "rank0.sqlite", "--json"),
    ("efficiency", "rank0.sqlite", "rank1.sqlite", "--window", "steady", "--talp", "OUT.talp"),
    ("whatif", "rank0.sqlite", "rank1.sqlite", "--ideal-network", "--json-file", "OUT.json", "--csv", "OUT.csv"),
    ("whatif", "rank0.sqlite", "--no-launch-cost", "--json"),
    ("inspect", "rank0.sqlite", "rank0_pqtdir", "--json", "--unrelated"),
    ("check", "former.prv"),
    ("views", "former.prv", "-o", "OUT.views"),
    ("compare", "rank0.sqlite", "rank1.sqlite"),
    ("--help",),
    ("translate", "--help"),
)
_LIMITS: Mapping[str, tuple[int, ...]] = {
    "RLIMIT_FSIZE": (4096, 20_000, 100_000),
    "RLIMIT_NOFILE": (3, 8, 12, 16, 24, 40),
    "RLIMIT_AS": tuple(mib << 20 for mib in (300, 800, 1024, 1100, 1200, 1600)),
    "RLIMIT_CPU": (1,),
    "RLIMIT_STACK": (64 << 10, 1 << 20),
    "RLIMIT_DATA": tuple(mib << 20 for mib in (100, 400, 1024, 1200)),
}
_ENVIRONMENTS: tuple[Mapping[str, str | None], ...] = (
    {"HOME": None},
    {"HOME": "/nonexistent"},
    {"TMPDIR": "/nonexistent"},
    {"TMPDIR": "/proc"},
    {"PATH": None},
    {"PATH": ""},
    {"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "tr_TR.UTF-8"},
    {"LC_ALL": "nonsense"},
    {"COLUMNS": "0"},
    {"COLUMNS": "-1", "LINES": "x"},
    {"TERM": None},
    {"TZ": "nonsense"},
    {"USER": None, "LOGNAME": None},
)


class Resources:
    name = "resources"
    description = "limits of file size, descriptors, memory and time; closed and full streams; homes, locales"

    def try_one(self, chance: random.Random, folder: Path, commands: Commands) -> str | None:
        for form in (".sqlite", "_pqtdir", "_arwdir"):
            ranked_report(0).write(folder / f"rank0{form}")
        ranked_report(1).write(folder / "rank1.sqlite")
        assert commands.run("translate", "rank0.sqlite", "-o", "former", folder=folder).code == 0
        command = chance.choice(_COMMANDS)
        if command[0] == "translate" and chance.random() < 0.3:
            command = (*command, "--workers", "2")
        limits: dict[str, int] = {}
        streams: dict[int, str] = {}
        environment: dict[str, str | None] = {}
        kind = chance.choice(("limits", "limits", "streams", "environment", "all"))
        if kind in {"limits", "all"}:
            name = chance.choice(list(_LIMITS))
            limits[name] = chance.choice(_LIMITS[name])
        if kind in {"streams", "all"}:
            streams[chance.choice((0, 1, 1, 2))] = chance.choice(("", "/dev/full", "/dev/null"))
        if kind in {"environment", "all"}:
            environment |= chance.choice(_ENVIRONMENTS)
        no_rights = chance.random() < 0.5
        before = Surroundings(folder)
        run = commands.run(
            *command, folder=folder, limits=limits, streams=streams, environment=environment, without_rights=no_rights
        )
        circumstances = [str(one) for one in (limits, streams, environment) if one] + ["without rights"] * no_rights
        what = f"{' '.join(command)} with {' '.join(circumstances)}"
        if run.code == -signal.SIGKILL and "RLIMIT_CPU" in limits:
            # The kernel does not ask where no more time is left: the next run removes what this one left.
            run = commands.run("translate", "rank0.sqlite", "-o", "NEXT", folder=folder)
            return fault_of(run) or before.fault(("NEXT", "OUT"))
        # Libraries in compiled code, and their loader, end the process where they get no memory for a thread.
        is_ended = run.code in (-signal.SIGABRT, -signal.SIGSEGV) or (
            run.code == 127 and "thread-local data: ABORT" in run.stderr
        )
        is_aborted = is_ended and limits.keys() & {"RLIMIT_AS", "RLIMIT_DATA"}
        if is_aborted or "RLIMIT_NOFILE" in limits:
            # Polars ends the process where memory can't be had, and without descriptors no folder can be removed: the next run
            # removes it.
            if not is_aborted and (problem := self._fault(run, streams)):
                return f"{' '.join(command)} with {limits}: {problem}"
            run = commands.run("translate", "rank0.sqlite", "-o", "NEXT", folder=folder)
            return fault_of(run) or before.fault(("NEXT", "OUT"))
        problem = self._fault(run, streams) or before.fault(("OUT",) if run.code == 0 or 1 in streams else ())
        if problem is None and run.code == 0 and command[0] == "translate" and "-o" in command:
            problem = trace_fault(folder / ("OUT.prv.gz" if "-z" in command else "OUT.prv"))
        return problem and f"{what}: {problem}"

    def _fault(self, run: Run, streams: Mapping[int, str]) -> str | None:
        if 2 in streams:
            # Nobody can see a sentence there.
            return f"hang: {run.seconds} s" if run.timed_out else None if run.code in range(160) else f"exit code {run.code}"
        return fault_of(run)
