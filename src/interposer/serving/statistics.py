"""Counts and times of the requests of one model, in the form of Triton's statistics extension."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["DURATIONS", "Statistics", "Timing"]

DURATIONS: Final = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cancel")


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


@dataclass(slots=True)
class Statistics:
    """Counts and nanoseconds by kind of duration. Used from the thread of the event loop only."""

    counts: Counter[str] = field(default_factory=Counter)
    nanoseconds: Counter[str] = field(default_factory=Counter)
    inferences: int = 0
    executions: int = 0
    last: int = 0
    batches: dict[int, list[int]] = field(default_factory=dict)

    def add(self, kind: str, seconds: float) -> None:
        """Count one duration."""
        self.counts[kind] += 1
        self.nanoseconds[kind] += int(seconds * 1e9)

    def succeeded(self, seconds: float, timing: Timing) -> None:
        """Count a request that got a result after `seconds`."""
        self.add("success", seconds)
        self.add("queue", timing.queue)
        self.add("compute_infer", timing.compute)
        rest = max(0.0, seconds - timing.queue - timing.compute)
        self.add("compute_input", rest / 2)
        self.add("compute_output", rest / 2)
        self.inferences += timing.rows
        self.last = int(time.time() * 1e3)

    def executed(self, rows: int, seconds: float) -> None:
        """Count one execution of the network for `rows` rows."""
        self.executions += 1
        batch = self.batches.setdefault(rows, [0, 0])
        batch[0] += 1
        batch[1] += int(seconds * 1e9)

    def to_dict(self, name: str, version: str) -> dict[str, Any]:
        """Return the object of one model version in the answer to a statistics request."""
        durations = {kind: {"count": self.counts[kind], "ns": self.nanoseconds[kind]} for kind in DURATIONS}
        return {
            "name": name,
            "version": version,
            "last_inference": self.last,
            "inference_count": self.inferences,
            "execution_count": self.executions,
            "inference_stats": durations,
            "batch_stats": [
                {"batch_size": rows, "compute_infer": {"count": count, "ns": spent}}
                for rows, (count, spent) in sorted(self.batches.items())
            ],
        }
