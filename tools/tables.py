"""Writes the generated tables of the documentation: `python tools/tables.py`.

A generated table is between `<!-- table NAME -->` and `<!-- end -->`. A test checks that each page has the current tables.
The manual page is written too.
"""

import re
import runpy
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import typer

from nsys2prv import errors
from nsys2prv.cli.app import app
from nsys2prv.cli.options import SHARED_OPTIONS
from nsys2prv.efficiency import comparison_tables as of_comparisons
from nsys2prv.efficiency import table_registry, what_if
from nsys2prv.efficiency.findings.engine import HOST_RULES, RULES
from nsys2prv.efficiency.findings.finding import Threshold
from nsys2prv.efficiency.findings.rule import GENERAL_THRESHOLDS
from nsys2prv.efficiency.metrics import TREES
from nsys2prv.efficiency.result_tables import Table
from nsys2prv.paraver.views.view_table import GROUPS, MESSAGES, View, event_type, read_view_table
from nsys2prv.sources.communication import message_ends as messages_between_ranks
from nsys2prv.sources.counters import cpu_counters, network, plugins
from nsys2prv.sources.cuda import device_memory
from nsys2prv.sources.nvtx import nvtx_on_gpu, nvtx_ranges
from nsys2prv.sources.registry import EVENT_TYPES, SOURCES
from nsys2prv.sources.source import RowKind
from nsys2prv.timeline import coverage
from nsys2prv.vocabulary import event_types

CHECKOUT = Path(__file__).resolve().parents[1]
PAGES = (CHECKOUT / "docs" / "efficiency.md", *sorted((CHECKOUT / "docs" / "reference").glob("*.md")))

_TABLE = re.compile(r"(<!-- table (?P<name>[0-9a-z -]+) -->\n).*?(<!-- end -->)", re.DOTALL)

_TAGS = {
    event_types.TAG_KERNEL_LAUNCH: "API call to the kernel or graph execution that it launches",
    event_types.TAG_MEMORY_LAUNCH: "API call to the copy or memset that it starts; the size is in bytes",
    event_types.TAG_NCCL_MESSAGE: "`ncclSend` to `ncclRecv`; the size is in bytes",
    event_types.TAG_NCCL_NETWORK: "message of NCCL over the network, from its post to its completion; the size is in bytes",
    event_types.TAG_CRITICAL_PATH: "the critical path goes to another row (`--critical-path`)",
}

_VIEW_ROWS = {"streams": "streams", "hosts": "host threads", "hosts_and_streams": "threads and streams", "metrics": "GPUs"}

_SERIES = {
    device_memory.DEVICE_MEMORY: ("*kind of memory*", "one type per kind"),
    event_types.GPU_METRIC: ("*name of the metric*", "one type per metric"),
    nvtx_ranges.NVTX_INTEGER_FIELD: ("*domain field*", "one type per field"),
    nvtx_ranges.NVTX_REAL_FIELD: ("*domain field*", "one type per field"),
    nvtx_ranges.NVTX_TEXT_FIELD: ("*domain field*", "one type per field"),
    event_types.NVTX_PUSHPOP: ("*name*", "one type per domain"),
    nvtx_on_gpu.NVTX_PUSHPOP_ON_GPU: ("*name*", "one type per domain"),
    network.NETWORK_METRIC: ("*name of the metric (unit)*", "one type per metric"),
    cpu_counters.CPU_METRIC: ("*name of the event* (per second)", "one type per event"),
    cpu_counters.CPU_REAL_METRIC: ("*name of the metric (unit)*", "one type per metric"),
    cpu_counters.SYSTEM_METRIC: ("*name of the metric*", "one type per metric"),
    plugins.PLUGIN_METRIC: ("*plugin, type and field*", "one type per integer field"),
    plugins.PLUGIN_REAL_METRIC: ("*plugin, type and field*", "one type per real field"),
    plugins.PLUGIN_TEXT: ("*plugin, type and field*", "one type per text field"),
}

_ROWS = {
    RowKind.THREAD: "host thread",
    RowKind.STREAM: "CUDA stream",
    RowKind.DEVICE: "`Metrics GPU` of the process",
    RowKind.GPU: "`Metrics GPU`",
    RowKind.COMPONENT: "component of the node, by name",
}


def event_type_rows() -> str:
    """Every event type; types that differ only in a depth or level share a line."""
    rows = []
    for types in _consecutive(sorted(EVENT_TYPES, key=lambda event_type: event_type.number)):
        first, last = types[0], types[-1]
        member, series = _SERIES.get(first.number, ("", ""))
        values = f"names: {first.values.name}" if first.values is not None else first.unit
        lanes = f"where they overlap, one type per lane: {first.lanes}, ..." if first.lanes else ""
        number, label = _numbers(first), first.label.format(member)
        if len(types) > 1:
            number = f"{number} to {last.number}"
            lowest, highest = (int(re.sub(r"\D", "", one.label)) for one in (first, last))
            label = re.sub(r"\d+", f"{lowest} to {highest}", label)
        rows.append((number, label, first.role.value, "; ".join(filter(None, (values, series, lanes)))))
    return _table(("type", "label", "what it is", "values"), rows)


def _consecutive(types: Iterable[event_types.EventType]) -> list[list[event_types.EventType]]:
    """Groups of types with consecutive numbers whose labels differ in one number only."""
    groups: list[list[event_types.EventType]] = []
    for found in types:
        former = groups[-1][-1] if groups else None
        if (
            former is not None
            and (former.number + 1, former.role, former.values) == (found.number, found.role, found.values)
            and re.sub(r"\d+", "", former.label) == re.sub(r"\d+", "", found.label) != found.label
        ):
            groups[-1].append(found)
        else:
            groups.append([found])
    return groups


def moved_types() -> str:
    """Event types that had another number in earlier versions."""
    moved = sorted((one.former, one.number, one.label) for one in EVENT_TYPES if one.former)
    rows = ((label, str(former), str(number)) for former, number, label in moved)
    return _table(("events", "number in earlier versions", "number today"), rows)


def value_sets() -> str:
    """Every set of names that event types share, and the fixed numbers in it."""
    sets = {found.values.name: found.values for found in EVENT_TYPES if found.values is not None}
    return _table(
        ("names", "event types", "fixed numbers", "further names from"),
        (
            (
                name,
                _of_types([found for found in EVENT_TYPES if found.values is values]),
                _fixed(values.fixed.items()),
                str(values.first),
            )
            for name, values in sets.items()
        ),
    )


def _of_types(found: list[event_types.EventType]) -> str:
    return ", ".join(
        f"{types[0].number} to {types[-1].number}"
        if len(types) > 1
        else f"{types[0].number}{', ...' if types[0].is_series else ''}"
        for types in _consecutive(found)
    )


def states() -> str:
    """Every state."""
    return _table(("state", "label"), ((str(state.number), state.label) for state in event_types.STATES))


def messages() -> str:
    """Every tag of messages."""
    tags = [(str(tag), text) for tag, text in _TAGS.items()]
    return _table(
        ("tag", "from and to"),
        [*tags, ("the MPI tag", "MPI send to receive; the size is that of the send, in bytes")],
    )


def exit_codes() -> str:
    """Every exit code; those of errors are in their docstrings."""
    codes = [(0, "done"), (errors.Nsys2prvError.exit_code, "`check`: the trace is not valid")]
    for error in errors.Nsys2prvError.__subclasses__():
        first_line = str(error.__doc__).partition("\n")[0].removesuffix(".")
        codes.append((error.exit_code, first_line[0].lower() + first_line[1:]))
    codes.append((errors.LEFT_OUT_EXIT_CODE, "done, but unreadable reports were left out (`--keep-going`)"))
    codes += [
        (errors.INTERRUPTED_EXIT_CODE, "Ctrl-C"),
        (errors.NOT_READ_EXIT_CODE, "the reader of stdout (such as `head`) closed it early"),
        (errors.TERMINATED_EXIT_CODE, "SIGTERM, as from a batch system; other signals: 128 and their number"),
    ]
    return _table(("code", "when"), ((str(code), text) for code, text in sorted(codes)))


def sources() -> str:
    """Every source by the name that --only and --skip take."""
    names = dict.fromkeys(source.name for source in SOURCES)
    rows = []
    for name in names:
        of_name = [source for source in SOURCES if source.name == name]
        tables = dict.fromkeys(f"`{source.table}`" for source in of_name)
        titles = dict.fromkeys(_without_brackets(source.title) for source in of_name)
        rows.append((f"`{name}`", ", ".join(titles), ", ".join(tables)))
    of_messages = ", ".join(f"`{table}`" for table in messages_between_ranks.TABLES)
    rows.append(
        (f"`{messages_between_ranks.NAME}`", "Messages between ranks, from `mpi`, `nccl` and `nvtx-marks`", of_messages)
    )
    return _table(("source", "what it is", "tables of the export"), rows)


def source_tables() -> str:
    """Every table that is read, with its columns."""
    rows = [
        (
            f"`{source.name}`",
            source.title,
            f"`{source.table}`",
            source.since or "first",
            ", ".join(source.required),
            ", ".join(source.optional),
            _of_types(list(source.types)),
            _ROWS[source.row],
        )
        for source in sorted(SOURCES, key=lambda source: source.name)
    ]
    head = ("source", "what it is", "table", "since schema", "required columns", "optional columns", "event types", "row")
    return _table(head, rows)


def assumptions() -> str:
    """What sources assume of tables that no real report was available for."""
    tables: dict[tuple[str, str], list[str]] = {}
    for name, table, text in sorted((source.name, source.table, source.assumption) for source in SOURCES if source.assumption):
        tables.setdefault((name, text), []).append(f"`{table}`")
    return _table(
        ("source", "tables", "assumption"), ((f"`{name}`", ", ".join(names), text) for (name, text), names in tables.items())
    )


def left_out() -> str:
    """Tables of events that no source reads."""
    return _other_tables(coverage.LEFT_OUT_TABLES)


def no_events() -> str:
    """Tables without events."""
    return _other_tables(coverage.NO_EVENTS)


def _other_tables(contents: Mapping[str, str]) -> str:
    return _table(("tables", "contents"), ((_names(pattern), what) for pattern, what in contents.items()))


def _names(pattern: str) -> str:
    """A regular expression as names with `*` for anything."""
    alternatives = re.split(r"\|(?![^(]*\))", pattern)
    return ", ".join(f"`{name.replace('.*', '*').replace('|', ' or ')}`" for name in alternatives)


def efficiency_head() -> str:
    """The keys beside the tables in the JSON of `efficiency`."""
    return _keys(table_registry.HEAD)


def comparison_head() -> str:
    """The keys beside the tables in the JSON of `compare`."""
    return _keys(of_comparisons.HEAD)


def _keys(head: Iterable[tuple[str, str, str]]) -> str:
    return _table(("key", "type", "what it is"), ((f"`{key}`", kind, meaning) for key, kind, meaning in head))


def efficiency_tables() -> str:
    """Every table of `efficiency` with its columns."""
    return _with_columns(table_registry.TABLES)


def comparison_tables() -> str:
    """Every table of `compare` with its columns."""
    return _with_columns(of_comparisons.TABLES)


def what_if_head() -> str:
    """The keys beside the tables in the JSON of `whatif`."""
    return _keys(what_if.HEAD)


def what_if_tables() -> str:
    """Every table of `whatif` with its columns, but those of `efficiency`."""
    return _with_columns(table for table in what_if.TABLES if table not in table_registry.TABLES)


def efficiency_tree(name: str) -> str:
    """Every efficiency of a tree; = and x as in the output of `efficiency`."""
    tree = next(tree for tree in TREES if tree.name == name)
    rows = []
    first: dict[str | None, str] = {}
    for one in tree.efficiencies:
        is_factor = one.parent is not None and not one.product_of
        sign = ("=" if first.setdefault(one.parent, one.name) == one.name else "x") if is_factor else ""
        title = " ".join([*["="] * (tree.level(one) - 1), sign, one.title]).strip()
        rows.append((title, one.formula, one.reads_as if one.loss else ""))
    return _table(("efficiency", "formula", "meaning of a low value"), rows)


def _with_columns(tables: Iterable[Table]) -> str:
    types = {pl.String: "text", pl.Int64: "integer", pl.Float64: "number"}
    pieces = []
    for table in tables:
        when = f" It has rows only with {table.when}." if table.when else ""
        columns = _table(
            ("column", "type", "unit", "what it is"),
            ((f"`{column.name}`", types[column.dtype], column.unit, column.meaning) for column in table.columns),
        )
        pieces.append(f"### `{table.name}`\n\n{table.title}. Each row is {table.rows}.{when}\n\n{columns}")
    return "\n" + "\n".join(pieces) + "\n"


def finding_rules() -> str:
    """Every rule of findings."""
    pieces = []
    for rule in (*RULES, *HOST_RULES):
        needs = ", ".join(need.text for need in rule.needs)
        parts = {"Pattern": rule.sees, "Needs": needs, "Cost": rule.cost, "View": f"`{rule.view}`", "Advice": rule.advice}
        lines = "".join(f"- {part}: {text if text.endswith('.') else f'{text}.'}\n" for part, text in parts.items())
        pieces.append(f"### `{rule.kind}`\n\n{rule.title}\n\n{lines}")
    return "\n" + "\n".join(pieces) + "\n"


def finding_thresholds() -> str:
    """Every threshold of the rules."""
    thresholds = [("all rules", threshold) for threshold in GENERAL_THRESHOLDS]
    thresholds += [(f"`{rule.kind}`", threshold) for rule in (*RULES, *HOST_RULES) for threshold in rule.thresholds]
    rows = [(rule, threshold.what, _threshold(threshold), threshold.reason) for rule, threshold in thresholds]
    return _table(("rule", "what is compared", "threshold", "why"), rows)


def _threshold(threshold: Threshold) -> str:
    if threshold.unit == "0 to 1":
        return f"{threshold.value * 100:g} %"
    if threshold.unit == "ns":
        return f"{threshold.value / 1000:g} µs" if threshold.value < 1_000_000 else f"{threshold.value / 1e6:g} ms"
    return f"{threshold.value / 1024:g} KiB" if threshold.unit == "bytes" else f"{threshold.value:g}"


def views(group: str) -> str:
    """Every view of a group."""
    table = read_view_table()
    rows = [
        (
            f"`{view.name}`",
            view.general_title,
            _shows(view),
            _needs(view, [*table.metrics, *table.values, MESSAGES]),
            view.text,
        )
        for view in table.views
        if view.group == group
    ]
    return _table(("view", "title", "kind", "needs", "description, and how to read it"), rows)


def pictures(group: str) -> str:
    """The views of a group that `docs/views/` has pictures of, as Paraver shows them."""
    return "".join(
        f"\n### {view.general_title}\n\n`{view.path}`\n\n![{view.general_title}](../views/{view.name}.png)\n"
        for view in read_view_table().views
        if view.group == group and (CHECKOUT / "docs" / "views" / f"{view.name}.png").exists()
    )


def _shows(view: View) -> str:
    files = f"; a file for each *{event_type(view.split_by).label.format('...')}*" if view.split_by else ""
    rows = " of GPUs" if view.devices else f" of {_VIEW_ROWS[view.rows]}" if view.rows else ""
    return f"{view.kind}{rows}{files}"


def _needs(view: View, small_names: list[str]) -> str:
    def text(name: str) -> str:
        return name.replace("_", " ") if name in small_names else str(event_type(name).number)

    return ", ".join(" or ".join(map(text, need)) for need in view.needs)


COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def command(name: str) -> str:
    """What a command does, and its arguments and options, as its `--help` shows them."""
    found = COMMANDS[name]
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in found.help.split("\n\n"))
    of_command = [part for part in found.params if part.param_type_name == "argument"]
    arguments = " ".join(part.metavar if part.required else f"[{part.metavar}]" for part in of_command)
    rows = [(_spelling(part), _escaped(part.help) + default(part)) for part in found.params if part.name not in SHARED_OPTIONS]
    return f"\n    nsys2prv {name} {arguments}\n\n{_escaped(text)}\n\n{_table(('argument or option', ''), rows)}"


def shared_options() -> str:
    """Options of the program and of all commands."""
    rows = [(_spelling(part), _escaped(part.help)) for part in COMMANDS["translate"].params if part.name in SHARED_OPTIONS]
    return _table(("option", ""), [*rows, ("`--help`, `-h`", "Show what a command does, and its arguments and options.")])


def _spelling(part: Any) -> str:
    """What to type: `--out`, `-o OUT`."""
    if part.param_type_name == "argument":
        text = f"`{part.metavar}`"
    else:
        options = ", ".join(f"`{option}`" for option in part.opts)
        text = options if part.is_flag else f"{options[:-1]} {part.metavar or part.name.upper()}`"
    return text.replace("|", "\\|")


def default(part: Any) -> str:
    """The default of an option, where it has one to show."""
    if not part.show_default or not part.default:
        return ""
    return f" Default: `{part.default.value if isinstance(part.default, Enum) else part.default}`."


def _escaped(text: str) -> str:
    """Help as Markdown: special characters are escaped, except in code."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(piece if piece.startswith("`") else re.sub(r"([\\*<>|])", r"\\\1", piece) for piece in pieces)


TABLES: dict[str, Callable[[], str]] = {
    **{f"command {name}": partial(command, name) for name in COMMANDS},
    "shared options": shared_options,
    **{f"views {group}": partial(views, group) for group in GROUPS},
    **{f"pictures {group}": partial(pictures, group) for group in GROUPS if pictures(group)},
    "event types": event_type_rows,
    "moved types": moved_types,
    "value sets": value_sets,
    "states": states,
    "messages": messages,
    "exit codes": exit_codes,
    "sources": sources,
    "source tables": source_tables,
    "assumptions": assumptions,
    "left out": left_out,
    "no events": no_events,
    "finding rules": finding_rules,
    "finding thresholds": finding_thresholds,
    **{f"{tree.name} efficiencies": partial(efficiency_tree, tree.name) for tree in TREES},
    "efficiency head": efficiency_head,
    "efficiency tables": efficiency_tables,
    "comparison head": comparison_head,
    "comparison tables": comparison_tables,
    "what if head": what_if_head,
    "what if tables": what_if_tables,
}


def rewritten(page: str) -> str:
    """The text of a page with current tables."""
    return _TABLE.sub(lambda found: f"{found[1]}{TABLES[found['name']]()}{found[3]}", page)


def _numbers(found: event_types.EventType) -> str:
    if not found.is_series:
        return str(found.number)
    first = [str(found.member(index)) for index in range(min(found.members, 2))]
    return f"{', '.join(first)}{', ...' if found.members > 2 else ''} then {found.overflow}, ..."


def _fixed(numbers: Iterable[tuple[str, int]]) -> str:
    ordered = sorted((number, label) for label, number in numbers)
    shown = [f"{number} {label}" for number, label in ordered[:20]]
    return ", ".join(shown) + (f", ... to {ordered[-1][0]}" if len(ordered) > 20 else "")


def _without_brackets(title: str) -> str:
    return title.split(" (")[0]


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")
    # The manual page has the same texts.
    runpy.run_path(str(CHECKOUT / "tools" / "manual.py"), run_name="__main__")
