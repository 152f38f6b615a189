"""The report of one rank: its part of the schedule, seen through the clock of its host, as tables of an nsys export.

Columns are made as a whole: an event takes some nanoseconds, so reports of millions of events are made in seconds."""

import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from nsys2prv.demo.iteration import AUTOGRAD, BATCH_BYTES, BROADCAST, GRADIENT_BYTES, MAIN, Iteration, Kernel, Work
from nsys2prv.demo.metric_samples import sampled_metrics
from nsys2prv.demo.nsys_tables import (
    COLUMNS,
    DEFAULT_STREAM,
    ENUMERATIONS,
    NCCL_STREAM,
    NVTX_DOMAIN,
    NVTX_MARK,
    NVTX_PUSHPOP,
    NVTX_STARTEND,
    NVTX_THREAD_NAME,
    VM,
    constants,
    global_pid,
    global_tid,
    identity_tables,
    kernel_short_name,
)
from nsys2prv.demo.scenario import AUTOGRAD_TID, LOADER_TID, Cluster
from nsys2prv.demo.schedule import (
    HALO_BYTES,
    HALO_CALL,
    MPI_INIT,
    STARTUP,
    Array,
    RankAlone,
    Schedule,
    optimizer_starts,
    rank_alone,
)

_COMMUNICATOR, _NCCL_COMMUNICATOR, _REQUEST = 94_577_367_172_512, 11_223_344_556_677_889_900 % (1 << 63), 94_577_818_916_992
_START_ALLOCATIONS = 16
_FIRST_ITERATION_CALL = 100
"""Correlation ids below it belong to the start of the run."""
_RECORD, _BEFORE_RECORD = 1_900, 900
"""Of the record of an event after each collective: its call, and the time before it, ns."""
_NO_EVENT = 4_294_967_295

_NEWER = {("CUPTI_ACTIVITY_KIND_KERNEL", "graphId"), ("NVTX_EVENTS", "binaryData")}

_NCCL_DOMAIN = 1

Tables = dict[str, pl.DataFrame]


@dataclass
class RankReport:
    """One rank of a run, by its number, and its tables."""

    cluster: Cluster
    iteration: Iteration
    schedule: Schedule
    rank: int

    def __post_init__(self) -> None:
        self.strings: dict[str, int] = {}
        self.pid = self.cluster.pid(self.rank)
        self.session = int(self.schedule.session[self.rank])
        # Start of each iteration as a column, true time, ns.
        self.begin: Array = self.schedule.begin[self.rank, :-1, None]

    def tables(self) -> Tables:
        """All tables; times are ns of this rank's session, on its host's clock."""
        tables = identity_tables(self.cluster, self.schedule, self.rank, self._string) | self._device() | self._calls()
        tables |= self._nvtx() if self.cluster.with_nvtx else {}
        tables |= self._mpi() if self.cluster.with_mpi else {}
        tables |= self._os_calls() if self.cluster.with_os_calls else {}
        tables |= self._metrics() if self.cluster.gpu_metrics_hz else {}
        tables["StringIds"] = pl.DataFrame({"id": list(self.strings.values()), "value": list(self.strings)})
        return {name: _declared(name, frame) for name, frame in tables.items()} | ENUMERATIONS

    # -- process, clock, times -------------------------------------------------------------------------------------------------

    @cached_property
    def alone(self) -> RankAlone:
        """Times from the start of each iteration."""
        return rank_alone(self.cluster, self.iteration, self.rank)

    def _local(self, time: Array | int) -> Array:
        """True times as the report has them."""
        clock = self.cluster.clocks[self.cluster.node(self.rank)]
        return np.ravel(clock.elapsed(time) - clock.elapsed(self.session))

    def _string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings) + 1)

    def _thread(self, thread: int) -> int:
        return global_tid(self.pid, self.pid + (AUTOGRAD_TID if thread == AUTOGRAD else 0))

    def _correlations(self, indices: Array) -> Array:
        steps = np.arange(self.cluster.iterations)[:, None] * len(self.iteration.calls)
        return np.ravel(_FIRST_ITERATION_CALL + steps + indices[None, :])

    # -- the device ---------------------------------------------------------------------------------------------------

    @cached_property
    def on_device(self) -> tuple[Array, Array]:
        """Start and end of the work on the default stream, (iterations, n), true time, ns."""
        optimizer = optimizer_starts(self.alone, self.schedule.optimizer_from[self.rank] - self.schedule.begin[self.rank, :-1])
        start = self.begin + np.concatenate([self.alone.start, optimizer], axis=1)
        end = np.concatenate([self.alone.end, optimizer + self.alone.length], axis=1) + self.begin
        return start, end

    def _device(self) -> Tables:
        iteration, schedule, rank = self.iteration, self.schedule, self.rank
        start, end = self.on_device

        def work(*kinds: Work) -> tuple[Array, pl.DataFrame]:
            positions = iteration.positions(*kinds)
            indices = iteration.computing[positions]
            frame = self._on_stream(DEFAULT_STREAM, start[:, positions], end[:, positions], self._correlations(indices))
            return np.tile(indices, self.cluster.iterations), frame

        indices, computed = work(Work.KERNEL)
        parts = [computed.with_columns(self._launch_columns(indices))]
        if len(iteration.collectives):
            started = self._on_stream(
                NCCL_STREAM, schedule.broadcast_start[rank], schedule.broadcast_end[rank], np.array([_START_ALLOCATIONS + 1])
            )
            parts.append(started.with_columns(self._kernel_columns([BROADCAST], np.zeros(1, dtype=np.int64))))
            reduced = self._on_stream(
                NCCL_STREAM,
                schedule.collective_start[rank],
                schedule.collective_end[rank],
                self._correlations(iteration.collectives),
            )
            reduced = reduced.with_columns(self._launch_columns(np.tile(iteration.collectives, self.cluster.iterations)))
            parts = [parts[0], *(self._without_lost(part) for part in (parts[1], reduced))]
        launched = pl.concat(parts).sort("start").with_columns(gridId=pl.int_range(1, pl.len() + 1))

        indices, copied = work(Work.COPY_IN, Work.COPY_OUT)
        is_in = np.array([call.work is Work.COPY_IN for call in iteration.calls])[indices]
        host_memory = 0 if self.cluster.pageable_copies else 1
        copied = copied.with_columns(
            bytes=np.array([call.bytes for call in iteration.calls])[indices],
            copyKind=np.where(is_in, 1, 2),
            srcKind=np.where(is_in, host_memory, 2),
            dstKind=np.where(is_in, 2, host_memory),
        )
        _, cleared = work(Work.MEMSET)
        return {
            "CUPTI_ACTIVITY_KIND_KERNEL": launched.with_columns(
                **constants(**dict.fromkeys(("launchType", "cacheConfig", "gridY", "gridZ", "blockY", "blockZ"), 1)),
                **constants(staticSharedMemory=0, localMemoryPerThread=0, sharedMemoryLimitConfig=0),
                **constants(localMemoryTotal=250_871_808, sharedMemoryExecuted=32_768),
            ),
            "CUPTI_ACTIVITY_KIND_MEMCPY": copied,
            "CUPTI_ACTIVITY_KIND_MEMSET": cleared.with_columns(**constants(value=0, bytes=GRADIENT_BYTES, memKind=2)),
        }

    def _on_stream(self, stream: int, start: Array, end: Array, correlations: Array) -> pl.DataFrame:
        frame = pl.DataFrame({"start": self._local(start), "end": self._local(end), "correlationId": correlations})
        return frame.with_columns(**constants(deviceId=0, contextId=1, streamId=stream, globalPid=global_pid(self.pid)))

    def _launch_columns(self, indices: Array) -> list[pl.Series]:
        """Columns of the kernels that calls launch."""
        launched = [call.kernel for call in self.iteration.calls]
        distinct = list(dict.fromkeys(kernel for kernel in launched if kernel is not None))
        number = {kernel: position for position, kernel in enumerate(distinct)}
        return self._kernel_columns(distinct, np.array([number[kernel] if kernel else -1 for kernel in launched])[indices])

    def _kernel_columns(self, distinct: list[Kernel], which: Array) -> list[pl.Series]:
        short = [kernel_short_name(kernel.name) for kernel in distinct]
        values = {
            "demangledName": [self._string(kernel.name) for kernel in distinct],
            "shortName": [self._string(name) for name in short],
            "mangledName": [self._string(f"_Z{len(name)}{name}{position}") for position, name in enumerate(short)],
            "registersPerThread": [kernel.registers for kernel in distinct],
            "gridX": [kernel.grid for kernel in distinct],
            "blockX": [kernel.block for kernel in distinct],
            "dynamicSharedMemory": [kernel.shared for kernel in distinct],
        }
        return [pl.Series(name, np.array(column)[which]) for name, column in values.items()]

    # -- the host -----------------------------------------------------------------------------------------------------

    @cached_property
    def on_host(self) -> tuple[Array, Array]:
        """Start and end of the API calls, (iterations, n), true time, ns."""
        start, end = self.begin + self.alone.call_start, self.begin + self.alone.call_end
        end[:, -1] = self.schedule.sync_end[self.rank]
        return start, end

    def _calls(self) -> Tables:
        iteration = self.iteration
        start, end = self.on_host
        names = np.array([self._string(call.name) for call in iteration.calls])
        threads = np.array([self._thread(call.thread) for call in iteration.calls])
        # cu...: the driver's own calls are in the same table under another class.
        driver = np.array([int(not call.name.startswith("cuda")) for call in iteration.calls])
        repeated = [np.tile(column, self.cluster.iterations) for column in (driver, threads, names)]
        calls = self._api_calls(start, end, self._correlations(np.arange(len(names))), *repeated)
        called = pl.concat([self._start_calls(), calls, self._records_of_collectives()])
        syncs = self._synchronizations(iteration.indices("cudaStreamSynchronize_v3020"), DEFAULT_STREAM, 3, [_NO_EVENT])
        return {
            "CUPTI_ACTIVITY_KIND_RUNTIME": called.with_columns(**constants(returnValue=0)),
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": pl.concat([syncs, *self._waits_for_events()]).sort("start"),
            "CUPTI_ACTIVITY_KIND_CUDA_EVENT": self._event_records(),
        }

    def _records_of_collectives(self) -> pl.DataFrame:
        """After each collective an event is recorded on its stream, as PyTorch does; the call is in the time between two
        others, and changes none of them."""
        collectives = self.iteration.collectives
        start = self.on_host[1][:, collectives] + _BEFORE_RECORD
        threads = np.array([self._thread(self.iteration.calls[index].thread) for index in collectives], dtype=np.int64)
        name = np.full(start.size, self._string("cudaEventRecord_v3020") if start.size else 0)
        repeated = np.tile(threads, self.cluster.iterations)
        return self._api_calls(
            start, start + _RECORD, self._correlations_of_records, np.zeros(start.size, dtype=np.int64), repeated, name
        )

    @property
    def _correlations_of_records(self) -> Array:
        """Of the records after collectives: behind those of all other calls."""
        calls = _FIRST_ITERATION_CALL + self.cluster.iterations * len(self.iteration.calls)
        return calls + np.arange(self.cluster.iterations * len(self.iteration.collectives))

    def _waits_for_events(self) -> list[pl.DataFrame]:
        """Each collective waits for what computes before it, and the optimizer for the last collective."""
        waits = self.iteration.indices("cudaStreamWaitEvent_v3020")
        computed, reduced = self._events
        return [
            self._synchronizations(waits[: len(computed)], NCCL_STREAM, 2, computed),
            self._synchronizations(waits[len(computed) :], DEFAULT_STREAM, 2, reduced[-1:]),
        ]

    @property
    def _events(self) -> tuple[Array, Array]:
        """Events that are recorded before and after the collectives of an iteration: each is used again in the next one."""
        number = 2 * np.arange(len(self.iteration.collectives))
        return number + 1, number + 2

    def _event_records(self) -> pl.DataFrame:
        """Records of events: before a collective on the stream that computes, after it on its own."""
        steps = self.cluster.iterations
        before, after = (np.tile(events, steps) for events in self._events)
        calls = self._correlations(self.iteration.indices("cudaEventRecord_v3020"))
        columns = {
            "streamId": np.repeat([DEFAULT_STREAM, NCCL_STREAM], [len(before), len(after)]),
            "correlationId": np.concatenate([calls, self._correlations_of_records]),
            "eventId": np.concatenate([before, after]),
        }
        return pl.DataFrame(columns).with_columns(**constants(deviceId=0, contextId=1, globalPid=global_pid(self.pid)))

    def _start_calls(self) -> pl.DataFrame:
        """Allocations, and the broadcast of the parameters with the wait for it."""
        schedule, rank = self.schedule, self.rank
        start = schedule.barrier_end[rank] + 1_000_000 + 350_000 * np.arange(_START_ALLOCATIONS)
        end, names, driver = start + 240_000, ["cudaMalloc_v3020"] * _START_ALLOCATIONS, [0] * _START_ALLOCATIONS
        if len(self.iteration.collectives):
            launch = schedule.broadcast_start[rank] - 12_000
            start = np.append(start, [launch, launch + 20_000])
            end = np.append(end, [launch + 8_000, schedule.broadcast_end[rank] + 4_000])
            names, driver = [*names, "cuLaunchKernelEx", "cudaStreamSynchronize_v3020"], [*driver, 1, 0]
        ids, threads = np.array([self._string(name) for name in names]), np.full(len(names), self._thread(MAIN))
        return self._api_calls(start, end, np.arange(1, len(names) + 1), np.array(driver), threads, ids)

    def _api_calls(
        self, start: Array, end: Array, correlation: Array, driver: Array, thread: Array, name: Array
    ) -> pl.DataFrame:
        columns = {"eventClass": driver, "globalTid": thread, "correlationId": correlation, "nameId": name}
        return pl.DataFrame({"start": self._local(start), "end": self._local(end), **columns})

    def _synchronizations(self, indices: Array, stream: int, kind: int, events: Array | list[int]) -> pl.DataFrame:
        start, end = self.on_host
        frame = self._on_stream(stream, start[:, indices] + 600, end[:, indices] - 300, self._correlations(indices))
        of_calls = np.tile(np.broadcast_to(events, indices.shape), self.cluster.iterations)
        return frame.with_columns(**constants(syncType=kind), eventId=of_calls)

    def _nvtx(self) -> Tables:
        schedule, rank, iteration = self.schedule, self.rank, self.iteration
        start, end = self.on_host
        begin, steps = schedule.begin[rank], self.cluster.iterations
        main, autograd = self._thread(MAIN), self._thread(AUTOGRAD)
        created = pl.DataFrame({"start": [self._local(self.session + STARTUP)[0]], "text": ["NCCL"]})
        named = pl.DataFrame(
            {"text": [f"MPI Rank {rank}" if self.cluster.with_mpi else "trainer", "autograd"], "globalTid": [main, autograd]}
        )
        ready = begin[:-1] + self.alone.batch_ready
        # The loader starts with a batch while the one before it is in use.
        batch_begin = np.concatenate([begin[:1] - 8_000_000, begin[:-2] + 100_000])
        losses = 11.0 * np.exp(-np.arange(steps) / (0.7 * steps + 5)) + 0.01 * rank
        parts = [
            created.with_columns(**constants(eventType=NVTX_DOMAIN, globalTid=main, domainId=1)),
            named.with_columns(**constants(start=int(created["start"][0]) + 1_000, eventType=NVTX_THREAD_NAME)),
            self._ranges("iteration", main, begin[:-1], begin[1:] - 5_000).with_columns(int64Value=np.arange(steps)),
            self._ranges("load data", main, begin[:-1] + 5_000, ready - 2_000),
            self._ranges("read loss", main, start[:, -2] - 1_800, schedule.sync_end[rank] + 900),
            self._ranges("load batch", global_tid(self.pid, self.pid + LOADER_TID), batch_begin, ready - 40_000).with_columns(
                rangeId=pl.int_range(1, pl.len() + 1), **constants(eventType=NVTX_STARTEND, endGlobalTid=main)
            ),
            self._ranges("loss", main, schedule.sync_end[rank] + 400, None).with_columns(
                doubleValue=losses, **constants(eventType=NVTX_MARK)
            ),
        ]
        for region in iteration.regions:
            # An outer range starts before and ends after the inner ones that share its first or last call.
            early, late = (5 - region.depth) * 600, (5 - region.depth) * 300
            thread = self._thread(region.thread)
            parts.append(self._ranges(region.name, thread, start[:, region.first] - early, end[:, region.last] + late))
        if len(iteration.collectives):
            parts += self._nccl_ranges()
        events = pl.concat(parts, how="diagonal").with_columns(pl.col("domainId").fill_null(0))
        return {"NVTX_EVENTS": events.sort("start", maintain_order=True)}

    def _ranges(self, name: str, thread: int, start: Array, end: Array | None) -> pl.DataFrame:
        frame = pl.DataFrame({"start": self._local(start)})
        ended = pl.lit(None, pl.Int64) if end is None else pl.Series(self._local(end))
        return frame.with_columns(ended.alias("end")).with_columns(
            **constants(eventType=NVTX_PUSHPOP, globalTid=thread, textId=self._string(name))
        )

    def _nccl_ranges(self) -> list[pl.DataFrame]:
        """Ranges of NCCL, with the payload fields that NCCL declares for each function."""
        start, end = self.on_host
        first = self.schedule.broadcast_start[self.rank]

        def ranges(name: str, thread: int, start: Array, end: Array, **fields: int | str) -> pl.DataFrame:
            payload = {"NCCL communicator ID": _NCCL_COMMUNICATOR} | fields
            of_domain = constants(domainId=_NCCL_DOMAIN, jsonText=json.dumps(payload))
            return self._ranges(name, self._thread(thread), start, end).with_columns(**of_domain)

        size, shape = "Message size [bytes]", {"No. of ranks": self.cluster.ranks, "Rank": self.rank, "CUDA device": 0}
        parts = [
            ranges("ncclCommInitRank", MAIN, first - 16_000_000, first - 400_000, **shape),
            ranges("ncclBroadcast", MAIN, first - 15_000, first - 2_000, **{size: GRADIENT_BYTES, "Root": 0}),
        ]
        for index in self.iteration.collectives:
            call = self.iteration.calls[index]
            payload: dict[str, int | str] = {size: call.bytes, "Reduction operation": "Sum"}
            parts.append(ranges("ncclAllReduce", call.thread, start[:, index] - 3_000, end[:, index] + 250, **payload))
        return parts

    def _without_lost(self, collectives: pl.DataFrame) -> pl.DataFrame:
        """Collectives without those that the recording lost."""
        if self.cluster.node(self.rank) == self.cluster.lonely_host:
            return collectives.clear()
        if not self.cluster.lost_collectives:
            return collectives
        random = np.random.default_rng([self.cluster.seed, 5, self.rank, collectives.height])
        return collectives.filter(pl.Series(random.random(collectives.height) >= self.cluster.lost_collectives))

    # -- MPI, operating system, samples ----------------------------------------------------------------------------------

    def _mpi(self) -> Tables:
        schedule, rank, ranks = self.schedule, self.rank, self.cluster.ranks
        main, communicator = self._thread(MAIN), _COMMUNICATOR + 4096 * rank

        def calls(name: str, start: Array, end: Array, **columns: int | None) -> pl.DataFrame:
            frame = pl.DataFrame({"start": self._local(start), "end": self._local(end)})
            return frame.with_columns(**constants(globalTid=main, textId=self._string(name), **columns))

        collectives = [
            calls("MPI_Barrier", schedule.barrier_start[rank], schedule.barrier_end[rank]),
            calls("MPI_Allreduce", schedule.reduce_start[rank], schedule.reduce_end[rank], size=8, recvSize=8),
            calls("MPI_Barrier", schedule.last_barrier_start[rank], schedule.last_barrier_end[rank]),
        ]
        init, finalize = schedule.session[rank] + MPI_INIT, schedule.last_barrier_end[rank] + 300_000
        tables = {
            "MPI_RANKS": pl.DataFrame({"globalTid": [main], "rank": [rank]}),
            "MPI_COMMUNICATORS": pl.DataFrame(
                {"timestamp": self._local(schedule.mpi_init_end[rank]), "rank": [rank], "localRank": [rank], "size": [ranks]}
            ).with_columns(**constants(commHandle=communicator, parentHandle=0)),
            "MPI_COLLECTIVES_EVENTS": self._without_lost(pl.concat(collectives, how="diagonal")).with_columns(
                **constants(commHandle=communicator)
            ),
            "MPI_OTHER_EVENTS": pl.concat(
                [
                    calls("MPI_Init_thread", init, schedule.mpi_init_end[rank]),
                    calls("MPI_Finalize", finalize, finalize + 5_000_000),
                ]
            ),
        }
        if ranks == 1:
            return tables
        rank_below, rank_above = (rank - 1) % ranks, (rank + 1) % ranks
        halo, to_right, to_left = schedule.halo_start[rank], 7, 8
        posted = [
            ("MPI_Irecv", rank_below, to_right),
            ("MPI_Irecv", rank_above, to_left),
            ("MPI_Isend", rank_below, to_left),
            ("MPI_Isend", rank_above, to_right),
        ]
        messages, waits = [], []
        waiting = halo + 4 * HALO_CALL + 300
        for number, (name, partner, tag) in enumerate(posted):
            start = halo + number * HALO_CALL
            request = _REQUEST + 832 * number
            columns = {"tag": tag, "remoteRank": partner, "requestHandle": request}
            messages.append(calls(name, start, start + HALO_CALL - 300, commHandle=communicator, size=HALO_BYTES, **columns))
            # nsys writes a row per request that MPI_Waitall waits for, all with the same times.
            waits.append(calls("MPI_Waitall", waiting, schedule.halo_end[rank], requestHandle=request))
        return tables | {
            "MPI_P2P_EVENTS": pl.concat(messages).sort("start"),
            "MPI_START_WAIT_EVENTS": pl.concat(waits).sort("start", maintain_order=True),
        }

    def _os_calls(self) -> Tables:
        main, loader = self._thread(MAIN), global_tid(self.pid, self.pid + LOADER_TID)
        begin = self.schedule.begin[self.rank, :-1]
        start, end = self.on_host
        ready = begin + self.alone.batch_ready
        late = self.cluster.has_data_gap
        backward = [index for index, call in enumerate(self.iteration.calls) if call.thread == AUTOGRAD]
        opened = self.session + STARTUP + 200_000 * np.arange(24)
        read_from = np.concatenate([begin[:1] - 8_000_000, ready[:-1]])
        quarter = (begin - read_from) // 4
        timed = [
            ("open64", main, opened, opened + 15_000),
            ("read", main, opened + 20_000, opened + 90_000),
            ("poll", main, begin + 12_000, ready - 9_000),
            # The main thread sleeps while autograd's thread launches the backward pass.
            ("pthread_cond_wait", main, start[:, backward[0]] - 5_000, end[:, backward[-1]] + 3_000),
            *(("read", loader, read_from + n * quarter, read_from + n * quarter + quarter // 2) for n in range(4)),
            ("read", loader, (begin + 20_000)[late], (ready - 60_000)[late]),
        ]
        parts = [
            pl.DataFrame({"start": self._local(first), "end": self._local(last)}).with_columns(
                **constants(globalTid=thread, nameId=self._string(name))
            )
            for name, thread, first, last in timed
        ]
        calls = constants(eventClass=27, returnValue=0, nestingLevel=0, callchainId=0)
        return {"OSRT_API": pl.concat(parts).sort("start").with_columns(**calls)}

    def _metrics(self) -> Tables:
        start, end = self.on_device
        running = [call.kernel for call in self.iteration.calls]
        copies = {Work.COPY_IN: BATCH_BYTES}
        times, names, values = sampled_metrics(
            period=1_000_000_000 // self.cluster.gpu_metrics_hz,
            session=(self.session, int(self.schedule.stop[self.rank])),
            kernels=[running[index] for index in self.iteration.computing],
            copies=[self.iteration.calls[index].work in copies for index in self.iteration.computing],
            start=start,
            end=end,
            collective_start=self.schedule.collective_start[self.rank],
            collective_end=self.schedule.collective_end[self.rank],
            slowdown=self.cluster.slow_factor if self.rank == self.cluster.slow_rank else 1.0,
            random=np.random.default_rng([self.cluster.seed, 4, self.rank]),
        )
        source = VM | 1 << 32
        kind = source | self.cluster.local_rank(self.rank)
        described = pl.DataFrame({"metricId": range(len(names)), "metricName": names}).with_columns(
            **constants(typeId=kind, sourceId=source, typeName="")
        )
        samples = pl.DataFrame(
            {
                "timestamp": np.repeat(self._local(times), len(names)),
                "metricId": np.tile(np.arange(len(names)), len(times)),
                "value": np.ravel(values),
            }
        )
        return {"TARGET_INFO_GPU_METRICS": described, "GPU_METRICS": samples.with_columns(**constants(typeId=kind))}


def _declared(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """All columns that a table of schema 3.11 has, in their order and types, and newer ones that the report needs."""
    declared = {name: dtype for name, dtype in COLUMNS[table].items() if (table, name) not in _NEWER or name in frame.columns}
    return frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(dtype).alias(name) for name, dtype in declared.items()
    )
