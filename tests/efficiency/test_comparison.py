"""Runs side by side: small runs with known answers, given as reports, as results and as JSON."""

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from support.command_line import CommandLine
from support.measured import measured, picked, row, written
from support.report_builder import ReportBuilder

from nsys2prv.efficiency import comparison_tables
from nsys2prv.efficiency.comparison import compare
from nsys2prv.efficiency.efficiency_options import CompareOptions, EfficiencyOptions, window_choice
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.outputs.comparison_text import comparison_sentences
from nsys2prv.efficiency.results import ComparisonResult, EfficiencyResult, read_efficiency
from nsys2prv.errors import NotEfficiency, UsageError

GEMM, SMALL, NEW = "volta_sgemm_128x64_nn", "small(int)", "added(int)"


def one_gpu(folder: Path) -> Path:
    """800 of 1000 ns useful, in two kernels, and a copy of 100 ns."""
    report = ReportBuilder(rank=0, ranks=1, pid=1000).gpu(0)
    report.kernel(GEMM, 100, 700, launch=(10, 20))
    report.kernel(SMALL, 700, 900, launch=(20, 30))
    report.copy(900, 1000, 4096, launch=(30, 40))
    report.api_call("cudaFree_v3020", 0, 10)
    return report.write(folder / "one.sqlite")


def two_gpus(folder: Path) -> Path:
    """The same kernels of one name on two devices, each half as long but the small one; one more kernel; 625 ns."""
    reports = [ReportBuilder(rank=rank, ranks=2, pid=2000 + rank).gpu(rank) for rank in range(2)]
    for rank, report in enumerate(reports):
        report.kernel(GEMM, 100, 400, launch=(10, 20))
        report.kernel(SMALL, 400, 600, launch=(20, 30))
        if rank:
            report.kernel(NEW, 600, 625, launch=(30, 40))
        report.api_call("cudaFree_v3020", 0, 10)
    return written(folder / "two", *reports)[0].parent


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [one_gpu(folder), two_gpus(folder)]


@pytest.fixture(scope="module")
def results(runs: list[Path]) -> list[EfficiencyResult]:
    """The numbers of `runs`."""
    return [measure([run], EfficiencyOptions(align="utc")) for run in runs]


def compared(*runs: Path | str | EfficiencyResult, **options: Any) -> ComparisonResult:
    return compare(list(runs), CompareOptions(align="utc", **options))


def test_scalability_is_told_against_the_first_run(results: list[EfficiencyResult]) -> None:
    found = compared(*results).tables["runs"]

    assert picked(found, "run", "devices", "elapsed_ns", "useful_ns") == [("A", 1, 1000, 800), ("B", 2, 625, 1025)]
    first, second = found.rows(named=True)
    factors = ("speedup", "useful_scalability", "useful_scalability_per_device")
    assert [first[name] for name in factors] == [1.0, 1.0, 1.0]
    assert [second[name] for name in factors] == pytest.approx([1000 / 625, 800 / 1025, 800 / (1025 / 2)])
    assert first["global_efficiency"] == first["device_parallel_efficiency"] == pytest.approx(0.8)
    assert second["device_parallel_efficiency"] == pytest.approx(1025 / 1250)
    assert second["global_efficiency"] == pytest.approx(1025 / 1250 * 800 / 1025)
    assert second["global_efficiency_per_device"] == pytest.approx(1025 / 1250 * 1600 / 1025)


def test_without_all_ranks_scaling_is_not_known(results: list[EfficiencyResult]) -> None:
    head = {**results[1].head, "warnings": ["rank 2 of 3 is not among the reports"]}
    part = EfficiencyResult(head, results[1].tables)
    scaled, alike = (compared(first, part).tables["runs"]["scaling_efficiency"].to_list() for first in (results[0], part))
    assert (scaled, alike) == ([None, None], [1.0, 1.0])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., EfficiencyResult]:
    """Gives the numbers of iterations of 1 ms with three kernels of 200 us each, the first ones with 9 ms more without work,
    after a start-up of 3 ms, with so many kernels of 1 us; `tested` has 30 other kernels. Each run is measured once."""

    @cache
    def of(ranks: int, iterations: int, warm_up: int = 0, start_up: int = 0, tested: int | None = None) -> EfficiencyResult:
        reports = [ReportBuilder(rank=rank, ranks=ranks, pid=1000 + rank).gpu(rank) for rank in range(ranks)]
        for report in reports:
            report.api_call("cudaFree_v3020", 0, 10)
            for place in range(start_up):
                report.kernel("fill", 100_000 + 2_000 * place, 101_000 + 2_000 * place, launch=(50_000 + place, 50_001 + place))
            for number in range(iterations):
                begin = 3_000_000 + 1_000_000 * number + 9_000_000 * (min(number, warm_up) + (number > (tested or number)))
                for place, name in enumerate(("forward", "backward", "step", *["test"] * 30 * (number == tested))):
                    at = begin + 300_000 * place
                    report.kernel(name, at, at + 200_000, launch=(at - 20_000, at - 10_000))
        return measured(tmp_path_factory.mktemp("trained"), *reports)

    return of


Trained = Callable[..., EfficiencyResult]


def test_weak_scaling_with_the_same_work_on_each_device_is_perfect(trained: Trained) -> None:
    runs = [trained(1, 8), trained(2, 8)]
    weak = compare(runs)
    found = weak.tables["runs"]
    assert picked(found, "scaling", "basis", "speedup", "scalability") == [("weak", "run", 1.0, 1.0)] * 2
    assert found["useful_scalability"].to_list() == [1.0, 0.5]
    assert weak.tables["matched"].filter(pl.col("level") == "kernel")["scalability"].to_list() == [1.0] * 6
    assert compare(runs, CompareOptions(scaling="strong")).tables["runs"]["scalability"].to_list() == [1.0, 0.5]
    assert re.search(r"scaling +weak +weak\n", weak.as_text())


@pytest.mark.parametrize(
    ("warm_up", "iterations", "basis"),
    [(2, 20, "run"), (2, 40, "iteration"), pytest.param(0, 40, "iteration", marks=pytest.mark.thorough)],
)
def test_the_same_iterations_take_the_same_time_whatever_their_number_and_warm_up(
    trained: Trained, warm_up: int, iterations: int, basis: str
) -> None:
    compared_runs = compare([trained(1, 20, warm_up=warm_up), trained(1, iterations)])
    rows = compared_runs.tables["runs"].rows(named=True)
    assert [(row["basis"], row["iterations"]) for row in rows] == [(basis, 20 - warm_up), (basis, iterations)]
    assert [row["scalability"] for row in rows] == pytest.approx([1.0, 1.0])
    assert warm_up or [row["speedup"] for row in rows] == pytest.approx([1.0, 1.0], abs=0.01)
    kernels = compared_runs.tables["matched"].filter(pl.col("level") == "kernel")
    assert kernels["scalability"].to_list() == pytest.approx([1.0] * 6)
    differences = compared_runs.tables["changes"].filter(pl.col("what").is_in(["family", "kernel"]))["difference_ns"]
    assert max(differences.abs(), default=0) < 1
    assert compared_runs.head["warnings"] == []
    # Of gaps of iterations nothing else is known but what the wall time has.
    assert basis == "run" or "gaps" not in compared_runs.tables["changes"]["what"].to_list()


def test_an_iteration_of_other_work_is_not_in_the_mean(trained: Trained) -> None:
    rows = compare([trained(1, 20), trained(1, 40, tested=30)]).tables["runs"]
    assert rows.select("basis", "iterations").rows() == [("iteration", 20), ("iteration", 39)]
    assert rows["iteration_ns"].to_list() == pytest.approx([1_000_000] * 2, rel=1e-4)


def test_iterations_that_have_other_parts_of_the_work_are_not_compared(trained: Trained) -> None:
    result = trained(1, 40)
    few = EfficiencyResult(result.head, {**result.tables, "iterations": result.tables["iterations"][:30]})
    found = compare([trained(1, 20), few], CompareOptions(fail_if=("iteration_ns > 1.05*A",)))
    assert found.tables["runs"]["basis"].to_list() == ["run"] * 2
    assert found.tables["gate"].select("result", "reason").row(0) == ("not decidable", found.head["warnings"][0][30:])
    assert "100.0 % in A and 75.0 % in B is in iterations" in found.head["warnings"][0]
    kernels = result.tables["kernels"].with_columns(pl.col("count") * 4)
    found = compare([trained(1, 20), EfficiencyResult(result.head, {**result.tables, "kernels": kernels})])
    assert found.tables["runs"]["basis"].to_list() == ["run"] * 2
    assert "do not execute the same kernels equally often" in found.head["warnings"][0]


def test_time_of_kernels_that_may_wait_for_pages_is_compared_with_them(trained: Trained) -> None:
    result = trained(1, 20)
    absent = result.tables["absent_time"].with_columns(paging_ns=pl.lit(5_000_000, pl.Int64))
    found = compare([result, EfficiencyResult(result.head, {**result.tables, "absent_time": absent})])
    computing = found.tables["wall_time"].filter(part="compute")
    assert computing.select("title", "difference_ns").rows() == [("computing, or waiting for pages", 0.0)] * 2


def test_the_sentence_names_what_changed_in_the_same_direction(trained: Trained) -> None:
    tables = compare([trained(1, 20), trained(1, 20, warm_up=1)]).tables
    largest = pl.when(pl.col("part") == "compute").then(-(10**9)).otherwise("difference_ns")
    changed = {**tables, "wall_time": tables["wall_time"].with_columns(difference_ns=largest)}
    assert "more than" in (sentence := comparison_sentences(changed)[0])
    assert "changed most: computing" not in sentence
    equal = tables["runs"].with_columns(pl.col("elapsed_ns", "iteration_ns").first())
    assert "changed most: computing" in comparison_sentences({**changed, "runs": equal})[0]


def test_the_same_work_in_periods_of_other_lengths_is_compared_as_a_whole(trained: Trained) -> None:
    result = trained(1, 40)
    longer = result.tables["iterations"].gather_every(4)
    rows = compare([result, EfficiencyResult(result.head, {**result.tables, "iterations": longer})]).tables["runs"]
    assert rows.select("basis", "iterations", "speedup").rows() == [("run", 40, 1.0), ("run", 10, 1.0)]


def test_a_call_that_takes_longer_than_an_iteration_is_in_none(trained: Trained) -> None:
    runs = []
    for result in (trained(1, 20), trained(1, 40)):
        longer = pl.when(pl.col("call") == "cudaFree").then(10**9).otherwise(0)
        calls = result.tables["cuda_calls"].with_columns(pl.col("total_ns") + longer, pl.max_horizontal("max_ns", longer))
        runs.append(EfficiencyResult(result.head, {**result.tables, "cuda_calls": calls}))
    assert compare(runs).tables["changes"].filter(name="cudaFree")["difference_ns"].abs().max() < 1  # it takes 10 ns


def test_work_outside_of_iterations_is_told_where_iterations_are_compared(trained: Trained) -> None:
    runs = compare([trained(1, 20, start_up=500), trained(1, 40)])
    assert [warning[:48] for warning in runs.head["warnings"]] == ["A: 4.0 % of the useful time is outside of the it"]
    useful = runs.tables["changes"].filter(pl.col("what") == "devices", pl.col("name") == "useful")["difference_ns"]
    assert max(useful.abs(), default=0) < 1
    long = trained(1, 20)
    of_run = long.tables["run"].with_columns(pl.col("elapsed_ns") * 5)
    runs = compare([EfficiencyResult(long.head, {**long.tables, "run": of_run}), trained(1, 40)])
    assert runs.head["warnings"][0].startswith(
        "A: iterations take 17.5 % of its time: calls and copies, which the rest has as well"
    )
    assert set(runs.tables["changes"]["what"]) <= {"devices", "family", "kernel"}


def test_trees_stand_side_by_side(results: list[EfficiencyResult]) -> None:
    found = compared(*results).tables["metrics"]
    balance = row(found, run="B", metric="load_balance")
    assert (balance["value"], balance["change"]) == (pytest.approx(1025 / 1050), pytest.approx(1025 / 1050 - 1))
    communication = row(found, run="A", metric="communication_efficiency")
    assert (communication["value"], communication["change"]) == (pytest.approx(800 / 900), 0.0)
    assert row(found, run="B", metric="communication_efficiency")["change"] == pytest.approx(1 - 800 / 900)


def test_kernels_and_families_are_matched_by_name(results: list[EfficiencyResult]) -> None:
    found = compared(*results).tables["matched"]

    gemm = row(found, level="kernel", name=GEMM, run="B")
    assert (gemm["runs"], gemm["count"], gemm["total_ns"], gemm["mean_ns"]) == (2, 2, 600, 300.0)
    assert (gemm["mean_ratio"], gemm["scalability"]) == (0.5, 1.0)
    small = row(found, level="kernel", name=SMALL, run="B")
    assert (small["mean_ratio"], small["scalability"]) == (1.0, 0.5)
    added = row(found, level="kernel", name=NEW, run="B")
    assert (added["runs"], added["mean_ratio"], added["scalability"]) == (1, None, None)
    family = row(found, level="family", name=gemm["family"], run="B")
    assert (family["total_ns"], family["scalability"]) == (600, 1.0)
    kernels = found.filter(pl.col("level") == "kernel")
    assert picked(kernels, "name", "run") == [(GEMM, "A"), (GEMM, "B"), (SMALL, "A"), (SMALL, "B"), (NEW, "B")]


def test_the_text_begins_with_what_the_runs_are_against_the_first(results: list[EfficiencyResult]) -> None:
    verdict = "B two takes 625 ns, 37.5 % less than A one (1.000 µs), on 2 instead of 1 GPUs: strong scaling efficiency 80.0 %"
    texts = compare(results, CompareOptions(label=("one", "two")))
    assert texts.as_text().startswith(f"{verdict}; changed most: ")
    in_markdown = verdict.replace("two", "`two`").replace("one", "`one`")
    assert texts.as_markdown().startswith(f"### Comparison of runs\n\n- {in_markdown}; changed most: ")


def test_what_changed_is_told_per_device_the_largest_first(results: list[EfficiencyResult]) -> None:
    found = compared(*results).tables["changes"]

    assert found["run"].unique().to_list() == ["B"]
    differences = found["difference_ns"].abs().to_list()
    assert differences == sorted(differences, reverse=True)
    gemm = row(found, what="kernel", name=GEMM)
    assert (gemm["before_ns"], gemm["after_ns"], gemm["difference_ns"], gemm["ratio"]) == (600.0, 300.0, -300.0, 0.5)
    added = row(found, what="kernel", name=NEW)
    assert (added["before_ns"], added["after_ns"], added["ratio"]) == (0.0, 12.5, None)
    useful, idle = row(found, what="devices", name="useful"), row(found, what="devices", name="idle")
    assert (useful["before_ns"], useful["after_ns"]) == (800.0, 512.5)
    assert (idle["before_ns"], idle["after_ns"]) == (100.0, (125 + 100) / 2)
    memory = row(found, what="memory", name="CUDA memcpy Host-to-Device")
    assert (memory["before_ns"], memory["after_ns"]) == (100.0, 0.0)
    # Two threads, three launches each less one, of 10 ns.
    launches = found.filter((pl.col("what") == "CUDA call") & (pl.col("name") == "cudaLaunchKernel"))
    assert picked(launches, "before_ns", "after_ns") == [(20.0, 25.0)]


def test_three_runs_have_letters_in_the_order_given_and_a_warning_of_two_is_told_once(results: list[EfficiencyResult]) -> None:
    warned = [EfficiencyResult({**run.head, "warnings": ["odd", "odd"]}, run.tables) for run in reversed(results)]
    found = compared(*warned, results[1])
    assert found.head["warnings"] == ["A, B: odd"]
    assert [one["run"] for one in found.head["runs"]] == ["A", "B", "C"]
    assert found.tables["runs"]["useful_scalability"].to_list() == pytest.approx([1.0, 1025 / 800, 1.0])
    assert found.tables["changes"]["run"].unique().to_list() == ["B"]


def test_json_has_every_key_table_and_column_of_the_schema(results: list[EfficiencyResult]) -> None:
    options = CompareOptions(align="utc", fail_if=["speedup < A"])
    content = json.loads(json.dumps(compare(list(results), options).as_json(), allow_nan=False))
    assert list(content) == [key for key, _, _ in comparison_tables.HEAD]
    assert list(content["tables"]) == [table.name for table in comparison_tables.TABLES]
    for table in comparison_tables.TABLES:
        columns = content["tables"][table.name]
        assert list(columns) == list(table.schema)
        assert pl.DataFrame(columns, schema=table.schema).height > 0 or table is comparison_tables.ITERATION_LENGTHS


def test_the_command_prints_and_writes_the_same_of_reports_as_of_json_and_results(
    runs: list[Path], results: list[EfficiencyResult], command_line: CommandLine, tmp_path: Path
) -> None:
    for result, name in zip(results, "AB", strict=True):
        result.to_json(tmp_path / f"{name}.json")
    text = command_line.run("compare", "A.json", "B.json").stdout
    assert "speedup" in text
    assert "1.600" in text
    printed = command_line.run("compare", *runs, "--align", "utc", "--json", "--json-file", "out.json", "--csv", "tables")
    assert printed.returncode == 0, printed.stderr
    assert json.loads((command_line.folder / "out.json").read_text())["format"] == comparison_tables.FORMAT
    assert pl.read_csv(command_line.folder / "tables" / "runs.csv")["useful_ns"].to_list() == [800, 1025]
    from_reports = json.loads(printed.stdout)
    assert from_reports == json.loads((command_line.folder / "out.json").read_text())
    for inputs in (results, [tmp_path / "A.json", results[1]]):
        for name, table in compared(*inputs).tables.items():
            # Labels are of the paths.
            of_reports = pl.DataFrame(from_reports["tables"][name], schema=table.schema)
            assert_frame_equal(table.drop("label", strict=False), of_reports.drop("label", strict=False))


def test_options_that_a_json_was_not_measured_with_are_refused(
    runs: list[Path], results: list[EfficiencyResult], tmp_path: Path
) -> None:
    steady = EfficiencyOptions(window=window_choice("10ns:500ns"))
    measured, path = measure([runs[0]], steady), tmp_path / "before.json"
    measured.to_json(path)

    assert compare([path, runs[1]], CompareOptions(window=steady.window)).tables["runs"]["elapsed_ns"].to_list() == [490, 490]
    mixed = compare([path, results[1]]).head["warnings"][-1]
    assert mixed == "different parts of runs are compared: of A the chosen window, of B the whole run (--window)"
    for run in (path, measured):
        compare([run, run])
        with pytest.raises(UsageError, match="--align applies to reports"):
            compare([run, run], CompareOptions(align="none"))
        for option in ({"window": window_choice("steady")}, {"nccl": "useful"}):
            with pytest.raises(UsageError, match=rf"--{next(iter(option))} applies to reports, and .* was measured before"):
                compare([run, runs[1]], CompareOptions(**option))


def test_readings_of_nccl_must_agree(results: list[EfficiencyResult]) -> None:
    useful = EfficiencyResult({**results[0].head, "nccl": "useful"}, results[0].tables)
    with pytest.raises(UsageError, match="one --nccl"):
        compare([useful, results[1]])


DAMAGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "no table": lambda content: content["tables"].pop("kernels"),
    "no column": lambda content: content["tables"]["run"].pop("devices"),
    "other type": lambda content: content["tables"]["run"].update(devices=["many"]),
    "no run": lambda content: content["tables"].update(run={name: [] for name in content["tables"]["run"]}),
    "newer": lambda content: content.update(version=99),
    "other format": lambda content: content.update(format="something"),
    "no key": lambda content: content.pop("nccl"),
    "no length": lambda content: content.update(window={"begin_ns": 0}),
    "no least length": lambda content: content["length_interval"].update(least_ns=None),
    "length as text": lambda content: content["length_interval"].update(most_ns="x"),
    "length below 0": lambda content: content["length_interval"].update(least_ns=-1),
}


@pytest.mark.parametrize("damage", [*DAMAGES, "no JSON"])
def test_json_that_is_none_of_ours_is_told_in_one_sentence(
    results: list[EfficiencyResult], tmp_path: Path, damage: str
) -> None:
    content = json.loads(json.dumps(results[0].as_json()))
    if damage in DAMAGES:
        DAMAGES[damage](content)
    path = tmp_path / "damaged.json"
    path.write_text("{" if damage == "no JSON" else json.dumps(content))
    with pytest.raises(NotEfficiency, match=r"damaged\.json: .*; give what"):
        compared(path, results[1])


def test_numbers_without_a_fraction_are_numbers(results: list[EfficiencyResult], tmp_path: Path) -> None:
    """Other programs write 1.0 as 1."""
    content = json.loads(json.dumps(results[0].as_json()))
    content["tables"]["run"]["load_balance"] = [1]
    content["tables"]["run"]["of a later version"] = ["x"]
    path = tmp_path / "whole.json"
    path.write_text(json.dumps(content))
    assert read_efficiency(path).tables["run"]["load_balance"].to_list() == [1.0]
