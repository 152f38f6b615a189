"""BSC's Dimemas: its translator, and a simulation on the ideal machine that comes with it."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_SECONDS = 120


@dataclass(frozen=True)
class Simulated:
    """Simulated time (s), and of each task the messages that it sent and received, and its collective operations."""

    seconds: float
    sent: tuple[int, ...]
    received: tuple[int, ...]
    operations: tuple[int, ...]


def simulate(prv: Path) -> Simulated:
    """Translate a trace and simulate it; the test is skipped where Dimemas is not installed."""
    programs = [shutil.which(name) for name in ("prv2dim", "Dimemas")]
    if None in programs:
        pytest.skip("prv2dim and Dimemas are not on PATH")
    translator, simulator = map(str, programs)
    machine = shutil.copy(Path(simulator).parents[1] / "share/cfgs/ideal.cfg", prv.parent)
    dim = prv.with_suffix(".dim")
    translation = _output(translator, str(prv), str(dim))
    assert "TRANSLATION FINISHED" in translation, translation
    # The others are about any trace: where a send is logical and physical, and that MPI_Waitall has no order.
    for problem in ("outside a communication block", "disordered", "wrong records", "ERROR", "without"):
        assert problem not in translation, translation
    found = _output(simulator, "--dim", str(dim), "-p", str(prv.with_suffix(".sim.prv")), machine)
    seconds = re.search(r"Execution time:\s+([0-9.]+)", found)
    assert seconds is not None, found
    table = found.partition("Mess.sent")[2].partition("----")[0].splitlines()[1:]
    tasks = [list(map(float, line.split()))[1:] for line in table if line.strip()]
    return Simulated(
        float(seconds[1]),
        tuple(int(task[0]) for task in tasks),
        tuple(int(task[2] + task[3]) for task in tasks),
        tuple(int(task[5]) for task in tasks),
    )


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True).stdout.replace("\r", "\n")
