"""The page of a run: its sections with their drawings and tables, in the order in which it is read; and what notebooks show of
it, without scripts: the first screen, and single drawings.

A table has its place where it is declared (`OnPage`); drawings, which need code, are listed in `_content`."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from markupsafe import Markup

from nsys2prv.efficiency import table_registry
from nsys2prv.efficiency.meters.absent_tables import PART_COLUMNS
from nsys2prv.efficiency.metrics import TREES
from nsys2prv.efficiency.outputs.page import charts, time_charts
from nsys2prv.efficiency.outputs.page.plot import ACTIVITIES, Figure, Piece, colours_of_parts, present
from nsys2prv.efficiency.outputs.page.template import FOLDER, PageTable, notebook_html, pack, rendered_page
from nsys2prv.efficiency.outputs.page.time_charts import Activity, TimeCharts
from nsys2prv.efficiency.outputs.text import factor_signs, iterations_line, reading, undecided
from nsys2prv.efficiency.result_tables import NCCL_POLICY, Frames
from nsys2prv.efficiency.verdict import WINDOW_TITLES, verdict
from nsys2prv.errors import UsageError
from nsys2prv.vocabulary import wording

LARGEST = 2_990_000
"""Bytes that a page has at most, as far as leaving out rows of tables can do it."""
_ROW_HEIGHT, _MAP_HEIGHT = 16, (48, 150)
"""Height of a row of a map, and least and largest height of the small map, pixels."""
_PLACE = ["worst_begin_ns", "worst_end_ns"]
_MOST_BARS = 12
"""Devices with a bar each: those with least computing."""
_FEW_DEVICES = 8
"""With as many the small map of the first screen shows all that a large one does."""
_CELLS = (60_000, 40_000, 25_000, 15_000, 10_000, 5_000, 2_000, 1_000, 500, 200, 100)
"""Values of one table: as many as fit."""
_MOST_NAMES = 12
"""Hosts, inputs and the like that are named; the rest are counted."""

SECTIONS: tuple[tuple[str, str, str], ...] = (
    ("devices-and-hosts", "Devices and hosts", "devices"),
    ("regions", "Regions, iterations, time", "iterations"),
    ("kernels", "Kernels", "kernels"),
    ("communication", "Communication", "nccl"),
    ("absent", "Time without computation", "compute-absent-time"),
    ("path", "Critical path", "critical-path"),
    ("gaps", "Gaps and calls", "gaps"),
    ("memory", "Memory and copies", "memory-in-use"),
    ("metrics", "Sampled metrics", "sampled-metrics"),
)
"""Sections that have tables: id, title, and the heading of the definitions that explains them. Besides, the sections `overview`
and `clocks` have tables."""

DEFINITIONS = ("efficiency.md", "reference/findings.md")
"""Pages of docs/ that are part of the page; a wheel has them beside this module."""
_NCCL_POLICIES = {
    "communication": "NCCL kernels count as communication, as in BSC's views",
    "useful": "NCCL kernels count as useful, as in TALP",
}


def first_screen(head: Mapping[str, Any], frames: Frames, *, linked: bool = True) -> dict[str, Any]:
    """What the template `first_screen.html.j2` shows, from an `EfficiencyResult`; `linked`: whether findings and their places
    are links into the page."""
    first = verdict(head, frames)
    colours = colours_of_parts((part.name, part.group) for part in first.bar)
    checks, over_time = frames["finding_checks"], TimeCharts.of(frames)
    findings = frames["findings"].sort("place")
    return {
        "verdict": first,
        "pieces": [
            Piece(part.share, colour, f"{part.title}: {wording.time(part.value)}, {wording.percent(part.share)}")
            for part, colour in zip(first.bar, colours, strict=True)
        ],
        "activities": present(ACTIVITIES, frames["device_bins"]),
        "findings": findings.to_dicts(),
        "numbers": frames["finding_numbers"].select("place", "number", "value", "unit").rows_by_key("place"),
        "checks": checks.height,
        "not_decidable": checks.filter(pl.col("result") == "not decidable").height,
        "small_map": over_time and small_map(over_time, small_activity(frames), findings, linked=linked),
        "linked": linked,
    }


def first_screen_html(head: Mapping[str, Any], frames: Frames) -> str:
    """The first screen alone, as a notebook shows it."""
    return notebook_html("notebook.html.j2", {**first_screen(head, frames, linked=False), "title": head["title"]})


def small_activity(frames: Frames) -> Activity:
    """Activity of devices, or of nodes where there are more than 64 devices, of several nodes."""
    nodes = frames["devices"]["node"]
    is_large = nodes.len() > 64 and 1 < nodes.n_unique() < nodes.len()
    return Activity.of(frames, "node" if is_large else "device")


def small_map(over_time: TimeCharts, activity: Activity, findings: pl.DataFrame, *, linked: bool) -> Markup:
    """The heat map of the first screen, with iterations and the places of the first five findings."""
    height = min(max(_ROW_HEIGHT * len(activity.rows), _MAP_HEIGHT[0]), _MAP_HEIGHT[1])
    plot = over_time.heat_map(activity, "What devices do over time", height)
    if linked:
        time_charts.mark(plot, findings.head(5).drop_nulls(_PLACE).select("place", "title", *_PLACE).rows())
    return plot.html()


def page(head: Mapping[str, Any], tables: Frames) -> str:
    """An `EfficiencyResult` as one HTML file, which loads nothing else.

    It is smaller than LARGEST bytes, except where the drawings alone take more. Of tables that are too long for that the last
    rows are left out, and the page says so."""
    frames = {table.name: tables.get(table.name, table.empty) for table in table_registry.TABLES}
    content = _content(head, frames)
    places = frames["findings"].sort("place").select("place", *_PLACE).drop_nulls()
    maps = {drawn["id"]: drawn["packed"] for drawn in content["maps"]}
    data = {"maps": maps, "places": {place: span for place, *span in places.iter_rows()}, "time": content["time"]}
    for cells in _CELLS:
        packed = _packed(frames, cells)
        ids = ("overview", "clocks", *(key for key, *_ in SECTIONS))
        of_sections = {key: [one for one in packed.values() if one.table.page and one.table.page.section == key] for key in ids}
        shown = {**content, "head": head, "tables": of_sections, "sections": SECTIONS}
        html = rendered_page("page.html.j2", shown, data, packed)
        if len(html.encode()) < LARGEST:
            break
    return html


def _packed(frames: Frames, cells: int) -> dict[str, PageTable]:
    """Tables with at most so many values each."""
    packed: dict[str, PageTable] = {}
    for table in table_registry.TABLES:
        frame = frames[table.name]
        if table.page is not None and frame.height:
            # Each device has its row, whatever else there is.
            most = _CELLS[0] if table.name == "devices" else min(cells, table.page.cells or cells)
            # Of trees `communication_ns` is another time.
            parts = () if NCCL_POLICY in table.columns else PART_COLUMNS
            unused = [name for name in parts if name in frame.columns and not (frame[name] != 0).any()]
            packed[table.name] = pack(table, frame, most, unused)
    return packed


def definitions() -> Markup:
    """DEFINITIONS of docs/ as HTML, with ids of their headings; links to other pages become plain text."""
    from markdown_it import MarkdownIt

    docs = Path(__file__).resolve().parents[4] / "docs"
    sources = (next(path for path in (FOLDER / Path(page).name, docs / page) if path.is_file()) for page in DEFINITIONS)
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    text = "\n".join(source.read_text(encoding="utf-8") for source in sources)
    tokens = markdown.parse(re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL))
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == "heading_open" and following is not None:
            token.attrSet("id", f"definition-{re.sub(r'[^a-z0-9]+', '-', following.content.lower()).strip('-')}")
        if token.type in ("heading_open", "heading_close"):
            # Below the heading of the section.
            token.tag = f"h{min(int(token.tag[1:]) + 1, 6)}"
        if token.children:
            token.children = [child for child in token.children if child.type not in ("link_open", "link_close")]
    return Markup(markdown.renderer.render(tokens, markdown.options, {}))


def _content(head: Mapping[str, Any], frames: Frames) -> dict[str, Any]:
    """Everything that the template shows except tables."""
    over_time = TimeCharts.of(frames)
    closeups, closeup_legend = time_charts.closeup_figures(frames)
    return {
        **first_screen(head, frames),
        "title": head["title"],
        "reading": _NCCL_POLICIES[head["nccl"]] if frames["nccl"].height else "",
        "facts": _facts(head, frames),
        "trees": _trees(frames["tree"], has_devices=frames["devices"].height > 0),
        "time": over_time and {"begin": over_time.axis.low, "end": over_time.axis.high},
        "timeline": [over_time.activity(), over_time.efficiencies()] if over_time else [],
        "maps": _maps(over_time, frames) if over_time else [],
        "wall": charts.wall_time(frames, _MOST_BARS),
        "idle": charts.idle(frames),
        "closeups": closeups,
        "closeup_legend": closeup_legend,
        "closeup_links": time_charts.closeup_links(frames),
        "iteration_chart": charts.iterations(frames, time_charts.iteration_links(frames)),
        "device_chart": charts.devices(frames),
        "icicle": charts.icicle(frames["nvtx_tree"]),
        "bandwidth": charts.bandwidth(frames),
        "families": charts.families(frames),
        "unit_activity": charts.unit_activity(frames),
        "path": charts.critical_path(frames),
        "sampled": over_time.sampled() if over_time else [],
        "memory": over_time.memory() if over_time else [],
        "histograms": charts.histograms(frames),
        "all_kernels": frames["kernels"].height,
        "clocks": charts.clocks(frames),
        "clock_methods": frames["clocks"].group_by("method", maintain_order=True).len().rows(),
        "undecided": undecided(frames["nccl_waits"]),
        "definitions": definitions(),
    }


def _facts(head: Mapping[str, Any], frames: Frames) -> list[tuple[str, list[str]]]:
    run, window = frames["run"].row(0, named=True), head["window"]
    hosts = frames["nodes"]["node"].to_list()
    numbers = frames["tasks"]["rank"].drop_nulls().unique().sort().to_list()
    least, most = (head["length_interval"][name] for name in ("least_ns", "most_ns"))
    allowed = dict.fromkeys((wording.time(least), "more" if most is None else wording.time(most)))
    edges = [wording.time(at) for at in (window["offset_ns"], window["offset_ns"] + window["length_ns"])]
    options = [(name, value if isinstance(value, list | tuple) else [value]) for name, value in head["options"].items()]
    facts = [
        ("hosts", [f"{len(hosts):,}", *_some(hosts)]),
        ("ranks", [f"{len(numbers):,}", wording.ranges(numbers)] if numbers else ["not known"]),
        ("devices", [f"{run['devices']:,}", *_some(head.get("gpus", ()))]),
        ("processes that use a GPU" if run["devices"] else "processes", [f"{run['processes']:,}"]),
        ("their threads that call CUDA or MPI" if run["devices"] else "their threads", [f"{run['threads']:,}"]),
        ("time", [wording.time(window["length_ns"]) + (f" (clocks allow {' to '.join(allowed)})" if len(allowed) > 1 else "")]),
        ("measured", [f"{WINDOW_TITLES[window['name']]}, {' to '.join(edges)} of the trace"]),
        ("iterations", [iterations_line(head, frames["iterations"])]),
        # A trace has it to the minute.
        ("began", [f"{str(head['began'])[:16].replace('T', ' ')} UTC"] if head.get("began") else []),
        ("versions", [*(f"nsys {version}" for version in head.get("recorders", ())), f"nsys2prv {head['nsys2prv']}"]),
        ("NCCL", [_NCCL_POLICIES[head["nccl"]]]),
        ("options", [f"{name}: {', '.join(map(str, values))}" for name, values in options]),
        (head["input_kind"], _some(head["inputs"])),
    ]
    return [(name, values) for name, values in facts if values]


def _some(names: Sequence[str]) -> list[str]:
    more = len(names) - _MOST_NAMES
    return [*map(str, names[:_MOST_NAMES]), *([f"and {more:,} more"] if more > 0 else [])]


def _trees(tree: pl.DataFrame, *, has_devices: bool) -> list[dict[str, Any]]:
    """Efficiencies as the trees show them, each with the product that it is."""
    trees = []
    for shown in TREES:
        rows = tree.filter(pl.col("tree") == shown.name)
        factors = rows.filter(pl.col("product_of").is_null())
        leaves = [
            {
                **row,
                "sign": sign.replace("x", "×"),
                "product": " × ".join(map(wording.percent, factors.filter(pl.col("parent") == row["metric"])["value"])),
                "says": reading(row["metric"], row["value"]),
            }
            for row, sign in zip(rows.iter_rows(named=True), factor_signs(rows), strict=True)
        ]
        if leaves:
            title = shown.title if has_devices else shown.title_without_gpus
            trees.append({"id": shown.name, "title": title, "leaves": leaves})
    return trees


def _maps(over_time: TimeCharts, frames: Frames) -> list[dict[str, Any]]:
    """The small map, and a large one by device where the small one does not show each row well."""
    small, of_devices = small_activity(frames), Activity.of(frames)
    maps: list[dict[str, Any]] = [{"id": "small", "drawn": None, "packed": small.as_json()}]
    rows = len(of_devices.rows)
    if rows > _FEW_DEVICES:
        # Many rows are lower, but each can be seen.
        height = round(min(_ROW_HEIGHT * rows, max(480, 1.2 * rows)))
        drawn, packed = over_time.heat_map(of_devices, "What each device does over time", height), of_devices.as_json()
        maps.append({"id": "large", "drawn": drawn.html(), "rows": rows, "groups": of_devices.groups, "packed": packed})
    return maps


@dataclass(frozen=True, repr=False)
class Drawing:
    """A drawing of the page: its name, its title for people, and its HTML with its style: SVG and text, no script. A notebook
    shows it, and `str` of it is its HTML."""

    name: str
    title: str
    html: str

    def __repr__(self) -> str:
        return f"<Drawing {self.name}: {self.title}>"

    def __str__(self) -> str:
        return self.html

    _repr_html_ = __str__


def _over_time(draw: Callable[[TimeCharts], list[Figure]]) -> Callable[[Frames], Figure | None]:
    """The first of some drawings over time; None in a run that has none."""
    return lambda frames: next(iter(draw(charts_of_run) if (charts_of_run := TimeCharts.of(frames)) else ()), None)


DRAWINGS: Mapping[str, tuple[str, Callable[[Frames], Figure | None]]] = {
    "activity": ("What devices do over time", _over_time(lambda over_time: [over_time.activity()])),
    "efficiencies": ("Efficiencies over time", _over_time(lambda over_time: [over_time.efficiencies()])),
    "wall_time": ("What the time of the devices went to", charts.wall_time),
    "iterations": ("Iteration time per rank", charts.iterations),
    "devices": ("Useful time of each device", charts.devices),
    "families": ("Kernel families", charts.families),
    "memory": ("GPU memory in use", _over_time(TimeCharts.memory)),
    "bandwidth": ("NCCL bus bandwidth over message size", charts.bandwidth),
}


def drawing(name: str, frames: Frames) -> Drawing:
    """A drawing of a run, by its name; a UsageError where there is none of it, or nothing to draw in it."""
    if name not in DRAWINGS:
        raise UsageError(f"plot {name!r}: there is no such drawing{wording.did_you_mean(name, DRAWINGS)}")
    title, figure_of = DRAWINGS[name]
    if (figure := figure_of(frames)) is None:
        raise UsageError(f"plot {name!r}: this run has nothing to show there")
    return Drawing(name, title, notebook_html("drawing.html.j2", {"title": title, "figure": figure}, "rows.css"))
