"""Views are rendered for one trace with its event types, values and rows; a wrong template is an error."""

from __future__ import annotations

import base64
import html
import json
import os
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command_line import CommandLine
from support.report_builder import ReportBuilder
from support.view_parser import Cfg, MalformedCfg, parse_cfg, parse_views

from nsys2prv.errors import OutputError, OutputExists, TraceError, UsageError
from nsys2prv.paraver.header import Header, HeaderTask
from nsys2prv.paraver.pcf import PcfLabels, TypeLabel
from nsys2prv.paraver.trace_reader import Trace, open_trace
from nsys2prv.paraver.views.of_trace import content_of, list_views, render_views
from nsys2prv.paraver.views.render import RenderedView, ViewRenderer, slug, write_views
from nsys2prv.paraver.views.trace_content import TraceContent
from nsys2prv.paraver.views.view_table import GROUPS, View, cfgs_folder, read_view_table
from nsys2prv.sources.host import call_chains
from nsys2prv.sources.registry import CONSTANTS, EVENT_TYPES
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.vocabulary import event_types

TABLE = read_view_table()


def content(
    types: dict[int, tuple[str, dict[int, str] | None]], tasks: list[tuple[int, list[str]]], used: list[int] | None = None
) -> TraceContent:
    """Content of a trace: types with labels and values, and for each task its node (1, 2, ...) and the names of its rows."""
    header_tasks, first = [], 0
    for node, names in tasks:
        header_tasks.append(HeaderTask(len(names), node, first))
        first += len(names)
    nodes = max(node for node, _ in tasks)
    labels = PcfLabels({}, {number: TypeLabel(label, 0, values) for number, (label, values) in types.items()})
    header = Header("", 1000, (4,) * nodes, tuple(header_tasks))

    names = {"THREAD": tuple(name for _, of_task in tasks for name in of_task), "NODE": tuple("abcdefghijklmnop"[:nodes])}
    return TraceContent.of(Trace(Path("trace.prv"), header, labels, names, True, True), used)


KERNELS = {1: "sgemm", 2: "softmax", 5: "gemm [x]"}
TYPES: dict[int, tuple[str, dict[int, str] | None]] = {
    event_types.KERNEL: ("CUDA kernel", {0: "End", **KERNELS}),
    event_types.NCCL_KERNEL: ("NCCL kernel", {0: "End", 7: "ncclAllReduce"}),
    9437: ("Tensor Active [Throughput %]", None),
}
ONE_GPU = [(1, ["main", "CUDA-D0.S7", "CUDA-D0.S14", "Metrics GPU0"])]


def rendered(found: TraceContent, view: str, folder: Path) -> dict[str, Cfg]:
    """Files of a view, by path, read strictly."""
    return render_and_parse(ViewRenderer(found), folder, [view])


def render_and_parse(renderer: ViewRenderer, folder: Path, only: list[str] | None = None) -> dict[str, Cfg]:
    written = renderer.render(folder, only or [])
    views = parse_views(folder)
    return {one.path: views[one.path] for one in written}


def test_every_view_has_a_template_and_every_template_is_of_a_view() -> None:
    templates = {str(path.relative_to(cfgs_folder())) for path in cfgs_folder().glob("*/*.cfg.j2")}

    assert {view.template for view in TABLE.views} | {
        str(path.relative_to(cfgs_folder())) for path in (cfgs_folder() / "macros").iterdir()
    } >= templates
    assert {view.template for view in TABLE.views} <= templates
    assert {view.group for view in TABLE.views} == set(GROUPS)
    assert len({view.path for view in TABLE.views}) == len(TABLE.views)


def test_a_whole_view_is_as_it_should_be(tmp_path: Path) -> None:
    rendered(content(TYPES, ONE_GPU), "basics/kernels", tmp_path)

    assert (tmp_path / "basics/kernels.cfg").read_text() == WHOLE_VIEW


WHOLE_VIEW = """\
#ParaverCFG
ConfigFile.Version: 3.4
ConfigFile.NumWindows: 1
ConfigFile.BeginDescription
Kernels. Kernel that runs on each stream.
One colour for each kernel name; light blue is idle.
ConfigFile.EndDescription

################################################################################
< NEW DISPLAYING WINDOW Kernels >
################################################################################
window_name Kernels
window_type single
window_id 1
window_position_x 100
window_position_y 100
window_width 1200
window_height 300
window_comm_lines_enabled false
window_flags_enabled false
window_noncolor_mode true
window_color_mode window_in_code_mode
window_custom_color_enabled false
window_semantic_scale_min_at_zero false
window_units Nanoseconds
window_open false
window_drawmode draw_maximum
window_drawmode_rows draw_maximum
window_pixel_size 1
window_labels_to_draw 1
window_logical_filtered true
window_physical_filtered false
window_comm_fromto true
window_comm_tagsize true
window_comm_typeval true
window_maximum_y 5
window_minimum_y 1
window_compute_y_max true
window_level thread
window_scale_relative 1.000000000000
window_end_time_relative 1.000000000000
window_object appl { 1, { All } }
window_object task { 0, 1, { All } }
window_object thread { 0, 0, 4, { 0, 1, 1, 0 } }
window_begin_time_relative 0.000000000000
window_selected_functions { 14, { {cpu, Active Thd}, {appl, Adding}, {task, Adding}, {thread, Last Evt Val}, {node, Adding}, \
{system, Adding}, {workload, Adding}, {from_obj, All}, {to_obj, All}, {tag_msg, All}, {size_msg, All}, {bw_msg, All}, \
{evt_type, =}, {evt_value, All} } }
window_compose_functions { 9, { {compose_cpu, As Is}, {compose_appl, As Is}, {compose_task, As Is}, {compose_thread, As Is}, \
{compose_node, As Is}, {compose_system, As Is}, {compose_workload, As Is}, {topcompose1, As Is}, {topcompose2, As Is} } }

window_filter_module evt_type 1 63000006
window_filter_module evt_type_label 1 "CUDA kernel"
"""


def test_views_take_the_numbers_that_metrics_and_kernels_have_in_this_trace(tmp_path: Path) -> None:
    (cfg,) = rendered(content(TYPES, ONE_GPU), "hwcounters/tensor_per_gemm", tmp_path).values()
    kernels, metric = cfg.windows

    assert metric.filters == {"evt_type": ["9437"], "evt_type_label": ["Tensor Active [Throughput %]"]}
    assert kernels.filters["evt_value"] == ["0", "1", "5"]
    assert kernels.filters["evt_value_label"] == ["Unknown", "sgemm", "gemm [x]"]
    assert cfg.kind == "table"


def test_event_types_that_have_labels_but_no_events_do_not_count() -> None:
    found = content(TYPES, ONE_GPU, used=[event_types.KERNEL])
    paths = {view.path for view in ViewRenderer(found).fitting()}

    assert "analysis/useful_time" in paths
    assert not paths & {"hwcounters/metric", "views/nccl_on_gpu", "analysis/overlap"}


def test_views_of_messages_need_messages_between_ranks(tmp_path: Path) -> None:
    lines = ["#Paraver (01/01/2024 at 10:00):1000_ns:1(4):1:2(1:1,1:1)"]
    for tag, expected in [(event_types.TAG_KERNEL_LAUNCH, False), (42, True)]:
        lines.append(f"3:0:1:1:1:10:10:0:1:2:1:20:30:8:{tag}")
        (tmp_path / "trace.prv").write_text("\n".join([*lines, ""]))
        paths = {view.path for view in ViewRenderer(content_of(tmp_path / "trace.prv")).fitting()}

        assert ({"views/messages_in_flight", "views/bytes_in_flight"} <= paths) == expected


def test_event_types_of_another_tool_are_found_by_their_labels(tmp_path: Path) -> None:
    found = content({4711: ("CUDA kernel", {0: "End", 3: "k"})}, ONE_GPU)
    (cfg,) = rendered(found, "basics/kernels", tmp_path).values()

    assert cfg.windows[0].filters["evt_type"] == ["4711"]


SEVERAL_GPUS = [(1, ["main", "CUDA-D0.S7", "CUDA-D1.S7", "Metrics GPU0", "Metrics GPU1"]), (1, ["other"])]
SHARED_GPU = [(1, ["main", "CUDA-D0.S7", "Metrics GPU0"]), (1, ["main", "CUDA-D0.S7"]), (2, ["main", "CUDA-D0.S7"])]
SIXTEEN_NODES = [(node + 1, ["main", f"CUDA-D{rank}.S7", f"Metrics GPU{rank}"]) for node in range(16) for rank in range(4)]


def test_tasks_are_the_rows_where_each_uses_one_gpu_alone(tmp_path: Path) -> None:
    for number, (tasks, threads) in enumerate([(ONE_GPU, None), (SIXTEEN_NODES, None), ([*ONE_GPU, (2, ["cpu only"])], None)]):
        (cfg,) = rendered(content(TYPES, tasks), "analysis/useful_time", tmp_path / str(number)).values()
        (window,) = cfg.windows

        assert window.level == "task"
        assert ("thread", 0) not in window.rows, threads
        # Tasks without a GPU would spoil the average.
        shown = window.rows.get(("task", 0), [True] * len(tasks))
        assert shown == [any("CUDA" in name for name in names) for _, names in tasks]


def test_a_process_with_several_gpus_gives_a_file_for_each_of_them(tmp_path: Path) -> None:
    files = rendered(content(TYPES, SEVERAL_GPUS), "analysis/useful_time", tmp_path)

    assert list(files) == ["analysis/useful_time_d0.cfg", "analysis/useful_time_d1.cfg"]
    for device, cfg in enumerate(files.values()):
        # Paraver adds up all threads of a task: those of other devices are multiplied with 0 before.
        kernels, of_device, window = cfg.windows
        assert (kernels.level, kernels.functions["compose_thread"]) == ("thread", "Nesting level")
        assert (of_device.level, of_device.functions["thread"]) == ("thread", "In Thread ID")
        assert of_device.values["parameters of thread"] == f"2 {2 + device} {4 + device}"
        assert (window.operation, window.parents) == ("product", (1, 2))
        assert (window.level, window.functions["task"]) == ("task", "AddingSign")
        assert window.rows["task", 0] == [True, False]


def test_a_shared_gpu_is_one_row_so_that_overlap_counts_once(tmp_path: Path) -> None:
    files = rendered(content(TYPES, SHARED_GPU), "analysis/useful_time", tmp_path)

    assert list(files) == ["analysis/useful_time_a_d0.cfg", "analysis/useful_time_b_d0.cfg"]
    _, of_device, window = files["analysis/useful_time_a_d0.cfg"].windows
    assert of_device.values["parameters of thread"] == "3 2 3 5"
    assert (window.level, window.functions["task"], window.functions["appl"]) == ("appl", "AddingSign", "AddingSign")
    assert window.rows["task", 0] == [True, True, False]


@pytest.mark.parametrize("tasks", [ONE_GPU, SEVERAL_GPUS, SIXTEEN_NODES], ids=["1 GPU", "a process with 2", "16 nodes"])
def test_timelines_of_threads_show_all_rows_of_their_kind_whatever_the_size(
    tasks: list[tuple[int, list[str]]], tmp_path: Path
) -> None:
    types = {**TYPES, event_types.CUDA_CALL: ("CUDA library call", {0: "End", 9: "cudaLaunchKernel"})}
    found = content(types, tasks)
    kinds = {"streams": "CUDA", "metrics": "Metrics GPU"}
    for view, shown in [("cuda_calls", None), ("states", None), ("kernels", "streams"), ("metric", "metrics")]:
        for cfg in rendered(found, view, tmp_path).values():
            for window in cfg.windows:
                assert window.level == "thread"
                for task, (_, names) in enumerate(tasks):
                    expected = [shown is None or name.startswith(kinds[shown]) for name in names]
                    of_task = window.rows.get(("task", 0), [True] * len(tasks))[task]
                    threads = window.rows.get(("thread", task), [True] * len(names))
                    assert [of_task and one for one in threads] == expected


# Deeper levels of call chains are written for search and tools; there is a view of the innermost one only.
CALL_CHAINS = {
    pattern.format(depth)
    for pattern in ("Sampled functions (depth {})", "Sampled modules (depth {})", "Caller at level {}")
    for depth in range(1, call_chains.MOST_FRAMES)
}


def test_every_event_type_has_a_view() -> None:
    needed = {name for view in TABLE.views for need in view.needs for name in need}
    shown = {CONSTANTS[name] for name in needed if name in CONSTANTS}
    assert {one.label for one in EVENT_TYPES if one not in shown} - CALL_CHAINS == set()


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


HOSTILE = [
    'a "quoted" name', "a * star", "back\\slash", "{ 1, { All } }", "# hash", "<b>&amp;</b>", "日本語 ✓", "x" * 5000, "Unknown",
    "100 %", "tab\tand\nnewline", "[", "'", "{{ 7 * 7 }}{% raw %}", "../../etc/passwd", "=============a.cfg", "End",
]  # fmt: skip


@pytest.mark.parametrize("hostile", HOSTILE, ids=[str(place) for place in range(len(HOSTILE))])
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
    types = {
        event_types.KERNEL: ("CUDA kernel", {1: "gemm"}),
        12345: ("CUDA kernel", None),
        777: ("other", {9: "gemm"}),
    }
    (cfg,) = rendered(
        content({**types, 9400: ("Tensor Active", None)}, ONE_GPU),  # type: ignore[dict-item]
        "hwcounters/tensor_per_gemm",
        tmp_path,
    ).values()

    assert cfg.windows[0].filters["evt_type_label"] == ["Unknown"]
    assert cfg.windows[0].filters["evt_value_label"] == ["Unknown", "Unknown"]


# -- the strict parser ----------------------------------------------------------------------------------------------------

TABLE_VIEW = "analysis/overlap_of_communication"


@pytest.fixture(scope="module")
def table_view(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("view")
    ViewRenderer(content(TYPES, [*ONE_GPU, (1, ["other"])])).render(folder, [TABLE_VIEW])
    return (folder / f"{TABLE_VIEW}.cfg").read_text()


def test_the_parser_reads_windows_and_table(table_view: str) -> None:
    cfg = parse_cfg(table_view, "view")

    assert [(window.name, window.is_derived, window.parents) for window in cfg.windows] == [
        ("concurrent kernels", False, ()),
        ("in NCCL kernel", False, ()),
        ("concurrent kernels during communication", True, (1, 2)),
    ]
    assert cfg.kind == "table"
    assert cfg.histogram["Analyzer2D.Statistic:"] == "% Time"
    assert cfg.description.endswith("add up to 100 %.")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ConfigFile.NumWindows: 3", "ConfigFile.NumWindows: 2"),
        ("ConfigFile.EndDescription", ""),
        ("window_type single", "window_type triple"),
        ("window_level task", "window_level device"),
        ("window_units Nanoseconds", "window_units Nanosecond"),
        ("window_units Nanoseconds\n", ""),
        ("window_drawmode draw_maximum", "window_drawmode draw_max"),
        ("window_position_x 100", "window_position_z 100"),
        ("window_position_x 100", "window_position_x left"),
        ("window_compute_y_max true", "window_compute_y_max True"),
        ("{thread, Last Evt Val}", "{thread, Last Event Value}"),
        ("{task, AddingSign}", "{task, Adding Sign}"),
        ("{compose_thread, Nesting level}", "{compose_thread, Nesting Level}"),
        ("{topcompose1, As Is}", "{topcompose1, Prod}"),
        ("{cpu, Active Thd}, ", ""),
        ("{evt_type, =}", "{evt_type, All}"),
        ("window_operation product", "window_operation multiply"),
        ("window_identifiers 1 2", "window_identifiers 1 4"),
        ("window_identifiers 1 2", "window_identifiers 1 1"),
        ("window_identifiers 1 2\n", ""),
        ("window_factors 1 1", "window_factors 1"),
        ("evt_type 2 63000006 63000007", "evt_type 3 63000006 63000007"),
        ("evt_type 2 63000006 63000007", "evt_type 1 63000006"),
        ('"CUDA kernel"', '"CUDA "kernel"'),
        ("{ 0, 2, { 1, 0 } }", "{ 0, 2, { All, None } }"),
        ("{ 0, 2, { 1, 0 } }", "{ 0, 3, { 1, 0 } }"),
        ("Analyzer2D.ControlWindow: 3", "Analyzer2D.ControlWindow: 4"),
        ("Analyzer2D.DataWindow: 3", "Analyzer2D.DataWindow: 1"),
        ("Analyzer2D.Statistic: % Time", "Analyzer2D.Statistic: Share"),
        ("Analyzer2D.HideCols: True", "Analyzer2D.HideCols: true"),
        ("Analyzer2D.Delta: 1", "Analyzer2D.Delta: one"),
        ("Analyzer2D.Delta: 1", "Analyzer2D.Delta: 1\nAnalyzer2D.Delta: 1"),
        ("Analyzer2D.Name: ", "Analyzer2D.Title: "),
    ],
)
def test_what_paraver_would_drop_or_refuse_is_an_error_that_names_the_view(table_view: str, old: str, new: str) -> None:
    assert old in table_view
    with pytest.raises(MalformedCfg, match=r"^my view, (line \d+|window '.*'): "):
        parse_cfg(table_view.replace(old, new, 1), "my view")


def test_a_data_window_may_be_coarser_than_the_control_window_but_not_finer(table_view: str) -> None:
    finer = table_view.replace("window_level task", "window_level thread", 1).replace(
        "{ 0, 2, { 1, 0 } }", "{ 0, 2, { All, None } }", 1
    )

    with pytest.raises(MalformedCfg):
        parse_cfg(finer.replace("Analyzer2D.DataWindow: 3", "Analyzer2D.DataWindow: 1"), "view")


def test_a_wrong_template_fails_when_it_is_rendered_or_read_strictly(tmp_path: Path) -> None:
    folder = tmp_path / "cfgs"
    (folder / "basics").mkdir(parents=True)
    (folder / "macros").mkdir()
    for path in (cfgs_folder() / "macros").glob("*.j2"):
        (folder / "macros" / path.name).write_text(path.read_text())
    view = View("basics", "mine", "Mine", (), None, None, False, "timeline", "basics/mine.cfg.j2", "Text.", "")
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
        (folder / "basics/mine.cfg.j2").write_text(start + template)
        os.utime(folder / "basics/mine.cfg.j2", (at, at))  # a template is read again when its time differs
        with pytest.raises(error):
            render_and_parse(renderer, tmp_path / "out")


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ("[basics/x]\ntitle = X\nneeds = NOTHING\ndescription = Text.", "NOTHING is not an event type"),
        ("[basics/x]\ntitle = X", "a title and a description"),
        ("[basics/x]\ntitle = X\ndescription = Text.\nkind = picture", "kind"),
        ("[basics/x]\ntitle = X\ndescription = Text.\nneed = KERNEL", "no other keys"),
        ("[basics/x]\ntitle = X\ndescription = Text.\nrows = gpus", "no rows gpus"),
        ("[elsewhere/x]\ntitle = X\ndescription = Text.", "groups"),
        ("[basics/x]\ntitle = X\ndescription = Text.\neach = KERNEL", "not among the needs"),
    ],
)
def test_an_inconsistent_table_is_refused(section: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "views.ini").write_text(f"[metrics]\n[values]\n{section}\n")
    with pytest.raises(ValueError, match=sentence):
        read_view_table(tmp_path / "views.ini")


# -- workspaces -----------------------------------------------------------------------------------------------------------


def test_the_workspace_file_has_the_form_that_paraver_reads(tmp_path: Path) -> None:
    found = content(TYPES, ONE_GPU)
    written = write_views(tmp_path / "staged", found, Path("run/trace.prv"), tmp_path / "trace.cfgs")
    text = (tmp_path / "staged/workspace.xml").read_text()
    root = ElementTree.fromstring(text.replace("<!DOCTYPE boost_serialization>", ""))
    (manager,) = root

    assert root.attrib == {"signature": "serialization::archive", "version": "17"}
    assert [child.tag for child in manager] == ["workspaces", "workspacesOrder"]
    # boost numbers classes in the order in which they come, and describes each once.
    described = [one.attrib for one in root.iter() if "class_id" in one.attrib]
    assert [one["class_id"] for one in described] == [str(number) for number in range(len(described))]
    assert [(one["tracking_level"], one["version"]) for one in described] == [
        *[("0", "0")] * 3, ("0", "2"), ("0", "0"), ("0", "1"), *[("0", "0")] * 3,
    ]  # fmt: skip
    workspaces = manager[0].findall("item")
    assert int(manager[0].find("count").text) == len(workspaces) == 4  # type: ignore[arg-type, union-attr]
    hints = []
    for item in workspaces:
        workspace = item.find("second")
        assert workspace is not None
        assert [child.tag for child in workspace] == ["name", "type", "autoTypes", "hintCFGs"]
        values = [one.text or "" for one in workspace.iter("WorkspaceValue")]
        assert [struct.unpack("<iI", base64.b64decode(value)) for value in values] == [(2, number) for number in found.types]
        of_workspace = workspace.findall("hintCFGs/item")
        assert int(workspace.find("hintCFGs/count").text) == len(of_workspace)  # type: ignore[arg-type, union-attr]
        hints += [(one.find("first").text, one.find("second").text) for one in of_workspace]  # type: ignore[union-attr]
    assert hints == [(str(tmp_path / "trace.cfgs" / one.path), one.menu_text) for one in written]


def test_a_ws_file_holds_a_workspace_and_its_views(tmp_path: Path) -> None:
    written = write_views(tmp_path, content(TYPES, ONE_GPU), Path("my run.prv"), tmp_path)
    text = (tmp_path / "analysis.ws").read_text()
    archive, *files = re.split(r"^=============(.*)\n", text, flags=re.MULTILINE)
    workspace = ElementTree.fromstring(archive.replace("<!DOCTYPE boost_serialization>", ""))[0]
    analysis = [one for one in written if one.view.group == "analysis"]

    assert workspace.findtext("name") == "my_run_analysis"
    assert [one.text for one in workspace.iter("first")] == [Path(one.path).name for one in analysis]
    assert dict(zip(files[::2], files[1::2], strict=True)) == {
        Path(one.path).name: (tmp_path / one.path).read_text() for one in analysis
    }


# -- translate, and the command -------------------------------------------------------------------------------------------


@pytest.fixture
def report(tmp_path: Path) -> Path:
    builder = ReportBuilder(host="node01")
    builder.kernel("gemm", 1000, 2000, launch=(100, 200))
    builder.nvtx_range("outer", 50, 3000)
    builder.metric("Tensor Active", 500, 10)
    builder.metric("Tensor Active", 1500, 30)
    return builder.gpu().write(tmp_path / "report.sqlite")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_translate_renders_the_views_whose_events_are_in_the_trace(report: Path, tmp_path: Path) -> None:
    summary = translate([report], tmp_path / "out")
    paths = [one["path"] for one in summary.content["views"]]

    assert {"basics/kernels.cfg", "analysis/useful_time.cfg", "hwcounters/tensor_per_gemm.cfg"} <= set(paths)
    assert "basics/nccl_kernels.cfg" not in paths
    assert sorted(tree(tmp_path / "out.cfgs")) == sorted(
        [*paths, "index.html", "workspace.xml", *(f"{group}.ws" for group in GROUPS)]
    )
    assert json.loads((tmp_path / "out.json").read_text())["views"] == summary.content["views"]


def test_views_of_a_trace_are_those_that_its_translation_made(report: Path, tmp_path: Path) -> None:
    summary = translate([report], tmp_path / "out")
    before = tree(tmp_path / "out.cfgs")
    folder, _ = render_views(summary.prv)

    assert folder == tmp_path / "out.cfgs"
    assert tree(folder) == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_without_views_the_folder_of_the_former_trace_is_removed(report: Path, tmp_path: Path) -> None:
    translate([report], tmp_path / "out")
    summary = translate([report], tmp_path / "out", TranslateOptions(force=True, no_views=True))

    assert not (tmp_path / "out.cfgs").exists()
    assert "views" not in summary.content


def test_a_former_folder_of_views_is_replaced_only_with_force(report: Path, tmp_path: Path) -> None:
    (tmp_path / "out.cfgs").mkdir()
    (tmp_path / "out.cfgs/old.cfg").write_text("old")
    with pytest.raises(OutputExists):
        translate([report], tmp_path / "out")
    assert tree(tmp_path / "out.cfgs") == {"old.cfg": b"old"}

    translate([report], tmp_path / "out", TranslateOptions(force=True))
    assert "old.cfg" not in tree(tmp_path / "out.cfgs")


def test_a_file_with_the_name_of_the_folder_is_an_error(report: Path, tmp_path: Path) -> None:
    (tmp_path / "out.cfgs").write_text("mine")
    with pytest.raises(OutputError, match="there is a file of this name"):
        translate([report], tmp_path / "out", TranslateOptions(force=True))
    assert (tmp_path / "out.cfgs").read_text() == "mine"


def test_views_of_a_failed_translation_leave_a_former_folder_as_it_was(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    translate([report], tmp_path / "out")
    before = tree(tmp_path)

    def broken(*_: object) -> list[RenderedView]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nsys2prv.paraver.views.render.write_views", broken)
    with pytest.raises(OutputError):
        translate([report], tmp_path / "out", TranslateOptions(force=True))
    assert tree(tmp_path) == before


def test_only_renders_the_named_views_and_refuses_unknown_names(report: Path, tmp_path: Path) -> None:
    prv = translate([report], tmp_path / "out", TranslateOptions(no_views=True)).prv
    _, by_group = render_views(prv, only=["hwcounters"])
    _, by_name = render_views(prv, only=["useful_time", "basics/kernels"])

    assert {one.view.group for one in by_group} == {"hwcounters"}
    assert [one.path for one in by_name] == ["basics/kernels.cfg", "analysis/useful_time.cfg"]
    with pytest.raises(UsageError, match="there is no such view"):
        render_views(prv, only=["useless_time"])


def test_a_folder_that_is_not_one_of_views_is_kept(report: Path, tmp_path: Path) -> None:
    prv = translate([report], tmp_path / "out", TranslateOptions(no_views=True)).prv
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("keep")
    with pytest.raises(OutputExists):
        render_views(prv, mine)
    assert tree(mine) == {"notes.txt": b"keep"}

    render_views(prv, mine, force=True)
    assert "notes.txt" not in tree(mine)


def test_a_missing_trace_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="there is no such file"):
        render_views(tmp_path / "none.prv")


def test_a_trace_without_labels_and_names_has_views_too(tmp_path: Path) -> None:
    (tmp_path / "bare.prv").write_text(
        "#Paraver (01/01/2024 at 10:00):1000_ns:1(4):1:1(2:1)\n2:0:1:1:2:10:63000006:5\n2:0:1:1:2:20:63000006:0\n"
    )
    _, written = render_views(tmp_path / "bare.prv")

    assert {"basics/kernels.cfg", "analysis/useful_time.cfg"} <= {one.path for one in written}


def test_the_list_has_all_views_or_those_that_fit_a_trace(report: Path, tmp_path: Path) -> None:
    prv = translate([report], tmp_path / "out").prv

    assert [one["name"] for one in list_views(None)] == [view.path for view in TABLE.views]
    fitting = [one["name"] for one in list_views(prv)]
    assert fitting == [view.path for view in ViewRenderer(content_of(prv)).fitting()]
    assert len(fitting) < len(TABLE.views)


def test_the_command_renders_lists_and_reports_errors(report: Path, tmp_path: Path, command_line: CommandLine) -> None:
    assert command_line.run("translate", report, "-o", tmp_path / "out", "--no-views").returncode == 0
    assert not (tmp_path / "out.cfgs").exists()

    done = command_line.run("views", tmp_path / "out.prv", "--only", "analysis", "--json")
    assert done.returncode == 0
    assert {path["path"].split("/")[0] for path in json.loads(done.stdout)["views"]} == {"analysis"}
    listing = command_line.run("views", "--list").stdout.splitlines()
    assert len(listing) == len(TABLE.views)
    assert listing[0].split()[:2] == ["basics/states", "timeline"]
    for arguments, code in [(["views"], 2), (["views", tmp_path / "no.prv"], 8), (["views", "--list", "--only", "x"], 2)]:
        failed = command_line.run(*arguments)
        assert (failed.returncode, failed.stdout) == (code, "")
        assert failed.stderr.startswith("nsys2prv: ")
        assert failed.stderr.count("\n") == 1


def test_types_that_the_translation_counts_are_those_that_the_trace_has(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[set[int]] = []
    original: Callable[..., TraceContent] = TraceContent.of.__func__  # type: ignore[attr-defined]

    def spy(cls: type[TraceContent], trace: object, used: set[int] | None = None, **others: bool) -> TraceContent:
        reported.append(set(used or ()))
        return original(cls, trace, used, **others)

    monkeypatch.setattr(TraceContent, "of", classmethod(spy))
    prv = translate([report], tmp_path / "out").prv

    assert reported == [set(open_trace(prv).events()["type"])]
