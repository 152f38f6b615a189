"""What is sampled on a node: each value where and as the report has it, on a row named like the port, CPU or plugin."""

import json
from pathlib import Path

import polars as pl
import pytest
from support.report_builder import ReportBuilder
from support.trace_properties import assert_account_balances
from support.traces import table_summary, translate_reports
from support.whole_trace import open_whole

from nsys2prv.run.inspect import as_text, inspect
from nsys2prv.sources.counters.sampling import EndsOfSamples
from nsys2prv.trace.translate import Summary
from nsys2prv.trace.translate_options import TranslateOptions

Samples = dict[tuple[str, str], list[tuple[int, int | str]]]


def samples(summary: Summary) -> Samples:
    """(row, event type) -> its events as (time, value or its label), of a trace whose account balances."""
    assert_account_balances(summary.content)
    trace = open_whole(summary.prv)
    found: Samples = {}
    events = trace.named(trace.events()).select("row", "label", "time", "value", "name")
    for row, label, time, value, name in events.iter_rows():
        found.setdefault((row, label), []).append((time, value if name == str(value) else name))
    return found


@pytest.mark.parametrize("form", [".sqlite", "_pqtdir", "_arwdir"])
def test_an_adapter_has_its_rates_per_second_and_0_after_the_last_sample(tmp_path: Path, form: str) -> None:
    report = ReportBuilder(host="node01", pid=1000)
    nic = report.nic("mlx5_0")
    report.api_call("cudaFree_v3020", 0, 5_000_000)
    for start, value in ((0, 12_000), (1_000_000, 250), (2_000_000, 0), (3_000_000, 7)):
        report.network_metric(nic, "IB: Bytes sent", start, start + 1_000_000, value)
        report.network_metric(nic, "IB: Average size", start, start + 1_000_000, 64, unit="bytes")

    summary = translate_reports(tmp_path, report, form=form)

    found = samples(summary)
    assert found["NIC mlx5_0", "IB: Bytes sent (bytes/s)"] == [
        (0, 12_000_000),
        (1_000_000, 250_000),
        (2_000_000, 0),
        (3_000_000, 7_000),
        (4_000_000, 0),
    ]
    assert found["NIC mlx5_0", "IB: Average size (bytes)"] == [
        *((time, 64) for time in range(0, 4_000_000, 1_000_000)),
        (4_000_000, 0),
    ]
    assert table_summary(summary, "NET_NIC_METRIC")["sources"][0]["written"] == 8


def test_metrics_of_one_moment_stand_on_one_line(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    nic = report.nic("mlx5_0")
    report.network_metric(nic, "A", 0, 1000, 5, unit="packets/ms").network_metric(nic, "B", 0, 1000, 6, unit="ticks/ms")
    lines = translate_reports(tmp_path, report).prv.read_text().splitlines()[1:]
    assert lines == ["2:0:1:1:1:0:9300:5000:9301:6000", "2:0:1:1:1:1000:9300:0:9301:0"]


def test_a_gap_between_samples_is_0_and_a_late_begin_is_not(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    nic = report.nic("mlx5_0")
    for start, value in ((0, 1), (1_010, 2), (5_000, 3)):
        report.network_metric(nic, "A", start, start + 1000, value, unit="")
    found = samples(translate_reports(tmp_path, report))
    assert found["NIC mlx5_0", "A"] == [(0, 1), (1_010, 2), (2_010, 0), (5_000, 3), (6_000, 0)]


def test_what_ends_is_remembered_from_one_piece_to_the_next() -> None:
    step = EndsOfSamples()
    point = {"component": "U", "type": 1, "series": "S", "value": 9}
    schema = {"component": pl.String, "type": pl.Int64, "series": pl.String, "value": pl.Int64}

    def piece(*points: tuple[int, int, bool]) -> pl.DataFrame:
        rows = [{**point, "start": start, "end": start, "until": until, "is_end": is_end} for start, until, is_end in points]
        return pl.DataFrame(rows, schema={**schema, **dict.fromkeys(("start", "end", "until"), pl.Int64), "is_end": pl.Boolean})

    first = step(piece((0, 10, False)))
    second = step(piece((12, 100, False)))
    third = step(piece((15, 10, True)))
    fourth = step(piece((144, 100, True)))

    assert [frame["start"].to_list() for frame in (first, second, third, fourth)] == [[0], [12], [], [100]]


@pytest.mark.parametrize("devices", ["NET_IB_DEVICE_INFO", "NET_DEVICE_INFO"])
def test_ports_of_adapters_and_switches_are_rows_of_their_node(tmp_path: Path, devices: str) -> None:
    report = ReportBuilder(host="node01", pid=1000)
    nic = report.nic("mlx5_1", 3)
    report.row(devices, networkId=1, guid=-17, name="sw", des="MF0;rack7", lid=4)
    report.network_metric(nic, "IB: Bytes sent", 0, 1000, 1, port=1)
    report.network_metric(nic, "IB: Bytes sent", 0, 1000, 2, port=2)
    report.network_metric(-17, "IB: Bytes sent", 0, 1000, 3, port=12, switch=True)
    report.network_metric(-2, "IB: Bytes sent", 0, 1000, 4, switch=True)

    summary = translate_reports(tmp_path, report)

    metric = "IB: Bytes sent (bytes/s)"
    assert {row: events[0][1] for (row, _), events in samples(summary).items()} == {
        "NIC mlx5_1 port 1": 1000,
        "NIC mlx5_1 port 2": 2000,
        "Switch MF0;rack7 port 12": 3000,
        "Switch 0xfffffffffffffffe": 4000,
    }
    assert {kind for _, kind in samples(summary)} == {metric}
    assert [task["name"] for task in summary.content["tasks"]] == ["Node node01"]


def test_counters_of_ethernet_switches_are_read_as_those_of_infiniband(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000, schema="3.30.1")
    report.row("NET_DEVICE_INFO", networkId=1, guid=77, name="spine-1")
    report.network_metric(77, "Ethernet: Bytes sent", 0, 1000, 3, port=12, switch=True)
    report._rows["NET_ETH_SWITCH_METRIC"] = report._rows.pop("NET_IB_SWITCH_METRIC")
    summary = translate_reports(tmp_path, report)
    assert list(samples(summary)) == [("Switch spine-1 port 12", "Ethernet: Bytes sent (bytes/s)")]
    assert table_summary(summary, "NET_ETH_SWITCH_METRIC")["sources"][0]["written"] == 1


def test_a_congested_packet_is_told_with_all_that_is_known_of_it(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000, schema="3.28.1")
    report.row("ENUM_NET_IB_CONGESTION_EVENT_TYPE", id=1, name="HighDelay", label="High delay")
    report.row(
        "NET_IB_SWITCH_CONGESTION_EVENT",
        start=50, globalId=255, congestionType=1, packetSLID=3, packetDLID=4, packetSL=5, packetOpCode=6, packetSourceQP=7,
        packetDestinationQP=8, switchIngressPort=9, switchEgressPort=10,
    )  # fmt: skip
    report.row("NET_IB_SWITCH_CONGESTION_EVENT", start=90, globalId=255)

    summary = translate_reports(tmp_path, report)

    found = samples(summary)
    row = "Switch 0x00000000000000ff port 10"
    assert found[row, "InfiniBand switch congestion"] == [(0, "High delay")]
    packet = {kind.removeprefix("Congested packet "): events for (name, kind), events in found.items() if name == row}
    del packet["InfiniBand switch congestion"]
    assert packet == {
        "source LID": [(0, 3)],
        "destination LID": [(0, 4)],
        "service level": [(0, 5)],
        "operation code": [(0, 6)],
        "source queue pair": [(0, 7)],
        "destination queue pair": [(0, 8)],
        "ingress port": [(0, 9)],
    }
    assert [time for time, _ in found["Switch 0x00000000000000ff", "InfiniBand switch congestion"]] == [40]


def test_events_of_cpus_are_rates_and_metrics_keep_their_decimals(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    report.row("TARGET_INFO_PERF_METRIC", id=1, name="cycles", description="", unit="")
    report.row("TARGET_INFO_PERF_METRIC", id=2, name="ipc", description="", unit="inst/cycle")
    report.row("TARGET_INFO_COMPONENT", componentId=7, name="Socket", instance=0)
    for start, count in ((0, 3_000), (1000, 1_500), (2000, 999)):
        end = start + 1000 if start < 2000 else start
        report.row("PERF_EVENT_CPU_RAW_EVENT", start=start, end=end, vmId=1, componentId=3, eventId=1, count=count)
    report.row("PERF_EVENT_CPU_METRIC_EVENT", start=0, end=1000, vmId=1, componentId=3, metricId=2, value=1.2346)
    report.row("PERF_EVENT_SOC_OR_CPU_RAW_EVENT", start=0, end=2000, vmId=1, componentId=7, eventId=1, count=10)
    report.row("PERF_EVENT_SOC_OR_CPU_METRIC_EVENT", start=0, end=1000, vmId=1, componentId=7, metricId=2, value=-0.5)

    summary = translate_reports(tmp_path, report)

    assert samples(summary) == {
        ("CPU 3", "cycles (per second)"): [(0, 3_000_000_000), (1000, 1_500_000_000), (2000, 0)],
        ("CPU 3", "ipc (inst/cycle)"): [(0, 1235), (1000, 0)],
        ("Socket 0", "cycles (per second)"): [(0, 5_000_000), (2000, 0)],
        ("Socket 0", "ipc (inst/cycle)"): [(0, -500), (1000, 0)],
    }
    number = next(one["number"] for one in summary.content["event_types"] if one["label"] == "ipc (inst/cycle)")
    assert f"EVENT_TYPE\n7    {number}    ipc (inst/cycle)\nPRECISION 3\n" in summary.prv.with_suffix(".pcf").read_text()
    # A rate needs time.
    assert table_summary(summary, "PERF_EVENT_CPU_RAW_EVENT")["sources"][0]["left_out"] == {
        "it has no value, or is a rate over no time": 1
    }


def test_counters_of_cores_are_found_in_their_own_table(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    for number, name in ((0, "cpu_cycles"), (1, "inst_retired")):
        report.row("PMU_EVENT_REQUESTS", id=number, eventid=17 + number, source=1, unit_type=1, event_name=name)
    for counter, (cpu, start) in enumerate(((0, 0), (1, 0), (0, 1000), (1, 1000))):
        report.row("PMU_EVENTS", start=start, end=start + 1000, globalVm=1, cpu=cpu, counter_id=counter)
        for index in (0, 1):
            report.row("PMU_EVENT_COUNTERS", id=counter, idx=index, value=100 * counter + index)
    report.row("PMU_EVENTS", start=2000, end=3000, globalVm=1, cpu=0, counter_id=None)
    report.row("UNCORE_PMU_EVENTS", start=0, end=500, globalVm=1, clusterId=2, counterId=5)
    report.row("UNCORE_PMU_EVENT_VALUES", id=5, type=99, value=30, rawId=42, clusterId=2)
    report.row("BANDWIDTH_USAGE_EVENTS", start=0, end=500, globalVm=1, valuesId=8)
    report.row("BANDWIDTH_USAGE_VALUES", id=8, idx=1, value=77)
    report.row("TARGET_INFO_XMC_SPEC", vmId=1, clientId=1, type="C", name="GPU", groupId="g")

    summary = translate_reports(tmp_path, report)

    mega = 1_000_000
    assert samples(summary) == {
        ("CPU 0", "cpu_cycles (per second)"): [(0, 0), (1000, 200 * mega), (2000, 0)],
        ("CPU 0", "inst_retired (per second)"): [(0, mega), (1000, 201 * mega), (2000, 0)],
        ("CPU 1", "cpu_cycles (per second)"): [(0, 100 * mega), (1000, 300 * mega), (2000, 0)],
        ("CPU 1", "inst_retired (per second)"): [(0, 101 * mega), (1000, 301 * mega), (2000, 0)],
        ("CPU cluster 2", "Uncore event 42 (per second)"): [(0, 60 * mega), (500, 0)],
        ("Memory controller", "Memory bandwidth of GPU"): [(0, 77), (500, 0)],
    }
    assert table_summary(summary, "PMU_EVENTS")["sources"][0]["rows"] == 5
    assert [one["table"] for one in summary.content["reports"][0]["tables"]] == [
        "BANDWIDTH_USAGE_EVENTS",
        "PMU_EVENTS",
        "UNCORE_PMU_EVENTS",
    ]


@pytest.mark.parametrize("form", [".sqlite", "_pqtdir"])
def test_fields_of_a_plugin_are_samples_and_labels(tmp_path: Path, form: str) -> None:
    report = ReportBuilder(pid=1000)
    # Numbers come as numbers or in quotes.
    report.plugin_event("EFA", "counters", 100, {"device": "rdmap0s6", "tx_bytes": "4096", "rx_bytes": 10})
    report.plugin_event("EFA", "counters", 100, {"device": "rdmap0s7", "tx_bytes": "1", "rx_bytes": 2})
    report.plugin_event("EFA", "counters", 200, {"device": "rdmap0s6", "tx_bytes": "8192", "rx_bytes": None})
    report.plugin_event("NVML", "GPU 0", 100, {"power W": 71.5, "state": "P0", "temperature C": 40})
    report.plugin_event("NVML", "GPU 0", 200, {"power W": 300, "state": "P2", "temperature C": 41})
    report.plugin_event("Lustre", "", 150, {"read ops": 9})

    summary = translate_reports(tmp_path, report, form=form)

    found = samples(summary)
    assert found == {
        ("NVML GPU 0", "NVML GPU 0 state"): [(0, "P0"), (100, "P2")],
        ("EFA counters rdmap0s6", "EFA counters tx_bytes"): [(0, 4096), (100, 8192)],
        ("EFA counters rdmap0s6", "EFA counters rx_bytes"): [(0, 10)],
        ("EFA counters rdmap0s7", "EFA counters tx_bytes"): [(0, 1)],
        ("EFA counters rdmap0s7", "EFA counters rx_bytes"): [(0, 2)],
        ("NVML GPU 0", "NVML GPU 0 power W"): [(0, 71_500), (100, 300_000)],
        ("NVML GPU 0", "NVML GPU 0 temperature C"): [(0, 40), (100, 41)],
        ("Lustre", "Lustre read ops"): [(50, 9)],
    }
    assert table_summary(summary, "GENERIC_EVENTS")["rows"] == 6
    assert table_summary(summary, "GENERIC_EVENTS")["sources"][0]["written"] == 6


def test_times_of_plugins_that_are_not_in_the_session_s_clock_are_left_out(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    report.plugin_event("P", "t", None, {"a": 1}, raw_time=700).plugin_event("P", "t", None, {"a": 2}, raw_time=900)
    summary = translate_reports(tmp_path, report)
    assert samples(summary) == {("P t", "P t a"): [(0, 1), (200, 2)]}

    other = ReportBuilder(pid=1000)
    other.api_call("cudaFree_v3020", 0, 100)
    other.plugin_event("P", "t", None, {"a": 1}, raw_time=10**15)
    other._rows["GENERIC_EVENT_SOURCES"][0]["data"] = json.dumps({"Name": "P", "TimeSource": "ClockMonotonicRaw"})
    summary = translate_reports(tmp_path, other, options=TranslateOptions(force=True))
    assert table_summary(summary, "GENERIC_EVENTS")["sources"][0]["left_out"] == {"it has no start time": 1}
    assert summary.content["trace"]["length_ns"] == 100


def test_an_event_of_a_plugin_that_is_damaged_does_not_cost_the_others(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    report.plugin_event("P", "t", 0, {"a": 1, "b": [1, 2], "c": {"x": 1}}).plugin_event("P", "t", 10, {"a": 2})
    for time, text in ((20, '{"a": 3'), (30, "[4]"), (40, "{}")):
        report.plugin_event("P", "t", time, {"a": 0})
        report._rows["GENERIC_EVENTS"][-1]["data"] = text
    summary = translate_reports(tmp_path, report)
    assert samples(summary)["P t", "P t a"] == [(0, 1), (10, 2)]
    assert table_summary(summary, "GENERIC_EVENTS")["left_out"] == {"events without a field that can be shown": 3}


def test_without_json_the_values_of_plugins_are_found_in_their_table(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000, schema="3.28.1")
    name = report.string
    report.row("GENERIC_EVENT_SOURCES", sourceId=1 << 32, nameId=name("NVML"), timeSourceId=3)
    report.row("GENERIC_EVENT_TYPES", typeId=1 << 32 | 1, sourceId=1 << 32, nameId=name("GPU 0"))
    for index, (field, kind) in enumerate((("clock", 1), ("power", 3))):
        report.row("GENERIC_EVENT_TYPE_FIELDS", typeId=1 << 32 | 1, fieldIdx=index, fieldNameId=name(field), type=kind)
    for event, (time, clock, power) in enumerate(((0, 1980, 71.25), (50, 1755, 70.0))):
        report.row("GENERIC_EVENTS", genericEventId=event, rawTimestamp=time, timestamp=time, typeId=1 << 32 | 1)
        report.row("GENERIC_EVENT_DATA", genericEventId=event, fieldIdx=0, uintVal=clock)
        report.row("GENERIC_EVENT_DATA", genericEventId=event, fieldIdx=1, doubleVal=power)

    summary = translate_reports(tmp_path, report)

    assert samples(summary) == {
        ("NVML GPU 0", "NVML GPU 0 clock"): [(0, 1980), (50, 1755)],
        ("NVML GPU 0", "NVML GPU 0 power"): [(0, 71_250), (50, 70_000)],
    }
    assert table_summary(summary, "GENERIC_EVENTS")["sources"][0]["rows"] == 2


def test_contexts_of_a_gpu_run_from_their_restore_or_start_to_their_end(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    report.gpu(0)
    for number, text in ((7, "Save end"), (8, "Restore start"), (9, "Context start")):
        report.row("ENUM_GPU_CTX_SWITCH", id=number, name=text, label=text)
    switches = ((0, 9, 1), (100, 7, 1), (110, 8, 2), (120, 9, 2), (200, 7, 2))
    for sequence, (time, tag, context) in enumerate(switches):
        report.row(
            "GPU_CONTEXT_SWITCH_EVENTS",
            tag=tag, vmId=1, seqNo=sequence, contextId=context, timestamp=time, globalPid=report.global_pid(), gpuId=0,
        )  # fmt: skip
    report.row("GPU_CONTEXT_SWITCH_EVENTS", tag=9, vmId=1, seqNo=9, contextId=2, timestamp=150)

    summary = translate_reports(tmp_path, report)

    found = samples(summary)
    first, second = "context 1 of pid 1000", "context 2 of pid 1000"
    assert found["Metrics GPU0", "GPU context that runs"] == [
        (0, first), (100, "End"), (110, second), (120, second), (200, "End"),
    ]  # fmt: skip
    names = {7: "Save end", 8: "Restore start", 9: "Context start"}
    assert found["Metrics GPU0", "GPU context switch"] == [(time, names[tag]) for time, tag, _ in switches]
    assert table_summary(summary, "GPU_CONTEXT_SWITCH_EVENTS")["sources"][0]["left_out"] == {
        "the table names no thread, stream or device": 1
    }


def test_inspect_names_the_adapters_and_what_is_sampled(tmp_path: Path) -> None:
    report = ReportBuilder(host="node01", pid=1000)
    report.row("ENUM_NET_LINK_TYPE", id=2, name="InfiniBand", label="InfiniBand NIC")
    report.row("ENUM_NET_DEVICE_ID", id=4129, name="CntX7", label="ConnectX-7")
    nic = report.nic("mlx5_0", guid=-2)
    report.network_metric(nic, "A", 0, 10, 1).network_metric(nic, "A", 10, 20, 1)
    report.plugin_event("P", "t", 0, {"a": 1, "b": 2})
    report.row("PMU_EVENTS", start=0, end=5, globalVm=1, cpu=0, counter_id=0)
    report.row("PMU_EVENT_COUNTERS", id=0, idx=0, value=1).row("PMU_EVENT_COUNTERS", id=0, idx=1, value=1)
    report.row("VULKAN_API", id=1, start=0, end=1).row("SOME_NEW_EVENTS", start=0, end=1)

    (found,) = inspect([report.write(tmp_path / "report.sqlite")])

    assert found["nics"] == [{"name": "mlx5_0", "link": "InfiniBand NIC", "device": "ConnectX-7", "guid": "0xfffffffffffffffe"}]
    text = as_text(found)
    assert "network adapter mlx5_0: ConnectX-7, InfiniBand NIC, GUID 0xfffffffffffffffe" in text
    assert "1  VULKAN_API: Vulkan, a graphics API" in text
    assert "1  SOME_NEW_EVENTS: no source translates this table" in text
    rows = {one["table"]: (one["rows"], sum(source["rows"] for source in one["sources"])) for one in found["tables"]}
    assert rows == {
        "NET_NIC_METRIC": (2, 2),
        "GENERIC_EVENTS": (1, 1),
        "PMU_EVENTS": (1, 1),
        "VULKAN_API": (1, 0),
        "SOME_NEW_EVENTS": (1, 0),
    }


@pytest.mark.parametrize("form", [".sqlite", "_pqtdir"])
def test_a_source_that_is_skipped_is_named_as_the_reason(tmp_path: Path, form: str) -> None:
    report = ReportBuilder(pid=1000)
    report.gpu(0).metric("SM Active", 0, 50).plugin_event("GpuMetrics", "", 0, {"SM Active": "50"})
    report.plugin_event("EFA", "", 5, {"tx": "1"}).network_metric(report.nic("mlx5_0"), "A", 0, 10, 1)

    summary = translate_reports(tmp_path, report, form=form, options=TranslateOptions(skip=("plugins", "network")))

    skipped = "its source was left out with --only or --skip"
    assert table_summary(summary, "NET_NIC_METRIC")["left_out"] == {skipped: 1}
    assert table_summary(summary, "GENERIC_EVENTS")["left_out"] == {
        "metrics of GPUs, whose samples are in GPU_METRICS": 1,
        skipped: 1,
    }
    assert set(samples(summary)) == {("Metrics GPU0", "SM Active")}
