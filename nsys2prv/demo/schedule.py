"""Times of all events, in true time: first of each rank alone, then of all ranks, which wait for each other.

In a rank alone, the host runs ahead of the device; work starts on a stream when the work before it has ended and its call was
made. Between ranks, a collective ends on all ranks when the last one has arrived and the data have moved, so early ranks wait
inside it. All times are integer ns; those of a rank alone count from the start of each iteration."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nsys2prv.demo.iteration import Iteration, Work
from nsys2prv.demo.scenario import Cluster

Array = NDArray[Any]

_LAUNCH_LATENCY = 2_400
_BETWEEN_KERNELS = 1_100
_EVENT_LATENCY = 2_900
_PAGEABLE_LATENCY = 7_000
_HALO_TRANSFER = 21_000
"""Time for a message of the halo exchange to arrive."""
HALO_CALL, HALO_BYTES = 2_200, 262_144
_MPI_ALLREDUCE = 14_000
_BATCH_READY, _BATCH_LATE = 140_000, 12_000_000

# Times of the phases of the start, from the start of a rank's session.
STARTUP, METRICS_FROM, MPI_INIT = 10_000_000, 30_000_000, 45_000_000


@dataclass(frozen=True)
class RankAlone:
    """A rank alone; (iterations, n) arrays, ns from the start of each iteration."""

    batch_ready: Array  # (iterations,): when the batch is ready and the first call is made
    # call_start, call_end: calls of `Iteration.calls`
    call_start: Array
    call_end: Array
    # start, end: work of `Iteration.computing` before the optimizer, on the device
    start: Array
    end: Array
    # launched, length: work of the optimizer: when its call allows it to start, and how long it takes
    launched: Array
    length: Array


@dataclass(frozen=True)
class Schedule:
    """The whole run in true time, ns; first axis is the rank."""

    session: Array  # (ranks,): start of each rank's session
    # mpi_init_end, barrier_start, barrier_end, broadcast_start, broadcast_end: (ranks,): the start of the run
    mpi_init_end: Array
    barrier_start: Array
    barrier_end: Array
    broadcast_start: Array
    broadcast_end: Array
    begin: Array  # (ranks, iterations + 1): start of each iteration, and the end of the last one
    # collective_start, collective_end: (ranks, iterations, collectives): NCCL kernels
    collective_start: Array
    collective_end: Array
    optimizer_from: Array  # (ranks, iterations): when the device may start the optimizer
    sync_end: Array  # (ranks, iterations): when the host knows that the iteration is done
    # halo_start, halo_end, reduce_start, reduce_end: (ranks, iterations): the first MPI_Irecv, the end of MPI_Waitall, and
    # MPI_Allreduce
    halo_start: Array
    halo_end: Array
    reduce_start: Array
    reduce_end: Array
    # last_barrier_start, last_barrier_end, stop: (ranks,): the end of the run
    last_barrier_start: Array
    last_barrier_end: Array
    stop: Array


def rank_alone(cluster: Cluster, iteration: Iteration, rank: int) -> RankAlone:
    """Times of a rank without waits for others; each call gives the same times."""
    random = np.random.default_rng([cluster.seed, 2, rank])
    calls = iteration.calls
    ready = _BATCH_READY + random.integers(0, 40_000, cluster.iterations)
    ready += np.where(cluster.has_data_gap, _BATCH_LATE + random.integers(0, 900_000, cluster.iterations), 0)
    duration = _jittered(random, np.array([call.duration for call in calls]), cluster.iterations, 0.15)
    gap = _jittered(random, np.array([call.gap for call in calls]), cluster.iterations, 0.15)
    call_end = ready[:, None] + np.cumsum(duration + gap, axis=1)
    call_start = call_end - duration

    computing = iteration.computing
    typical = np.array([calls[index].length for index in computing], dtype=np.float64)
    if rank == cluster.slow_rank:
        typical[iteration.positions(Work.KERNEL)] *= cluster.slow_factor
    length = _jittered(random, typical, cluster.iterations, cluster.jitter)
    launched = call_end[:, computing] + _LAUNCH_LATENCY
    if cluster.pageable_copies:
        copies = iteration.positions(Work.COPY_IN)
        launched[:, copies] = call_start[:, computing[copies]] + _PAGEABLE_LATENCY
        # The call ends after the copy, independent of the jitter.
        length[:, copies] = duration[:, computing[copies]] - _PAGEABLE_LATENCY - 3_000
    cut = iteration.optimizer_from
    start = in_order(launched[:, :cut], length[:, :cut])
    return RankAlone(ready, call_start, call_end, start, start + length[:, :cut], launched[:, cut:], length[:, cut:])


def in_order(allowed: Array, length: Array) -> Array:
    """Starts of pieces of work on one stream: each when it is allowed and the one before it has ended; along axis 1."""
    occupied = length + _BETWEEN_KERNELS
    before = np.cumsum(occupied, axis=1) - occupied
    start: Array = before + np.maximum.accumulate(allowed - before, axis=1)
    return start


def optimizer_starts(alone: RankAlone, allowed: Array) -> Array:
    """Starts of the optimizer's work when the first of it may not start before `allowed`; from the start of the iteration."""
    launched = alone.launched.copy()
    launched[:, 0] = np.maximum(launched[:, 0], allowed)
    return in_order(launched, alone.length)


def schedule(cluster: Cluster, iteration: Iteration) -> Schedule:
    """Times of all ranks together. Keeps a few numbers per rank, iteration and collective, not per event."""
    ranks, iterations, collectives = cluster.ranks, cluster.iterations, len(iteration.collectives)
    random = np.random.default_rng([cluster.seed, 3])
    ready = np.empty((ranks, iterations, collectives), dtype=np.int64)
    computed, least, most, called = (np.empty((ranks, iterations), dtype=np.int64) for _ in range(4))
    for rank in range(ranks):
        alone = rank_alone(cluster, iteration, rank)
        ready[rank] = np.maximum(alone.end[:, iteration.after], alone.call_end[:, iteration.collectives] + _LAUNCH_LATENCY)
        computed[rank] = alone.end[:, -1]
        occupied = alone.length + _BETWEEN_KERNELS
        remaining = np.cumsum(occupied[:, ::-1], axis=1)[:, ::-1] - _BETWEEN_KERNELS
        least[rank] = remaining[:, 0]
        most[rank] = (alone.launched + remaining).max(axis=1)
        called[rank] = alone.call_start[:, -1]

    lengths = np.array([iteration.calls[index].length for index in iteration.collectives], dtype=np.float64)
    transfer = _jittered(random, lengths, iterations, 0.02)
    session = random.integers(2_000_000, 42_000_000, ranks)
    init_end = (session + MPI_INIT).max() + 80_000_000 + random.integers(0, 3_000_000, ranks)
    barrier_start = init_end + random.integers(50_000, 2_000_000, ranks)
    barrier_end = barrier_start.max() + 11_000 + random.integers(0, 2_000, ranks)
    broadcast_start = barrier_end + 25_000_000 + random.integers(0, 1_500_000, ranks)
    broadcast_end = broadcast_start.max() + 1_900_000 + random.integers(0, 1_200, ranks)

    begin = np.empty((ranks, iterations + 1), dtype=np.int64)
    begin[:, 0] = broadcast_end + random.integers(100_000, 200_000, ranks)
    collective_start, collective_end = np.empty_like(ready), np.empty_like(ready)
    optimizer_from, sync_end, halo_start, halo_end, reduce_start, reduce_end = (np.empty_like(computed) for _ in range(6))
    late_end = _late(cluster, random, ready.shape)
    for step in range(iterations):
        now = begin[:, step]
        free = now
        for collective in range(collectives):
            start = np.maximum(now + ready[:, step, collective], free)
            end = start.max() + transfer[step, collective] + late_end[:, step, collective]
            collective_start[:, step, collective], collective_end[:, step, collective] = start, end
            free = end + _BETWEEN_KERNELS
        allowed = np.maximum(now + computed[:, step] + _BETWEEN_KERNELS, free + _EVENT_LATENCY if collectives else 0)
        ended = np.maximum(allowed + least[:, step], now + most[:, step])
        optimizer_from[:, step] = allowed
        sync_end[:, step] = np.maximum(ended + 4_000, now + called[:, step] + 5_000)
        halo = sync_end[:, step] + 21_000 + random.integers(0, 9_000, ranks)
        sent = halo + 3 * HALO_CALL
        arrived = np.maximum(np.roll(sent, 1), np.roll(sent, -1)) + _HALO_TRANSFER
        halo_start[:, step], halo_end[:, step] = halo, np.maximum(sent + 4 * HALO_CALL, arrived)
        reduce_start[:, step] = halo_end[:, step] + 2_500
        reduce_end[:, step] = reduce_start[:, step].max() + _MPI_ALLREDUCE + _late(cluster, random, (ranks,))
        begin[:, step + 1] = (reduce_end if cluster.with_mpi else sync_end)[:, step] + 30_000 + cluster.pause_ns
    last_start = begin[:, -1] + random.integers(200_000, 1_000_000, ranks)
    last_end = last_start.max() + 10_000 + random.integers(0, 2_000, ranks)
    start = session, init_end, barrier_start, barrier_end, broadcast_start, broadcast_end
    steps = begin, collective_start, collective_end, optimizer_from, sync_end
    return Schedule(*start, *steps, halo_start, halo_end, reduce_start, reduce_end, last_start, last_end, last_end + 6_000_000)


def _late(cluster: Cluster, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """How much later than on the first rank a collective ends on each; on one rank of a hundred much later."""
    late: Array = random.integers(0, cluster.late_ns, shape)
    return np.where(random.random(shape) < 0.01, late * 20, late)


def _jittered(random: np.random.Generator, typical: Array, rows: int, deviation: float) -> Array:
    """`rows` draws around typical durations, ns, whose logarithm has a standard deviation of `deviation`."""
    noise = random.standard_normal((rows, len(typical)), dtype=np.float32)
    drawn: Array = np.rint(typical * np.exp(deviation * np.clip(noise, -3, 3))).astype(np.int64)
    return drawn
