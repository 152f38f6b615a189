"""NCCL: regions of its NVTX domain with their payloads, and the calls behind its kernels."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from nsys2prv.execution.external_sort import ExternalSort, plan_windows
from nsys2prv.execution.memory import PIECE_ROWS
from nsys2prv.exports import Report, describe
from nsys2prv.exports.report import once
from nsys2prv.sources.correlate import with_calls
from nsys2prv.sources.cuda.kernels import KERNELS, NCCL_KERNEL_NAME
from nsys2prv.sources.nvtx import nvtx_ranges, payloads
from nsys2prv.sources.source import RowKind, Source, with_absent
from nsys2prv.vocabulary import event_types, nccl_names

ATTRIBUTES = {
    event_types.NCCL_SIZE: nccl_names.SIZE,
    event_types.NCCL_REDUCTION: nccl_names.REDUCTION,
    event_types.NCCL_ROOT: nccl_names.ROOT,
    event_types.NCCL_COMMUNICATOR: nccl_names.COMMUNICATOR,
    event_types.NCCL_RANKS: nccl_names.RANKS,
    event_types.NCCL_RANK: nccl_names.RANK,
    event_types.NCCL_PEER: nccl_names.PEER,
    event_types.NCCL_SEQUENCE: nccl_names.SEQUENCE,
}
"""Attribute of a region by the field of its payload."""

_TEXTS = (event_types.NCCL_REDUCTION, event_types.NCCL_COMMUNICATOR)
_COUNTED_FROM_ONE = (event_types.NCCL_ROOT, event_types.NCCL_RANK, event_types.NCCL_PEER, event_types.NCCL_SEQUENCE)
"""Ranks and sequence numbers are written plus one: 0 would be an end."""
_COLUMNS = {str(number): pl.String if number in _TEXTS else pl.Int64 for number in ATTRIBUTES}
_IDS = {"identifier": pl.Int64, "call_id": pl.Int64}
"""Id of the communicator, and of the call: the same in all ranks."""

_FIELDS = pl.Struct(
    {name: pl.String if name == nccl_names.REDUCTION else pl.Int64 for name in (*ATTRIBUTES.values(), nccl_names.CALL)}
)
_OPERATIONS = {"Product": "Prod"}
"""NCCL's own enumeration has one name that is not that of its interface."""


def _with_fields(report: Report, source: Source) -> pl.LazyFrame:
    """Regions of NCCL with the fields of their payloads, null where there are none."""
    schemas = payloads.read_schemas(report)

    def decode(column: pl.Series) -> pl.Series:
        of_events = column.struct.unnest()
        rows = of_events.select(event=pl.int_range(pl.len(), dtype=pl.Int64))
        text = pl.col("text")
        # Ids can be texts with hexadecimal digits.
        digits = text.str.extract("^0x([0-9a-fA-F]{1,16})$").str.to_integer(base=16, dtype=pl.UInt64, strict=False)
        integer = pl.coalesce("integer", digits.reinterpret(signed=True))
        of_nccl = pl.col("integer").replace_strict(dict(enumerate(nccl_names.REDUCTIONS)), default=None, return_dtype=pl.String)
        operation = pl.coalesce(text.replace(_OPERATIONS), of_nccl, pl.format("operation {}", "integer"))
        values = {
            name: operation if name == nccl_names.REDUCTION else integer for name in (*_FIELDS.to_schema(), nccl_names.COUNT)
        }
        of_event = (
            payloads.fields(of_events, schemas)
            .with_columns(nccl_names.field_name(pl.col("field")))
            .group_by("event")
            .agg(
                *(value.filter(pl.col("field") == name).first().alias(name) for name, value in values.items()),
                element=nccl_names.element_bytes(text.filter(pl.col("field") == nccl_names.DATA_TYPE).first()),
            )
            .with_columns(pl.coalesce(nccl_names.SIZE, pl.col(nccl_names.COUNT) * pl.col("element")).alias(nccl_names.SIZE))
            # Calls without a communicator, which fail, have the id 0.
            .with_columns(pl.when(pl.col(nccl_names.COMMUNICATOR) != 0).then(nccl_names.COMMUNICATOR))
            .select("event", *_FIELDS.to_schema())
        )
        of_rows = rows.join(of_event, on="event", how="left", maintain_order="left")
        decoded: pl.Series = of_rows.select(pl.struct(pl.exclude("event"))).to_series().cast(_FIELDS).rename(column.name)
        return decoded

    of_domains = nvtx_ranges.ranges_in_domains(report, source, nvtx_ranges.structured_columns(report), with_default=False)
    regions = of_domains.filter(pl.col("domain") == nvtx_ranges.NCCL_DOMAIN)
    if not nvtx_ranges.structured_columns(report):
        return with_absent(regions, _FIELDS.to_schema())
    decoded = pl.col("payload").map_batches(decode, return_dtype=_FIELDS, is_elementwise=True)
    return nvtx_ranges.with_payloads(report, regions).with_columns(decoded).unnest("payload")


@once
def _communicators(report: Report) -> pl.DataFrame:
    """What each process reports of its communicators when it creates them, and the text that identifies them.

    Columns `globalPid`, the id of the communicator, `ranks`, `rank` (null when the process has several), `communicator`."""
    size, rank, name = (pl.col(field) for field in (nccl_names.RANKS, nccl_names.RANK, nccl_names.COMMUNICATOR))
    distinct = report.collect(
        _with_fields(report, REGIONS).filter(name.is_not_null()).select("globalPid", name, size, rank).unique()
    )
    identity, processes = describe(report), distinct["globalPid"].unique().to_list()
    ranks = dict(identity.ranks)
    if not ranks and len(processes) == 1 and identity.launch_rank is not None:
        ranks = {processes[0]: identity.launch_rank}
    reported = distinct.group_by("globalPid", name, maintain_order=True).agg(
        ranks=size.max(), rank=pl.when(rank.drop_nulls().n_unique() == 1).then(rank.drop_nulls().first())
    )
    keys = [
        nccl_names.communicator_key(identifier, of_size, ranks.get(process))
        for process, identifier, of_size in reported.select("globalPid", name, "ranks").iter_rows()
    ]
    return reported.with_columns(communicator=pl.Series(keys, dtype=pl.String)).sort("globalPid", nccl_names.COMMUNICATOR)


def _regions(report: Report) -> pl.LazyFrame:
    """Columns `globalTid`, `start`, `end`, `label`, and the attributes."""
    return _regions_with_ids(report).drop(list(_IDS))


def _regions_with_ids(report: Report) -> pl.LazyFrame:
    """The same, and the columns of _IDS."""
    fields = _with_fields(report, REGIONS)
    if not nvtx_ranges.structured_columns(report):
        regions = fields.select(*RowKind.THREAD.interval, "label", type=pl.lit(event_types.NCCL_REGION, pl.Int64))
        return with_absent(regions, _COLUMNS | _IDS)
    communicators = _communicators(report).lazy()
    joined = fields.join(communicators, on=["globalPid", nccl_names.COMMUNICATOR], how="left", maintain_order="left")
    values = {
        **{number: pl.col(name) for number, name in ATTRIBUTES.items()},
        event_types.NCCL_COMMUNICATOR: pl.col("communicator"),
        event_types.NCCL_RANKS: pl.coalesce(nccl_names.RANKS, "ranks"),
        event_types.NCCL_RANK: pl.coalesce(nccl_names.RANK, "rank"),
    }
    return joined.select(
        *RowKind.THREAD.interval,
        "label",
        *(
            (value + 1 if number in _COUNTED_FROM_ONE else value).cast(_COLUMNS[str(number)]).alias(str(number))
            for number, value in values.items()
        ),
        identifier=nccl_names.COMMUNICATOR,
        call_id=nccl_names.CALL,
        type=pl.lit(event_types.NCCL_REGION, pl.Int64),
    )


REGIONS = Source(
    name="nccl",
    title="NCCL regions",
    **nvtx_ranges.ON_THREADS,
    types=(event_types.NCCL_REGION, *ATTRIBUTES),
    frame=_regions,
    only=nvtx_ranges.PUSHPOP.only,
    assumption=nvtx_ranges.FIELDS.assumption,
)


def has_payloads(report: Report) -> bool:
    """Whether regions of NCCL can have payloads in a report."""
    return report.has(REGIONS.table, *REGIONS.required) and bool(nvtx_ranges.structured_columns(report))


# -- sends and receives ---------------------------------------------------------------------------------------------------


def point_to_point(report: Report) -> pl.LazyFrame:
    """Sends, receives, begins and ends of groups: columns `callTid`, `callStart`, `callEnd`, `label`, and what their payloads
    have: the id of the communicator (`identifier`), `rank` and `peer` in it, `size` in bytes."""
    labels = (nccl_names.SEND, nccl_names.RECEIVE, nccl_names.GROUP_START, nccl_names.GROUP_END)
    of_process = _communicators(report).select("globalPid", nccl_names.COMMUNICATOR, known_rank="rank")
    calls = _with_fields(report, REGIONS).filter(pl.col("label").is_in(labels))
    joined = calls.join(of_process.lazy(), on=["globalPid", nccl_names.COMMUNICATOR], how="left", maintain_order="left")
    return joined.select(
        "label",
        identifier=nccl_names.COMMUNICATOR,
        peer=nccl_names.PEER,
        size=nccl_names.SIZE,
        rank=pl.coalesce(nccl_names.RANK, "known_rank"),
        callTid="globalTid",
        callStart="start",
        callEnd="end",
    ).drop_nulls(["callTid", "callStart"])


def launched_kernels(report: Report, folder: Path) -> Iterator[pl.DataFrame]:
    """NCCL's kernels with the calls that launched them: columns `callTid`, `callStart`, and the kernel's `end`."""
    if _kernel_names(report):
        for kernels in with_calls(report, _kernels, folder, ("globalTid", "start")):
            yield kernels.select("callTid", "callStart", "end").drop_nulls()


# -- kernels --------------------------------------------------------------------------------------------------------------
_KEY = RowKind.STREAM.key
_MOVES = "^nccl(All|Reduce|Broadcast|Bcast|Send|Recv|Gather|Scatter)"
"""Calls with a message size."""
MOST_KEPT = 50_000
"""Regions that may be kept for the launches and kernels that come: more than a group of calls that is ever closed has."""


def _kernel_names(report: Report) -> tuple[int, ...]:
    """Ids of the names of NCCL's kernels."""
    return tuple(report.strings.filter(pl.col("value").str.contains(NCCL_KERNEL_NAME))["id"].to_list())


def _kernels(report: Report) -> pl.LazyFrame:
    columns = (*_KEY, "start", "end", "demangledName")
    return report.scan_events(KERNELS.table, columns, ("correlationId",), {"demangledName": _kernel_names(report)}).drop(
        "demangledName"
    )


def _calls_of_kernels(report: Report) -> pl.LazyFrame:
    """All streams with kernels of NCCL, and all texts of its regions."""
    numbers = dict.fromkeys((*_KEY, "start", "end", "type"), pl.Int64)
    nothing = pl.LazyFrame(schema={**numbers, "label": pl.String, **_COLUMNS})
    if not _kernel_names(report) or not report.has(REGIONS.table):
        return nothing
    kind = pl.lit(event_types.NCCL_CALL_OF_KERNEL, pl.Int64).alias("type")
    return pl.concat(
        [
            nothing,
            _kernels(report).select(*_KEY, "start", "end", kind),
            _regions(report).select("label", *(str(number) for number in _TEXTS), kind),
        ],
        how="diagonal",
    )


def _gather(report: Report, folder: Path) -> Iterator[pl.DataFrame]:
    for piece in kernels_with_calls(report, folder):
        yield piece.drop(list(_IDS))


def kernels_with_calls(report: Report, folder: Path) -> Iterator[pl.DataFrame]:
    """Kernels of NCCL with the calls behind them: columns of the stream, `start`, `end`, `label` (the call), attributes by the
    numbers of their event types, and `identifier` (of the communicator) and `call_id`; null on what calls of one group differ.
    The size is that of all calls that one kernel does (`_attributed`)."""
    if not _kernel_names(report):
        return
    launched = ExternalSort(["callStart"], folder / "launched")
    for piece in with_calls(report, _kernels, folder, ("globalTid", "start")):
        launched.add(piece.drop_nulls("callStart").select(*_KEY, "start", "end", "callTid", "callStart"))
    regions = ExternalSort(["callStart"], folder / "regions")
    for piece in report.pieces(_regions_with_ids, PIECE_ROWS):
        regions.add(
            piece.drop("type").rename({"start": "callStart", "end": "callEnd", "globalTid": "callTid"}).drop_nulls("callStart")
        )
    open_regions: list[pl.DataFrame] = []
    open_kernels: list[pl.DataFrame] = []
    for window in plan_windows([(launched, 1), (regions, 1)]):
        of_regions, kernels = [*open_regions, *regions.load(window)], [*open_kernels, *launched.load(window)]
        open_kernels = []
        if of_regions:
            of_units = with_units(pl.concat(of_regions))
            last = of_units.filter(pl.col("unit") == pl.col("unit").max().over("callTid"))
            if kernels:
                # Further kernels of the last unit of a thread may come: its kernels are counted when all are there.
                since = last.group_by("callTid").agg(since=pl.col("callStart").min())
                of_window = pl.concat(kernels).join(since, on="callTid", how="left", maintain_order="left")
                is_open = (pl.col("callStart") >= pl.col("since")).fill_null(False) & (window.end is not None)
                open_kernels = [of_window.filter(is_open).drop("since").tail(MOST_KEPT)]
                closed = of_window.filter(~is_open).drop("since")
                yield _attributed(closed, of_units)
            open_regions = [last.drop("unit").tail(MOST_KEPT)]
        launched.drop_before(window.end)
        regions.drop_before(window.end)


def with_units(regions: pl.DataFrame) -> pl.DataFrame:
    """Regions with the number of the `unit` of their thread that they belong to: a group of calls, from the outermost
    ncclGroupStart to its ncclGroupEnd, or else a region that lies in no other one, with what lies in it."""
    step = pl.when(pl.col("label") == nccl_names.GROUP_START).then(1).when(pl.col("label") == nccl_names.GROUP_END).then(-1)
    by = ["callTid", "callStart", "callEnd", "step", *regions.drop("callTid", "callStart", "callEnd").columns]
    return (
        regions.with_columns(step=step.otherwise(0))
        .sort(by, descending=[name in ("callEnd", "step") for name in by])
        .with_columns(total=pl.col("step").cum_sum().over("callTid"))
        # The start of a group may have been before the recording.
        .with_columns(depth=pl.col("total") - pl.min_horizontal(pl.col("total").cum_min().over("callTid"), 0))
        .with_columns(
            is_first=(pl.col("depth").shift(1).over("callTid").fill_null(0) == 0)
            & (pl.col("callStart") >= pl.col("callEnd").cum_max().shift(1).over("callTid")).fill_null(True)
        )
        .with_columns(unit=pl.col("is_first").cast(pl.Int64).cum_sum().over("callTid"))
        .drop("step", "total", "depth", "is_first")
    )


def _attributed(kernels: pl.DataFrame, regions: pl.DataFrame) -> pl.DataFrame:
    """Kernels whose launch lies in a unit of regions, with the values on which all its regions agree.

    The sizes of calls that one kernel does add up; of a kernel that sends and receives the larger sum counts. Where there are
    several kernels, calls of one size are shared out equally, as those of one process for four GPUs, and the size is null
    where that is not possible: which kernel does which call is not known."""

    def agreed(name: str) -> pl.Expr:
        values = pl.col(name).drop_nulls()
        return pl.when(values.n_unique() == 1).then(values.first()).alias(name)

    in_group = pl.col("label").is_in(list(nccl_names.AROUND_CALLS))
    size = pl.col(str(event_types.NCCL_SIZE))
    moves = pl.col("label").str.contains(_MOVES)
    sent, received = (size.filter(pl.col("label") == label).sum() for label in (nccl_names.SEND, nccl_names.RECEIVE))
    is_message = pl.col("label").is_in([nccl_names.SEND, nccl_names.RECEIVE])
    units = (
        regions.with_columns(call=pl.when(~in_group).then("label"))
        .group_by("callTid", "unit", maintain_order=True)
        .agg(
            pl.col("callStart").min(),
            agreed("call"),
            *(agreed(name) for name in (*_COLUMNS, *_IDS)),
            until=pl.col("callEnd").max(),
            label=pl.col("label").last(),
            calls=moves.sum(),
            moved=pl.when(is_message.sum() == moves.sum()).then(pl.max_horizontal(sent, received)).otherwise(size.sum()),
            is_equal=size.filter(moves).n_unique() == 1,
            # Of one function and communicator, or sends and receives, and all of them known.
            adds_up=(pl.col("identifier").filter(moves).n_unique() == 1)
            & ((pl.col("label").filter(moves).n_unique() == 1) | (is_message.sum() == moves.sum()))
            & (size.filter(moves).null_count() == 0),
        )
    )
    joined = kernels.sort("callStart").join_asof(
        units.sort("callStart", maintain_order=True), on="callStart", by="callTid", strategy="backward", check_sortedness=False
    )
    inside = joined.filter(pl.col("label").is_not_null() & ((pl.col("callStart") <= pl.col("until")).fill_null(True)))
    kernels_of_unit = pl.len().over("callTid", "unit")
    can_share = (kernels_of_unit == 1) | (pl.col("is_equal") & (pl.col("calls") % kernels_of_unit == 0))
    own_size = (
        pl.when((pl.col("calls") <= 1) | (pl.col("is_equal") & (pl.col("calls") == kernels_of_unit)))
        .then(size)
        .when("adds_up", can_share)
        .then(pl.col("moved") // kernels_of_unit)
    )
    inside = inside.with_columns(own_size.alias(str(event_types.NCCL_SIZE)))
    return inside.select(
        *RowKind.STREAM.interval,
        *_COLUMNS,
        *_IDS,
        label=pl.coalesce("call", "label"),
        type=pl.lit(event_types.NCCL_CALL_OF_KERNEL, pl.Int64),
    )


CALLS_OF_KERNELS = Source(
    name="nccl",
    title="NCCL calls of kernels",
    table=KERNELS.table,
    required=(*_KEY, "start", "end"),
    optional=("correlationId",),
    row=RowKind.STREAM,
    types=(event_types.NCCL_CALL_OF_KERNEL, *ATTRIBUTES),
    frame=_calls_of_kernels,
    stream=_gather,
    derived=True,
    assumption="A kernel of NCCL belongs to the call, or to the group of calls, of its thread inside which it was launched.",
)
"""On the rows of NCCL's kernels: the call of NCCL behind each, with its payload. Of several calls in one group: what they agree
on."""
