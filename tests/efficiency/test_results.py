"""Results as an analyst uses them: each table is a frame and an attribute, and files are written by methods."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal
from support.report_builder import ReportBuilder

from nsys2prv.efficiency import table_registry
from nsys2prv.efficiency.comparison import TABLES, compare_measured
from nsys2prv.efficiency.efficiency_options import CompareOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.results import EfficiencyResult, read_efficiency


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
    compared = compare_measured([result, result], [["one"], ["two"]], CompareOptions())
    compared.to_json(tmp_path / "out.json")
    compared.to_csv(tmp_path / "tables")

    assert compared.runs["speedup"].to_list() == [1.0, 1.0]
    assert list(json.loads((tmp_path / "out.json").read_text())["tables"]) == [table.name for table in TABLES]
    assert (tmp_path / "tables" / "runs.csv").is_file()
