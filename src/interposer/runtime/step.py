"""One layer of a loaded network with its workload."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from interposer.backend import TensorHandle, Workload
from interposer.core.records import dataclass
from interposer.ir.graph import Layer

__all__ = ["Step"]

_Execute: TypeAlias = Callable[[Sequence[TensorHandle | None], Sequence[TensorHandle]], None]


@dataclass(frozen=True, slots=True)
class Step:
    """A layer with its workload, as a loaded network runs it.

    If the workload does not support concurrent runs, a lock makes them take turns.
    """

    layer: Layer
    workload: Workload
    _turn: threading.Lock | None

    @classmethod
    def of(cls, layer: Layer, workload: Workload) -> Step:
        """Return the step that runs a layer by this workload."""
        return cls(layer, workload, None if workload.concurrent else threading.Lock())

    @property
    def takes_turns(self) -> bool:
        """True if only one thread at a time may run the workload, so that a lock makes concurrent runs take turns."""
        return self._turn is not None

    @property
    def execute(self) -> _Execute:
        """The function that runs the workload on input and output handles."""
        return self.workload.execute if self._turn is None else self._execute_in_turn

    def _execute_in_turn(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        assert self._turn is not None
        with self._turn:
            self.workload.execute(inputs, outputs)

    def prepare(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> Callable[[], None]:
        """Return a function that runs the workload on these handles: see `Workload.prepare`."""
        call = self.workload.prepare(inputs, outputs)
        return call if self._turn is None else partial(_call_in_turn, self._turn, call)


def _call_in_turn(turn: threading.Lock, call: Callable[[], None]) -> None:
    with turn:
        call()
