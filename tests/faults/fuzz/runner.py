"""Tries inputs of all campaigns for hours: `make fuzz FUZZ_OPTIONS="--hours 4"`.

Each input is up to the seed, the campaign's name and its number: `--only NAME --seed S --first N --inputs 1` makes it again.
Folders of inputs that something is wrong with are kept below .fuzz/, with what it was.
"""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from support.checkout import CHECKOUT

from .commands import Commands
from .registry import CAMPAIGNS

FAILURES = CHECKOUT / ".fuzz"
_DOCUMENT = CHECKOUT / "docs" / "trust.md"
_BEGIN, _END = "<!-- fuzz: begin -->", "<!-- fuzz: end -->"


def try_input(campaign_type: type, seed: int, number: int, commands: Commands, folder: Path) -> str | None:
    """What is wrong with one input of a campaign, or None."""
    campaign = campaign_type()
    return campaign.try_one(random.Random(f"{seed}:{campaign_type.name}:{number}"), folder, commands)


_MINUTES_BETWEEN_TABLES = 10


class _Fuzzing:
    """Threads that take inputs in turns from all campaigns, and what came of them."""

    def __init__(self, campaigns: list[type], seed: int, first: int, inputs: int | None, until: float) -> None:
        self._campaigns, self._seed, self._inputs, self._until = campaigns, seed, inputs, until
        self._next = {campaign.name: first for campaign in campaigns}
        self._first = first
        self._lock = threading.Lock()
        self._turn = 0
        self.tried: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self.problems: list[tuple[str, int, str]] = []
        self.errors = 0

    def work(self) -> None:
        """Try inputs until there are none, or there is no time; an error of a campaign ends this thread alone."""
        try:
            self._work()
        except BaseException:
            self.errors += 1
            raise

    def stop(self) -> None:
        """Take no further input."""
        self._until = 0

    def _work(self) -> None:
        with Commands() as commands:
            while (taken := self._take()) is not None:
                campaign, number = taken
                began = time.monotonic()
                folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
                try:
                    problem = self._try(campaign, number, commands, folder)
                    with self._lock:
                        self.tried[campaign.name] += 1
                        self.seconds[campaign.name] += time.monotonic() - began
                        if problem is not None:
                            self._keep(campaign.name, number, problem, folder)
                finally:
                    shutil.rmtree(folder, ignore_errors=True)

    def _try(self, campaign: type, number: int, commands: Commands, folder: Path) -> str | None:
        try:
            return try_input(campaign, self._seed, number, commands, folder)
        except Exception as error:
            # Hours of other inputs are not lost over it.
            return f"the campaign itself failed: {error!r}"

    def _take(self) -> tuple[type, int] | None:
        """The next input of the campaign that had the least time so far."""
        with self._lock:
            if time.monotonic() > self._until:
                return None
            left = [
                campaign
                for campaign in self._campaigns
                if self._inputs is None or self._next[campaign.name] < self._first + self._inputs
            ]
            if not left:
                return None
            campaign = min(left, key=lambda one: self.seconds[one.name])
            # Others that wait for this one's time meanwhile take another campaign.
            self.seconds[campaign.name] += 0.1
            number = self._next[campaign.name]
            self._next[campaign.name] += 1
            return campaign, number

    def _keep(self, name: str, number: int, problem: str, folder: Path) -> None:
        kept = FAILURES / f"{name}-{self._seed}-{number}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder, kept, symlinks=True, ignore=_special)
        (kept / "problem.txt").write_text(problem + "\n", errors="backslashreplace")
        self.problems.append((name, number, problem))
        print(f"{name} {number}: {problem}  [{kept}]".encode("ascii", "backslashreplace").decode(), flush=True)


def _special(folder: str, names: list[str]) -> list[str]:
    """Pipes and the like, which can't be copied."""
    kinds = {name: Path(folder, name).lstat().st_mode for name in names}
    return [name for name, mode in kinds.items() if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))]


def _table(fuzzing: _Fuzzing, campaigns: list[type], seed: int) -> list[str]:
    found = Counter(name for name, _, _ in fuzzing.problems)
    hours = sum(fuzzing.seconds.values()) / 3600
    return [
        "| campaign | what is tried | inputs | problems |",
        "|---|---|---:|---:|",
        *(
            f"| `{campaign.name}` | {campaign.description} | {fuzzing.tried[campaign.name]:,} | {found[campaign.name]} |"
            for campaign in campaigns
        ),
        "",
        f"Seed {seed}, {hours:.1f} hours of one core in all.",
    ]


def main() -> int:
    # What walks through folders in folders, of which inputs have thousands, calls itself for each.
    sys.setrecursionlimit(20_000)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=0.1, help="how long")
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time, which is printed")
    parser.add_argument(
        "--only", action="append", choices=[campaign.name for campaign in CAMPAIGNS], help="these campaigns alone"
    )
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--inputs", type=int, default=None, help="most inputs of each campaign")
    parser.add_argument("--jobs", type=int, default=2, help="inputs at a time")
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/trust.md")
    options = parser.parse_args()
    campaigns = [campaign for campaign in CAMPAIGNS if not options.only or campaign.name in options.only]
    seed = options.seed if options.seed is not None else secrets.randbelow(1_000_000)
    print(f"seed {seed}, {len(campaigns)} campaigns, {options.hours} hours", flush=True)
    # A batch system ends a job in this way: the table is printed then too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    fuzzing = _Fuzzing(campaigns, seed, options.first, options.inputs, time.monotonic() + options.hours * 3600)
    threads = [threading.Thread(target=fuzzing.work) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + _MINUTES_BETWEEN_TABLES * 60
    while any(thread.is_alive() for thread in threads):
        # For a second at a time, as a signal may not end the wait for a thread. A run that is cut has printed its last table.
        try:
            threads[0].join(1)
            threads[-1].join(1)
            if time.monotonic() > until:
                print("\n".join(_table(fuzzing, campaigns, seed)), flush=True)
                until += _MINUTES_BETWEEN_TABLES * 60
        except KeyboardInterrupt:
            # The inputs that are being tried end, and what was found is printed.
            fuzzing.stop()
    table = _table(fuzzing, campaigns, seed)
    print("\n".join(table))
    if options.write_docs:
        before, _, rest = _DOCUMENT.read_text().partition(_BEGIN)
        _DOCUMENT.write_text(before + _BEGIN + "\n" + "\n".join(table) + "\n" + _END + rest.partition(_END)[2])
    return 1 if fuzzing.problems or fuzzing.errors else 0


if __name__ == "__main__":
    sys.exit(main())
