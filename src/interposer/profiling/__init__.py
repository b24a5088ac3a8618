"""Profiling: the events of runs, loads and backends, their recorders, and the files they are written to."""

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
from interposer.profiling.profile import CounterTotal, LayerTimes, Profile, profile
from interposer.profiling.profiler import Profiler
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
