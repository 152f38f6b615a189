"""Runs replayed with other durations, whose lengths are known."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command_line import CommandLine
from support.measured import MS, NCCL, US
from support.report_builder import ReportBuilder

import nsys2prv as np
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.what_if import WhatIfResult, what_if
from nsys2prv.efficiency.what_if_options import WhatIfOptions, scalings
from nsys2prv.errors import UsageError
from nsys2prv.run.inspect import inspect_run
from nsys2prv.run.options import ReadOptions

COMPUTE = (100, 200)
"""us that the kernel takes on each of two ranks."""


def rank(folder: Path, number: int, host: str = "node01") -> Path:
    """A rank that loads for 2 ms, computes, and reduces with the other rank: 50 us from the last arrival."""
    report = ReportBuilder(rank=number, with_mpi=True, ranks=2, pid=1000 + number, host=host).gpu(number)
    call = report.api_call("cudaMemcpyAsync_v3020", 0, 5 * US)
    report.copy(7 * US, 9 * US, 1 << 20, kind=1, correlation=call)
    start = 2010
    call = report.api_call("cudaMemcpyAsync_v3020", 2005 * US, start * US)
    report.copy((start + 2) * US, (start + 12) * US, 1 << 20, kind=1, correlation=call)
    begin, compute = start + 14, COMPUTE[number]
    report.kernel("compute", begin * US, (begin + compute) * US, launch=((start + 1) * US, (start + 3) * US))
    end = begin + max(COMPUTE) + 2 + 50
    report.kernel(NCCL, (begin + compute + 2) * US, end * US, launch=((start + 4) * US, (start + 6) * US))
    report.api_call("cudaStreamSynchronize_v3020", (start + 7) * US, (end + 3) * US)
    return report.write(folder / f"rank{number}.sqlite")


MEASURED = 2010 + 14 + 200 + 2 + 50 + 3


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[np.NsysRun]:
    """Both ranks, which are read once."""
    folder = tmp_path_factory.mktemp("both")
    with np.open_run([rank(folder, number) for number in range(2)]) as run:
        yield run


def replayed(both: np.NsysRun, **changes: Any) -> int:
    """Length of the run with changes, us."""
    lengths = both.whatif(**changes).what_if.row(0, named=True)
    assert lengths["measured_ns"] == MEASURED * US
    return int(lengths["replayed_ns"]) // US


@pytest.mark.parametrize(
    ("changes", "less"),
    [
        ({"ideal_network": True}, 50),
        # Of two ranks the earlier one is typical: the other one computes as long as it does.
        ({"no_late_ranks": True}, 100),
        ({"no_late_ranks": True, "scale": ["compute=0.5"]}, 150),
        ({"scale": ["compute=0.5"]}, 100),
        ({"scale": ["Comp*=2"]}, -200),
        ({"rank": ["1=median"]}, 100),
        ({"rank": ["0=median"]}, 0),
        ({"scale": ["compute=0.5"], "ideal_network": True}, 150),
        ({"scale": ["CUDA memcpy Host-to-Device=0"]}, 10),
    ],
)
def test_the_length_with_a_change_is_known(both: np.NsysRun, changes: dict[str, Any], less: int) -> None:
    assert replayed(both, **changes) == MEASURED - less


@pytest.mark.parametrize(
    ("factor", "replayed", "least", "most"),
    # It computes for 200 us and reduces for 50 us with a rank that is not in the run, which may take longer, too. Where all or
    # nothing may be won, no number is nearest.
    [(0.5, None, -150, 0), (2, 200, 150, None)],
)
def test_of_a_rank_whose_partner_is_missing_the_length_is_known_to_an_interval(
    factor: float, replayed: int | None, least: int, most: int | None, tmp_path: Path
) -> None:
    result = what_if([rank(tmp_path, 1)], WhatIfOptions(scale=(f"compute={factor}",)))  # type: ignore[arg-type]
    row = result.what_if.row(0, named=True)
    expected = [None if change is None else row["measured_ns"] + change * US for change in (replayed, least, most)]
    assert [row[name] for name in ("replayed_ns", "least_ns", "most_ns")] == expected
    assert "other members of 1 operation of NCCL or MPI are not in the run" in row["reason"]
    assert "not exact: other members" in result.as_text()
    assert ("may take longer, too" in row["reason"]) == ("to not known" in result.as_text()) == (most is None)


@pytest.mark.parametrize("changes", [{"no_late_ranks": True}, pytest.param({"rank": ["1=median"]}, marks=pytest.mark.thorough)])
def test_without_all_ranks_none_is_typical(changes: dict[str, Any], tmp_path: Path) -> None:
    row = what_if([rank(tmp_path, 1)], WhatIfOptions(**changes)).what_if.row(0, named=True)
    assert [row[name] for name in ("replayed_ns", "least_ns", "most_ns")] == [None] * 3
    assert row["reason"] == "ranks of the run are missing: how long the typical rank takes is not known"


def test_where_sends_and_receives_of_nccl_are_not_matched_nobody_knows_who_is_late(tmp_path: Path) -> None:
    made = [ReportBuilder(rank=number, with_mpi=True, ranks=3, pid=1000 + number).gpu(number) for number in range(3)]
    for number, report in enumerate(made):
        report.kernel("ncclDevKernel_SendRecv(x)", 10 * US, (100 + number) * US, launch=(0, 2 * US))
        report.kernel(NCCL, (110 + number) * US, 150 * US, launch=(3 * US, 4 * US))
    paths = [report.write(tmp_path / f"rank{number}.sqlite") for number, report in enumerate(made)]
    row = what_if(paths, WhatIfOptions(no_late_ranks=True)).what_if.row(0, named=True)
    assert (row["least_ns"], row["most_ns"], row["reason"].partition(":")[0]) == (
        None, None, "sends and receives of NCCL can't be matched"
    )  # fmt: skip


def test_an_exact_length_has_no_interval_and_no_reason(both: np.NsysRun) -> None:
    row = both.whatif(ideal_network=True).what_if.row(0, named=True)
    assert (row["least_ns"], row["most_ns"], row["reason"]) == (row["replayed_ns"], row["replayed_ns"], None)


def test_where_nothing_ties_the_clocks_of_ranks_that_wait_the_length_is_null(tmp_path: Path) -> None:
    reports = [rank(tmp_path, number, host) for number, host in enumerate(("node01", "node02"))]
    result = what_if(reports, WhatIfOptions(ideal_network=True, align="utc"))  # type: ignore[arg-type]
    row = result.what_if.row(0, named=True)
    assert [row[name] for name in ("replayed_ns", "least_ns", "most_ns", "difference_ns", "speedup")] == [None] * 5
    assert "clocks of ranks" in row["reason"]
    assert "not known" in result.as_text()


def test_a_rank_alone_may_wait_for_others_where_their_number_is_not_known(tmp_path: Path) -> None:
    report = ReportBuilder(environment={"PALS_RANKID": "0"}).gpu(0)
    report.kernel("compute", 10 * US, 110 * US, launch=(0, 5 * US))
    report.api_call("cudaDeviceSynchronize_v3020", 6 * US, 112 * US)
    report.mpi_p2p("MPI_Recv", 120 * US, 520 * US, partner=1, size=8)
    paths = [report.write(tmp_path / "rank.sqlite")]
    row = what_if(paths, WhatIfOptions(scale=scalings("compute=0.5"))).what_if.row(0, named=True)
    assert (row["replayed_ns"], row["most_ns"]) == (None, row["measured_ns"])
    assert row["least_ns"] < row["measured_ns"] - 400 * US
    assert "ranks: 0, of how many is not known" in "".join(inspect_run(paths, ReadOptions())[0])


def test_without_loading_the_next_batch_is_copied_at_once(both: np.NsysRun) -> None:
    # The pause of the host lasts from 5 to 2005 us. It is one, and may be something else.
    none, half, double = (both.whatif(data_loading=times).what_if.row(0, named=True) for times in (0, 0.5, 2))
    assert (none["least_ns"], none["most_ns"]) == ((MEASURED - 2000) * US, MEASURED * US)
    assert (half["least_ns"], half["most_ns"]) == ((MEASURED - 1000) * US, MEASURED * US)
    assert (double["least_ns"], double["most_ns"]) == (MEASURED * US, None)


@pytest.mark.parametrize(
    ("before", "batches", "results", "kernels"),
    [(1, 4, False, 1), (0, 4, False, 1), (0, 4, False, 0), (1, 2, False, 1), (1, 4, True, 1)],
)
def test_only_what_repeats_and_follows_no_results_is_loading_for_sure(
    before: int, batches: int, results: bool, kernels: int, tmp_path: Path
) -> None:
    made = ReportBuilder().gpu(0)
    for step in range(before + batches):
        begin = step * 5 * MS
        made.copy(begin + 20 * US, begin + 500 * US, 1 << 20, launch=(begin, begin + 10 * US))
        if kernels:
            thread = {} if before else {"tid": 2000}
            made.kernel("work", begin + 600 * US, begin + MS, launch=(begin + 20 * US, begin + 30 * US), **thread)
        if results:
            made.copy(begin + MS, begin + 1100 * US, 1 << 20, kind=2, launch=(begin + 40 * US, begin + 1200 * US))
    row = what_if([made.write(tmp_path / "run.sqlite")], WhatIfOptions(data_loading=0)).what_if.row(0, named=True)
    # A thread that launches no kernel may well be one that loads.
    is_sure = (batches, results, kernels) == (4, False, 1)
    assert (row["most_ns"] < row["measured_ns"], row["least_ns"] < row["measured_ns"]) == (is_sure, True)


def test_without_the_cost_of_launches_work_starts_earlier(both: np.NsysRun) -> None:
    assert replayed(both, no_launch_cost=True) < MEASURED


def test_kernels_that_wait_for_their_launch_do_not_say_what_a_stream_takes_between_them(tmp_path: Path) -> None:
    made = ReportBuilder().gpu(0)
    for begin in range(0, 200 * 15 * US, 15 * US):
        # The former kernel ends when the call has begun.
        made.kernel("k", begin + 10 * US, begin + 16 * US, launch=(begin, begin + 9 * US))
    window = what_if([made.write(tmp_path / "bound.sqlite")], WhatIfOptions(no_launch_cost=True)).what_if.row(0, named=True)
    assert window["replayed_ns"] < 205 * 6 * US


def test_the_path_with_changes_adds_up_to_the_new_length(both: np.NsysRun) -> None:
    result = both.whatif(scale=["compute=0.5"])
    of_kinds = result.what_if_path_totals.filter(by="kind")
    assert of_kinds["measured_ns"].sum() == MEASURED * US
    assert of_kinds["replayed_ns"].sum() == (MEASURED - 100) * US
    assert result.critical_path["length_ns"].sum() == (MEASURED - 100) * US
    by_name = {(by, name): new for by, name, _, new in result.what_if_path_totals.iter_rows()}
    assert by_name["kernel", "compute"] == 100 * US
    assert "compute=0.5" in result.as_text()
    # What a table leaves out is counted.
    kinds = of_kinds.height
    assert f"\nCritical path by kind, measured and with the changes ({kinds - 1} more)\n" in result.as_text(rows=1)
    assert "\nCritical path by kind, measured and with the changes\n" in result.as_text(rows=kinds)


def test_transfer_and_serialization_are_the_parts_of_what_is_not_imbalance(both: np.NsysRun) -> None:
    result = both.efficiency()
    run = result.run.row(0, named=True)
    assert run["ideal_network_ns"] == (MEASURED - 50) * US
    assert run["transfer_efficiency"] == pytest.approx((MEASURED - 50) / MEASURED)
    assert run["serialization_efficiency"] == pytest.approx(200 / (MEASURED - 50))
    product = run["communication_efficiency"] * run["orchestration_efficiency"]
    assert run["progress_efficiency"] == pytest.approx(product)
    assert run["transfer_efficiency"] * run["serialization_efficiency"] == pytest.approx(product)
    tree = {row["metric"]: row for row in result.tree.iter_rows(named=True)}
    assert tree["transfer_efficiency"]["value"] == run["transfer_efficiency"]
    assert tree["transfer_efficiency"]["parent"] == "progress_efficiency"
    assert tree["progress_efficiency"]["product_of"] == "communication_efficiency orchestration_efficiency"
    lines = result.as_text().splitlines()
    places = [next(place for place, line in enumerate(lines) if line.startswith(text)) for text in (
        "  x Orchestration Efficiency", "  Communication x Orchestration", "    = Transfer Efficiency",
        "    x Serialization Efficiency")]  # fmt: skip
    assert places == list(range(places[0], places[0] + 4))


@pytest.mark.parametrize("without", [{"no_critical_path": True}, pytest.param({"nccl": "useful"}, marks=pytest.mark.thorough)])
def test_transfer_and_serialization_are_null_with_a_reason_where_nothing_was_replayed(
    both: np.NsysRun, without: dict[str, Any]
) -> None:
    tree = {row["metric"]: row for row in both.efficiency(**without).tree.iter_rows(named=True)}
    for metric in ("transfer_efficiency", "serialization_efficiency"):
        assert tree[metric]["value"] is None
        assert "needs the graph of the run, NCCL kernels that count as communication, collectives" in tree[metric]["reason"]
    assert tree["progress_efficiency"]["value"] > 0
    assert tree["progress_efficiency"]["reason"] is None


def test_without_a_change_the_standard_scenarios_are_replayed_one_by_one(both: np.NsysRun) -> None:
    result = both.whatif()
    scenarios = {row["scenario"]: row for row in result.what_if_scenarios.iter_rows(named=True)}
    assert list(scenarios) == ["--ideal-network", "--no-late-ranks", "--no-launch-cost", "--data-loading 0", "--scale '*=0.5'"]
    alone = both.whatif(ideal_network=True).what_if.row(0, named=True)
    columns = ("measured_ns", "replayed_ns", "least_ns", "most_ns", "reason", "difference_ns", "speedup")
    assert {name: scenarios["--ideal-network"][name] for name in columns} == {name: alone[name] for name in columns}
    assert all(name in result.as_text() for name in scenarios)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"scale": ["no such kernel=0.5"]}, "no kernel, kernel family or copy"),
        ({"scale": ["c[o]mpute*=0.5"]}, "no kernel, kernel family or copy"),
        ({"scale": [f"{'?' * 60_000}=0.5"]}, "at most 2,000 wildcards"),
        ({"scale": ["*=1e6", "*=1e6", "*=1e6"]}, "longer than can be counted"),
        ({"scale": ["gemm"]}, "FAMILY=FACTOR"),
        ({"scale": ["gemm=-1"]}, "a factor is a number"),
        ({"scale": ["gemm=nan"]}, "a factor is a number"),
        ({"data_loading": "much"}, "not a factor"),
        ({"rank": ["7=median"]}, "no rank 7"),
        ({"rank": ["one=median"]}, "RANK=median"),
    ],
)
def test_changes_that_make_no_sense_are_refused(both: np.NsysRun, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        both.whatif(**changes)


def test_the_command_and_the_function_give_the_same(command_line: CommandLine, tmp_path: Path) -> None:
    reports = [rank(tmp_path, number) for number in range(2)]
    file = tmp_path / "what_if.json"
    printed = command_line.run("whatif", *reports, "--scale", "compute=0.5", "--rank", "1=median", "--json-file", file)
    assert printed.returncode == 0, printed.stderr
    written = json.loads(file.read_text())
    result = np.open_run(reports).whatif(scale=["compute=0.5"], rank=["1=median"])
    assert isinstance(result, WhatIfResult)
    assert written["changes"] == ["--scale compute=0.5", "--rank 1=median"]
    assert written["tables"]["what_if"] == result.what_if.to_dict(as_series=False)


def test_a_loader_thread_that_wakes_the_main_thread_takes_as_many_times_as_long(tmp_path: Path) -> None:
    """It loads for 4 ms, and the main thread waits for 3 of them."""
    made, step = ReportBuilder(pid=1000).gpu(0), 4 * MS
    made.thread(1001)
    for begin in range(step, 12 * step, step):
        made.os_call("pthread_cond_signal", begin - 2 * US, begin, tid=1001)
        made.os_call("pthread_cond_wait", begin - 3 * MS, begin + US, tid=1000)
        call = made.api_call("cudaMemcpyAsync_v3020", begin + 10 * US, begin + 20 * US)
        made.copy(begin + 15 * US, begin + 40 * US, 1 << 20, correlation=call)
        made.kernel("k", begin + 45 * US, begin + 945 * US, launch=(begin + 30 * US, begin + 40 * US))
        made.api_call("cudaStreamSynchronize_v3020", begin + 50 * US, begin + 950 * US)
    row = what_if([made.write(tmp_path / "rank.sqlite")], WhatIfOptions(data_loading=0.5)).what_if.row(0, named=True)
    # How far ahead it loads is not known.
    assert row["least_ns"] < row["most_ns"] == pytest.approx(row["measured_ns"] - 10 * step // 2, rel=0.02)


def test_a_rank_that_is_slow_for_a_part_of_the_run_is_compared_part_by_part(tmp_path: Path) -> None:
    made = [ReportBuilder(rank=number, with_mpi=True, ranks=3, pid=1000 + number).gpu(number) for number in range(3)]
    for number, report in enumerate(made):
        end = 10 * US
        for place in range(20):
            begin, end = end + 2 * US, end + (202 if number == 2 and place >= 10 else 102) * US
            report.kernel("k", begin, end, launch=(0, US))
    paths = [report.write(tmp_path / f"rank{number}.sqlite") for number, report in enumerate(made)]
    row = what_if(paths, WhatIfOptions(rank=("2=median",))).what_if.row(0, named=True)
    assert row["measured_ns"] - row["replayed_ns"] == 10 * 100 * US


def test_with_an_ideal_network_a_late_receive_takes_no_time_of_the_message(tmp_path: Path) -> None:
    made = [ReportBuilder(rank=number, with_mpi=True, ranks=2, pid=1000 + number).gpu(number) for number in range(2)]
    for number, report in enumerate(made):
        report.kernel("k", 5 * US, 95 * US, launch=(0, 3 * US))
        # Sent long before, of a size that is on its way for 600 us from the receive on.
        partner, name = 1 - number, "MPI_Recv" if number else "MPI_Send"
        begin, end = (400, 1000) if number else (100, 104)
        report.communicator(rank=number, size=2).mpi_p2p(name, begin * US, end * US, partner=partner, size=4 << 20)
        report.kernel("k", (end + 4) * US, (end + 104) * US, launch=((end + 1) * US, (end + 3) * US))
    paths = [report.write(tmp_path / f"rank{number}.sqlite") for number, report in enumerate(made)]
    row = what_if(paths, WhatIfOptions(ideal_network=True)).what_if.row(0, named=True)
    assert row["measured_ns"] - row["least_ns"] == 600 * US


def test_a_synchronization_with_a_stream_that_only_waits_for_an_event_waits_for_the_other_stream(tmp_path: Path) -> None:
    made = ReportBuilder(pid=1000).gpu(0)
    made.kernel("first", 3 * US, 5 * US, launch=(0, US), stream=8)
    made.kernel("k", 10 * US, 510 * US, launch=(2 * US, 5 * US), stream=7)
    made.api_call("cudaStreamWaitEvent_v3020", 7 * US, 8 * US)
    call = made.api_call("cudaStreamSynchronize_v3020", 9 * US, 520 * US)
    made.synchronization(10 * US, 519 * US, correlation=call, stream=8)
    made.kernel("end", 530 * US, 540 * US, launch=(521 * US, 525 * US), stream=7)
    row = what_if([made.write(tmp_path / "rank.sqlite")], WhatIfOptions(scale=scalings("k=0.5"))).what_if.row(0, named=True)
    assert row["measured_ns"] - row["replayed_ns"] == 250 * US


def test_kernels_that_start_soon_after_their_launch_say_nothing_of_the_order_of_their_stream(tmp_path: Path) -> None:
    made = ReportBuilder(pid=1000).gpu(0)
    for begin in range(0, 4000, 10):
        made.kernel("k", (begin + 8) * US, (begin + 11) * US, launch=(begin * US, (begin + 3) * US))
    # A few wait in the queue, and one of them starts sooner than the others.
    for place, begin in enumerate((*range(4030, 4150, 10), 4144)):
        made.kernel("k", begin * US, (begin + 3) * US, launch=((4000 + place) * US, (4000 + place) * US + 500))
    row = what_if([made.write(tmp_path / "rank.sqlite")], WhatIfOptions(no_launch_cost=True)).what_if.row(0, named=True)
    assert row["measured_ns"] - row["replayed_ns"] == pytest.approx(1200 * US, rel=0.05)


def test_work_that_starts_long_after_its_launch_waits_for_something_else(tmp_path: Path) -> None:
    made = ReportBuilder(pid=1000).gpu(0)
    for begin in range(0, 4000, 400):
        made.kernel("k", (begin + 300) * US, (begin + 400) * US, launch=(begin * US, (begin + 10) * US))
    # Many short gaps beside these are usual.
    for begin in range(4004, 4204, 4):
        made.kernel("k", begin * US, (begin + 2) * US, launch=(3700 * US + begin, 3700 * US + begin + 1))
    path = made.write(tmp_path / "rank.sqlite")
    assert what_if([path], WhatIfOptions(no_launch_cost=True)).what_if.row(0, named=True)["replayed_ns"] >= 2900 * US
    warning = measure([path]).head["warnings"][-1]
    assert warning.startswith("work starts 290.000 µs (mean of 9 times) after it was launched")


def test_what_is_launched_only_after_the_former_end_says_nothing_of_the_order_of_its_stream(tmp_path: Path) -> None:
    made = ReportBuilder(pid=1000).gpu(0)
    for begin in range(0, 200 * 14, 14):
        made.kernel("k", (begin + 8) * US, (begin + 12) * US, launch=((begin + 1) * US, (begin + 4) * US))
        made.api_call("cudaDeviceSynchronize_v3020", (begin + 5) * US, (begin + 13) * US)
    for place, begin in enumerate((2830, 2843)):
        made.kernel("k", begin * US, (begin + 4) * US, launch=((2810 + place) * US, (2810 + place) * US + 500))
    row = what_if([made.write(tmp_path / "rank.sqlite")], WhatIfOptions(no_launch_cost=True)).what_if.row(0, named=True)
    assert row["measured_ns"] - row["replayed_ns"] > 800 * US


def test_a_thread_whose_creation_was_not_recorded_appears_after_the_last_call_of_its_process(tmp_path: Path) -> None:
    made = ReportBuilder(pid=1000).gpu(0)
    made.thread(1001)
    for begin in range(0, 518 * US, 2 * US):
        made.os_call("nanosleep", begin, begin + US, tid=1002)
    made.kernel("k", 10 * US, 510 * US, launch=(0, 5 * US))
    made.api_call("cudaStreamSynchronize_v3020", 6 * US, 515 * US)
    call = made.api_call("cudaLaunchKernel_v7000", 520 * US, 525 * US, tid=1001)
    made.kernel("end", 530 * US, 540 * US, correlation=call)
    row = what_if([made.write(tmp_path / "rank.sqlite")], WhatIfOptions(scale=scalings("k=0.5"))).what_if.row(0, named=True)
    assert row["measured_ns"] - row["replayed_ns"] == 250 * US
