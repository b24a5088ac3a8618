"""Helpers around the profiler."""

from pyarmnn._utilities.profiling_helper import ProfilerData, get_profiling_data

__all__ = ["ProfilerData", "get_profiling_data"]
