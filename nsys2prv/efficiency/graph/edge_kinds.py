"""Kinds of edges of the graph of a run.

An edge says that one moment must be before another by some time at least. Its kind says what takes that time, or what it is
that the second one waits for.
"""

from __future__ import annotations

DEVICE_WORK = 0
"""From start to end of an interval on a device: it takes its duration."""
TRANSFER = 1
"""From start to end of a member of a collective: what it takes once all members are there."""
ARRIVAL = 2
"""From the start of each member of a collective to that of the last one: none ends before all have arrived. In a replay another
one may be the last."""
COLLECTIVE = 3
"""From the start of the last member of a collective to the end of each: what it takes once all members are there."""
STREAM_ORDER = 4
"""From the end of an operation to the start of the next one of its stream."""
LAUNCH = 5
"""From the start of a call to the start of what it launched."""
SYNCHRONIZATION = 6
"""From the end of an operation to the end of the call that waited for it."""
EVENT_WAIT = 7
"""From the end of an operation before a recorded event to the start of one on a stream that waits for the event."""
HOST = 8
"""Between two moments of a host thread, one after the other."""
BLOCKED_CALL = 9
"""From the start to the end of a call of a host thread that waits for something else: what it takes without the wait."""
MESSAGE = 10
"""From the start of a send to the end of what receives it, or the other way round."""
WAKE_UP = 11
"""From what a thread does to the end of the wait of another one that it wakes."""
LAUNCH_QUEUE = 12
"""From the start of an operation to the end of a launch that waited for a place in the queue."""

NAMES = (
    "device work",
    "transfer",
    "arrival",
    "collective",
    "stream order",
    "launch",
    "synchronization",
    "event wait",
    "host",
    "call",
    "message",
    "wake-up",
    "launch queue",
)
"""Names of the kinds for people."""
KINDS = range(len(NAMES))
"""All kinds."""

PREFERENCE = (0, 1, 10, 3, 7, 6, 5, 2, 8, 9, 2, 2, 4)
"""Which edge counts where several of them determine a moment equally: the kind with the lowest number. An order in a stream,
which explains nothing, comes after what else the moment waited for."""
