"""Real reports on several processes: the same trace as from one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions

from .conftest import Translated


@pytest.mark.parametrize(
    ("report", "way"),
    [
        pytest.param("v100x8", "2 workers", marks=pytest.mark.thorough),
        ("mpi4", "2 workers"),
        pytest.param("mpi4", "dask", marks=pytest.mark.thorough),
        pytest.param("v100x8", "dask", marks=pytest.mark.thorough),
    ],
)
def test_several_processes_give_the_trace_of_one(
    report: str, way: str, translation: Callable[[str], Translated], tmp_path: Path
) -> None:
    alone = translation(report)
    # .row has the name of the trace.
    out = tmp_path / alone.trace.path.stem
    if way == "dask":
        distributed = pytest.importorskip("distributed", reason="Dask is not installed")
        with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
            spread = translate(alone.reports, out, TranslateOptions(scheduler=cluster.scheduler_address))
    else:
        spread = translate(alone.reports, out, TranslateOptions(workers=2))

    for suffix in (".prv", ".pcf", ".row"):
        assert spread.prv.with_suffix(suffix).read_bytes() == alone.trace.path.with_suffix(suffix).read_bytes()
