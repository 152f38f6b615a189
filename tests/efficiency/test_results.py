"""Results as an analyst uses them: each table is a frame and an attribute, and files are written by methods."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal
from support.report_builder import ReportBuilder

from nsys2prv import __version__
from nsys2prv.efficiency import table_registry
from nsys2prv.efficiency.comparison import compare
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.outputs.page.content import SECTIONS
from nsys2prv.efficiency.result_tables import EFFICIENCY_COLUMNS
from nsys2prv.efficiency.results import EfficiencyResult, read_efficiency
from nsys2prv.efficiency.table_registry import FIRST_TABLES
from nsys2prv.errors import NotEfficiency


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> EfficiencyResult:
    report = ReportBuilder(rank=0).gpu(0)
    report.kernel("k(int)", 100, 300, launch=(10, 20))
    report.kernel("k(int)", 400, 500, launch=(20, 30))
    return measure([report.write(tmp_path_factory.mktemp("result") / "rank0.sqlite")])


def test_every_table_is_an_attribute_with_its_columns_and_a_result_shows_its_run(result: EfficiencyResult) -> None:
    for table in table_registry.TABLES:
        assert dict(getattr(result, table.name).schema) == table.schema
    assert result.kernels["count"].to_list() == [2]
    assert {"tree", "devices", "findings"} <= set(dir(result))
    with pytest.raises(AttributeError, match="no table 'kernel'; did you mean kernels"):
        _ = result.kernel
    assert repr(result) == f"<EfficiencyResult of {result.head['title']}: 1 GPU, {len(table_registry.TABLES)} tables>"


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
