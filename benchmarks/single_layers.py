"""What the benchmarks of networks of one layer share: engines in one process, in turns."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

__all__ = ["HEADER", "THREADS", "geometric_mean", "line", "measured"]

ENGINES: Final = ("CpuAcc", "ONNX Runtime", "OpenVINO")
HEADER: Final = f"{'':36}{'CpuAcc':>10}{'ONNX Rt.':>10}{'OpenVINO':>10}  ms   ratio"
THREADS: Final = "1"
TOLERANCE: Final = 1e-3
"""How far results may differ, as a part of the largest number."""
TURN_SECONDS: Final = 0.01


def measured(model: Any, inputs: Sequence[Any], seconds: float) -> list[float]:
    """Return the shortest time of a run on each engine, in seconds; infinite if the engine does not run the model.

    Raises:
        SystemExit: the engines give different results.
    """
    import onnx  # noqa: PLC0415 - it is optional

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.onnx"
        onnx.save(model, path)
        prepared = [_prepared(name, path, inputs) for name in ENGINES]
        results = [item[1] for item in prepared if item is not None]
        for result in results[1:]:
            _compare(result, results[0], model)
        return _interleaved([item and item[0] for item in prepared], seconds)


def line(name: str, times: Sequence[float]) -> str:
    """Return a line of the table: the times in milliseconds, and the ratio of the best other engine to CpuAcc."""
    cells = "".join(f"{1e3 * seconds:10.3f}" if math.isfinite(seconds) else f"{'-':>10}" for seconds in times)
    return f"{name:36}{cells}    {min(times[1:]) / times[0]:6.2f}"


def geometric_mean(ratios: Sequence[float]) -> str:
    """Return a line about all finite ratios."""
    finite = [ratio for ratio in ratios if math.isfinite(ratio)]
    mean = math.exp(sum(map(math.log, finite)) / max(1, len(finite)))
    return f"geometric mean of {len(finite)} ratios: {mean:.2f}, smallest: {min(finite, default=math.nan):.2f}"


def _compare(result: Any, expected: Any, model: Any) -> None:
    wide, other = result.astype(np.float64), expected.astype(np.float64)
    step = 0 if result.dtype.kind == "f" else 1  # engines round integers differently
    if wide.shape != other.shape or (
        wide.size and np.max(np.abs(wide - other)) > max(step, TOLERANCE * np.max(np.abs(wide)))
    ):
        raise SystemExit(f"the engines give different results for {model.graph.node[0].op_type}")


def _prepared(name: str, path: Path, inputs: Sequence[Any]) -> tuple[Callable[[], Any], Any] | None:
    """Return the fastest way to call an engine, and its first result; None if it does not run the model."""
    from benchmarks.engines import engine  # noqa: PLC0415 - after the number of threads was set

    runner = engine(name)
    runner.begin()
    cache = path.parent / name
    cache.mkdir()
    try:
        runner.load(path, int(THREADS), cache)
        runner.feed(inputs)
        for call in runner.ways().values():
            call()
    except Exception as error:
        print(f"{name} does not run it: {str(error).splitlines()[0][:100]}")
        return None
    return call, np.array(runner.outputs()[0])


def _interleaved(calls: Sequence[Callable[[], Any] | None], seconds: float) -> list[float]:
    """Return the shortest time of each call. Calls take turns, each of about 10 ms."""
    best = [math.inf] * len(calls)
    for _ in range(max(2, round(seconds / TURN_SECONDS))):
        for n, call in enumerate(calls):
            end = time.perf_counter() + TURN_SECONDS
            while call is not None and (start := time.perf_counter()) < end:
                call()
                best[n] = min(best[n], time.perf_counter() - start)
    return best
