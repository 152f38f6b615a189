"""Results as an analyst uses them: each table is a frame and an attribute, and files are written by methods."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from polars.testing import assert_frame_equal
from support.report_builder import ReportBuilder

from nsys2prv import __version__
from nsys2prv.efficiency import table_registry
from nsys2prv.efficiency.comparison import compare
from nsys2prv.efficiency.comparison_tables import TABLES
from nsys2prv.efficiency.efficiency_options import CompareOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.outputs.page.content import SECTIONS
from nsys2prv.efficiency.result_tables import EFFICIENCY_COLUMNS
from nsys2prv.efficiency.results import EfficiencyResult, read_efficiency
from nsys2prv.efficiency.table_registry import FIRST_TABLES
from nsys2prv.errors import NotEfficiency
from nsys2prv.vocabulary.terminal import grid


@pytest.fixture
def result(tmp_path: Path) -> EfficiencyResult:
    report = ReportBuilder(rank=0).gpu(0)
    report.kernel("k(int)", 100, 300, launch=(10, 20))
    report.kernel("k(int)", 400, 500, launch=(20, 30))
    return measure([report.write(tmp_path / "rank0.sqlite")])


def test_every_table_is_an_attribute_with_its_columns(result: EfficiencyResult) -> None:
    for table in table_registry.TABLES:
        assert dict(getattr(result, table.name).schema) == table.schema
    assert result.kernels["count"].to_list() == [2]
    assert {"tree", "devices", "findings"} <= set(dir(result))


def test_what_a_table_shows_on_page_and_console_are_columns_of_it_and_places_there() -> None:
    sections = {key for key, *_ in SECTIONS} | {"overview", "clocks"}
    for table in table_registry.TABLES:
        columns = {*table.schema, EFFICIENCY_COLUMNS}
        if table.page is not None:
            assert table.page.section in sections
            assert {*table.page.columns, table.page.worst_first} <= {*columns, ""}
        if table.console is not None:
            names = [entry if isinstance(entry, str) else entry[0] for entry in table.console.columns]
            assert set(names) <= columns
            assert set(table.console.spare) < set(names)
            assert {table.console.longer_than} <= {"", *table_registry.BY_NAME}


def test_tables_are_in_one_order_everywhere(result: EfficiencyResult) -> None:
    names = [table.name for table in table_registry.TABLES]
    assert names[:7] == ["run", "tree", "findings", "finding_checks", "finding_devices", "finding_numbers", "nodes"]
    assert names == list(result.as_json()["tables"])


def test_an_attribute_that_is_no_table_names_the_tables(result: EfficiencyResult) -> None:
    with pytest.raises(AttributeError, match="no table 'kernel'; did you mean kernels"):
        _ = result.kernel


def test_a_result_shows_its_run(result: EfficiencyResult) -> None:
    assert repr(result) == f"<EfficiencyResult of {result.head['title']}: 1 GPU, {len(table_registry.TABLES)} tables>"


def test_methods_write_files(result: EfficiencyResult, tmp_path: Path) -> None:
    result.to_json(tmp_path / "out.json")
    result.to_csv(tmp_path / "tables")
    result.to_talp(tmp_path / "talp.json")
    result.to_html(str(tmp_path / "page.html"))

    assert_frame_equal(read_efficiency(tmp_path / "out.json").devices, result.devices)
    assert {path.stem for path in (tmp_path / "tables").iterdir()} == {
        name for name, table in result.tables.items() if table.height
    }
    assert json.loads((tmp_path / "talp.json").read_text())["resources"]["numGpus"] == 1
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")


def test_a_comparison_has_frames_and_files_too(result: EfficiencyResult, tmp_path: Path) -> None:
    compared = compare([result, result])
    compared.to_json(tmp_path / "out.json")
    compared.to_csv(tmp_path / "tables")

    assert compared.runs["speedup"].to_list() == [1.0, 1.0]
    assert list(json.loads((tmp_path / "out.json").read_text())["tables"]) == [table.name for table in TABLES]
    assert (tmp_path / "tables" / "runs.csv").is_file()


@pytest.fixture
def _later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table and a column came later than the first files of this version."""
    first = {name: [column for column in columns if column != "saved_how"] for name, columns in FIRST_TABLES.items()}
    monkeypatch.setattr(table_registry, "FIRST_TABLES", {name: first[name] for name in first if name != "memory_in_use"})


def file_of_the_first_version(result: EfficiencyResult, path: Path) -> dict[str, Any]:
    """What the program wrote when the version of the format was new."""
    written = json.loads(json.dumps(result.as_json()))
    tables, first = written["tables"], table_registry.FIRST_TABLES
    written["tables"] = {table: {name: tables[table][name] for name in names} for table, names in first.items()}
    path.write_text(json.dumps(written))
    return written


@pytest.mark.usefixtures("_later")
def test_files_of_all_programs_that_wrote_this_version_are_read(result: EfficiencyResult, tmp_path: Path) -> None:
    """When this fails, a table or column of the first files is missing: VERSION counts up, with a new list."""
    path = tmp_path / "old.json"
    file_of_the_first_version(result, path)
    old = read_efficiency(path)
    for table in table_registry.TABLES:
        assert dict(old.tables[table.name].schema) == table.schema
        added = set(table.schema) - set(table_registry.FIRST_TABLES.get(table.name, ()))
        if table.name not in table_registry.FIRST_TABLES:
            assert old.tables[table.name].is_empty()
        else:
            assert_frame_equal(old.tables[table.name].drop(added), result.tables[table.name].drop(added))
            assert not any(old.tables[table.name][name].count() for name in added)
    (warning,) = set(old.head["warnings"]) - set(result.head["warnings"])
    assert warning.startswith(f"{path} was written by nsys2prv {__version__}, which did not measure ")
    assert {"memory_in_use", "findings.saved_how"} <= set(re.findall(r"[a-z_.]+(?=[,:])", warning))


@pytest.mark.usefixtures("_later")
def test_a_file_of_an_earlier_version_has_a_text_and_a_page_and_is_compared(tmp_path: Path) -> None:
    report = ReportBuilder(rank=0).gpu(0)
    for start in (0, 2_000_000_000):
        report.kernel("k(int)", start, start + 100)
    result = measure([report.write(tmp_path / "rank0.sqlite")])
    file_of_the_first_version(result, tmp_path / "old.json")
    result.to_json(tmp_path / "new.json")
    title = "devices are idle nearly all the time, on node01:D0, rank 0 (not known how)"
    assert title in read_efficiency(tmp_path / "old.json").as_text()
    read_efficiency(tmp_path / "old.json").to_html(tmp_path / "page.html")
    compared = compare([tmp_path / "old.json", tmp_path / "new.json"])
    assert compared.runs["speedup"].to_list() == [1.0, 1.0]
    assert any(warning.startswith("A: ") and "memory_in_use" in warning for warning in compared.head["warnings"])


@pytest.mark.usefixtures("_later")
@pytest.mark.parametrize("lost", ["devices", "run", "findings/saved_ns"])
def test_a_file_that_lacks_what_all_had_is_damaged(result: EfficiencyResult, tmp_path: Path, lost: str) -> None:
    written = file_of_the_first_version(result, tmp_path / "old.json")
    table, _, column = lost.partition("/")
    del (written["tables"][table] if column else written["tables"])[column or table]
    (tmp_path / "lost.json").write_text(json.dumps(written))
    with pytest.raises(NotEfficiency, match="missing or damaged"):
        read_efficiency(tmp_path / "lost.json")


# -- talp-pages of BSC reads the files of `efficiency --talp`, where it is installed --------------------


@pytest.fixture
def talp() -> str:
    """The program of talp-pages, or the test is skipped."""
    found = shutil.which("talp")
    if found is None:
        pytest.skip("talp-pages is not installed: .venv/bin/pip install talp-pages && make test")
    return found


def measured(folder: Path, name: str, useful: int, threads: int, *, with_mpi: bool, ranks: int = 2) -> EfficiencyResult:
    """A run in which each rank computes so many of 1000 ns, and so many threads call CUDA."""
    (folder / name).mkdir()
    for rank in range(ranks):
        report = ReportBuilder(rank=rank, ranks=ranks, pid=1000 + rank, with_mpi=with_mpi).gpu(rank)
        report.api_call("cudaFree_v3020", 0, 10)
        report.kernel("gemm", 100, 100 + useful, launch=(20, 30))
        for thread in range(threads):
            report.api_call("cudaDeviceSynchronize_v3020", 990, 1000, tid=2000 + thread)
        report.write(folder / name / f"rank{rank}.sqlite")
    return measure([folder / name])


@pytest.mark.parametrize("with_mpi", [True, False], ids=["mpi", "no mpi"])
def test_versions_of_a_program_are_one_series(tmp_path: Path, talp: str, with_mpi: bool) -> None:
    files = tmp_path / "talp" / "program"
    files.mkdir(parents=True)
    efficiencies = (0.8, 0.6, 0.9)
    for day, efficiency in enumerate(efficiencies, 1):
        # A later version has more threads.
        one = measured(tmp_path, f"version{day}", round(1000 * efficiency), day, with_mpi=with_mpi)
        EfficiencyResult({**one.head, "began": f"2026-01-0{day}T12:00:00"}, one.tables).to_talp(files / f"version{day}.json")

    done = subprocess.run(
        [talp, "ci-report", "-i", tmp_path / "talp", "-o", tmp_path / "pages", "--no-badge"],
        capture_output=True, text=True, timeout=600, cwd=tmp_path,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "critical" not in done.stderr.lower()
    (page,) = (tmp_path / "pages" / "program").glob("evolution_*.html")
    series = drawn(page)
    assert {tuple(one["x"]) for one in series} == {tuple(f"2026-01-0{day}T12:00:00.000000000" for day in (3, 2, 1))}
    assert pytest.approx([0.9, 0.6, 0.8]) in [numbers(one["y"]) for one in series]


def drawn(page: Path) -> list[dict[str, Any]]:
    """The lines that a page of talp-pages draws with Plotly."""
    _, _, arguments = page.read_text(encoding="utf-8").rpartition("Plotly.newPlot(")
    lines: list[dict[str, Any]] = json.JSONDecoder().raw_decode(arguments[arguments.index("[") :])[0]
    return lines


def numbers(values: list[float] | dict[str, str]) -> list[float]:
    """Numbers as Plotly writes them."""
    if isinstance(values, list):
        return values
    return np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"]).tolist()


# -- results on terminals that are narrower than their tables --------------------------------------------


NARROW = 80
NUMBER = re.compile(r"(?<![\w.])[\d,]+(?:\.\d+)? (?:%|[nµm]?s|[KMGT]i?B|[kMGT]?B/s)(?![\w.])")


def without_gpus(folder: Path) -> EfficiencyResult:
    reports = []
    for rank in range(2):
        report = ReportBuilder(host="a-host-with-a-long-name.example.org", pid=1000 + rank).mpi_rank(rank)
        reports.append(report.mpi_collective("MPI_Barrier", 300_000, 400_000 + rank).write(folder / f"rank{rank}.sqlite"))
    return measure(reports)


def is_fit(text: Callable[..., str], width: int = NARROW) -> str:
    """The text for a narrow terminal, after it is compared with the wide one."""
    wide, narrow = text(), text(width=width)
    assert max(map(len, wide.splitlines())) > width, "this would not show anything"
    assert [line for line in narrow.splitlines() if len(line) > width] == []
    assert set(NUMBER.findall(narrow)) <= set(NUMBER.findall(" ".join(wide.split()) + wide))
    assert text(width=10_000) == wide
    return narrow


def test_the_efficiency_of_a_run_fits_into_eighty_columns(slow_gpu: EfficiencyResult) -> None:
    narrow = is_fit(lambda width=None: slow_gpu.as_text(verbose=True, width=width))

    for title in ("Parts of the run", "Kernel durations", "Stragglers in NCCL collectives", "How well clocks are known"):
        assert f"\n{title}" in narrow
    # Lines that follow begin where the first one has its text.
    assert re.search(r"\n   1\.  +\d+\.\d %  +\S+ \S+  (?=(\S.*))\1\n {4,}\S", narrow)


def test_why_an_efficiency_is_missing_is_told_in_a_phrase(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel("gemm", 2_000, 9_000, launch=(1_000, 1_500))
    measured = measure([report.write(tmp_path / "run.sqlite")])

    assert measured.tree.filter(metric="transfer_efficiency")["reason"].str.contains("all ranks").all()
    for title in ("Transfer", "Serialization"):
        assert re.search(rf"\n    [=x] {title} Efficiency +-   without a replay with an ideal network\n", measured.as_text())


def test_a_run_without_gpus_fits_into_eighty_columns(tmp_path: Path) -> None:
    measured = without_gpus(tmp_path)

    narrow = is_fit(lambda width=None: measured.as_text(verbose=True, width=width))
    assert re.search(r"\n  process +threads +of MPI +MPI +calls\n", narrow)


def test_a_comparison_of_three_runs_fits_into_eighty_columns_and_keeps_what_is_compared(slow_gpu: EfficiencyResult) -> None:
    runs = [slow_gpu, replace(slow_gpu), replace(slow_gpu)]
    compared = compare(runs, CompareOptions(label=("before the change", "after the change", "with another network")))

    narrow = is_fit(lambda width=None: compared.as_text(width=width))
    assert re.search(r"\n  cause +A +B +C\n", narrow)
    assert re.search(r"\n  cause +A +B +C  difference B  difference C\n", compared.as_text())


def test_a_table_that_can_not_be_narrower_is_wider_than_the_terminal_and_whole() -> None:
    cells = [["a kernel with a long name", "1,234,567.890 ms", "2,345,678.901 ms"]]

    assert grid(["kernel", "total", "mean of all"], cells, frozenset({0}), 40) == [
        "  kernel                   total       mean of all",
        "  a ker...name  1,234,567.890 ms  2,345,678.901 ms",
    ]
