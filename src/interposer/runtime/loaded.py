"""`LoadedNetwork`: the workloads, handles and memory of one network in a runtime."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from interposer.errors import BindingError, ExecutionError
from interposer.ir.graph import Layer
from interposer.ir.optimized import OptimizedNetwork
from interposer.ir.regions import places
from interposer.kernels.table import empty
from interposer.runtime.bindings import Bindings
from interposer.runtime.factories import Factories, constant_of, said
from interposer.runtime.late import LateHandles
from interposer.runtime.steps import Steps, guarded_run
from interposer.runtime.workloads import DebugCallback
from interposer.types import Array

__all__ = ["LoadedNetwork", "said"]


class LoadedNetwork:
    """One network made ready to run. Runs of one network come one after the other; networks run side by side.

    Everything is made and planned here but what concerns tensors whose shapes depend on data: see `LateStep`.

    Raises:
        LoadError: a backend could not make a workload, a handle or its memory plan; nothing stays behind.
    """

    def __init__(self, optimized: OptimizedNetwork) -> None:
        self.optimized = optimized
        self.bindings = Bindings(optimized)
        self._lock = threading.Lock()
        self._runner: int | None = None
        self._released = False
        self._factories = Factories(optimized, (place.layer for place in places(optimized.graph)))
        self._steps = Steps(optimized.graph, self._factories)
        self._steps.plan_memory()
        self._steps.configure()

    @property
    def acquired(self) -> bool:
        """True while a backend holds memory for the network's tensors."""
        return self._factories.acquired

    @property
    def steps(self) -> tuple[tuple[str, str], ...]:
        """The layers that run, in order, each with its backend; without those in regions."""
        return tuple((step.layer.name, str(step.layer.backend)) for step in self._steps.steps)

    def set_debug_callback(self, callback: DebugCallback | None) -> None:
        """Let Debug layers call this instead of printing."""
        self._steps.set_debug_callback(callback)

    def run(self, inputs: Mapping[int, Array], outputs: dict[int, Array]) -> None:
        """Run once, from checked inputs into checked outputs; where a shape depends on data, arrays are added to them.

        Raises:
            BindingError: an output has another shape than the array that was given for it.
            ExecutionError: a backend got no memory, a workload failed, or the network was released meanwhile.
        """
        self.refuse_in_own_run("run again")
        with self._lock, np.errstate(all="ignore"):
            if self._released:
                raise ExecutionError(f"the network {self.optimized.name!r} was unloaded before the run began")
            self._runner = threading.get_ident()
            try:
                self._run(inputs, outputs)
            finally:
                self._runner = None

    def refuse_in_own_run(self, what: str) -> None:
        """Raise `ExecutionError` where this thread runs the network already, as a callback may be called from there."""
        if self._runner == threading.get_ident():
            raise ExecutionError(f"the network {self.optimized.name!r} cannot be {what} from within its own run")

    def _run(self, inputs: Mapping[int, Array], outputs: dict[int, Array]) -> None:
        self._factories.acquire()
        late: LateHandles = {}
        for layer in self._steps.inputs:
            self._steps.fill(layer, inputs[_binding(layer)], late)
        self._steps.execute(late)
        for layer in self._steps.outputs:
            self._give_out(layer, outputs, late)

    def _give_out(self, layer: Layer, outputs: dict[int, Array], late: LateHandles) -> None:
        [value], binding = layer.values, _binding(layer)
        if value.is_constant:
            np.copyto(outputs[binding], constant_of(value))
            return
        handle = self._steps.handle(value, late)
        if binding not in outputs:
            outputs[binding] = empty(handle.info)
        target, found = outputs[binding], handle.info.shape
        if target.shape != tuple(found):
            title, given = f"output {binding} ({layer.name})", list(target.shape)
            raise BindingError(f"{title} turned out to have shape {found}, but the array for it {given}; give none")
        guarded_run(layer, "could not give its data", lambda: handle.copy_out(target))

    def release(self) -> None:
        """Give the memory back once no run uses it; the network cannot run any more. A failure is only logged."""
        with self._lock:
            self._released = True
            self._factories.release()


def _binding(layer: Layer) -> int:
    op: Any = layer.op
    return int(op.binding_id)
