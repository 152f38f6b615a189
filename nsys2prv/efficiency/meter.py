"""What a meter is: a function that measures something of a run, with what it needs and the tables that it fills."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.result_tables import Filled, Table
from nsys2prv.execution.threads import max_threads

_LONG_RUN = 1_000_000
"""Operations of devices from which memory counts more than time."""


class Measurement:
    """What a meter measured: rows of its tables, and what other meters and findings ask for by its type."""

    def tables(self) -> Filled:
        """Its tables; those without rows may be absent."""
        return {}

    @property
    def warnings(self) -> Sequence[str]:
        """What is missing or inexact, in one phrase each."""
        return ()


@dataclass(frozen=True)
class MeasuredTables(Measurement):
    """A measurement of which nobody asks for more than its tables."""

    filled: Filled

    def tables(self) -> Filled:
        """Its tables."""
        return self.filled


Measure = Callable[[MeasuredRun], Any]


@dataclass(frozen=True)
class Meter:
    """One measurement of a run.

    Attributes
    ----------
    measure
        The function. It keeps nothing after the call, and may run beside others. Others get its result by its type:
        `run.measured(Type)`.
    needs
        Functions of the meters whose results it asks for.
    tables
        Tables that its result fills.
    of_devices
        It measures nothing in a run without GPUs.
    when
        Whether it applies to a run; None: always.
    is_large
        It takes much memory: in a long run it is measured when all others are.
    """

    measure: Measure
    needs: tuple[Measure, ...] = ()
    tables: tuple[Table, ...] = ()
    of_devices: bool = False
    when: Callable[[MeasuredRun], bool] | None = None
    is_large: bool = False

    def applies_to(self, run: MeasuredRun) -> bool:
        """Whether it measures anything in a run."""
        return (not self.of_devices or bool(run.events.rows.devices)) and (self.when is None or self.when(run))


def measure_all(run: MeasuredRun, meters: Iterable[Meter]) -> list[Any]:
    """Run meters in the order of their needs, several at a time; `run.measured` has their results. Those that do not apply to
    this run are left out, with those that need them.

    Raises the first error of a meter.
    """
    by_measure = {meter.measure: meter for meter in meters}
    selected: dict[Measure, Meter] = {}
    for measure in TopologicalSorter({meter.measure: meter.needs for meter in by_measure.values()}).static_order():
        meter = by_measure[measure]
        if meter.applies_to(run) and all(need in selected for need in meter.needs):
            selected[measure] = meter
    needs = {measure: meter.needs for measure, meter in selected.items()}
    if run.operations.height > _LONG_RUN:
        before = tuple(measure for measure, meter in selected.items() if not meter.is_large)
        needs |= {measure: before for measure, meter in selected.items() if meter.is_large}
    order = TopologicalSorter(needs)
    order.prepare()
    results: dict[Measure, Any] = {}
    with ThreadPoolExecutor(max_threads()) as pool:
        running: dict[Future[Any], Measure] = {}
        while order.is_active():
            for measure in order.get_ready():
                if needs[measure] != selected[measure].needs:
                    run.drop_activity()
                running[pool.submit(measure, run)] = measure
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                measure = running.pop(future)
                result = results[measure] = future.result()
                run.measurements[type(result)] = result
                order.done(measure)
    return [results[measure] for measure in selected]
