"""Drawings of the page that are not over time: of kernels, iterations, NCCL, devices, clocks, and sums as rows of bars."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.outputs.page import plot as plots
from nsys2prv.efficiency.outputs.page.plot import LINES, BarRow, Figure, Kinds, Piece, Plot, PlotAxis
from nsys2prv.efficiency.result_tables import Frames
from nsys2prv.vocabulary.name_rules import kind_of, unit_of_metric
from nsys2prv.vocabulary.wording import SIZES, known_to, percent, rate, short, size, time, unit

_BAR, _SECOND_BAR = LINES[:2]
_LOGARITHMIC_FROM = 20
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""
_MOST_HISTOGRAMS, _MOST_ITERATIONS = 16, 400
"""Of more iterations neighbours are drawn as one: their median, and their range."""
_MOST_LINES = 16
"""With more ranks than this the drawing has their range, and lines for those that differ most."""
_MOST_BARS = 64
"""Of more devices each is a point."""
_OUTLIERS = 6
"""Devices and ranks that are named."""

MOST_ROWS, _MOST_BELOW = 16, 12
"""Rows of one drawing, and of what is below one of them."""
_LEAST_SHARE, _LEAST_WIDTH = 0.001, 0.15
_PALE = ("#bcd3f2", "#f8d9ae", "#b5e2d5", "#e3c7ec", "#f3c3c8", "#d9dfb2", "#b4dfe8", "#dccdc7")
"""Colours behind black text."""
_PATH_TITLES = {"kind": "by kind", "task": "by rank", "family": "by kernel family", "host cause": "by host activity"}
_BUSY_METRICS = (
    ("tensor", r"(?i)^tensor[^\[]*active", LINES[0]),
    ("DRAM read", r"(?i)^dram read", LINES[2]),
    ("DRAM write", r"(?i)^dram write", LINES[6]),
)


def histograms(frames: Frames) -> list[Figure]:
    """Durations of the kernels that take most time, each with its most important numbers."""
    figures = []
    for kernel in frames["kernel_histograms"]["kernel"].unique(maintain_order=True).head(_MOST_HISTOGRAMS):
        bars, modes, rows = (frames[name].filter(kernel=kernel) for name in ("kernel_histograms", "kernel_modes", "kernels"))
        row = rows.row(0, named=True)
        facts = f"{row['count']:,} executions, {time(row['total_ns'])} ({percent(row['share'])} of kernel time)"
        facts += f", median {time(row['median_ns'])}, p95 {time(row['p95_ns'])}"
        facts += f", {modes.height} modes" if modes.height > 1 else ""
        figures.append(Figure(_histogram(kernel, bars, modes), title=kernel, reading=facts))
    return figures


def _histogram(kernel: str, bars: pl.DataFrame, modes: pl.DataFrame) -> Plot:
    """Bars from the second mode on have another colour."""
    begin, end, count = (bars[name].cast(pl.Float64).to_numpy() for name in ("from_ns", "to_ns", "count"))
    is_log = bool(begin.min() > 0 and end.max() > _LOGARITHMIC_FROM * begin.min())
    mode = np.searchsorted(np.sort(modes["from_ns"].to_numpy()), begin, side="right")
    colours = [_SECOND_BAR if modes.height > 1 and number > 1 else _BAR for number in mode]
    axis = plots.time_axis(float(begin.min()), float(end.max()), "duration", is_log=is_log)
    plot = Plot(f"Histogram of durations of {short(kernel)}", axis, PlotAxis(0, float(count.max()), "executions"), 120)
    titles = [
        f"{time(low)} to {time(high)}: {number:,.0f} executions, {time(total)} together"
        for low, high, number, total in zip(begin, end, count, bars["total_ns"], strict=True)
    ]
    plot.bars(begin, end, count * 0, count, colours, titles)
    return plot


def families(frames: Frames) -> Figure | None:
    """Kernels by kind (GEMM is one number first), below that by family, and by kernel; shares are of all kernel time."""
    by_family = frames["families"]
    if by_family.is_empty():
        return None
    total = float(by_family["total_ns"].sum()) or 1
    kinds = by_family.with_columns(kind=kind_of(pl.col("family")))
    kinds = kinds.with_columns(time=pl.col("total_ns").sum().over("kind")).sort("time", descending=True, maintain_order=True)
    widest = kinds["time"][0] / total

    def bar(name: str, spent: float, count: int, below: Iterable[BarRow] = ()) -> BarRow:
        return _simple_row(name, spent, spent / total, widest, f"{count:,} kernels", tuple(below))

    rows = []
    for of_kind in kinds.partition_by("kind", maintain_order=True)[:MOST_ROWS]:
        below = []
        for family, spent, count in of_kind.head(_MOST_BELOW).select("family", "total_ns", "count").iter_rows():
            kernels = frames["kernels"].filter(pl.col("family") == family).head(_MOST_BELOW)
            below.append(bar(family, spent, count, map(bar, *kernels.select("kernel", "total_ns", "count"))))
        kind, spent = of_kind.select("kind", "time").row(0)
        is_single = len(below) == 1 and below[0].name == kind
        rows.append(bar(kind, spent, int(of_kind["count"].sum()), below[0].below if is_single else below))
    return Figure(rows=rows)


def unit_activity(frames: Frames) -> list[tuple[str, list[BarRow]]]:
    """Tensor and DRAM activity by kernel family, from `sampled_summary`: families with most time first, a row per metric."""
    sampled = frames["sampled_summary"].filter(pl.col("level") == "family", pl.col("weighted").is_not_null())
    rows: dict[str, list[BarRow]] = {}
    for title, pattern, colour in _BUSY_METRICS:
        of_metric = sampled.filter(pl.col("metric").str.contains(pattern)).filter(pl.col("metric") == pl.col("metric").first())
        if of_metric.is_empty() or unit_of_metric(of_metric["metric"][0]) != "%":
            continue
        for family, weighted, count in of_metric.select("name", "weighted", "samples").iter_rows():
            share, samples = f"{weighted:.1f} %", f"{count:,} samples"
            piece = Piece(weighted / 100, colour, f"{family}: {title} {share} ({samples})")
            rows.setdefault(family, []).append(BarRow(title, (piece,), share, samples))
    return [(family, rows[family]) for family in frames["families"]["family"].head(_MOST_BELOW) if family in rows]


def outliers(values: Sequence[float]) -> list[int]:
    """Places of values that are far from the others, the farthest first.

    >>> outliers([10.0, 10.1, 9.9, 10.0, 15.0]), outliers([1.0, 2.0])
    ([4], [])
    """
    if len(values) < 3:
        return []
    numbers = np.asarray(values, dtype=np.float64)
    distance = np.abs(numbers - np.median(numbers))
    # 3.5 standard deviations of normal values, in median deviations; and a hundredth of the median.
    least = max(3.5 * 1.4826 * float(np.median(distance)), 0.01 * abs(float(np.median(numbers))))
    return [int(place) for place in np.argsort(-distance, kind="stable") if distance[place] > least]


def iterations(frames: Frames, links: Mapping[int, tuple[str, str]] | None = None) -> Figure | None:
    """Length of each iteration on each rank, from `task_iterations`; the notes name ranks that differ from the others.

    Iterations in `links` have a point that leads to a place of the page: its id, and what it is."""
    rows = frames["task_iterations"]
    if not rows["length_ns"].count():
        return None
    merged = -(-(max(rows["iteration"].drop_nulls()) + 1) // _MOST_ITERATIONS)
    length = pl.col("length_ns").cast(pl.Float64).median()
    drawn_as_one = rows.group_by("task", "device", pl.col("iteration") // merged * merged)
    lengths = drawn_as_one.agg(low=pl.col("length_ns").min(), high=pl.col("length_ns").max(), length_ns=length)
    lengths = lengths.sort("iteration", "task", "device")
    over = lengths.group_by("iteration").agg(pl.col("low").min(), pl.col("high").max(), middle=length).sort("iteration")
    ranks = [(name, of_rank, of_rank.select(length).item()) for name, _, of_rank in plots.coloured(lengths, "task", "device")]
    medians = [median for *_, median in ranks]
    differing = outliers(medians)
    far = differing[:_OUTLIERS]

    shortest, longest = min(over["low"].drop_nulls()), max(over["high"].drop_nulls())
    first, last = float(over["iteration"][0]), float(over["iteration"][-1])
    ticks = tuple((number, f"{number:,.0f}") for number in plots.round_numbers(first, last, 6) if number == int(number))
    x = PlotAxis(first, max(last, first + 1), "iteration", named=ticks)
    plot = Plot("Length of each iteration on each rank", x, plots.time_axis(0, longest * 1.05, "length"), 180)
    plot.band(over["iteration"], over["low"], over["high"], LINES[0])
    plot.line(over["iteration"], over["middle"], LINES[0], 2, "median and range over ranks")
    for place in far if len(ranks) > _MOST_LINES else range(len(ranks)):
        name, of_rank, _ = ranks[place]
        look = (LINES[1 + far.index(place) % (len(LINES) - 1)], 2, name, 1) if place in far else (LINES[0], 1, name, 0.45)
        plot.line(of_rank["iteration"], of_rank["length_ns"], *look)
    highest = dict(over.select("iteration", "high").iter_rows())
    for iteration, (target, what) in (links or {}).items():
        at = iteration // merged * merged
        plot.link(at, highest[at], target, f"{what}: iteration {iteration}, {time(highest[at])}")

    usual = f"median of all {time(float(np.median(medians)))}, from {time(shortest)} to {time(longest)}"
    names = [f"{ranks[place][0].replace(', ', ' on ')}: median {time(medians[place])}" for place in far]
    return Figure(plot, notes=[usual, *names, *_unnamed(differing, "ranks")])


def _unnamed(places: Sequence[int], what: str) -> list[str]:
    return [f"and {len(places) - _OUTLIERS:,} more {what}"] if len(places) > _OUTLIERS else []


def devices(frames: Frames) -> Figure | None:
    """Share of useful time of each device, in their order; the notes name outliers."""
    rows = frames["devices"]
    if rows.height <= 1:
        return None
    shares, names = rows["useful_share"].fill_null(0).to_list(), rows["device"].to_list()
    far, last = outliers(shares), len(names) - 1
    x = PlotAxis(-0.5, last + 0.5, "device", named=((0, names[0]), (last, names[-1])))
    y = PlotAxis(0, max(shares) * 1.15 or 1, "useful, % of the time", divisor=0.01)
    plot = Plot("Useful time of each device", x, y, 140)
    titles = [f"{name}: {percent(share)}" for name, share in zip(names, shares, strict=True)]
    named = far[:_OUTLIERS]
    if len(names) <= _MOST_BARS:
        places = np.arange(len(names))
        colours = [_SECOND_BAR if place in far else _BAR for place in places]
        plot.bars(places - 0.4, places + 0.4, places * 0, shares, colours, titles)
    else:
        usual = sorted(set(range(len(names))) - set(far))
        for places_of_colour, colour in ((usual, _BAR), (far[_OUTLIERS:], _SECOND_BAR)):
            plot.points(places_of_colour, [shares[place] for place in places_of_colour], colour, width=4)
        plot.points(named, [shares[place] for place in named], _SECOND_BAR, [titles[place] for place in named], 9)
    return Figure(plot, notes=[*(titles[place] for place in named), *_unnamed(far, "devices")])


def clocks(frames: Frames) -> Figure:
    """Remaining error of clocks over time, from `clock_bins`, with the colour of each host where all have separate ones; the
    note says how well clocks are known."""
    rows, notes = frames["clock_bins"], [known_to(frames["clocks"]["interval_ns"])]
    if not rows["error_ns"].count():
        return Figure(notes=notes)
    largest = max(rows["error_ns"].drop_nulls().abs()) or 1
    x = PlotAxis(0, 1, "time, from the first collective to the last", named=plots.QUARTERS)
    plot = Plot("Remaining error of clocks over time", x, plots.time_axis(-largest, largest, "remaining error"), 180)
    is_few = rows["host"].n_unique() <= len(LINES)
    for host, colour, bins in plots.coloured(rows, "host"):
        look = (colour, 2, host, 1) if is_few else (_BAR, 1, short(host), 0.35)
        plot.line((bins["bin"] + 0.5) / (max(rows["bin"]) + 1), bins["error_ns"], *look)
    return Figure(plot, notes=notes)


def bandwidth(frames: Frames) -> Figure | None:
    """Bus bandwidth of NCCL over the size of a message: rows of `nccl` with both; None without any."""
    rows = frames["nccl"].filter((pl.col("size_bytes") > 0) & (pl.col("bus_bandwidth") > 0))
    if rows.is_empty():
        return None
    sizes, rates = rows["size_bytes"].cast(pl.Float64).to_numpy(), rows["bus_bandwidth"].to_numpy()
    low, high = float(sizes.min()) / 2, float(sizes.max()) * 2
    powers = range(int(np.floor(np.log2(low))), int(np.ceil(np.log2(high))) + 1)
    units = [(2.0**power, *unit(2.0**power, SIZES)) for power in powers[:: max(1, len(powers) // 6)]]
    ticks = tuple((size_of_message, f"{size_of_message / divisor:,.6g} {name}") for size_of_message, divisor, name in units)
    is_log = bool(rates.max() > _LOGARITHMIC_FROM * rates.min())
    bottom = float(10.0 ** np.floor(np.log10(rates.min()))) if is_log else 0.0
    x = PlotAxis(low, high, "size of a message", is_log=True, named=ticks)
    y = PlotAxis(bottom, float(rates.max()) * (1.6 if is_log else 1.08), "GB/s", is_log=is_log, divisor=1e9)
    plot = Plot("NCCL bus bandwidth over message size", x, y, 200)
    for operation, colour, of_operation in plots.coloured(rows, "operation"):
        titles = [
            f"{operation}, {size(row['size_bytes'])}, {row['communicator']}: {rate(row['bus_bandwidth'])} on the bus, "
            f"{row['count']:,} kernels, mean {time(row['mean_ns'])}"
            for row in of_operation.iter_rows(named=True)
        ]
        plot.points(of_operation["size_bytes"], of_operation["bus_bandwidth"], colour, titles)
        plot.colours[operation] = colour
    return Figure(plot)


def _simple_row(name: str, spent: float, share: float, widest: float, note: str = "", below: tuple[BarRow, ...] = ()) -> BarRow:
    """A row with a bar of one piece: a time, and its share."""
    number = f"{time(spent)}, {percent(share)}"
    piece = Piece(share / widest if widest else 0, LINES[0], f"{name}: {number}")
    return BarRow(name, (piece,), number, note, below)


def _stacked(name: str, row: Mapping[str, float], longest: float, kinds: Kinds, number: str, note: str = "") -> BarRow:
    """A row with a piece for each kind of time: column, title, colour."""
    pieces = tuple(
        Piece(share, colour, f"{name}: {title} {time(row[column])} ({percent(share)})")
        for column, title, colour in kinds
        if (share := (row[column] or 0) / (longest or 1)) > _LEAST_SHARE
    )
    return BarRow(name, pieces, number, note)


def wall_time(frames: Frames, most: int = MOST_ROWS) -> Figure | None:
    """What the wall time went to: the mean of all devices, and so many with least computing."""
    parts, columns = frames["absent_time"], [column for column, *_ in plots.WALL_PARTS]
    if parts.is_empty():
        return None
    rows = parts.sort("compute_ns", "device").select("device", pl.col("elapsed_ns", *columns).cast(pl.Float64).fill_null(0))
    if rows.height > 1:
        mean = rows.select(pl.lit(f"mean of {rows.height:,}").alias("device"), pl.exclude("device").mean())
        rows = pl.concat([mean, rows.head(most)])
    bars = [
        _stacked(row["device"], row, row["elapsed_ns"], plots.WALL_PARTS, percent(row["compute_ns"] / (row["elapsed_ns"] or 1)))
        for row in rows.iter_rows(named=True)
    ]
    return Figure(rows=bars, colours=plots.present(plots.WALL_PARTS, parts))


def idle(frames: Frames) -> Figure | None:
    """Idle time of all devices together by length of gap and activity of the launching thread."""
    classes = frames["gaps"].drop("device").group_by("from_ns", "to_ns").sum().sort("from_ns")
    if not classes["total_ns"].sum():
        return None
    longest = max(classes["total_ns"])
    rows = []
    for row in classes.iter_rows(named=True):
        name, gaps = _class(row["from_ns"], row["to_ns"]), f"{row['count']:,} gaps"
        rows.append(_stacked(name, row, longest, plots.CAUSES, time(row["total_ns"]), gaps))
    return Figure(rows=rows, colours=plots.present(plots.CAUSES, classes))


def _class(begin: int, end: int | None) -> str:
    """A class of lengths, which begin and end at round times.

    >>> _class(0, 1000), _class(100_000, 1_000_000), _class(10**9, None)
    ('< 1 µs', '100 µs to 1 ms', '≥ 1 s')
    """
    low, high = (None if edge is None else time(edge).replace(".000", "") for edge in (begin, end))
    return f"≥ {low}" if high is None else f"< {high}" if not begin else f"{low} to {high}"


def critical_path(frames: Frames) -> list[tuple[str, list[BarRow]]]:
    """The critical path by kind, rank, kernel family and host activity: titles, and rows with most time first."""
    figures = []
    for by, title in _PATH_TITLES.items():
        totals = frames["critical_path_totals"].filter(by=by).sort("total_ns", descending=True).head(_MOST_BELOW)
        widest = max(totals["share"].drop_nulls(), default=1.0) or 1.0
        shown = totals.select("name", "total_ns", "share").iter_rows()
        if rows := [_simple_row(name, spent, share, widest) for name, spent, share in shown]:
            figures.append((title, rows))
    return figures


def icicle(nodes: pl.DataFrame) -> list[dict[str, Any]]:
    """The table `nvtx_tree` as bars, the outermost ranges at the top; the width is the time. What is too narrow to see is left
    out.

    Each bar has its `start` from the left and its `width`, 0 to 100, its `level` from the top, `name`, `title` and `colour`."""
    free: dict[int | None, float] = {None: 0.0}
    bars = []
    for row in nodes.iter_rows(named=True):
        width, parent = 100 * (row["share"] or 0.0), row["parent"]
        start = free.setdefault(parent, 0.0)
        free[parent] = start + width
        free[row["node"]] = start
        if width >= _LEAST_WIDTH:
            title = (
                f"{row['range']}: {time(row['total_ns'])} in {row['count']:,} ranges ({percent(row['share'])}), "
                f"{time(row['own_ns'])} in none inside of it"
            )
            bar = {"start": start, "width": width, "level": row["level"], "name": row["range"], "title": title}
            bars.append({**bar, "colour": _PALE[row["node"] % len(_PALE)]})
    return bars
