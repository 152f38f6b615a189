"""Good reports in bad circumstances: limits of the system, streams that are closed or full, signals at any moment."""

import functools
import json
import random
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path

from support.failed_runs import contents
from support.report_builder import ReportBuilder

from nsys2prv.execution.output_files import PREFIX
from nsys2prv.execution.process import ENDING_SIGNALS

from .commands import Kill, Run, run_command
from .oracle import Attempt, Surroundings, fault_of, trace_fault

_REPORTS = ("rank0.sqlite", "rank1.sqlite")
_RESULTS = ("--json-file", "OUT.json", "--csv", "OUT", "--force")
_COMMANDS: tuple[tuple[str, ...], ...] = (
    *[("translate", *_REPORTS, "-o", "OUT", "--force")] * 3,
    ("translate", *_REPORTS, "-o", "OUT", "--force", "--critical-path"),
    ("efficiency", *_REPORTS, *_RESULTS, "-o", "OUT.html", "--window", "steady"),
    ("whatif", *_REPORTS, *_RESULTS, "--ideal-network", "--no-launch-cost"),
)
"""Commands that write; most are translations."""
_READING = (
    ("inspect", *_REPORTS, "--json"),
    ("efficiency", _REPORTS[0], "--json"),
    ("check", "former.prv"),
    ("views", "former.prv", "-o", "OUT.views"),
    ("compare", *_REPORTS),
    ("--help",),
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
    {"TMPDIR": "/proc"},
    {"PATH": None},
    {"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "tr_TR.UTF-8"},
    {"LC_ALL": "nonsense", "TZ": "nonsense"},
    {"COLUMNS": "0"},
    {"COLUMNS": "-1", "LINES": "x", "TERM": None},
    {"USER": None, "LOGNAME": None},
)


def _write_reports(folder: Path) -> None:
    for rank, name in enumerate(_REPORTS):
        report = ReportBuilder(host=f"node{rank}", rank=rank, ranks=2)
        for at in range(0, 30_000, 100):
            report.kernel(f"kernel{at // 100 % 3}", at + 20, at + 80, launch=(at, at + 10))
            if at % 3000 == 0:
                report.nvtx_range("step", at, at + 3000)
        report.write(folder / name)


def resources(chance: random.Random, folder: Path) -> Attempt:
    """A limit of the system, a stream that is closed or full, an environment that lacks what is usually there."""
    _write_reports(folder)
    assert run_command("translate", _REPORTS[0], "-o", "former", folder=folder).code == 0
    command = chance.choice((*_COMMANDS, *_READING))
    if command[0] == "translate" and chance.random() < 0.3:
        command = (*command, "--workers", "2")
    limits, streams, environment = {}, {}, {}
    kind = chance.choice(("limits", "limits", "streams", "environment", "all"))
    if kind in {"limits", "all"}:
        name = chance.choice(list(_LIMITS))
        limits = {name: chance.choice(_LIMITS[name])}
    if kind in {"streams", "all"}:
        streams = {chance.choice((0, 1, 1, 2)): chance.choice(("", "/dev/full", "/dev/null"))}
    if kind in {"environment", "all"}:
        environment = dict(chance.choice(_ENVIRONMENTS))
    without_rights = chance.random() < 0.5
    given = {"limits": limits, "streams": streams, "environment": environment, "without_rights": without_rights}
    return Attempt(command, circumstances=given, judge=functools.partial(_fault_of_limited, limits, streams))


def _fault_of_limited(limits: Mapping[str, int], streams: Mapping[int, str], run: Run, before: Surroundings) -> str | None:
    is_stopped = run.code == -signal.SIGKILL and "RLIMIT_CPU" in limits
    # Libraries in compiled code, and their loader, end the process where they get no memory for a thread.
    is_ended = run.code in (-signal.SIGABRT, -signal.SIGSEGV, 127) and bool(limits.keys() & {"RLIMIT_AS", "RLIMIT_DATA"})
    problem = None if is_stopped or is_ended else fault_of(run)
    if 2 in streams and not run.timed_out and run.code in range(160):
        # Nobody can see a sentence there.
        problem = None
    if problem:
        return problem
    if is_stopped or is_ended or "RLIMIT_NOFILE" in limits:
        # Without descriptors no folder can be removed: the next run to the same output removes what is left.
        return fault_of(run_command(*run.arguments, folder=before.folder)) or before.fault(("OUT",))
    wrote = run.code == 0 and run.arguments[:1] == ("translate",)
    return before.fault(("OUT",) if run.code == 0 or 1 in streams else ()) or (
        trace_fault(before.folder / "OUT.prv") if wrote else None
    )


_SECONDS_ALONE, _SECONDS_WITH_WORKERS = 2.0, 8.0
_MOST_SECONDS = 180.0
Files = dict[str, bytes]


def signals(chance: random.Random, folder: Path) -> Attempt:
    """A signal at any moment of a run over a former output."""
    workers = chance.choice((0, 0, 2))
    command = (*chance.choice(_COMMANDS), "--workers", str(workers))
    former, successor = _outputs(command)
    for name, content in sorted(former.items()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if content:
            (folder / name).write_bytes(content)
    kind = chance.choice(("end", "end", "end", "kill", "worker"))
    number = signal.SIGKILL if kind != "end" else chance.choice((*ENDING_SIGNALS, signal.SIGINT, signal.SIGTERM))
    whom = "worker" if kind == "worker" else chance.choice(("first", "all"))
    kills = [Kill(chance.uniform(0.03, _SECONDS_WITH_WORKERS if workers else _SECONDS_ALONE), number, whom)]
    if kind == "end" and chance.random() < 0.3:
        # Somebody who is impatient.
        kills.append(Kill(kills[0].seconds + chance.uniform(0, 0.3), chance.choice(ENDING_SIGNALS), whom))
    judge = functools.partial(_fault_of_ended, {kill.number for kill in kills}, former, successor)
    return Attempt(command, circumstances={"kills": kills, "seconds": _MOST_SECONDS}, judge=judge)


def _fault_of_ended(numbers: set[int], former: Files, successor: Files, run: Run, before: Surroundings) -> str | None:
    folder = before.folder
    after = contents(folder)
    is_former, is_new = _same(after, former), _same(after, successor)
    if run.timed_out or run.survivors:
        return fault_of(run)
    if run.code == -signal.SIGKILL:
        return _fault_after_a_kill(run, folder, former, successor)
    # What starts it here ends with 1 after Ctrl-C.
    early = [*(-number for number in numbers), *([1] if signal.SIGINT in numbers else [])]
    if run.code in early and not run.stderr and is_former:
        # It had not begun.
        return None
    if run.code - 128 in numbers:
        is_told = "nsys2prv: interrupted" in run.stderr and ("complete" in run.stderr or not is_new)
        if run.stderr.count("\n") != 1 or not is_told:
            return f"exit code {run.code} without its sentence: {run.stderr[-500:]!r}"
        return None if is_former or is_new else f"neither the former nor the new output: {' '.join(sorted(after))[-300:]}"
    expected = is_new if run.code == 0 else is_former
    return fault_of(run) or (None if expected else f"exit code {run.code} and another output: {sorted(after)!r}")


def _fault_after_a_kill(run: Run, folder: Path, former: Files, successor: Files) -> str | None:
    """Without the staging folder there is the former output, the new one, or no trace; the next run makes the new one."""
    after = {name: content for name, content in contents(folder).items() if PREFIX not in name}
    if "OUT.prv" in after and not (_same(after, former) or _same(after, successor)):
        return f"a trace beside files of another: {' '.join(sorted(after))[-300:]}"
    following = run_command(*run.arguments, folder=folder)
    if problem := fault_of(following) or (f"the next run ended with {following.code}" if following.code else None):
        return problem
    return None if _same(contents(folder), successor) else f"the next run left something else: {sorted(contents(folder))!r}"


@functools.cache
def _outputs(command: tuple[str, ...]) -> tuple[Files, Files]:
    """Reports with what a command writes about one of them, and with what it writes about both."""
    with tempfile.TemporaryDirectory() as folder:
        _write_reports(Path(folder))
        outputs = []
        for arguments in ((one for one in command if one != _REPORTS[1]), command):
            run = run_command(*arguments, folder=Path(folder))
            assert run.code == 0, run.stderr
            outputs.append(contents(Path(folder)))
    return outputs[0], outputs[1]


def _same(some: Files, others: Files) -> bool:
    return some.keys() == others.keys() and all(_of_run(name, some[name]) == _of_run(name, others[name]) for name in some)


def _of_run(name: str, content: bytes) -> object:
    """What the same reports make in each run."""
    if name == "OUT.json":
        return {key: value for key, value in json.loads(content).items() if key != "seconds"}
    # The other has absolute paths.
    return content if not name.endswith("workspace.xml") else b""
