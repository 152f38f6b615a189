"""Mutated traces: `check` against a second reader, and what reads traces against the common oracle."""

from __future__ import annotations

import random
from pathlib import Path

from support.independent_reader import broken_rules

from nsys2prv.paraver.check import check_trace

from .commands import Commands
from .mutated_traces import READING_COMMANDS, made_traces, mutated, traces
from .oracle import Surroundings, fault_of


class TraceMutations:
    name = "trace-mutations"
    description = "`.prv`, `.pcf`, `.row`, `OUT.json` with one change by their grammar: `check` and a second reader agree"

    def try_one(self, chance: random.Random, folder: Path, commands: Commands) -> str | None:
        # Mostly made ones, which are small.
        _, files = chance.choice(made_traces() if chance.random() < 0.8 else traces())
        _, changed = mutated(chance, files)
        for suffix, content in changed.items():
            (folder / f"OUT{suffix}").write_bytes(content)
        before = Surroundings(folder)
        if ".prv" in changed and (problem := disagreement(folder / "OUT.prv")):
            return problem
        is_valid = ".prv" in changed and not broken_rules(folder / "OUT.prv")
        command = chance.choice(READING_COMMANDS)
        run = commands.run(*command, "OUT.prv", folder=folder)
        if command[0] == "check" and run.code != (0 if is_valid else 1):
            return f"check ends with {run.code}, and the trace is {'valid' if is_valid else 'not valid'}: {run.stderr[-200:]}"
        return fault_of(run, names="OUT") or before.fault(("OUT.cfgs",) if command[0] == "views" and run.code == 0 else ())


def disagreement(prv: Path) -> str | None:
    """What `check` and the second reader tell differently about a trace, or None."""
    of_check = {rule.name.lower() for rule in check_trace(prv).violations_per_rule}
    of_reader = broken_rules(prv)
    # `check` reads a trace once from its start: where records are out of order, it can't see that one in a gap comes later.
    undecided = {"complete"} if "sorted" in of_check & of_reader else set()
    if of_check - undecided == of_reader - undecided:
        return None
    return f"check finds {sorted(of_check - of_reader)}, the second reader {sorted(of_reader - of_check)}, both the others"
