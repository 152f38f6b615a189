"""What every command must keep, whatever it is given."""

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.acting import screen_fault

from nsys2prv import errors
from nsys2prv.paraver.check import check_trace

from .commands import Run

MOST_BYTES = 2 << 30
"""Memory that no small input may take."""
CODES = {
    0,
    errors.LEFT_OUT_EXIT_CODE,
    errors.INTERRUPTED_EXIT_CODE,
    errors.TERMINATED_EXIT_CODE,
    errors.NOT_READ_EXIT_CODE,
    *(kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.Nsys2prvError)),
}
_NO_SENTENCE = ("Traceback", "panicked", "Fatal Python error", "Exception ignored", "Segmentation")


def fault_of(run: Run, *, names: str = "") -> str | None:
    """What is wrong with the end of a command, or None; the sentence of a failure must hold `names`."""
    *_, last = run.stderr.splitlines() or [""]
    if run.timed_out:
        return f"hang: killed after {run.seconds:.0f} s"
    if run.survivors:
        return f"{run.survivors} processes survived"
    if run.peak_bytes > MOST_BYTES:
        return f"memory: {run.peak_bytes / 2**30:.1f} GiB"
    if any(text in run.stderr for text in _NO_SENTENCE):
        return f"traceback: {last[:200]}"
    if run.code == errors.Defect.exit_code or run.code not in CODES:
        return f"exit code {run.code}: {last[:300]!r}"
    if fault := screen_fault(run.stdout + run.stderr):
        return fault
    is_verdict = run.arguments[:1] == ("check",) and run.code == 1 and run.stdout
    if run.code in {0, errors.LEFT_OUT_EXIT_CODE} or is_verdict:
        return None
    if [line for line in run.stderr.splitlines() if line.startswith("nsys2prv: ")] != [last]:
        return f"exit code {run.code} without one sentence: {run.stderr[-300:]!r}"
    # A wrong option is named itself: such as a range of --window that a damaged report has lost.
    is_named = names in last or run.code == errors.UsageError.exit_code
    return None if is_named else f"the sentence does not name {names}: {last[:300]!r}"


def trace_fault(prv: Path) -> str | None:
    """What is wrong with a trace that was written, or None."""
    violations = check_trace(prv).violations
    return f"an invalid trace: {violations[0]}" if violations else None


class Surroundings:
    """What lies in a folder before a command, to be compared with what lies there afterwards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._before = _digests(folder)

    def fault(self, outputs: Collection[str] = ()) -> str | None:
        """What changed that should not have; files whose names begin with one of `outputs` may be new or other ones."""
        after = _digests(self.folder)
        for name in sorted({*self._before, *after}):
            if self._before.get(name) != after.get(name) and not name.startswith(tuple(outputs)):
                what = "left" if name not in self._before else "removed" if name not in after else "changed"
                return f"{what}: {name}"
        return None


def _digests(folder: Path) -> dict[str, str]:
    """A digest of each file below a folder, by its path in it."""
    found = {}
    for path in folder.rglob("*"):
        digest = hashlib.blake2b(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else ""
        found[str(path.relative_to(folder))] = f"link {path.readlink()}" if path.is_symlink() else digest
    return found


@dataclass(frozen=True)
class Attempt:
    """A command on an input that was made."""

    arguments: tuple[str, ...]
    names: str = ""
    outputs: Collection[str] = ("OUT",)
    circumstances: Mapping[str, Any] = field(default_factory=dict)
    judge: Callable[[Run, Surroundings], str | None] | None = None
