"""Contents of small traces, and the views rendered for them, read strictly."""

from collections.abc import Mapping
from pathlib import Path

from nsys2prv.paraver.label_files import PcfLabels, TypeLabel
from nsys2prv.paraver.trace_files import Header, HeaderTask
from nsys2prv.paraver.trace_reader import Trace
from nsys2prv.paraver.views.render import ViewRenderer
from nsys2prv.paraver.views.trace_content import Occurring, TraceContent
from nsys2prv.timeline.records import RowRanges
from nsys2prv.vocabulary import event_types
from support.view_parser import Cfg, parse_views


def content(
    types: dict[int, tuple[str, dict[int, str] | None]],
    tasks: list[tuple[int, list[str]]],
    rows: Mapping[int, RowRanges] | None = None,
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
    everywhere = ((0, header.rows - 1),)
    occurring = Occurring(rows, ()) if rows else Occurring(dict.fromkeys(types, everywhere), everywhere)
    return TraceContent.of(Trace(Path("trace.prv"), header, labels, names, True), occurring)


KERNELS = {1: "sgemm", 2: "softmax", 5: "gemm [x]"}
TYPES: dict[int, tuple[str, dict[int, str] | None]] = {
    event_types.KERNEL: ("CUDA kernel", {0: "End", **KERNELS}),
    event_types.NCCL_KERNEL: ("NCCL kernel", {0: "End", 7: "ncclAllReduce"}),
    9437: ("Tensor Active [Throughput %]", None),
}
ONE_GPU = [(1, ["main", "CUDA-D0.S7", "CUDA-D0.S14", "Metrics GPU0"])]
SEVERAL_GPUS = [(1, ["main", "CUDA-D0.S7", "CUDA-D1.S7", "Metrics GPU0", "Metrics GPU1"]), (1, ["other"])]
SHARED_GPU = [(1, ["main", "CUDA-D0.S7", "Metrics GPU0"]), (1, ["main", "CUDA-D0.S7"]), (2, ["main", "CUDA-D0.S7"])]
SIXTEEN_NODES = [(node + 1, ["main", f"CUDA-D{rank}.S7", f"Metrics GPU{rank}"]) for node in range(16) for rank in range(4)]


def rendered(found: TraceContent, view: str, folder: Path) -> dict[str, Cfg]:
    """Files of a view, by path, read strictly."""
    return render_and_parse(ViewRenderer(found), folder, [view])


def render_and_parse(renderer: ViewRenderer, folder: Path, only: list[str] | None = None) -> dict[str, Cfg]:
    """Views rendered into a folder, by path, read strictly."""
    written = renderer.render(folder, only or [])
    views = parse_views(folder)
    return {one.path: views[one.path] for one in written}
