"""Calls of cuBLAS and cuDNN."""

from __future__ import annotations

from nsys2prv.sources.source import call_source
from nsys2prv.vocabulary.event_types import EventType, Role, ValueSet

_MATH_LIBRARY_VALUES = ValueSet("math libraries")
CUBLAS_CALL = EventType(67000000, "cuBLAS call", Role.INTERVAL, _MATH_LIBRARY_VALUES)
CUDNN_CALL = EventType(67000001, "cuDNN call", Role.INTERVAL, _MATH_LIBRARY_VALUES)

_ASSUMPTION = "A row of {} is one call on the thread that made it, and nameId is the call's name."

CUBLAS = call_source("cublas", "cuBLAS calls", "CUBLAS_EVENTS", CUBLAS_CALL, {}, assumption=_ASSUMPTION.format("CUBLAS_EVENTS"))
CUDNN = call_source("cudnn", "cuDNN calls", "CUDNN_EVENTS", CUDNN_CALL, {}, assumption=_ASSUMPTION.format("CUDNN_EVENTS"))
