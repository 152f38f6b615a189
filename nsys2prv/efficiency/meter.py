"""What a meter is: a function that measures something of a run, with what it needs and the tables that it fills."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import Any

from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.result_tables import Filled, Table
from nsys2prv.execution.process import max_threads

_LONG_RUN = 1_000_000
"""Operations of devices from which memory counts more than time."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What a meter measured: its `tables` (those without rows may be absent), in `warnings` what is missing or inexact, in one
    phrase each, and in subclasses what other meters and findings ask for by the type."""

    tables: Filled = field(default_factory=dict)
    warnings: Sequence[str] = ()


Measure = Callable[[MeasuredRun], Any]


@dataclass(frozen=True)
class Meter:
    """One measurement of a run.

    Its function `measure` keeps nothing after the call, and may run beside others. Others get its result by its type,
    `run.measured(Type)`, and have it among their `needs`. Its result fills `tables`. It measures nothing in a run without GPUs
    where it is `of_devices`, nor in one that `when` refuses. With `takes_long` it is measured before others, so that no
    thread is alone with it at the end. With `is_large` it takes much memory: a long run has it measured alone, at the end."""

    measure: Measure
    needs: tuple[Measure, ...] = ()
    tables: tuple[Table, ...] = ()
    of_devices: bool = False
    when: Callable[[MeasuredRun], bool] | None = None
    takes_long: bool = False
    is_large: bool = False


def measure_all(run: MeasuredRun, meters: Iterable[Meter]) -> list[Any]:
    """Run meters in the order of their needs, several at a time; `run.measured` has their results. Those that do not apply to
    this run are left out, with those that need them.

    Raises the first error of a meter."""
    by_measure = {meter.measure: meter for meter in meters}
    selected: dict[Measure, Meter] = {}
    order = list(TopologicalSorter({meter.measure: meter.needs for meter in by_measure.values()}).static_order())
    early = {meter.measure for meter in by_measure.values() if meter.takes_long}
    # With what they need, and what that needs.
    for measure in reversed(order):
        early.update(by_measure[measure].needs if measure in early else ())
    for measure in sorted(order, key=lambda measure: measure not in early):
        meter = by_measure[measure]
        applies = (run.events.rows.devices or not meter.of_devices) and (meter.when is None or meter.when(run))
        if applies and all(need in selected for need in meter.needs):
            selected[measure] = meter
    is_long = run.operations.height > _LONG_RUN
    in_order = sorted(selected.values(), key=lambda meter: is_long and meter.is_large)
    futures: dict[Measure, Future[Any]] = {}

    def measure_in_turn(meter: Meter, needs: Sequence[Measure]) -> Any:
        # These are in the queue before it: what waits never waits for what has no thread.
        for need in needs:
            futures[need].result()
        if is_long and meter.is_large:
            run.drop_activity()
        result = meter.measure(run)
        run.measurements[type(result)] = result
        return result

    with ThreadPoolExecutor(max_threads()) as pool:
        for meter in in_order:
            needs = tuple(futures) if is_long and meter.is_large else meter.needs
            futures[meter.measure] = pool.submit(measure_in_turn, meter, needs)
    return [futures[measure].result() for measure in selected]
