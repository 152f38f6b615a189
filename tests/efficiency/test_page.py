"""The page of `efficiency`: one file that shows the numbers of the JSON, asks for nothing, and takes any text for text."""

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from support import QUICK
from support.browser import Browser, PageReader, with_script
from support.large_run import grown
from support.measured import written
from support.pages import Run, run_of, unpacked, with_a_slow_gpu
from support.report_builder import ReportBuilder

from nsys2prv.demo import Cluster, write_reports
from nsys2prv.efficiency import table_registry
from nsys2prv.efficiency.closeups import MOST_BARS
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.meters.absent_tables import COMMUNICATION, PART_COLUMNS, PARTS, REASONS, STARVED, UNDECIDED
from nsys2prv.efficiency.outputs.page import page
from nsys2prv.efficiency.outputs.page.plot import ACTIVITIES, CAUSES, colours_of_parts
from nsys2prv.efficiency.outputs.page.template import in_units
from nsys2prv.vocabulary.printable import printable

LARGEST = 3_000_000

HOSTILE = (
    "</script><script>document.title = 'broken'</script>",
    "<img src=x onerror=\"document.title = 'broken'\">",
    "k<int, 'a'>(\"b\") & {c} [d] `e` %s \\n",
    "line\none\r\n\ttab",
    "<!-- --> ]]> {{ 7 * 7 }} {% endif %} @count{safe}",
    "$$\\frac{1}{2}$$ \\(x\\)",
    "مرحبا \u202eedoc\u2028 日本語 🚀",
    "kilobytes<" + "x, " * 1500 + ">",
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Run:
    report = ReportBuilder(host="node<b>$$x$$</b>").gpu(0)
    for number, name in enumerate(HOSTILE):
        report.kernel(name, 1000 * number + 100, 1000 * number + 900, launch=(1000 * number, 1000 * number + 50))
        report.nvtx_range(name, 1000 * number, 1000 * number + 950)
    path = report.write(tmp_path_factory.mktemp("hostile") / "<i>rank0.sqlite")
    measured = measure([path], EfficiencyOptions(regions=("*",)))
    # Names as they were, where labels of the trace have no brackets and line ends.
    names = dict(zip(measured.tables["kernels"]["kernel"], HOSTILE, strict=True))
    of_kernels = {
        name: table.with_columns(pl.col("kernel").replace(names))
        for name, table in measured.tables.items()
        if "kernel" in table.columns
    }
    return run_of(replace(measured, tables={**measured.tables, **of_kernels}))


def test_the_page_names_nothing_outside_of_it(run: Run) -> None:
    for element in run.read.elements:
        assert "src" not in element.attributes, element
        assert not any(name.startswith("on") for name in element.attributes), element
        link = element.attributes.get("href", "#")
        assert (
            link.startswith("#") or link == "data:," or (element.tag == "image" and link.startswith("data:image/png;base64,"))
        )
    assert not re.search(r"url\(|@import", run.read.one("style").text)


def test_its_policy_allows_its_own_scripts_and_nothing_else(run: Run) -> None:
    policy = dict(
        part.strip().split(" ", 1)
        for part in run.read.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"].split(";")
    )
    scripts = [element.text for element in run.read.all("script") if "type" not in element.attributes]

    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert "connect-src" not in policy
    assert policy["img-src"] == "data:"
    assert policy["script-src"].split() == [
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts
    ]


def test_links_lead_to_places_in_the_page_and_ids_are_there_once(run: Run) -> None:
    ids = [element.attributes["id"] for element in run.read.elements if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    targets = {element.attributes["href"][1:] for element in run.read.all("a")}
    assert {"overview", "run", "efficiencies", "time", "map", "clocks", "definition-devices", "finding-1"} <= targets
    assert targets <= set(ids)


def test_every_figure_says_how_to_read_it_and_where_its_definitions_are(run: Run) -> None:
    captions = run.read.all("figcaption")
    assert len(captions) == len(run.read.all("figure")) >= 6
    for caption in captions:
        assert caption.text.count(". ") >= 1
    # That of the first screen is also in notebooks, without the definitions.
    assert sum(caption.text.rstrip().endswith("definitions") for caption in captions) == len(captions) - 1


def page_order(name: str, frame: pl.DataFrame, packed: dict[str, dict[str, tuple[str, bool]]]) -> pl.DataFrame:
    """Rows of a table in the order and the units of the page."""
    by = packed[name]["sorted"] if name in packed else None
    if by is not None:
        assert frame.height < 2 or by[0] in frame.columns
        frame = frame.sort(by[0], descending=by[1], nulls_last=True, maintain_order=True)
    return in_units(table_registry.BY_NAME[name], frame)


def test_tables_in_the_page_are_those_of_the_json(run: Run) -> None:
    tables = run.read.island["tables"]
    document = {name: page_order(name, frame, tables).to_dict(as_series=False) for name, frame in run.measured.tables.items()}

    places = {table.name: table.page for table in table_registry.TABLES if table.page is not None}
    assert set(tables) == {name for name, table in document.items() if any(table.values()) and name in places}
    for name, packed in tables.items():
        for column in packed["columns"]:
            found, wanted = unpacked(column), document[name][column["name"]]
            if places[name].cells and len(found) < len(wanted):
                shown = f"the first {len(found):,} of {len(wanted):,} rows"
                assert shown in run.read.one("details", **{"data-table": name}).text
                wanted = wanted[: len(found)]
            if table_registry.BY_NAME[name].schema[column["name"]] is pl.Float64:
                assert found == [None if value is None else pytest.approx(value, rel=1e-8) for value in wanted]
            else:
                assert found == wanted, (name, column["name"])
        left = set(table_registry.BY_NAME[name].schema) - {column["name"] for column in packed["columns"]}
        # Parts of compute-absent time that the run does not have are left out.
        empty = {column for column in PART_COLUMNS if not any(document[name].get(column, ()))}
        assert left <= {"nccl"} | empty
        assert run.read.one("details", **{"data-table": name})


def test_the_trees_show_each_efficiency_with_its_product(run: Run) -> None:
    leaves = {
        leaf.attributes["data-metric"]: " ".join(leaf.text.split())
        for leaf in run.read.all("li")
        if "data-metric" in leaf.attributes
    }
    values = run.measured.tables["run"].row(0, named=True)

    def percent(metric: str) -> str:
        return f"{values[metric] * 100:.1f} %"

    assert list(leaves) == run.measured.tables["tree"]["metric"].to_list()
    for metric, text in leaves.items():
        assert percent(metric) in text
    factors = ("load_balance", "communication_efficiency", "orchestration_efficiency")
    assert f"= {' × '.join(map(percent, factors))}" in leaves["device_parallel_efficiency"]


def test_the_run_is_told_by_hosts_ranks_gpus_time_and_versions(run: Run) -> None:
    told = " ".join(run.read.one("section", id="run").text.split())
    for fact in ("gpu001", "gpu003", "0-2", "NVIDIA H100 80GB HBM3", "nsys 2024.2.3.38", "UTC", run.measured.head["nsys2prv"]):
        assert fact in told


def test_the_map_has_the_activity_of_each_device_in_percent(run: Run) -> None:
    drawn = run.read.island["maps"]["small"]
    devices, bins = run.measured.tables["devices"]["device"].to_list(), run.measured.tables["bins"]
    found = np.frombuffer(base64.b64decode(drawn["percent"]), dtype=np.uint8).reshape(len(devices), bins.height, 3)

    assert drawn["rows"] == devices
    assert drawn["edges_ns"] == [*bins["begin_ns"], bins["end_ns"][-1]]
    for row in run.measured.tables["device_bins"].iter_rows(named=True):
        length = bins["end_ns"][row["bin"]] - bins["begin_ns"][row["bin"]]
        shares = [row[column] / length for column, *_ in ACTIVITIES]
        wanted = [max(round(share * 100), 1) if share else 0 for share in shares]
        assert found[devices.index(row["device"]), row["bin"]].tolist() == pytest.approx(wanted, abs=1)


def test_findings_stand_in_their_order_with_what_they_say(run: Run) -> None:
    found = run.measured.tables["findings"].to_dicts()
    numbers = run.measured.tables["finding_numbers"]

    shown = [one for one in run.read.all("li") if one.attributes.get("id", "").startswith("finding-")]
    assert found
    assert [one.attributes["id"] for one in shown] == [f"finding-{finding['place']}" for finding in found]
    for element, finding in zip(shown, found, strict=True):
        told = element.text
        for column in ("title", "seen", "advice", "device", "view"):
            assert finding[column] in told
        assert f"{finding['share'] * 100:.1f} %" in told
        assert f"{finding['saved_share'] * 100:.1f} % of the run, {finding['saved_how']}" in told
        for number in numbers.filter(pl.col("place") == finding["place"])["number"]:
            assert number in told


def test_without_findings_there_is_no_section_of_them(hostile: Run) -> None:
    tables = {name: table for name, table in hostile.measured.tables.items() if not name.startswith("finding")}
    assert not PageReader(page(hostile.measured.head, tables)).all("section", id="findings")


def test_hostile_names_are_text(hostile: Run) -> None:
    read = hostile.read

    assert len(read.all("script")) == 2
    assert not read.all("img")
    # As many as the page itself makes bold: captions, parts of the wall time, findings.
    bold = [one for one in read.all("li") if "data-part" in one.attributes or "finding-" in one.attributes.get("id", "")]
    assert len(read.all("b")) == len(read.all("figcaption")) + len(bold)
    kernels = unpacked(read.island["tables"]["kernels"]["columns"][0])
    assert kernels == list(HOSTILE)
    assert {HOSTILE[0], HOSTILE[1]} <= set(unpacked(read.island["tables"]["regions"]["columns"][0]))
    # Each whole name also stands at its histogram.
    durations = read.one("figure", id="durations").text
    for kernel in kernels:
        assert printable(kernel) in durations
    labels = [element.attributes["aria-label"] for element in read.all("svg")]
    assert len(labels) >= len(HOSTILE)
    assert max(map(len, labels)) < 120


@pytest.mark.thorough
def test_a_page_of_a_thousand_gpus_is_below_three_megabytes_and_says_what_is_cut(tmp_path: Path) -> None:
    run = with_a_slow_gpu(tmp_path, 2, 2)
    tables = grown(run.tables, 256)
    assert tables["devices"].height == 1024
    assert tables["sampled_bins"].height > 100_000

    html = page(run.head, tables)
    read = PageReader(html)

    assert len(html.encode()) < LARGEST
    maps = read.island["maps"]
    assert {name: one["rows"][0] for name, one in maps.items()} == {"small": "gpu001-0", "large": "gpu001-0:D0"}
    assert {name: len(one["rows"]) for name, one in maps.items()} == {"small": 512, "large": 1024}
    for name, rows in (("devices", 1024), ("absent_time", 1024), ("tasks", 1024), ("nodes", 512)):
        assert len(read.island["tables"][name]["columns"][0]["values"]) == rows
    section = read.one("details", id="table-sampled_kernels").text
    shown, there = (int(number.replace(",", "")) for number in re.findall(r"first ([\d,]+) of ([\d,]+) rows", section)[0])
    assert there == tables["sampled_kernels"].height > shown
    assert len(read.island["tables"]["sampled_kernels"]["columns"][0]["values"]) == shown


@pytest.mark.thorough
def test_ten_thousand_bins_of_a_thousand_gpus_are_drawn_as_fewer(tmp_path: Path) -> None:
    bins, devices, run = 2_000, 1_024, with_a_slow_gpu(tmp_path, 2, 2)
    edges, tables = np.arange(bins + 1) * 1000, grown(run.tables, 256)
    tables["bins"] = pl.concat([tables["bins"].head(1)] * bins).with_columns(
        bin=pl.Series(range(bins)), begin_ns=pl.Series(edges[:-1]), end_ns=pl.Series(edges[1:])
    )
    names = pl.DataFrame({"device": tables["devices"]["device"]})
    tables["device_bins"] = names.join(pl.DataFrame({"bin": range(bins)}), how="cross").select(
        pl.col("bin").cast(pl.Int64),
        "device",
        kernels_ns=pl.lit(500),
        nccl_ns=pl.lit(250),
        memory_ns=pl.lit(0),
        idle_ns=pl.lit(250),
    )

    html = page(run.head, tables)

    assert len(html.encode()) < LARGEST
    drawn = PageReader(html).island["maps"]["large"]
    percent = np.frombuffer(base64.b64decode(drawn["percent"]), dtype=np.uint8).reshape(devices, -1, 3)
    assert percent.shape[1] == len(drawn["edges_ns"]) - 1 < bins
    assert (percent == [50, 25, 0]).all()


def test_in_a_browser_hostile_names_are_text_all_is_drawn_and_nothing_is_asked_for(hostile: Run, browser: Browser) -> None:
    opening = """
    for (const one of document.querySelectorAll("details")) { one.open = true; one.dispatchEvent(new Event("toggle")); }
    for (const button of document.querySelectorAll("button.cut")) button.click();
    """

    dom, complaints, asked = browser.shown(with_script(hostile.html, opening))

    assert (complaints, asked) == ("", [])
    read = PageReader(dom)
    assert read.one("html").attributes["data-drawn"] == "yes"
    assert read.all("title")[0].text == f"Efficiency of {hostile.measured.head['title']}"
    assert not read.all("img")
    shown = {element.text for element in read.all("bdi")}
    for kernel in hostile.measured.tables["kernels"]["kernel"]:
        # A parser of HTML takes each end of line for the same.
        assert re.sub(r"\r\n?", "\n", kernel) in shown


@pytest.mark.thorough
def test_the_log_of_a_browser_does_tell_when_a_page_asks(browser: Browser) -> None:
    asking = '<html><body><img src="http://nobody.invalid/picture.png"></body></html>'
    assert browser.shown(asking)[2] == ["http://nobody.invalid/picture.png"]


def test_in_a_browser_tables_sort_filter_and_widen(run: Run, browser: Browser) -> None:
    told = browser.answer(run.html, "tables")
    counts = run.measured.tables["kernels"]["count"].sort()
    assert told["up"] == [f"{count:,}" for count in counts.head(15)]
    assert told["down"] == [f"{count:,}" for count in counts.reverse().head(15)]
    assert (told["sort"], told["main"], told["all"]) == ("ascending", 11, 15)
    assert told["names"]
    assert all(name.startswith("ncclDev") for name in told["names"])


@pytest.mark.thorough
def test_in_a_browser_the_map_is_read_with_keys(run: Run, browser: Browser) -> None:
    device, last = run.measured.tables["devices"]["device"][1], run.measured.tables["bins"].height - 2
    told = browser.answer(run.html, "mapKeys")
    cell = run.measured.tables["device_bins"].row(
        by_predicate=(pl.col("device") == device) & (pl.col("bin") == last), named=True
    )
    length = sum(cell[name] for name in ("kernels_ns", "nccl_ns", "memory_ns", "idle_ns"))
    assert told.startswith(f"{device}, ")
    found = [int(number) for number in re.findall(r"(\d+) %", told)]
    wanted = [cell[name] / length * 100 for name in ("kernels_ns", "nccl_ns", "memory_ns", "idle_ns")]
    assert found == pytest.approx(wanted, abs=1.5)


@pytest.mark.thorough
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_in_a_browser_figures_are_drawn_in_the_colours_of_the_system(run: Run, browser: Browser, dark: bool) -> None:
    picture = browser.picture(run.html, dark=dark)
    assert picture[1, 1].tolist() == ([0x14, 0x17, 0x1C] if dark else [0xFF, 0xFF, 0xFF])
    for _, name, colour in ACTIVITIES:
        wanted = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
        # Far more than its entry in the legend.
        assert (picture == wanted).all(axis=-1).sum() > 400, name


def test_each_cause_of_the_bar_has_its_own_colour() -> None:
    divided = [(f"undecided_{place}", UNDECIDED) for place in range(len(REASONS))]
    of_hosts = [("cuda", STARVED), ("mpi", COMMUNICATION), ("os", STARVED), *((f"new_{place}", STARVED) for place in range(9))]
    shown = [("compute", "compute"), *((part.name, part.group) for part in PARTS), ("other", "other"), *divided, *of_hosts]
    colours = dict(zip(shown, colours_of_parts(shown), strict=True))
    assert len(set(colours.values())) == len(shown)
    # Wherever it is shown.
    assert colours_of_parts(divided) == [colours[part] for part in divided]
    assert colours_of_parts([("transfer", COMMUNICATION)]) == [colours["transfer", COMMUNICATION]]
    assert len({colour for *_, colour in CAUSES}) == len(CAUSES)


# -- close-ups: short parts of the run, kernel by kernel, around places of findings and of two iterations ----


def test_iterations_are_the_slowest_and_one_of_median_length(tmp_path: Path) -> None:
    cluster = Cluster(nodes=1, gpus_per_node=1, iterations=6, layers=1, gpu_metrics_hz=0)
    result = measure(write_reports(tmp_path, cluster), EfficiencyOptions(no_critical_path=True))
    lengths = result.iterations.filter(pl.col("kind").fill_null("") != "warm-up").sort("longest_ns")
    closeups = {row["what"]: row for row in result.closeups.iter_rows(named=True)}
    slowest, usual = closeups["slowest iteration"], closeups["usual iteration"]
    assert slowest["iteration"] == lengths["iteration"][-1] != usual["iteration"]
    assert slowest["end_ns"] - slowest["begin_ns"] == lengths["longest_ns"][-1]
    assert lengths["longest_ns"][0] <= usual["end_ns"] - usual["begin_ns"] <= lengths["longest_ns"][-1]


def test_bars_are_what_runs_on_the_devices_there(run: Run) -> None:
    tables = run.measured.tables
    names = {*tables["kernels"]["kernel"], *tables["memory_operations"]["operation"]}
    for row in tables["closeups"].iter_rows(named=True):
        bars = tables["closeup_bars"].filter(closeup=row["closeup"])
        assert bars["count"].sum() == row["operations"]
        assert bars.height <= MOST_BARS
        assert row["device"] in bars["device"].to_list()
        assert row["begin_ns"] <= bars["begin_ns"].min() < bars["end_ns"].max() <= row["end_ns"]  # type: ignore[operator]
        assert set(bars["name"]) <= names
    # Their busy times are those of the table of the iteration, as nothing overlaps in a lane of the demo.
    closeup = tables["closeups"].row(by_predicate=pl.col("what") == "usual iteration", named=True)
    of_device = tables["closeup_bars"].filter(closeup=closeup["closeup"], device=closeup["device"], activity="kernels")
    of_iteration = tables["absent_iterations"].filter(device=closeup["device"], iteration=closeup["iteration"])

    assert of_device["busy_ns"].sum() == of_iteration["compute_ns"].item() > 0


def test_many_short_kernels_are_few_bars_that_add_up(tmp_path: Path) -> None:
    report = ReportBuilder()
    for iteration in range(4):
        start = iteration * 1_000_000
        report.nvtx_range("step", start, start + 999_999)
        for number in range(2_000):
            at = start + 100 + 300 * number
            report.kernel(f"k{number % 7}", at, at + 200, launch=(at - 90, at - 50))
    result = measure([report.write(tmp_path / "many.sqlite")], EfficiencyOptions(**QUICK))

    row = result.tables["closeups"].filter(pl.col("iteration").is_not_null()).row(0, named=True)
    bars = result.tables["closeup_bars"].filter(pl.col("closeup") == row["closeup"])
    assert 100 < bars.height <= MOST_BARS < bars["count"].sum()
    assert bars["busy_ns"].sum() == 200 * 2_000
    assert f"{bars.height:,} bars" in run_of(result).read.one("figure", id=f"closeup-{row['closeup']}").text


def test_a_run_without_gpus_has_none_though_a_finding_has_a_place(tmp_path: Path) -> None:
    reports = [ReportBuilder(pid=1000 + rank, rank=rank, ranks=2, with_mpi=True) for rank in range(2)]
    for report, length in zip(reports, (10_000, 700_000), strict=True):
        report.mpi_collective("MPI_Init", 0, 10).mpi_collective("MPI_Finalize", 9_990_000, 10_000_000)
        for end in range(900_000, 10_000_000, 1_000_000):
            report.mpi_collective("MPI_Barrier", end - length, end)
    result = measure(written(tmp_path, *reports))
    assert result.tables["findings"]["worst_begin_ns"].count() > 0
    assert result.tables["closeups"].is_empty()


def test_findings_and_iterations_lead_to_their_close_ups(run: Run) -> None:
    figures = {one.attributes["id"] for one in run.read.all("figure") if one.attributes.get("id", "").startswith("closeup-")}
    links = [one.attributes["href"][1:] for one in run.read.all("a") if one.attributes["href"].startswith("#closeup-")]
    closeups = run.measured.tables["closeups"]
    assert figures == {f"closeup-{number}" for number in closeups["closeup"]}
    assert set(links) == figures
