"""Simulated clusters whose true clocks are known: what aligns clocks is simulated, and written as one report per rank."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys2prv.demo import write_report
from nsys2prv.demo.nsys_tables import Tables
from support.report_builder import ReportBuilder

Times = NDArray[np.int64]

_UTC = 1_730_000_000_000_000_000
_STARTUP = 1_500_000_000
"""ns from the start of the last session to the first iteration."""
_RUNNING_LATE = 0.005
"""Share of ends of collectives that are late by up to milliseconds, because the rank was not running."""
_ALGORITHMS = {
    "ring": ("AllReduce_RING_LL_Sum_float", "AllGather_RING_LL_Sum_int8_t", "ReduceScatter_RING_LL_Sum_float"),
    "tree": ("AllReduce_TREE_LL_Sum_float",),
}
_MPI = ("MPI_Allreduce", "MPI_Barrier", "MPI_Alltoall")


@dataclass(frozen=True, kw_only=True)
class ClusterKind:
    """What runs of a kind have in common. Times are ns; numbers drawn for a run are uniform up to the one given."""

    text: str
    nodes: int = 4
    ranks_per_node: int = 2
    iterations: int = 60
    iteration: int = 400_000_000
    jitter: float = 0.03
    imbalance: int = 300_000
    nccl: int = 0
    mpi: int = 0
    algorithm: str = "ring"
    transfer: tuple[int, int] = (50_000, 1_000_000)
    mpi_messages: bool = False
    latency: tuple[int, int] = (5_000, 5_000)
    net_messages: int = 0
    with_kernels: bool = True
    utc_apart: int = 1_000_000_000
    drift_ppm: float = 20.0
    monotonic: bool = True
    sessions_apart: int = 40_000_000
    utc_read: int = 0
    jump: tuple[int, int] | None = None
    jump_place: tuple[float, float] = (0.3, 0.7)
    jump_lasts: int = 0
    collectives_until: float = 1.0
    lost: float = 0.0
    lost_on: float = 0.5
    late_host: bool = False
    late_starts: int = 0
    lonely_host: bool = False
    own_communicator: bool = False
    sparse_host: bool = False
    missing: float = 0.0
    shifted: str = ""
    width: int | None = 60_000
    unknowable: float = 0.0


_AS_RECORDED: dict[str, Any] = {
    "ranks_per_node": 3, "monotonic": False, "sessions_apart": 200_000_000, "utc_read": 100_000, "utc_apart": 100_000,
    "drift_ppm": 1.0, "iteration": 2_000_000_000, "jitter": 0.001, "imbalance": 10_000_000,
    "transfer": (10_000_000, 40_000_000),
}  # fmt: skip
"""As the real runs of NCCL over several nodes are."""

KINDS: Mapping[str, ClusterKind] = {
    "NCCL": ClusterKind(text="three collectives of NCCL (ring) in each iteration, clocks drift", nccl=3, drift_ppm=50),
    "MPI": ClusterKind(text="two collectives of MPI in each iteration, clocks drift", mpi=2, drift_ppm=50),
    "MPI and its messages": ClusterKind(text="a collective of MPI and messages in each iteration", mpi=1, mpi_messages=True),
    "MPI messages": ClusterKind(text="messages of MPI, no collectives", mpi_messages=True),
    "unequal latency": ClusterKind(
        text="messages of MPI, no collectives; 5 µs to the next node, 150 µs back", mpi_messages=True,
        latency=(5_000, 150_000), width=200_000,
    ),
    "NCCL messages": ClusterKind(
        text="messages of an instrumented NCCL, its kernels were not recorded", nccl=1, with_kernels=False,
        net_messages=4, width=3_000_000,
    ),
    "two tree collectives": ClusterKind(
        text="as recorded: two collectives of NCCL (tree) with messages, UTC within 0.1 ms, no monotonic clock",
        nodes=3, iterations=2, nccl=1, algorithm="tree", net_messages=16, **_AS_RECORDED, width=5_000_000,
    ),
    "one ring collective": ClusterKind(
        text="as recorded: one collective of NCCL (ring) with messages, UTC within 0.1 ms, no monotonic clock",
        nodes=2, iterations=1, nccl=1, net_messages=40, **_AS_RECORDED, width=2_000_000,
    ),
    "few collectives": ClusterKind(text="three collectives of NCCL, no messages", iterations=3, nccl=1, width=5_000_000),
    "few MPI collectives": ClusterKind(text="three collectives of MPI, no messages", iterations=3, mpi=1, width=5_000_000),
    "one tree collective": ClusterKind(
        text="one collective of NCCL (tree), no messages, UTC within 0.1 ms", nodes=3, iterations=1, nccl=1,
        algorithm="tree", **_AS_RECORDED, width=100_000_000,
    ),
    "tree": ClusterKind(
        text="three collectives of NCCL (tree) in each iteration: some nodes end 0.1 to 10 ms before others", nccl=3,
        algorithm="tree", width=10_000_000,
    ),
    "lost collectives": ClusterKind(
        text="30 % of the collectives are missing on half of the ranks", nccl=2, jitter=0.003, lost=0.3
    ),
    "lost collectives, 16 nodes": ClusterKind(
        text="25 % of the collectives are missing on all ranks", nodes=16, ranks_per_node=1, nccl=1, jitter=0.003, lost=0.25,
        lost_on=1.0, width=200_000,
    ),
    "recorded from the middle": ClusterKind(
        text="16 nodes, one was recorded only in the second half", nodes=16, ranks_per_node=1, nccl=1, late_host=True,
        width=200_000,
    ),
    "missing ranks": ClusterKind(text="40 % of the ranks have no report", nccl=1, mpi_messages=True, missing=0.4),
    "UTC only": ClusterKind(
        text="no monotonic clock; sessions of a host start within 200 ms, their UTC differs by up to 100 µs", nccl=2,
        ranks_per_node=3, monotonic=False, sessions_apart=200_000_000, utc_read=100_000, utc_apart=50_000_000, width=400_000,
    ),
    "UTC only, few collectives": ClusterKind(
        text="the same with three collectives", iterations=3, nccl=1, ranks_per_node=3, monotonic=False,
        sessions_apart=200_000_000, utc_read=100_000, utc_apart=50_000_000, width=10_000_000,
    ),
    "UTC within 0.1 ms": ClusterKind(
        text="UTC agrees to 0.1 ms, collectives of NCCL (tree)", nccl=2, algorithm="tree", utc_apart=100_000, drift_ppm=1.0,
        width=10_000_000,
    ),
    "UTC seconds apart": ClusterKind(text="UTC of hosts differs by up to 8 s", nccl=2, utc_apart=4_000_000_000),
    "jump": ClusterKind(
        text="the clock of one host jumps by 2 ms in the middle", nccl=2, jump=(2_000_000,) * 2, width=100_000
    ),
    "jump, messages": ClusterKind(
        text="the same with messages of MPI and no collectives", mpi_messages=True, jump=(2_000_000,) * 2, width=100_000,
    ),
    "anchors at the start": ClusterKind(
        text="all collectives in the first 3 % (0.7 s) of the run, clocks drift", nccl=10, iteration=200_000_000,
        iterations=120, collectives_until=0.03, drift_ppm=50, width=20_000_000,
    ),
    "shifted": ClusterKind(text="all reports exported with times in UTC", nccl=2, shifted="all"),
    "some shifted": ClusterKind(
        text="some reports exported with times in UTC, no monotonic clock", nccl=2, shifted="some", monotonic=False,
        sessions_apart=200_000_000, utc_read=100_000, width=1_000_000,
    ),
    "a host without collectives": ClusterKind(
        text="one host takes part in nothing", nccl=2, mpi_messages=True, lonely_host=True, unknowable=0.5,
    ),
    "a host by itself": ClusterKind(
        text="one host has collectives of a separate communicator only", nccl=2, own_communicator=True, unknowable=0.5,
    ),
    "every third collective": ClusterKind(text="one host has only every third collective", nccl=2, sparse_host=True),
    "regular iterations": ClusterKind(
        text="iterations equally long to 10 µs, reports begin up to three iterations late", nccl=1, jitter=2.5e-5,
        imbalance=3_000, late_starts=3, width=None,
    ),
    "regular iterations, UTC within 0.1 ms": ClusterKind(
        text="the same, UTC agrees to 0.1 ms", nccl=1, jitter=2.5e-5, imbalance=3_000, late_starts=3, utc_apart=100_000,
        drift_ppm=1.0, width=None,
    ),
}  # fmt: skip


class TrueClock(NamedTuple):
    """The clock of a host: how far it is ahead of UTC at true time 0, the difference of its rate, what disturbs it (ns)."""

    offset: int
    drift: float
    wander: float
    period: float
    jumps_at: float = np.inf
    jump: int = 0
    jump_lasts: int = 0

    def elapsed(self, true: Times) -> Times:
        """What it shows at true times, from what it shows at true time 0, ns."""
        wandered = self.wander * np.sin(2 * np.pi * true / self.period)
        jumped = self.jump * np.clip((true - self.jumps_at) / max(self.jump_lasts, 1), 0, 1)
        return true + np.rint(true * self.drift + wandered + jumped).astype(np.int64)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class SimulatedReport:
    """A report, and what is true of it."""

    rank: int
    node: int
    clock: TrueClock
    session: int
    span: tuple[int, int]
    recorded: tuple[int, int]
    tables: Tables

    def in_session(self, true: Times) -> Times:
        """True times as the report has them: from the start of its session, by the clock of its host, ns."""
        return self.clock.elapsed(true) - self.clock.elapsed(np.array(self.session))  # type: ignore[no-any-return]


@dataclass
class _Events:
    """Events of one rank in true time."""

    nccl: list[tuple[int, int, str]] = field(default_factory=list)
    mpi: list[tuple[int, int, str]] = field(default_factory=list)
    p2p: list[tuple[int, int, str, int, int]] = field(default_factory=list)  # start, end, name, partner, tag
    net: list[tuple[int, int | None, str]] = field(default_factory=list)

    @property
    def times(self) -> Times:
        of_all = [time for rows in (self.nccl, self.mpi, self.p2p) for row in rows for time in row[:2]]
        return np.array([*of_all, *(row[0] for row in self.net)], dtype=np.int64)


def simulate(kind: ClusterKind, seed: int) -> list[SimulatedReport]:
    """A run of a kind: its reports, by rank. The same seed gives the same run."""
    return _Simulation(kind, np.random.default_rng([seed, zlib.crc32(kind.text.encode())])).reports()


def write_simulated(reports: Sequence[SimulatedReport], folder: Path) -> list[Path]:
    """Write simulated reports as SQLite exports into a folder."""
    paths = [folder / f"rank{report.rank}.sqlite" for report in reports]
    for report, path in zip(reports, paths, strict=True):
        write_report(path, report.tables)
    return paths


class _Simulation:
    def __init__(self, kind: ClusterKind, random: np.random.Generator) -> None:
        self.kind, self.random = kind, random
        self.ranks = kind.nodes * kind.ranks_per_node
        self.node = np.arange(self.ranks) // kind.ranks_per_node
        self.events = [_Events() for _ in range(self.ranks)]
        self.session = random.integers(0, kind.sessions_apart, self.ranks)
        # What is the same in each collective: the position in the ring, and time stamps of the GPU.
        self.position = random.uniform(0, 10_000, self.ranks)
        self.depth = random.permutation(kind.nodes) / max(kind.nodes - 1, 1)
        self.slowest = int(random.integers(self.ranks)) if random.random() < 0.5 else None
        self.on_last_host = self.node == kind.nodes - 1
        # Versions differ: no sequence; one from 0 on in each collective; the sender's goes on, the receiver's does not.
        self.sequences = int(random.integers(3))
        self.tries_again = self.sequences > 0 and random.random() < 0.5
        self.sent: dict[tuple[int, int], int] = {}

    def reports(self) -> list[SimulatedReport]:
        kind, random = self.kind, self.random
        now = np.full(self.ranks, kind.sessions_apart + _STARTUP) + random.integers(0, 1_000_000, self.ranks)
        together = ~self.on_last_host if kind.own_communicator or kind.lonely_host else np.ones(self.ranks, dtype=bool)
        for step in range(kind.iterations):
            with_others = step < kind.collectives_until * kind.iterations
            now = now + self._length()
            if not with_others:
                for rank in range(self.ranks):
                    self.events[rank].mpi.append((int(now[rank]) - 1_000, int(now[rank]), "MPI_Initialized"))
                continue
            phases = [("nccl", number) for number in range(kind.nccl)] + [("mpi", number) for number in range(kind.mpi)]
            for name, number in phases:
                now = self._collective(name, number, now, together)
                if kind.own_communicator:
                    now = self._collective(name, number, now, ~together)
            if kind.lonely_host:
                for rank in np.flatnonzero(~together):
                    self.events[rank].mpi.append((int(now[rank]) - 1_000, int(now[rank]), "MPI_Initialized"))
            if kind.mpi_messages:
                now = self._exchange(now, together)
        self._lose(int(now.max()))
        clocks = self._clocks(int(now.max()))
        with_report = np.ones(self.ranks, dtype=bool)
        if kind.missing:
            with_report = random.random(self.ranks) >= kind.missing
            # A run needs two hosts.
            with_report[[0, self.ranks - 1]] = True
        shifted = random.random(self.ranks) < {"all": 1, "some": 0.5, "": 0}[kind.shifted]
        boots = random.integers(10**12, 10**15, kind.nodes)
        return [
            self._report(rank, clocks[self.node[rank]], int(boots[self.node[rank]]), bool(shifted[rank]))
            for rank in np.flatnonzero(with_report).tolist()
        ]

    # -- events ---------------------------------------------------------------------------------------------------------

    def _length(self) -> Times:
        """How long each rank computes in an iteration."""
        kind, random = self.kind, self.random
        common = kind.iteration * (1 + kind.jitter * random.standard_normal())
        own = random.exponential(kind.imbalance, self.ranks)
        if self.slowest is not None:
            own[self.slowest] += 3 * kind.imbalance
        return np.rint(common + own).astype(np.int64)  # type: ignore[no-any-return]

    def _collective(self, name: str, number: int, now: Times, members: NDArray[np.bool_]) -> Times:
        kind, random = self.kind, self.random
        ranks = np.flatnonzero(members)
        start = now + np.rint(random.exponential(kind.imbalance / 3, self.ranks) + 5_000).astype(np.int64)
        last = int(start[ranks].max())
        done = last + int(random.uniform(*kind.transfer))
        names = _ALGORITHMS[kind.algorithm] if name == "nccl" else _MPI
        end = done + self._lateness(name)
        for rank in ranks:
            row = (int(start[rank]), int(end[rank]), names[number % len(names)])
            (self.events[rank].nccl if name == "nccl" else self.events[rank].mpi).append(row)
        if kind.net_messages and name == "nccl":
            self._messages_of_nccl(start, last, done, end)
        return np.where(members, end + 2_000, now)

    def _lateness(self, name: str) -> Times:
        """How much later than on the first possible rank a collective ends on each."""
        kind, random = self.kind, self.random
        late = self.position + random.exponential(5_000, self.ranks)
        outlier = random.random(self.ranks) < _RUNNING_LATE
        late += np.where(outlier, random.exponential(1_000_000, self.ranks), 0)
        if name == "nccl" and kind.algorithm == "tree":
            depth = self.depth if random.random() < 0.5 else random.permutation(self.depth)
            late += depth[self.node] * 10 ** random.uniform(5, 7) + random.exponential(20_000, self.ranks)
        return np.rint(late).astype(np.int64)  # type: ignore[no-any-return]

    def _exchange(self, now: Times, members: NDArray[np.bool_]) -> Times:
        """Each rank sends to its neighbours, then receives from both."""
        kind, random = self.kind, self.random
        apart = kind.ranks_per_node
        count = int(members.sum())
        ranks = np.flatnonzero(members)
        ends = now.copy()
        sent = now + random.integers(3_000, 60_000, self.ranks)
        # To the next (tag 0), then to the one before (tag 1).
        send = {tag: sent + 4_000 * tag for tag in (0, 1)}
        free = sent + 9_000
        for rank in ranks:
            for tag in (0, 1):
                partner = int(rank + (apart if tag == 0 else -apart)) % count
                self.events[rank].p2p.append((int(send[tag][rank]), int(send[tag][rank]) + 1_500, "MPI_Send", partner, tag))
        for tag in (0, 1):
            travelled = kind.latency[tag] + random.exponential(3_000, self.ranks)
            start = free.copy()
            for rank in ranks:
                source = int(rank - (apart if tag == 0 else -apart)) % count
                arrived = int(send[tag][source] + travelled[rank])
                end = max(arrived, int(start[rank]) + 800)
                self.events[rank].p2p.append((int(start[rank]), end, "MPI_Recv", source, tag))
                free[rank] = ends[rank] = end + 1_000
        return ends

    def _messages_of_nccl(self, start: Times, last: int, done: int, end: Times) -> None:
        """Marks of the proxy threads: from the last rank of a node to the first of the next in a ring, both ways in a tree."""
        kind = self.kind
        per_node, nodes = kind.ranks_per_node, kind.nodes
        if kind.algorithm == "tree":
            pairs = [pair for node in range(1, nodes) for pair in (((node - 1) // 2, node), (node, (node - 1) // 2))]
            between = [(source * per_node, to * per_node) for source, to in pairs]
        else:
            between = [((node + 1) * per_node - 1, (node + 1) % nodes * per_node) for node in range(nodes)]
        for source, to in between:
            least = int(self.random.uniform(10_000, 300_000))
            posted = np.sort(self.random.uniform(last, done, kind.net_messages)).astype(np.int64)
            posted += 8_000 * np.arange(kind.net_messages)
            taken = np.rint(least + self.random.exponential(200_000, kind.net_messages)).astype(np.int64)
            # One thread does one thing after the other.
            complete = np.maximum.accumulate(posted + taken) + 1_500 * np.arange(kind.net_messages)
            first = self.sent.get((source, to), 0)
            self.sent[source, to] = first + kind.net_messages
            for place in range(kind.net_messages):
                sequences = {0: None, 1: (place, place), 2: (first + place, place)}[self.sequences]
                ready = int(start[to]) + 3_000 + 1_400 * place
                self._message_of_nccl(source, to, ready, int(posted[place]), int(complete[place]), sequences)
            end[to] = max(int(end[to]), int(complete[-1]) + 20_000)

    def _message_of_nccl(
        self, source: int, to: int, ready: int, posted: int, complete: int, sequences: tuple[int, int] | None
    ) -> None:
        def text(call: str, side: int) -> str:
            sequence = "" if sequences is None else f", Sequence: {sequences[side]}"
            return f"{call}(): Data_Size: 65536, Sender_Rank: {source}, Receiver_Rank: {to}, Channel_ID: 0{sequence}"

        # A send that the network can't take yet is tried again.
        tries = int(self.random.integers(1, 4)) if self.tries_again else 1
        of_source, of_target = self.events[source].net, self.events[to].net
        of_source += [(posted - 2_000 * back, posted - 2_000 * back + 600, text("ncclNetIsend", 0)) for back in range(tries)]
        of_source.append((complete + 5_000, None, text("ncclNetSendTest", 0)))
        of_target.append((ready, None, text("ncclNetIrecv", 1)))
        of_target.append((complete, None, text("ncclNetRecvTest", 1)))

    def _lose(self, stop: int) -> None:
        """Take out what was not recorded."""
        kind, random = self.kind, self.random
        loses = random.permutation(self.ranks) < self.ranks * kind.lost_on
        begin = kind.sessions_apart + _STARTUP
        for rank, events in enumerate(self.events):
            since = begin
            if kind.late_host and self.on_last_host[rank]:
                since = (begin + stop) // 2
            if kind.late_starts:
                since = begin + int(random.integers(kind.late_starts + 1)) * kind.iteration + kind.iteration // 2
            if since > begin:
                self.session[rank] += since - begin
            for name in ("nccl", "mpi"):
                rows = [row for row in getattr(events, name) if row[0] >= since]
                if kind.lost and loses[rank]:
                    rows = [row for row in rows if random.random() >= kind.lost]
                if kind.sparse_host and self.on_last_host[rank]:
                    rows = rows[::3]
                setattr(events, name, rows)
            events.p2p = [row for row in events.p2p if row[0] >= since]

    # -- reports --------------------------------------------------------------------------------------------------------

    def _clocks(self, stop: int) -> list[TrueClock]:
        kind, random = self.kind, self.random
        jumping = int(random.integers(kind.nodes)) if kind.jump else -1
        return [
            TrueClock(
                int(random.uniform(-kind.utc_apart, kind.utc_apart)),
                random.uniform(-kind.drift_ppm, kind.drift_ppm) * 1e-6,
                random.uniform(0, 1_000),
                random.uniform(20e9, 200e9),
                *(self._jump(stop) if node == jumping else ()),
            )
            for node in range(kind.nodes)
        ]

    def _jump(self, stop: int) -> tuple[float, int, int]:
        """When the clock of a host jumps, by how much, and for how long it is slewed."""
        kind, random = self.kind, self.random
        assert kind.jump is not None
        size = 10 ** random.uniform(*np.log10(kind.jump)) * random.choice([-1, 1])
        begin = kind.sessions_apart + _STARTUP
        return begin + (stop - begin) * random.uniform(*kind.jump_place), int(size), kind.jump_lasts

    def _report(self, rank: int, clock: TrueClock, boot: int, shifted: bool) -> SimulatedReport:
        kind, events, session = self.kind, self.events[rank], int(self.session[rank])
        started = int(clock.elapsed(np.array(session)))
        utc = _UTC + clock.offset + started + int(self.random.uniform(0, kind.utc_read))
        builder = ReportBuilder(
            host=f"node{self.node[rank] + 1:02d}",
            pid=20_000 + 7 * rank,
            rank=rank,
            ranks=self.ranks,
            with_mpi=bool(kind.mpi or kind.mpi_messages),
            utc_ns=utc,
            monotonic_ns=boot + started if kind.monotonic else None,
            environment={"SLURM_LOCALID": str(rank % kind.ranks_per_node), "SLURM_NODEID": str(self.node[rank])},
        )
        shift = utc if shifted else 0
        if shift:
            for name, value in (("PARAM_TIME_NORMALIZE", "true"), ("PARAM_TIME_SHIFT", "0"), ("CONFIG_TIME_SHIFT", str(shift))):
                builder.row("META_DATA_EXPORT", name=f"EXPORT_{name}", value=value)
        begin = shift - started

        def shown(time: int) -> int:
            return int(clock.elapsed(np.array(time))) + begin

        true = events.times
        self._fill(builder, events, shown)
        # Not read for clocks, and as many as all other tables together.
        tables = {name: frame for name, frame in builder.tables().items() if not name.startswith("ENUM_")}
        if "MPI_COMMUNICATORS" in tables:
            tables["MPI_COMMUNICATORS"] = tables["MPI_COMMUNICATORS"].with_columns(pl.col("timestamp") + shift)
        first, last = int(true.min()), int(true.max())
        in_session = clock.elapsed(np.array([first, last])) - started
        return SimulatedReport(
            rank, int(self.node[rank]), clock, session, (int(in_session[0]), int(in_session[1])), (first, last), tables
        )

    def _fill(self, report: ReportBuilder, events: _Events, shown: Callable[[int], int]) -> None:
        """Add the events of a rank; `shown` gives what the report has for a true time."""
        for start, end, name in events.nccl if self.kind.with_kernels else ():
            kernel = f"ncclKernel_{name}(ncclDevComm *, unsigned long, ncclWork *)"
            report.kernel(kernel, shown(start), shown(end), stream=15)
        for start, end, name in events.mpi:
            if name in _MPI:
                report.mpi_collective(name, shown(start), shown(end), size=8, received=8)
            else:
                report.mpi_other(name, shown(start), shown(end))
        for start, end, name, partner, tag in events.p2p:
            report.mpi_p2p(name, shown(start), shown(end), partner=partner, size=4_096, tag=tag)
        proxy = report.pid + 1
        for start, until, text in sorted(events.net, key=lambda row: row[0]):
            if until is None:
                report.nvtx_mark(text, shown(start), tid=proxy)
            else:
                report.nvtx_range(text, shown(start), shown(until), tid=proxy)
