"""Efficiency numbers for a terminal: the verdict, findings, trees of efficiencies, and the tables that declare `OnConsole`."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from nsys2prv.efficiency import table_registry
from nsys2prv.efficiency.metrics import DEVICE_TREE, EFFICIENCIES, HAS_GPUS, HOST_TREE
from nsys2prv.efficiency.result_tables import EFFICIENCY_COLUMNS, Column, Frames, OnConsole, Table
from nsys2prv.efficiency.verdict import FAIR, GOOD, POOR, WINDOW_TITLES, BarPart, level, verdict
from nsys2prv.errors import counted
from nsys2prv.vocabulary import terminal
from nsys2prv.vocabulary.name_rules import metric_value
from nsys2prv.vocabulary.terminal import Line, grid, is_too_wide, short_names, styled_lines, wrapped_lines
from nsys2prv.vocabulary.wording import percent, quantity, short, time

_LONGEST_PATH = 200
_NEARLY_ALL = 0.9
"""Part of the time in iterations from which on it is not said."""
_LEVELS = {GOOD: terminal.GOOD, FAIR: terminal.FAIR, POOR: terminal.POOR}
OF_DEVICES = tuple(efficiency.name for efficiency in DEVICE_TREE.of_parts)
OF_HOSTS = tuple(efficiency.name for efficiency in HOST_TREE.of_parts if efficiency.needs != (HAS_GPUS,))
"""Efficiencies that tables of runs with and without GPUs show."""
_LEAST_TITLE, _LEAST_BAR = 24, 10
"""Characters of titles of parts of the wall time, and of the longest bar, on a narrow terminal."""


def efficiency_as_text(
    head: Mapping[str, Any], tables: Frames, rows: int, *, verbose: bool, colors: bool, width: int | None
) -> str:
    """A summary of an `EfficiencyResult`, in the order of its page; `verbose`: with what to do about findings, what was not
    found, and tables of so many rows.

    Lines longer than `width`, characters of a terminal, are broken, and tables are made narrower as `terminal.grid` does it, or
    leave out columns."""
    prose: list[Line] = [
        *_first_lines(head, tables, width),
        *_finding_lines(head, tables["findings"], tables["finding_checks"], verbose=verbose),
        "",
        *tree_lines(tables["tree"]),
    ]
    lines = wrapped_lines(prose, width)
    shown = [table for table in table_registry.TABLES if _is_shown(table, tables)]
    if shown and not verbose:
        names = ", ".join(table.name for table in shown)
        advice = "what to do about each finding, and " if tables["findings"].height else ""
        lines += ["", *wrapped_lines([f"With -v also {advice}{counted(len(shown), 'table')}: {names}"], width)]
    if verbose and any(EFFICIENCY_COLUMNS in table.console.columns for table in shown if table.console):
        efficiencies = OF_DEVICES if tables["run"]["devices"][0] else OF_HOSTS
        legend = ", ".join(f"{EFFICIENCIES[name].abbreviation} {EFFICIENCIES[name].title}" for name in efficiencies)
        lines += ["", *wrapped_lines([f"In tables: {legend}; rows that are left out are in --csv and --json-file"], width)]
    for table in shown if verbose else ():
        lines += _table_lines(table, tables, rows, width)
        if table.name == "devices":
            lines += _sampled(tables["sampled_bins"], rows, width)
        if table.name == "nccl_waits":
            lines += wrapped_lines([f"  {sentence}" for sentence in undecided(tables["nccl_waits"])], width)
    return styled_lines(lines, colors=colors)


def _first_lines(head: Mapping[str, Any], tables: Frames, width: int | None) -> list[Line]:
    """What matters first: the verdict, the wall time by cause, and four numbers."""
    first, window = verdict(head, tables), head["window"]
    begin, end = window["offset_ns"], window["offset_ns"] + window["length_ns"]
    lines: list[Line] = [
        [(short(head["title"], _LONGEST_PATH), terminal.FAINT)],
        [(first.sentence, terminal.STRONG)],
        f"measured: {_seconds(begin)} to {_seconds(end)} s of the trace",
    ]
    if tables["run"]["devices"][0]:
        lines.append(iterations_line(head, tables["iterations"]))
    if tables["nccl"].height:
        lines.append(f"NCCL kernels count as {head['nccl']}")
    if first.bar:
        lines += ["", "Wall time by cause", *_bar_lines(first.bar, width)]
    if any(tile.value is not None for tile in first.tiles):
        longest = max(len(tile.title) for tile in first.tiles)
        lines.append("")
        for tile in first.tiles:
            value = (f"{percent(tile.value):>8}", _LEVELS.get(tile.level or "", ""))
            lines.append([(f"  {tile.title:<{longest}}  ", ""), value, (f"  {tile.note}", terminal.FAINT)])
    return lines


def _bar_lines(bar: Sequence[BarPart], width: int | None) -> list[Line]:
    """A line for each part of the wall time, with a bar as long as its share: of all of it 50 characters."""
    title, longest = max(len(part.title) for part in bar), 50
    if width is not None:
        # Blanks, the share and the time.
        room = width - 25
        title = min(title, max(room - _LEAST_BAR, _LEAST_TITLE))
        longest = max(min(longest, int((room - title) / max(part.share for part in bar))), 0)
    lines: list[Line] = []
    for part in bar:
        text = f"  {short(part.title, title):<{title}}  {percent(part.share):>7}  {time(part.value):>10}"
        blocks, color = "█" * round(part.share * longest), terminal.GOOD if part.name == "compute" else terminal.FAIR
        lines.append([(text, ""), (f"  {blocks}" if blocks else "", color)])
    return lines


def iterations_line(head: Mapping[str, Any], iterations: pl.DataFrame) -> str:
    """How iterations were found, their number and lengths; or why there are none."""
    detection = head["iterations"]
    if detection["how"] is None:
        return f"no iterations: {short(str(detection['reason']), _LONGEST_PATH)}"
    if iterations.is_empty():
        return f"no whole iteration in this window ({short(detection['how'], _LONGEST_PATH)})"
    kinds = iterations["kind"].value_counts().sort("kind").rows()
    special = "".join(f", {count} {kind}" for kind, count in kinds if kind is not None)
    median: Any = iterations.filter(pl.col("kind").is_null())["longest_ns"].median()
    usual = "" if median is None else f", usually {time(median)}"
    part = iterations.select(pl.col("end_ns").max() - pl.col("begin_ns").min()).item() / max(head["window"]["length_ns"], 1)
    where = f"; they cover {percent(part)} of this time" if part <= _NEARLY_ALL else ""
    return f"{counted(iterations.height, 'iteration')} ({short(detection['how'], _LONGEST_PATH)}){special}{usual}{where}"


def _finding_lines(head: Mapping[str, Any], findings: pl.DataFrame, checks: pl.DataFrame, *, verbose: bool) -> list[Line]:
    """Each finding: how much shorter the run would be, its title with who it is, what was seen, and where. What was looked
    for in vain is counted; with `verbose` it is listed, and findings have what to do."""
    lines: list[Line] = []
    if findings.height:
        title = f"Findings in {WINDOW_TITLES[head['window']['name']]}: it would be shorter by this time"
        lines += ["", [(title, terminal.STRONG)]]
    shares, times = list(map(percent, findings["saved_share"])), list(map(time, findings["saved_ns"]))
    wide, long = max(map(len, shares), default=0), max(map(len, times), default=0)
    for row, share, saved in zip(findings.iter_rows(named=True), shares, times, strict=True):
        cause = f"; a consequence of {row['consequence_of']}" if row["consequence_of"] is not None else ""
        # Files of the first programs do not say it.
        how = row["saved_how"] or "not known how"
        number = f"  {row['place']:>2}.  {share:>{wide}}  {saved:>{long}}"
        lines.append([(number, ""), (f"  {row['title']} ({how}{cause})", "")])
        what = "time of processes" if row["device"] is None else "device time"
        cost = f"{time(row['cost_ns'])} of {what} ({percent(row['share'])})"
        # As `--window` and `--time` take it.
        look = f"look at {_seconds(row['worst_begin_ns'])}s:{_seconds(row['worst_end_ns'])}s"
        evidence = (row["seen"], f"{cost}; {look}", *([row["advice"]] if verbose else []))
        lines += [[(f"       {text}", terminal.FAINT)] for text in evidence]
    return [*lines, *_check_lines(checks, verbose=verbose)]


def _check_lines(checks: pl.DataFrame, *, verbose: bool) -> list[Line]:
    """What was looked for in vain: how much it is, or its list."""
    named = pl.when(pl.col("reason").is_null()).then("kind").otherwise(pl.format("{} ({})", "kind", "reason"))
    in_vain = checks.filter(pl.col("result") == "not found").select(named).to_series()
    undecidable = checks.filter(pl.col("result") == "not decidable")
    if verbose:
        listed = [f"Looked for and not found: {', '.join(in_vain)}"] if in_vain.len() else []
        for (reason,), kinds in undecidable.group_by("reason", maintain_order=True):
            listed.append(f"Not decidable: {', '.join(kinds['kind'])} ({reason})")
        return ["", *listed] if listed else []
    counts = ((in_vain.len(), "not found"), (undecidable.height, "not decidable"))
    looked = " and ".join(f"{count} {what}" for count, what in counts if count)
    reasons = undecidable["reason"].unique()
    why = f": {reasons[0]}" if undecidable.height == checks.height and reasons.len() == 1 else ""
    return ["", f"Of {checks.height} causes that are looked for, {looked}{why} (-v lists them)"] if looked else []


def _seconds(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e9:.6f}"


def factor_signs(tree: pl.DataFrame) -> list[str]:
    """What stands before each efficiency of a tree: `=` before the first factor of a product, `x` before the others, nothing
    before a root and what divides the product of those above in another way."""
    parents = tree["parent"].to_list()
    return [
        "" if parent is None or product_of is not None else "x" if parent in parents[:place] else "="
        for place, (parent, product_of) in enumerate(zip(parents, tree["product_of"], strict=True))
    ]


def tree_lines(tree: pl.DataFrame) -> list[Line]:
    """Efficiencies, indented by their level; factors of one product have a sign."""
    width = max((len(title) + 2 * level for title, level in tree.select("title", "level").iter_rows()), default=0) + 4
    lines: list[Line] = []
    for row, sign in zip(tree.iter_rows(named=True), factor_signs(tree), strict=True):
        if row["level"] == 0 and lines:
            lines.append("")
        name = f"{'  ' * row['level']}{f'{sign} ' if sign else ''}{row['title']}"
        reads = reading(row["metric"], row["value"]) if row["value"] is not None else (row["reason"] or "").partition(",")[0]
        style = _LEVELS.get(level(row["value"]) or "", "")
        lines.append([(f"{name:<{width}}", ""), (f"{percent(row['value']):>8}", style), (f"   {reads}", "")])
    return lines


def reading(metric: str, value: float | None) -> str:
    """What an efficiency means in words: of a factor the share that is lost.

    >>> reading("load_balance", 0.875)
    'lost to imbalance between devices: 12.5 %'
    """
    efficiency = EFFICIENCIES[metric]
    return f"{efficiency.loss}: {percent(None if value is None else 1 - value)}" if efficiency.loss else efficiency.reads_as


# -- tables ---------------------------------------------------------------------------------------------------------------


def _is_shown(table: Table, tables: Frames) -> bool:
    """Whether the console has a table, and it says something of this run that no other does."""
    console, run, height = table.console, tables["run"].row(0, named=True), tables[table.name].height
    if console is None or (console.of_hosts and run["devices"]):
        return False
    if console.longer_than and height <= tables[console.longer_than].height:
        return False
    has_efficiencies = run["devices"] or run["mpi_parallel_efficiency"] is not None
    return height >= console.least_rows and bool(has_efficiencies or EFFICIENCY_COLUMNS not in console.columns)


def _table_lines(table: Table, tables: Frames, most: int, width: int | None) -> list[str]:
    """The title of a table and its first rows, with an empty line before.

    Where a terminal of this width (None: any) is too narrow even for shortened texts, spare columns are left out, one by one.
    """
    console = table.console or OnConsole(())
    frame, by_name = tables[table.name], {column.name: column for column in table.columns}
    headings = _headings(console, by_name, has_devices=bool(tables["run"]["devices"][0]))
    more = f" ({frame.height - most} more)" if frame.height > most else ""
    if more and table.page and table.page.worst_first:
        frame = frame.sort(table.page.worst_first, descending=not table.page.lowest_first, nulls_last=True, maintain_order=True)
    shown = frame.head(most)
    for count in range(len(console.spare) + 1):
        titles = {name: title for name, title in headings.items() if name not in console.spare[:count]}
        columns = [by_name[name] for name in titles]
        texts = frozenset(place for place, column in enumerate(columns) if column.dtype is pl.String)
        cells = list(zip(*(_cells(column, shown[column.name].to_list()) for column in columns), strict=True))
        if not is_too_wide(list(titles.values()), cells, texts, width):
            break
    return ["", f"{table.title}{more}", *grid(list(titles.values()), cells, texts, width)]


def _headings(console: OnConsole, columns: Mapping[str, Column], *, has_devices: bool) -> dict[str, str]:
    """Names and headings of the columns that are shown; without GPUs nothing counts them."""
    usual = {name: column.heading for name, column in columns.items()}
    usual |= {name: efficiency.abbreviation for name, efficiency in EFFICIENCIES.items()}
    headings: dict[str, str] = {}
    for entry in console.columns:
        name, title = entry if isinstance(entry, tuple) else (entry, "")
        if name == EFFICIENCY_COLUMNS:
            headings |= {name: usual[name] for name in (OF_DEVICES if has_devices else OF_HOSTS)}
        elif has_devices or name != "devices":
            headings[name] = title or usual[name]
    return headings


def cell(column: Column, value: Any) -> str:
    """A value of a column for people."""
    if value is None:
        return "-"
    if with_unit := quantity(value, column.unit):
        return with_unit
    if column.dtype is pl.Int64:
        return f"{value:,}"
    return short(str(value)) if column.dtype is pl.String else f"{value:.3g}"


def _cells(column: Column, values: Sequence[Any]) -> list[str]:
    """Values of a column for people, in which names that differ do not look alike."""
    if column.dtype is pl.String:
        return short_names(["-" if value is None else value for value in values])
    return [cell(column, value) for value in values]


def _sampled(bins: pl.DataFrame, most: int, width: int | None) -> list[str]:
    """Means of sampled metrics over the window: of percentages and clocks, those of devices that were sampled."""
    if bins.is_empty():
        return []
    samples = pl.col("samples")
    means = bins.filter(samples > 0).group_by("metric", maintain_order=True).agg(
        (pl.col("mean") * samples).sum() / samples.sum(),
        pl.col("minimum").min(),
        pl.col("maximum").max(),
        samples.sum(),
        pl.col("device").n_unique(),
    )  # fmt: skip
    cells = [
        [short(metric), *(metric_value(metric, value) for value in values), f"{count:,}", f"{devices}"]
        for metric, *values, count, devices in means.head(most).iter_rows()
    ]
    title = f"GPU metrics: {int(means['samples'].sum()):,} samples of {counted(means.height, 'metric')}"
    more = f" ({means.height - most} more metrics)" if means.height > most else ""
    columns = ["metric", "mean", "smallest", "largest", "samples", "GPUs"]
    return ["", f"{title}{more}", *grid(columns, cells, frozenset({0}), width)]


def undecided(waits: pl.DataFrame) -> list[str]:
    """What is not decidable about waits in collectives, from the table `nccl_waits`: a sentence, or none."""
    sums = waits.select(pl.col("collectives", "decided", "residence_ns", "undecided_ns").sum()).row(0, named=True)
    unknown = sums["collectives"] - sums["decided"]
    if not unknown:
        return []
    time_share = sums["undecided_ns"] / sums["residence_ns"] if sums["residence_ns"] else None
    return [
        f"Which rank arrives last is not decidable in {unknown:,} of {counted(sums['collectives'], 'collective')} "
        f"({percent(unknown / sums['collectives'])}), and {percent(time_share)} of the time in them may be waits: "
        f"ranks arrive closer together than clocks are known, or others are not in the run"
    ]
