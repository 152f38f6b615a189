"""A strict reader of Paraver traces: OUT.prv (or .prv.gz) in blocks of bounded size, OUT.pcf, OUT.row.

Strict means that every line is understood or is an error that names it: what Paraver drops in silence is found here.
The form of the files is judged here; whether a trace keeps the promises of nsys2prv is for `check`.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

import polars as pl

from nsys2prv.errors import TraceError
from nsys2prv.vocabulary import event_types

BLOCK_BYTES = 8 << 20
"""Bytes of text that `Trace.blocks` holds at a time; a block is some ten times that in memory."""

Damage = Callable[[int | None, str], None]
"""What to do about a line that is malformed: line number (None: the file as a whole), and what is wrong with it."""

STATE, EVENT, MESSAGE = 1, 2, 3
"""Kinds of records: the first number of a line."""

_STATE_COLUMNS = ("kind", "cpu", "application", "task", "thread", "begin", "end", "state")
_MESSAGE_COLUMNS = (
    *("kind", "send_cpu", "send_application", "send_task", "send_thread", "logical_send", "physical_send"),
    *("recv_cpu", "recv_application", "recv_task", "recv_thread", "logical_recv", "physical_recv", "size", "tag"),
)
_ALWAYS_THE_SAME = ("kind", "application", "send_application", "recv_application")
_EVENT_COLUMNS = ("line", "position", "cpu", "task", "thread", "time", "type", "value")

_RECORD_FORM = (
    r"^(?:1:[0-9]+:1(?::[0-9]+){5}"
    r"|2:[0-9]+:1(?::[0-9]+){3}(?::[0-9]+:-?[0-9]+)+"
    r"|3:[0-9]+:1(?::[0-9]+){5}:1(?::[0-9]+){5}:-?[0-9]+)$"
)
_COMMUNICATOR_FORM = re.compile(r"[cCiI](:[0-9]+){3,}")
# nsys2prv 0.5.8 has a colon before the list of threads, which Paraver skips.
_HEADER_FORM = re.compile(
    r"#Paraver \((?P<date>[^()]+)\):(?P<end>[0-9]+)(?P<unit>_[a-z]+)?"
    r":(?P<nodes>[0-9]+)(?:\((?P<cpus>[0-9]+(?:,[0-9]+)*)\))?"
    r":(?P<applications>[0-9]+):(?P<tasks>[0-9]+):?\((?P<threads>[0-9]+:[0-9]+(?:,[0-9]+:[0-9]+)*)\)"
    r"(?:,(?P<communicators>[0-9]+))?"
)


@dataclass(frozen=True)
class Task:
    """A task of the header: its number of threads, its node (1, 2, ...), the row index of its first thread (0, 1, ...)."""

    threads: int
    node: int
    first_row: int


@dataclass(frozen=True)
class Header:
    """First line of a .prv.

    Attributes
    ----------
    date
        Text between the parentheses.
    end
        End of the trace, ns.
    cpus_per_node
        CPUs of each node; empty where the trace says 0 nodes.
    tasks
        Tasks of the one application, in order.
    communicators
        Number of communicator lines that follow.
    """

    date: str
    end: int
    cpus_per_node: tuple[int, ...]
    tasks: tuple[Task, ...]
    communicators: int = 0

    @property
    def rows(self) -> int:
        """Number of threads of all tasks."""
        return sum(task.threads for task in self.tasks)

    def row_of(self, task: pl.Expr, thread: pl.Expr) -> pl.Expr:
        """Row index (0, 1, ..., as in LEVEL THREAD of the .row) of task and thread numbers that the header has."""
        first_rows = pl.Series([each.first_row for each in self.tasks], dtype=pl.Int64)
        return pl.lit(first_rows).gather(task - 1) + thread - 1


@dataclass(frozen=True)
class TypeLabel:
    """An event type in the .pcf: label, gradient, labels of values (None: its values are plain numbers), and by which power of
    ten Paraver divides its values."""

    label: str
    gradient: int
    values: Mapping[int, str] | None
    precision: int = 0


@dataclass(frozen=True)
class Labels:
    """What the .pcf says: label of each state, each event type, and the colour (red, green, blue) of each value; empty where
    there is none."""

    states: Mapping[int, str] = field(default_factory=dict)
    types: Mapping[int, TypeLabel] = field(default_factory=dict)
    colours: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Block:
    """Some consecutive lines of a .prv. All columns are Int64; task and thread count from 1, times are ns.

    Attributes
    ----------
    first_line
        Line number of the first line of the block in the file, from 1.
    records
        A row per line: line, kind, cpu, task, thread, time (of a state its begin, of a message its logical send).
    states
        line, cpu, task, thread, begin, end, state.
    events
        A row per type:value pair: line, position (0, 1, ... on the line), cpu, task, thread, time, type, value.
    messages
        line, send_cpu, send_task, send_thread, logical_send, physical_send, recv_cpu, recv_task, recv_thread,
        logical_recv, physical_recv, size (bytes), tag.
    """

    first_line: int
    records: pl.DataFrame
    states: pl.DataFrame
    events: pl.DataFrame
    messages: pl.DataFrame


@dataclass(frozen=True)
class Trace:
    """An open trace: header and labels are read, the records are read when asked for.

    Attributes
    ----------
    path
        The .prv or .prv.gz.
    header
        Its first line.
    labels, has_labels
        What the .pcf beside it says, and whether there is one.
    names, has_names
        What the .row beside it says (level -> names in order), and whether there is one.
    """

    path: Path
    header: Header
    labels: Labels
    names: Mapping[str, tuple[str, ...]]
    has_labels: bool
    has_names: bool

    def blocks(self, damage: Damage | None = None, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
        """Read the records, in the order of the file, some megabytes at a time.

        Parameters
        ----------
        damage
            Told of each malformed line, which is then left out; without it the first one raises.
        block_bytes
            Bytes of text that are held at a time.

        Raises
        ------
        TraceError
            A line is no record (and `damage` is None), or the file can't be read to its end.
        """
        tell = damage or _raise(self.path)
        communicators_end = 1 + self.header.communicators
        for first_line, text in _text_blocks(self.path, tell, block_bytes):
            yield _parse(first_line, text, communicators_end, tell)

    def states(self) -> pl.DataFrame:
        """All state records, with the columns of `Block.states`."""
        return pl.concat([_no_records().states, *(block.states for block in self.blocks())])

    def events(self, types: Iterable[int] | None = None) -> pl.DataFrame:
        """All type:value pairs (of `types` only, where given), with the columns of `Block.events`."""
        wanted = pl.lit(True) if types is None else pl.col("type").is_in(list(types))
        return pl.concat([_no_records().events, *(block.events.filter(wanted) for block in self.blocks())])

    def messages(self) -> pl.DataFrame:
        """All messages, with the columns of `Block.messages`."""
        return pl.concat([_no_records().messages, *(block.messages for block in self.blocks())])

    def intervals(self, types: Iterable[int] | None = None) -> pl.DataFrame:
        """Intervals of some event types: each begin (a value) with its end (0), the innermost open one first.

        Parameters
        ----------
        types
            Event types; None for all that nsys2prv writes as intervals.

        Returns
        -------
        pl.DataFrame
            task, thread, type, begin, end (ns), value, depth (1: outermost); in the order of their begins in the file.

        Raises
        ------
        TraceError
            A begin without end or an end without begin.
        """
        pairs = self.events(types)
        if types is None:
            known = [number for number in pairs["type"].unique() if is_interval(number)]
            pairs = pairs.filter(pl.col("type").is_in(known))
        row = ["task", "thread", "type"]
        is_begin = pl.col("value") != 0
        # Begin and end of an interval stand at the same depth, and between them no other pair does: sorted by depth
        # (stable, so in the order of the file) begins and ends alternate.
        pairs = (
            pairs.with_row_index("order")
            .with_columns(depth=pl.when(is_begin).then(1).otherwise(-1).cum_sum().over(row) + (~is_begin).cast(pl.Int64))
            .sort([*row, "depth"], maintain_order=True)
            .with_columns(end=pl.col("time").shift(-1), ends=(pl.struct(*row, "depth") == pl.struct(*row, "depth").shift(-1)))
            .with_columns(closed=(pl.col("ends") & (pl.col("value").shift(-1) == 0)).fill_null(False))
        )
        paired = pl.when(is_begin).then("closed").otherwise(pl.col("closed").shift(1, fill_value=False))
        lost = pairs.filter(~paired).sort("order")
        for line, number, value in lost.select("line", "type", "value").head(1).iter_rows():
            what = f"value {value} of type {number} begins and never ends" if value else f"type {number} ends and never began"
            raise TraceError(self.path, f"line {line}: {what}")
        return pairs.filter(is_begin).sort("order").select(*row, pl.col("time").alias("begin"), "end", "value", "depth")


def open_trace(path: str | Path, damage: Damage | None = None) -> Trace:
    """Open a trace: read the header, and the .pcf and .row beside it.

    Parameters
    ----------
    path
        A .prv or .prv.gz.
    damage
        Told of each malformed line of the .pcf and .row, which is then left out; without it the first one raises.

    Raises
    ------
    TraceError
        The file is not there, or the header, or the .pcf or the .row (and `damage` is None), is malformed.
    """
    path = Path(path)
    header = read_header(path)
    labels_path, names_path = companion(path, ".pcf"), companion(path, ".row")
    has_labels, has_names = labels_path.is_file(), names_path.is_file()
    return Trace(
        path,
        header,
        read_pcf(labels_path, damage) if has_labels else Labels(),
        read_row(names_path, damage) if has_names else {},
        has_labels,
        has_names,
    )


def companion(path: Path, suffix: str) -> Path:
    """The .pcf or .row that belongs to a .prv or .prv.gz.

    >>> companion(Path("run/OUT.prv.gz"), ".pcf").name
    'OUT.pcf'
    """
    stem = path.with_suffix("") if path.suffix == ".gz" else path
    return stem.with_suffix(suffix)


def read_header(path: Path) -> Header:
    """First line of a .prv; TraceError where it is malformed or the file can't be read."""
    try:
        return parse_header(read_first_line(path))
    except ValueError as error:
        raise TraceError(path, f"line 1: {error}") from error


def read_first_line(path: Path) -> str:
    """Text of the first line of a .prv, with its line end; TraceError where there is no such file or nothing in it."""
    if not re.search(r"\.prv(\.gz)?$", path.name):
        raise TraceError(path, "its name does not end in .prv or .prv.gz, so Paraver would not load it")
    with _reading(path), _open(path) as file:
        line = file.readline()
    if not line:
        raise TraceError(path, "it is empty")
    return line.decode("utf-8", "replace")


def parse_header(line: str) -> Header:
    """The header in a first line, which ends in LF; ValueError says what is wrong with it."""
    if not line.endswith("\n") or line.endswith("\r\n"):
        raise ValueError("it does not end in LF")
    form = _HEADER_FORM.fullmatch(line.removesuffix("\n"))
    if form is None:
        raise ValueError("the header is not `#Paraver (DD/MM/YYYY at HH:MM):END_ns:N(cpus,...):1:TASKS(threads:node,...)`")
    if form["unit"] != "_ns":
        raise ValueError(f"the end of the trace, {form['end']}{form['unit'] or ''}, is not in ns: it has to end in _ns")
    cpus = tuple(int(number) for number in (form["cpus"] or "").split(",") if number)
    if len(cpus) != int(form["nodes"]):
        raise ValueError(f"the header announces {form['nodes']} nodes and lists {len(cpus)}")
    if form["applications"] != "1":
        raise ValueError(f"the header has {form['applications']} applications, and traces of one are read")
    tasks: list[Task] = []
    first_row = 0
    for pair in form["threads"].split(","):
        threads, node = (int(number) for number in pair.split(":"))
        tasks.append(Task(threads, node, first_row))
        first_row += threads
    if len(tasks) != int(form["tasks"]):
        raise ValueError(f"the header announces {form['tasks']} tasks and lists {len(tasks)}")
    return Header(form["date"], int(form["end"]), cpus, tuple(tasks), int(form["communicators"] or 0))


_SECTIONS = ("DEFAULT_OPTIONS", "DEFAULT_SEMANTIC", "STATES", "STATES_COLOR", "EVENT_TYPE", "GRADIENT_COLOR", "GRADIENT_NAMES")
_VALUES = "VALUES"
_PCF_FORMS = {
    "DEFAULT_OPTIONS": re.compile(r"[A-Z_]+\s+\S.*"),
    "DEFAULT_SEMANTIC": re.compile(r"[A-Z_]+\s+\S.*"),
    "STATES": re.compile(r"(?P<number>[0-9]+)(?:\s+(?P<label>.*))?"),
    "STATES_COLOR": re.compile(r"(?P<value>[0-9]+)\s+\{\s*([0-9]+)\s*,\s*([0-9]+)\s*,\s*([0-9]+)\s*\}"),
    "EVENT_TYPE": re.compile(r"(?P<gradient>[0-9]+)\s+(?P<number>[0-9]+)(?:\s+(?P<label>.*))?"),
    _VALUES: re.compile(r"(?P<number>-?[0-9]+)(?:\s+(?P<label>.*))?"),
    "GRADIENT_COLOR": re.compile(r"[0-9]+\s+\{\s*[0-9]+\s*,\s*[0-9]+\s*,\s*[0-9]+\s*\}"),
    "GRADIENT_NAMES": re.compile(r"[0-9]+\s+\S.*"),
}


def read_pcf(path: Path, damage: Damage | None = None) -> Labels:
    """Labels of a .pcf.

    Parameters
    ----------
    path
        The .pcf.
    damage
        Told of each malformed line, which is then left out; without it the first one raises.

    Raises
    ------
    TraceError
        A line is malformed (and `damage` is None), or the file can't be read.
    """
    tell = damage or _raise(path)
    states: dict[int, str] = {}
    types: dict[int, TypeLabel] = {}
    colours: dict[int, tuple[int, int, int]] = {}
    section: str | None = None
    group: list[int] = []  # types of this EVENT_TYPE section: they share the values below them
    values: dict[int, str] = {}
    for line, text in _text_lines(path, tell):
        text = text.strip(" \t")
        if not text or text.startswith("#"):
            continue
        if text in _SECTIONS:
            section, group = text, []
        elif section is None:
            tell(line, f"{text!r} stands before the first section")
        elif text == _VALUES and section == "EVENT_TYPE":
            if not group:
                tell(line, "VALUES stands below no event type")
            section, values = _VALUES, {}
            types.update({number: replace(types[number], values=values) for number in group})
        elif (precision := re.fullmatch(r"PRECISION\s+([0-9]+)", text)) and group:
            types[group[-1]] = replace(types[group[-1]], precision=int(precision[1]))
        elif (form := _PCF_FORMS[section].fullmatch(text)) is None:
            tell(line, f"{text!r} is no line of section {section}")
        elif "value" in form.re.groupindex:
            red, green, blue = (min(int(part), 255) for part in form.groups()[1:])
            colours[int(form["value"])] = (red, green, blue)
        elif "label" in form.re.groupindex:
            number, label = int(form["number"]), form["label"] or ""
            what = {"STATES": "state", "EVENT_TYPE": "event type", _VALUES: "value"}[section]
            known = {"STATES": states.keys(), "EVENT_TYPE": types.keys(), _VALUES: values.keys()}[section]
            if not label:
                tell(line, f"the label of {what} {number} is empty")
            elif number in known:
                tell(line, f"{what} {number} has two labels")
            elif abs(number) > event_types.LARGEST_LABELLED_NUMBER:
                tell(line, f"{what} {number} is above {event_types.LARGEST_LABELLED_NUMBER}: Paraver loses its label")
            elif section == "STATES":
                states[number] = label
            elif section == "EVENT_TYPE":
                types[number] = TypeLabel(label, int(form["gradient"]), None)
                group.append(number)
            else:
                values[number] = label
    return Labels(states, types, colours)


def read_row(path: Path, damage: Damage | None = None) -> dict[str, tuple[str, ...]]:
    """Names of a .row: level -> names in order.

    Parameters
    ----------
    path
        The .row.
    damage
        Told of each malformed line, which is then left out; without it the first one raises.

    Raises
    ------
    TraceError
        A line is malformed (and `damage` is None), or the file can't be read.
    """
    tell = damage or _raise(path)
    names: dict[str, tuple[str, ...]] = {}
    lines = _text_lines(path, tell)
    for line, text in lines:
        if not text or text.startswith("#"):
            continue
        form = re.fullmatch(r"LEVEL (WORKLOAD|APPL|TASK|THREAD|SYSTEM|NODE|CPU) SIZE ([0-9]+)", text)
        if form is None:
            tell(line, f"{text!r} is not `LEVEL <level> SIZE <number>`, or a name more than the level before it has")
            continue
        level, size = form[1], int(form[2])
        if level in names:
            tell(line, f"level {level} stands there twice")
        of_level = [name for _, (_, name) in zip(range(size), lines, strict=False)]
        if len(of_level) < size:
            tell(line, f"level {level} announces {size} names and has {len(of_level)}")
        for position, name in enumerate(of_level, start=1):
            if not name:
                tell(line + position, f"name {position} of level {level} is empty")
        names[level] = tuple(of_level)
    return names


def _raise(path: Path) -> Damage:
    """The strict way to take damage."""

    def damage(line: int | None, why: str) -> None:
        raise TraceError(path, why if line is None else f"line {line}: {why}")

    return damage


def is_interval(number: int) -> bool:
    """Whether events of this type begin and end intervals; False for a type that is not one of ours."""
    event_type = event_types.type_of(number)
    return event_type is not None and event_type.role is event_types.Role.INTERVAL


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turns what can go wrong while a file is read into a TraceError."""
    try:
        yield
    except FileNotFoundError as error:
        raise TraceError(path, "there is no such file") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(path, f"its gzip data is cut off or damaged ({error})") from error
    except OSError as error:
        raise TraceError(path, f"it can't be read ({error.strerror or error})") from error


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _text_lines(path: Path, tell: Damage) -> Iterator[tuple[int, str]]:
    """Lines of a .pcf or .row, numbered from 1; told of what makes Paraver lose labels without a word."""
    with _reading(path):
        content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        tell(content.count(b"\n") + 1, "the last line has no end: the file is cut off")
    for line, raw in enumerate(content.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            tell(line, "it is not UTF-8")
            text = raw.decode("utf-8", "replace")
        if text.endswith("\r"):
            tell(line, "it ends in CR LF, and Paraver loses all labels")
            text = text.removesuffix("\r")
        elif text and not text.strip(" \t"):
            tell(line, "it holds nothing but blanks")
        yield line, text


def _text_blocks(path: Path, tell: Damage, block_bytes: int) -> Iterator[tuple[int, str]]:
    """(line number of the first line, whole lines without the last line end), from line 2 of a .prv on."""
    first_line, rest = 2, b""
    with _reading(path), _open(path) as file:
        file.readline()
        while chunk := file.read(block_bytes):
            whole, found, left = chunk.rpartition(b"\n")
            if not found:
                rest += chunk
                continue
            text, rest = rest + whole, left
            yield first_line, text.decode("utf-8", "replace")
            first_line += text.count(b"\n") + 1
    if rest:
        tell(first_line, "the last line has no end: the file is cut off")


def _parse(first_line: int, text: str, communicators_end: int, tell: Damage) -> Block:
    lines = pl.DataFrame({"text": [text]}).select(pl.col("text").str.split("\n").explode()).with_row_index("line", first_line)
    lines = lines.with_columns(pl.col("line").cast(pl.Int64))
    is_record = pl.col("text").str.contains(_RECORD_FORM)
    other = lines.filter(~is_record & ~pl.col("text").str.starts_with("#"))
    for line, bad in other.iter_rows():
        if line > communicators_end:
            tell(line, _what_is_wrong(bad))
        elif not _COMMUNICATOR_FORM.fullmatch(bad):
            tell(line, f"{_short(bad)} is no communicator, and the header announces one on this line")
    lines = lines.filter(is_record)
    numbers = _numbers(lines)
    if numbers.null_count():
        fields = lines.select("line", pl.col("text").str.split(":")).explode("text")
        too_large = fields.filter(pl.col("text").cast(pl.Int64, strict=False).is_null())
        for line, bad in too_large.iter_rows():
            tell(line, f"{_short(bad)} does not fit in 64 bits")
        lines = lines.join(too_large, on="line", how="anti")
    kind = pl.col("text").str.slice(0, 1)
    states = _fixed_width(lines.filter(kind == "1"), _STATE_COLUMNS)
    messages = _fixed_width(lines.filter(kind == "3"), _MESSAGE_COLUMNS)
    event_lines, pairs = _events(lines.filter(kind == "2"))
    records = pl.concat(
        [
            states.select("line", pl.lit(STATE, pl.Int64).alias("kind"), "cpu", "task", "thread", time="begin"),
            event_lines.select("line", pl.lit(EVENT, pl.Int64).alias("kind"), "cpu", "task", "thread", "time"),
            messages.select(
                "line",
                pl.lit(MESSAGE, pl.Int64).alias("kind"),
                cpu="send_cpu",
                task="send_task",
                thread="send_thread",
                time="logical_send",
            ),
        ]
    ).sort("line")
    return Block(first_line, records, states, pairs, messages)


def _numbers(lines: pl.DataFrame) -> pl.Series:
    """All numbers of some lines, one after the other; null where one does not fit in 64 bits."""
    numbers: pl.Series = lines["text"].str.split(":").explode().cast(pl.Int64, strict=False)
    return numbers


def _fixed_width(lines: pl.DataFrame, columns: tuple[str, ...]) -> pl.DataFrame:
    numbers = _numbers(lines)
    each = {name: numbers.gather_every(len(columns), at) for at, name in enumerate(columns) if name not in _ALWAYS_THE_SAME}
    return pl.DataFrame({"line": lines["line"], **each})


def _events(lines: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(a row per event line, a row per type:value pair)."""
    numbers = _numbers(lines)
    # A line is pairs all through: 2:cpu, appl:task, thread:time, type:value, ...
    first, second = numbers.gather_every(2), numbers.gather_every(2, 1)
    count = lines["text"].str.count_matches(":", literal=True).cast(pl.Int64) // 2 + 1
    head = count.cum_sum() - count  # of the line's first pair
    event_lines = pl.DataFrame(
        {
            "line": lines["line"],
            "cpu": second.gather(head),
            "task": second.gather(head + 1),
            "thread": first.gather(head + 2),
            "time": second.gather(head + 2),
            "pairs": count - 3,
        }
    )
    pairs = event_lines.with_columns(position=pl.int_ranges(-3, "pairs")).drop("pairs").explode("position")
    pairs = pairs.with_columns(type=first, value=second).filter(pl.col("position") >= 0)
    return event_lines.drop("pairs"), pairs.select(_EVENT_COLUMNS)


def _no_records() -> Block:
    return _parse(2, "#", 1, lambda line, why: None)


_FIELDS = {"1": "8", "2": "6 and one or more type:value pairs", "3": "15"}


def _what_is_wrong(text: str) -> str:
    """One sentence about a line that is no record."""
    if text.endswith("\r"):
        return "it ends in CR LF; lines of a trace end in LF"
    if not text:
        return "it is empty"
    if not text.strip():
        return "it holds nothing but blanks"
    fields = text.split(":")
    if fields[0] not in _FIELDS:
        return f"{_short(text)} is no record: its kind is none of 1 (state), 2 (event), 3 (message)"
    for position, number in enumerate(fields, start=1):
        if not re.fullmatch(r"-?[0-9]+", number):
            return f"{_short(text)} is no record: field {position}, {_short(number)}, is no whole number"
    if not re.fullmatch({"1": "8", "3": "15"}.get(fields[0], r"\d*[02468]"), str(len(fields))) or len(fields) < 8:
        expected = _FIELDS[fields[0]]
        return f"{_short(text)} is no record: it has {len(fields)} fields, a record of kind {fields[0]} has {expected}"
    if fields[2] != "1" or (fields[0] == "3" and fields[8] != "1"):
        return f"{_short(text)} is no record: it names an application that is not in the header"
    return f"{_short(text)} is no record: a number is negative"


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
