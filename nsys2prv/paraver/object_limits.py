"""Limits of Paraver, and how a timeline is made to fit."""

from __future__ import annotations

from dataclasses import replace

from nsys2prv.errors import TooManyRows
from nsys2prv.paraver.header import MOST_OBJECTS
from nsys2prv.sources.source import RowKind
from nsys2prv.timeline.rows import LANE, Node, Rows


def fit_rows(rows: Rows) -> Rows:
    """Rows within Paraver's limits: where hosts have too many CPUs, only those with events count, or one per host.

    Raises TooManyRows when there are more rows than Paraver takes.
    """
    if rows.table.height > MOST_OBJECTS:
        streams = [keys.drop("row", LANE).n_unique() for (_, kind), keys in rows.keys.items() if kind is RowKind.STREAM]
        devices = sum(map(len, rows.devices.values()))
        raise TooManyRows(rows.table.height, MOST_OBJECTS, sum(streams) if sum(streams) > devices else 0)
    if sum(node.cpus for node in rows.nodes) <= MOST_OBJECTS:
        return rows
    with_events = tuple(replace(node, cpus=node.cpus_with_events) for node in rows.nodes)
    if sum(node.cpus for node in with_events) <= MOST_OBJECTS:
        return replace(rows, nodes=with_events)
    # Paraver crashes on a node without a CPU.
    return replace(rows, nodes=tuple(Node(node.name, 1) for node in rows.nodes), has_cpus=False)
