"""The rules that a trace has to follow, and what a check collects: the violations of each."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl


class TraceRule(enum.Enum):
    """What nsys2prv guarantees and Paraver needs, as far as it can be checked in the trace alone."""

    HEADER = "the header is well formed and within Paraver's limits"
    RECORDS = "every line of the .prv is a record"
    START = "the first record is at 0"
    SORTED = "records are sorted by time"
    END = "no record is after the end of the trace in the header"
    PLACES = "every record is on a row and a CPU of the header"
    STATES = "states of a row have a length and do not overlap"
    CLOSED = "each start of an interval has its end"
    COMPLETE = "each thread and each stream has a state at all times"
    MESSAGES = "a message is sent at one time, and arrives when its receiver waits"
    NUMBERS = "types and values are within Paraver's range"
    LABELLED = "every state, type and value has a label"
    PCF = "the .pcf is well formed"
    ROW = "the .row is well formed and agrees with the header"
    ACCOUNT = "OUT.json agrees with the trace: rows read are written or left out, and what was written is there"


@dataclass(frozen=True)
class Violation:
    """A place where a trace breaks a rule: its line number (None: the file as a whole), and a sentence that names the file."""

    rule: TraceRule
    line: int | None
    text: str


@dataclass(frozen=True)
class CheckResult:
    """The result of a check.

    Attributes
    ----------
    violations
        At most `limit` of each rule, in the order in which they were found.
    violations_per_rule
        How many there are of each rule, those above the limit included; only rules that are broken.
    counts
        Numbers of rows; of records of each kind (states, event_lines, messages) and of all kinds (records); of type:value pairs
        (events); of closed intervals (intervals); of messages that arrive before they are sent (backward_messages), which
        Paraver draws.
    """

    violations: tuple[Violation, ...]
    violations_per_rule: Mapping[TraceRule, int]
    counts: Mapping[str, int]

    @property
    def valid(self) -> bool:
        """Whether the trace breaks no rule."""
        return not self.violations


@dataclass
class ViolationLog:
    """Violations so far: the first `limit` of each rule, and the number of all."""

    limit: int
    violations: list[Violation] = field(default_factory=list)
    per_rule: Counter[TraceRule] = field(default_factory=Counter)

    def add(self, rule: TraceRule, path: Path, line: int | None, problem: str) -> None:
        """Add one violation; `problem` is a sentence."""
        self.per_rule[rule] += 1
        if self.per_rule[rule] <= self.limit:
            place = path.name if line is None else f"{path.name} line {line}"
            self.violations.append(Violation(rule, line, f"{place}: {problem}"))

    def add_rows(self, rule: TraceRule, path: Path, offenders: pl.DataFrame, problem: str) -> None:
        """Add a violation for each row of a frame; `problem` is a format string over its columns, one of which is `line`."""
        shown = offenders.head(max(self.limit - self.per_rule[rule], 0))
        for row in shown.iter_rows(named=True):
            self.add(rule, path, row["line"], problem.format(**row))
        if offenders.height > shown.height:
            self.per_rule[rule] += offenders.height - shown.height

    def result(self, counts: Mapping[str, int]) -> CheckResult:
        """The result of the check, with its counts."""
        return CheckResult(tuple(self.violations), dict(self.per_rule), dict(counts))
