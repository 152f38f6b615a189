"""Pictures of views: the values of windows and tables for a small trace, and their drawing."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from types import ModuleType

import polars as pl
import pytest
from support.checkout import CHECKOUT, tool
from support.report_builder import ReportBuilder
from support.view_drawing import draw
from support.view_parser import Cfg, parse_cfg, parse_views
from support.view_semantics import NotDrawn, Semantics
from support.whole_trace import WholeTrace, open_whole

from nsys2prv.trace.translate import translate
from nsys2prv.vocabulary import event_types

GEMM, MINE, NCCL = "volta_sgemm_128x64_nn", "mine<&>[x]", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> WholeTrace:
    """Two ranks with a GPU each, from 0 to 1000 ns: a kernel on a stream, NCCL on another, a copy, and a nested NVTX range."""
    folder = tmp_path_factory.mktemp("drawing")
    reports = []
    for rank in (0, 1):
        report = ReportBuilder(rank=rank, pid=1000 + rank, host="node01", with_mpi=True)
        report.gpu(rank, uuid=f"GPU-{rank}")
        report.kernel(GEMM, 100, 400 + 100 * rank, launch=(10, 30), stream=7, device=rank)
        report.kernel(MINE, 600, 700, stream=7, device=rank)
        report.kernel(NCCL, 300, 650, stream=15, device=rank)
        report.nvtx_range("outer", 0, 1000)
        report.nvtx_range("inner", 200, 300)
        reports.append(report.write(folder / f"rank{rank}.sqlite"))
    return open_whole(translate(reports, folder / "out").prv)


def view(trace: WholeTrace, name: str) -> Cfg:
    return parse_cfg((trace.path.with_suffix(".cfgs") / f"{name}.cfg").read_text(), name)


def steps(trace: WholeTrace, name: str, row: int) -> list[tuple[int, int, float]]:
    cfg = view(trace, name)
    found = Semantics(trace, cfg).steps(len(cfg.windows)).filter(pl.col("row") == row)
    return found.select("begin", "end", "value").rows()


def value_of(trace: WholeTrace, number: int, label: str) -> int:
    return next(value for value, named in (trace.labels.types[number].values or {}).items() if named == label)


def test_an_unsupported_function_is_refused_by_name(trace: WholeTrace) -> None:
    with pytest.raises(NotDrawn, match="planes"):
        draw(trace, view(trace, "1-gpu-kernels/kernel_durations"))
    text = (trace.path.with_suffix(".cfgs") / "1-gpu-kernels/kernels.cfg").read_text()
    with pytest.raises(NotDrawn, match="Recv BandWidth"):
        draw(trace, parse_cfg(text.replace("{thread, Last Evt Val}", "{thread, Recv BandWidth}"), "changed"))


def test_every_view_is_drawn_or_refused_and_every_picture_is_well_formed(trace: WholeTrace) -> None:
    drawn = refused = 0
    for path, cfg in parse_views(trace.path.with_suffix(".cfgs")).items():
        try:
            svg = draw(trace, cfg)
        except NotDrawn:
            refused += 1
            continue
        drawn += 1
        assert svg == draw(trace, cfg)
        root = ElementTree.fromstring(svg)
        width = float(root.attrib["width"])
        for text in root.iter("{http://www.w3.org/2000/svg}text"):
            assert 0 <= float(text.attrib["x"]) <= width, (path, text.text)
            assert 0 <= float(text.attrib["y"]) <= float(root.attrib["height"])
            if "text-anchor" not in text.attrib:
                assert float(text.attrib["x"]) + 6.5 * len(text.text or "") <= width, (path, text.text)
    assert drawn > 30
    assert refused < drawn / 4


def test_a_picture_has_the_colours_and_labels_of_the_trace(trace: WholeTrace) -> None:
    svg = draw(trace, view(trace, "1-gpu-kernels/kernels"))
    for number, label in ((event_types.KERNEL, GEMM), (event_types.KERNEL, "mine<&>(x)")):
        value = value_of(trace, number, label)
        assert re.search(f'fill="{"#{:02x}{:02x}{:02x}".format(*trace.labels.colours[value])}" d="M', svg)
    texts = [text.text for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert f"{value_of(trace, event_types.KERNEL, 'mine<&>(x)')}  mine<&>(x)" in texts
    assert [text for text in texts if text and "CUDA-D0.S7-node01" in text] == ["1.2 CUDA-D0.S7-node01"]


def test_only_the_requested_time_is_drawn(trace: WholeTrace) -> None:
    svg = draw(trace, view(trace, "1-gpu-kernels/kernels"), (500, 1000))
    assert GEMM not in svg
    assert "mine&lt;&amp;&gt;(x)" in svg


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    return tool("pictures")


def test_the_page_of_views_is_up_to_date(pictures: ModuleType) -> None:
    text = pictures.PAGE.read_text(encoding="utf-8")
    assert text == pictures.rewritten(text), "run `python tools/pictures.py`"
    others = (CHECKOUT / "docs" / "views.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"views/([\w-]+\.(?:png|svg))\)", text + others))
    assert shown == {path.name for path in pictures.FOLDER.iterdir()}
    drawn = {name for name in shown if name.endswith(".svg")}
    assert len(drawn) == len(pictures.PICTURES)
    for name in shown:
        assert (pictures.FOLDER / name).stat().st_size < 150_000
    for name in drawn:
        ElementTree.parse(pictures.FOLDER / name)
