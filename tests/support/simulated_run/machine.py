"""What things cost on the simulated machine."""

from typing import NamedTuple


class Machine(NamedTuple):
    """Costs, ns."""

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
    end_spread: int = 300
