"""What the benchmarks of networks of one layer share: the command, and engines in one process, in turns."""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import numpy as np

__all__ = ["Build", "run"]

Build = Callable[[], tuple[Any, Sequence[Any]]]
"""Returns an ONNX model of one layer, and its inputs."""

ENGINES: Final = ("CpuAcc", "ONNX Runtime", "OpenVINO")
HEADER: Final = f"{'':36}{'CpuAcc':>10}{'ONNX Rt.':>10}{'OpenVINO':>10}  ms   ratio"
THREADS: Final = "1"
TOLERANCE: Final = 1e-3
"""How far results may differ, as a part of the largest number."""
TURN_SECONDS: Final = 0.01


def run(name: str, description: str | None, cases: Mapping[str, Build], words: Sequence[str] | None) -> int:
    """Measure the layers whose names match a pattern of the command line, and print a table.

    Args:
        name: the name of the suite.
        description: the text of `--help`.
        cases: functions by the names of the layers; each returns an ONNX model and its inputs.
        words: the arguments of the command line, or None for those of the process.
    """
    args = _parser(name, description).parse_args(words)
    os.environ["INTERPOSER_NUM_THREADS"] = THREADS
    selected = [title for title in cases if any(fnmatchcase(title, pattern) for pattern in args.layers)]
    if not selected:
        print(f"no such layer: {' '.join(args.layers)}; there are {', '.join(cases)}", file=sys.stderr)
        return 2
    ratios: list[float] = []
    print(HEADER)
    for title in selected:
        times = measured(*cases[title](), args.seconds)
        ratios.append(min(times[1:]) / times[0])
        print(line(title, times), flush=True)
    print(geometric_mean(ratios))
    return 0


def _parser(name: str, description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"run.py {name}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("layers", nargs="*", default=["*"], help="patterns of names, such as 'conv3d*'; all by default")
    parser.add_argument("--seconds", type=float, default=0.3, help="time for each engine and layer (0.3)")
    return parser


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
        outputs_of_engine = [engine[1] for engine in prepared if engine is not None]
        for outputs in outputs_of_engine[1:]:
            _compare(outputs, outputs_of_engine[0], model)
        return _interleaved([engine and engine[0] for engine in prepared], seconds)


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
