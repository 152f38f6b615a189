"""Collectives of two ranks are matched where that is sure, and otherwise not."""

from dataclasses import replace

import numpy as np
import pytest

from nsys2prv.clocks.collective_matching import Matching
from nsys2prv.clocks.sequence_matching import Ambiguous, CollectiveSequence, SequenceMatch, match_by_count, match_sequences

MS = 1_000_000


class Run:
    """Ranks of as many hosts that meet in the same collectives; clocks are seconds apart and drift."""

    def __init__(self, seed: int, hosts: int, jitter: float = 0.03, lost: float = 0.0, count: int = 200) -> None:
        random = np.random.default_rng(seed)
        step = np.where(np.arange(count) % 5 == 4, 40 * MS, 3 * MS) * (1 + jitter * random.standard_normal(count))
        moment = np.cumsum(step)
        self.places = [np.flatnonzero(random.random(count) >= lost) for _ in range(hosts)]
        self.sequences = []
        for host, kept in enumerate(self.places):
            drift, offset = random.uniform(-5e-5, 5e-5), random.uniform(-5e9, 5e9)
            end = (moment * (1 + drift) + offset + random.uniform(0, 10_000, count))[kept]
            begin = (end - random.uniform(200_000, MS, len(kept))).astype(np.int64)
            names = (np.arange(count) % 5 == 4).astype(np.int64)[kept]
            self.sequences.append(
                CollectiveSequence(host, host, "nccl", begin, end.astype(np.int64), names, np.zeros_like(begin))
            )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lost", [0.1, 0.2, 0.3])
def test_lost_collectives_do_not_lead_to_wrong_matches(seed: int, lost: float) -> None:
    run = Run(seed, 4, lost=lost)
    events = Matching(run.sequences).events
    assert all((numbers >= 0).mean() > 0.6 for numbers in events)
    of_place: dict[int, set[int]] = {}
    for numbers, places in zip(events, run.places, strict=True):
        for number, place in zip(numbers.tolist(), places.tolist(), strict=True):
            if number >= 0:
                of_place.setdefault(number, set()).add(place)
    assert all(len(places) == 1 for places in of_place.values())


def test_regular_collectives_that_fit_in_many_ways_are_not_matched() -> None:
    first, second = Run(1, 2, jitter=1e-5, lost=0.1).sequences
    matching = Matching([first, second])
    assert isinstance(match_sequences(first, second), Ambiguous)
    assert all((numbers < 0).all() for numbers in matching.events)
    assert matching.ambiguous[0, 1] > 1


def test_a_clock_that_jumps_is_followed() -> None:
    first, second = Run(2, 2).sequences
    jump = np.where(np.arange(200) >= 90, 2 * MS, 0)
    found = match_sequences(first, replace(second, start=second.start + jump, time=second.time + jump))
    assert isinstance(found, SequenceMatch)
    assert (found.first == found.second).all()
    assert len(found) > 190


@pytest.mark.parametrize("place", [2, 20, 44, 58])
def test_a_jump_leaves_no_collective_out_where_both_have_them_all(place: int) -> None:
    first, second = Run(5, 2, count=60).sequences
    jump = np.where(np.arange(60) >= place, 5 * MS, 0)
    events = Matching([first, replace(second, start=second.start + jump, time=second.time + jump)]).events
    assert events[0].tolist() == events[1].tolist()
    assert (events[0] >= 0).all()


def test_keys_decide_where_they_are_known() -> None:
    first, second = Run(3, 2).sequences
    keys = np.arange(1, 201)
    found = match_sequences(replace(first, key=keys), replace(second, key=keys).at(slice(5, None)))
    assert isinstance(found, SequenceMatch)
    assert (found.first - found.second == 5).all()
    assert len(found) == 195


def few(process: int, *times: float, name: int = 0) -> CollectiveSequence:
    end = np.array(times, dtype=np.int64)
    return CollectiveSequence(process, process, "nccl", end - 5 * MS, end, np.full(len(end), name), np.zeros_like(end))


def test_a_few_collectives_are_counted() -> None:
    first, second = few(0, 1000 * MS, 3000 * MS), few(1, 4001 * MS, 5996 * MS)
    found = Matching([first, second]).events
    assert found[0].tolist() == found[1].tolist()
    assert (found[0] >= 0).all()


def test_a_few_collectives_that_cannot_be_the_same_are_not_counted() -> None:
    at = few(0, 1000 * MS, 3000 * MS)
    assert match_by_count(at, few(1, 1000 * MS, 3500 * MS)) is None
    # No shift of the clock puts each end after the start of the other.
    assert match_by_count(at, few(1, 1000 * MS, 3012 * MS)) is None
    assert match_by_count(at, few(1, 1000 * MS, 3000 * MS, name=1)) is None
    assert match_by_count(at, few(1, 1000 * MS)) is None


def test_which_of_two_sequences_of_a_process_it_is_cannot_be_counted() -> None:
    matching = Matching([few(0, 1000 * MS), few(0, 1010 * MS), few(1, 1000 * MS), few(1, 1010 * MS)])
    assert all((numbers < 0).all() for numbers in matching.events)
