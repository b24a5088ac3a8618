"""Counts and times of the requests of one model, in the form of Triton's statistics extension."""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from interposer.core.records import dataclass
from interposer.core.types import Array

__all__ = ["DURATIONS", "FOLDER", "Statistics", "Timing"]

FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable with the folder in which several processes share their metrics and statistics."""

DURATIONS: Final = (
    "success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cancel", "cache_hit", "cache_miss",
)  # fmt: skip


@dataclass(slots=True)
class Timing:
    """The times of one request in seconds, and how many rows of how large a batch it was.

    `is_counted` is True for one request of each batch, with which the execution of the batch is counted.
    """

    queue: float = 0.0
    compute: float = 0.0
    rows: int = 1
    batch: int = 1
    is_counted: bool = True


class Statistics:
    """Counts and nanoseconds of one model version. Used from the thread of the event loop only.

    With a folder, the numbers are in a file of it, and `to_dict` adds those of all other processes that use the same
    folder, also of those that have died.

    Args:
        name: the name of the model.
        version: the number of the version, as text.
        folder: the folder that several processes share; None if this is the only one.
    """

    def __init__(self, name: str = "", version: str = "", folder: str | None = None) -> None:
        self._name, self._version = name, version
        self._file = None if folder is None else SharedRecord(Path(folder), f"{name}\0{version}")
        self._values = memoryview(bytearray(8 * _LENGTH)).cast("q") if self._file is None else self._file.values
        self._index_of_size: dict[int, int] = {}
        self._in_flight = 0

    @property
    def in_flight(self) -> int:
        """The requests of this process that have begun and not ended."""
        return self._in_flight  # and not the shared number, which a process that was forked may have changed

    @in_flight.setter
    def in_flight(self, value: int) -> None:
        self._in_flight = self._values[_IN_FLIGHT] = value

    def add(self, kind: str, seconds: float) -> None:
        """Count one duration."""
        index = _INDICES[kind]
        self._values[index] += 1
        self._values[index + 1] += int(seconds * 1e9)

    def succeeded(self, seconds: float, timing: Timing) -> None:
        """Count a request that got a result after `seconds`."""
        self.add("success", seconds)
        self._values[_LATENCIES + _latency_class(seconds)] += 1
        self.add("queue", timing.queue)
        self.add("compute_infer", timing.compute)
        other_seconds = max(0.0, seconds - timing.queue - timing.compute)
        self.add("compute_input", other_seconds / 2)
        self.add("compute_output", other_seconds / 2)
        self._values[_INFERENCES] += timing.rows
        self._values[_LAST] = int(time.time() * 1e3)

    def executed(self, rows: int, seconds: float) -> None:
        """Count one execution of the network for `rows` rows. Only the first 256 different numbers are listed."""
        self._values[_EXECUTIONS] += 1
        index = self._index_of_size.get(rows)
        if index is None:
            if len(self._index_of_size) == _SIZES:
                return
            index = self._index_of_size[rows] = _BATCHES + 3 * len(self._index_of_size)
            self._values[index] = rows
        self._values[index + 1] += 1
        self._values[index + 2] += int(seconds * 1e9)

    def percentiles(self, *percents: float) -> list[float]:
        """Return the seconds within which that many percent of the successful requests of all processes got results.

        The values are exact to a tenth; 0 if there was no request.
        """
        records = [np.asarray(self._values), *self._others()]
        counts = np.sum([values[_LATENCIES:_BATCHES] for values in records], axis=0)
        sums = np.cumsum(counts)
        ranks = [math.ceil(sums[-1] * percent / 100) for percent in percents]
        return [_seconds_of_class(int(np.searchsorted(sums, rank))) if rank else 0.0 for rank in ranks]

    def all_in_flight(self) -> int:
        """Return the requests of all processes that have begun and not ended."""
        return self.in_flight + sum(int(values[_IN_FLIGHT]) for values in self._others(only_alive=True))

    def to_dict(self) -> dict[str, Any]:
        """Return the object of the model version in the answer to a statistics request."""
        records = [np.asarray(self._values), *self._others()]
        totals = np.sum(records, axis=0).tolist()
        durations = {kind: {"count": totals[index], "ns": totals[index + 1]} for kind, index in _INDICES.items()}
        batches: dict[int, list[int]] = {}
        for rows, count, nanoseconds in (
            np.concatenate([values[_BATCHES:] for values in records]).reshape(-1, 3).tolist()
        ):
            if count:
                previous_counts = batches.get(rows, (0, 0))
                batches[rows] = [previous_counts[0] + count, previous_counts[1] + nanoseconds]
        return {
            "name": self._name,
            "version": self._version,
            "last_inference": max(int(values[_LAST]) for values in records),
            "inference_count": totals[_INFERENCES],
            "execution_count": totals[_EXECUTIONS],
            "inference_stats": durations,
            "batch_stats": [
                {"batch_size": rows, "compute_infer": {"count": count, "ns": nanoseconds}}
                for rows, (count, nanoseconds) in sorted(batches.items())
            ],
        }

    def _others(self, only_alive: bool = False) -> list[Array]:
        return [] if self._file is None else self._file.others(only_alive)


_SIZES: Final = 256
_INDICES: Final = {kind: 2 * index for index, kind in enumerate(DURATIONS)}
_INFERENCES, _EXECUTIONS, _LAST, _IN_FLIGHT = range(2 * len(DURATIONS), 2 * len(DURATIONS) + 4)
_LATENCIES: Final = _IN_FLIGHT + 1
"""From here on: how many requests took a time of each class, from a microsecond on, with eight classes per octave."""
_CLASSES: Final = 8 * 30
_BATCHES: Final = _LATENCIES + _CLASSES
"""From here on: for each size of a batch the size, how often it ran, and nanoseconds."""
_LENGTH: Final = _BATCHES + 3 * _SIZES


def _latency_class(seconds: float) -> int:
    return min(int(8 * math.log2(seconds * 1e6)), _CLASSES - 1) if seconds > 1e-6 else 0


def _seconds_of_class(latency_class: int) -> float:
    """Return the middle of the durations of a class."""
    return 1e-6 * float(2.0 ** ((latency_class + 0.5) / 8))


class SharedRecord:
    """An array of 64-bit integers in a file that other processes read while this process writes it.

    Args:
        folder: the folder of the files of all processes.
        key: what the numbers are about; processes with the same key belong together.
    """

    def __init__(self, folder: Path, key: str) -> None:
        prefix = f"statistics-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
        self._path, self._pattern = folder / f"{prefix}-{os.getpid()}.bin", f"{prefix}-*.bin"
        new_path = self._path.with_suffix(".new")
        new_path.write_bytes(bytes(8 * _LENGTH))
        with new_path.open("r+b") as file:
            self.values = memoryview(mmap.mmap(file.fileno(), 8 * _LENGTH)).cast("q")
        os.replace(new_path, self._path)  # readers find whole files only

    def others(self, only_alive: bool = False) -> list[Array]:
        """Return the numbers of the other processes, or only of those that still run."""
        paths = [path for path in self._path.parent.glob(self._pattern) if path != self._path]
        return [np.fromfile(path, np.int64) for path in paths if not only_alive or _is_alive(path)]


def _is_alive(path: Path) -> bool:
    try:
        os.kill(int(path.stem.rpartition("-")[2]), 0)
    except OSError:
        return False
    return True
