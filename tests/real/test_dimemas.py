"""Dimemas simulates the calls of MPI of real runs, with all messages and collective operations matched."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from support.dimemas import simulate

from nsys2prv.demo import Cluster, write_reports
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions


def test_every_message_and_operation_of_mpi4_is_simulated(tmp_path: Path, real_reports: Path) -> None:
    summary = translate([real_reports / "mpi4"], tmp_path / "out", TranslateOptions(for_dimemas=True))
    expected = []
    for number in range(4):
        with sqlite3.connect(f"file:{real_reports}/mpi4/rank{number}.sqlite?immutable=1", uri=True) as database:
            # nsys has collective I/O in the same table.
            calls = "MPI_COLLECTIVES_EVENTS call join StringIds name on name.id = call.textId"
            expected += database.execute(f"select count(*) from {calls} where name.value not like 'MPI_File%'").fetchone()
    found = simulate(summary.prv)

    assert summary.content["dimemas"]["left_out"] == {}
    assert found.operations == tuple(expected)
    assert found.sent == found.received
    assert sum(found.sent) == summary.content["messages"]["matched"] == 260
    # Without a network the run is shorter than it was, and not shorter than its computation.
    assert 0.2 < found.seconds < summary.content["trace"]["length_ns"] / 1e9


def test_the_mpi_part_of_a_simulated_run_is_simulated(tmp_path: Path) -> None:
    cluster = Cluster(nodes=2, gpus_per_node=2, iterations=4)
    paths = write_reports(tmp_path / "reports", cluster)
    summary = translate(list(paths), tmp_path / "out", TranslateOptions(for_dimemas=True))
    found = simulate(summary.prv)

    assert summary.content["dimemas"]["left_out"] == {}
    assert len(set(found.operations)) == 1
    assert found.sent == found.received
    assert sum(found.sent) == summary.content["messages"]["matched"] > 0
