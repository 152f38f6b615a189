"""Labels of a trace, .pcf: written from the event types in use, and read back from an earlier trace."""

from __future__ import annotations

import colorsys
import re
from collections.abc import Sequence
from pathlib import Path

from nsys2prv.errors import TraceError
from nsys2prv.timeline.labels import EarlierLabels, UsedType
from nsys2prv.vocabulary import event_types

_HEAD = """DEFAULT_OPTIONS

LEVEL               THREAD
UNITS               NANOSEC
LOOK_BACK           100
SPEED               1
FLAG_ICONS          ENABLED
NUM_OF_STATE_COLORS {colours}
YMAX_SCALE          37


DEFAULT_SEMANTIC

THREAD_FUNC         State As Is
"""

# Hues (0..1) of values that one timeline of CUDA shows: kernels blue to violet, NCCL orange, calls green, graphs cyan.
# Memory operations have numbers of their own (events.COPY_KINDS), which states colour red and yellow.
_HUES = {
    event_types.CUDA_CALL: (0.25, 0.42),
    event_types.KERNEL: (0.55, 0.80),
    event_types.NCCL_KERNEL: (0.04, 0.12),
    event_types.GRAPH_EXECUTION: (0.46, 0.52),
}
# Hues of families of kernels by what they do; the first that matches.
_FAMILY_HUES = (
    (r"^(NCCL|NVSHMEM|Custom All|Custom Reduce|Expert parallel|Userbuffers)", (0.04, 0.12)),
    (r"GEM[MV]|Split-K", (0.57, 0.66)),
    (r"[Aa]ttention|Rotary", (0.72, 0.82)),
    (r"^Convolution", (0.49, 0.54)),
    (r"norm|^Softmax|^Loss", (0.86, 0.95)),
    (r"^(Copy|Fill|Cast|Concatenation|Gather|Transpose|Select|Embedding|MoE)", (0.13, 0.17)),
    (r"^(Element-wise|Reduction|Scan|Dropout|Random|Fused)", (0.27, 0.40)),
    (r"^Optimizer", (0.0, 0.01)),
)
_OTHER_FAMILIES = (0.42, 0.50)
_MOST_COLOURS = 10_000
"""Paraver draws names for at most as many values."""
_GOLDEN_RATIO = 0.618033988749895


def write_pcf(path: Path, used: Sequence[UsedType]) -> None:
    """Write the labels of all event types in use, and of all states.

    Parameters
    ----------
    path
        File to write.
    used
        Event types in the order of their numbers. Numbers that Paraver can't label are left without.
    """
    colours = _colours(used)
    lines = [_HEAD.format(colours=max(colours) + 1)]
    lines += ["", "STATES", *(f"{state.number:<4} {state.label}" for state in event_types.STATES)]
    lines += ["", "", "STATES_COLOR", *(f"{number:<4} {{{r},{g},{b}}}" for number, (r, g, b) in sorted(colours.items()))]
    for used_type in used:
        if used_type.number > event_types.LARGEST_LABELLED_NUMBER:
            continue
        lines += ["", "", "EVENT_TYPE", f"{used_type.event_type.gradient}    {used_type.number}    {used_type.label}"]
        if used_type.event_type.precision:
            lines.append(f"PRECISION {used_type.event_type.precision}")
        if used_type.values is not None:
            lines += ["VALUES", *(f"{value:<6} {label}" for value, label in sorted(used_type.values.items()))]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8", newline="\n")


def _colours(used: Sequence[UsedType]) -> dict[int, tuple[int, int, int]]:
    """Colour of each number: Paraver has one palette for states and for values of events."""
    colours = {state.number: state.colour for state in event_types.STATES}
    for used_type in used:
        if (used_type.number not in _HUES and used_type.number != event_types.KERNEL_FAMILY) or used_type.values is None:
            continue
        named = [(value, label) for value, label in used_type.values.items() if value < _MOST_COLOURS]
        for place, (value, label) in enumerate(named):
            first, last = _HUES.get(used_type.number) or _family_hues(label)
            # Neighbours in the list get hues and shades far apart.
            hue = first + (last - first) * (place * _GOLDEN_RATIO % 1)
            shade = 0.95 - 0.4 * (place * _GOLDEN_RATIO * _GOLDEN_RATIO % 1)
            red, green, blue = colorsys.hsv_to_rgb(hue, 0.85, shade)
            colours.setdefault(value, (round(red * 255), round(green * 255), round(blue * 255)))
    return colours


def _family_hues(label: str) -> tuple[float, float]:
    return next((hues for pattern, hues in _FAMILY_HUES if re.search(pattern, label)), _OTHER_FAMILIES)


def read_earlier_labels(path: Path) -> EarlierLabels:
    """Numbers of an earlier trace, from its .pcf.

    Raises
    ------
    TraceError
        When there is no .pcf to read.
    """
    from nsys2prv.paraver.trace_reader import read_pcf

    if not path.exists():
        raise TraceError(path, "there is no such file to take labels from")
    labels = read_pcf(path)
    return EarlierLabels(
        {found.label: number for number, found in labels.types.items()},
        {
            number: {label: value for value, label in found.values.items()}
            for number, found in labels.types.items()
            if found.values
        },
    )
