"""Times of the layers and copies of a loaded network, measured in separate timed runs."""

from __future__ import annotations

import math
import statistics
import threading
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import Array
from interposer.profiling import Category, Interval, Recorder, Recording, Site
from interposer.profiling.recorder import Enclosing
from interposer.report.optimized import OptimizedNetwork
from interposer.report.times import Times
from interposer.runtime import RunControl
from interposer.runtime.asynchronous import each_alone
from interposer.session.placement.cuts import example
from interposer.session.timing import spread_of

__all__ = ["example_inputs", "measured_times", "recorded_times"]

FEWEST: Final = 5
MOST: Final = 1000
TURNS: Final = 4
"""The number of turns of whole runs, and of runs that are recorded."""
_LEAST_IN_TURN: Final = 2


class _Stopwatch(RunControl):
    """The control of one run that records how many seconds each layer takes, by name.

    The iterations of a layer inside a loop are added up.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds: Counter[str] = Counter()
        self._lock = threading.Lock()

    def ran(self, place: str, seconds: float) -> None:
        with self._lock:
            self.seconds[place] += seconds  # type: ignore[assignment] # seconds are no whole numbers


def measured_times(run: Callable[[RunControl | None], Any], budget_seconds: float) -> Times:
    """Time whole runs, alternating with runs in which every layer is timed.

    Args:
        run: runs the network once; the argument is the control that times the layers, or None for a whole run.
        budget_seconds: how long to measure, after a warm-up run that is not counted. At least `FEWEST` and at most
            `MOST` runs of each kind are measured.

    Raises:
        InvalidArgumentError: `budget_seconds` is not positive and finite.
        InterposerError: any error that a run raises.
    """
    _check_budget(budget_seconds)
    run(None)
    whole_seconds: list[float] = []
    stopwatches: list[_Stopwatch] = []
    end = time.perf_counter() + budget_seconds
    while len(whole_seconds) < FEWEST or (len(whole_seconds) < MOST and time.perf_counter() < end):
        start = time.perf_counter()
        run(None)
        whole_seconds.append(time.perf_counter() - start)
        stopwatches.append(_Stopwatch())
        run(stopwatches[-1])
    names = dict.fromkeys(name for stopwatch in stopwatches for name in stopwatch.seconds)
    units = {name: statistics.median(stopwatch.seconds[name] for stopwatch in stopwatches) * 1e3 for name in names}
    spread = spread_of(whole_seconds)
    return Times(statistics.median(whole_seconds) * 1e3, units, "measured", len(whole_seconds), spread=spread)


def _check_budget(budget_seconds: float) -> None:
    if not (budget_seconds > 0 and math.isfinite(budget_seconds)):
        raise InvalidArgumentError(f"budget_seconds must be more than 0, not {budget_seconds}")


def recorded_times(run: Callable[[], Any], budget_seconds: float, *, overlaps: Callable[[], bool]) -> Times:
    """Time whole runs, in turns with runs that a profile records, with the layers inside of compiled layers.

    `overlaps` is called after the runs. It says whether layers may overlap in whole runs, as some are submitted to
    queues; they never do in others.

    `run` runs the network once in this thread; the other argument and the exceptions are those of `measured_times`. The
    first run of each recording is not counted, because engines may compile again in it.
    """
    _check_budget(budget_seconds)
    run()
    whole_seconds: list[float] = []
    recorded_runs: list[_Recorded] = []
    end = time.perf_counter() + budget_seconds
    while len(whole_seconds) < FEWEST or (len(whole_seconds) < MOST and time.perf_counter() < end):
        for _ in _turn(budget_seconds / TURNS / 2):
            start = time.perf_counter()
            run()
            whole_seconds.append(time.perf_counter() - start)
        with Recorder(thread=threading.get_ident()) as recorder, each_alone():
            run()
            for _ in _turn(budget_seconds / TURNS / 2):
                run()
        recorded_runs += _recorded_runs(recorder.recording())[1:]
    units, layers, others, devices = map(_medians, zip(*recorded_runs, strict=True))
    whole_milliseconds, spread = statistics.median(whole_seconds) * 1e3, spread_of(whole_seconds)
    overlap = max(0.0, sum(units.values()) - whole_milliseconds) if overlaps() else None
    return Times(
        whole_milliseconds, units, "measured", len(whole_seconds), layers=layers, others=others, spread=spread,
        overlap=overlap, devices=devices,
    )  # fmt: skip


def _turn(seconds: float) -> Iterator[int]:
    """Yield numbers until the time is over, but at least `_LEAST_IN_TURN` and at most `MOST` of a turn."""
    end = time.perf_counter() + seconds
    for number in range(MOST // TURNS):
        if number >= _LEAST_IN_TURN and time.perf_counter() >= end:
            return
        yield number


class _Recorded(NamedTuple):
    """The milliseconds of the layers and copies of one run by name, and of the steps inside of them.

    Steps are in `layers` by the names of their layers, or in `others` by the layer that runs them. `devices` has the
    milliseconds of the steps and copies of each device, by its own clock.
    """

    units: Mapping[str, float]
    layers: Mapping[str, float]
    others: Mapping[str, float]
    devices: Mapping[str, float]


def _medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: statistics.median(run.get(name, 0.0) for run in runs) for name in names}


def _recorded_runs(recording: Recording) -> list[_Recorded]:
    """Return the runs of a recording, in the order of their begins."""
    runs: dict[int, list[Interval]] = {}
    for interval in recording.intervals:
        if interval.run >= 0:
            runs.setdefault(interval.run, []).append(interval)
    return [_recorded_run(intervals) for intervals in runs.values()]


def _recorded_run(intervals: Sequence[Interval]) -> _Recorded:
    seconds_of_unit, seconds_of_layer, seconds_of_others, seconds_of_device = (
        defaultdict[str, float](float) for _ in range(4)
    )
    running_units = [
        interval
        for interval in intervals
        if interval.site.category in (Category.LAYER, Category.COPY) and interval.site.layer
    ]
    for interval in running_units:
        seconds_of_unit[interval.site.layer] += interval.duration / 1e6
    device_units = Enclosing(unit for unit in running_units if unit.site.category is Category.LAYER)
    for interval in intervals:
        device = interval.site.device
        if device:
            seconds_of_device[device] += interval.duration / 1e6
        is_step = interval.site.category is Category.KERNEL
        unit = (device_units.layer(interval) if device else _unit_of(interval, running_units)) if is_step else None
        if unit is not None:
            layer = _layer_of(interval.site, unit.site.layers)
            milliseconds, name = (seconds_of_layer, layer) if layer else (seconds_of_others, unit.site.layer)
            milliseconds[name] += interval.duration / 1e6
    return _Recorded(seconds_of_unit, seconds_of_layer, seconds_of_others, seconds_of_device)


def _unit_of(step: Interval, running_units: Sequence[Interval]) -> Interval | None:
    """Return the running layer in which a backend measured a step, or None."""
    position = bisect_right(running_units, step.begin, key=lambda interval: interval.begin) - 1
    return running_units[position] if position >= 0 and step.end <= running_units[position].end + _ROUNDING else None


def _layer_of(step: Site, layers: Sequence[str]) -> str:
    """Return which of these layers a step computes, or "".

    The name of a step of CpuAcc is its operator and the layer that it computes, such as ``conv features/0``.
    """
    for name in filter(None, (step.layer, *_ends_of(step.name))):
        for layer in layers:
            if layer == name or layer.endswith(f"/{name}"):
                return layer
    return ""


def _ends_of(name: str) -> Iterator[str]:
    """Yield a name, and then what remains of it without its first words."""
    while name:
        yield name
        name = name.partition(" ")[2]


_ROUNDING: Final = 1000
"""Nanoseconds by which a step may end after its unit."""


def example_inputs(optimized: OptimizedNetwork) -> dict[str, Array]:
    """Return random arrays for the inputs of an optimized network by name, and zeros for integers that may be indices.

    Raises:
        InvalidArgumentError: an input is not a tensor of numbers with a known shape.
    """
    infos = {layer.name: layer.output.known for layer in optimized.inputs}
    for name, info in infos.items():
        if not info.is_tensor or not info.is_concrete or info.dtype.numpy.kind == "O":
            raise InvalidArgumentError(f"input {name!r} is {info}; measuring needs an array for it: give inputs")
    return {name: example(info, seed) for seed, (name, info) in enumerate(infos.items())}
