"""What every command must keep, whatever it is given."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Collection
from pathlib import Path

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
    """What is wrong with the end of a command, or None.

    Parameters
    ----------
    names
        A text that the sentence of a failure must hold: the name of the file that is at fault.
    """
    if run.timed_out:
        return f"hang: killed after {run.seconds:.0f} s"
    if run.survivors:
        return f"{run.survivors} processes survived"
    if run.peak_bytes > MOST_BYTES:
        return f"memory: {run.peak_bytes / 2**30:.1f} GiB"
    for text in _NO_SENTENCE:
        if text in run.stderr:
            return f"traceback: {run.stderr.strip().splitlines()[-1][:200]}"
    if run.code == errors.Defect.exit_code:
        return f"defect: {run.stderr.strip().splitlines()[-1][:300]}"
    if run.code not in CODES:
        return f"exit code {run.code}: {run.stderr[-200:]!r}"
    if control := {character for character in run.stdout + run.stderr if _acts(character)}:
        return f"control characters reach the screen: {sorted(control)!r}"
    *_, last = run.stderr.splitlines() or [""]
    sentences = [line for line in run.stderr.splitlines() if line.startswith("nsys2prv: ")]
    is_verdict = run.arguments[:1] == ("check",) and run.code == 1 and run.stdout
    if run.code not in {0, errors.LEFT_OUT_EXIT_CODE} and not is_verdict:
        if len(sentences) != 1 or last != sentences[0]:
            return f"exit code {run.code} without one sentence: {run.stderr[-300:]!r}"
        if names and names not in last:
            return f"the sentence does not name {names}: {last[:300]!r}"
    return None


def _acts(character: str) -> bool:
    """Whether a terminal or a reader could take a character for something else than text."""
    return character not in "\n\t" and (
        unicodedata.category(character) in {"Cc", "Cs"}
        or character in "\u2028\u2029\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    )


def trace_fault(prv: Path) -> str | None:
    """What is wrong with a trace that was written, or None."""
    violations = check_trace(prv).violations
    return f"an invalid trace: {violations[0]}" if violations else None


class Surroundings:
    """What lies in a folder before a command, to be compared with what lies there afterwards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._before = _contents(folder)

    def fault(self, outputs: Collection[str] = ()) -> str | None:
        """What changed that should not have; files whose names begin with one of `outputs` may be new or other ones."""
        after = _contents(self.folder)
        for name in sorted({*self._before, *after}):
            if self._before.get(name) != after.get(name) and not any(name.startswith(output) for output in outputs):
                what = "left" if name not in self._before else "removed" if name not in after else "changed"
                return f"{what}: {name}"
        return None


def contents_of(folder: Path) -> dict[str, Path]:
    """Each file and folder below a folder, by its path in it."""
    return {str(path.relative_to(folder)): path for path in folder.rglob("*")}


def fault_of_reading(run: Run, before: Surroundings, *, names: str) -> str | None:
    """What is wrong after a command that reads damaged files and may write OUT, or None; `names` as of `fault_of`."""
    return (
        fault_of(run, names=names)
        or before.fault(("OUT.",) if run.code == 0 else ())
        or (trace_fault(before.folder / "OUT.prv") if run.arguments[0] == "translate" and run.code == 0 else None)
    )


def _contents(folder: Path) -> dict[str, str]:
    """A digest of each file below a folder, by its path in it."""
    found = {}
    for name, path in contents_of(folder).items():
        found[name] = (
            f"link {path.readlink()}"
            if path.is_symlink()
            else hashlib.blake2b(path.read_bytes()).hexdigest()
            if path.is_file()
            else "folder"
        )
    return found
