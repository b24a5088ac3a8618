"""A process that measures one program, and prints the figures as JSON in its last line.

    python -m benchmarks.pytorch.worker first NAME WAY THREADS
    python -m benchmarks.pytorch.worker calls NAME WAYS THREADS ROUNDS SECONDS

`first` prints the seconds from the module to the first answer, after the same was done with a program of one layer.
`calls` prints the milliseconds of the calls of each way, or why it failed, and its deviation from eager results.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from benchmarks.pytorch.programs import Program, program
from benchmarks.pytorch.ways import WAYS, results

__all__ = ["main"]

Clock: TypeAlias = Callable[[], float]


def main(words: list[str]) -> None:
    """Measure what the command line asks for."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    kind, name, ways, threads, *others = words
    torch.set_num_threads(int(threads))
    with torch.inference_mode():
        figures = (
            first(name, ways, int(threads))
            if kind == "first"
            else calls(name, ways.split(","), int(threads), int(others[0]), float(others[1]))
        )
    print(json.dumps(figures))


def first(name: str, way: str, threads: int) -> dict[str, Any]:
    """Return the seconds to the first answer, also in the process's first use of the way."""
    with torch.inference_mode(mode=False):  # weights of inference mode have no version
        tiny = Program(torch.nn.Linear(4, 4).eval(), (torch.zeros(1, 4),))
        subject = program(name)
    clock = _clock(threads)
    return {"warm_up": _first(tiny, way, threads, clock), "seconds": _first(subject, way, threads, clock)}


def _first(subject: Program, way: str, threads: int, clock: Clock) -> float:
    start = clock()
    WAYS[way](subject, threads)()
    return clock() - start


def _clock(threads: int) -> Clock:
    """Return the clock for a number of threads: for one, processor time, which other processes hardly change."""
    return time.process_time if threads == 1 else time.perf_counter


def calls(name: str, ways: list[str], threads: int, rounds: int, seconds: float) -> dict[str, Any]:
    """Return the milliseconds of calls by way; ways take turns of a number of seconds each."""
    with torch.inference_mode(mode=False):
        subject = program(name)
    expected = results(subject.module(*subject.args, **subject.kwargs))
    running: dict[str, Callable[[], Any]] = {}
    figures: dict[str, Any] = {}
    for way in ways:
        try:
            running[way] = WAYS[way](subject, threads)
            figures[way] = {"deviation": _deviation(results(running[way]()), expected)}
        except Exception as error:  # an engine of someone else may raise anything
            running.pop(way, None)
            figures[way] = {"failed": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    clock = _clock(threads)
    times: dict[str, list[float]] = {way: [] for way in running}
    for _ in range(rounds):
        for way, run in running.items():
            times[way] += _turn(run, seconds, clock)
    for way, values in times.items():
        values.sort()
        figures[way] |= {"best": values[0] * 1e3, "median": values[len(values) // 2] * 1e3}
    return figures


def _turn(run: Callable[[], Any], seconds: float, clock: Clock) -> list[float]:
    """Return the seconds of each call of a turn, after one call that is not counted."""
    run()
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = clock()
        run()
        times.append(clock() - start)
    return times


def _deviation(values: list[Any], expected: list[Any]) -> float | None:
    """Return the largest difference as a part of the largest element; None if the shapes differ."""
    if [tensor.shape for tensor in values] != [tensor.shape for tensor in expected]:
        return None
    differences = ((a.double() - b.double()).abs().max().item() for a, b in zip(values, expected, strict=True))
    return max(differences, default=0.0) / max(tensor.double().abs().max().item() for tensor in expected)


if __name__ == "__main__":
    main(sys.argv[1:])
