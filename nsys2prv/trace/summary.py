"""Content of OUT.json: the account of a translation, for people and for tools that read the trace."""

from __future__ import annotations

import json
import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from nsys2prv.run.clock_check import disagreement_json, disagreement_text
from nsys2prv.run.open import LeftOut, OpenedReport
from nsys2prv.run.plan import RunPlan
from nsys2prv.run.ranks import RanksAndHosts
from nsys2prv.timeline import rows_of_types
from nsys2prv.timeline.labels import UsedType
from nsys2prv.timeline.rows import Rows
from nsys2prv.timeline.rows_of_types import RowRanges
from nsys2prv.vocabulary.version import __version__

FORMAT = 1
"""Version of the form of OUT.json: it changes when something in it changes its meaning."""

_MOST_SELECTED = 1000


@dataclass(frozen=True)
class TraceSummary:
    """What is known of a translation when its trace is written."""

    options: Mapping[str, Any]  # those that are not the default
    plan: RunPlan
    left_out: Sequence[LeftOut]
    tables: Mapping[int, list[dict[str, Any]]]
    used_types: Sequence[UsedType]
    types: Collection[int] | None  # that occur; None: not known
    on_rows: Mapping[int, RowRanges]  # rows that show each of them
    senders: RowRanges  # rows that send messages to other ranks
    messages: Mapping[str, Any]
    critical_path: Mapping[str, Any] | None  # None: it was not asked for
    trace_bytes: int
    trace_records: int
    seconds: float
    warnings: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """The content of OUT.json."""
        plan, rows, selection = self.plan, self.plan.timeline.rows, self.plan.timeline.selection
        return {
            "format": FORMAT,
            "nsys2prv": __version__,
            "python": platform.python_version(),
            "polars": pl.__version__,
            "options": _options(self.options),
            "trace": {
                "bytes": self.trace_bytes,
                "records": self.trace_records,
                "length_ns": selection.length,
                "origin_ns": selection.origin,
                "windows_ns": [list(window) for window in zip(selection.starts, selection.ends, strict=True)][:_MOST_SELECTED],
                "nodes": len(rows.nodes),
                "tasks": len(rows.tasks),
                "rows": rows.table.height,
                **({} if self.types is None else self._occurring(self.types)),
            },
            "messages": dict(self.messages),
            **({} if self.critical_path is None else {"critical_path": dict(self.critical_path)}),
            "run": _run(plan.run),
            "left_out": [{"path": str(one.path), "error": str(one.error)} for one in self.left_out],
            "seconds": round(self.seconds, 3),
            "clocks": [clock.as_json() for clock in plan.axis.clocks],
            "clock_check": [disagreement_json(one) for one in plan.axis.disagreements],
            "reports": [
                _report(opened, alignment, self.tables[index])
                for index, (opened, alignment) in enumerate(zip(plan.reports, plan.alignment, strict=True))
            ],
            "nodes": [{"name": node.name, "cpus": node.cpus} for node in rows.nodes],
            "tasks": _tasks(rows, plan.reports),
            "event_types": [{"number": used.number, "label": used.label} for used in self.used_types],
            "warnings": [
                *(f"left out: {one.error}" for one in self.left_out),
                *(issue.text for issue in plan.run.issues),
                *plan.axis.warnings,
                *map(disagreement_text, plan.axis.disagreements),
                *self.warnings,
            ],
        }

    def _occurring(self, types: Collection[int]) -> dict[str, Any]:
        """Event types that occur, and where."""
        return {
            "types": sorted(types),
            "rows_of_types": rows_of_types.as_json(self.on_rows),
            "rows_of_messages": rows_of_types.ranges_as_json(self.senders),
        }


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(
        json.dumps(options, default=lambda value: sorted(value) if isinstance(value, frozenset) else str(value))
    )
    return plain


def _run(run: RanksAndHosts) -> dict[str, Any]:
    return {
        "ranks": list(run.ranks),
        "size": run.size,
        "missing": list(run.missing),
        "findings": [
            {
                "about": issue.kind.value[0],
                "is_error_with_strict": issue.kind.is_error,
                "text": issue.text,
                "reports": list(map(str, issue.reports)),
            }
            for issue in run.issues
        ],
    }


def _report(opened: OpenedReport, alignment: dict[str, Any], tables: list[dict[str, Any]]) -> dict[str, Any]:
    identity = opened.identity
    return {
        "path": str(opened.report.path),
        "form": opened.report.tables.form,
        "host": identity.host,
        "nsys": identity.tool,
        "schema": list(identity.schema) if identity.schema else None,
        "host_source": identity.host_source or None,
        "ranks": identity.known_ranks,
        "rank_source": identity.known_ranks_source,
        "gpus": [asdict(gpu) for gpu in identity.gpus],
        "nics": [nic.as_json() for nic in identity.nics],
        "alignment": alignment,
        "tables": tables,
        "warnings": list(identity.warnings),
    }


def _tasks(rows: Rows, opened: Sequence[OpenedReport]) -> list[dict[str, Any]]:
    return [
        {
            "name": task.name,
            "node": rows.nodes[task.node].name,
            "rank": task.rank,
            "pid": task.pid,
            "report": str(opened[task.report].report.path) if task.report is not None else None,
            "threads": [thread.name for thread in task.threads],
            # By the number of the thread in the trace.
            "nvtx_names": {number: thread.given for number, thread in enumerate(task.threads, 1) if thread.given},
        }
        for task in rows.tasks
    ]
