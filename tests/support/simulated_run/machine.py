"""What things cost on the simulated machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """Costs, ns.

    Attributes
    ----------
    launch_call, graph_call, copy_call
        A call that launches a kernel; a graph; a copy or a memset.
    launch_latency
        From the start of that call to the earliest start of the work.
    call
        Any other call of CUDA or MPI that does not wait.
    wake
        From the end of work, or of a message, to the end of a call that waits for it.
    between
        Between two pieces of work of a stream.
    event_latency
        From the end of work to the start of what waits for its event.
    queue
        Pieces of work of a stream that can be launched and not have started; the next call waits. None: no limit.
    thread_wake
        From a signal to the end of the wait for it.
    eager
        Messages of MPI up to so many bytes don't wait for their receiver.
    message_latency, message_bandwidth
        Of messages of MPI, ns and bytes per ns.
    transfer_factor
        Of what moves over the network: collectives and messages. 0: an ideal network.
    late_ranks_matter
        Whether members of collectives wait for the last one.
    end_spread
        A member ends a collective of NCCL up to so much later than the first one.
    """

    launch_call: int = 4_500
    graph_call: int = 9_000
    copy_call: int = 4_500
    launch_latency: int = 6_000
    call: int = 1_500
    wake: int = 3_000
    between: int = 900
    event_latency: int = 2_000
    queue: int | None = 1_024
    thread_wake: int = 9_000
    eager: int = 16_384
    message_latency: int = 2_500
    message_bandwidth: float = 10.0
    transfer_factor: float = 1.0
    late_ranks_matter: bool = True
    end_spread: int = 300
