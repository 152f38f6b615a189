"""Draws the pictures of docs/views.md from the demo, and writes their texts: `python tools/pictures.py`.

They are drawn without Paraver, from the demo's trace and views: the same demo gives the same files. The texts between
`<!-- pictures GROUP -->` and `<!-- end of pictures -->` come from the table of views.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nsys2prv.demo.run_demo import run_demo
from nsys2prv.paraver.views.view_table import View, read_view_table
from nsys2prv.vocabulary import event_types

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT / "tests"))

from support.view_drawing import Legend, draw  # noqa: E402
from support.view_parser import parse_cfg  # noqa: E402
from support.whole_trace import open_whole  # noqa: E402

PAGE = CHECKOUT / "docs" / "views.md"
FOLDER = PAGE.with_suffix("")
_SECTIONS = re.compile(r"(<!-- pictures (?P<group>[a-z]+) -->\n).*?(<!-- end of pictures -->)", re.DOTALL)
NODES, GPUS = 2, 4

_TWO_ITERATIONS = (310_000_000, 369_000_000)


@dataclass(frozen=True)
class Picture:
    """The part of a view that is drawn.

    Attributes
    ----------
    time
        Start and end, ns; None: the whole trace.
    member
        The member whose file is drawn, of a view with a file for each.
    legend
        Unit and names of values that are not in the view.
    """

    time: tuple[int, int] | None = None
    member: str = ""
    legend: Legend = field(default_factory=Legend)


_IN_DETAIL = Picture(_TWO_ITERATIONS)
_KERNELS, _PERCENT, _TIMES = (Legend(unit) for unit in ("kernels", "%", "ns"))
_ON_GPU = Legend(names={0: "idle", event_types.RUNNING: "useful", event_types.STATE_GROUP: "communication only"})
_ON_HOST = Legend(
    names={
        event_types.RUNNING: "useful",
        event_types.STATE_GROUP: "in MPI only",
        event_types.STATE_CONFIGURING: "in a CUDA API call",
    }
)
_AT_ONCE = Legend(names={1: "communication alone", 2: "communication and one more kernel"})
PICTURES: Mapping[str, Picture] = {
    "basics/states": Picture(),
    "basics/kernel_families": _IN_DETAIL,
    "basics/nvtx_ranges": Picture(_TWO_ITERATIONS, "default"),
    "views/cuda_activities": _IN_DETAIL,
    "views/kernel_name": _IN_DETAIL,
    "views/nccl_on_gpu": _IN_DETAIL,
    "views/kernel_duration": Picture(_TWO_ITERATIONS, legend=_TIMES),
    "views/nvtx_on_gpu": Picture(_TWO_ITERATIONS, "default"),
    "views/mpi_calls": Picture(),
    "analysis/device_activity": Picture(_TWO_ITERATIONS, legend=_ON_GPU),
    "analysis/device_activity_time": Picture(legend=_ON_GPU),
    "analysis/useful_time": Picture(legend=_ON_GPU),
    "analysis/kernels_in_flight": Picture(_TWO_ITERATIONS, legend=_KERNELS),
    "analysis/overlap": Picture(_TWO_ITERATIONS, legend=_KERNELS),
    "analysis/overlap_of_communication": Picture(legend=_AT_ONCE),
    "analysis/kernel_time": Picture(),
    "analysis/nccl_time": Picture(),
    "analysis/host_activity": Picture(_TWO_ITERATIONS, legend=_ON_HOST),
    "analysis/useful_per_iteration": Picture(legend=_TIMES),
    "hwcounters/metric": Picture(_TWO_ITERATIONS, "tensor_active", _PERCENT),
    "hwcounters/tensor_per_gemm": Picture(legend=_PERCENT),
    "hwcounters/dram_added": Picture(_TWO_ITERATIONS, legend=_PERCENT),
}
"""The important views, by their paths in the table."""


def rewritten(page: str) -> str:
    """Text of a page with the texts of pictures updated."""
    views = read_view_table().views

    def sections(group: str) -> str:
        return "".join(_section(view) for view in views if view.group == group and view.path in PICTURES)

    return _SECTIONS.sub(lambda found: f"{found[1]}\n{sections(found['group'])}{found[3]}", page)


def _section(view: View) -> str:
    title = view.title
    if "{}" in title:
        named = view.name.replace("_", " ").replace("nvtx", "NVTX").replace("gpu", "GPU")
        title = f"{named[:1].upper()}{named[1:]}: {PICTURES[view.path].member.replace('_', ' ')}"
    return f"### {title}\n\n`{view.path}`: {view.text}\n\n![{title}](views/{_file(view.path)})\n\n"


def _file(path: str) -> str:
    return f"{path.replace('/', '-')}.svg"


def drawn(prv: Path) -> dict[str, str]:
    """All pictures by the names of their files.

    Parameters
    ----------
    prv
        The trace of the demo, with its views beside it.
    """
    trace = open_whole(prv)
    svg = {}
    for path, picture in PICTURES.items():
        name = f"{path}-{picture.member}.cfg" if picture.member else f"{path}.cfg"
        cfg = parse_cfg((prv.with_suffix(".cfgs") / name).read_text(encoding="utf-8"), name)
        svg[_file(path)] = draw(trace, cfg, picture.time, picture.legend)
    return svg


def main() -> None:
    """Make the demo and draw its views."""
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
    with tempfile.TemporaryDirectory() as folder:
        svg = drawn(run_demo(Path(folder) / "demo", NODES, GPUS).summary.prv)
    FOLDER.mkdir(exist_ok=True)
    for former in FOLDER.glob("*.svg"):
        former.unlink()
    for name, text in svg.items():
        (FOLDER / name).write_text(text, encoding="utf-8", newline="\n")
    print(f"{FOLDER}: {len(svg)} pictures, {sum(map(len, svg.values())) / 1e3:.0f} kB", file=sys.stderr)


if __name__ == "__main__":
    main()
