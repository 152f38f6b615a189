"""The content of the page, in the order in which it is read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from markdown_it import MarkdownIt
from markupsafe import Markup

from nsys2prv.efficiency import table_registry
from nsys2prv.efficiency.meters.absent_tables import PART_COLUMNS
from nsys2prv.efficiency.metrics import TREES
from nsys2prv.efficiency.outputs.page import bar_rows, charts
from nsys2prv.efficiency.outputs.page.closeup_plots import closeup_figures, closeup_links, iteration_links
from nsys2prv.efficiency.outputs.page.colours import CAUSES, activities_of, legend
from nsys2prv.efficiency.outputs.page.first_screen import first_screen, places_of, small_activity
from nsys2prv.efficiency.outputs.page.page_tables import PageTable, pack
from nsys2prv.efficiency.outputs.page.plot import unit
from nsys2prv.efficiency.outputs.page.template import FOLDER, environment, hashes, json_in_html, part, script_of_page
from nsys2prv.efficiency.outputs.page.time_charts import EFFICIENCY_LINES, Activity, TimeCharts, memory_plots
from nsys2prv.efficiency.outputs.text import iterations_line, reading, undecided
from nsys2prv.efficiency.result_tables import Table
from nsys2prv.efficiency.verdict import WINDOW_TITLES, level
from nsys2prv.vocabulary import wording

LARGEST = 2_900_000
"""Bytes that a page has at most, as far as leaving out rows of tables can do it."""
MOST_HISTOGRAMS = 16
MOST_SAMPLED = 24
"""Kernels with a histogram, and sampled metrics with a chart."""
_MOST_BARS = 12
"""Devices with a bar each: those with least computing."""
_LARGE_MAP = (16, 1.2, 480)
"""Height of a row of the large map, pixels; at least; and of all rows, where they are many."""
_FEW_DEVICES = 8
"""With as many the small map of the first screen shows all that a large one does."""
_CELLS = (60_000, 40_000, 25_000, 15_000, 10_000, 5_000, 2_000, 1_000, 500, 200, 100)
"""Cells of one table: as many as fit."""
SHORT = {
    **dict.fromkeys(("absent_parts", "absent_calls", "absent_ranges", "absent_functions", "absent_stretches"), 8_000),
    **dict.fromkeys(("absent_regions", "absent_iterations"), 2_000),
    "iterations": 20_000,
    **dict.fromkeys(("finding_devices", "gaps", "kernel_devices", "overlap", "threads", "sampled_kernels"), 8_000),
    **dict.fromkeys(("critical_path", "critical_path_rows", "critical_path_totals", "task_iterations"), 4_000),
}
"""Tables of which only the first rows are of interest, and their cells."""
_MOST_NAMES = 12
"""Hosts, inputs and the like that are named; the rest are counted."""

_NOT_SHOWN = ("nccl",)
"""The page says above all tables what NCCL kernels count as."""
DRAWN = frozenset({"run", "tree", "findings", "finding_numbers", "device_bins", "kernel_histograms", "sampled_bins",
                    "clock_bins", "memory_bins", "closeups", "closeup_bars"})  # fmt: skip
"""Tables that the page shows in another form."""

_GROUPS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("devices-and-hosts", "Devices and hosts", "devices", ("nodes", "devices", "useful", "tasks", "threads")),
    ("regions", "Regions, iterations, time", "iterations", ("iterations", "windows", "task_iterations", "nvtx_tree",
                                                                                     "regions", "bins")),
    ("kernels", "Kernels", "kernels", ("kernels", "families", "kernel_modes", "kernel_devices")),
    ("communication", "Communication", "nccl", ("nccl_exposure", "nccl", "overlap_summary", "overlap", "nccl_waits",
                                                "nccl_stragglers", "nccl_collectives", "mpi_calls")),
    ("absent", "Time without computation", "compute-absent-time", ("absent_time", "absent_regions", "absent_iterations",
                                                                   "absent_parts", "absent_calls", "absent_ranges",
                                                                   "absent_functions", "absent_stretches")),
    ("path", "Critical path", "critical-path", ("critical_path_totals", "critical_path",
                                                "critical_path_rows")),
    ("gaps", "Gaps and calls", "gaps", ("gaps", "longest_gaps", "cuda_calls", "os_calls")),
    ("memory", "Memory and copies", "memory-in-use", ("memory_in_use", "memory_operations")),
    ("metrics", "Sampled metrics", "sampled-metrics", ("sampled_summary", "sampled_kernels")),
)  # fmt: skip
"""Groups of tables: id, title, where their definitions are, names."""
_ELSEWHERE = frozenset({"finding_devices", "finding_checks", "clocks"})
"""Tables in the sections of findings and of clocks."""
_OTHERS = ("more", "More", "devices")

_NCCL_POLICIES = {
    "communication": "NCCL kernels count as communication, as in BSC's views",
    "useful": "NCCL kernels count as useful, as in TALP",
}


def page(head: Mapping[str, Any], tables: Mapping[str, pl.DataFrame]) -> str:
    """An `EfficiencyResult` as one HTML file, which loads nothing else.

    It is smaller than LARGEST bytes, except where the drawings alone take more. Of tables that are too long for that the last
    rows are left out, and the page says so.
    """
    frames = {table.name: tables.get(table.name, table.empty) for table in table_registry.TABLES}
    content = _content(head, frames)
    maps = {one["id"]: one["packed"] for one in content["maps"]}
    island = {"maps": maps, "places": places_of(content["findings"]), "time": content["time"], "title": str(head["title"])}
    scripts = [script_of_page("page.js")]
    template = environment().get_template("page.html.j2")

    def rendered(packed: Mapping[str, PageTable]) -> str:
        return template.render(
            **content,
            head=head,
            tables=packed,
            groups=_groups(packed),
            island=json_in_html({**island, "tables": {name: one.packed for name, one in packed.items()}}),
            scripts=scripts,
            style=Markup(part("first_screen.css") + part("rows.css") + part("page.css")),
            allowed_scripts=hashes(scripts),
        )

    least = _fitting(frames, 0)
    without_tables = len(rendered(least).encode()) - sum(one.size for one in least.values())
    return rendered(_fitting(frames, LARGEST - without_tables))


def definitions() -> tuple[Markup, list[str]]:
    """docs/efficiency.md as HTML, and the ids of its headings; links to other pages become plain text."""
    package = Path(__file__).resolve().parents[3]
    found = next(path for path in (FOLDER / "efficiency.md", package.parent / "docs" / "efficiency.md") if path.is_file())
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    ids: list[str] = []
    kept = []
    tokens = markdown.parse(re.sub(r"<!--.*?-->\n?", "", found.read_text(encoding="utf-8"), flags=re.DOTALL))
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == "heading_open" and following is not None:
            ids.append(f"definition-{re.sub(r'[^a-z0-9]+', '-', following.content.lower()).strip('-')}")
            token.attrSet("id", ids[-1])
        if token.type in ("heading_open", "heading_close"):
            # Below the heading of the section.
            token.tag = f"h{min(int(token.tag[1:]) + 1, 6)}"
        if token.children:
            token.children = [child for child in token.children if child.type not in ("link_open", "link_close")]
        kept.append(token)
    return Markup(markdown.renderer.render(kept, markdown.options, {})), ids


def _content(head: Mapping[str, Any], frames: Mapping[str, pl.DataFrame]) -> dict[str, Any]:
    """Everything that the template shows except tables."""
    over_time = TimeCharts.of(frames)
    timeline: list[dict[str, Any]] = []
    maps: list[dict[str, Any]] = []
    sampled: list[dict[str, Any]] = []
    small: Activity | None = None
    if over_time is not None:
        of_devices = Activity.of(frames["bins"], frames["device_bins"], frames["devices"])
        small = small_activity(frames)
        timeline = _timeline(over_time, of_devices, activities_of(frames["device_bins"]))
        maps = _maps(over_time, small, of_devices)
        sampled = [
            {"title": str(metric), "drawn": over_time.sampled(str(metric), rows).html()}
            for (metric,), rows in _parts(frames["sampled_bins"], "metric")[:MOST_SAMPLED]
        ]
    text_of_definitions, ids = definitions()
    return {
        **first_screen(head, frames, over_time, small),
        "title": head["title"],
        "reading": _NCCL_POLICIES[head["nccl"]] if frames["nccl"].height else "",
        "facts": _facts(head, frames),
        "trees": _trees(frames["tree"], has_devices=frames["devices"].height > 0),
        "time": None if over_time is None else {"begin": over_time.axis.low, "end": over_time.axis.high},
        "timeline": timeline,
        "maps": maps,
        "wall": _wall_time(frames["absent_time"]),
        "idle": _idle(frames["gaps"]),
        "closeups": closeup_figures(frames),
        "closeup_links": closeup_links(frames),
        "iteration_chart": _iterations(frames),
        "device_chart": _devices(frames["devices"]),
        "icicle": bar_rows.icicle(frames["nvtx_tree"]),
        "bandwidth": _bandwidth(frames["nccl"]),
        "families": bar_rows.family_tree(frames["families"], frames["kernels"]) if frames["families"].height else [],
        "unit_activity": bar_rows.unit_activity(frames["sampled_summary"], frames["families"]),
        "path": bar_rows.path_rows(frames["critical_path_totals"]),
        "sampled": sampled,
        "memory": [
            {"title": one.title, "reading": one.reading, "drawn": one.plot.html(), "legend": legend(one.legend)}
            for one in ([] if over_time is None else memory_plots(over_time, frames))
        ],
        "histograms": _histograms(frames),
        "all_kernels": frames["kernels"].height,
        "clocks": _clocks(frames),
        "undecided": undecided(frames["nccl_waits"]),
        "definitions": text_of_definitions,
        "defined": ids,
    }


def _timeline(over_time: TimeCharts, of_devices: Activity, activities: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    return [
        {
            "title": "Device activity",
            "reading": "The height of a colour is its share of the time, as a mean over all devices; the empty rest is idle "
            "time.",
            "legend": legend(activities),
            "drawn": over_time.activity(of_devices.shares.mean(axis=0)).html(),
        },
        {
            "title": "Efficiencies",
            "reading": "Each line is an efficiency of the device tree in each bin; where the first one drops, the factor that "
            "drops too is the cause.",
            "legend": legend(EFFICIENCY_LINES),
            "drawn": over_time.efficiencies().html(),
        },
    ]


def _facts(head: Mapping[str, Any], frames: Mapping[str, pl.DataFrame]) -> list[tuple[str, list[str]]]:
    run = frames["run"].row(0, named=True)
    hosts = frames["nodes"]["node"].to_list()
    numbers = [rank for rank in frames["tasks"]["rank"].unique().sort() if rank is not None]
    window = head["window"]
    time = wording.time(window["length_ns"])
    least, most = (head["length_interval"][name] for name in ("least_ns", "most_ns"))
    if least != most:
        time += f" (clocks allow {wording.time(least)} to {'more' if most is None else wording.time(most)})"
    begin, end = window["offset_ns"], window["offset_ns"] + window["length_ns"]
    measured = f"{WINDOW_TITLES[window['name']]}, {wording.time(begin)} to {wording.time(end)} of the trace"
    versions = [f"nsys {version}" for version in head.get("recorders", ())] + [f"nsys2prv {head['nsys2prv']}"]
    models = head.get("gpus", ())
    facts = [
        ("hosts", [f"{len(hosts):,}", *_some(hosts)]),
        ("ranks", [f"{len(numbers):,}", wording.ranges(numbers)] if numbers else ["not known"]),
        ("devices", [f"{run['devices']:,}", *_some(models)]),
        ("processes that use a GPU" if run["devices"] else "processes", [f"{run['processes']:,}"]),
        ("their threads that call CUDA or MPI" if run["devices"] else "their threads", [f"{run['threads']:,}"]),
        ("time", [time]),
        ("measured", [measured]),
        ("iterations", [iterations_line(head, frames["iterations"])]),
        # A trace has it to the minute.
        ("began", [f"{str(head['began'])[:16].replace('T', ' ')} UTC"] if head.get("began") else []),
        ("versions", versions),
        ("NCCL", [_NCCL_POLICIES[head["nccl"]]]),
        ("options", [f"{name}: {_plain(value)}" for name, value in head["options"].items()]),
        (head["input_kind"], _some(head["inputs"])),
    ]
    return [(name, values) for name, values in facts if values]


def _some(names: Sequence[str]) -> list[str]:
    more = len(names) - _MOST_NAMES
    return [str(name) for name in names] if more <= 0 else [*map(str, names[:_MOST_NAMES]), f"and {more:,} more"]


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _trees(tree: pl.DataFrame, *, has_devices: bool) -> list[dict[str, Any]]:
    rows = tree.to_dicts()
    trees = []
    for title, which in ((one.title if has_devices else one.title_without_gpus, one.name) for one in TREES):
        leaves = []
        seen: set[str | None] = set()
        for row in (row for row in rows if row["tree"] == which):
            below = [other for other in rows if other["parent"] == row["metric"] and other["tree"] == which]
            factors = [other for other in below if other["product_of"] is None]
            is_factor = row["parent"] is not None and row["product_of"] is None
            sign = ("×" if row["parent"] in seen else "=") if is_factor else ""
            seen.add(row["parent"])
            product = " × ".join(wording.percent(other["value"]) for other in factors)
            says = reading(row["metric"], row["value"])
            leaves.append(
                {
                    **row,
                    "sign": sign,
                    "percent": wording.percent(row["value"]),
                    "product": product,
                    "says": says,
                    "grade": level(row["value"]),
                }
            )
        if leaves:
            trees.append({"id": which, "title": title, "leaves": leaves})
    return trees


def _maps(over_time: TimeCharts, small: Activity, of_devices: Activity) -> list[dict[str, Any]]:
    """The small map, and a large one by device where the small one does not show each row well."""
    maps: list[dict[str, Any]] = [
        {"id": "small", "drawn": None, "rows": len(small.rows), "groups": [], "packed": small.narrowed().as_json()}
    ]
    rows = len(of_devices.rows)
    if rows > _FEW_DEVICES:
        usual, least, most = _LARGE_MAP
        height = round(min(usual * rows, max(most, least * rows)))
        plot = over_time.heat_map(of_devices, "What each device does over time", height)
        plot.attributes["data-map"] = "large"
        packed = of_devices.narrowed().as_json()
        maps.append({"id": "large", "drawn": plot.html(), "rows": rows, "groups": of_devices.groups, "packed": packed})
    return maps


def _iterations(frames: Mapping[str, pl.DataFrame]) -> dict[str, Any] | None:
    rows = frames["task_iterations"]
    if rows["length_ns"].count() == 0:
        return None
    plot, said, entries = charts.iterations(rows, iteration_links(frames["closeups"]))
    return {"drawn": plot.html(), "said": said, "legend": legend(entries)}


def _devices(rows: pl.DataFrame) -> dict[str, Any] | None:
    if rows.height <= 1:
        return None
    plot, far = charts.devices(rows)
    return {"drawn": plot.html(), "far": far}


def _bandwidth(rows: pl.DataFrame) -> dict[str, Any] | None:
    found = charts.bandwidth(rows)
    return None if found is None else {"drawn": found[0].html(), "legend": legend(found[1])}


def _idle(gaps: pl.DataFrame) -> dict[str, Any] | None:
    """Gaps of all devices together, by length."""
    columns = [column for column, *_ in CAUSES]
    classes = gaps.group_by("from_ns", "to_ns").agg(pl.col("count", "total_ns", *columns).sum()).sort("from_ns")
    if not classes["total_ns"].sum():
        return None
    names = [_class(begin, end) for begin, end in classes.select("from_ns", "to_ns").iter_rows()]
    rows, present = bar_rows.idle_rows(classes.with_columns(pl.Series("class", names)))
    return {"rows": rows, "legend": legend(present)}


def _wall_time(devices: pl.DataFrame) -> dict[str, Any] | None:
    """Mean of all devices, and those with least computing: what the wall time went to."""
    if devices.is_empty():
        return None
    rows, present = bar_rows.wall_rows(devices, _MOST_BARS)
    return {"rows": rows, "legend": legend(present)}


def _class(begin: int, end: int | None) -> str:
    """A class of lengths, which begin and end at round times.

    >>> _class(0, 1000), _class(100_000, 1_000_000), _class(10**9, None)
    ('< 1 µs', '100 µs to 1 ms', '≥ 1 s')
    """
    low, high = (None if one is None else f"{one // unit(one)[0]:,} {unit(one)[1]}" for one in (begin, end))
    return f"≥ {low}" if high is None else f"< {high}" if not begin else f"{low} to {high}"


def _histograms(frames: Mapping[str, pl.DataFrame]) -> list[dict[str, Any]]:
    by_kernel = {row["kernel"]: row for row in frames["kernels"].to_dicts()}
    shown = []
    for (kernel,), bars in _parts(frames["kernel_histograms"], "kernel")[:MOST_HISTOGRAMS]:
        modes = frames["kernel_modes"].filter(pl.col("kernel") == kernel)
        row = by_kernel[kernel]
        total, share = wording.time(row["total_ns"]), wording.percent(row["share"])
        median, p95 = wording.time(row["median_ns"]), wording.time(row["p95_ns"])
        facts = [f"{row['count']:,} executions", f"{total} ({share} of kernel time)", f"median {median}", f"p95 {p95}"]
        if modes.height > 1:
            facts.append(f"{modes.height} modes")
        shown.append({"kernel": kernel, "facts": ", ".join(facts), "drawn": charts.histogram(kernel, bars, modes).html()})
    return shown


def _clocks(frames: Mapping[str, pl.DataFrame]) -> dict[str, Any]:
    rows, bins = frames["clocks"], frames["clock_bins"]
    drawn: Markup | None = None
    entries: list[tuple[str, str, str]] = []
    if bins["error_ns"].count():
        plot, entries = charts.clocks(bins)
        drawn = plot.html()
    return {
        "methods": rows.group_by("method", maintain_order=True).len().rows(),
        "known": wording.known_to(rows["interval_ns"]),
        "drawn": drawn,
        "legend": legend(entries),
    }


def _parts(frame: pl.DataFrame, column: str) -> list[tuple[tuple[Any, ...], pl.DataFrame]]:
    return list(frame.partition_by(column, maintain_order=True, as_dict=True).items()) if frame.height else []


def _fitting(frames: Mapping[str, pl.DataFrame], room: int) -> dict[str, PageTable]:
    """Tables with as many rows as fit into so many bytes; with few where none fit."""
    packed: dict[str, PageTable] = {}
    for cells in _CELLS:
        for table in table_registry.TABLES:
            frame = frames[table.name]
            former = packed.get(table.name)
            most = min(cells, SHORT.get(table.name, cells))
            if table.name not in DRAWN and frame.height and (former is None or former.rows * len(table.columns) > most):
                packed[table.name] = pack(table, frame, most, _not_shown(table, frame))
        if sum(one.size for one in packed.values()) < room:
            break
    return packed


def _not_shown(table: Table, frame: pl.DataFrame) -> Sequence[str]:
    """Columns that a table of the page lacks: parts of compute-absent time that the run does not have."""
    if table.by_nccl_policy:
        return _NOT_SHOWN
    return [name for name in PART_COLUMNS if name in frame.columns and not (frame[name] != 0).any()]


def _groups(packed: Mapping[str, PageTable]) -> list[dict[str, Any]]:
    """Tables by group; those of no group come last."""
    placed = {name for *_, names in _GROUPS for name in names} | DRAWN | _ELSEWHERE
    others = (*_OTHERS, tuple(name for name in packed if name not in placed))
    groups = [
        {"id": key, "title": title, "defined": defined, "tables": [packed[name] for name in names if name in packed]}
        for key, title, defined, names in (*_GROUPS, others)
    ]
    return [group for group in groups if group["tables"]]
