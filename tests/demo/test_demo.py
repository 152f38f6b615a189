"""The made-up reports keep the rules that real ones keep, and hold the problems that `truth.json` tells of."""

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from nsys2prv.demo import Cluster, generate, truth, write_report, write_reports
from nsys2prv.efficiency.measure import measure
from nsys2prv.errors import OutputError
from nsys2prv.exports import describe, open_report

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
DEVICE_WORK = (KERNELS, "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
SMALL = Cluster(nodes=2, gpus_per_node=2, iterations=6, layers=2, slow_gpu=1, slow_factor=1.5, gpu_metrics_hz=5000)

Run = dict[int, dict[str, pl.DataFrame]]


def reports_of(cluster: Cluster) -> Run:
    return {int(name.removeprefix("rank")): tables for name, tables in generate(cluster)}


@pytest.fixture(scope="module")
def run() -> Run:
    return reports_of(SMALL)


def named(tables: dict[str, pl.DataFrame], table: str, column: str) -> pl.DataFrame:
    return tables[table].join(tables["StringIds"].rename({"value": "name"}), left_on=column, right_on="id", how="left")


def true_times(rank: int, tables: dict[str, pl.DataFrame], table: str) -> pl.DataFrame:
    """Starts and ends without the host's wrong clock: what the truth says about clocks, turned round."""
    told = truth(SMALL)
    host = next(host for host in told["hosts"] if host["name"] == told["ranks"][rank]["host"])
    utc = tables["TARGET_INFO_SESSION_START_TIME"]["utcEpochNs"][0] - told["utc_zero_ns"] - host["offset_ns"]
    columns = [
        ((pl.col(name) + utc) / (1 + host["drift_ppm"] * 1e-6)).round().cast(pl.Int64).alias(name) for name in ("start", "end")
    ]
    return tables[table].with_columns(columns)


def test_a_report_that_can_not_be_written_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="nowhere"):
        write_report(tmp_path / "nowhere" / "report.sqlite", {})


def test_the_same_seed_gives_the_same_run_and_another_seed_another(run: Run) -> None:
    again, other = reports_of(SMALL), reports_of(replace(SMALL, seed=2))
    assert all(frame.equals(again[rank][name]) for rank, tables in run.items() for name, frame in tables.items())
    assert not run[0][KERNELS]["start"].equals(other[0][KERNELS]["start"])


@pytest.mark.parametrize(("names", "row"), [(DEVICE_WORK, "streamId"), ((CALLS,), "globalTid")], ids=["streams", "threads"])
def test_nothing_overlaps_on_a_row(run: Run, names: tuple[str, ...], row: str) -> None:
    for tables in run.values():
        work = pl.concat([tables[name].select("start", "end", row) for name in names]).sort(row, "start")
        assert work["end"].ge(work["start"]).all()
        assert work.select((pl.col("start") >= pl.col("end").shift().over(row)).drop_nulls().all()).item()


def test_every_piece_of_work_has_one_call_that_begins_before_it(run: Run) -> None:
    for tables in run.values():
        calls = tables[CALLS].select("correlationId", called="start")
        assert calls["correlationId"].is_unique().all()
        for name in DEVICE_WORK:
            launched = tables[name].join(calls, on="correlationId", how="inner")
            assert launched.height == tables[name].height
            assert (launched["called"] < launched["start"]).all()


def test_push_pop_ranges_nest(run: Run) -> None:
    for tables in run.values():
        ranges = tables["NVTX_EVENTS"].filter(eventType=59)
        for _, group in ranges.group_by("globalTid", "domainId"):
            open_ends: list[int] = []
            for start, end in group.sort("start").select("start", "end").iter_rows():
                while open_ends and open_ends[-1] <= start:
                    open_ends.pop()
                assert not open_ends or end <= open_ends[-1]
                open_ends.append(end)


def test_a_collective_ends_on_all_ranks_when_the_last_one_has_come(run: Run) -> None:
    collectives = []
    for rank, tables in run.items():
        kernels = true_times(rank, tables, KERNELS).filter(streamId=16).sort("start")
        collectives.append(kernels.select(start="start", end="end", number=pl.int_range(pl.len())))
    together = (
        pl.concat(collectives)
        .group_by("number")
        .agg(last_start=pl.col("start").max(), first_end=pl.col("end").min(), spread=pl.col("end").max() - pl.col("end").min())
    )

    assert together.height == 1 + SMALL.iterations * (SMALL.layers + 1)
    assert (together["last_start"] < together["first_end"]).all()
    assert together["spread"].max() < 2_000  # type: ignore[operator]


def test_a_message_arrives_after_it_was_sent(run: Run) -> None:
    sent: dict[tuple[int, int, int], list[int]] = {}
    waited: dict[tuple[int, int, int], list[int]] = {}
    for rank, tables in run.items():
        tables = tables | {name: true_times(rank, tables, name) for name in ("MPI_P2P_EVENTS", "MPI_START_WAIT_EVENTS")}
        calls = named(tables, "MPI_P2P_EVENTS", "textId")
        for partner, tag, start in calls.filter(name="MPI_Isend").select("remoteRank", "tag", "start").iter_rows():
            sent.setdefault((rank, partner, tag), []).append(start)
        ends = tables["MPI_START_WAIT_EVENTS"]["end"].unique().sort().to_list()
        for partner, tag in calls.filter(name="MPI_Irecv").select("remoteRank", "tag").unique().iter_rows():
            waited[partner, rank, tag] = ends

    assert sent.keys() == waited.keys()
    for message, starts in sent.items():
        assert all(start < end for start, end in zip(starts, waited[message], strict=True))


def test_clocks_are_wrong_by_what_the_truth_tells(run: Run) -> None:
    told = truth(replace(SMALL, clock_offsets_ns=(25_000_000, -40_000_000), clock_drifts_ppm=(0.0, 100.0)))
    skewed = reports_of(replace(SMALL, clock_offsets_ns=(25_000_000, -40_000_000), clock_drifts_ppm=(0.0, 100.0)))
    exact = reports_of(replace(SMALL, clock_offsets_ns=(0, 0), clock_drifts_ppm=(0.0, 0.0)))

    def ended(run: Run, rank: int) -> int:
        utc = run[rank]["TARGET_INFO_SESSION_START_TIME"]["utcEpochNs"][0]
        return int(utc + run[rank][KERNELS]["end"].max() - told["utc_zero_ns"])

    assert [(host["offset_ns"], host["drift_ppm"]) for host in told["hosts"]] == [(25_000_000, 0.0), (-40_000_000, 100.0)]
    assert ended(skewed, 0) - ended(exact, 0) == 25_000_000
    assert ended(skewed, 2) - ended(exact, 2) == pytest.approx(-40_000_000 + ended(exact, 2) * 100e-6, abs=2)
    assert all(12_000_000 <= abs(host["offset_ns"]) <= 60_000_000 for host in truth(SMALL)["hosts"])


def test_ids_repeat_between_nodes_and_not_within_one(run: Run) -> None:
    pids = [tables[KERNELS]["globalPid"][0] for tables in run.values()]
    assert pids[0] == pids[2]
    assert pids[0] != pids[1]


def test_reports_tell_rank_host_and_gpu(tmp_path: Path) -> None:
    paths = write_reports(tmp_path, SMALL)
    told = json.loads((tmp_path / "truth.json").read_text())

    assert [path.name for path in paths] == ["rank0000.sqlite", "rank0001.sqlite", "rank0002.sqlite", "rank0003.sqlite"]
    for rank, path in zip(told["ranks"], paths, strict=True):
        identity = describe(open_report(path))
        process = next(iter(identity.ranks))
        assert identity.host == rank["host"]
        assert list(identity.ranks.values()) == [rank["rank"]]
        assert identity.gpu_key(process, 0) == identity.metric_gpu_key(rank["gpu"]) == rank["uuid"]
        assert identity.environment["WORLD_SIZE"] == "4"
        assert not identity.warnings


def test_tensor_cores_are_busy_in_gemms_and_less_on_the_slow_gpu(run: Run) -> None:
    def tensor(rank: int, name: str) -> float:
        tables = run[rank]
        metric = tables["TARGET_INFO_GPU_METRICS"].filter(metricName="Tensor Active")["metricId"][0]
        kernels = named(tables, KERNELS, "demangledName").filter(pl.col("name").str.contains(name), streamId=7)
        samples = tables["GPU_METRICS"].filter(metricId=metric).sort("timestamp")
        inside = samples.join_asof(kernels.sort("start"), left_on="timestamp", right_on="start")
        # The sample is the mean over the period before it: it belongs to the kernel when that has run all the while.
        period = 1_000_000_000 // SMALL.gpu_metrics_hz
        inside = inside.filter(pl.col("timestamp") < pl.col("end"), pl.col("timestamp") - pl.col("start") > period)
        return float(inside["value"].mean())  # type: ignore[arg-type]

    assert tensor(0, "gemm_bf16") > 75
    assert 30 < tensor(0, "flash_bwd_dq") < 50
    assert tensor(0, "multi_tensor_apply") == 0
    assert tensor(1, "gemm_bf16") < 0.75 * tensor(0, "gemm_bf16")


@pytest.mark.parametrize(
    ("without", "tables"),
    [
        ("with_mpi", {"MPI_RANKS", "MPI_COLLECTIVES_EVENTS", "MPI_P2P_EVENTS"}),
        ("with_nvtx", {"NVTX_EVENTS"}),
        ("with_os_calls", {"OSRT_API"}),
        ("gpu_metrics_hz", {"GPU_METRICS", "TARGET_INFO_GPU_METRICS"}),
    ],
)
def test_what_is_not_recorded_has_no_tables(run: Run, without: str, tables: set[str]) -> None:
    left_out = reports_of(replace(SMALL, **{without: 0}))  # type: ignore[arg-type]
    assert tables <= run[0].keys()
    assert not tables & left_out[0].keys()


def test_a_run_without_nccl_or_of_one_gpu_can_be_made() -> None:
    lone = Cluster(nodes=1, gpus_per_node=1, iterations=1, layers=1, with_nccl=False)
    tables = reports_of(lone)[0]
    assert tables[KERNELS]["streamId"].unique().to_list() == [7]
    assert "MPI_P2P_EVENTS" not in tables
    assert named(tables, "MPI_COLLECTIVES_EVENTS", "textId")["name"].to_list() == [
        "MPI_Barrier", "MPI_Allreduce", "MPI_Barrier"
    ]  # fmt: skip


BETWEEN_KERNELS = 1_100
"""ns between two operations of a stream of which the first ends late."""


@pytest.mark.thorough
def test_the_path_of_the_demo_has_no_wait_of_unknown_cause(tmp_path: Path) -> None:
    """The optimizer waits for the last collective, and each collective for what computes before it."""
    cluster = Cluster(nodes=1, gpus_per_node=2, iterations=4, layers=2, slow_gpu=1, gpu_metrics_hz=0)
    tables = measure(write_reports(tmp_path, cluster)).tables
    totals = {
        name: (total, segments) for by, name, total, _, segments in tables["critical_path_totals"].iter_rows() if by == "kind"
    }
    assert totals["event wait"][1] >= cluster.iterations
    order, segments = totals["stream order"]
    assert order <= (BETWEEN_KERNELS + 10) * segments
    absent = tables["absent_time"]
    assert absent["undecided_ns"].sum() == 0
    assert absent["transfer_ns"].sum() > 0
