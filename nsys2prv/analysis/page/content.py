"""What stands on the page, in the order in which it is read."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import polars as pl
from markupsafe import Markup

from nsys2prv.analysis import schema, text
from nsys2prv.analysis.page import charts, tables
from nsys2prv.analysis.page.tables import PageTable
from nsys2prv.errors import NotEfficiency

LARGEST = 5_000_000
"""Bytes that a page has at most, as far as tables fill it."""
MOST_HISTOGRAMS = 16
_MOST_SAMPLED = 24
_DEVICES_IN_ONE_MAP = 64
"""Of more devices there is a map by node first."""
_CELLS = (120_000, 60_000, 30_000, 10_000, 3_000, 1_000, 100)
"""Cells of one table, tried until the page is small enough."""

_FOLDER = Path(__file__).parent
_DRAWN = frozenset({"run", "tree", "findings", "finding_numbers", "device_bins", "kernel_histograms", "sampled_bins",
                    "alignment_bins", "metrics", "runs"})  # fmt: skip
"""Tables that the page shows in another form."""
_NOT_SHOWN = ("nccl",)
"""The reading of NCCL stands above all tables."""

_SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Devices and hosts", ("nodes", "devices", "useful", "tasks", "threads")),
    ("Regions, iterations, time", ("regions", "iterations", "bins")),
    ("Kernels", ("families", "kernels", "kernel_modes", "kernel_devices")),
    ("Communication", ("overlap_summary", "overlap", "nccl", "nccl_stragglers", "nccl_collectives", "memory_operations",
                       "mpi_calls")),
    ("Gaps and calls", ("gaps", "longest_gaps", "cuda_calls")),
    ("GPU metrics", ("sampled_summary", "sampled_kernels")),
    ("Clocks", ("alignment",)),
)  # fmt: skip
_OTHERS = "More"
_READINGS = {
    "communication": "NCCL kernels count as communication",
    "useful": "NCCL kernels count as useful",
}


@dataclass
class _Charts:
    """Charts of the page, each under the id of its place."""

    items: list[Any] = field(default_factory=list)

    def add(self, chart: Any) -> str:
        """Keep a chart; the id of the element that it is drawn into."""
        target = f"chart-{len(self.items) + 1}"
        self.items.append(charts.item(chart, target))
        return target


def page(document: Mapping[str, Any]) -> str:
    """One HTML file, with everything in it, that shows the JSON document of `efficiency` or of `compare`.

    Parameters
    ----------
    document
        What `--json` wrote: the keys of `schema.HEAD` or of `schema.COMPARISON_HEAD`.

    Raises
    ------
    NotEfficiency
        When it is no such document, or one of another version.
    """
    kinds = {
        schema.FORMAT: (schema.VERSION, schema.TABLES, "efficiency.html.j2", _efficiency),
        schema.COMPARISON_FORMAT: (schema.COMPARISON_VERSION, schema.COMPARISON_TABLES, "comparison.html.j2", _comparison),
    }
    name = document.get("format")
    if name not in kinds or document.get("version") != kinds[name][0]:
        raise NotEfficiency("the page", "not a document of `efficiency --json` or `compare --json` of this version")
    _, known, template, shown = kinds[name]
    frames = _frames(document["tables"], known)
    drawn = _Charts()
    content = shown(document, frames, drawn)
    charts_json = _json_in_html(drawn.items)
    made = ""
    for cells in _CELLS:
        sections = _sections(frames, known, cells)
        packed = _json_in_html({one.table.name: one.packed for _, some in sections for one in some})
        made = _render(template, {**content, "head": document, "sections": sections}, packed, charts_json)
        if len(made.encode()) < LARGEST:
            break
    return made


def _frames(given: Mapping[str, Any], known: Sequence[schema.Table]) -> dict[str, pl.DataFrame]:
    found = {table.name: pl.DataFrame(given[table.name], schema=table.schema) for table in known if table.name in given}
    return {**{table.name: table.empty for table in known}, **found}


def _sections(frames: Mapping[str, pl.DataFrame], known: Sequence[schema.Table], cells: int) -> list[tuple[str, list[PageTable]]]:
    placed = {name for _, names in _SECTIONS for name in names} | _DRAWN
    others = tuple(table.name for table in known if table.name not in placed)
    by_name = {table.name: table for table in known}
    sections = []
    for title, names in (*_SECTIONS, (_OTHERS, others)):
        shown = [by_name[name] for name in names if name in by_name and frames[name].height]
        packed = [tables.pack(table, frames[table.name], cells, _NOT_SHOWN if table.by_reading else ()) for table in shown]
        if packed:
            sections.append((title, packed))
    return sections


def _efficiency(document: Mapping[str, Any], frames: Mapping[str, pl.DataFrame], drawn: _Charts) -> dict[str, Any]:
    run = frames["run"].row(0, named=True)
    return {
        "title": document["title"],
        "reading": _READINGS[document["nccl"]],
        "facts": _facts(document, run, frames),
        "trees": _trees(frames["tree"]),
        "findings": _findings(frames),
        "maps": _maps(frames, drawn),
        "activities": charts.ACTIVITIES,
        "histograms": _histograms(frames, drawn),
        "sampled": _sampled(frames, drawn),
        "clocks": _clocks(frames, drawn),
    }


def _facts(
    document: Mapping[str, Any], run: Mapping[str, Any], frames: Mapping[str, pl.DataFrame]
) -> list[tuple[str, str]]:
    capacity = run["elapsed_ns"] * run["devices"]
    facts = [
        ("GPUs", f"{run['devices']:,}"),
        ("nodes", f"{frames['nodes'].height:,}"),
        ("time", text.time(run["elapsed_ns"])),
        ("useful per GPU", text.time(run["useful_ns"] / max(run["devices"], 1))),
        ("communication", text.percent(run["communication_ns"] / capacity if capacity else None)),
        ("idle", text.percent(1 - run["active_ns"] / capacity if capacity else None)),
    ]
    if document.get("began"):
        facts.append(("began (UTC)", str(document["began"]).replace("T", " ")))
    return facts


def _trees(tree: pl.DataFrame) -> list[dict[str, Any]]:
    rows = tree.to_dicts()
    trees = []
    for title, which in (("Devices", "device"), ("Hosts", "host")):
        leaves = []
        for row in (row for row in rows if row["tree"] == which):
            factors = [other for other in rows if other["parent"] == row["metric"] and other["tree"] == which]
            product = " × ".join(text.percent(other["value"]) for other in factors)
            leaves.append({**row, "percent": text.percent(row["value"]), "product": product})
        if leaves:
            trees.append({"title": title, "leaves": leaves})
    return trees


def _findings(frames: Mapping[str, pl.DataFrame]) -> list[dict[str, Any]]:
    """Findings, most costly first, with their numbers."""
    if "findings" not in frames:
        return []
    numbers: dict[int, list[tuple[str, str]]] = {}
    for row in frames["finding_numbers"].to_dicts() if "finding_numbers" in frames else []:
        numbers.setdefault(row["place"], []).append((row["number"], _number(row["value"], row["unit"] or "")))
    found = frames["findings"].sort("cost_ns", descending=True, nulls_last=True, maintain_order=True).to_dicts()
    for row in found:
        row["cost"] = text.time(row["cost_ns"]) if row["cost_ns"] is not None else None
        row["percent"] = text.percent(row["share"])
        row["seen_from_to"] = _stretch(row, "begin_ns", "end_ns")
        row["worst_from_to"] = _stretch(row, "worst_begin_ns", "worst_end_ns")
        row["numbers"] = numbers.get(row["place"], [])
    return found


def _stretch(row: Mapping[str, Any], begin: str, end: str) -> str | None:
    if row.get(begin) is None or row.get(end) is None:
        return None
    return f"{text.time(row[begin])} to {text.time(row[end])}"


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    forms = {"ns": text.time, "bytes": text.size, "bytes/s": text.rate, "0 to 1": text.percent}
    return forms[unit](value) if unit in forms else f"{value:,.6g} {unit}".rstrip()


def _maps(frames: Mapping[str, pl.DataFrame], drawn: _Charts) -> list[dict[str, str]]:
    bins, device_bins, devices = frames["bins"], frames["device_bins"], frames["devices"]
    if not (bins.height and device_bins.height):
        return []
    several_nodes = 1 < devices["node"].n_unique() < devices.height
    maps = []
    if devices.height > _DEVICES_IN_ONE_MAP and several_nodes:
        maps.append({"title": "by node", "id": drawn.add(charts.over_time(bins, device_bins, devices, by_node=True))})
        maps.append({"title": "by device", "id": drawn.add(charts.device_map(bins, device_bins, devices))})
    else:
        maps.append({"title": "by device", "id": drawn.add(charts.over_time(bins, device_bins, devices, by_node=False))})
    return maps


def _histograms(frames: Mapping[str, pl.DataFrame], drawn: _Charts) -> dict[str, Any]:
    bars = frames["kernel_histograms"].partition_by("kernel", maintain_order=True, as_dict=True)
    told = {row["kernel"]: row for row in frames["kernels"].to_dicts()}
    shown = []
    for (kernel,), rows in list(bars.items())[:MOST_HISTOGRAMS]:
        modes = frames["kernel_modes"].filter(pl.col("kernel") == kernel)
        row = told.get(kernel, {})
        facts = [f"{row['count']:,} executions", text.time(row["total_ns"]), f"{text.percent(row['share'])} of kernel time",
                 f"median {text.time(row['median_ns'])}", f"p95 {text.time(row['p95_ns'])}"] if row else []  # fmt: skip
        if modes.height > 1:
            facts.append(f"{modes.height} modes")
        shown.append({"kernel": kernel, "facts": facts, "id": drawn.add(charts.histogram(rows, modes))})
    return {"shown": shown, "kernels": frames["kernels"].height}


def _sampled(frames: Mapping[str, pl.DataFrame], drawn: _Charts) -> list[dict[str, str]]:
    parts = frames["sampled_bins"].partition_by("metric", maintain_order=True, as_dict=True)
    return [
        {"metric": metric, "id": drawn.add(charts.sampled(rows, frames["bins"]))}
        for (metric,), rows in list(parts.items())[:_MOST_SAMPLED]
    ]


def _clocks(frames: Mapping[str, pl.DataFrame], drawn: _Charts) -> dict[str, Any]:
    rows = frames["alignment"].to_dicts()
    bins = frames["alignment_bins"]
    drawable = bins.height > 0 and bins["error_ns"].null_count() < bins.height
    errors = [row["largest_error_ns"] for row in rows if row["largest_error_ns"] is not None]
    return {
        "methods": [(method, sum(row["method"] == method for row in rows)) for method in dict.fromkeys(r["method"] for r in rows)],
        "largest": text.time(max(errors)) if errors else None,
        "id": drawn.add(charts.clocks(bins)) if drawable else None,
    }


def _comparison(document: Mapping[str, Any], frames: Mapping[str, pl.DataFrame], _drawn: _Charts) -> dict[str, Any]:
    runs = frames["runs"].to_dicts()
    rows = [("GPUs", 0, [f"{run['devices']:,}" for run in runs]), ("time", 0, [text.time(run["elapsed_ns"]) for run in runs]),
            ("useful time, sum", 0, [text.time(run["useful_ns"]) for run in runs])]  # fmt: skip
    rows += [
        (title, 0, ["-" if run[column] is None else f"{run[column]:.3f}" for run in runs])
        for column, title in (
            ("speedup", "speedup"),
            ("useful_scalability", "scalability of useful time"),
            ("useful_scalability_per_device", "scalability of useful time per device"),
            ("global_efficiency", "global efficiency"),
            ("global_efficiency_per_device", "global efficiency per device"),
        )
    ]
    metrics = frames["metrics"]
    leaves = []
    for title, level, metric in metrics.select("title", "level", "metric").unique(maintain_order=True).iter_rows():
        of_runs = {row["run"]: row for row in metrics.filter(pl.col("metric") == metric).to_dicts()}
        leaves.append({"title": title, "level": level, "values": [_leaf(of_runs.get(run["run"])) for run in runs]})
    return {
        "title": " / ".join(str(one["title"]) for one in document["runs"]),
        "reading": _READINGS[document["nccl"]],
        "numbers": rows,
        "leaves": leaves,
    }


def _leaf(row: Mapping[str, Any] | None) -> dict[str, Any]:
    if row is None:
        return {"value": None, "percent": "-", "change": None}
    change = f"{row['change'] * 100:+.1f}" if row["change"] else None
    return {"value": row["value"], "percent": text.percent(row["value"]), "change": change}


def _render(template: str, content: Mapping[str, Any], packed: Markup, drawn: Markup) -> str:
    scripts = {"bokeh": _in_script(charts.script()), "page": _in_script((_FOLDER / "page.js").read_text(encoding="utf-8"))}
    environment = _environment()
    return environment.get_template(template).render(
        **content,
        packed=packed,
        charts=drawn,
        scripts=scripts,
        style=Markup((_FOLDER / "page.css").read_text(encoding="utf-8")),  # noqa: S704
        hashes=" ".join(f"'{_hash(script)}'" for script in scripts.values()),
    )


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _hash(script: str) -> str:
    """What a content security policy calls a script by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _in_script(code: str) -> Markup:
    """Code of ours and of Bokeh, as it is: its hash stands in the policy. What would end the element must not be in it."""
    if "</script" in code.lower() or "<!--" in code:
        raise ValueError("a script of the page has </script or <!-- in it")
    return Markup(code)  # noqa: S704


def _json_in_html(content: Any) -> Markup:
    r"""JSON that can stand in a script element: no text in it ends the element or begins a comment.

    >>> str(_json_in_html({"name": "</script><!-- \u2028"}))
    '{"name":"\\u003c/script\\u003e\\u003c!-- \\u2028"}'
    """
    told = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        told = told.replace(character, f"\\u{ord(character):04x}")
    return Markup(told)  # noqa: S704
