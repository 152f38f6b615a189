"""Messages of NCCL over the network, of real runs on several nodes: how many there are, and what they tell of clocks."""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from support.checkout import REAL_REPORTS

from nsys2prv.exports.report import open_report
from nsys2prv.sources.communication.message_ends import NCCL_NETWORK, kinds_of_messages, read_message_ends
from nsys2prv.timeline.messages import Messages

RUNS = {
    "nccl-2nodes-6gpus-utc": (880, 0, {("ault43", "ault44"): (-92, 11)}),
    "nccl-2nodes-5of6-utc": (40, 40, {("ault43", "ault44"): (-77, None)}),
    "nccl-3nodes-9gpus": (
        512,
        0,
        {("ault42", "ault43"): (-97, 198), ("ault42", "ault44"): (-366, 130), ("ault43", "ault44"): (-102, 157)},
    ),
    "nccl-3nodes-9gpus-utc": (
        512,
        0,
        {("ault42", "ault43"): (-204, 122), ("ault42", "ault44"): (-285, 94), ("ault43", "ault44"): (-103, 673)},
    ),
}
"""Messages with both ends, sends alone, and for each pair of hosts how far the second clock can be ahead of the first, us."""


def utc_of(path: Path) -> tuple[int, bool]:
    """Start of the session, and whether the tables have times in UTC."""
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as database:
        ((start,),) = database.execute("select utcEpochNs from TARGET_INFO_SESSION_START_TIME")
        ((first,),) = database.execute("select min(start) from CUPTI_ACTIVITY_KIND_RUNTIME")
    return start, first > start // 2


@pytest.mark.parametrize("run", RUNS)
def test_messages_over_the_network_and_the_bounds_that_they_give_to_clocks(run: str, tmp_path: Path) -> None:
    paths = sorted((REAL_REPORTS / run).glob("*.sqlite"))
    if not paths:
        pytest.skip(f"no reports in {REAL_REPORTS / run}")
    count, alone, bounds = RUNS[run]
    messages = Messages(tmp_path / "messages")
    starts = []
    for index, path in enumerate(paths):
        report = open_report(path)
        start, _ = utc_of(path)
        starts.append(start)
        for ends in read_message_ends(report, {}, tmp_path / str(index), kinds_of_messages(report, (NCCL_NETWORK,))):
            messages.add(ends.with_columns(pl.col("start", "end") + start, row=pl.lit(index, pl.Int64)))
    found = pl.concat(messages.matched_ends())

    assert found.height == count
    assert messages.unmatched["sends"].total() == alone
    assert messages.unmatched["receives"].total() == 0

    hosts = pl.Series([path.name.partition("_")[0] for path in paths])
    on_hosts = found.select(
        pl.col("to_time") - pl.col("time"), source=hosts.gather(found["row"]), destination=hosts.gather(found["to_row"])
    )
    fastest = {(source, to): time for source, to, time in on_hosts.group_by("source", "destination").min().iter_rows()}
    for first, second in itertools.combinations(sorted(set(hosts)), 2):
        low, high = bounds[first, second]
        assert round(-fastest[second, first] / 1000) == low
        assert (round(fastest[first, second] / 1000) if (first, second) in fastest else None) == high
