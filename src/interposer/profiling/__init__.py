"""Profiling: the events of runs, loads and backends, their recorders, and the files they are written to.

Public names are imported on first use: a run without a profile needs few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interposer.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from interposer.profiling.events import (
        Category,
        Counter,
        CounterClass,
        ForeignThread,
        HeldTensor,
        Holding,
        Instant,
        Interval,
        Sample,
        Site,
        TracedNetwork,
    )
    from interposer.profiling.external.options import ExternalProfilingOptions
    from interposer.profiling.marks import NvtxRanges, TraceMarks
    from interposer.profiling.memory import MemoryOwner, MemoryProfile
    from interposer.profiling.profiler import Profiler
    from interposer.profiling.profiles import CounterTotal, LayerTimes, Profile, profile
    from interposer.profiling.recorder import Recorder, Recording
    from interposer.profiling.telemetry import OpenTelemetry

__all__ = [
    "Category",
    "Counter",
    "CounterClass",
    "CounterTotal",
    "ExternalProfilingOptions",
    "ForeignThread",
    "HeldTensor",
    "Holding",
    "Instant",
    "Interval",
    "LayerTimes",
    "MemoryOwner",
    "MemoryProfile",
    "NvtxRanges",
    "OpenTelemetry",
    "Profile",
    "Profiler",
    "Recorder",
    "Recording",
    "Sample",
    "Site",
    "TraceMarks",
    "TracedNetwork",
    "profile",
]

_HOMES = {
    "events": (
        "Category", "Counter", "CounterClass", "ForeignThread", "HeldTensor", "Holding", "Instant", "Interval",
        "Sample", "Site", "TracedNetwork",
    ),
    "external.options": ("ExternalProfilingOptions",),
    "marks": ("NvtxRanges", "TraceMarks"),
    "memory": ("MemoryOwner", "MemoryProfile"),
    "profiler": ("Profiler",),
    "profiles": ("CounterTotal", "LayerTimes", "Profile", "profile"),
    "recorder": ("Recorder", "Recording"),
    "telemetry": ("OpenTelemetry",),
}  # fmt: skip
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
