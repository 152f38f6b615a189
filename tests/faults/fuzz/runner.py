"""Tries inputs of all campaigns for hours: `make fuzz FUZZ_OPTIONS="--hours 4"`.

Each input is up to the seed, the campaign's name and its number: `--only NAME --seed S --first N --inputs 1` makes it again.
Folders of inputs that something is wrong with are kept below .fuzz/, with what it was.
"""

import argparse
import itertools
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from support.checkout import CHECKOUT

from .campaigns import CAMPAIGNS, try_input

FAILURES = CHECKOUT / ".fuzz"
_DOCUMENT = CHECKOUT / "docs" / "trust.md"
_BEGIN, _END = "<!-- fuzz: begin -->", "<!-- fuzz: end -->"


class _Fuzzing:
    """Threads that take inputs in turns from all campaigns, and what came of them."""

    def __init__(self, options: argparse.Namespace, seed: int) -> None:
        self._seed = seed
        self._until = time.monotonic() + options.hours * 3600
        last = None if options.inputs is None else options.first + options.inputs
        numbers = itertools.count(options.first) if last is None else range(options.first, last)
        self._inputs: Iterator[tuple[int, str]] = ((number, name) for number in numbers for name in options.only or CAMPAIGNS)
        self._lock = threading.Lock()
        self.tried: Counter[str] = Counter()
        self.problems: Counter[str] = Counter()

    def work(self) -> None:
        """Try inputs until there are none, or there is no time."""
        while (taken := self._take()) is not None:
            number, name = taken
            with tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True) as folder:
                try:
                    problem = try_input(name, self._seed, number, Path(folder))
                except Exception as error:
                    # Hours of other inputs are not lost over it.
                    problem = f"the campaign itself failed: {error!r}"
                with self._lock:
                    self.tried[name] += 1
                    if problem is not None:
                        self._keep(f"{name}-{self._seed}-{number}", problem, Path(folder))
                        self.problems[name] += 1

    def stop(self) -> None:
        """Take no further input."""
        self._until = 0

    def _take(self) -> tuple[int, str] | None:
        with self._lock:
            return next(self._inputs, None) if time.monotonic() < self._until else None

    def _keep(self, name: str, problem: str, folder: Path) -> None:
        shutil.rmtree(FAILURES / name, ignore_errors=True)
        # Pipes can't be copied.
        special = [path.name for path in folder.rglob("*") if not (path.is_file() or path.is_dir() or path.is_symlink())]
        shutil.copytree(folder, FAILURES / name, symlinks=True, ignore=lambda *_: special)
        (FAILURES / name / "problem.txt").write_text(problem + "\n", errors="backslashreplace")
        print(f"{FAILURES / name}: {problem}".encode("ascii", "backslashreplace").decode(), flush=True)

    def table(self) -> list[str]:
        """What was tried, as lines of Markdown."""
        rows = [
            f"| `{name}` | {text} | {self.tried[name]:,} | {self.problems[name]} |"
            for name, (text, _) in CAMPAIGNS.items()
            if self.tried[name]
        ]
        return ["| campaign | what is tried | inputs | problems |", "|---|---|---:|---:|", *rows, "", f"Seed {self._seed}."]


def main() -> int:
    # What walks through folders in folders, of which inputs have thousands, calls itself for each.
    sys.setrecursionlimit(20_000)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=0.1, help="how long")
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time, which is printed")
    parser.add_argument("--only", action="append", choices=CAMPAIGNS, help="these campaigns alone")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--inputs", type=int, default=None, help="most inputs of each campaign")
    parser.add_argument("--jobs", type=int, default=2, help="inputs at a time")
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/trust.md")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else secrets.randbelow(1_000_000)
    print(f"seed {seed}, {options.hours} hours", flush=True)
    fuzzing = _Fuzzing(options, seed)
    threads = [threading.Thread(target=fuzzing.work) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        fuzzing.stop()
        for thread in threads:
            thread.join()
    table = fuzzing.table()
    print("\n".join(table))
    if options.write_docs:
        before, _, rest = _DOCUMENT.read_text().partition(_BEGIN)
        _DOCUMENT.write_text(before + "\n".join([_BEGIN, *table, _END]) + rest.partition(_END)[2])
    return 1 if fuzzing.problems else 0


if __name__ == "__main__":
    sys.exit(main())
