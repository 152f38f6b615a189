"""What rules take for much or little: every number, with its reason, in one table.

A share is one of the active time of a device, from its first to its last activity, unless its line says otherwise: a device is
named when it is itself beyond all limits of a rule.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """A number that a rule compares with.

    Attributes
    ----------
    kind
        The rule.
    what
        What is compared.
    value, unit
        The number; the unit is ns, bytes, "0 to 1" or nothing.
    reason
        Why it is this one.
    """

    kind: str
    what: str
    value: float
    unit: str
    reason: str


ALL = "all rules"
LAUNCH, TURNS, HOST, DATA = "launch-bound", "ping-pong", "host-bound", "data-loading"
SLOW_DEVICE, IMBALANCE, MODES = "slow-device", "imbalance", "two-modes"
COMMUNICATION, ALLOCATIONS = "uncovered-communication", "allocations"
PAGEABLE, SMALL_COPIES, DEFAULT_STREAM, CLOCK = "pageable-copies", "small-copies", "default-stream", "clock-drop"

LEAST_COST = Limit(ALL, "least cost of a finding", 1_000_000, "ns", "a start of a few ms is not a run to judge")
LEAST_SHARE = Limit(ALL, "least cost of a finding, of E n", 0.01, "0 to 1", "less of the run is not worth a look")
RECURRING = Limit(
    ALL, "of the tenths of a device's active time, least part in which it is seen (where a rule asks that it recurs)", 0.5,
    "0 to 1", "else it belongs to a phase, such as the start",
)  # fmt: skip
ACTIVE_PARTS = Limit(
    ALL, "least part of the window from first to last activity of a device (likewise)", 0.1, "0 to 1",
    "less says nothing of a loop",
)  # fmt: skip

LAUNCH_GAP = Limit(
    LAUNCH, "longest gap that counts", 100_000, "ns", "a launch takes 2 to 20 us, with Python around it up to 100"
)
LAUNCH_AHEAD = Limit(
    LAUNCH, "longest time that the launch begins before the gap", 5_000, "ns", "a launch takes as long; else the device is late"
)
LAUNCH_PART = Limit(
    LAUNCH, "least part of the gap in launches or between calls", 0.9, "0 to 1", "else it waits, copies or allocates"
)
LAUNCH_COUNT = Limit(LAUNCH, "fewest such gaps on a device", 100, "", "the first launch after any wait leaves such a gap too")
LAUNCH_KERNEL = Limit(
    LAUNCH,
    "longest kernel behind such a gap against the gap (means)",
    4,
    "",
    "beyond, the gaps are less than a fifth of the time",
)
LAUNCH_SHARE = Limit(LAUNCH, "least share lost", 0.05, "0 to 1", "less is the normal price of launches")

TURN_GAP = Limit(TURNS, "longest gap that counts", 200_000, "ns", "a turn is the end of a wait, a look at the result, a launch")
TURN_BYTES = Limit(TURNS, "largest copy of a result", 65_536, "bytes", "flags, norms and the like; it takes mostly latency")
TURN_COUNT = Limit(TURNS, "fewest turns on a device", 50, "", "few are the ends of phases")
TURN_SHARE = Limit(TURNS, "least share lost", 0.05, "0 to 1", "one turn per iteration is normal: the loss is shown")

HOST_PART = Limit(HOST, "least part of the gap outside CUDA and MPI calls", 0.5, "0 to 1", "else the calls dominate")
HOST_COUNT = Limit(HOST, "fewest such gaps on a device", 10, "", "few are phases of the program, such as an initialisation")
HOST_SHARE = Limit(HOST, "least share lost, without the longest gap", 0.05, "0 to 1", "the longest is often a phase of its own")

DATA_GAP = Limit(DATA, "shortest gap that counts", 1_000_000, "ns", "a batch that is ready is copied within some 100 us")
DATA_BYTES = Limit(DATA, "smallest copy behind it", 16_384, "bytes", "smaller ones are flags and parameters, and no batch")
DATA_COUNT = Limit(DATA, "fewest such gaps on a device", 3, "", "the first batch always comes late, and one more may")
DATA_REACH = Limit(
    DATA, "least part of a device's active time from the first to the last of them", 0.3, "0 to 1", "else it is a phase"
)
DATA_SHARE = Limit(DATA, "least share lost", 0.02, "0 to 1", "less is not worth more loading processes")

SLOW_RATIO = Limit(
    SLOW_DEVICE, "least ratio of durations to the median device", 1.05, "", "GPUs of one kind differ by some percent"
)
SLOW_AGREEING = Limit(
    SLOW_DEVICE, "least part of the time in kernels that are slower there", 0.75, "0 to 1",
    "else single kernels have other work there",
)  # fmt: skip
SLOW_COUNTS = Limit(
    SLOW_DEVICE, "largest difference of executions of a kernel to the median device", 0.05, "0 to 1",
    "other counts are other work",
)  # fmt: skip
SLOW_EXECUTIONS = Limit(SLOW_DEVICE, "fewest executions of a kernel on a device", 10, "", "means of fewer are chance")
SLOW_COMPARED = Limit(
    SLOW_DEVICE, "least part of the kernel time that can be compared", 0.5, "0 to 1", "else the devices do different things"
)
SLOW_SHARE = Limit(
    SLOW_DEVICE, "least share lost, of the active time of all", 0.02, "0 to 1", "less is within the spread of GPUs"
)

IMBALANCE_SHARE = Limit(
    IMBALANCE,
    "least share lost, of n x the active time of all, beside what slow devices explain",
    0.05,
    "0 to 1",
    "a load balance above 95 % is good",
)

MODES_RATIO = Limit(MODES, "least ratio of the modes (means)", 1.2, "", "sharing the GPU always costs some percent")
MODES_COUNT = Limit(MODES, "fewest executions of each mode", 20, "", "fewer are no mode")
MODES_APART = Limit(
    MODES, "part of each mode on its side of the middle (geometric mean of the means)", 0.9, "0 to 1", "only then the company "
    "explains the modes, and not the work",
)  # fmt: skip
MODES_SHARE = Limit(MODES, "least share lost", 0.01, "0 to 1", "less is not worth a look")

COMMUNICATION_PART = Limit(
    COMMUNICATION, "least part of the time of NCCL kernels, waits left out, that nothing covers", 0.3, "0 to 1",
    "the last bucket of a step is never covered",
)  # fmt: skip
COMMUNICATION_COUNT = Limit(
    COMMUNICATION, "fewest NCCL kernels on a device", 10, "", "few are a start: broadcasts of parameters"
)
COMMUNICATION_SHARE = Limit(COMMUNICATION, "least share lost", 0.05, "0 to 1", "less is the normal end of a step")

ALLOCATION_COUNT = Limit(ALLOCATIONS, "fewest gaps with such calls", 10, "", "fewer belong to the begin of phases")
ALLOCATION_SHARE = Limit(ALLOCATIONS, "least share lost", 0.01, "0 to 1", "they are easily avoided")

PAGEABLE_BYTES = Limit(
    PAGEABLE,
    "smallest copy",
    65_536,
    "bytes",
    "smaller ones to the device return before they are done also from pageable memory",
)
PAGEABLE_COUNT = Limit(PAGEABLE, "fewest copies on a device", 10, "", "fewer are those of a start")
PAGEABLE_SHARE = Limit(PAGEABLE, "least share lost", 0.01, "0 to 1", "they are easily avoided")

SMALL_BYTES = Limit(SMALL_COPIES, "largest copy", 65_536, "bytes", "below, latency and not bandwidth is what a copy takes")
SMALL_GAP = Limit(SMALL_COPIES, "longest gap between two of them that counts", 100_000, "ns", "as for launches")
SMALL_COUNT = Limit(SMALL_COPIES, "fewest copies on a device", 500, "", "a few per iteration are normal")
SMALL_SHARE = Limit(SMALL_COPIES, "least share lost", 0.02, "0 to 1", "less is not worth a change of the program")

STREAM_NEAR = Limit(
    DEFAULT_STREAM, "longest time from the end on the default stream to the begin on the other", 10_000, "ns",
    "then the one waited for the other",
)  # fmt: skip
STREAM_WAITING = Limit(
    DEFAULT_STREAM, "shortest time that the work was launched, and its stream free, before that end", 10_000, "ns",
    "then it was the stream that waited, not the host",
)  # fmt: skip
STREAM_COUNT = Limit(DEFAULT_STREAM, "fewest waits on a device", 20, "", "fewer are chance")
STREAM_PART = Limit(
    DEFAULT_STREAM, "least part of the work on other streams that waits", 0.5, "0 to 1", "else it is not the rule"
)
STREAM_BESIDE = Limit(
    DEFAULT_STREAM, "largest part of that work that begins beside the default stream", 0.02, "0 to 1",
    "streams that wait for it never do",
)  # fmt: skip
STREAM_SHARE = Limit(DEFAULT_STREAM, "least share lost", 0.02, "0 to 1", "less is not worth a change of the program")

CLOCK_BUSY = Limit(CLOCK, "least part of a bin in which the device runs kernels", 0.5, "0 to 1", "idle GPUs lower their clocks")
CLOCK_RATIO = Limit(CLOCK, "largest ratio to the median of the busy bins", 0.9, "", "GPUs give up some percent under load")
CLOCK_BINS = Limit(CLOCK, "fewest bins with such a clock", 3, "", "a single one may be an odd sample")
CLOCK_SHARE = Limit(CLOCK, "least share lost", 0.01, "0 to 1", "less is not worth a look")

LIMITS: tuple[Limit, ...] = tuple(found for found in list(globals().values()) if isinstance(found, Limit))
"""All of them, in the order of the rules."""
