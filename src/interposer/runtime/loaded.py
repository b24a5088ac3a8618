"""`LoadedNetwork`: the program of one network in a runtime, and the working memories that its runs use."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping

from interposer.errors import ExecutionError
from interposer.ir.optimized import OptimizedNetwork
from interposer.ir.regions import places
from interposer.runtime.bindings import Bindings
from interposer.runtime.factories import Factories, said
from interposer.runtime.program import Program
from interposer.runtime.working import WorkingMemHandle
from interposer.runtime.workloads import DebugCallback
from interposer.types import Array

__all__ = ["LoadedNetwork", "said"]


class LoadedNetwork:
    """One network made ready to run. Runs may go side by side: each has a `WorkingMemHandle` for itself.

    Everything is made here, and planned in a first working memory, but what concerns tensors whose shapes depend on
    data: see `LateStep`.

    Raises:
        LoadError: a backend could not make a workload, a handle or its memory plan; nothing stays behind.
    """

    def __init__(self, optimized: OptimizedNetwork) -> None:
        self.optimized = optimized
        self.bindings = Bindings(optimized)
        self._layers = tuple(place.layer for place in places(optimized.graph))
        self._factories = Factories(optimized, self._layers)
        self._program = Program(optimized.graph, self._factories)
        self._idle = deque([WorkingMemHandle(self._program, self._factories)])
        self._runs: Counter[int] = Counter()
        self._changed = threading.Condition()
        self._released = False
        self._program.configure()

    @property
    def acquired(self) -> bool:
        """True while a backend holds memory for the network's tensors and no run uses it."""
        return any(one.acquired for one in tuple(self._idle))

    @property
    def steps(self) -> tuple[tuple[str, str], ...]:
        """The layers that run, in order, each with its backend; without those in regions."""
        return tuple((layer.name, str(layer.backend)) for layer in self._program.running)

    def set_debug_callback(self, callback: DebugCallback | None) -> None:
        """Let Debug layers call this instead of printing."""
        self._program.set_debug_callback(callback)

    def new_working_memory(self) -> WorkingMemHandle:
        """Handles and memory for one more run at the same time.

        Raises:
            LoadError: a backend could not make them.
        """
        return WorkingMemHandle(self._program, Factories(self.optimized, self._layers, self._factories))

    def run(
        self, inputs: Mapping[int, Array], outputs: dict[int, Array], working: WorkingMemHandle | None = None
    ) -> None:
        """Run once, in a working memory that is given, or in one that is free, or in a new one.

        Raises:
            BindingError: an output has another shape than the array that was given for it.
            ExecutionError: a backend got no memory, a workload failed, or the network was unloaded before.
        """
        self.refuse_in_own_run("run again")
        self._enter()
        try:
            if working is not None:
                working.run(inputs, outputs)
            else:
                self._run_in_any(inputs, outputs)
        finally:
            self._leave()

    def _run_in_any(self, inputs: Mapping[int, Array], outputs: dict[int, Array]) -> None:
        try:
            working = self._idle.pop()
        except IndexError:
            working = self.new_working_memory()
        try:
            working.run(inputs, outputs)
        finally:
            self._idle.append(working)

    def _enter(self) -> None:
        with self._changed:
            if self._released:
                raise ExecutionError(f"the network {self.optimized.name!r} was unloaded before the run began")
            self._runs[threading.get_ident()] += 1

    def _leave(self) -> None:
        with self._changed:
            del self._runs[threading.get_ident()]
            self._changed.notify_all()

    def refuse_in_own_run(self, what: str) -> None:
        """Raise `ExecutionError` where this thread runs the network already, as a callback may be called from there."""
        if threading.get_ident() in self._runs:
            raise ExecutionError(f"the network {self.optimized.name!r} cannot be {what} from within its own run")

    def release(self) -> None:
        """Give the memory back once no run uses it; the network cannot run any more. A failure is only logged."""
        with self._changed:
            self._released = True
            self._changed.wait_for(lambda: not self._runs)
        while self._idle:
            self._idle.pop().free()
