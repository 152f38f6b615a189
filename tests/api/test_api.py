"""The Python API: what a notebook sees of a run."""

import errno
import gc
import inspect
import os
import re
import subprocess
import sys
from dataclasses import fields, replace
from html import escape
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from support.checkout import tool
from support.report_builder import ReportBuilder

import nsys2prv as np
from nsys2prv.demo import write_reports
from nsys2prv.demo.run_demo import cluster_of_demo
from nsys2prv.efficiency.efficiency_options import COMPARE_OPTIONS, EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.meters.memory_in_use import MEMORY_BINS, MEMORY_IN_USE
from nsys2prv.efficiency.outputs.page.content import DRAWINGS
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.errors import DiskFull, ReportNotFound, UsageError
from nsys2prv.run.options import ReadOptions
from nsys2prv.trace.translate_options import TranslateOptions

CHECKOUT = Path(__file__).resolve().parents[2]


def small_run(folder: Path) -> Path:
    """Two ranks with a few events."""
    for rank in range(2):
        report = ReportBuilder(host="node01", rank=rank, with_mpi=True, ranks=2, pid=1000 + rank).gpu(rank)
        report.kernel("gemm(float*)", 100, 300, launch=(10, 20), registersPerThread=32)
        report.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 350, 500, launch=(30, 40), stream=8)
        report.mpi_collective("MPI_Barrier", 700, 1000).metric("SM Active [Throughput %]", 200, 50, gpu=rank)
        report.write(folder / f"rank{rank}.sqlite")
    return folder


@pytest.fixture
def run(tmp_path: Path) -> np.NsysRun:
    return np.open_run(small_run(tmp_path), align="utc", scratch=tmp_path)


def test_dir_shows_the_public_names_only() -> None:
    assert dir(np) == sorted(np.__all__)
    assert all(hasattr(np, name) for name in dir(np))
    assert not hasattr(np, "no_such_name")


def test_the_command_line_starts_without_polars() -> None:
    code = "import sys, nsys2prv.cli.app; print('polars' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (np.open_run, {one.name for one in fields(ReadOptions)}),
        (np.NsysRun.translate, {one.name for one in fields(TranslateOptions)} - {one.name for one in fields(ReadOptions)}),
        (np.NsysRun.efficiency, {one.name for one in fields(EfficiencyOptions)} - {one.name for one in fields(ReadOptions)}),
        (np.compare, set(COMPARE_OPTIONS)),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_functions_have_the_options_of_the_command_line_and_describe_them(function: object, names: set[str]) -> None:
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    assert {one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY} == names
    text = inspect.getdoc(function) or ""
    assert all(re.search(rf"^ *{name}\n +\S", text, re.MULTILINE) for name in names)
    assert re.search("--[a-z]|exit code|repeated|`nsys2prv ", text) is None
    assert not re.search("Choice|Policy|Range|Method|Scaling", str(inspect.signature(function)))  # type: ignore[arg-type]


def test_a_run_that_cannot_be_read_shows_why(tmp_path: Path) -> None:
    run = np.open_run(tmp_path / "missing")
    assert "there is no such file" in repr(run)
    with pytest.raises(ReportNotFound):
        _ = run.ranks


def test_a_run_shows_its_reports_and_ranks_devices_and_clocks_are_frames(run: np.NsysRun, tmp_path: Path) -> None:
    assert repr(run) == f"<NsysRun {tmp_path}: 2 reports, ranks 0-1, 2 devices on 1 host, 990 ns>"
    assert run.ranks.select("rank", "host", "process", "streams").rows() == [(0, "node01", 1000, 2), (1, "node01", 1001, 2)]
    assert run.devices.select("host", "device", "ranks").rows() == [("node01", 0, [0]), ("node01", 1, [1])]
    assert run.devices["name"].null_count() == 0
    assert run.clocks.is_empty()
    assert [path.name for path in run.reports] == ["rank0.sqlite", "rank1.sqlite"]


def test_events_have_places_times_and_attributes(run: np.NsysRun) -> None:
    found = run.events("kernels").sort("rank", "start").collect()

    assert found.select("rank", "host", "device", "stream", "start", "end", "name").rows()[:2] == [
        (0, "node01", 0, 7, 90, 290, "gemm(float*)"),
        (0, "node01", 0, 8, 340, 490, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"),
    ]
    assert found["event_type"].to_list() == ["CUDA kernel", "NCCL kernel"] * 2
    assert found["family"].str.contains("NCCL").to_list() == [False, True] * 2
    assert found["registers_per_thread"].to_list()[0] == 32
    samples = run.events("gpu-metrics").sort("device").collect()
    assert samples.select("device", "start", "end", "series", "value").rows() == [
        (0, 190, None, "SM Active [Throughput %]", 50.0),
        (1, 190, None, "SM Active [Throughput %]", 50.0),
    ]
    assert "nvtx" not in run.sources
    assert run.events("nvtx").collect().is_empty()
    with pytest.raises(UsageError, match=r"kernles.*kernels"):
        run.events("kernles")


def test_events_of_host_threads_have_their_thread_and_a_time_range_cuts_events(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000).os_call("read", 100, 200)
    report.kernel("gemm", 3000, 5000, launch=(1000, 1500))
    path = report.write(tmp_path / "report.sqlite")
    with np.open_run(path) as whole, np.open_run(path, time="3us:4us") as part:
        calls, kernels = whole.events("os-runtime").collect(), part.events("kernels").collect()
    assert calls.select("thread", "start", "end", "name").rows() == [(1000, 0, 100, "read")]
    assert kernels.select("start", "end").rows() == [(0, 1000)]


def test_options_take_texts_and_values(tmp_path: Path) -> None:
    folder = small_run(tmp_path)
    assert np.open_run(folder, ranks="1").ranks["rank"].to_list() == [1]
    assert np.open_run(folder, ranks=[0]).ranks["rank"].to_list() == [0]
    assert np.open_run(folder, time="0ns:500ns").span == (0, 500)
    assert np.open_run(folder, time=(0, 500)).span == (0, 500)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("time", "5s", "START:END"),
        ("ranks", "7-0", "0-7,12"),
        ("align", "magic", "not one of auto, none"),
        ("workers", -1, "out of range"),
    ],
)
def test_a_wrong_option_is_named(option: str, value: object, said: str) -> None:
    with pytest.raises(UsageError, match=f"{option}={re.escape(repr(value))}: .*{said}"):
        np.open_run("run/", **{option: value})


@pytest.mark.parametrize(("option", "value", "instead"), [("time", "0ns:500ns", "window="), ("ranks", "1", "open_run")])
def test_an_option_of_reading_in_a_call_is_named_with_its_place(run: np.NsysRun, option: str, value: str, instead: str) -> None:
    for function in (run.efficiency, run.whatif, lambda **options: run.translate("out", **options)):
        with pytest.raises(UsageError, match=rf"{option}: this is an option of open_run.*{instead}"):
            function(**{option: value})


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(TypeError, match="no_such_option"):
        np.open_run("run/", no_such_option=1)


def test_closing_a_run_removes_its_files(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with np.open_run(small_run(tmp_path), scratch=scratch) as run:
        assert run.events("kernels").collect().height == 4
        assert list(scratch.iterdir())
    assert not list(scratch.iterdir())
    assert "closed" in repr(run)
    with pytest.raises(UsageError, match="the run is closed"):
        run.events("kernels")


def test_a_run_that_is_forgotten_removes_its_files(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    run = np.open_run(small_run(tmp_path), scratch=scratch)
    assert run.ranks.height == 2
    del run
    gc.collect()
    assert not list(scratch.iterdir())


def test_a_full_disk_is_named(run: np.NsysRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert run.sources
    full = Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    with pytest.raises(DiskFull, match=f"{tmp_path}: the disk is full"):
        run.events("kernels")


@pytest.mark.thorough
def test_results_do_not_depend_on_workers_which_need_no_dask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = small_run(tmp_path)
    # Dask brings it, and Polars takes it for functions in expressions.
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with np.open_run(folder) as alone, np.open_run(folder, workers=2) as spread:
        for source in ("kernels", "mpi"):
            order = ["rank", "start"]
            assert_frame_equal(spread.events(source).sort(order).collect(), alone.events(source).sort(order).collect())
        assert_frame_equal(spread.efficiency().devices, alone.efficiency().devices)


def test_a_broken_report_is_left_out_of_events(tmp_path: Path) -> None:
    folder = small_run(tmp_path)
    (folder / "rank2.sqlite").write_text("These are notes, and no database at all.\n" * 100)
    run = np.open_run(folder, keep_going=True)
    assert set(run.events("kernels").collect()["rank"]) == {0, 1}
    assert "rank2.sqlite" in run.warnings[0]


def test_efficiency_is_that_of_the_command(run: np.NsysRun) -> None:
    result = run.efficiency(bins=10)
    expected = measure(run.inputs, EfficiencyOptions(align="utc", bins=10))
    assert list(result.tables) == list(expected.tables)
    for name, table in result.tables.items():
        assert_frame_equal(table, expected.tables[name])
    assert result.bins["bin"].n_unique() == 10
    assert result.nccl_stragglers["rank"].to_list() == [0, 1]


def test_a_run_is_read_once_and_measured_as_often_as_it_is_asked(run: np.NsysRun, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run.efficiency()
    monkeypatch.setattr("nsys2prv.api.runs.events_of_session", None)
    again, half = run.efficiency(), run.efficiency(window="200ns:400ns")
    assert all(again.tables[name].equals(table) for name, table in first.tables.items())
    assert half.head["window"]["length_ns"] == 200
    assert run.efficiency(no_critical_path=True).critical_path.is_empty()
    assert run.whatif(ideal_network=True).what_if.row(0, named=True)["measured_ns"] == first.head["window"]["length_ns"]


def test_compare_takes_paths_runs_and_results(run: np.NsysRun, tmp_path: Path) -> None:
    result = run.efficiency()
    result.to_json(tmp_path / "run.json")
    compared = np.compare([result, run, tmp_path / "run.json", tmp_path / "rank0.sqlite"])
    assert compared.runs["devices"].to_list() == [2, 2, 2, 1]
    part = np.compare([run, tmp_path / "rank0.sqlite"], window="200ns:400ns")
    assert part.runs["elapsed_ns"].to_list() == [200, 200]


@pytest.mark.thorough
def test_examples_of_the_documentation_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reports").mkdir()
    write_reports(tmp_path / "reports", cluster_of_demo())
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}

    page = (CHECKOUT / "docs" / "api.md").read_text(encoding="utf-8")
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        exec(compile(block, "docs/api.md", "exec"), names)

    shown = re.search(r"^    (<NsysRun .*>)$", (CHECKOUT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert shown is not None
    assert repr(names["run"]) == shown[1]
    assert {path.name for path in tmp_path.iterdir()} >= {"page.html", "run.json", "tables", "OUT.prv"}


# -- what a notebook shows -----------------------------------------------------------------------------
notebook = tool("notebook")
site = tool("site_pages")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with reports of the demo, of as few events as will do."""
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "reports").mkdir()
    small = replace(cluster_of_demo(1, 2), iterations=6, layers=1, pause_ns=50_000_000, gpu_metrics_hz=0)
    write_reports(folder / "reports", small)
    return folder


@pytest.fixture(scope="module")
def result(folder: Path) -> EfficiencyResult:
    with np.open_run(folder / "reports") as run:
        return run.efficiency()


def with_memory(result: EfficiencyResult) -> EfficiencyResult:
    """The same with memory in use, of which the demo records nothing."""
    bins = result.tables["bins"].select("bin", device=pl.lit("gpu001:D0"), memory=pl.lit("device"), peak_bytes="bin")
    use = MEMORY_IN_USE.frame(
        [{"device": "gpu001:D0", "memory": "device", "peak_bytes": 99, "peak_at_ns": 5, "before_bytes": 0}]
    )
    of_bins = MEMORY_BINS.frame(bins.with_columns(end_bytes="bin"))
    return EfficiencyResult(result.head, {**result.tables, "memory_in_use": use, "memory_bins": of_bins})


@pytest.mark.thorough
def test_every_cell_of_the_notebook_runs_and_shows_something(folder: Path) -> None:
    kept = notebook.read_notebook()
    done = notebook.execute(kept, folder)
    for before, after in zip(kept["cells"], done["cells"], strict=True):
        if before["cell_type"] == "code":
            # On another run, but of the same kind.
            kinds = [[sorted(output["data"]) for output in cell["outputs"]] for cell in (before, after)]
            assert kinds[0] == kinds[1] != []
    assert (folder / "trace.prv").exists()


def test_the_notebook_uses_the_public_api_alone() -> None:
    code = "\n".join("".join(cell["source"]) for cell in notebook.read_notebook()["cells"] if cell["cell_type"] == "code")
    assert re.findall(r"^ *(?:import|from) (nsys2prv\S*)", code, re.MULTILINE) == ["nsys2prv"]


def test_the_notebook_is_kept_as_jupyter_writes_it() -> None:
    assert notebook.NOTEBOOK.read_text(encoding="utf-8") == notebook.as_text(notebook.read_notebook())


def test_the_page_of_the_site_has_every_cell_and_output() -> None:
    markdown = site.notebook_as_markdown()
    cells = notebook.read_notebook()["cells"]

    assert markdown.count("```python") == sum(cell["cell_type"] == "code" for cell in cells)
    assert markdown.startswith("# A run in a notebook")
    of_notebook = SimpleNamespace(file=SimpleNamespace(src_uri=site.NOTEBOOK_PAGE))
    html = site.on_page_content(markdown, of_notebook, None, None)
    assert 'id="output-' not in html
    for cell in cells:
        for output in cell.get("outputs", []):
            data = output["data"]
            assert "".join(data.get("text/html", [])) in html
            assert "text/html" in data or escape("".join(data["text/plain"])) in html


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawings_are_shown_without_scripts(result: EfficiencyResult, name: str) -> None:
    result = with_memory(result) if name == "memory" else result
    drawn = result.plot(name)
    assert repr(drawn).startswith(f"<Drawing {name}: ")
    assert drawn._repr_html_() == str(drawn) == drawn.html
    assert "<script" not in drawn.html
    assert "<svg" in drawn.html or 'class="leaf-row"' in drawn.html


def test_a_drawing_that_does_not_exist_names_what_is_near(result: EfficiencyResult) -> None:
    with pytest.raises(UsageError, match="did you mean iterations"):
        result.plot("iteration")
    nothing = {name: table.clear() for name, table in result.tables.items()}
    for name in DRAWINGS:
        with pytest.raises(UsageError, match="this run has nothing to show"):
            EfficiencyResult(result.head, nothing).plot(name)
