"""Names of `measured_run` under which code that is not moved yet finds them."""

from __future__ import annotations

from collections.abc import Iterator

from nsys2prv.efficiency.measured_run import *  # noqa: F403
from nsys2prv.efficiency.measured_run import MeasuredRun

SweepContext = MeasuredRun
TimeChunk = MeasuredRun


def time_chunks(run: MeasuredRun) -> Iterator[MeasuredRun]:
    yield run
