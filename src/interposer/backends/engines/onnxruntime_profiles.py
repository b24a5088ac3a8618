"""Profiles of ONNX Runtime: sessions that measure their nodes, and the files that they write at their end."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import threading
import time
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from interposer.backend import DeviceClock
from interposer.backends.engines.profiles import EngineStep
from interposer.core.types import Array

__all__ = ["MeasuredSession"]

_SUFFIX: Final = "_kernel_time"
_READINGS: Final = 8
"""How often both clocks are read for one pair of times."""
_MOST_RUNS: Final = 10_000
"""The number of runs that a session measures; ONNX Runtime keeps all of their nodes until its profile ends."""
_log: Final = logging.getLogger("interposer.profiling")


class _Runs(Protocol):
    """A session of ONNX Runtime, and how it runs on arrays."""

    session: Any

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run once."""


_S = TypeVar("_S", bound=_Runs)


class _Run(NamedTuple):
    """A run on a thread, by its native id and its id in Python, in nanoseconds of the host's clock."""

    native_id: int
    thread: int
    begin: int
    end: int


class MeasuredSession(Generic[_S]):
    """A session that measures its nodes from its begin to `end`. Runs may be concurrent.

    `create` returns the session that writes its profile to files with a prefix.
    """

    def __init__(self, create: Callable[[str], _S]) -> None:
        folder = tempfile.mkdtemp(prefix="interposer-")
        self._delete = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._owner = create(f"{folder}/profile")
        self._runs: list[_Run] = []
        self._clock = DeviceClock()
        self._correlate()

    def _correlate(self) -> None:
        """Read both clocks several times, and use the reading that took least: others may have been interrupted.

        ONNX Runtime's times are on the clock of the time of day.
        """
        readings = [(perf_counter_ns(), time.time_ns(), perf_counter_ns()) for _ in range(_READINGS)]
        time_before, time_of_day, time_after = min(readings, key=lambda reading: reading[2] - reading[0])
        self._clock.correlate(time_of_day, time_before, time_after)

    @property
    def is_full(self) -> bool:
        """True if the session has measured so many runs that no further ones may be measured."""
        return len(self._runs) >= _MOST_RUNS

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run once."""
        begin = perf_counter_ns()
        self._owner.run(inputs, outputs)
        self._runs.append(_Run(threading.get_native_id(), threading.get_ident(), begin, perf_counter_ns()))

    def warm_up(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run once on arrays with any content; this run is not measured, and its failure does not matter."""
        with suppress(Exception):  # ONNX Runtime's exceptions have no common base class
            self._owner.run(inputs, outputs)

    def end(self) -> list[EngineStep]:
        """End the session, and return the nodes of all runs; empty if its file cannot be read."""
        session = self._owner.session
        self._correlate()
        start = session.get_profiling_start_time_ns()
        try:
            rows = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
            return list(self._steps(rows, start))
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("the profile of ONNX Runtime cannot be read: %s: %s", type(error).__name__, error)
            return []
        finally:
            self._delete()

    def _steps(self, rows: Sequence[dict[str, Any]], start: int) -> Iterator[EngineStep]:
        """Yield the nodes that ran within a run of their thread; `start` is the moment to which their times relate."""
        by_thread: dict[int, list[_Run]] = {}
        for run in sorted(self._runs, key=lambda run: run.begin):
            by_thread.setdefault(run.native_id, []).append(run)
        for row in rows:
            if row.get("cat") != "Node" or not str(row["name"]).endswith(_SUFFIX):
                continue
            runs_of_thread = by_thread.get(int(row["tid"]), [])
            begin = self._clock.to_host(start + int(row["ts"]) * 1000)
            end = begin + int(row["dur"]) * 1000
            index = bisect_right(runs_of_thread, (begin + end) // 2, key=lambda run: run.begin) - 1
            if index < 0 or runs_of_thread[index].end < begin:
                continue
            run = runs_of_thread[index]
            name, kind = str(row["name"]).removesuffix(_SUFFIX), str(row.get("args", {}).get("op_name", ""))
            begin_and_end = sorted((run.begin, begin, run.end))[1], sorted((run.begin, end, run.end))[1]
            yield EngineStep(name, kind, *begin_and_end, run.thread)
