"""Every table with events of every real report is translated, or left out under a reason; plugins and adapters against SQL."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.paramedir import VIEW, Paramedir
from support.report_builder import ReportBuilder

from nsys2prv.run.inspect import as_text, inspect
from nsys2prv.timeline import coverage
from nsys2prv.trace.translate import translate

from .conftest import Translated

# Tables of the real reports whose rows are no events, found by looking at them.
NO_EVENTS = {
    "ANALYSIS_DETAILS",
    "ANALYSIS_FILE",
    "DIAGNOSTIC_EVENT",
    "EXPORT_META_DATA",
    "GENERIC_EVENT_SOURCES",
    "GENERIC_EVENT_TYPES",
    "META_DATA_CAPTURE",
    "META_DATA_EXPORT",
    "MPI_COMMUNICATORS",
    "MPI_RANKS",
    "NVTX_PAYLOAD_SCHEMAS",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES",
    "OSRT_CALLCHAINS",
    "OSRT_FILE_ACCESS_DESCRIPTORS",
    "PROCESSES",
    "ProcessStreams",
    "SAMPLING_CALLCHAINS",
    "StringIds",
    "ThreadNames",
    "UnwindMethodType",
}
PARTLY_LEFT_OUT = {
    "GENERIC_EVENTS": {coverage.GPU_METRICS_ROWS},
    "NVTX_EVENTS": {coverage.NAMES_OF_NVTX},
}


def rows_of_tables(database: Path) -> dict[str, int]:
    with sqlite3.connect(f"file:{database}?immutable=1", uri=True) as connection:
        names = [name for (name,) in connection.execute("select name from sqlite_master where type in ('table', 'view')")]
        return {name: connection.execute(f'select count(*) from "{name}"').fetchone()[0] for name in names}


def account(translated: Translated) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(translated.trace.path.with_suffix(".json").read_text())["reports"]
    return found


@pytest.mark.every_report
def test_every_table_with_events_is_translated_or_left_out_under_a_reason(translated: Translated) -> None:
    for database, report in zip(translated.databases, account(translated), strict=True):
        listed = {one["table"]: one for one in report["tables"]}
        with_events = {
            name: rows
            for name, rows in rows_of_tables(database).items()
            if rows and name not in NO_EVENTS and not name.startswith(("ENUM_", "TARGET_INFO_"))
        }

        assert {name: one["rows"] for name, one in listed.items()} == with_events
        for name, one in listed.items():
            read = sum(source["rows"] for source in one["sources"] if not source["derived"])
            assert read + sum(one["left_out"].values()) == one["rows"], name
            assert all(source["rows"] == source["written"] + sum(source["left_out"].values()) for source in one["sources"]), (
                name
            )
            assert set(one["left_out"]) <= PARTLY_LEFT_OUT.get(name, set()), name


def test_inspect_prints_the_same_list(translated: Translated) -> None:
    for found, report in zip(inspect(translated.reports), account(translated), strict=True):
        assert {one["table"]: one["left_out"] for one in found["tables"]} == {
            one["table"]: one["left_out"] for one in report["tables"]
        }
        text = as_text(found)
        for one in report["tables"]:
            for reason, rows in one["left_out"].items():
                assert f"{rows:,}  {one['table']}: {reason}\n" in f"{text}\n"


@pytest.mark.parametrize("report", ["one-process-4gpu", "cpu-only"])
def test_adapters_of_the_host_are_told(report: str, translation: Callable[[str], Translated]) -> None:
    translated = translation(report)
    expected = [
        {"name": name, "link": link, "device": device, "guid": hex(guid % 2**64)}
        for name, link, device, guid in translated.query(
            """select nic.name, link.label, device.label, nic.GUID from TARGET_INFO_NIC_INFO nic
               join ENUM_NET_LINK_TYPE link on link.id = nic.linkLayer
               join ENUM_NET_DEVICE_ID device on device.id = nic.deviceId
               order by nic.nicId"""
        )
    ]

    assert expected
    assert account(translated)[0]["nics"] == expected
    (found,) = inspect(translated.reports)
    assert found["nics"] == expected
    for nic in expected:
        assert f"  network adapter {nic['name']}: {nic['device']}, {nic['link']}, GUID {nic['guid']}\n" in as_text(found)


def test_generic_events_of_gpus_are_the_samples_of_gpu_metrics(translation: Callable[[str], Translated]) -> None:
    translated = translation("gpu-metrics-a100")
    by_field = (
        """select field.key, count(*), sum(field.value) from GENERIC_EVENTS, json_each(data) field group by 1 order by 1"""
    )
    # In GPU_METRICS a first sample can be wrapped to 32 bits with a sign.
    by_metric = """select metricName, count(*), sum(value & 0xffffffff)
                   from GPU_METRICS join TARGET_INFO_GPU_METRICS using (typeId, metricId) group by 1 order by 1"""

    assert translated.query(by_field) == translated.query(by_metric)
    (entry,) = (one for one in account(translated)[0]["tables"] if one["table"] == "GENERIC_EVENTS")
    assert entry["left_out"] == {coverage.GPU_METRICS_ROWS: translated.query("select count(*) from GENERIC_EVENTS")[0][0]}


def test_paraver_shows_the_decimals_of_a_sampled_number(tmp_path: Path, paramedir: Paramedir) -> None:
    report = ReportBuilder(pid=1000)
    for start, value in ((0, 1.5), (1000, 0.25)):
        report.row("PERF_EVENT_CPU_METRIC_EVENT", start=start, end=start + 1000, componentId=3, metricId=2, value=value)
    summary = translate([report.write(tmp_path / "report.sqlite")], tmp_path / "out")

    shown = paramedir.show_one(summary.prv, VIEW.format(function="Last Evt Val", types="All", composition="As Is")).read_text()

    assert [line.split("\t")[1:] for line in shown.splitlines() if line] == [
        ["0.00", "1000.00", "1.50"],
        ["1000.00", "1000.00", "0.25"],
    ]
