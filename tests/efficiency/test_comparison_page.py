"""The page of `compare`: one file that shows what changed, asks for nothing, and takes any text for text."""

import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from support import QUICK, rest
from support.browser import Browser, PageReader, with_script
from support.command_line import CommandLine
from support.hostile_report import BEFORE, BEHIND
from support.measured import written
from support.pages import axe_or_skip
from support.report_builder import ReportBuilder

import nsys2prv as np
from nsys2prv.efficiency.comparison import compare
from nsys2prv.efficiency.efficiency_options import CompareOptions, EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.outputs.page import comparison_page
from nsys2prv.efficiency.results import ComparisonResult, EfficiencyResult
from nsys2prv.errors import GateFailed

HOSTILE = [f"{piece}" for piece in (*BEFORE, *BEHIND) if "\ue000" not in piece]


def trained(folder: Path, ranks: int, kernel: int, host: int) -> EfficiencyResult:
    """Ten iterations: a kernel of so many µs, and after it so many µs of the host, on each of the ranks."""
    reports = [ReportBuilder(rank=rank, ranks=ranks, pid=1000 + rank).gpu(rank) for rank in range(ranks)]
    for report in reports:
        report.api_call("cudaFree_v3020", 0, 10)
        at = 100_000
        for _ in range(10):
            for name, length in (("forward", kernel), ("step", 100)):
                report.kernel(name, at, at + length * 1000, launch=(at - 20_000, at - 10_000))
                at += length * 1000 + 30_000
            at += host * 1000
    written(folder, *reports)
    return measure([folder], EfficiencyOptions(**QUICK))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, EfficiencyResult]:
    folder = tmp_path_factory.mktemp("compared")
    return {
        "before": trained(folder / "before", 1, 500, 400),
        "after": trained(folder / "after", 1, 500, 100),
        "larger": trained(folder / "larger", 2, 250, 400),
    }


@pytest.fixture(scope="module")
def compared(runs: dict[str, EfficiencyResult]) -> Callable[..., ComparisonResult]:
    """Gives the comparison of runs by their names."""

    def of(*names: str, **options: object) -> ComparisonResult:
        return compare([runs[name] for name in names], CompareOptions(**{"label": names, **options}))  # type: ignore[arg-type]

    return of


def page_of(result: ComparisonResult) -> str:
    return comparison_page(result.head, result.tables)


def test_the_page_says_first_how_long_the_runs_take_and_what_changed_most(compared: Callable[..., ComparisonResult]) -> None:
    read = PageReader(page_of(compared("before", "after", fail_if=["iteration_ns > A", "load_balance >= 1"])))

    assert re.fullmatch(
        r"B after takes 7\.\d+ ms, \d+\.\d % less than A before \(10\.\d+ ms\); "
        r"changed most: launch-starved \(host computing or off its CPU\), −2\.\d+ ms\.",
        read.one("p", **{"class": "verdict"}).text,
    )
    tiles = {
        element.attributes["data-result"]: element.attributes["class"]
        for element in read.all("li")
        if "data-result" in element.attributes
    }
    assert tiles == {"fails": "tile poor", "passes": "tile good"}
    rows = [element.text for element in read.all("li", **{"class": "leaf-row"})]
    assert any(re.match(r"A before ?10\.", row) for row in rows)
    assert any(row.startswith("launch-starved (host computing or off its CPU)") and "−2." in row for row in rows)
    assert {element.attributes["id"] for element in read.all("section")} == {
        "overview", "iterations", "changes", "tables", "run",
    }  # fmt: skip


def test_trees_are_beside_each_other_with_their_differences(compared: Callable[..., ComparisonResult]) -> None:
    result = compared("before", "after")
    read = PageReader(page_of(result))

    metrics = result.tables["metrics"]
    assert [one.attributes["data-metric"] for one in read.all("tr") if "data-metric" in one.attributes] == metrics.filter(
        pl.col("run") == "A"
    )["metric"].to_list()
    value, change = (
        metrics.filter(pl.col("run") == "B", pl.col("metric") == "device_parallel_efficiency").select("value", "change").row(0)
    )
    (row,) = read.all("tr", **{"data-metric": "device_parallel_efficiency"})
    assert f"+{change * 100:.1f} {value * 100:.1f} %" in row.text


def test_runs_of_several_sizes_have_a_scaling_plot(compared: Callable[..., ComparisonResult]) -> None:
    assert 'id="scaling"' not in page_of(compared("before", "after"))
    strong, weak = (page_of(compared("before", "larger", scaling=kind)) for kind in ("strong", "weak"))

    assert "2 GPUs: measured" in strong
    assert "2 GPUs: measured" not in weak
    assert "strong scaling efficiency" in strong
    assert "weak scaling efficiency" in weak
    # Half of the kernel time, and all of the other time.
    of_strong, of_weak = (
        re.search(r"GPUs: (?:strong|weak) scaling efficiency ([0-9.]+) %", page)[1]  # type: ignore[index]
        for page in (strong, weak)
    )
    assert float(of_strong) == pytest.approx(float(of_weak) / 2, abs=0.1)


def test_tables_of_the_page_open(compared: Callable[..., ComparisonResult], browser: Browser) -> None:
    html = page_of(compared("before", "after", fail_if=["speedup < 1"]))
    heights = browser.answer(html, "heightsOfTables")
    assert len(heights) == 7
    assert min(heights) > 0


@pytest.mark.parametrize("first", [0, *rest(*range(12, len(HOSTILE), 12))], ids=str)
def test_hostile_texts_are_texts(runs: dict[str, EfficiencyResult], browser: Browser, first: int) -> None:
    pieces = HOSTILE[first : first + 12]
    given, labels = [], []
    for number, (one, piece) in enumerate(zip([runs["before"], *[runs["after"]] * len(pieces)], ["", *pieces], strict=True)):
        head = {**one.head, "title": f"t{piece}", "inputs": [f"i{number}{piece}"], "warnings": [f"w{piece}"]}
        kernels = one.tables["kernels"].with_columns(kernel=pl.concat_str("kernel", pl.lit(piece)))
        given.append(EfficiencyResult(head, {**one.tables, "kernels": kernels}))
        labels.append(f"l{number}{piece}"[:2000])
    html = page_of(compare(given, CompareOptions(label=labels, fail_if=["speedup < 0.1"])))
    dump, complaints, asked = browser.shown(html)
    read = PageReader(dump)

    assert (complaints, asked) == ("", [])
    assert read.all("title")[0].text.startswith("Comparison of A l0")
    assert {element.tag for element in read.elements} & {"img", "iframe", "object"} == set()
    assert not any(name.startswith("on") for element in read.elements for name in element.attributes)
    assert len(read.all("script")) == 2


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_serious(compared: Callable[..., ComparisonResult], browser: Browser, dark: bool) -> None:
    axe = axe_or_skip()
    result = compared("before", "larger", fail_if=["speedup < 2"])
    script = f"""{axe};
    axe.run().then((found) => {{
      const serious = found.violations.filter((one) => ["serious", "critical"].includes(one.impact));
      document.title = "axe: " + serious.map((one) => one.id).join(" ");
    }});"""
    dump, _ = browser.in_colours(with_script(page_of(result), script), dark=dark)
    assert PageReader(dump).all("title")[0].text == "axe: "


def test_the_command_writes_the_page_whatever_the_gate_says(
    runs: dict[str, EfficiencyResult], command_line: CommandLine
) -> None:
    for name in ("before", "after"):
        runs[name].to_json(command_line.folder / f"{name}.json")
    command = ("compare", "before.json", "after.json", "-o", "page.html", "--fail-if", "speedup > 1")
    done = command_line.run(*command)

    assert done.returncode == GateFailed.exit_code
    assert "<title>Comparison of A before and B after</title>" in (command_line.folder / "page.html").read_text()
    # A former page is replaced, anything else is not.
    assert command_line.run(*command).returncode == GateFailed.exit_code
    (command_line.folder / "page.html").write_text("mine")
    assert "exists already" in command_line.run(*command).stderr


def test_notebooks_show_the_first_screen(compared: Callable[..., ComparisonResult], runs: dict[str, EfficiencyResult]) -> None:
    result = compared("before", "after")
    assert isinstance(result, np.ComparisonResult)
    for shown, wanted in ((result._repr_html_(), "B after takes"), (runs["before"]._repr_html_(), "computed")):
        read = PageReader(shown)
        assert wanted in read.all("p", **{"class": "verdict"})[0].text
        assert not [one for one in read.elements if one.tag in ("script", "a", "html", "body", "link", "meta")]
        assert not any(name == "id" for one in read.elements if one.tag != "p" for name in one.attributes if name == "href")
        # Its style touches nothing else of the notebook.
        assert read.elements[0].attributes == {"class": "nsys2prv"}
