"""The gate of `compare`: what fails, what passes, what is not decidable, and how it is said."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from markdown_it import MarkdownIt
from support import QUICK, few_of
from support.command_line import CommandLine
from support.hostile_report import BEFORE, BEHIND
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.comparison import compare, path_labels
from nsys2prv.efficiency.efficiency_options import CompareOptions, EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.errors import GateFailed, GateNotDecidable, UsageError


def run(folder: Path, name: str, useful: int, kernel: str = "gemm") -> Path:
    """A report of 1000 ns with one kernel."""
    report = ReportBuilder(rank=0, ranks=1, pid=1000).gpu(0)
    report.api_call("cudaFree_v3020", 0, 10)
    report.kernel(kernel, 100, 100 + useful, launch=(20, 30))
    report.api_call("cudaDeviceSynchronize_v3020", 990, 1000)
    return report.write(folder / f"{name}.sqlite")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[EfficiencyResult]:
    """Devices compute 80 % and 60 % of the time."""
    folder = tmp_path_factory.mktemp("gate")
    return [measure([run(folder, name, ns)], EfficiencyOptions(**QUICK)) for name, ns in (("before", 800), ("after", 600))]


@pytest.fixture
def files(runs: list[EfficiencyResult], tmp_path: Path) -> list[Path]:
    """The same as files, which are read faster than reports."""
    paths = [tmp_path / "before.json", tmp_path / "after.json"]
    for one, path in zip(runs, paths, strict=True):
        one.to_json(path)
    return paths


def gate(runs: Sequence[Path | EfficiencyResult], *conditions: str, **options: Any) -> list[dict[str, Any]]:
    return compare(list(runs), CompareOptions(fail_if=conditions, **options)).tables["gate"].rows(named=True)


@pytest.mark.parametrize(
    ("condition", "bound", "result"),
    [
        ("device_parallel_efficiency < 0.95*A", 0.76, "fails"),
        ("device_parallel_efficiency<.75 * A", 0.6, "passes"),
        ("device_parallel_efficiency <= 0.75*A", 0.6, "fails"),
        ("device_parallel_efficiency < A", 0.8, "fails"),
        ("device_parallel_efficiency < 0.61", 0.61, "fails"),
        ("device_parallel_efficiency < .59", 0.59, "passes"),
        ("elapsed_ns >= 1000", 1000.0, "fails"),
        ("elapsed_ns > 1e3", 1000.0, "passes"),
        ("idle_ns > 2*A", 400.0, "passes"),
        ("idle_ns >= 2*A", 400.0, "fails"),
        ("speedup < A", 1.0, "passes"),
    ],
)
def test_a_condition_compares_a_metric_with_a_number_or_a_multiple_of_run_a(
    runs: list[EfficiencyResult], condition: str, bound: float, result: str
) -> None:
    (row,) = gate(runs, condition)
    assert row["bound"] == pytest.approx(bound)
    assert (row["condition"], row["run"], row["result"], row["reason"]) == (condition, "B", result, None)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("device_paralel_efficiency < 0.9", "did you mean device_parallel_efficiency"),
        ("iteration_time > 5e6", "did you mean .*iteration_ns"),
        ("speed_of_light < 1", "did you mean|the names are .*elapsed_ns"),
        ("label < 1", "no metric label"),
        *(
            (condition, "is not METRIC < BOUND .* or a multiple of run A's value")
            for condition in (
                *("", "elapsed_ns", "elapsed_ns >", "elapsed_ns 5", "elapsed_ns = 5", "devices != A", "elapsed_ns > 5 A"),
                *("elapsed_ns > A + 2ms", "elapsed_ns > 5ms", "elapsed_ns > 105%*A", "elapsed_ns > 2*B", "B.elapsed_ns > 1"),
                *("elapsed_ns > A*2", "elapsed_ns > -5", "elapsed_ns > 1e999", "elapsed_ns > 'A'", "elapsed_ns > *A"),
                *("__import__('os').system('id') < 1", "elapsed_ns > " + "1" * 600),
            )
        ),
    ],
)
def test_a_wrong_condition_is_refused_before_anything_is_measured(tmp_path: Path, condition: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        compare([tmp_path / "before", tmp_path / "after"], CompareOptions(fail_if=[condition]))


def test_each_run_but_the_first_is_checked(runs: list[EfficiencyResult], tmp_path: Path) -> None:
    third = measure([run(tmp_path, "third", 790)])
    rows = gate([*runs, third], "device_parallel_efficiency < 0.95*A", "devices >= 1", label=list("xyz"))
    assert [(row["run"], row["result"]) for row in rows] == [("B", "fails"), ("C", "passes"), ("B", "fails"), ("C", "fails")]


def with_length(one: EfficiencyResult, least: int, most: int | None) -> EfficiencyResult:
    """A run whose clocks allow other lengths."""
    return EfficiencyResult({**one.head, "length_interval": {"least_ns": least, "most_ns": most}}, one.tables)


@pytest.mark.parametrize(
    ("condition", "lengths", "expected"),
    [
        # 600 ns of at least 900 and at most 1200 are 50 % to 66.7 %.
        ("device_parallel_efficiency < 0.49", (900, 1200), ("passes", 0.5, 600 / 900)),
        ("device_parallel_efficiency < 0.5", (900, 1200), ("passes", 0.5, 600 / 900)),
        ("device_parallel_efficiency < 0.59", (900, 1200), ("not decidable", 0.5, 600 / 900)),
        ("device_parallel_efficiency < 0.67", (900, 1200), ("fails", 0.5, 600 / 900)),
        ("elapsed_ns > 1201", (900, 1200), ("passes", 900, 1200)),
        ("elapsed_ns > 1100", (900, 1200), ("not decidable", 900, 1200)),
        ("elapsed_ns > 899", (900, 1200), ("fails", 900, 1200)),
        ("elapsed_ns > 1100", (900, None), ("not decidable", 900, None)),
        ("elapsed_ns > 899", (900, None), ("fails", 900, None)),
        ("speedup < 0.9", (900, 1200), ("not decidable", 1000 / 1200, 1000 / 900)),
        ("speedup < 0.8", (900, 1200), ("passes", 1000 / 1200, 1000 / 900)),
        ("global_efficiency < 0.6", (900, 1200), ("passes", 800 / 1200, 800 / 900)),
        ("global_efficiency < 0.7", (900, 1200), ("not decidable", 800 / 1200, 800 / 900)),
        # Durations on one device do not depend on clocks of others.
        ("load_balance < 0.99", (900, 1200), ("passes", 1.0, 1.0)),
        ("useful_ns > 599", (900, 1200), ("fails", 600.0, 600.0)),
        # 970 ns of host computing and 30 ns in calls: of a longer run, host computing is more.
        ("host_parallel_efficiency < 0.97", (900, 1200), ("not decidable", 870 / 900, 1170 / 1200)),
    ],
)
def test_numbers_are_known_as_well_as_the_clocks(
    runs: list[EfficiencyResult], condition: str, lengths: tuple[int, int | None], expected: tuple[str, float, float | None]
) -> None:
    before, after = runs
    (row,) = gate([before, with_length(after, *lengths)], condition)
    assert (row["result"], row["least"]) == (expected[0], pytest.approx(expected[1]))
    assert row["most"] == (None if expected[2] is None else pytest.approx(expected[2]))
    assert (row["reason"] is not None) == (row["result"] == "not decidable")
    if row["reason"] is not None:
        assert row["reason"].startswith("the clocks of the hosts allow B from ")


def test_a_bound_is_known_as_well_as_the_clocks_of_its_run(runs: list[EfficiencyResult]) -> None:
    before, after = runs
    (row,) = gate([with_length(before, 900, 1400), after], "device_parallel_efficiency < A")
    assert (row["least_bound"], row["most_bound"]) == (pytest.approx(800 / 1400), pytest.approx(800 / 900))
    assert row["result"] == "not decidable"
    assert row["reason"] == "the clocks of the hosts allow A from 57.1 % to 88.9 %"
    (row,) = gate([with_length(before, 900, 1400), with_length(after, 800, 1200)], "speedup < 0.9")
    assert (row["least"], row["most"]) == (pytest.approx(900 / 1200), pytest.approx(1400 / 800))


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("mpi_load_balance < 0.8", "B has no mpi_load_balance (without MPI)"),
        ("mpi_load_balance < 0.8*A", "B has no mpi_load_balance (without MPI)"),
        ("iteration_ns > 1.1*A", "B has no iteration_ns (no iterations: "),
    ],
)
def test_a_number_that_a_run_does_not_have_is_not_decidable(runs: list[EfficiencyResult], condition: str, why: str) -> None:
    (row,) = gate(runs, condition)
    assert (row["result"], row["value"], row["least"], row["most"]) == ("not decidable", None, None, None)
    assert row["reason"].startswith(why)


def test_the_exit_code_is_that_of_the_gate(files: list[Path], command_line: CommandLine) -> None:
    fails, passes, unknown = "device_parallel_efficiency < 0.95*A", "elapsed_ns > 1.05*A", "mpi_load_balance < 0.8"
    options = {
        (passes,): (0, ""),
        (fails,): (GateFailed.exit_code, "fails: B: device_parallel_efficiency < 0.95*A (60.0 %, fails if < 76.0 %)"),
        (unknown, fails): (GateFailed.exit_code, ""),
        (passes, unknown): (GateNotDecidable.exit_code, "1 of 2 conditions: B: mpi_load_balance < 0.8 (B has no"),
    }
    for conditions, (code, said) in options.items():
        done = command_line.run("compare", *files, *(part for one in conditions for part in ("--fail-if", one)))
        assert done.returncode == code, conditions
        assert "Gate" in done.stdout
        errors = [line for line in done.stderr.splitlines() if line.startswith("nsys2prv: ")]
        assert len(errors) == (code != 0)
        assert said in done.stdout + done.stderr
    # One form is printed.
    assert command_line.run("compare", *files, "--json", "--markdown").returncode == UsageError.exit_code


def labels(*given: Path | EfficiencyResult, **options: Any) -> list[str]:
    return compare(list(given), CompareOptions(**options)).tables["runs"]["label"].to_list()


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["v1/n1/reports", "v2/n1/reports"], ["v1", "v2"]),
        (["/x/before.sqlite", "/x/after.nsys-rep"], ["before", "after"]),
        (["/x/OUT.prv.gz", "/x/b/OUT.prv"], ["x", "x/b"]),
        (["/a/v1/rank0.sqlite", "/a/v2/rank0.sqlite"], ["v1", "v2"]),
        (["/a/v1/*.sqlite", "/a/v2/*.sqlite"], ["v1", "v2"]),
        (["/a/n1/reports", "/a/long"], ["n1/reports", "long"]),
        (["/a/n1", "/a/n1/reports/rank0.sqlite"], ["n1", "n1/reports/rank0"]),
        ([f"/a/n{gpus}/{'x' * 50}{gpus}/reports" for gpus in (1, 4, 16)], ["n1", "n4", "n16"]),
        (["/a/rank0.sqlite", "/a/rank0.sqlite"], []),
        # A run of several reports is called by what they have in common.
        (["/a/v1/rank0.sqlite /a/v1/rank1.sqlite", "/a/v2/rank0.sqlite"], ["v1", "v2/rank0"]),
    ],
    ids=range(10),
)
def test_labels_are_what_differs_in_the_paths(paths: list[str], expected: list[str]) -> None:
    assert path_labels([path.split() for path in paths]) == expected


def test_runs_of_one_path_have_numbers(runs: list[EfficiencyResult]) -> None:
    assert labels(runs[0], runs[0]) == ["before (1)", "before (2)"]


def test_labels_that_are_given_are_in_every_output(files: list[Path], command_line: CommandLine) -> None:
    done = command_line.run("compare", *files, "--label", "old code", "--label", "new", "--fail-if", "speedup < A")
    assert done.returncode == 0, done.stderr
    assert "A  old code, before.sqlite, " in done.stdout
    assert "A old code" in done.stdout
    assert "`new`" in command_line.run("compare", *files, "--label", "old code", "--label", "new", "--markdown").stdout


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["one"], "1 label for 2 runs"),
        (["one", "one"], "two runs have this label"),
        (["one", " "], "a label is empty"),
        (["B", "one"], "the letter of another run"),
    ],
)
def test_labels_that_do_not_tell_runs_apart_are_refused(runs: list[EfficiencyResult], given: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        labels(*runs, label=given)


HOSTILE = (
    *("a|b", "a\\|b", "a\\\\|b", "`", "``x`", "x`", "|", "\\", "@root #1 !2 ~3 %4", "[x](javascript:alert(1))", "<img src=x>"),
    *(
        "![x](http://x/y)",
        "http://example.org www.example.org",
        "</details>",
        "# x",
        "- [ ] x",
        "&lt;",
        "$`x`$",
        "*x* _y_ ~~z~~",
    ),
    *BEFORE,
    *(text for text in BEHIND if "\ue000" not in text and len(text) < 1000),
)


@pytest.mark.parametrize("text", few_of(HOSTILE, HOSTILE[::4]), ids=range(len(HOSTILE)))
def test_texts_in_markdown_do_nothing(runs: list[EfficiencyResult], text: str) -> None:
    kernels = runs[0].tables["kernels"].with_columns(kernel=pl.lit(f"k{text}"))
    given = [EfficiencyResult({**one.head, "inputs": [f"i{text}"]}, {**one.tables, "kernels": kernels}) for one in runs]
    markdown = compare(given, CompareOptions(label=[f"x{text}", "B"], fail_if=["elapsed_ns > 1"])).as_markdown()

    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(markdown)
    inline = [child for token in tokens for child in token.children or ()]
    assert {child.type for child in inline} <= {"text", "code_inline", "strong_open", "strong_close"}
    html = [line for token in tokens if token.type == "html_block" for line in token.content.splitlines()]
    assert all(line in ("<details>", "</details>") or line.startswith("<summary>") for line in html)
    tables = [at for at, token in enumerate(tokens) if token.type == "table_open"]
    for first, last in zip(tables, [*tables[1:], len(tokens)], strict=True):
        rows = "".join(token.type[0:2] for token in tokens[first:last] if token.type in ("tr_open", "th_open", "td_open"))
        assert len({row.count("t") for row in rows.replace("td", "xt").replace("th", "xt").split("tr")[1:]}) == 1
    words = [child.content for child in inline if child.type == "code_inline"]
    shown = " ".join(words).replace("\\", "")
    if text.isprintable():
        assert " ".join(f"x{text}".split()).replace("\\", "") in shown
