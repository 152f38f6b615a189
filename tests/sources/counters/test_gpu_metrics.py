"""Sampled metrics of GPUs: which rows they are on, and what becomes of values that can't be."""

import json
from pathlib import Path

import polars as pl
from support.report_builder import ReportBuilder
from support.traces import table_summary, trace_of, translate_reports
from support.whole_trace import WholeTrace, open_whole

from nsys2prv.sources.counters import gpu_metrics
from nsys2prv.timeline import coverage
from nsys2prv.vocabulary import event_types

PERCENTAGE, CLOCK = "SM Active", "GPC Clock Frequency"


def samples(trace: WholeTrace) -> list[tuple[str, str, int, int]]:
    """Row, metric, time and value of each sample."""
    found = trace.events().filter(pl.col("type").is_between(event_types.GPU_METRIC, event_types.GPU_METRIC + 99))
    return sorted(trace.named(found).select("row", "label", "time", "value").rows())


def test_a_clock_that_wrapped_is_repaired_and_one_that_the_gpu_can_not_have_is_left_out(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.gpu(0)  # 1.98 GHz, and up to 1.3 times as much
    report.nvtx_range("all", 0, 100)
    wrapped = 2**32 - 2_150_000_000
    for time, clock in ((10, -wrapped), (20, 2_600_000_000), (30, 1_980_000_000), (40, -1)):
        report.metric(CLOCK, time, clock)
    report.metric("Memory Clock Frequency", 50, -1_700_000_000)
    # The limit is the same in MHz.
    report.metric("SYS Clock Frequency [MHz]", 60, 1_700).metric("SYS Clock Frequency [MHz]", 70, 2_700)
    # nsys 2024 writes Hz under this name, where another version made the recording.
    report.metric("SYS Clock Frequency [MHz]", 80, 1_592_480_000).metric("SYS Clock Frequency [MHz]", 90, 2_700_000_000)
    report.metric("EndTimestamp", 100, 100, instance=1)
    summary = translate_reports(tmp_path, report)
    assert samples(open_whole(summary.prv)) == [
        ("Metrics GPU0", CLOCK, 10, 2_150_000_000), ("Metrics GPU0", CLOCK, 30, 1_980_000_000),
        ("Metrics GPU0", "Memory Clock Frequency", 50, 2**32 - 1_700_000_000),
        ("Metrics GPU0", "SYS Clock Frequency [MHz]", 60, 1_700), ("Metrics GPU0", "SYS Clock Frequency [MHz]", 80, 1_592),
    ]  # fmt: skip
    [account] = table_summary(summary, "GPU_METRICS")["sources"]
    assert (account["rows"], account["written"], account["repaired"]) == (10, 5, 2)
    assert account["left_out"] == {gpu_metrics.GARBAGE_CLOCK: 4, gpu_metrics.END_OF_SAMPLES: 1}


def test_percentages_are_between_0_and_100_whatever_the_version_calls_them(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.nvtx_range("all", 0, 100)
    names = (PERCENTAGE, "DRAM Read Bandwidth [Throughput %]", "Compute Warps in Flight")
    for name in names:
        for time, value in enumerate((0, 100, 101, -1, -4_000_000), start=1):
            report.metric(name, time, value)
    report.metric("Warps in Flight [Avg Warps per Cycle]", 7, 300)
    summary = translate_reports(tmp_path, report)
    found = samples(open_whole(summary.prv))
    # Views of other tools know metrics by these names, brackets and all.
    kept = [(name, value) for name in names for value in (0, 100)]
    kept.append(("Warps in Flight [Avg Warps per Cycle]", 300))
    assert [(name, value) for _, name, _, value in found] == sorted(kept)
    [account] = table_summary(summary, "GPU_METRICS")["sources"]
    assert (account["rows"], account["left_out"], account["repaired"]) == (16, {gpu_metrics.GARBAGE_PERCENTAGE: 9}, 0)


def test_metrics_of_several_gpus_and_reports_have_the_same_numbers_by_name(tmp_path: Path) -> None:
    first, second = ReportBuilder(host="a"), ReportBuilder(host="b")
    for report, names in ((first, (PERCENTAGE, CLOCK, "GR Active")), (second, ("GR Active", PERCENTAGE))):
        for gpu in range(2):
            report.gpu(gpu, cuda=gpu)
            for place, name in enumerate(names):
                report.metric(name, 10, 10 * gpu + place, gpu=gpu)
    trace = trace_of(tmp_path, first, second)
    assert samples(trace) == sorted(
        [(f"Metrics GPU{gpu}", name, 0, 10 * gpu + place) for gpu in (0, 1) for place, name in enumerate((PERCENTAGE, CLOCK))]
        + [("Metrics GPU0", "GR Active", 0, 2), ("Metrics GPU1", "GR Active", 0, 12)]
        + [("Metrics GPU0", "GR Active", 0, 0), ("Metrics GPU1", "GR Active", 0, 10)]
        + [("Metrics GPU0", PERCENTAGE, 0, 1), ("Metrics GPU1", PERCENTAGE, 0, 11)]
    )
    assert trace.names["NODE"] == ("a", "b")
    assert len(trace.labels.types) == 3


def test_instances_of_a_gpu_have_rows_of_their_own(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.gpu(0, cuda=0).gpu(1, cuda=1)
    report.kernel("k", 0, 100)
    for instance in (1, 2):
        report.metric(PERCENTAGE, 10, 30 * instance, instance=instance)
    report.metric(PERCENTAGE, 10, 5, gpu=1, instance=4)
    trace = open_whole(translate_reports(tmp_path, report).prv)
    # One sampler alone is the GPU, whatever else its number says.
    assert samples(trace) == [
        ("Metrics GPU0/1", PERCENTAGE, 10, 30), ("Metrics GPU0/2", PERCENTAGE, 10, 60), ("Metrics GPU1", PERCENTAGE, 10, 5),
    ]  # fmt: skip


def json_report(*, duplicate: bool = False) -> ReportBuilder:
    """Metrics as schema 3.0 has them, and rows of another plugin."""
    report = ReportBuilder(schema="3.0.0")
    report.gpu(0).nvtx_range("all", 0, 100)
    names = (PERCENTAGE, CLOCK, 'odd "name" / [x]')
    report.row("GENERIC_EVENT_SOURCES", sourceId=1, data=json.dumps({"Name": "GpuMetrics", "TimeSource": "SessionNs"}))
    report.row("GENERIC_EVENT_SOURCES", sourceId=2, data=json.dumps({"Name": "EFA"}))
    fields = [{"Name": name} for name in names]
    for kind, source in ((2**48, 1), (2**48 + 1, 1), (77, 2)):
        report.row("GENERIC_EVENT_TYPES", typeId=kind, sourceId=source, data=json.dumps({"Name": "", "Fields": fields}))
    for time, values in ((10, ("97", "1980000000", "3")), (20, ("101", "1980000001", "-5"))):
        data = json.dumps(dict(zip(names, values, strict=True)))
        report.row("GENERIC_EVENTS", rawTimestamp=time, typeId=2**48, data=data)
    report.row("GENERIC_EVENTS", rawTimestamp=999, timestamp=30, typeId=2**48 + 1, data=json.dumps({PERCENTAGE: 42}))
    report.row("GENERIC_EVENTS", rawTimestamp=999, timestamp=30, typeId=77, data=json.dumps({PERCENTAGE: 1}))
    if duplicate:
        report.metric(PERCENTAGE, 10, 97)
    return report


def test_metrics_in_json_rows_are_read_and_rows_of_other_plugins_are_not(tmp_path: Path) -> None:
    summary = translate_reports(tmp_path, json_report())
    odd = "odd 'name' / [x]"
    assert samples(open_whole(summary.prv)) == [
        ("Metrics GPU0", CLOCK, 10, 1_980_000_000), ("Metrics GPU0", CLOCK, 20, 1_980_000_001),
        ("Metrics GPU0", PERCENTAGE, 10, 97),
        ("Metrics GPU0", odd, 10, 3), ("Metrics GPU0", odd, 20, 2**32 - 5),
        ("Metrics GPU1", PERCENTAGE, 30, 42),
    ]  # fmt: skip
    sources = table_summary(summary, "GENERIC_EVENTS")["sources"]
    [account] = [account for account in sources if account["source"] == "gpu-metrics"]
    assert (account["rows"], account["repaired"]) == (3, 1)
    assert account["left_out"] == {gpu_metrics.GARBAGE_PERCENTAGE: 1}
    assert open_whole(summary.prv).header.end == 100


def test_samples_that_are_in_two_tables_are_told_once(tmp_path: Path) -> None:
    summary = translate_reports(tmp_path, json_report(duplicate=True))
    assert samples(open_whole(summary.prv)) == [("Metrics GPU0", PERCENTAGE, 10, 97)]
    table = table_summary(summary, "GENERIC_EVENTS")
    assert not [account for account in table["sources"] if account["source"] == "gpu-metrics"]
    assert table["left_out"] == {coverage.GPU_METRICS_ROWS: 3}
