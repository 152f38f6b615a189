"""Views of a trace, from its translation and from the command."""

import json
import shutil
from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.failed_runs import sentence
from support.report_builder import ReportBuilder
from support.whole_trace import open_whole

from nsys2prv.demo import Cluster, write_reports
from nsys2prv.errors import OutputError, OutputExists, UsageError
from nsys2prv.paraver.trace_reader import Trace
from nsys2prv.paraver.views.of_trace import content_of, list_views, render_views
from nsys2prv.paraver.views.render import ViewRenderer
from nsys2prv.paraver.views.view_table import GROUPS, read_view_table
from nsys2prv.sources.cuda.memory_operations import MEMSET_VALUE
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.vocabulary import event_types

TABLE = read_view_table()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = ReportBuilder(host="node01")
    builder.kernel("gemm", 1000, 2000, launch=(100, 200))
    builder.nvtx_range("outer", 50, 3000).metric("Tensor Active", 500, 10).metric("Tensor Active", 1500, 30)
    return builder.gpu().write(tmp_path_factory.mktemp("views") / "report.sqlite")


@pytest.fixture(scope="module")
def once(report: Path) -> Path:
    """The trace of the report, with its views."""
    return translate([report], report.with_name("out")).prv


@pytest.fixture
def prv(once: Path, tmp_path: Path) -> Path:
    """The same in a folder of the test, without views."""
    for suffix in (".prv", ".pcf", ".row", ".json"):
        shutil.copy(once.with_suffix(suffix), tmp_path)
    return tmp_path / once.name


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_translate_renders_the_views_whose_events_are_in_the_trace(once: Path) -> None:
    paths = [one["path"] for one in json.loads(once.with_suffix(".json").read_text())["views"]]
    assert {"1-gpu-kernels/kernels.cfg", "1-gpu-kernels/useful_time.cfg", "2-gpu-metrics/tensor_per_gemm.cfg"} <= set(paths)
    assert "3-communication/nccl_kernels.cfg" not in paths
    assert sorted(tree(once.with_suffix(".cfgs"))) == sorted(
        [*paths, "index.html", "workspace.xml", *{f"{path.partition('/')[0]}.ws" for path in paths}]
    )


def test_views_of_a_trace_are_those_that_its_translation_made(once: Path, prv: Path, tmp_path: Path) -> None:
    folder, _ = render_views(prv)
    assert folder == tmp_path / "out.cfgs"
    # Each workspace names the trace with its folder.
    assert {**tree(folder), "workspace.xml": b""} == {**tree(once.with_suffix(".cfgs")), "workspace.xml": b""}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_without_views_the_folder_of_the_former_trace_is_removed(report: Path, tmp_path: Path) -> None:
    translate([report], tmp_path / "out")
    summary = translate([report], tmp_path / "out", TranslateOptions(force=True, no_views=True))
    assert not (tmp_path / "out.cfgs").exists()
    assert "views" not in summary.content


def test_a_file_with_the_name_of_the_folder_is_an_error(report: Path, tmp_path: Path) -> None:
    (tmp_path / "out.cfgs").write_text("mine")
    with pytest.raises(OutputError, match="there is a file of this name"):
        translate([report], tmp_path / "out", TranslateOptions(force=True))
    assert (tmp_path / "out.cfgs").read_text() == "mine"


def test_only_renders_the_named_views_and_refuses_unknown_names(prv: Path) -> None:
    _, by_group = render_views(prv, only=["gpu-metrics"])
    _, by_name = render_views(prv, only=["useful_time", "1-gpu-kernels/kernels"])
    assert {one.view.group for one in by_group} == {"2-gpu-metrics"}
    assert [one.path for one in by_name] == ["1-gpu-kernels/kernels.cfg", "1-gpu-kernels/useful_time.cfg"]
    with pytest.raises(UsageError, match="there is no such view"):
        render_views(prv, only=["useless_time"])


def test_what_is_in_a_folder_that_is_not_one_of_views_is_kept(prv: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("keep")
    with pytest.raises(OutputExists):
        render_views(prv, mine)
    assert tree(mine) == {"notes.txt": b"keep"}
    render_views(prv, mine, force=True)
    assert tree(mine)["notes.txt"] == b"keep"


def test_a_trace_without_labels_and_names_has_views_too(tmp_path: Path) -> None:
    (tmp_path / "bare.prv").write_text(
        "#Paraver (01/01/2024 at 10:00):1000_ns:1(4):1:1(2:1)\n2:0:1:1:2:10:63000006:5\n2:0:1:1:2:20:63000006:0\n"
    )
    _, written = render_views(tmp_path / "bare.prv")
    assert {"1-gpu-kernels/kernels.cfg", "1-gpu-kernels/useful_time.cfg"} <= {one.path for one in written}


def test_views_are_chosen_without_reading_a_trace_that_is_the_one_of_its_summary(
    prv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out.json").rename(tmp_path / "kept.json")
    expected = content_of(prv)
    (tmp_path / "kept.json").rename(tmp_path / "out.json")
    read: list[Path] = []
    monkeypatch.setattr(Trace, "read", lambda self, *_: iter(read.append(self.path) or ()))  # type: ignore[func-returns-value]

    assert content_of(prv) == expected
    assert not read
    with prv.open("a") as file:
        file.write("2:0:1:1:1:3000:63000006:0\n")
    content_of(prv)
    assert read == [prv]


@pytest.mark.parametrize(
    "change",
    [
        "", "[]", '{"nsys2prv": 1, "trace": {"rows_of_types": "all"}}', "rows_of_types", "bytes", "rows_of_messages",
        # Rows of another trace.
        *([], [[0, 1]], [[2, 1]], [[1, 999]], [[1, 2, 3]]),
    ],
    ids=str,
)  # fmt: skip
def test_a_summary_that_is_damaged_or_of_another_trace_is_not_used_for_views(
    change: str | list[list[int]], prv: Path, tmp_path: Path
) -> None:
    content = json.loads((tmp_path / "out.json").read_text())
    expected = content_of(prv)
    if isinstance(change, list):
        content["trace"]["rows_of_types"] = [{"types": [event_types.KERNEL.number], "rows": change}]
    else:
        content["trace"].pop(change, None)
    is_text = isinstance(change, str) and ("{" in change or len(change) < 3)
    (tmp_path / "out.json").write_text(str(change) if is_text else json.dumps(content))
    assert content_of(prv) == expected


def test_the_list_has_all_views_or_those_that_fit_a_trace(once: Path) -> None:
    assert [one["name"] for one in list_views(None)] == [view.path for view in TABLE.views]
    fitting = [one["name"] for one in list_views(once)]
    assert fitting == [view.path for view in ViewRenderer(content_of(once)).fitting()]
    assert len(fitting) < len(TABLE.views)


def test_the_command_renders_lists_and_reports_errors(report: Path, tmp_path: Path, command_line: CommandLine) -> None:
    assert command_line.run("translate", report, "-o", tmp_path / "out", "--no-views").returncode == 0
    assert not (tmp_path / "out.cfgs").exists()

    done = command_line.run("views", tmp_path / "out.prv", "--only", "gpu-kernels", "--json")
    assert done.returncode == 0
    assert {path["path"].split("/")[0] for path in json.loads(done.stdout)["views"]} == {"1-gpu-kernels"}
    listing = command_line.run("views", "--list").stdout.splitlines()
    longest = max(len(view.name) for view in TABLE.views)
    assert len([line for line in listing if line.startswith("  ")]) == len(TABLE.views)
    assert [line for line in listing if line and line[0] != " "] == [f"{title} ({folder})" for folder, title in GROUPS.items()]
    assert listing[:2] == [
        "Start here (0-start-here)",
        f"  {'device_activity':{longest}}  timeline  Device activity: When each GPU computes, only communicates, or is idle.",
    ]
    for arguments, code in [(["views"], 2), (["views", tmp_path / "no.prv"], 8), (["views", "--list", "--only", "x"], 2)]:
        sentence(command_line.run(*arguments), code)


def test_rows_of_types_are_the_same_from_the_translation_and_from_the_records(tmp_path: Path) -> None:
    cluster = Cluster(nodes=1, gpus_per_node=2, iterations=1, layers=1, gpu_metrics_hz=50, with_os_calls=False)
    prv = translate(write_reports(tmp_path / "reports", cluster), tmp_path / "out", TranslateOptions(critical_path=True)).prv
    from_translation = content_of(prv)
    (tmp_path / "out.json").unlink()

    assert from_translation == content_of(prv)
    occurring = from_translation.occurring
    assert occurring is not None
    assert occurring.senders
    assert event_types.CRITICAL_PATH.number in occurring.rows
    # All memsets of the demo write 0: who looks at it sees nothing.
    assert MEMSET_VALUE.number in set(open_whole(prv).events()["type"]) - set(occurring.rows)
    assert "memset_value" not in {view.name for view in ViewRenderer(from_translation).fitting()}
