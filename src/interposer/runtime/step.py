"""One layer of a loaded network, with what runs it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from interposer.backend import TensorHandle, Workload
from interposer.ir.graph import Layer

__all__ = ["Step"]


@dataclass(frozen=True, slots=True)
class Step:
    """A layer with its workload. `execute` lets runs wait for each other where the workload asks for that."""

    layer: Layer
    workload: Workload
    execute: Callable[[Sequence[TensorHandle | None], Sequence[TensorHandle]], None]

    @classmethod
    def of(cls, layer: Layer, workload: Workload) -> Step:
        """The step of a layer."""
        return cls(layer, workload, workload.execute if workload.concurrent else _one_at_a_time(workload))


def _one_at_a_time(workload: Workload) -> Callable[[Sequence[TensorHandle | None], Sequence[TensorHandle]], None]:
    lock = threading.Lock()

    def execute(inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        with lock:
            workload.execute(inputs, outputs)

    return execute
