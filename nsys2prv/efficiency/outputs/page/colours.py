"""Colours of the page's drawings. Like things have like colours, which differ for any kind of sight, dark and light."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from nsys2prv.efficiency.meters import absent_tables as parts
from nsys2prv.efficiency.meters.gaps import CAUSE_TITLES

ACTIVITIES: tuple[tuple[str, str, str], ...] = (
    ("kernels_ns", "kernels", "#2f74d0"),
    ("nccl_ns", "NCCL", "#e8830c"),
    ("memory_ns", "copies and memsets", "#12a37f"),
)
"""Activities of a device: column of `device_bins`, name, colour."""

LINES = ("#2f74d0", "#e8830c", "#12a37f", "#b05cc6", "#d1495b", "#7f8c2b", "#0f8ea8", "#8d6e63")
"""Colours of lines; of more lines than colours all have the first one."""

CAUSES = tuple(
    (name, title, colour)
    for (name, title), colour in zip(CAUSE_TITLES.items(), (*LINES[:5], LINES[7], LINES[5], LINES[6], "#8c8c8c"), strict=True)
)
"""Activities of the launching thread while a device is idle: column of `gaps`, name, colour."""

_OF_GROUPS: Mapping[str, tuple[str, ...]] = {
    "compute": (ACTIVITIES[0][2],),
    parts.START_UP: ("#b9bec6",),
    parts.STARVED: ("#b05cc6", "#d1495b", "#e0838f", "#7d5ba6", "#c98bb9", "#8d6e63", "#b79a8e", "#a3213a", "#d9a5ae",
                    "#6b2737", "#cfcfcf", "#e6c9ce"),
    parts.COMMUNICATION: ("#e8830c", "#f2b25f", "#b06000"),
    parts.COPIES: ("#12a37f", "#7cc9b3"),
    parts.OTHER_KERNELS: ("#0f8ea8",),
    parts.QUEUED: ("#7f8c2b",),
    parts.UNDECIDED: ("#5f6670", "#7a828d", "#949ca6", "#464c55", "#343a42", "#a9b0b9"),
    parts.SHUT_DOWN: ("#9aa1ab",),
    "other": ("#d5d9e0",),
}  # fmt: skip
"""Colours of the parts of the wall time, by group."""


def _colours_of_groups(groups: Sequence[str]) -> list[str]:
    """A colour for each part of the wall time, from their groups."""
    left = dict.fromkeys(groups, 0)
    found = []
    for group in groups:
        colours = _OF_GROUPS[group]
        found.append(colours[left[group] % len(colours)])
        left[group] += 1
    return found


def colours_of_parts(shown: Sequence[tuple[str, str]]) -> list[str]:
    """A colour for each part of the wall time, from its name and its group: the same wherever it is shown."""
    others = [(name, group) for name, group in shown if name not in COLOUR_OF_PART]
    of_others = dict(zip(others, _colours_of_groups([group for _, group in others]), strict=True))
    return [COLOUR_OF_PART[name] if name in COLOUR_OF_PART else of_others[name, group] for name, group in shown]


def _wall_parts() -> tuple[tuple[str, str, str], ...]:
    colours = _colours_of_groups(["compute", *(part.group for part in parts.PARTS)])
    titles = [("compute_ns", "computing"), *((part.column, part.title) for part in parts.PARTS)]
    return tuple((column, title, colour) for (column, title), colour in zip(titles, colours, strict=True))


WALL_PARTS = _wall_parts()
"""Parts of the wall time of a device: column of `absent_time`, name, colour."""
COLOUR_OF_PART = {column.removesuffix("_ns"): colour for column, _, colour in WALL_PARTS}


def activities_of(device_bins: pl.DataFrame) -> list[tuple[str, str, str]]:
    """Those of ACTIVITIES that the devices of a run have."""
    return [one for one in ACTIVITIES if (device_bins[one[0]] > 0).any()]


def legend(entries: Sequence[Sequence[Any]]) -> list[Mapping[str, str]]:
    """Names and colours of ACTIVITIES, EFFICIENCY_LINES, CAUSES or WALL_PARTS."""
    return [{"name": str(entry[1]), "colour": str(entry[2])} for entry in entries]
