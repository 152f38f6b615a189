"""What the page begins with, its drawings, and what a browser does with them."""

import itertools
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image
from support.browser import Browser
from support.checkout import CHECKOUT
from support.large_run import grown
from support.pages import Run, axe_or_skip, run_of, unpacked
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.outputs.page import charts, page
from nsys2prv.efficiency.outputs.page.content import small_map
from nsys2prv.efficiency.outputs.page.plot import ACTIVITIES, LINES, Figure, Plot, PlotAxis
from nsys2prv.efficiency.outputs.page.time_charts import Activity, TimeCharts
from nsys2prv.efficiency.verdict import verdict
from nsys2prv.vocabulary.wording import percent, time

MOST_PAGES = 6
NARROW = 390
"""Pixels, as of a phone."""


def drawn(figure: Figure | None) -> Figure:
    assert figure is not None
    return figure


def test_the_page_begins_with_the_verdict_the_bar_the_tiles_and_the_findings(run: Run) -> None:
    found = verdict(run.measured.head, run.measured.tables)

    assert run.read.one("p", id="verdict").text.strip() == f"{found.sentence}."
    parts = [one for one in run.read.all("li") if "data-part" in one.attributes]
    assert [" ".join(one.text.split()) for one in parts] == [f"{part.title} {part.share * 100:.1f} %" for part in found.bar]
    tiles = [one for one in run.read.all("li") if "data-tile" in one.attributes]
    assert [one.attributes["data-tile"] for one in tiles] == [tile.name for tile in found.tiles]
    for shown, tile in zip(tiles, found.tiles, strict=True):
        assert percent(tile.value) in shown.text
        assert shown.attributes["class"] == f"tile {tile.level or ''}"
    order = [run.html.index(f'id="{place}"') for place in ("verdict", "finding-1", "map", "efficiencies", "run", "definitions")]
    assert order == sorted(order)


def test_metadata_warnings_definitions_and_evidence_are_folded(run: Run) -> None:
    opened = [one for one in run.read.all("details") if "open" in one.attributes]
    assert {one.attributes.get("class") for one in opened} == {"table"}
    assert len(opened) < len([one for one in run.read.all("details") if one.attributes.get("class") == "table"]) / 2
    summaries = [one.text for one in run.read.all("summary")]
    assert "Hosts, ranks, devices, versions, inputs" in summaries
    assert "What every number means" in summaries


def test_nothing_below_four_fifths_is_green(run: Run) -> None:
    bars = re.findall(r'<i class="(\w+)" style="width:([\d.]+)%"', run.html)
    assert len(bars) == run.measured.tables["tree"]["value"].count()
    for grade, width in bars:
        assert grade == ("good" if float(width) >= 80 else "fair" if float(width) >= 50 else "poor")


def test_a_run_without_a_gpu_has_a_page_of_its_hosts(tmp_path: Path) -> None:
    report = ReportBuilder().mpi_rank(0)
    report.mpi_collective("MPI_Barrier", 300, 400).nvtx_range("step", 0, 1_000)
    run = run_of(measure([report.write(tmp_path / "rank0.sqlite")]))

    assert run.read.one("p", id="verdict").text.startswith("no work of GPUs was recorded; ")
    assert not run.read.all("svg")
    tiles = {one.attributes["data-tile"]: one for one in run.read.all("li") if "data-tile" in one.attributes}
    assert " ".join(tiles["host_parallel_efficiency"].text.split()).startswith("Outside of MPI 90.0 %")
    assert tiles["host_parallel_efficiency"].attributes["class"] == "tile good"
    assert " ".join(tiles["largest_mpi_call"].text.split()).startswith("Largest MPI call 10.0 % MPI_Barrier, ")
    assert "NCCL kernels count" not in run.read.one("section", id="efficiencies").text
    main = [column["name"] for column in run.read.island["tables"]["nodes"]["columns"] if column["main"]]
    assert main == ["node", "devices", "host_parallel_efficiency", "mpi_parallel_efficiency", "mpi_load_balance",
                    "mpi_communication_efficiency"]  # fmt: skip
    assert "none is found; " in run.read.one("section", id="overview").text
    assert run.read.one("div", id="tree-host")
    assert not run.read.all("div", id="tree-device")


def test_families_are_one_number_first_and_add_up(run: Run) -> None:
    families, kernels = run.measured.tables["families"], run.measured.tables["kernels"]
    rows = drawn(charts.families(run.measured.tables)).rows
    gemm = next(row for row in rows if row.name == "GEMM")
    of_gemm = families.filter(pl.col("family").str.starts_with("GEMM "))
    assert of_gemm.height > 1
    assert [row.name for row in gemm.below] == of_gemm["family"].head(12).to_list()
    assert gemm.number.endswith(f"{of_gemm['total_ns'].sum() / families['total_ns'].sum() * 100:.1f} %")
    assert {row.name for row in gemm.below[0].below} <= set(kernels["kernel"])
    assert max(piece.width for row in rows for piece in row.pieces) == pytest.approx(1)


def test_the_slow_device_is_named_and_no_other(run: Run) -> None:
    far = drawn(charts.devices(run.measured.tables)).notes
    slow = run.measured.tables["devices"]["device"][1]
    assert [text.rpartition(": ")[0] for text in far] == [slow]
    assert far[0] in run.read.one("section", id="devices-and-hosts").text


def test_of_many_devices_that_differ_all_have_a_colour_and_the_rest_is_counted(run: Run) -> None:
    devices = pl.DataFrame([
        {"device": f"D{place}", "useful_share": 0.9 if place % 10 == 0 else 0.5 + place / 1e5} for place in range(200)
    ])  # fmt: skip
    figure = drawn(charts.devices({"devices": devices}))

    assert figure.notes == [*(f"D{place}: 90.0 %" for place in range(0, 60, 10)), "and 14 more devices"]
    # Those that are named have a text under the pointer, the others are points of one line.
    (others,) = re.findall(
        rf'<path class="line" d="((?:M[\d.]+ [\d.]+h0)+)" stroke="{LINES[1]}" stroke-width="4"', figure.drawn or ""
    )
    assert ((figure.drawn or "").count("<title>D"), others.count("M")) == (6, 14)


@pytest.mark.parametrize("rows", [1, 8, 12, 13, 64])
def test_names_of_a_small_map_have_room(run: Run, rows: int) -> None:
    over_time = TimeCharts.of(run.measured.tables)
    assert over_time is not None
    edges = np.linspace(over_time.axis.low, over_time.axis.high, 3)
    activity = Activity([f"D{row}" for row in range(rows)], [], edges, np.zeros((rows, 2, len(ACTIVITIES))))
    html = small_map(over_time, activity, run.measured.tables["findings"], linked=False)
    (height,) = map(int, re.findall(r"--height:(\d+)px", html))
    places = [float(place) / 100 * height for place in re.findall(r'top:([\d.]+)%"', html)]
    assert len(places) == (rows if rows <= 12 else {13: 7, 64: 11}[rows])
    assert all(below - above >= 12 for above, below in itertools.pairwise(sorted(places)))


def test_iterations_of_a_rank_that_is_slower_are_named() -> None:
    rows = pl.DataFrame([
        {"iteration": number, "task": f"rank {rank}", "device": f"D{rank}", "length_ns": 1_500 if rank == 20 else 1_000}
        for rank in range(40) for number in range(5)
    ])  # fmt: skip
    figure = drawn(charts.iterations({"task_iterations": rows}))
    assert figure.notes[1:] == ["rank 20 on D20: median 1.500 µs"]
    assert list(figure.legend)[1:] == ["rank 20, D20"]


def test_bandwidth_has_a_point_for_each_operation_size_and_communicator(run: Run) -> None:
    rows = run.measured.tables["nccl"].filter(pl.col("size_bytes") > 0)
    figure = drawn(charts.bandwidth(run.measured.tables))
    assert (figure.drawn or "").count("<title>") == rows.height > 0
    assert set(figure.legend) == set(rows["operation"])
    assert charts.bandwidth({"nccl": rows.with_columns(size_bytes=pl.lit(None, pl.Int64))}) is None


def test_places_on_a_drawing_follow_its_axes() -> None:
    plot = Plot("a", PlotAxis(0, 200), PlotAxis(1, 10_000, is_log=True), 100)
    plot.bars([50], [100], [1], [10], "#123456", ["<b>"])
    assert '<rect x="250" y="750" width="250" height="250" fill="#123456"><title>&lt;b&gt;</title></rect>' in plot.html()
    assert [text for _, text in plot.x.ticks(4)] == ["0", "50", "100", "150", "200"]
    assert [text for _, text in plot.y.ticks(4)] == ["1", "10", "100", "1,000", "10,000"]


def test_sampled_metrics_have_units(run: Run) -> None:
    packed = run.read.island["tables"]["sampled_summary"]["columns"]
    values = {column["name"]: unpacked(column) for column in packed}
    clocks = [value for name, value in zip(values["metric"], values["weighted"], strict=True) if "GPC Clock" in name and value]
    assert {name.rpartition("[")[2] for name in values["metric"]} == {"%]", "GHz]"}
    assert all(0.5 < clock < 3 for clock in clocks)


@pytest.mark.thorough
def test_in_a_browser_zooming_one_drawing_zooms_all_and_a_place_is_a_click(run: Run, browser: Browser) -> None:
    told = browser.answer(run.html, "zooming")

    assert told["count"] > 3
    assert told["first"] == told["again"] == ["0.00 1000.00"]
    assert told["zoomed"] == ["250.00 500.00"]
    assert told["ticks"][0] == told["ticks"][2] != told["ticks"][1]
    (dragged,) = told["dragged"]
    assert [float(number) for number in dragged.split()] == pytest.approx([250, 250], abs=4)
    assert (told["folded"], told["open"]) == (False, True)
    begin, end = run.measured.tables["findings"].select("worst_begin_ns", "worst_end_ns").row(0)
    whole = run.read.island["time"]
    (place,) = told["place"]
    first, length = (float(number) / 1000 * (whole["end"] - whole["begin"]) for number in place.split())
    assert whole["begin"] + first <= begin * 1.001
    assert whole["begin"] + first + length >= end * 0.999


@pytest.mark.thorough
def test_in_a_browser_close_ups_are_reached_by_clicks_and_stay_as_they_are(run: Run, browser: Browser) -> None:
    links = [one for one in run.read.all("a") if one.attributes["href"].startswith("#closeup-")]
    assert len(links) >= 3, "of findings, and of iterations"
    told = browser.answer(run.html, "closeups")
    assert told["reached"] == [[link.attributes["href"]] * 2 + [True, True] for link in links]
    # A close-up has a time of its own.
    assert told["before"] == told["after"] != told["zoomed"]
    bar = run.measured.tables["closeup_bars"].row(0, named=True)
    assert told["tip"].endswith(time(bar["end_ns"] - bar["begin_ns"]))
    assert min(told["size"]) > 0


@pytest.mark.thorough
def test_in_a_narrow_browser_names_of_devices_are_whole_and_nothing_is_wider_than_the_page(run: Run, browser: Browser) -> None:
    # Windows of the browser are not that narrow, but what is narrow in the style is wider than they are.
    script = f"""
    const answer = () => {{
      document.body.style.width = "{NARROW}px";
      const names = [...document.querySelectorAll(".y-ticks span")];
      return {{
        rows: document.querySelectorAll("#map .y-ticks span").length, page: document.body.scrollWidth,
        cut: names.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent),
      }};
    }};
    """
    told = browser.answer(run.html, script=script, width=500)

    assert told == {"rows": run.measured.tables["devices"].height, "page": NARROW, "cut": []}


@pytest.mark.thorough
def test_in_a_browser_the_mark_of_a_place_opens_its_finding(run: Run, browser: Browser) -> None:
    assert browser.answer(run.html, "mark") == ["finding-2"]


@pytest.mark.thorough
def test_in_a_browser_tables_are_saved_as_csv_and_links_open_what_is_folded(run: Run, browser: Browser) -> None:
    told = browser.answer(run.html, "tableAndLink")
    devices = run.measured.tables["devices"]
    least = devices.sort("useful_ns", maintain_order=True)

    assert told["open"] == [True, False]
    assert told["before"] == 0
    assert told["first"] == least["device"][0]
    assert told["bars"] > 0
    assert any(re.fullmatch(r"useful \[(s|ms|µs)\]", head) for head in told["heads"])
    saved = pl.read_csv(told["csv"].encode())
    assert saved["device"].to_list() == least["device"].to_list()
    assert saved["useful_ns"].to_list() == least["useful_ns"].to_list()


@pytest.mark.thorough
def test_in_a_browser_numbers_of_a_column_have_the_same_digits(run: Run, browser: Browser) -> None:
    shown = browser.answer(run.html, "digits")
    values = unpacked(next(
        column for column in run.read.island["tables"]["sampled_summary"]["columns"] if column["name"] == "weighted"
    ))[: len(shown)]  # fmt: skip
    assert len(shown) > 5
    digits = {len(text.partition(".")[2]) for text, value in zip(shown, values, strict=True) if value and value >= 0.01}
    assert len(digits) == 1
    for text, value in zip(shown, values, strict=True):
        assert text == "-" if value is None else float(text.replace(",", "")) == pytest.approx(value, abs=0.006, rel=1e-3)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_serious(run: Run, browser: Browser, dark: bool) -> None:
    script = f"""
    {axe_or_skip()}
    const answer = async () => {{
      for (const one of document.querySelectorAll("details")) one.open = true;
      await new Promise((done) => setTimeout(done, 0));
      const {{violations, passes}} = await axe.run(document, {{resultTypes: ["violations"]}});
      return {{violations:
        violations.map((one) => [one.impact, one.id, one.nodes.slice(0, 3).map((node) => node.html.slice(0, 99))]),
              passes: passes.length}};
    }};
    """
    told = browser.answer(run.html, script=script, dark=dark)

    assert told["passes"] > 20
    assert [one for one in told["violations"] if one[0] in ("serious", "critical")] == []


def test_the_picture_of_the_page_is_a_small_file() -> None:
    """`python tools/page_picture.py` takes it."""
    with Image.open(CHECKOUT / "docs" / "page.png") as image:
        assert image.width > 1_000
    assert (CHECKOUT / "docs" / "page.png").stat().st_size < 150_000
    for name in ("README.md", "docs/first-trace.md", "docs/reading.md"):
        assert "page.png)" in (CHECKOUT / name).read_text(encoding="utf-8")


@pytest.mark.thorough
@pytest.mark.parametrize("times", [1, 64], ids=["4-gpus", "256-gpus"])
def test_the_page_prints_to_few_pages(run: Run, browser: Browser, tmp_path: Path, times: int) -> None:
    printed = tmp_path / "page.pdf"
    html = run.html if times == 1 else page(run.measured.head, grown(run.measured.tables, times))
    browser.run(html, f"--print-to-pdf={printed}")
    pages = re.findall(rb"/Type\s*/Page\b", printed.read_bytes())
    assert 2 <= len(pages) <= MOST_PAGES
