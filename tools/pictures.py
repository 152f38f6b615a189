"""Draws pictures of docs/reference/views.md from the demo, and writes the texts of all: `python tools/pictures.py`.

They are drawn without Paraver, from the demo's trace and views: the same demo gives the same files. Views of the first group
have photographs of Paraver's windows in their place (`docs/views/*.png`), which this program leaves alone. The texts between
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

PAGE = CHECKOUT / "docs" / "reference" / "views.md"
FOLDER = CHECKOUT / "docs" / "views"
_SECTIONS = re.compile(r"(<!-- pictures (?P<group>[0-9a-z-]+) -->\n).*?(<!-- end of pictures -->)", re.DOTALL)
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
_KERNELS, _PERCENT, _TIMES, _POWERS = (Legend(unit) for unit in ("kernels", "%", "ns", "(power of ten, ns)"))
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
    "kernel_families": _IN_DETAIL,
    "nvtx_ranges": Picture(_TWO_ITERATIONS, "default"),
    "kernel_name": _IN_DETAIL,
    "nccl_on_gpu": _IN_DETAIL,
    "kernel_duration": Picture(_TWO_ITERATIONS, legend=_POWERS),
    "nvtx_on_gpu": Picture(_TWO_ITERATIONS, "default"),
    "mpi_calls": Picture(),
    "useful_time": Picture(legend=_ON_GPU),
    "kernels_in_flight": Picture(_TWO_ITERATIONS, legend=_KERNELS),
    "overlap": Picture(_TWO_ITERATIONS, legend=_KERNELS),
    "overlap_of_communication": Picture(legend=_AT_ONCE),
    "nccl_time": Picture(),
    "useful_per_iteration": Picture(legend=_TIMES),
    "metric": Picture(_TWO_ITERATIONS, "tensor_active", _PERCENT),
    "tensor_per_gemm": Picture(legend=_PERCENT),
    "dram_added": Picture(_TWO_ITERATIONS, legend=_PERCENT),
}
"""The important views that are drawn, by their names in the table."""
PHOTOGRAPHED = "0-start-here"
"""The group whose views are shown as Paraver itself shows them: `docs/views/NAME.png`, taken by hand."""


def rewritten(page: str) -> str:
    """Text of a page with the texts of pictures updated."""
    views = read_view_table().views

    def sections(group: str) -> str:
        return "".join(
            _section(view) for view in views if view.group == group and (group == PHOTOGRAPHED or view.name in PICTURES)
        )

    return _SECTIONS.sub(lambda found: f"{found[1]}\n{sections(found['group'])}{found[3]}", page)


def _section(view: View) -> str:
    is_drawn = view.name in PICTURES
    member = PICTURES[view.name].member.replace("_", " ") if is_drawn else ""
    title = f"{view.general_title}: {member}" if member else view.general_title
    return f"### {title}\n\n`{view.path}`\n\n![{title}](../views/{view.name}.{'svg' if is_drawn else 'png'})\n\n"


def drawn(prv: Path) -> dict[str, str]:
    """All pictures by the names of their files.

    Parameters
    ----------
    prv
        The trace of the demo, with its views beside it.
    """
    trace = open_whole(prv)
    svg = {}
    paths = {view.name: view.path for view in read_view_table().views}
    for view, picture in PICTURES.items():
        name = f"{paths[view]}-{picture.member}.cfg" if picture.member else f"{paths[view]}.cfg"
        cfg = parse_cfg((prv.with_suffix(".cfgs") / name).read_text(encoding="utf-8"), name)
        svg[f"{view}.svg"] = draw(trace, cfg, picture.time, picture.legend)
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
