"""The measurement of one network on all engines: load, compare, and time in turns."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.networks.quantized import STYLES

from . import engine
from .cases import Case
from .process import EngineError, Process
from .watch import Watch

__all__ = ["Plan", "deviation", "measure"]

Figures = dict[str, Any]

FLOAT_TOLERANCE: Final = 1e-3
"""Largest difference of floating-point results, as a part of the largest number."""
STEPS: Final = 16
"""Largest difference of quantized results, in steps: engines round differently, and differences add up."""
EXCEPTIONS: Final = {"kws_ref_model_float32": 0.02}
"""Its weights are quantized, and LiteRT quantizes what they are multiplied with, which others do not."""
QUANTIZED_INSIDE: Final = {f"_{style}": 0.5 for style in STYLES}
"""The same by the end of the name: layers of networks with float results that round to integers of 8 bits."""


@dataclass(frozen=True)
class Plan:
    """The settings of a measurement.

    Args:
        engines: names of engines; the first one is compared with the others.
        rounds: the number of turns of each engine.
        seconds: the duration of a turn, after a warm-up of a fifth of it.
        loads: the number of processes in which loading is timed without and with a cache. If it is 0, only the load
            of the measuring process is timed, without a cache.
        tiny: files of the network that every process loads first, by suffix.
    """

    engines: Sequence[str]
    rounds: int
    seconds: float
    loads: int
    tiny: Mapping[str, Path]
    patience: float = 300.0


def measure(case: Case, threads: int, plan: Plan) -> Figures:
    """Return the figures of every engine by name; for an engine that did not run, the reason."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        figures_of_engine: dict[str, Figures] = {}
        running: dict[str, Process] = {}
        for name in plan.engines:
            place = folder / str(len(figures_of_engine))
            place.mkdir()
            try:
                running[name], figures_of_engine[name] = _started(stack, name, case, threads, plan, place)
            except EngineError as error:
                figures_of_engine[name] = {"failed": str(error)}
        _compare(case, figures_of_engine, running)
        watch = Watch()
        _take_turns(figures_of_engine, running, plan)
        others = watch.others(sum(figures.pop("cpu_ms", 0.0) for figures in figures_of_engine.values()))
    return {
        "network": case.name,
        "kind": case.kind,
        "batch": case.batch,
        "threads": threads,
        "operations": case.operations,
        "quantized": case.quantized,
        "others": others,
        "engines": figures_of_engine,
    }


def _started(stack: ExitStack, name: str, case: Case, threads: int, plan: Plan, place: Path) -> tuple[Process, Figures]:
    """Return a process that has loaded the network, and the figures of loading."""
    path = _file(name, case)
    colds, warms = [], []
    for number in range(max(1, plan.loads)):
        cache = place / f"cache{number}"
        cache.mkdir()
        process = stack.enter_context(_process(name, path, threads, cache, plan))
        loaded = process.ask("load", str(path), str(case.inputs), str(place / "first.npz"))
        colds.append(loaded["load_ms"])
        if plan.loads:
            warms.append(_warm(name, case, path, threads, cache, plan))
        if number < plan.loads - 1:
            process.close()
    warm = {"load_warm_ms": min(warms)} if warms else {}
    way = process.ask("choose", str(place / "outputs.npz"))
    return process, {
        "version": loaded["version"],
        "note": loaded["note"],
        "file": path.suffix,
        "way": way,
        "load_cold_ms": min(colds),
        **warm,
        "outputs": place,
    }


def _file(name: str, case: Case) -> Path:
    """Return the file that this engine reads.

    Raises:
        EngineError: the engine is not available, or cannot read the network.
    """
    chosen_engine = engine(name)
    if absent := chosen_engine.absent():
        raise EngineError(absent)
    path = case.file(chosen_engine.formats)
    if path is None:
        reasons = [f"no {suffix} file: {case.refused.get(suffix, 'not written')}" for suffix in chosen_engine.formats]
        raise EngineError("; ".join(reasons))
    return path


def _process(name: str, path: Path, threads: int, cache: Path, plan: Plan) -> Process:
    process = Process(name, threads, cache, plan.patience)
    try:
        if path.suffix in plan.tiny:
            process.ask("warm_up", str(plan.tiny[path.suffix]))
    except EngineError:
        process.close()
        raise
    return process


def _warm(name: str, case: Case, path: Path, threads: int, cache: Path, plan: Plan) -> float:
    """Return the milliseconds of loading with a filled cache."""
    with _process(name, path, threads, cache, plan) as keeper:
        keeper.ask("keep", str(path))
    with _process(name, path, threads, cache, plan) as process:
        loaded = process.ask("load", str(path), str(case.inputs), str(cache.with_suffix(".npz")))
    return float(loaded["load_ms"])


def _compare(case: Case, figures_of_engine: dict[str, Figures], running: dict[str, Process]) -> None:
    """Exclude engines whose results differ from those of the first other engine that runs."""
    order = [*list(running)[1:], *list(running)[:1]] if len(running) > 1 else []
    order.sort(key=lambda name: engine(name).tolerance is not None)
    for name in order:
        worst = max(
            deviation(
                _arrays(figures_of_engine[name]["outputs"] / file),
                _arrays(figures_of_engine[order[0]]["outputs"] / "first.npz"),
            )
            for file in ("first.npz", "outputs.npz")
        )
        figures_of_engine[name]["deviation"] = worst
        figures_of_engine[name]["compared_with"] = order[0]
        if worst > _allowed(case, name):
            running.pop(name)
            figures_of_engine[name] = {
                "failed": f"its results are not those of {order[0]}: {worst:.3g}",
                "deviation": worst,
            }
    for figures in figures_of_engine.values():
        figures.pop("outputs", None)


def _allowed(case: Case, name: str) -> float:
    inside = next((allowed for end, allowed in QUANTIZED_INSIDE.items() if case.name.endswith(end)), FLOAT_TOLERANCE)
    usual = EXCEPTIONS.get(case.name, STEPS if case.quantized else inside)
    return usual if case.quantized else max(usual, engine(name).tolerance or 0.0)


def _arrays(path: Path) -> list[Any]:
    with np.load(path) as file:
        return [file[name] for name in file.files]


def deviation(values: Sequence[Any], expected: Sequence[Any]) -> float:
    """Return the largest difference: in steps for integers, else relative to the largest number.

    Infinite on a mismatch.
    """
    if len(values) != len(expected):
        return float("inf")
    return max((_deviation(a, b) for a, b in zip(values, expected, strict=True)), default=0.0)


def _deviation(actual: Any, expected: Any) -> float:
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return float("inf")
    if not actual.size:
        return 0.0
    worst = float(np.max(np.abs(actual.astype(np.float64) - expected.astype(np.float64))))
    if not np.isfinite(worst):
        return float("inf")
    scale = float(np.max(np.abs(expected))) if expected.dtype.kind == "f" else 1.0
    return worst / (scale or 1.0)


def _take_turns(figures_of_engine: dict[str, Figures], running: dict[str, Process], plan: Plan) -> None:
    """Time rounds in which every engine has one turn, in alternating order; record medians and minima of all rounds."""
    rounds: dict[str, list[Figures]] = {name: [] for name in running}
    for number in range(plan.rounds):
        for name in list(running)[:: -1 if number % 2 else 1]:
            try:
                rounds[name].append(running[name].ask("measure", plan.seconds))
            except EngineError as error:
                running.pop(name)
                figures_of_engine[name] = {"failed": str(error)}
    for name, process in running.items():
        figures_of_engine[name] |= {
            "median_ms": statistics.median(round["median_ms"] for round in rounds[name]),
            "min_ms": min(round["min_ms"] for round in rounds[name]),
            "rounds_ms": [round["median_ms"] for round in rounds[name]],
            "plain_ms": statistics.median(round["plain_ms"] for round in rounds[name]),
            "plain_min_ms": min(round["plain_min_ms"] for round in rounds[name]),
            "plain_rounds_ms": [round["plain_ms"] for round in rounds[name]],
            "cpu_ms": sum(round["cpu_ms"] for round in rounds[name]),
            "memory_bytes": process.ask("memory"),
        }
