"""OpenACC constructs of host threads: data, launch and other."""

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.exports.columns import labelled
from nsys2prv.sources.source import UNNAMED, RowKind, Source, attributes, with_text
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.event_types import EventType, Role, ValueSet, numbered

_KINDS = (
    "Device init, Device shutdown, Runtime shutdown, Enqueue launch, Enqueue upload, Enqueue download, Wait, Implicit wait, "
    "Compute construct, Update, Enter data, Exit data, Create, Delete, Alloc, Free"
)
OPENACC_KINDS = dict(enumerate(_KINDS.split(", "), start=1))
_OPENACC_VALUES = ValueSet("openacc", numbered(OPENACC_KINDS), first=max(OPENACC_KINDS) + 2)
OPENACC_OTHER = EventType(66000000, "OpenACC other constructs", Role.INTERVAL, _OPENACC_VALUES)
OPENACC_DATA = EventType(66000001, "OpenACC data constructs", Role.INTERVAL, _OPENACC_VALUES)
OPENACC_LAUNCH = EventType(66000002, "OpenACC launch constructs", Role.INTERVAL, _OPENACC_VALUES)
_NAME_VALUES, _FUNCTION_VALUES = ValueSet("openacc names"), ValueSet("openacc functions")
OPENACC_OTHER_NAME = EventType(66100000, "OpenACC name of other constructs", Role.ATTRIBUTE, _NAME_VALUES)
OPENACC_DATA_NAME = EventType(66100001, "OpenACC name of data constructs", Role.ATTRIBUTE, _NAME_VALUES)
OPENACC_LAUNCH_NAME = EventType(66100002, "OpenACC name of launch constructs", Role.ATTRIBUTE, _NAME_VALUES)
OPENACC_OTHER_FUNCTION = EventType(66200000, "OpenACC function of other constructs", Role.ATTRIBUTE, _FUNCTION_VALUES)
OPENACC_DATA_FUNCTION = EventType(66200001, "OpenACC function of data constructs", Role.ATTRIBUTE, _FUNCTION_VALUES)
OPENACC_LAUNCH_FUNCTION = EventType(66200002, "OpenACC function of launch constructs", Role.ATTRIBUTE, _FUNCTION_VALUES)
OPENACC_BYTES = EventType(66300001, "OpenACC data size", Role.ATTRIBUTE, unit="bytes")


_STATES = {
    4: event_types.STATE_CONFIGURING,
    5: event_types.STATE_MEMORY_TRANSFER,
    6: event_types.STATE_MEMORY_TRANSFER,
    7: event_types.STATE_SYNCHRONIZATION,
    8: event_types.STATE_SYNCHRONIZATION,
    13: event_types.STATE_ALLOCATING,
    14: event_types.STATE_FREEING,
    15: event_types.STATE_ALLOCATING,
    16: event_types.STATE_FREEING,
}
"""Paraver state by `eventKind` (see OPENACC_KINDS)."""


def _source(construct: str, event_type: EventType, name: EventType, function: EventType) -> Source:
    sizes = {OPENACC_BYTES: "bytes"} if construct == "data" else {}

    def frame(report: Report) -> pl.LazyFrame:
        constructs = with_text(report, source.scan(report), "nameId", "name")
        constructs = with_text(report, with_text(report, constructs, "funcName", "function"), "srcFile", "file")
        # Constructs of one function differ in their lines.
        place = pl.format(" ({}:{})", pl.col("file").str.replace(r".*[/\\]", ""), "lineNo")
        line = pl.when(pl.col("lineNo") > 0).then(place).fill_null("")
        return constructs.select(
            *RowKind.THREAD.interval,
            pl.col("name").fill_null(UNNAMED).alias(str(name)),
            (pl.col("function").fill_null(UNNAMED) + line).alias(str(function)),
            *attributes(sizes),
            type=pl.lit(event_type, pl.Int64),
            label=labelled("eventKind", OPENACC_KINDS, "kind"),
            state=pl.col("eventKind").replace_strict(_STATES, default=event_types.STATE_OTHERS, return_dtype=pl.Int64),
        )

    source = Source(
        name="openacc",
        title=f"OpenACC {construct} constructs",
        table=f"CUPTI_ACTIVITY_KIND_OPENACC_{construct.upper()}",
        required=("start", "end", "globalTid", "eventKind"),
        optional=("nameId", "funcName", "srcFile", "lineNo", *sizes.values()),
        row=RowKind.THREAD,
        types=(event_type, name, function, *sizes),
        frame=frame,
    )
    return source


DATA = _source("data", OPENACC_DATA, OPENACC_DATA_NAME, OPENACC_DATA_FUNCTION)
LAUNCH = _source("launch", OPENACC_LAUNCH, OPENACC_LAUNCH_NAME, OPENACC_LAUNCH_FUNCTION)
OTHER = _source("other", OPENACC_OTHER, OPENACC_OTHER_NAME, OPENACC_OTHER_FUNCTION)
