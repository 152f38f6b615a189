"""What contradicts itself on the time axis is a warning, and an error with --strict."""

from pathlib import Path

import pytest
from support.report_builder import ReportBuilder

from nsys2prv.clocks import AlignMethod
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.errors import ClocksDisagree
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions

MS = 1_000_000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"
UTC = 1_700_000_000_000_000_000

INSIDE = (
    "as placed, ranks of node01 end 8 collectives before others of it have begun them, by up to 4.200 ms: "
    "the times of their reports do not fit together"
)


def reports(folder: Path) -> list[Path]:
    """Two ranks of a host with eight reductions; the session of the second has a start that is 5 ms late."""
    paths = []
    for rank in range(2):
        late = rank * (1000 + 5 * MS)
        report = ReportBuilder(rank=rank, with_mpi=True, ranks=2, pid=1000 + rank, utc_ns=UTC + late).gpu(rank)
        began = rank * 1000
        for turn in range(8):
            start = (10 + 7 * turn + turn * turn) * MS - began
            report.kernel(NCCL, start, start + MS // 2)
        paths.append(report.write(folder / f"rank{rank}.sqlite"))
    return paths


def test_ranks_of_a_host_that_end_collectives_apart_are_a_warning(tmp_path: Path) -> None:
    summary = translate(reports(tmp_path), tmp_path / "OUT", TranslateOptions(align=AlignMethod.UTC))
    assert INSIDE in summary.content["warnings"]
    assert summary.content["clock_check"] == [
        {"what": "inside host", "hosts": ["node01"], "size_ns": 4_200_000, "count": 8, "text": INSIDE}
    ]
    paths = [tmp_path / f"rank{rank}.sqlite" for rank in range(2)]
    assert INSIDE in measure(paths, EfficiencyOptions(align=AlignMethod.UTC)).head["warnings"]


def test_with_strict_it_is_an_error_and_nothing_is_written(tmp_path: Path) -> None:
    paths = reports(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ClocksDisagree, match=r"ranks of node01 end 8 collectives before others") as failed:
        translate(paths, tmp_path / "OUT", TranslateOptions(align=AlignMethod.UTC, strict=True))
    assert failed.value.exit_code == 9
    with pytest.raises(ClocksDisagree):
        measure(paths, EfficiencyOptions(align=AlignMethod.UTC, strict=True))
    assert sorted(tmp_path.iterdir()) == before


def test_messages_inside_hosts_only_tie_no_clocks(tmp_path: Path) -> None:
    paths = []
    for rank in range(4):
        host = f"node0{rank // 2 + 1}"
        report = ReportBuilder(rank=rank, with_mpi=True, ranks=4, pid=1000 + rank, host=host, utc_ns=UTC, monotonic_ns=rank + 1)
        report.communicator(rank=rank, size=4).mpi_p2p(
            ("MPI_Send", "MPI_Recv")[rank % 2], 10 * MS, 10 * MS + 1000, partner=rank ^ 1, size=8, tag=1
        )
        paths.append(report.write(tmp_path / f"rank{rank}.sqlite"))

    content = translate(paths, tmp_path / "OUT", TranslateOptions()).content
    assert [clock["interval_ns"]["worst"] for clock in content["clocks"]] == [None, None]
    assert [report["alignment"]["group"] for report in content["reports"]] == [0, 0, 1, 1]
