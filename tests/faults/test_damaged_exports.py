"""Damaged exports are read or refused in a sentence: they end no process, and no error passes unnamed."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
from support.command_line import CommandLine
from support.failed_runs import sentence, small_report

BAD_REPORT = 3


def as_streams(folder: Path) -> Path:
    """The tables of a folder in Arrow's stream format."""
    for file in folder.glob("*.arrow"):
        with pa.ipc.open_file(file) as reader:
            table = reader.read_all()
        file.unlink()
        with pa.OSFile(str(file), "wb") as target, pa.ipc.new_stream(target, table.schema) as writer:
            writer.write_table(table)
    return folder


def test_offsets_of_texts_that_lead_outside_are_refused(tmp_path: Path, command_line: CommandLine) -> None:
    report = as_streams(small_report(30).write(tmp_path / "rank0_arwdir"))
    table = report / "StringIds.arrow"
    content = table.read_bytes()
    with pa.ipc.open_stream(table) as reader:
        offsets = reader.read_all()["value"].chunk(0).buffers()[1].to_pybytes()
    assert content.count(offsets) == 1
    # All but the first and the last, which sizes of buffers are checked against.
    wrong = offsets[:8] + b"\x7f" * (len(offsets) - 16) + offsets[-8:]
    table.write_bytes(content.replace(offsets, wrong))

    sentence(command_line.run("translate", report, "-o", "OUT"), BAD_REPORT, "StringIds.arrow")


def test_an_arrow_stream_that_is_cut_off_is_refused(tmp_path: Path, command_line: CommandLine) -> None:
    report = as_streams(small_report(30).write(tmp_path / "rank0_arwdir"))
    table = report / "CUPTI_ACTIVITY_KIND_KERNEL.arrow"
    size = table.stat().st_size

    for part in range(0, size - 9, size // 6):
        os.truncate(as_streams(small_report(30).write(report)) / table.name, part)
        sentence(command_line.run("translate", report, "-o", "OUT"), BAD_REPORT, table.name)
