"""Views are rendered for one trace with its event types, values and rows; a wrong template is an error."""

import html
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import few_of
from support.view_contents import ONE_GPU, SEVERAL_GPUS, SHARED_GPU, SIXTEEN_NODES, TYPES, content, render_and_parse, rendered
from support.view_parser import Cfg, MalformedCfg, parse_views

from nsys2prv.paraver.views.folder import write_views
from nsys2prv.paraver.views.of_trace import content_of
from nsys2prv.paraver.views.render import ViewRenderer, slug
from nsys2prv.paraver.views.templates import template_environment
from nsys2prv.paraver.views.view_table import View, cfgs_folder, read_view_table
from nsys2prv.sources.registry import EVENT_TYPES
from nsys2prv.vocabulary import event_types

TABLE = read_view_table()


def test_a_whole_view_is_as_it_should_be(tmp_path: Path) -> None:
    rendered(content(TYPES, ONE_GPU), "1-gpu-kernels/kernels", tmp_path)
    assert (tmp_path / "1-gpu-kernels/kernels.cfg").read_text() == Path(__file__).with_name("kernels.cfg").read_text()


def test_compiled_templates_are_kept_as_long_as_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    monkeypatch.setattr("sys.pycache_prefix", str(tmp_path / "compiled"))
    templates = tmp_path / "templates"
    templates.mkdir()
    (templates / "a.j2").write_text("a {{ name }}")

    def text() -> str:
        template_environment.cache_clear()
        return template_environment(templates).get_template("a.j2").render(name="b")

    assert text() == "a b"
    (kept,) = [path for path in tmp_path.rglob("*") if path.suffix == ".jinja"]
    compiled = kept.read_bytes()
    assert text() == "a b"
    assert kept.read_bytes() == compiled
    kept.write_bytes(compiled[:40])
    assert text() == "a b"
    assert kept.read_bytes() == compiled
    (templates / "a.j2").write_text("{{ name }} a")
    assert text() == "b a"


def test_views_take_the_numbers_that_metrics_and_kernels_have_in_this_trace(tmp_path: Path) -> None:
    (cfg,) = rendered(content(TYPES, ONE_GPU), "2-gpu-metrics/tensor_per_gemm", tmp_path).values()
    kernels, metric = cfg.windows
    assert metric.filters == {"evt_type": ["9437"], "evt_type_label": ["Tensor Active [Throughput %]"]}
    assert kernels.filters["evt_value"] == ["0", "1", "5"]
    assert kernels.filters["evt_value_label"] == ["Unknown", "sgemm", "gemm [x]"]
    assert cfg.kind == "table"


def test_event_types_that_have_labels_but_no_events_do_not_count() -> None:
    found = content(TYPES, ONE_GPU, rows={event_types.KERNEL: ((1, 2),)})
    paths = {view.path for view in ViewRenderer(found).fitting()}
    assert "1-gpu-kernels/useful_time" in paths
    assert not paths & {"2-gpu-metrics/metric", "3-communication/nccl_on_gpu", "3-communication/overlap"}


def test_views_of_messages_need_messages_between_ranks(tmp_path: Path) -> None:
    lines = ["#Paraver (01/01/2024 at 10:00):1000_ns:1(4):1:2(1:1,1:1)"]
    for tag, expected in [(event_types.TAG_KERNEL_LAUNCH, False), (42, True)]:
        lines.append(f"3:0:1:1:1:10:10:0:1:2:1:20:30:8:{tag}")
        (tmp_path / "trace.prv").write_text("\n".join([*lines, ""]))
        paths = {view.path for view in ViewRenderer(content_of(tmp_path / "trace.prv")).fitting()}
        assert ({"3-communication/messages_in_flight", "3-communication/bytes_in_flight"} <= paths) == expected


def test_event_types_of_another_tool_are_found_by_their_labels(tmp_path: Path) -> None:
    found = content({4711: ("CUDA kernel", {0: "End", 3: "k"})}, ONE_GPU)
    (cfg,) = rendered(found, "1-gpu-kernels/kernels", tmp_path).values()
    assert cfg.windows[0].filters["evt_type"] == ["4711"]


def test_tasks_are_the_rows_where_each_uses_one_gpu_alone(tmp_path: Path) -> None:
    for number, (tasks, threads) in enumerate([(ONE_GPU, None), (SIXTEEN_NODES, None), ([*ONE_GPU, (2, ["cpu only"])], None)]):
        (cfg,) = rendered(content(TYPES, tasks), "1-gpu-kernels/useful_time", tmp_path / str(number)).values()
        window, *_ = cfg.windows
        assert window.level == "task"
        assert ("thread", 0) not in window.rows, threads
        # Tasks without a GPU would spoil the average.
        shown = window.rows.get(("task", 0), [True] * len(tasks))
        assert shown == [any("CUDA" in name for name in names) for _, names in tasks]


def test_a_process_with_several_gpus_gives_a_file_for_each_of_them(tmp_path: Path) -> None:
    files = rendered(content(TYPES, SEVERAL_GPUS), "1-gpu-kernels/useful_time", tmp_path)

    assert list(files) == ["1-gpu-kernels/useful_time_d0.cfg", "1-gpu-kernels/useful_time_d1.cfg"]
    for device, cfg in enumerate(files.values()):
        # Paraver adds up all threads of a task: those of other devices are multiplied with 0 before.
        kernels, of_device, window, *_ = cfg.windows
        assert (kernels.level, kernels.functions["compose_thread"]) == ("thread", "Nesting level")
        assert (of_device.level, of_device.functions["thread"]) == ("thread", "In Thread ID")
        assert of_device.values["parameters of thread"] == f"2 {2 + device} {4 + device}"
        assert (window.operation, window.parents) == ("product", (1, 2))
        assert (window.level, window.functions["task"]) == ("task", "AddingSign")
        assert window.rows["task", 0] == [True, False]


def test_a_shared_gpu_is_one_row_so_that_overlap_counts_once(tmp_path: Path) -> None:
    files = rendered(content(TYPES, SHARED_GPU), "1-gpu-kernels/useful_time", tmp_path)
    assert list(files) == ["1-gpu-kernels/useful_time_a_d0.cfg", "1-gpu-kernels/useful_time_b_d0.cfg"]
    _, of_device, window, *_ = files["1-gpu-kernels/useful_time_a_d0.cfg"].windows
    assert of_device.values["parameters of thread"] == "3 2 3 5"
    assert (window.level, window.functions["task"], window.functions["appl"]) == ("appl", "AddingSign", "AddingSign")
    assert window.rows["task", 0] == [True, True, False]


@pytest.mark.parametrize("tasks", [ONE_GPU, SEVERAL_GPUS, SIXTEEN_NODES], ids=["1 GPU", "a process with 2", "16 nodes"])
def test_timelines_of_threads_show_all_rows_of_their_kind_whatever_the_size(
    tasks: list[tuple[int, list[str]]], tmp_path: Path
) -> None:
    types = {**TYPES, event_types.CUDA_CALL: ("CUDA library call", {0: "End", 9: "cudaLaunchKernel"})}
    found = content(types, tasks)
    kinds = {"streams": ("CUDA",), "metrics": ("Metrics GPU",), "hosts_and_streams": ("main", "other", "CUDA")}
    views = [("cuda_calls", None), ("states", "hosts_and_streams"), ("kernels", "streams"), ("metric", "metrics")]
    for view, shown in views:
        for cfg in rendered(found, view, tmp_path).values():
            for window in cfg.windows:
                assert window.level == "thread"
                for task, (_, names) in enumerate(tasks):
                    expected = [shown is None or name.startswith(kinds[shown]) for name in names]
                    of_task = window.rows.get(("task", 0), [True] * len(tasks))[task]
                    threads = window.rows.get(("thread", task), [True] * len(names))
                    assert [of_task and one for one in threads] == expected


def selected_rows(cfg: Cfg, tasks: list[tuple[int, list[str]]]) -> set[tuple[int, str]]:
    """Task and name of each row that the last window of a view selects."""
    rows = cfg.windows[-1].rows
    return {
        (task, name)
        for task, (_, names) in enumerate(tasks)
        if rows.get(("task", 0), [True] * len(tasks))[task]
        for name, is_shown in zip(names, rows.get(("thread", task), [True] * len(names)), strict=True)
        if is_shown
    }


def test_threads_of_nsys_and_the_driver_are_left_out(tmp_path: Path) -> None:
    threads = ["main tid 1", "(NSys Comms) tid 2", "[NSys] tid 3", "CUPTI worker thread tid 4", "cuda-EvtHandlr tid 5"]
    tasks = [(1, [*threads, "NCCL Progress 1 tid 6", "CUDA-D0.S7"])]
    types = {**TYPES, event_types.CUDA_CALL: ("CUDA library call", {0: "End", 9: "cudaLaunchKernel"})}
    for view in ("states", "cuda_calls", "cuda_activities", "host_activity"):
        (cfg,) = rendered(content(types, tasks), view, tmp_path).values()
        of_hosts = {name for _, name in selected_rows(cfg, tasks) if not name.startswith("CUDA-")}
        assert of_hosts == {"main tid 1", "NCCL Progress 1 tid 6"}, view


def test_no_window_lies_exactly_on_another_of_its_view_or_of_the_views_beside_it(tmp_path: Path) -> None:
    types = {**TYPES, event_types.CUDA_CALL: ("CUDA library call", {0: "End", 9: "cudaLaunchKernel"})}
    views = render_and_parse(ViewRenderer(content(types, ONE_GPU)), tmp_path, ["0-start-here"])
    texts = [(tmp_path / path).read_text() for path in views]
    of_views = [re.findall(r"(?:position_x|2D\.X:) (\d+)\n(?:window_position_y|Analyzer2D\.Y:) (\d+)", text) for text in texts]
    assert len(of_views) > 6
    assert all(len(set(places)) == len(places) for places in of_views)
    # The last window is the one that opens.
    assert len({places[-1] for places in of_views}) == len(of_views)
    assert [places[-1] for places in of_views[:2]] == [("20", "20"), ("960", "20")]


CALLS = {0: "End", 1: "a"}
WHERE = {
    event_types.CUDA_CALL: ("CUDA library call", CALLS),
    event_types.MPI_COLLECTIVE.number: ("MPI Collective Comm", CALLS),
    event_types.KERNEL: ("CUDA kernel", CALLS),
    event_types.NCCL_KERNEL: ("NCCL kernel", CALLS),
    event_types.NCCL_SIZE: ("NCCL message size", None),
    event_types.NCCL_REGION: ("NCCL call", CALLS),
}
TWO_TASKS = [(1, ["main", "idle", "CUDA-D0.S7", "CUDA-D0.S14"]), (1, ["main", "mpi", "CUDA-D1.S7", "Metrics GPU1"])]
ROWS_OF_TYPES = {
    event_types.CUDA_CALL: ((0, 0), (4, 4)),
    event_types.MPI_COLLECTIVE.number: ((5, 5),),
    event_types.KERNEL: ((2, 2), (6, 6)),
    event_types.NCCL_KERNEL: ((3, 3), (6, 6)),
    event_types.NCCL_SIZE: ((0, 0), (3, 3)),
    event_types.NCCL_REGION: ((0, 0), (4, 4)),
}


@pytest.mark.parametrize(
    ("view", "rows"),
    [
        ("cuda_calls", {(0, "main"), (1, "main")}),
        ("mpi_calls", {(1, "mpi")}),
        ("mpi_count", {(1, "mpi")}),
        ("host_activity", {(0, "main"), (1, "main"), (1, "mpi")}),
        ("kernel_time", {(0, "CUDA-D0.S7"), (1, "CUDA-D1.S7")}),
        ("nccl_kernels", {(0, "CUDA-D0.S14"), (1, "CUDA-D1.S7")}),
        ("nccl_calls_by_size", {(0, "main")}),
        ("kernels_in_flight", {(0, "main"), (1, "main")}),
        ("activity_time_percent", {(0, "main"), (0, "CUDA-D0.S7"), (0, "CUDA-D0.S14"), (1, "main"), (1, "CUDA-D1.S7")}),
        ("useful", {(0, name) for name in TWO_TASKS[0][1]} | {(1, name) for name in TWO_TASKS[1][1]}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_view_shows_the_rows_that_have_what_it_needs(view: str, rows: set[tuple[int, str]], tmp_path: Path) -> None:
    (cfg,) = rendered(content(WHERE, TWO_TASKS, ROWS_OF_TYPES), view, tmp_path).values()
    assert selected_rows(cfg, TWO_TASKS) == rows


def test_a_view_of_which_no_row_has_all_that_it_needs_is_not_written(tmp_path: Path) -> None:
    sizes, calls = event_types.NCCL_SIZE, event_types.NCCL_REGION
    for rows, is_written in [({sizes: ((0, 0),), calls: ((0, 0),)}, True), ({sizes: ((0, 0),), calls: ((4, 4),)}, False)]:
        found = content(WHERE, TWO_TASKS, rows)
        assert bool(rendered(found, "nccl_calls_by_size", tmp_path)) == is_written
        assert ("nccl_calls_by_size" in {view.name for view in ViewRenderer(found).fitting()}) == is_written


def test_every_view_of_the_table_renders_for_a_trace_that_has_everything(tmp_path: Path) -> None:
    types: dict[int, tuple[str, dict[int, str] | None]] = {}
    for one in EVENT_TYPES:
        values = {0: "End", 1: "gemm", 2: "flash_fwd", 3: "iteration"} if one.values else None
        types[one.number] = (one.label.replace("{}", "mine"), values)
    metrics = ["SM Active", "SM Issue", "Tensor Active", "DRAM Read", "DRAM Write", "PCIe RX Throughput", "PCIe TX Throughput",
               "NVLink RX", "NVLink TX", "GPC Clock Frequency [MHz]"]  # fmt: skip
    types |= {event_types.GPU_METRIC + place: (name, None) for place, name in enumerate(metrics)}
    for place, tasks in enumerate([ONE_GPU, SEVERAL_GPUS, SHARED_GPU]):
        folder = tmp_path / str(place)
        written = ViewRenderer(content(types, tasks)).render(folder)

        assert {one.view.path for one in written} == {view.path for view in TABLE.views}
        views = parse_views(folder)
        assert {path: cfg.kind for path, cfg in views.items()} == {one.path: one.view.kind for one in written}
        # Lines are drawn when someone switches them on.
        windows = [window for cfg in views.values() for window in cfg.windows]
        assert {window.values["window_comm_lines_enabled"] for window in windows} == {"false"}


@pytest.mark.parametrize(
    ("view", "tasks", "height"),
    [
        ("states", ONE_GPU, 300),
        ("states", SIXTEEN_NODES[:16], 40 + 18 * 32),
        ("kernels", SIXTEEN_NODES, 800),
        ("gaps", SIXTEEN_NODES[:20], 40 + 18 * 20),
    ],
)
def test_timelines_are_as_tall_as_their_rows(
    view: str, tasks: list[tuple[int, list[str]]], height: int, tmp_path: Path
) -> None:
    (cfg,) = rendered(content(TYPES, tasks), view, tmp_path).values()
    assert {window.values["window_height"] for window in cfg.windows} == {str(height)}


def test_lengths_of_time_are_powers_of_ten(tmp_path: Path) -> None:
    for view in ("gaps", "useful_bursts", "kernel_duration"):
        (cfg,) = rendered(content(TYPES, ONE_GPU), view, tmp_path).values()
        assert cfg.windows[-1].functions["topcompose1"] == "log N"


@pytest.mark.parametrize(
    ("kernels", "zoom"),
    [
        ({1: "sgemm", 2: "softmax", 3: "copy"}, "Disabled"),
        ({1: "sgemm", 2: "softmax", 3: "x" * 49}, "Enabled"),
        ({1: "sgemm", 2: "x" * 49}, "Disabled"),
    ],
)
def test_tables_with_long_names_of_columns_open_as_an_overview(kernels: dict[int, str], zoom: str, tmp_path: Path) -> None:
    types = {**TYPES, event_types.KERNEL: ("CUDA kernel", {0: "End", **kernels})}
    named, numbered = ["kernel_time", "kernel_average", "kernel_count", "metric_per_kernel"], ["useful_time", "gaps_by_length"]
    distributions = ["kernel_durations", "metric_per_kernel_spread"]
    views = render_and_parse(ViewRenderer(content(types, ONE_GPU)), tmp_path, [*named, *numbered, *distributions])
    zooms = {Path(path).stem.partition("-")[0]: cfg.histogram["Analyzer2D.Zoom:"] for path, cfg in views.items()}
    assert zooms == dict.fromkeys(named, zoom) | dict.fromkeys(numbered, "Disabled") | dict.fromkeys(distributions, "Enabled")


HOSTILE = [
    'a "quoted" name', "a * star", "back\\slash", "{ 1, { All } }", "# hash", "<b>&amp;</b>", "日本語 ✓", "x" * 5000, "Unknown",
    "100 %", "tab\tand\nnewline", "[", "'", "{{ 7 * 7 }}{% raw %}", "../../etc/passwd", "=============a.cfg", "End",
]  # fmt: skip


@pytest.mark.parametrize("hostile", few_of(HOSTILE, HOSTILE[::3]), ids=range(len(HOSTILE)))
def test_hostile_labels_break_neither_a_view_nor_the_page_nor_the_workspace(hostile: str, tmp_path: Path) -> None:
    types: dict[int, tuple[str, dict[int, str] | None]] = {
        event_types.KERNEL: ("CUDA kernel", {0: "End", 1: f"gemm {hostile}", 2: hostile}),
        event_types.NVTX_PUSHPOP: (f"NVTX pushpop ranges {hostile} domain", {0: "End", 2: hostile}),
        9400: (hostile, None),
        9401: (f"Tensor Active {hostile}", None),
    }
    found = content(types, [(1, ["main", "CUDA-D0.S7", "Metrics GPU0", hostile])])
    written = write_views(tmp_path, found, Path("trace.prv"), tmp_path)

    for path, cfg in parse_views(tmp_path).items():
        assert path == re.sub(r"[^a-z0-9_./-]", "", path)
        assert ".." not in path
        for window in cfg.windows:
            for label in [*window.filters.get("evt_type_label", ()), *window.filters.get("evt_value_label", ())]:
                assert not set(label) & set('"*\n'), "Paraver can't read this name, or takes it for others"
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "<b>" not in page
    assert all(one.title in html.unescape(page) for one in written)
    assert any(" ".join(hostile.split()) in one.title for one in written)
    ElementTree.parse(tmp_path / "workspace.xml")


@given(text=st.text())
def test_a_slug_is_a_safe_part_of_a_file_name(text: str) -> None:
    assert re.fullmatch(r"[a-z0-9_]{0,60}", slug(text))


def test_a_label_of_two_types_names_neither(tmp_path: Path) -> None:
    types = {event_types.KERNEL: ("CUDA kernel", {1: "gemm"}), 12345: ("CUDA kernel", None), 777: ("other", {9: "gemm"})}
    (cfg,) = rendered(
        content({**types, 9400: ("Tensor Active", None)}, ONE_GPU),  # type: ignore[dict-item]
        "2-gpu-metrics/tensor_per_gemm",
        tmp_path,
    ).values()
    assert cfg.windows[0].filters["evt_type_label"] == ["Unknown"]
    assert cfg.windows[0].filters["evt_value_label"] == ["Unknown", "Unknown"]


def test_a_wrong_template_fails_when_it_is_rendered_or_read_strictly(tmp_path: Path) -> None:
    folder = tmp_path / "cfgs"
    (folder / "templates").mkdir(parents=True)
    (folder / "macros").mkdir()
    for path in (cfgs_folder() / "macros").glob("*.j2"):
        (folder / "macros" / path.name).write_text(path.read_text())
    view = View(
        "0-start-here", "mine", "Mine", "Mine", (), None, None, (), False, "timeline", "templates/mine.cfg.j2", "Text.", ""
    )
    renderer = ViewRenderer(content(TYPES, ONE_GPU), replace(TABLE, views=(view,)), folder)
    start = '{% from "macros/windows.cfg.j2" import single, derived %}\n'

    wrong = [
        ("{{ single(1, titel, types.KERNEL) }}", jinja2.UndefinedError),
        ("{{ single(1, title, types.KERNELS) }}", ValueError),
        ('{{ single(1, title, types.KERNEL, thread="Last Value") }}', MalformedCfg),
        ('{{ derived(1, title, "product", (1, 2)) }}', MalformedCfg),
        ("nothing", MalformedCfg),
    ]
    for at, (template, error) in enumerate(wrong):
        (folder / "templates/mine.cfg.j2").write_text(start + template)
        os.utime(folder / "templates/mine.cfg.j2", (at, at))  # a template is read again when its time differs
        with pytest.raises(error):
            render_and_parse(renderer, tmp_path / "out")


def test_labels_of_any_length_take_no_time(tmp_path: Path) -> None:
    types: dict[int, tuple[str, dict[int, str] | None]] = {
        9600: ("NVTX pushpop ranges default domain", {0: "End", 1: " -" * 500_000, 2: "step 1"})
    }
    started = time.process_time()
    written = ViewRenderer(content(types, ONE_GPU)).render(tmp_path, ["6-nvtx/iterations"])
    assert [one.path for one in written] == ["6-nvtx/iterations.cfg"]
    assert time.process_time() - started < 10
