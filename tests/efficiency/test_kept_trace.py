"""What a cache keeps of a trace is what is in its lines; when it is damaged, or the trace changed, the lines are read again."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support.kept_files import EACH_DAMAGE, LONG_AGO, files_in, moved
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.kept_trace import KeptTrace
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.outputs.export import json_text
from nsys2prv.efficiency.run_events import ON_HOSTS, RunEvents
from nsys2prv.efficiency.trace_lines import LineReader
from nsys2prv.errors import OutputError, TraceError
from nsys2prv.execution import cache_folder, external_sort
from nsys2prv.run.option_values import TimeRange, rank_list
from nsys2prv.run.read_options import ReadOptions
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions

BESIDE = (".pcf", ".row", ".json")


def rank(number: int) -> ReportBuilder:
    """A rank with kernels, ranges, waits, an MPI collective and messages to the other one."""
    report = ReportBuilder(schema="3.25.0", rank=number, ranks=2, pid=1000 + number, host="node01").gpu(number)
    report.communicator(rank=number, size=2)
    for step in range(4):
        start = 1000 * step + 10 * number
        report.kernel(f"gemm{step % 2}", start + 100, start + 400, device=number, launch=(start + 10, start + 20))
        report.nvtx_range(f"step {step}", start, start + 700)
        call = report.api_call("cudaStreamSynchronize_v3020", start + 300, start + 450)
        report.synchronization(start + 310, start + 440, correlation=call, stream=7, device=number)
        report.mpi_collective("MPI_Allreduce", start + 500, start + 650, size=64)
        report.mpi_p2p("MPI_Recv" if number else "MPI_Send", start + 750, start + 800, partner=1 - number, size=128, tag=step)
    return report


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    reports = [rank(number).write(folder / f"report{number}.sqlite") for number in range(2)]
    return translate(reports, folder / "OUT", TranslateOptions(align="utc", no_views=True)).prv


class Commands:
    """One command after another that measure the same trace with a cache."""

    def __init__(self, trace: Path, times_read: list[Path]) -> None:
        self.trace, self.cache = trace, trace.parent / "cache"
        self._times_read = times_read
        self._number = 0
        self.warnings: list[str] = []

    def read(self, **options: Any) -> bool:
        """Read events with the cache, and compare them with those that are read without; whether lines were read for them."""
        with_cache = self.events(cache=self.cache, **options)
        self.warnings = with_cache.warnings
        lines_were_read = bool(self._times_read)
        found, expected = content(with_cache), content(self.events(**options))
        assert found.keys() == expected.keys()
        assert {name for name in found if found[name] != expected[name]} == set()
        return lines_were_read

    def events(self, *, dependencies: bool = True, ranges: bool = True, **options: Any) -> RunEvents:
        self._number += 1
        self._times_read.clear()
        folder = self.trace.parent / f"scratch{self._number}"
        return read_events([self.trace], ReadOptions(**options), folder, with_ranges=ranges, with_dependencies=dependencies)

    @property
    def files(self) -> list[Path]:
        return files_in(self.cache)

    @property
    def list(self) -> Path:
        return next(path for path in self.files if path.suffix == ".json")


def content(events: RunEvents) -> dict[str, object]:
    sorts = {**events.collections, "launches": events.launches, "messages": events.messages}
    rows = {name: pl.concat(one.windows()).rows() if one is not None else None for name, one in sorts.items()}
    known = ("begin", "length", "types", "callers", "ranks_of_run", "clocks", "report_clocks", "recorders", "gpus")
    return {**rows, **{name: getattr(events, name) for name in known}}


def copied(made: Path, folder: Path) -> Path:
    """The trace with the files beside it, which were written long ago."""
    for suffix in (".prv", *BESIDE):
        path = Path(shutil.copy(made.with_suffix(suffix), folder))
        os.utime(path, ns=(LONG_AGO, LONG_AGO))
    return folder / made.name


@pytest.fixture
def commands(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    times_read: list[Path] = []
    read = LineReader.read

    def counted(reader: LineReader, *, progress: bool | None) -> None:
        times_read.append(reader._trace.path)
        read(reader, progress=progress)

    monkeypatch.setattr(LineReader, "read", counted)
    # Also of a short trace some rows are in files of several runs.
    monkeypatch.setattr(external_sort, "RUN_ROWS", 3)
    return Commands(copied(made, tmp_path), times_read)


def test_the_second_command_reads_no_lines(commands: Commands) -> None:
    assert [commands.read(), commands.read()] == [True, False]
    assert not commands.warnings
    events = commands.events(cache=commands.cache)
    assert {"device", "host", "ranges", "waits", "mpi_collectives"} <= events.collections.keys()
    assert (events.launches is not None, events.messages is not None) == (True, True)


@pytest.mark.parametrize("less", [{"dependencies": False}, {"ranges": False}], ids=["no dependencies", "no ranges"])
def test_what_is_kept_serves_commands_that_need_less_of_it(commands: Commands, less: dict[str, bool]) -> None:
    assert commands.read()
    assert not commands.read(**less)


def test_commands_that_need_more_read_all_and_keep_it_beside(commands: Commands) -> None:
    needs: list[dict[str, bool]] = [{"dependencies": False}, {}]

    assert [commands.read(**need) for need in (*needs, *needs)] == [True, True, False, False]


@pytest.mark.parametrize("part", [{"time": TimeRange(1200, 3100)}, {"ranks": rank_list("1")}], ids=["time", "ranks"])
def test_a_part_of_a_trace_is_neither_kept_nor_taken_out_of_the_cache(commands: Commands, part: dict[str, Any]) -> None:
    assert commands.read(**part)
    assert not commands.files
    assert commands.read()
    assert commands.read(**part)


def test_a_compressed_trace_is_kept_too(commands: Commands, tmp_path: Path) -> None:
    plain = commands.trace
    commands.trace = tmp_path / "OUT.prv.gz"
    commands.trace.write_bytes(gzip.compress(plain.read_bytes()))
    os.utime(commands.trace, ns=(LONG_AGO, LONG_AGO))
    plain.unlink()

    assert [commands.read(), commands.read()] == [True, False]


@EACH_DAMAGE
@pytest.mark.parametrize("which", ["list", "columns"])
def test_what_is_damaged_or_open_to_others_is_read_again_and_replaced(
    commands: Commands, damage: Callable[[Path], object], which: str
) -> None:
    commands.read()
    damage(commands.list if which == "list" else next(file for file in commands.files if file != commands.list))

    assert [commands.read(), commands.read()] == [True, False]


def test_a_cache_that_others_can_enter_is_refused(commands: Commands) -> None:
    commands.read()
    (commands.cache / "nsys2prv-columns").chmod(0o755)

    with pytest.raises(OutputError, match=r"other users can enter it.*--cache"):
        commands.read()


def test_a_cache_that_can_not_be_written_is_reported_and_the_work_goes_on(commands: Commands) -> None:
    commands.cache.write_text("a file")

    assert commands.read()
    assert ["OUT.prv: its columns are not kept" in warning for warning in commands.warnings] == [True]


def relabel(trace: Path) -> None:
    path = trace.with_suffix(".pcf")
    path.write_text(path.read_text().replace("gemm0", "gemm9"))
    os.utime(path, ns=(LONG_AGO, LONG_AGO + 1))


def rename_rows(trace: Path) -> None:
    path = trace.with_suffix(".row")
    path.write_text(path.read_text().replace("CUDA-D0", "CUDA-D3"))
    os.utime(path, ns=(LONG_AGO, LONG_AGO + 1))


def forget_clocks(trace: Path) -> None:
    path = trace.with_suffix(".json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "clocks": []}))


def other_value(trace: Path) -> None:
    """An event has another value, and the file its size."""
    text = trace.read_text()
    end = text.index("\n", text.index("\n2:", len(text) // 2) + 1)
    trace.write_text(text[: end - 1] + ("2" if text[end - 1] != "2" else "1") + text[end:])
    os.utime(trace, ns=(LONG_AGO, LONG_AGO + 1))


@pytest.mark.parametrize(
    "change", [relabel, rename_rows, forget_clocks, other_value, moved], ids=lambda change: change.__name__
)
def test_a_trace_or_what_is_beside_it_that_changed_is_read_again(commands: Commands, change: Callable[[Path], object]) -> None:
    commands.read()
    sizes = [commands.trace.stat().st_size]
    change(commands.trace)

    assert commands.read()
    assert sizes == [commands.trace.stat().st_size]


@pytest.mark.parametrize("suffix", BESIDE)
def test_files_beside_a_trace_that_appear_or_vanish_count(commands: Commands, suffix: str) -> None:
    commands.read()
    there = commands.trace.with_suffix(suffix)
    there.rename(there.with_name("away"))
    assert [commands.read(), commands.read()] == [True, False]
    there.with_name("away").rename(there)

    assert commands.read()


def test_a_trace_that_changes_while_it_is_read_is_not_kept(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    close = LineReader.close

    def close_and_touch(reader: LineReader, *window: Any) -> None:
        close(reader, *window)
        os.utime(commands.trace, ns=(LONG_AGO, LONG_AGO + 1))

    with monkeypatch.context() as patched:
        patched.setattr(LineReader, "close", close_and_touch)
        commands.events(cache=commands.cache)

    assert not commands.files


def test_a_trace_that_changes_before_it_is_opened_is_read(commands: Commands) -> None:
    commands.read()
    events = commands.events(cache=commands.cache)
    kept = KeptTrace(commands.cache, [commands.trace, *map(commands.trace.with_suffix, BESIDE)])
    os.utime(commands.trace, ns=(LONG_AGO, LONG_AGO + 1))

    assert ON_HOSTS.name in events.collections
    assert kept.take([ON_HOSTS], commands.trace.parent / "taken") is None


def test_a_trace_that_is_wrong_is_not_kept(commands: Commands) -> None:
    with commands.trace.open("a") as file:
        file.write("2:no event\n")
    os.utime(commands.trace, ns=(LONG_AGO, LONG_AGO))

    with pytest.raises(TraceError, match="no event"):
        commands.read()
    assert not commands.files


def test_commands_at_once_leave_one_whole_set_of_files(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = KeptTrace.keep

    def another_keeps_first(kept: KeptTrace, *read: Any) -> str | None:
        monkeypatch.setattr(KeptTrace, "keep", keep)
        commands.events(cache=commands.cache)
        return keep(kept, *read)

    monkeypatch.setattr(KeptTrace, "keep", another_keeps_first)
    assert commands.read()
    described = json.loads(commands.list.read_bytes().partition(b"\n")[2])

    assert {path.name for path in commands.files} == {commands.list.name, *described["files"]}
    assert not commands.read()


def test_what_another_command_replaces_while_it_is_taken_is_read_again(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands.read()
    place = cache_folder.CacheFolder.place

    def replaced_first(folder: cache_folder.CacheFolder, *parts: Any) -> set[str]:
        monkeypatch.setattr(cache_folder.CacheFolder, "place", place)
        for path in commands.files:
            path.unlink()
        commands.events(cache=commands.cache)
        commands._times_read.clear()
        return place(folder, *parts)

    monkeypatch.setattr(cache_folder.CacheFolder, "place", replaced_first)
    assert [commands.read(), commands.read()] == [True, False]


def test_the_result_is_the_same_with_a_cache_and_without(commands: Commands) -> None:
    def result(cache: Path | None) -> dict[str, Any]:
        found = json.loads(json_text(measure([commands.trace], EfficiencyOptions(cache=cache)).as_json()))
        return {name: value for name, value in found.items() if name != "options"}

    expected = result(None)
    commands.read()
    assert result(commands.cache) == expected
    assert not commands.read()
