"""Signals at random moments of a run over a former output, with and without workers, and processes that are killed."""

from __future__ import annotations

import functools
import json
import random
import signal
import tempfile
from pathlib import Path

from nsys2prv.execution.output_files import PREFIX
from nsys2prv.execution.signals import ENDING_SIGNALS

from .commands import Commands, Kill
from .oracle import contents_of, fault_of
from .report_commands import ranked_report

_ENDING = (*ENDING_SIGNALS, signal.SIGINT, signal.SIGTERM)
"""The last two are the usual ones."""
_SECONDS_ALONE, _SECONDS_WITH_WORKERS = 2.0, 8.0
_MOST_SECONDS = 180.0
_REPORTS = ("rank0.sqlite", "rank1.sqlite")
_RESULTS = ("--json-file", "OUT.json", "--csv", "OUT")
_COMMANDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    *[("translate", ("-o", "OUT"))] * 3,
    ("translate", ("-o", "OUT", "--critical-path")),
    ("efficiency", (*_RESULTS, "-o", "OUT.html", "--window", "steady")),
    ("whatif", (*_RESULTS, "--ideal-network", "--no-launch-cost")),
)
"""Commands that write, and what they are told besides their reports; most runs are translations."""


class Signals:
    name = "signals"
    description = "a signal, or kill -9, to the process, to a worker or to all, at any moment, over a former output"

    def try_one(self, chance: random.Random, folder: Path, commands: Commands) -> str | None:
        name, options = chance.choice(_COMMANDS)
        workers = chance.choice((0, 0, 2))
        options = (*options, "--force", "--workers", str(workers))
        reports, former, successor = _made(commands, name, options)
        for files in (reports, former):
            _write(files, folder)
        limit = _SECONDS_WITH_WORKERS if workers else _SECONDS_ALONE
        kind = chance.choice(("end", "end", "end", "kill", "worker"))
        number = signal.SIGKILL if kind != "end" else chance.choice(_ENDING)
        whom = "worker" if kind == "worker" else chance.choice(("first", "all"))
        kills = [Kill(chance.uniform(0.03, limit), number, whom)]
        if kind == "end" and chance.random() < 0.3:
            # Somebody who is impatient.
            kills.append(Kill(kills[0].seconds + chance.uniform(0, 0.3), chance.choice(_ENDING), whom))
        run = commands.run(name, *_REPORTS, *options, folder=folder, kills=kills, seconds=_MOST_SECONDS)
        after = _contents(folder)
        is_former, is_new = _same(after, {**reports, **former}), _same(after, {**reports, **successor})
        if run.timed_out or run.survivors:
            return fault_of(run)
        if run.code == -signal.SIGKILL:
            return self._after_a_kill(
                (name, *_REPORTS, *options), folder, commands, {**reports, **former}, {**reports, **successor}
            )
        if run.code in {-kill.number for kill in kills} and not run.stderr and is_former:
            # It had not begun.
            return None
        if run.code in {128 + kill.number for kill in kills}:
            said = run.stderr.splitlines()[-1:]
            if "Traceback" in run.stderr or len(run.stderr.splitlines()) != 1 or "nsys2prv: interrupted" not in said[0]:
                return f"exit code {run.code} without one sentence: {run.stderr[-500:]!r}"
            if is_new and "complete" not in said[0]:
                return f"the new output is there: {said[0]}"
            return None if is_former or is_new else f"neither the former nor the new output: {' '.join(sorted(after))[-300:]}"
        if problem := fault_of(run):
            return problem
        expected = is_new if run.code == 0 else is_former
        return None if expected else f"exit code {run.code} and another output: {' '.join(sorted(after))[-300:]}"

    def _after_a_kill(
        self, command: tuple[str, ...], folder: Path, commands: Commands, former: dict[str, bytes], successor: dict[str, bytes]
    ) -> str | None:
        """Without the staging folder there is the former output, the new one, or no trace; the next run makes the new one."""
        after = {name: content for name, content in _contents(folder).items() if PREFIX not in name}
        if "OUT.prv" in after and not (_same(after, former) or _same(after, successor)):
            return f"a trace beside files of another: {' '.join(sorted(after))[-300:]}"
        run = commands.run(*command, folder=folder)
        if problem := fault_of(run) or (f"the next run ended with {run.code}" if run.code else None):
            return problem
        after = _contents(folder)
        return None if _same(after, successor) else f"the next run left something else: {' '.join(sorted(after))[-300:]}"


@functools.cache
def _made(
    commands: Commands, name: str, options: tuple[str, ...]
) -> tuple[dict[str, bytes], dict[str, bytes], dict[str, bytes]]:
    """Reports, what a command writes about one of them, and about all."""
    with tempfile.TemporaryDirectory() as within:
        folder = Path(within)
        for rank in range(2):
            ranked_report(rank).write(folder / f"rank{rank}.sqlite")
        reports = _contents(folder)
        outputs = []
        for inputs in (_REPORTS[:1], _REPORTS):
            run = commands.run(name, *inputs, *options, folder=folder)
            assert run.code == 0, run.stderr
            outputs.append({name: content for name, content in _contents(folder).items() if name not in reports})
    return reports, outputs[0], outputs[1]


def _contents(folder: Path) -> dict[str, bytes]:
    return {name: path.read_bytes() if path.is_file() else b"" for name, path in contents_of(folder).items()}


def _write(files: dict[str, bytes], folder: Path) -> None:
    for name, content in sorted(files.items()):
        path = folder / name
        if content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def _same(some: dict[str, bytes], others: dict[str, bytes]) -> bool:
    return some.keys() == others.keys() and all(_of_trace(name, some[name]) == _of_trace(name, others[name]) for name in some)


def _of_trace(name: str, content: bytes) -> object:
    """What the same reports make in each run."""
    if name == "OUT.json":
        return {key: value for key, value in json.loads(content).items() if key != "seconds"}
    # The other has absolute paths.
    return content if not name.endswith("workspace.xml") else b""
