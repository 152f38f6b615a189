"""Intervals of clocks follow from bounds that hold whatever took how long, and steps of clocks are found."""

import numpy as np
import polars as pl
import pytest

from nsys2prv.clocks.agreement import deviations
from nsys2prv.clocks.anchors import UNKNOWN_DRIFT, SharedEvents, find_steps
from nsys2prv.clocks.bounds import Bounds, clock_intervals, find_bounds
from nsys2prv.clocks.estimate import fit

MS = 1_000_000


def collectives(*rows: tuple[int, int, int, int, str, bool | None]) -> pl.DataFrame:
    """Event, clock, start, end, rule, whether it is the root."""
    columns = {
        "event": pl.Int64, "clock": pl.Int64, "start": pl.Int64, "end": pl.Int64, "rule": pl.String, "is_root": pl.Boolean
    }  # fmt: skip
    return pl.DataFrame(rows, schema=columns, orient="row").with_columns(communicator=pl.lit(0, pl.Int64))


def bounds_of(rows: pl.DataFrame, *messages: pl.DataFrame, clocks: int = 2) -> np.ndarray:
    return find_bounds(rows, messages, clocks, (0, 1e9)).over_all


def test_no_rank_ends_a_collective_before_the_last_one_begins() -> None:
    found = bounds_of(collectives((0, 0, 100, 1000, "all", None), (0, 1, 700, 1100, "all", None)))
    assert (found[0, 1], found[1, 0]) == (1000, 300)


def test_the_root_bounds_the_others_in_a_broadcast_and_they_bound_it_in_a_reduction() -> None:
    ends = (0, 0, 100, 1000), (0, 1, 700, 1100)
    broadcast = bounds_of(collectives((*ends[0], "from root", True), (*ends[1], "from root", False)))
    reduction = bounds_of(collectives((*ends[0], "to root", True), (*ends[1], "to root", False)))
    assert (broadcast[0, 1], broadcast[1, 0]) == (1000, np.inf)
    assert (reduction[0, 1], reduction[1, 0]) == (np.inf, 300)


def test_a_message_arrives_after_it_was_sent() -> None:
    message = pl.DataFrame({"clock": [0], "to_clock": [1], "time": [5000], "to_time": [8100]})
    found = bounds_of(collectives(), message)
    assert (found[0, 1], found[1, 0]) == (3000, np.inf)


def in_stretches(*ahead: list[list[float]], every: float = 1e9) -> Bounds:
    start = np.arange(len(ahead)) * every
    return Bounds(start, start, np.array(ahead, dtype=np.float64))


def test_the_interval_grows_away_from_the_anchors_by_what_is_unknown_of_the_drift() -> None:
    once = clock_intervals(in_stretches([[np.inf, 4000.0], [6000.0, np.inf]]), 0, 10e9)
    together = once.half_widths.sum(axis=1)
    assert together[0] == pytest.approx(6000 + 1000)
    assert together[-1] == pytest.approx(6000 + 1000 + UNKNOWN_DRIFT * 10e9)
    twice = clock_intervals(in_stretches(*[[[np.inf, 4000.0], [6000.0, np.inf]]] * 2, every=5e9), 0, 10e9)
    assert twice.half_widths.sum(axis=1)[-1] == pytest.approx(6000 + 1000 + 2e-6 * 5e9, rel=0.01)


def test_a_clock_that_is_badly_known_does_not_widen_the_intervals_of_the_others() -> None:
    ahead = np.full((4, 4), 2000.0)
    ahead[3], ahead[:, 3] = 5e6, 5e6
    widths = clock_intervals(Bounds(np.zeros(1), np.zeros(1), ahead[None]), 0, 1).half_widths[0]
    assert widths[:3] == pytest.approx(1500, abs=1)
    assert widths[3] > 4.9e6
    assert (widths[:, None] + widths[None, :] >= ahead)[~np.eye(4, dtype=bool)].all()


def test_nothing_is_known_of_a_clock_without_bounds() -> None:
    ahead = np.full((3, 3), np.inf)
    ahead[0, 1] = ahead[1, 0] = 1000
    found = clock_intervals(Bounds(np.zeros(1), np.zeros(1), ahead[None]), 0, 1)
    assert np.isinf(found.half_widths[:, 2]).all()
    assert np.isfinite(found.half_widths[:, :2]).all()
    assert found.group.tolist() == [0, 0, 2]


def test_bounds_that_contradict_each_other_are_inside_the_interval() -> None:
    found = clock_intervals(in_stretches([[np.inf, -8000.0], [3000.0, np.inf]]), 0, 1)
    assert found.half_widths[0].sum() >= 8000
    assert found.contradiction.tolist() == [8000, 8000]


def shared_events(clocks: int, count: int = 80) -> SharedEvents:
    random = np.random.default_rng(clocks)
    event, clock = np.repeat(np.arange(count), clocks), np.tile(np.arange(clocks), count)
    moment = np.cumsum(random.uniform(200, 400, count) * MS)[event]
    time = moment * (1 + 1e-5 * clock) + clock * 7 * MS + random.exponential(5000, len(event))
    return SharedEvents(event, clock, time.astype(np.int64))


@pytest.mark.parametrize("jumping", [0, 1, 3])
def test_the_clock_that_jumps_is_found_with_the_size_of_its_step(jumping: int) -> None:
    events = shared_events(4)
    time = events.time + np.where((events.clock == jumping) & (events.event >= 33), 2 * MS, 0)
    found = find_steps(SharedEvents(events.event, events.clock, time), 4)
    assert list(found) == [jumping]
    (step,) = (step for step in found[jumping] if abs(step.size) > MS)
    assert step.size == pytest.approx(2 * MS, abs=15_000)
    assert (events.event[time == step.after], events.event[time == step.before]) == (32, 33)


def test_a_clock_that_is_slewed_is_followed() -> None:
    events = shared_events(4)
    slewed = np.clip((events.time - 8e9) / 4e9, 0, 1) * 2 * MS * (events.clock == 1)
    found = find_steps(SharedEvents(events.event, events.clock, events.time + slewed.astype(np.int64)), 4)
    jumps = [step for step in found[1] if 5e-5 * (step.before - step.after) < abs(step.size)]
    assert list(found) == [1]
    assert sum(step.size for step in jumps) == pytest.approx(2 * MS, rel=0.05)
    assert (jumps[0].after, jumps[-1].before) == (pytest.approx(8e9, abs=6e8), pytest.approx(12e9, abs=6e8))
    assert all(step.error < 0.25 * MS for step in jumps)


def test_what_the_last_collective_alone_shows_is_doubted() -> None:
    events = shared_events(4)
    late = np.where((events.clock == 2) & (events.event == 79), MS, 0)
    found = find_steps(SharedEvents(events.event, events.clock, events.time + late), 4)
    (step,) = found[2]
    assert list(found) == [2]
    assert (step.size, step.error) == (0, pytest.approx(MS, abs=50_000))
    assert step.before > events.time.max()


def placed_ends(events: SharedEvents, off: np.ndarray) -> pl.DataFrame:
    """Collectives of clocks of `shared_events`, as placed, with ends that are off by some ns."""
    drift = events.clock * 1e-5 * events.time / (1 + 1e-5 * events.clock)
    end = (events.time - drift).astype(np.int64) - events.clock * 7 * MS + off
    return pl.DataFrame({"event": events.event, "clock": events.clock, "start": end - 10 * MS, "end": end}).with_columns(
        rule=pl.lit("all"), is_root=None, communicator=0, kind=pl.lit("nccl")
    )


def test_ends_that_agree_make_intervals_narrow_and_those_that_do_not_fit_widen_them_where_they_are() -> None:
    events = shared_events(3)
    placed = placed_ends(events, np.where((events.clock == 1) & (events.event >= 40) & (events.event < 50), 3 * MS, 0))
    last = float(placed["end"].max())
    bounds = find_bounds(placed, [], 3, (0, last))
    found = clock_intervals(bounds, 0, last, deviations(placed))
    of_pair = found.half_widths[:, 0] + found.half_widths[:, 1]
    mean_end = placed.group_by("event").agg(pl.col("end").mean()).sort("event")["end"]
    before, during = (np.interp(mean_end[event], found.times, of_pair) for event in (20, 45))

    assert clock_intervals(bounds, 0, last).half_widths.min() > 3 * MS
    assert before < 40_000
    assert 3 * MS < during < 3.1 * MS
    assert (found.half_widths[:, 0] + found.half_widths[:, 2]).max() < 40_000


def test_a_single_late_end_widens_an_interval_only_where_clocks_step() -> None:
    events = shared_events(3)
    placed = placed_ends(events, np.where((events.clock == 1) & (events.event == 40), MS, 0))
    last = float(placed["end"].max())
    bounds = find_bounds(placed, [], 3, (0, last))
    widest = [
        clock_intervals(bounds, 0, last, deviations(placed), has_steps=has_steps).half_widths[:, 1].max()
        for has_steps in (False, True)
    ]

    assert widest[0] < 40_000
    assert widest[1] > 60_000


def test_a_clock_that_only_drifts_has_no_steps() -> None:
    assert find_steps(shared_events(3), 3) == {}


def test_a_clock_whose_events_fit_nothing_leaves_the_others_alone() -> None:
    events = shared_events(4)
    wild = np.random.default_rng(1).integers(-3_000 * MS, 3_000 * MS, len(events.time))
    time = np.where(events.clock == 2, events.time + wild, events.time)
    clocks = fit(SharedEvents(events.event, events.clock, time), 4).corrections
    drifts = [clocks[number].drift for number in (0, 1, 3)]
    assert drifts - np.mean(drifts) == pytest.approx(np.array([-1, 0, 2]) * 1e-5 - 1e-5 / 3, abs=1e-6)
    assert max(abs(clock.drift) for clock in clocks) < 1e-4


def test_a_drift_that_no_clock_has_is_refused() -> None:
    events = shared_events(4)
    time = np.where(events.clock == 2, events.time + (events.time * 5e-4).astype(np.int64), events.time)
    found = fit(SharedEvents(events.event, events.clock, time), 4)
    assert found.refused == (2,)
    assert (found.corrections[2].anchors, found.corrections[2].drift) == (0, 0)
    assert all(found.corrections[number].anchors > 70 for number in (0, 1, 3))
