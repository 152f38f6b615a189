"""A second reader of traces, for tests of `check`: plain Python, line by line, from the description of the format.

It shares no code with the package, and is slow. What it knows of event types is the table in docs/reference/events.md.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from support.checkout import CHECKOUT

_MOST_OBJECTS = 65_535
_CRITICAL_PATH, _TAG_CRITICAL_PATH = 63_000_800, 55_006
_DIGITS = set("0123456789")
_LEVELS = ("WORKLOAD", "APPL", "TASK", "THREAD", "SYSTEM", "NODE", "CPU")
_SECTIONS = ("DEFAULT_OPTIONS", "DEFAULT_SEMANTIC", "STATES", "STATES_COLOR", "EVENT_TYPE", "GRADIENT_COLOR", "GRADIENT_NAMES")


def broken_rules(prv: Path) -> set[str]:
    """Names of the rules (of `TraceRule`, in small letters) that a trace breaks; empty: it is valid."""
    return _Reader(prv).read()


def _is_number(text: str, digits: int = 10_000) -> bool:
    return text != "" and set(text) <= _DIGITS and len(text) <= digits


def _number(text: str, *, signed: bool = False) -> int | None:
    """A number of 64 bits; None where it is none."""
    plain = text[1:] if signed and text.startswith("-") else text
    if not _is_number(plain):
        return None
    stripped = plain.lstrip("0") or "0"
    return None if len(stripped) > 19 or int(stripped) >= 2**63 else int(f"-{stripped}" if plain != text else stripped)


class _IntervalTypes:
    """Which numbers are those of intervals, marks and samples, by the table of docs/reference/events.md."""

    def __init__(self) -> None:
        text = (CHECKOUT / "docs" / "reference" / "events.md").read_text(encoding="utf-8")
        table = text.partition("<!-- table event types -->")[2].partition("<!-- end -->")[0]
        self._single: dict[int, str] = {}
        self._series: list[tuple[range, str]] = []
        rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.splitlines()[3:]]
        firsts = sorted(int(re.findall(r"\d+", row[0])[0]) for row in rows)
        for row in rows:
            self._add(*row, firsts)

    def _add(self, numbers: str, _label: str, kind: str, values: str, firsts: list[int]) -> None:
        found = [int(number) for number in re.findall(r"\d+", numbers)]
        members = 1
        if "..." in numbers:
            # Members of a series: 1,000 where they have a distance, else up to the next type; 100,000 from the last number on.
            first, second, further = found
            step = second - first
            members = 1_000 if step > 1 else next((one for one in firsts if one > first), first + 100) - first
            self._series += [(range(first, first + members * step, step), kind), (range(further, further + 100_000), kind)]
            members += 100_000
        elif "to" in numbers:
            self._series.append((range(found[0], found[1] + 1), kind))
        else:
            self._single[found[0]] = kind
        for lane in re.findall(r"per lane: (\d+)", values):
            self._series.append((range(int(lane), int(lane) + members * 1_000), kind))

    def kind(self, number: int) -> str:
        if number in self._single:
            return self._single[number]
        return next((kind for numbers, kind in self._series if number in numbers), "")


_TYPES: list[_IntervalTypes] = []


def _kind_of_type(number: int) -> str:
    if not _TYPES:
        _TYPES.append(_IntervalTypes())
    return _TYPES[0].kind(number)


class _Reader:
    def __init__(self, prv: Path) -> None:
        self.prv = prv
        base = prv.name.removesuffix(".prv")
        self.pcf, self.row, self.json = (prv.with_name(f"{base}{suffix}") for suffix in (".pcf", ".row", ".json"))
        self.broken: set[str] = set()
        # Of the header.
        self.end = 0
        self.cpus: list[int] = []
        self.tasks: list[tuple[int, int]] = []  # threads, node
        self.communicators = 0
        # Of the .pcf and .row.
        self.states: set[int] | None = None
        self.types: dict[int, str] = {}
        self.values: dict[int, set[int] | None] = {}
        self.own = False
        self.names: dict[str, list[str]] = {}
        self.summary: dict[str, Any] | None = None
        # Of the records.
        self.times: list[int] = []
        self.of_row: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.open: Counter[tuple[int, int, int]] = Counter()
        self.starts: Counter[int] = Counter()
        self.path_lines = self.path_time = 0
        self.events: Counter[int] = Counter()

    def read(self) -> set[str]:
        lines = self.prv.read_bytes().split(b"\n")
        if not self._read_header(lines[0].decode("utf-8", "replace"), len(lines) > 1):
            return {"header"}
        self._read_pcf()
        self._read_row()
        self._read_json()
        if lines[-1] != b"":
            self.broken.add("records")
        for number, line in enumerate(lines[1:-1], start=2):
            self._read_line(number, line.decode("utf-8", "replace"))
        if not self.times or self.times[0] != 0:
            self.broken.add("start")
        if any(self.open.values()):
            self.broken.add("closed")
        if self.own or self.summary is not None:
            self._check_states()
            self._check_summary()
        return self.broken

    # The header.

    def _read_header(self, line: str, has_end: bool) -> bool:
        """Whether it can be understood, and is within the limits."""
        if not has_end or not line.startswith("#Paraver (") or line.endswith("\r"):
            return False
        date, closing, rest = line.removeprefix("#Paraver (").partition("):")
        fields = rest.split(":", 2)
        if not closing or not date or set(date) & set("()") or len(fields) != 3:
            return False
        end, nodes, applications = fields
        if not end.endswith("_ns") or not _is_number(end[:-3], 19) or int(end[:-3]) >= 2**63:
            return False
        self.end = int(end[:-3])
        count, opening, cpus = nodes.partition("(")
        listed = cpus[:-1].split(",") if opening else []
        if (opening and not cpus.endswith(")")) or not all(_is_number(one, 19) for one in [count, *listed]):
            return False
        self.cpus = [int(cpu) for cpu in listed]
        number, _, rest = applications.partition(":")
        if number != "1" or int(count) != len(self.cpus):
            return False
        tasks, opening, rest = rest.partition("(")
        threads, closing, communicators = rest.partition(")")
        if not opening or not closing or not _is_number(tasks.removesuffix(":"), 19):
            return False
        for pair in threads.split(","):
            parts = pair.split(":")
            if len(parts) != 2 or not all(_is_number(part, 19) for part in parts):
                return False
            self.tasks.append((int(parts[0]), int(parts[1])))
        if communicators and not (communicators.startswith(",") and _is_number(communicators[1:], 19)):
            return False
        self.communicators = int(communicators[1:] or 0)
        if int(tasks.removesuffix(":")) != len(self.tasks) or self.communicators > 1_000_000:
            return False
        sizes = (len(self.cpus), sum(self.cpus), len(self.tasks), sum(threads for threads, _ in self.tasks))
        if max(sizes) > _MOST_OBJECTS:
            return False
        in_range = all(threads >= 1 and (not self.cpus or 1 <= node <= len(self.cpus)) for threads, node in self.tasks)
        if not self.cpus or min(self.cpus) < 1 or not in_range or not _is_date(date):
            self.broken.add("header")
        return True

    def _has_row(self, task: int, thread: int) -> bool:
        return 1 <= task <= len(self.tasks) and 1 <= thread <= self.tasks[task - 1][0]

    # The .pcf and .row.

    def _lines(self, path: Path, rule: str) -> list[str] | None:
        """Lines; None where there is no file."""
        if not path.is_file():
            self.broken.add(rule)
            return None
        content = path.read_bytes()
        lines = content.split(b"\n")
        if lines.pop() != b"":
            self.broken.add(rule)
            lines = content.split(b"\n")
        texts = []
        for line in lines:
            try:
                text = line.decode()
            except UnicodeDecodeError:
                self.broken.add(rule)
                text = line.decode("utf-8", "replace")
            if "\t" in text or text.endswith("\r") or (text and not text.strip(" \t")):
                self.broken.add(rule)
            texts.append(text.removesuffix("\r"))
        return texts

    def _read_pcf(self) -> None:
        lines = self._lines(self.pcf, "pcf")
        if lines is None:
            return
        self.states = set()
        section, group, values = "", [], set()
        for line in lines:
            self.own = self.own or line == "  STATES"
            text = line.strip(" \t")
            words = text.split(None, 1)
            if not text or text.startswith("#"):
                continue
            if text in _SECTIONS:
                section, group = text, []
            elif section == "EVENT_TYPE" and text == "VALUES":
                section, values = "VALUES", set()
                if not group:
                    self.broken.add("pcf")
                for number in group:
                    self.values[number] = values
            elif section in ("EVENT_TYPE", "VALUES") and group and re.fullmatch(r"PRECISION\s+[0-9]{1,2}", text):
                continue
            elif section in ("STATES", "VALUES"):
                number = words[0].removeprefix("-") if section == "VALUES" else words[0]
                known = self.states if section == "STATES" else values
                label = words[1] if len(words) > 1 else ""
                if not _is_number(number, 18) or not self._label(int(words[0]), label, known):
                    self.broken.add("pcf")
                else:
                    known.add(int(words[0]))
            elif section == "EVENT_TYPE":
                parts = text.split(None, 2)
                are_numbers = len(parts) == 3 and all(_is_number(part, 18) for part in parts[:2])
                if not are_numbers or not self._label(int(parts[1]), parts[2], self.types.keys()):
                    self.broken.add("pcf")
                else:
                    self.types[int(parts[1])] = parts[2]
                    self.values[int(parts[1])] = None
                    group.append(int(parts[1]))
            elif section in ("DEFAULT_OPTIONS", "DEFAULT_SEMANTIC"):
                if len(words) < 2 or not set(words[0]) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZ_"):
                    self.broken.add("pcf")
            elif section in ("STATES_COLOR", "GRADIENT_COLOR"):
                n = r"[0-9]{1,18}"
                if not re.fullmatch(rf"{n}\s+\{{\s*{n}\s*,\s*{n}\s*,\s*{n}\s*\}}", text):
                    self.broken.add("pcf")
            elif section == "GRADIENT_NAMES":
                if len(words) < 2 or not _is_number(words[0], 18):
                    self.broken.add("pcf")
            else:
                self.broken.add("pcf")

    @staticmethod
    def _label(number: int, label: str, known: Any) -> bool:
        return label.strip() != "" and number not in known and abs(number) <= 2**31 - 1

    def _read_row(self) -> None:
        lines = self._lines(self.row, "row")
        if lines is None:
            return
        at = 0
        while at < len(lines):
            words = lines[at].split(" ")
            at += 1
            if lines[at - 1] == "" or lines[at - 1].startswith("#"):
                continue
            if len(words) != 4 or words[::2] != ["LEVEL", "SIZE"] or words[1] not in _LEVELS or not _is_number(words[3], 18):
                self.broken.add("row")
                continue
            names = lines[at : at + int(words[3])]
            if words[1] in self.names or len(names) < int(words[3]) or "" in names:
                self.broken.add("row")
            self.names[words[1]] = names
            at += len(names)
        sizes = {"NODE": len(self.cpus), "TASK": len(self.tasks), "THREAD": sum(threads for threads, _ in self.tasks)}
        further = {"CPU": sum(self.cpus), "WORKLOAD": 1, "APPL": 1, "SYSTEM": 1}
        for level, size in sizes.items():
            if len(self.names.get(level, ())) != size:
                self.broken.add("row")
        for level, size in further.items():
            if level in self.names and len(self.names[level]) != size:
                self.broken.add("row")

    # The records.

    def _read_line(self, line: int, text: str) -> None:
        if text.startswith("#"):
            return
        if line <= 1 + self.communicators and not text.startswith(("1:", "2:", "3:")):
            if not self._is_communicator(text):
                self.broken.add("records")
            return
        fields = text.split(":")
        numbers = [_number(field, signed=_may_be_negative(fields[0], at)) for at, field in enumerate(fields)]
        length = {"1": len(fields) == 8, "2": len(fields) >= 8 and len(fields) % 2 == 0, "3": len(fields) == 15}
        is_record = length.get(fields[0], False) and None not in numbers and numbers[2] == 1 and fields[2] == "1"
        if not is_record or (fields[0] == "3" and fields[8] != "1"):
            self.broken.add("records")
            return
        record = [number for number in numbers if number is not None]
        time = record[5]
        if self.times and time < self.times[-1]:
            self.broken.add("sorted")
        self.times.append(time)
        self._check_place(*record[1:5:2], record[4])
        {1: self._state, 2: self._events, 3: self._message}[record[0]](record)

    def _check_place(self, cpu: int, task: int, thread: int) -> None:
        if not self._has_row(task, thread):
            self.broken.add("places")
            if cpu == 0 or not 1 <= task <= len(self.tasks):
                return
        node = self.tasks[task - 1][1]
        before = sum(self.cpus[: node - 1])
        if cpu and not (1 <= node <= len(self.cpus) and before < cpu <= before + self.cpus[node - 1]):
            self.broken.add("places")

    def _state(self, record: list[int]) -> None:
        _, _, _, task, thread, begin, end, state = record
        if end > self.end:
            self.broken.add("end")
        if end <= begin:
            self.broken.add("states")
        if self.states is not None and state not in self.states:
            self.broken.add("labelled")
        if self._has_row(task, thread):
            former = self.of_row.setdefault((task, thread), [])
            if former and begin < former[-1][1]:
                self.broken.add("states")
            former.append((begin, end))

    def _events(self, record: list[int]) -> None:
        if record[5] > self.end:
            self.broken.add("end")
        for number, value in zip(record[6::2], record[7::2], strict=True):
            self.events[number] += 1
            self.starts[number] += value != 0
            if number == _CRITICAL_PATH:
                self.path_time += -record[5] if value else record[5]
            if number >= 2**32 or abs(value) > 2**53:
                self.broken.add("numbers")
            if self.states is not None:
                values = self.values.get(number)
                if number not in self.types or (values is not None and value not in values):
                    self.broken.add("labelled")
            if _kind_of_type(number) == "interval":
                key = (record[3], record[4], number)
                self.open[key] += 1 if value else -1
                if self.open[key] < 0:
                    self.broken.add("closed")
                    self.open[key] = 0

    def _message(self, record: list[int]) -> None:
        _, _, _, _, _, logical_send, physical_send, cpu, _, task, thread, logical_recv, physical_recv, size, tag = record
        self._check_place(cpu, task, thread)
        if max(logical_send, physical_send, logical_recv, physical_recv) > self.end:
            self.broken.add("end")
        self.path_lines += tag == _TAG_CRITICAL_PATH
        if size > 2**53 or abs(tag) > 2**53:
            self.broken.add("numbers")
        if (self.own or self.summary is not None) and (logical_send != physical_send or logical_recv > physical_recv):
            self.broken.add("messages")

    def _is_communicator(self, text: str) -> bool:
        fields = text.split(":")
        if fields[0] in ("i", "I"):
            return len(fields) == 7 and fields[1] == "1" and all(_is_number(field, 18) for field in fields[1:])
        are_numbers = all(_is_number(field, 18) for field in fields[2:])
        if fields[0] not in ("c", "C") or len(fields) < 4 or fields[1] != "1" or not are_numbers:
            return False
        tasks = fields[4:]
        return len(tasks) == int(fields[3]) and all(1 <= int(task) <= len(self.tasks) for task in tasks)

    # What only traces of nsys2prv guarantee.

    def _check_states(self) -> None:
        gaps: dict[tuple[int, int], set[tuple[int, int]]] = {}
        for row, states in self.of_row.items():
            last = 0
            for begin, end in states:
                if begin > last:
                    gaps.setdefault((last, begin), set()).add(row)
                last = end
            if last < self.end:
                self.broken.add("complete")
        windows = self._windows()
        for gap, rows in gaps.items():
            if windows is not None:
                allowed = gap in windows
            else:
                allowed = len(rows) == len(self.of_row) and not any(gap[0] < time < gap[1] for time in self.times)
            if not allowed:
                self.broken.add("complete")
        if self._names_fit():
            for task, thread, name, is_node in self._rows():
                is_stream = re.fullmatch(r"(CUDA|HIP)-D\d+\.S\d+(-\S+)?\s*", name) is not None
                is_device = re.fullmatch(r"Metrics GPU\d+(/\d+)?\s*", name) is not None
                if not is_device and (is_stream or not is_node) and (task, thread) not in self.of_row:
                    self.broken.add("complete")

    def _names_fit(self) -> bool:
        sizes = {"NODE": len(self.cpus), "TASK": len(self.tasks), "THREAD": sum(threads for threads, _ in self.tasks)}
        return all(len(self.names.get(level, ())) == size for level, size in sizes.items())

    def _rows(self) -> list[tuple[int, int, str, bool]]:
        """Task, thread, name, and whether the task is that of a node, of each row."""
        names = iter(self.names["THREAD"])
        found = []
        for task, (threads, node) in enumerate(self.tasks, start=1):
            is_node = 1 <= node <= len(self.cpus) and self.names["TASK"][task - 1] == f"Node {self.names['NODE'][node - 1]}"
            found += [(task, thread, next(names), is_node) for thread in range(1, threads + 1)]
        return found

    def _windows(self) -> set[tuple[int, int]] | None:
        trace = (self.summary or {}).get("trace", {})
        windows, origin = trace.get("windows_ns"), trace.get("origin_ns")
        if not windows or origin is None or any(len(window) != 2 for window in windows):
            return None
        return {(before[1] - origin, after[0] - origin) for before, after in pairwise(windows)}

    def _read_json(self) -> None:
        if not self.json.exists():
            return
        try:
            content = json.loads(self.json.read_bytes().decode())
        except (ValueError, RecursionError):
            self.broken.add("account")
            return
        if not isinstance(content, dict) or "nsys2prv" not in content or "trace" not in content:
            return
        if all(_has_form(content, path.split("."), kind) for path, kind in _JSON_FORM):
            self.summary = content
        else:
            self.broken.add("account")

    def _check_summary(self) -> None:
        summary = self.summary
        if summary is None:
            return
        header = {
            "records": len(self.times),
            "length_ns": self.end,
            "nodes": len(self.cpus),
            "tasks": len(self.tasks),
            "rows": sum(threads for threads, _ in self.tasks),
        }
        tasks, nodes = summary.get("tasks", []), summary.get("nodes", [])
        names = {
            "NODE": [node.get("name", "") for node in nodes],
            "TASK": [task.get("name", "") for task in tasks],
            "THREAD": [name for task in tasks for name in task.get("threads", ())],
        }
        agrees = [
            all(summary["trace"].get(key, number) == number for key, number in header.items()),
            "nodes" not in summary or [node.get("cpus") for node in nodes] == self.cpus,
            "tasks" not in summary
            or [len(task.get("threads", ())) for task in tasks] == [threads for threads, _ in self.tasks],
            all(
                not said or level not in self.names or [_one_line(name) for name in said] == self.names[level]
                for level, said in names.items()
            ),
            self.states is None or "event_types" not in summary or self._types_said() == self.types,
            *(self._balances(table) for report in summary.get("reports", ()) for table in report.get("tables", ())),
            self._events_agree(),
            self._path_agrees(summary.get("critical_path", {})),
            set(summary["trace"].get("types", self.events)) == set(self.events),
            self._rows_agree(summary["trace"]),
        ]
        if not all(agrees):
            self.broken.add("account")

    def _rows_agree(self, trace: dict[str, Any]) -> bool:
        rows = sum(threads for threads, _ in self.tasks)
        by_type = trace.get("rows_of_types", ())
        ranges = [one for types in by_type for one in types.get("rows", ())]
        return (
            all(len(one) == 2 and 1 <= one[0] <= one[1] <= rows for one in [*ranges, *trace.get("rows_of_messages", ())])
            and all(types.get("rows") for types in by_type)
            and {number for types in by_type for number in types.get("types", ())} <= set(self.events)
        )

    def _types_said(self) -> dict[int | None, str | None]:
        said = {one.get("number"): one.get("label") for one in (self.summary or {})["event_types"]}
        return {number: label for number, label in said.items() if number is not None and number <= 2**31 - 1}

    @staticmethod
    def _balances(table: dict[str, Any]) -> bool:
        read = 0
        for source in table.get("sources", ()):
            rows = source.get("rows", 0)
            read += rows
            if rows != source.get("written", 0) + sum(source.get("left_out", {}).values()):
                return False
        return bool(table.get("rows", 0) == read + sum(table.get("left_out", {}).values()))

    def _events_agree(self) -> bool:
        entries = [
            entry
            for report in (self.summary or {}).get("reports", ())
            for table in report.get("tables", ())
            for kind in ("sources", "derived")
            for entry in table.get(kind, ())
        ]
        if any("events" not in entry for entry in entries):
            return True
        if any(sum(entry["events"].values()) < entry.get("written", 0) for entry in entries):
            return False
        written: Counter[int] = Counter()
        for entry in entries:
            for number, count in entry["events"].items():
                if _is_number(number, 10) and _kind_of_type(int(number)) != "attribute":
                    written[int(number)] += count
        written[_CRITICAL_PATH] += (self.summary or {}).get("critical_path", {}).get("segments", 0)
        intervals = {number: count for number, count in self.starts.items() if _kind_of_type(number) == "interval"}
        points = {number: self.events[number] for number in written if _kind_of_type(number) != "interval"}
        found = Counter({**intervals, **points})
        return all(found[number] == written[number] for number in {*found, *written})

    def _path_agrees(self, path: dict[str, Any]) -> bool:
        said = path.get("lines", self.path_lines), sum(path["total_ns"].values()) if "total_ns" in path else self.path_time
        return said == (self.path_lines, self.path_time)


def _may_be_negative(kind: str, at: int) -> bool:
    return (kind == "2" and at >= 7 and at % 2 == 1) or (kind == "3" and at == 14)


def _is_date(date: str) -> bool:
    if not re.fullmatch(r"[0-9]{2}/[0-9]{2}/[0-9]{4} at [0-9]{2}:[0-9]{2}", date):
        return False
    try:
        datetime(int(date[6:10]), int(date[3:5]), int(date[:2]), int(date[14:16]), int(date[17:]))
    except ValueError:
        return False
    return True


def _one_line(text: str) -> str:
    """A name as the .row has it: on one line, with round brackets."""
    return " ".join(text.replace("[", "(").replace("]", ")").split()) or "(blank)"


# Keys of OUT.json that may be missing, and what they are where they are there; `*` is each entry of a list, `%` each value.
_JSON_FORM = (
    ("nsys2prv", "text"),
    ("options", "object"),
    *((f"trace.{key}", "number") for key in ("bytes", "records", "length_ns", "origin_ns", "nodes", "tasks", "rows")),
    ("trace.windows_ns.*.*", "number"),
    ("trace.types.*", "number"),
    ("trace.rows_of_types.*.types.*", "number"),
    ("trace.rows_of_types.*.rows.*.*", "number"),
    ("trace.rows_of_messages.*.*", "number"),
    ("messages.written", "number"),
    ("nodes.*.name", "text"),
    ("nodes.*.cpus", "number"),
    ("tasks.*.name", "text"),
    ("tasks.*.report", "text or null"),
    ("tasks.*.threads.*", "text"),
    ("event_types.*.number", "number"),
    ("event_types.*.label", "text"),
    ("reports.*.path", "text"),
    ("reports.*.nsys", "text or null"),
    ("reports.*.gpus.*.name", "text or null"),
    ("reports.*.alignment", "object"),
    ("reports.*.tables.*.table", "text"),
    ("reports.*.tables.*.rows", "number"),
    ("reports.*.tables.*.left_out.%", "number"),
    *(
        (f"reports.*.tables.*.{kind}.*.{key}", what)
        for kind in ("sources", "derived")
        for key, what in (
            *(("source", "text"), ("title", "text"), ("rows", "number"), ("written", "number")),
            *(("left_out.%", "number"), ("events.%", "number"), ("derived", "truth")),
        )
    ),
    ("critical_path.segments", "number"),
    ("critical_path.lines", "number"),
    ("critical_path.total_ns.%", "number"),
    ("clocks.*", "object"),
    ("clock_check.*.text", "text"),
)


def _has_form(found: Any, path: list[str], kind: str) -> bool:
    if not path:
        is_number = isinstance(found, int) and not isinstance(found, bool) and abs(found) < 2**63
        kinds = {"number": is_number, "text": isinstance(found, str), "object": isinstance(found, dict)}
        kinds |= {"truth": isinstance(found, bool), "text or null": found is None or isinstance(found, str)}
        return kinds[kind]
    first, *rest = path
    if first == "*":
        return isinstance(found, list) and all(_has_form(one, rest, kind) for one in found)
    if not isinstance(found, dict):
        return False
    if first == "%":
        return all(_has_form(one, rest, kind) for one in found.values())
    return first not in found or _has_form(found[first], rest, kind)
