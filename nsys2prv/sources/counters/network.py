"""Counters of network adapters and switches, and congestion that InfiniBand switches report."""

from collections.abc import Callable

import polars as pl

from nsys2prv.execution.row_order import drop_duplicates
from nsys2prv.exports import Report
from nsys2prv.exports.columns import Text, labelled
from nsys2prv.exports.report import enum_labels
from nsys2prv.sources.counters.sampling import EndsOfSamples, with_ends
from nsys2prv.sources.source import CONTINUATION, RowKind, Source
from nsys2prv.vocabulary import row_names
from nsys2prv.vocabulary.event_types import EventType, Role, ValueSet

NETWORK_METRIC = EventType(9300, "{}", Role.SAMPLE, gradient=7, unit="as its label says", step=1, members=80, overflow=93000100)
IB_CONGESTION = EventType(9390, "InfiniBand switch congestion", Role.MARK, ValueSet("switch congestion"))
IB_SOURCE_LID = EventType(9391, "Congested packet source LID", Role.MARK, unit="LID")
IB_DESTINATION_LID = EventType(9392, "Congested packet destination LID", Role.MARK, unit="LID")
IB_SERVICE_LEVEL = EventType(9393, "Congested packet service level", Role.MARK, unit="level")
IB_OPERATION = EventType(9394, "Congested packet operation code", Role.MARK, unit="code")
IB_SOURCE_QP = EventType(9395, "Congested packet source queue pair", Role.MARK, unit="queue pair")
IB_DESTINATION_QP = EventType(9396, "Congested packet destination queue pair", Role.MARK, unit="queue pair")
IB_INGRESS_PORT = EventType(9397, "Congested packet ingress port", Role.MARK, unit="port")


_PER_MS = "/ms"
_MS_PER_SECOND = 1000


def _metrics(report: Report) -> pl.DataFrame:
    """Columns `metricsListId`, `metricsIdx`, `metric` (name and unit) and `factor`: rates per ms are shown per second."""
    columns = ("metricsListId", "metricsIdx", Text("name"), Text("unit"))
    metrics = drop_duplicates(report.read("TARGET_INFO_NETWORK_METRICS", optional=columns), columns[:2])
    per_ms = pl.col("unit").str.ends_with(_PER_MS).fill_null(False)
    unit = pl.when(per_ms).then(pl.col("unit").str.replace(f"{_PER_MS}$", "/s")).otherwise("unit")
    return metrics.select(
        "metricsListId",
        "metricsIdx",
        metric=pl.when(unit.is_null()).then("name").otherwise(pl.format("{} ({})", "name", unit)),
        factor=pl.when(per_ms).then(_MS_PER_SECOND).otherwise(1).cast(pl.Int64),
    )


def _adapters(report: Report) -> pl.DataFrame:
    """Columns `globalId`, `device`: names of network adapters."""
    names = report.read("TARGET_INFO_NIC_INFO", optional=("nicId", "globalId", Text("name")))
    ids = report.read("NIC_ID_MAP", optional=("nicId", "globalId"))
    # Up to 3.6 the global id is in the table of adapters.
    adapters = pl.concat(
        [
            ids.join(names.select("nicId", "name"), on="nicId", how="left").select("globalId", "name"),
            names.select("globalId", "name"),
        ]
    ).drop_nulls()
    return drop_duplicates(adapters, "globalId").select("globalId", device=pl.format(row_names.NIC, "name"))


def _switches(report: Report) -> pl.DataFrame:
    """Columns `globalId`, `device`: names of switches, where their GUID is known."""
    # Since 3.29 the table has devices of any kind, and another name.
    table = "NET_DEVICE_INFO" if report.has("NET_DEVICE_INFO") else "NET_IB_DEVICE_INFO"
    switches = report.read(table, optional=("guid", Text("name"), Text("des"))).drop_nulls("guid")
    return (
        drop_duplicates(switches, "guid")
        .select(globalId="guid", name=pl.coalesce("des", "name"))
        .drop_nulls()
        .select("globalId", device=pl.format(row_names.SWITCH, "name"))
    )


def _hexadecimal(column: str) -> pl.Expr:
    """A 64-bit id as hexadecimal digits; it is unsigned."""
    digits = [
        ((pl.col(column) // 2**shift) & 0xF).replace_strict(dict(enumerate("0123456789abcdef")), return_dtype=pl.String)
        for shift in range(60, -4, -4)
    ]
    return pl.concat_str(pl.lit("0x"), pl.concat_str(digits))


def _component(device: pl.Expr, pattern: str, port: str) -> pl.Expr:
    named = pl.coalesce(device, pl.format(pattern, _hexadecimal("globalId")))
    return pl.when(pl.col(port).fill_null(0) > 0).then(pl.format("{} port {}", named, port)).otherwise(named)


def _samples(
    title: str, table: str, devices: Callable[[Report], pl.DataFrame], pattern: str, assumption: str, since: str = "3.7"
) -> Source:
    def frame(report: Report) -> pl.LazyFrame:
        sampled = (
            source.scan(report)
            .join(devices(report).lazy(), on="globalId", how="left", maintain_order="left")
            .join(_metrics(report).lazy(), on=["metricsListId", "metricsIdx"], how="left", maintain_order="left")
        )
        return with_ends(
            sampled.select(
                "start",
                "end",
                component=_component(pl.col("device"), pattern, "portId"),
                type=pl.lit(NETWORK_METRIC, pl.Int64),
                series=pl.coalesce("metric", pl.format("network metric {}.{}", "metricsListId", "metricsIdx")),
                value=pl.col("value") * pl.col("factor").fill_null(1),
            )
        )

    source = Source(
        name="network",
        title=title,
        table=table,
        required=("start", "end", "globalId", "metricsListId", "metricsIdx", "value"),
        optional=("portId",),
        row=RowKind.COMPONENT,
        types=(NETWORK_METRIC,),
        frame=frame,
        in_order=EndsOfSamples,
        since=since,
        assumption=(
            "Values are rates, in the unit that the report has; those per ms are shown per second. A value holds from the start"
            f" of its sample to its end, then 0. {assumption}"
        ),
    )
    return source


_OF_A_PACKET = {
    IB_SOURCE_LID: "packetSLID",
    IB_DESTINATION_LID: "packetDLID",
    IB_SERVICE_LEVEL: "packetSL",
    IB_OPERATION: "packetOpCode",
    IB_SOURCE_QP: "packetSourceQP",
    IB_DESTINATION_QP: "packetDestinationQP",
    IB_INGRESS_PORT: "switchIngressPort",
}


def _congestion(report: Report) -> pl.LazyFrame:
    kinds = enum_labels(report, "ENUM_NET_IB_CONGESTION_EVENT_TYPE")
    reported = (
        CONGESTION.scan(report)
        .join(_switches(report).lazy(), on="globalId", how="left", maintain_order="left")
        .with_columns(
            component=_component(pl.col("device"), row_names.SWITCH, "switchEgressPort"),
            end=pl.col("start"),
            label=labelled("congestionType", kinds, "congestion").fill_null("congestion"),
        )
    )
    common = ("component", "start", "end")
    mark = reported.select(*common, "label", type=pl.lit(IB_CONGESTION, pl.Int64))
    facts = [
        reported.filter(pl.col(column).is_not_null()).select(
            *common, type=pl.lit(number, pl.Int64), value=column, **{CONTINUATION: pl.lit(True)}
        )
        for number, column in _OF_A_PACKET.items()
    ]
    return pl.concat([mark, *facts], how="diagonal")


ADAPTERS = _samples(
    "Network adapter counters",
    "NET_NIC_METRIC",
    _adapters,
    row_names.NIC,
    "Adapters are named through NIC_ID_MAP; port 0 is an adapter as a whole.",
)
SWITCHES = _samples(
    "InfiniBand switch counters", "NET_IB_SWITCH_METRIC", _switches, row_names.SWITCH, "globalId is the GUID of the switch."
)
ETHERNET_SWITCHES = _samples(
    "Ethernet switch counters",
    "NET_ETH_SWITCH_METRIC",
    _switches,
    row_names.SWITCH,
    "globalId is what NET_DEVICE_INFO has as guid: these switches have none, but a hash of their name.",
    since="3.30",
)

CONGESTION = Source(
    name="network",
    title="InfiniBand switch congestion",
    table="NET_IB_SWITCH_CONGESTION_EVENT",
    required=("start", "globalId"),
    optional=("congestionType", *_OF_A_PACKET.values(), "switchEgressPort"),
    row=RowKind.COMPONENT,
    types=(IB_CONGESTION, *_OF_A_PACKET),
    frame=_congestion,
    times=("start", "start"),
    since="3.28",
    assumption="globalId is the GUID of the switch; a packet is shown on the row of the port where it leaves.",
)
