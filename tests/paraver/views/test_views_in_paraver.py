"""Views of the demo show in Paraver what the reports contain, computed here from the tables of the reports alone."""

import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from support.paramedir import Paramedir, Table, paramedir_or_skip, read_table, read_tables, read_timeline
from support.report_builder import ReportBuilder

from nsys2prv.demo import Cluster, write_reports
from nsys2prv.timeline.labels import readable
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions

SMALL = Cluster(nodes=1, gpus_per_node=2, iterations=3, layers=2, slow_gpu=1, slow_factor=1.5, gpu_metrics_hz=5000)
ROUNDING = 0.0051
"""paramedir prints two decimals."""

VIEWS = (
    "0-start-here/device_activity_time",
    "0-start-here/family_time",
    "0-start-here/gaps",
    "0-start-here/gaps_by_length",
    "0-start-here/kernel_time",
    "1-gpu-kernels/active_time",
    "1-gpu-kernels/kernel_average",
    "1-gpu-kernels/kernel_count",
    "1-gpu-kernels/kernel_durations",
    "1-gpu-kernels/kernel_time_percent",
    "1-gpu-kernels/useful_time",
    "2-gpu-metrics/tensor_per_gemm",
    "3-communication/nccl_per_iteration",
    "3-communication/nccl_time",
    "3-communication/overlap_of_communication",
    "3-communication/overlap_of_trace",
    "5-host-and-cuda-api/host_activity_time",
    "6-nvtx/useful_per_iteration",
)
"""The views that tests look at."""

Spans = np.ndarray
"""A row per interval: start and end, ns."""


class Shown:
    """The demo, its trace, and what paramedir printed for each view."""

    def __init__(self, folder: Path) -> None:
        self.reports = write_reports(folder / "reports", SMALL)
        # Offsets only: durations stay as they are in the reports.
        self.summary = translate(self.reports, folder / "demo", TranslateOptions(align="utc"))
        self.length = self.summary.content["trace"]["length_ns"]
        self._outputs: dict[str, Path] = {}
        self._folder = folder

    def load(self) -> None:
        home, views = self._folder / "home", self._folder / "views"
        home.mkdir()
        for view in VIEWS:
            (views / view).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self._folder / "demo.cfgs" / f"{view}.cfg", views / f"{view}.cfg")
        self._outputs = paramedir_or_skip(home).show(self.summary.prv, views)

    def output(self, view: str) -> Path:
        return self._outputs[view]

    def table(self, view: str) -> Table:
        return read_table(self._outputs[view])

    def tables(self, view: str) -> dict[str, Table]:
        return read_tables(self._outputs[view])

    def query(self, rank: int, sql: str) -> list[tuple]:  # type: ignore[type-arg]
        with sqlite3.connect(f"file:{self.reports[rank]}?immutable=1", uri=True) as database:
            return database.execute(sql).fetchall()

    def kernels(self, rank: int, condition: str = "true") -> list[tuple[int, int, int, str]]:
        return self.query(
            rank,
            f"""select kernel.start, kernel.end, kernel.streamId, name.value from CUPTI_ACTIVITY_KIND_KERNEL kernel
            join StringIds name on name.id = kernel.demangledName where {condition} order by kernel.start""",
        )


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    demo = Shown(tmp_path_factory.mktemp("views"))
    demo.load()
    return demo


def spans(rows: Iterable[tuple]) -> Spans:  # type: ignore[type-arg]
    return np.array([row[:2] for row in rows], dtype=np.int64).reshape(-1, 2)


def depth(intervals: Spans) -> tuple[np.ndarray, np.ndarray]:
    """Times at which the number of open intervals changes, and the number from there on."""
    times = np.concatenate([intervals[:, 0], intervals[:, 1]])
    steps = np.concatenate([np.ones(len(intervals), int), -np.ones(len(intervals), int)])
    order = np.lexsort((steps, times))
    unique, last = np.unique(times[order][::-1], return_index=True)
    return unique, np.cumsum(steps[order])[::-1][last]


def open_at(intervals: Spans, moments: np.ndarray) -> np.ndarray:
    times, count = depth(intervals)
    place = np.searchsorted(times, moments, side="right") - 1
    return np.where(place >= 0, count[place], 0)


def time_by(*families: Spans, key: Callable[..., np.ndarray]) -> dict[int, int]:
    """Time for each value of `key`, which is a function of the number of open intervals of each family."""
    edges = np.unique(np.concatenate([one.ravel() for one in families]))
    values = key(*(open_at(one, edges[:-1]) for one in families))
    totals: dict[int, int] = defaultdict(int)
    for value, length in zip(values.tolist(), np.diff(edges).tolist(), strict=True):
        totals[value] += length
    return totals


COMPUTE, NCCL = "name.value not like '%nccl%'", "name.value like '%nccl%'"
MEMORY = "select start, end from CUPTI_ACTIVITY_KIND_MEMCPY union all select start, end from CUPTI_ACTIVITY_KIND_MEMSET"


def test_useful_time_is_the_union_of_compute_kernels_of_each_gpu(shown: Shown) -> None:
    expected = [
        time_by(spans(shown.kernels(rank, COMPUTE)), key=lambda useful: (useful > 0).astype(int))[1]
        for rank in range(SMALL.ranks)
    ]
    table = shown.table("1-gpu-kernels/useful_time")

    assert table.columns == ("Running",)
    assert table.column("Running") == pytest.approx(expected, abs=ROUNDING)
    assert table.totals["Total"] == pytest.approx([sum(expected)], abs=ROUNDING)
    assert table.totals["Avg/Max"] == pytest.approx([np.mean(expected) / max(expected)], abs=ROUNDING)
    assert table.totals["Avg/Max"][0] < 0.95  # the demo has a slow GPU


def test_device_activity_is_what_the_efficiency_model_calls_useful_and_communication(shown: Shown) -> None:
    table = shown.table("0-start-here/device_activity_time")
    for rank in range(SMALL.ranks):
        useful = spans(shown.kernels(rank, COMPUTE))
        communication = np.concatenate([spans(shown.kernels(rank, NCCL)), spans(shown.query(rank, MEMORY))])
        expected = time_by(useful, communication, key=lambda u, c: np.where(u > 0, 1, np.where(c > 0, 13, 0)))
        assert table.rows[rank][1] == pytest.approx([expected[1], expected[13]], abs=ROUNDING)


def test_overlap_is_the_number_of_concurrent_kernels_while_nccl_runs(shown: Shown) -> None:
    against_communication = shown.table("3-communication/overlap_of_communication")
    against_trace = shown.table("3-communication/overlap_of_trace")
    for rank in range(SMALL.ranks):
        nccl = spans(shown.kernels(rank, NCCL))
        every = spans(shown.kernels(rank))
        expected = time_by(nccl, every, key=lambda c, k: np.where(c > 0, k, 0))
        in_nccl = sum(length for count, length in expected.items() if count)

        for place, column in enumerate(against_trace.columns):
            length = expected[int(column)]
            assert against_trace.rows[rank][1][place] == pytest.approx(100 * length / shown.length, abs=ROUNDING)
            assert against_communication.rows[rank][1][place] == pytest.approx(100 * length / in_nccl, abs=ROUNDING)
    assert against_communication.columns[:2] == ("1", "2")


def test_kernel_profiles_are_total_number_and_average_of_each_name_on_each_stream(shown: Shown) -> None:
    total, count = shown.table("0-start-here/kernel_time"), shown.table("1-gpu-kernels/kernel_count")
    average, share = shown.table("1-gpu-kernels/kernel_average"), shown.table("1-gpu-kernels/kernel_time_percent")
    place = 0
    for rank in range(SMALL.ranks):
        durations: dict[int, dict[str, list[int]]] = {}
        for start, end, stream, name in shown.kernels(rank, COMPUTE):
            durations.setdefault(stream, {}).setdefault(readable(name), []).append(end - start)
        (streams,) = {tuple(sorted({row[2] for row in shown.kernels(rank)} | set(durations)))}
        for stream in streams:
            expected = durations.get(stream, {})
            if not expected:
                continue  # A stream of NCCL kernels alone is not shown.
            for name in total.columns:
                of_name = expected.get(name, [])
                assert total.column(name)[place] == pytest.approx(sum(of_name), abs=ROUNDING)
                assert count.column(name)[place] == len(of_name)
                assert average.column(name)[place] == pytest.approx(np.mean(of_name or [0]), abs=ROUNDING)
                assert share.column(name)[place] == pytest.approx(100 * sum(of_name) / shown.length, abs=ROUNDING)
            assert set(expected) <= set(total.columns)
            place += 1
    assert place == len(total.rows)


def test_families_add_up_to_the_time_of_all_kernels(shown: Shown) -> None:
    families, kernels, nccl = map(
        shown.table, ("0-start-here/family_time", "0-start-here/kernel_time", "3-communication/nccl_time")
    )
    assert len(families.columns) < len(kernels.columns) + len(nccl.columns)
    of_kernels, of_nccl = dict(kernels.rows), dict(nccl.rows)
    assert not set(of_kernels) & set(of_nccl)
    assert len(of_kernels) + len(of_nccl) == len(families.rows)
    for stream, by_family in families.rows:
        assert sum(by_family) == pytest.approx(sum({**of_kernels, **of_nccl}[stream]), abs=0.1)


def test_tensor_use_per_gemm_is_the_mean_over_the_time_of_its_kernels(shown: Shown) -> None:
    table = shown.table("2-gpu-metrics/tensor_per_gemm")
    for rank in range(SMALL.ranks):
        samples = np.array(
            shown.query(
                rank,
                """select timestamp, value from GPU_METRICS join TARGET_INFO_GPU_METRICS using (typeId, metricId)
                where metricName = 'Tensor Active' order by timestamp""",
            )
        )
        gemms: dict[str, list[tuple[int, int]]] = {}
        for start, end, _, name in shown.kernels(rank, "name.value like '%gemm%'"):
            gemms.setdefault(name, []).append((start, end))
        every = spans(interval for of_name in gemms.values() for interval in of_name)
        assert depth(every)[1].max() == 1, "one GEMM at a time: else the view has to choose"

        expected = {name: mean_during(samples, spans(of_name)) for name, of_name in gemms.items()}
        assert dict(zip(table.columns, table.rows[rank][1], strict=True)) == pytest.approx(expected, abs=ROUNDING)
    slow = [numbers for _, numbers in table.rows][SMALL.slow_gpu]
    assert all(one < other for one, other in zip(slow, table.rows[0][1], strict=True)), "the slow GPU is to be seen"


def mean_during(samples: np.ndarray, intervals: Spans) -> float:
    """Mean of a metric over the time of intervals; a sample covers the time since the sample before it."""
    times, values = samples[:, 0], samples[:, 1].astype(float)
    weight = total = 0.0
    for start, end in intervals.tolist():
        inner = times[(times > start) & (times < end)]
        edges = np.concatenate([[start], inner, [end]])
        place = np.searchsorted(times, edges[1:], side="left")
        lengths = np.diff(edges)
        shown_values = np.where(place < len(times), values[np.minimum(place, len(times) - 1)], 0)
        weight += lengths.sum()
        total += (lengths * shown_values).sum()
    return total / weight


def test_gaps_are_the_idle_time_of_each_gpu(shown: Shown) -> None:
    table = shown.table("0-start-here/gaps_by_length")
    active = shown.table("1-gpu-kernels/active_time").column("Running")
    assert [sum(numbers) for _, numbers in table.rows] == pytest.approx([shown.length - one for one in active], abs=0.05)


def test_gaps_are_in_columns_by_powers_of_ten(shown: Shown) -> None:
    table = shown.table("0-start-here/gaps_by_length")
    steps = read_timeline(shown.output("0-start-here/gaps"))
    gaps = [(duration, value) for _, duration, value in next(iter(steps.values())) if value]
    lengths = [duration for duration, _ in gaps]
    expected = {
        column: sum(one for one in lengths if 10 ** int(column) <= one < 10 ** (int(column) + 1)) for column in table.columns
    }

    assert len(table.columns) > 3
    assert [value for _, value in gaps] == pytest.approx(np.log10(lengths).tolist(), abs=ROUNDING)
    assert dict(zip(table.columns, table.rows[0][1], strict=True)) == pytest.approx(expected, abs=0.05)


def test_columns_with_the_most_time_come_first(shown: Shown) -> None:
    for view in ("0-start-here/family_time", "0-start-here/kernel_time", "3-communication/nccl_time"):
        totals = shown.table(view).totals["Total"]
        assert list(totals) == sorted(totals, reverse=True)
    assert len(shown.table("0-start-here/kernel_time").columns) > 5


def test_a_straggler_has_more_useful_time_and_less_nccl_time_in_every_iteration(shown: Shown) -> None:
    useful, nccl = shown.table("6-nvtx/useful_per_iteration"), shown.table("3-communication/nccl_per_iteration")
    assert useful.columns == tuple(str(number + 1) for number in range(SMALL.iterations))
    for place in range(SMALL.iterations):
        of_rank = [numbers[place] for _, numbers in useful.rows]
        waits = [numbers[place] for _, numbers in nccl.rows]
        assert max(of_rank) == of_rank[SMALL.slow_gpu]
        assert min(waits) == waits[SMALL.slow_gpu]


def test_host_activity_fills_the_whole_time_of_threads_with_calls(shown: Shown) -> None:
    table = shown.table("5-host-and-cuda-api/host_activity_time")
    assert table.columns == ("Running", "Group Communication", "Configuring accelerator")
    assert [name.split()[0] for name, _ in table.rows] == ["python3", "autograd"] * SMALL.nodes * SMALL.gpus_per_node
    for _, numbers in table.rows:
        assert sum(numbers) == pytest.approx(shown.length, abs=0.05)


def test_spread_of_kernel_durations_counts_every_kernel(shown: Shown) -> None:
    tables = shown.tables("1-gpu-kernels/kernel_durations")
    counts = shown.table("1-gpu-kernels/kernel_count")
    assert set(tables) == set(counts.columns)
    for name, table in tables.items():
        assert [sum(numbers) for _, numbers in table.rows] == counts.column(name)


@pytest.mark.thorough
def test_every_view_of_the_demo_loads(shown: Shown, paramedir: Paramedir) -> None:
    assert set(VIEWS) < set(paramedir.show(shown.summary.prv, shown.summary.prv.with_suffix(".cfgs")))


def test_gaps_of_a_gpu_are_whole_beside_another_one_of_the_process(tmp_path: Path, paramedir: Paramedir) -> None:
    report = ReportBuilder().gpu(0).gpu(1)
    for number in range(5):
        report.kernel("k", 1_000 * number, 1_000 * number + 400, launch=(0, 5))
        report.copy(1_000 * number + 400, 1_000 * number + 600, 8, launch=(0, 5))
    for begin in (100, 4_100):
        report.kernel("k", begin, begin + 200, device=1, launch=(0, 5))
    summary = translate([report.write(tmp_path / "a.sqlite")], tmp_path / "out")
    view = "0-start-here/gaps_by_length_d1"
    (tmp_path / "one").mkdir()
    shutil.copy(tmp_path / "out.cfgs" / f"{view}.cfg", tmp_path / "one" / "gaps.cfg")
    table = read_table(paramedir.show(summary.prv, tmp_path / "one")["gaps"])
    # 100 ns before its first kernel, 300 behind the last one, and 3,800 between them.
    assert dict(zip(table.columns, table.rows[0][1], strict=True)) == {"2": 400, "3": 3_800}
