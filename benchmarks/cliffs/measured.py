"""The measuring process: CpuAcc and the engines run one case after another, each case in turns, on one thread."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.engines import engine

__all__ = ["OURS", "Model", "Peaks", "Row", "Work", "bandwidth", "measured"]

OURS: Final = "CpuAcc"
REFERENCE: Final = "CpuRef"
TURN_SECONDS: Final = 0.005
PATIENCE: Final = 120.0
"""The seconds after which a case is given up."""

Inputs = Sequence[Any]


@dataclass(frozen=True)
class Peaks:
    """What one thread of the machine reaches in a second: operations of float32 and of int8, and copied bytes."""

    float32: float
    int8: float
    bandwidth: float


@dataclass(frozen=True)
class Work:
    """What one run does: bytes of all inputs, constants and outputs, and arithmetic operations."""

    bytes: int = 0
    operations: int = 0
    quantized: bool = False

    def share(self, seconds: float, peaks: Peaks) -> tuple[float, str]:
        """Return the share of the machine's peak that is reached, and of which peak: the nearer one counts."""
        peak = peaks.int8 if self.quantized and peaks.int8 else peaks.float32
        shares = [(self.bytes / seconds / peaks.bandwidth, "bandwidth"), (self.operations / seconds / peak, "peak")]
        return max(shares)


@dataclass
class Row:
    """The times of one case in seconds by engine, for each file format, and why an engine has none."""

    title: str
    kind: str
    times: dict[str, dict[str, float]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    reference: float = 0.0
    work: Work = field(default_factory=Work)
    note: str = ""

    @property
    def worst(self) -> tuple[str, float] | None:
        """The file format in which CpuAcc compares worst, and the ratio of the best engine's time to that of CpuAcc."""
        ratios = {
            suffix: min(seconds for name, seconds in times.items() if name != OURS) / times[OURS]
            for suffix, times in self.times.items()
            if OURS in times and len(times) > 1
        }
        return min(ratios.items(), key=lambda pair: pair[1]) if ratios else None

    @property
    def ratio(self) -> float | None:
        """The ratio of `worst`; None if no other engine runs the case."""
        return self.worst and self.worst[1]

    @property
    def ours(self) -> float | None:
        """The time of CpuAcc in seconds: in the format of `worst`, else the shortest."""
        if self.worst is not None:
            return self.times[self.worst[0]][OURS]
        return min((times[OURS] for times in self.times.values() if OURS in times), default=None)

    def plain(self) -> dict[str, Any]:
        """Return the row as data for JSON."""
        return asdict(self) | {"ratio": self.ratio}


Model = Callable[[Path], tuple[Mapping[str, Path], Inputs, Work]]
"""Writes the files of a case to a folder; returns them by suffix, the inputs, and the work of a run."""


def measured(subjects: Sequence[tuple[str, str, Model]], engines: Sequence[str], seconds: float) -> Iterator[Row]:
    """Yield a row for each (title, kind, model); the row of a case during which the process dies or hangs says so."""
    position = 0
    while position < len(subjects):
        receiver, sender = multiprocessing.Pipe(duplex=False)
        work = (subjects[position:], engines, seconds, sender)
        child = multiprocessing.get_context("fork").Process(target=_measure_all, args=work)
        child.start()
        sender.close()
        for row in _received(receiver):
            yield row
            position += 1
        child.kill()
        child.join()
        if position < len(subjects):
            title, kind, _ = subjects[position]
            yield Row(title, kind, note=f"the process died or took more than {PATIENCE:g} s")
            position += 1


def _received(receiver: Any) -> Iterator[Row]:
    try:
        while receiver.poll(PATIENCE):
            yield receiver.recv()
    except EOFError:
        return


def _measure_all(
    subjects: Sequence[tuple[str, str, Model]], engines: Sequence[str], seconds: float, sender: Any
) -> None:
    for title, kind, model in subjects:
        row = Row(title, kind)
        try:
            _measure(row, model, engines, seconds)
        except Exception as error:  # the sweep goes on
            row.note = f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
        sender.send(row)


def _measure(row: Row, model: Model, engines: Sequence[str], seconds: float) -> None:
    """Add to the row the times of all engines that run the case."""
    with tempfile.TemporaryDirectory() as folder:
        files, inputs, row.work = model(Path(folder))
        for suffix, path in files.items():
            calls = dict(_calls(row, path, inputs, [OURS, *engines]))
            row.times[suffix.removeprefix(".")] = _interleaved(calls, seconds)
        if files:
            [(_, call)] = _calls(row, next(iter(files.values())), inputs, [REFERENCE])
            row.reference = min(_timed(call) for _ in range(2))


def _calls(row: Row, path: Path, inputs: Inputs, names: Sequence[str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the plain call of each engine that reads the file's format and runs it."""
    for name in names:
        runner = engine(name)
        if path.suffix not in runner.formats:
            continue
        cache = path.parent / f"{name}{path.suffix}"
        cache.mkdir()
        try:
            runner.begin()
            runner.load(path, 1, cache)
            runner.feed(inputs)
            call = next(iter(runner.ways().values()))
            call()
        except Exception as error:
            row.reasons[f"{name} {path.suffix}"] = str(error).splitlines()[0][:150] if str(error) else repr(error)
            continue
        if name == OURS and runner.note():
            row.note = runner.note()
        yield name, call


def _interleaved(calls: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Return the shortest time of each call in seconds. Calls take turns until each has had `seconds`."""
    best = {name: _timed(call) for name, call in calls.items()}
    for _ in range(max(2, round(seconds / TURN_SECONDS))):
        for name, call in calls.items():
            end = time.perf_counter() + TURN_SECONDS
            while time.perf_counter() < end:
                best[name] = min(best[name], _timed(call))
    return best


def _timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def bandwidth(size: int = 1 << 26) -> float:
    """Return how many bytes a second one thread reads and writes when it copies arrays that exceed the caches."""
    source, target = np.ones(size, np.uint8), np.empty(size, np.uint8)
    np.copyto(target, source)
    return 2 * size / min(_timed(lambda: np.copyto(target, source)) for _ in range(5))
