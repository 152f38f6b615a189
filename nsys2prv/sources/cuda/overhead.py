"""Overhead of the recording: inside CUDA, and of the profiler."""

from __future__ import annotations

from nsys2prv.sources.source import call_source
from nsys2prv.vocabulary.event_types import EventType, Role, ValueSet

_OVERHEAD_VALUES = ValueSet("overhead")
CUDA_OVERHEAD = EventType(63000600, "CUDA overhead", Role.INTERVAL, _OVERHEAD_VALUES)
PROFILER_OVERHEAD = EventType(63000601, "Profiler overhead", Role.INTERVAL, _OVERHEAD_VALUES)

# The profiler sets up something for each thread of the machine that it watches: a thread that has nothing else would look
# as if it ran all the time.
CUDA = call_source(
    "overhead", "CUDA overhead", "CUPTI_ACTIVITY_KIND_OVERHEAD", CUDA_OVERHEAD, {}, existing_rows_only=True, since="3.24"
)
PROFILER = call_source("overhead", "Profiler overhead", "PROFILER_OVERHEAD", PROFILER_OVERHEAD, {}, existing_rows_only=True)
