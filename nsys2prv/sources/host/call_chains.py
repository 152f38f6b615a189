"""Call chains: the functions that were active when a sample was taken or a call was made, from the innermost on."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import polars as pl

from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.memory import PIECE_ROWS
from nsys2prv.exports import Report
from nsys2prv.sources.correlate import side_by_side
from nsys2prv.sources.source import UNNAMED, RowKind, Source, with_text
from nsys2prv.vocabulary.event_types import EventType, Role, ValueSet

MOST_FRAMES = 20
"""Frames of a call chain that a trace has, from the innermost on."""
_FUNCTION_VALUES, _MODULE_VALUES = ValueSet("functions of call chains"), ValueSet("modules of call chains")
SAMPLED_FUNCTIONS, SAMPLED_MODULES = (
    tuple(EventType(first + depth, f"Sampled {name} (depth {depth})", Role.ATTRIBUTE, values) for depth in range(MOST_FRAMES))
    for first, name, values in ((30000000, "functions", _FUNCTION_VALUES), (30000200, "modules", _MODULE_VALUES))
)
CALLERS = tuple(
    EventType(70000000 + depth, f"Caller at level {depth}", Role.ATTRIBUTE if depth else Role.INTERVAL, _FUNCTION_VALUES)
    for depth in range(MOST_FRAMES)
)
SAMPLED_FUNCTION, SAMPLED_MODULE, CALLER = SAMPLED_FUNCTIONS[0], SAMPLED_MODULES[0], CALLERS[0]
"""The innermost function (module, caller); those at greater depths follow."""

FUNCTION, MODULE = "function", "module"
_ID, _DEPTH = "id", "stackDepth"

Types = Mapping[str, tuple[EventType, ...]]
"""Event types of functions, and perhaps of modules, from the innermost to the outermost."""


def columns(types: Types) -> list[str]:
    """Names of the attributes that a call chain gives."""
    return [str(number) for of_name in types.values() for number in of_name]


def frames(report: Report, table: str) -> pl.LazyFrame:
    """Frames of call chains that a trace has: columns `id`, `stackDepth`, `function`, `module`.

    An address that nsys found no name for is named by its module: the same code has other addresses in each process."""
    chains = report.scan_events(table, ("id", "symbol", "module", "stackDepth"), ("unresolved",), None)
    in_trace = chains.filter(pl.col(_DEPTH).is_between(0, MOST_FRAMES - 1))
    named = with_text(report, with_text(report, in_trace, "symbol", "symbolName"), "module", "moduleName")
    in_module = pl.col("moduleName").fill_null(UNNAMED)
    is_address = (pl.col("unresolved").fill_null(0) != 0) | pl.col("symbolName").str.contains("^0x[0-9a-fA-F]+$")
    return named.select(
        _ID,
        _DEPTH,
        pl.when(is_address).then(pl.format("unresolved in {}", in_module)).otherwise("symbolName").fill_null(UNNAMED)
        .alias(FUNCTION),
        in_module.alias(MODULE),
    )  # fmt: skip


def names(report: Report, table: str, types: Types) -> pl.LazyFrame:
    """Every function and module of each depth once, in the columns of their attributes: for the survey."""
    distinct = frames(report, table).select(_DEPTH, *types).unique()
    return distinct.select(pl.when(is_depth).then(name).alias(number) for number, name, is_depth in _attributes(types))


def _attributes(types: Types) -> Iterator[tuple[str, str, pl.Expr]]:
    """Each attribute, the column of frames with its value, and whether a frame is at its depth."""
    for name, numbers in types.items():
        for depth, number in enumerate(numbers):
            yield str(number), name, pl.col(_DEPTH) == depth


def with_chains(
    report: Report, frame_of: Callable[[Report], pl.LazyFrame], key: str, table: str, types: Types, folder: Path
) -> Iterator[pl.DataFrame]:
    """Events with the attributes of their call chains; null where there is none.

    Parameters
    ----------
    frame_of
        From a report to events of one table, as for `Report.pieces`.
    key
        Column with the number of the call chain; the events come in its order.
    table
        Table of call chains.
    types
        Requested attributes.
    """
    of_events, of_frames = ExternalSort([key], folder / "events"), ExternalSort([_ID], folder / "frames")
    for piece in report.pieces(frame_of, PIECE_ROWS):
        of_events.add(piece)
    for piece in report.pieces(lambda piecewise: frames(piecewise, table), PIECE_ROWS):
        of_frames.add(piece)
    for events, their_frames in side_by_side(of_events, of_frames):
        yield events.join(_wide(their_frames, types), left_on=key, right_on=_ID, how="left", maintain_order="left")


def _wide(of_chains: pl.DataFrame, types: Types) -> pl.DataFrame:
    """One row per call chain, with a column per depth."""
    if of_chains.is_empty():
        return pl.DataFrame(schema={_ID: pl.Int64, **dict.fromkeys(columns(types), pl.String)})
    # A chain has one frame at each depth. If it has several, which one is taken must not depend on the order of the table.
    of_depth = (pl.col(name).filter(is_depth).min().alias(number) for number, name, is_depth in _attributes(types))
    return of_chains.group_by(_ID).agg(of_depth)


_CALLERS: Types = {FUNCTION: CALLERS}


def _source(name: str, title: str, calls: str, chains: str, assumption: str = "") -> Source:
    def of_calls(report: Report) -> pl.LazyFrame:
        return source.scan(report).filter(pl.col("callchainId") > 0)

    def as_events(called: pl.LazyFrame) -> pl.LazyFrame:
        # The innermost frame is the call itself.
        renamed = called.rename({str(CALLER): "label"})
        return renamed.with_columns(pl.col("label").fill_null(UNNAMED), type=pl.lit(CALLER, pl.Int64))

    def frame(report: Report) -> pl.LazyFrame:
        no_chain = [pl.lit(None, pl.String).alias(name) for name in columns(_CALLERS)]
        threads = of_calls(report).select("globalTid", "start", "end", *no_chain)
        if not report.has_rows(chains):
            return as_events(threads.head(0))
        return as_events(pl.concat([threads, names(report, chains, _CALLERS)], how="diagonal"))

    def gather(report: Report, folder: Path) -> Iterator[pl.DataFrame]:
        for piece in with_chains(report, of_calls, "callchainId", chains, _CALLERS, folder):
            has_any = pl.any_horizontal(pl.col(columns(_CALLERS)).is_not_null())
            yield as_events(piece.lazy().filter(has_any)).collect()

    source = Source(
        name=name,
        title=title,
        table=calls,
        required=("start", "end", "globalTid"),
        optional=("callchainId",),
        row=RowKind.THREAD,
        types=CALLERS,
        frame=frame,
        stream=gather,
        derived=True,
        assumption=assumption,
    )
    return source


OS_CALLERS = _source("os-callers", "Call chains of OS runtime calls", "OSRT_API", "OSRT_CALLCHAINS")
CUDA_CALLERS = _source(
    "cuda-callers",
    "Call chains of CUDA API calls",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUDA_CALLCHAINS",
    "CUDA_CALLCHAINS is read as OSRT_CALLCHAINS, of which there are real ones: callchainId of a call is the id of its frames.",
)
