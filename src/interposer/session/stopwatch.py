"""Times of the layers and copies of a loaded network, measured in separate timed runs."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import Array
from interposer.report.optimized import OptimizedNetwork
from interposer.report.times import Times
from interposer.runtime import RunControl
from interposer.session.placement.cuts import example

__all__ = ["example_inputs", "measured_times"]

FEWEST: Final = 5
MOST: Final = 1000


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
    if not (budget_seconds > 0 and math.isfinite(budget_seconds)):
        raise InvalidArgumentError(f"budget_seconds must be more than 0, not {budget_seconds}")
    run(None)
    whole: list[float] = []
    watched: list[_Stopwatch] = []
    end = time.perf_counter() + budget_seconds
    while len(whole) < FEWEST or (len(whole) < MOST and time.perf_counter() < end):
        start = time.perf_counter()
        run(None)
        whole.append(time.perf_counter() - start)
        watched.append(_Stopwatch())
        run(watched[-1])
    names = dict.fromkeys(name for item in watched for name in item.seconds)
    units = {name: statistics.median(item.seconds[name] for item in watched) * 1e3 for name in names}
    return Times(statistics.median(whole) * 1e3, units, "measured", len(whole))


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
