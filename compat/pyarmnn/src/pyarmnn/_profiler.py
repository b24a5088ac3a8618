"""The profiler of a loaded network."""

from __future__ import annotations

from typing import Protocol

from pyarmnn._arguments import BOOL
from pyarmnn._proxy import Abstract, borrowed

__all__ = ["IProfiler", "profiler_of"]


class CoreProfiler(Protocol):
    """What `interposer.Runtime.get_profiler` returns."""

    def is_profiling_enabled(self) -> bool:
        """Return True while runs are recorded."""

    def enable_profiling(self, enable: bool = True) -> None:
        """Start or stop recording runs."""

    def event_log(self) -> str:
        """Return the events as a table."""

    def as_json(self) -> str:
        """Return the events as JSON in Arm NN's form."""


class IProfiler(Abstract, cpp="armnn::IProfiler", destructor=False):
    """Measures the time of each layer in runs of a network. `IRuntime.GetProfiler` returns it; it is disabled at first.

    It may be used after the network is unloaded.
    """

    _profiler: CoreProfiler

    def EnableProfiling(self, enableProfiling: bool) -> None:
        """Start or stop the measurement of runs.

        Raises:
            TypeError: the argument is no bool.
        """
        self._profiler.enable_profiling(BOOL(enableProfiling, "IProfiler_EnableProfiling", 2))

    def IsProfilingEnabled(self) -> bool:
        """Return whether runs are measured."""
        return self._profiler.is_profiling_enabled()

    def event_log(self) -> str:
        """Return the measured events as a text: a table of all events, statistics by name, and each inference."""
        return self._profiler.event_log()

    def as_json(self) -> str:
        """Return the times of all inferences as JSON in Arm NN's form; `get_profiling_data` reads it."""
        return self._profiler.as_json()


def profiler_of(profiler: CoreProfiler) -> IProfiler:
    """Return the profiler of Interposer under Arm NN's interface; the runtime owns it."""
    wrapper = borrowed(IProfiler._create())
    wrapper._profiler = profiler
    return wrapper
