"""`WorkingMemHandle`: what one run of a loaded network needs for itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from interposer.backend import MemoryManager, TensorHandle
from interposer.errors import BindingError, ExecutionError
from interposer.ir.graph import Layer, Value, binding_id
from interposer.kernels.table import empty
from interposer.ops.control import Input
from interposer.runtime.factories import Factories, constant_of
from interposer.runtime.imports import ImportedRun
from interposer.runtime.late import LateHandles
from interposer.runtime.program import Program
from interposer.runtime.runs import RunControl, Workers
from interposer.runtime.steps import Steps, failure, guarded_view
from interposer.types import Array, TensorShape

__all__ = ["WorkingMemHandle", "check_shape"]

_IN_USE: Final = "this working memory is used by another run; make one for each thread"


class WorkingMemHandle:
    """Handles for the tensors of one run, and the memory behind them.

    Several of them let as many threads run one network at a time. One of them serves one run at a time, of any
    thread. Its memory is acquired in its first run and given back when its network is unloaded, or by `free`.

    Raises:
        LoadError: a backend could not make a handle or its memory plan.
    """

    def __init__(self, program: Program, factories: Factories, workers: Workers | None = None) -> None:
        self.program = program
        self._factories = factories
        self._busy = threading.Lock()
        self._steps = Steps(program, factories, workers)
        self._steps.plan_memory()
        self._inputs = [(binding_id(layer), layer) for layer in self._steps.inputs]
        self._outputs = [(binding_id(layer), layer) for layer in self._steps.outputs]
        self._directly = self._direct_outputs()
        self._indirectly = [(binding, layer) for binding, layer in self._outputs if binding not in self._directly]
        self._prepared: dict[ImportedRun, Callable[[], None] | None] = {}

    def _direct_outputs(self) -> dict[int, tuple[Layer, TensorHandle]]:
        """The outputs, by binding id, that can be written where the caller wants them."""
        found: dict[Value, Layer] = {}
        for layer in self._steps.outputs:
            [value] = layer.values
            if value in self._steps.imported and not isinstance(value.producer.op, Input):
                found.setdefault(value, layer)
        return {binding_id(layer): (layer, self._steps.handles[value]) for value, layer in found.items()}

    def run(self, inputs: Mapping[int, Array], outputs: dict[int, Array], control: RunControl | None = None) -> None:
        """Run once, from checked inputs into checked outputs; where a shape depends on data, arrays are added to them.

        Raises:
            BindingError: an output has another shape than the array that was given for it.
            ExecutionError: it is in use, a backend got no memory, a workload failed, or `control` stopped the run.
        """
        if not self._busy.acquire(False):
            raise ExecutionError(_IN_USE)
        try:
            self._factories.acquire()
            self._run(inputs, outputs, control)
        finally:
            self._steps.forget()
            self._busy.release()

    def run_imported(self, imported: ImportedRun) -> bool:
        """Run once on memory that was imported for all inputs and outputs.

        False where this network needs `run` for that, with the same arrays.

        Raises:
            ExecutionError: it is in use, a backend got no memory, or a workload failed.
        """
        if not self._busy.acquire(False):
            raise ExecutionError(_IN_USE)
        try:
            call = self._prepared.get(imported, _not_yet)
            if call is _not_yet:
                call = self._prepare(imported)
            if call is None:
                return False
            call()
            return True
        finally:
            self._busy.release()

    def _prepare(self, imported: ImportedRun) -> Callable[[], None] | None:
        """What runs the layers on what was imported; kept until the memory is freed, or `forget`."""
        self._factories.acquire()
        moved: dict[Value, TensorHandle] = {}
        for kind, arrays in (("input", imported.inputs), ("output", imported.outputs)):
            for binding, array in arrays.items():
                found = self.moved(kind, binding, array)
                if not isinstance(found, str):
                    moved[found[0]] = found[1]
        call = None if len(moved) < len(self._steps.inputs) + len(self._steps.outputs) else self._steps.bound(moved)
        self._prepared[imported] = call
        if imported.gone:
            self.forget(imported)
        return call

    def forget(self, imported: ImportedRun) -> None:
        """Keep nothing of what was made ready for an import."""
        self._prepared.pop(imported, None)

    def moved(self, kind: str, binding: int, array: Array) -> tuple[Value, TensorHandle] | str:
        """An input or output with a handle that lies in an array, or the reason why there is none."""
        layer = dict(self._inputs if kind == "input" else self._outputs)[binding]
        value = layer.output if kind == "input" else layer.values[0]
        fault = self._output_fault(binding, value) if kind == "output" else None
        if fault is None and value not in self._steps.imported:
            fault = f"backend {value.producer.backend} keeps it in memory of its own"
        if fault is not None:
            return fault
        handle = self._factories.handle(value.producer, value)
        if not handle.import_memory(guarded_view(array) if kind == "input" else array):
            wanted = getattr(handle, "alignment", 1)
            need = f"; it wants it at a multiple of {wanted} bytes" if wanted > 1 else ""
            return f"backend {value.producer.backend} cannot use it where it lies{need}"
        return value, handle

    def _output_fault(self, binding: int, value: Value) -> str | None:
        if value.is_constant:
            return "it is a constant, which is copied to wherever it is wanted"
        if isinstance(value.producer.op, Input):
            return f"it is the input {value.producer.name!r}, which is copied to wherever it is wanted"
        first = next(number for number, layer in self._outputs if layer.values[0] is value)
        return None if first == binding else f"it is the same tensor as output {first}, and copied from there"

    def _run(self, inputs: Mapping[int, Array], outputs: dict[int, Array], control: RunControl | None) -> None:
        late: LateHandles = {}
        for binding, layer in self._inputs:
            self._steps.fill(layer, inputs[binding], late)
        copied = self._indirectly
        for binding, (layer, handle) in self._directly.items():
            target = outputs.get(binding)
            if target is None or _overlaps(target, inputs) or not handle.import_memory(target):
                handle.allocate()
                copied = [*copied, (binding, layer)]
        self._steps.execute(late, control)
        for binding, layer in copied:
            self._give_out(binding, layer, outputs, late)

    def _give_out(self, binding: int, layer: Layer, outputs: dict[int, Array], late: LateHandles) -> None:
        [value] = layer.values
        if value.is_constant:
            np.copyto(outputs[binding], constant_of(value))
            return
        handle = self._steps.handle(value, late)
        if binding not in outputs:
            outputs[binding] = empty(handle.info)
        check_shape(binding, layer.name, handle.info.shape, outputs[binding])
        try:
            handle.copy_out(outputs[binding])
        except Exception as error:
            raise failure(layer, "could not give its data", error) from error

    @property
    def acquired(self) -> bool:
        """True while a backend holds memory for the tensors."""
        return self._factories.acquired

    @property
    def managers(self) -> Mapping[str, MemoryManager]:
        """The memory managers of the backends that have one."""
        return self._factories.managers

    @property
    def planned_bytes(self) -> int:
        """The bytes of all arenas, as far as the backends' memory managers tell."""
        return self._factories.planned_bytes

    def free(self) -> None:
        """Give the memory back; the next run acquires it anew. A failure is only logged.

        Raises:
            ExecutionError: it is in use.
        """
        if not self._busy.acquire(False):
            raise ExecutionError("this working memory is used by a run; it can be freed afterwards")
        try:
            self._prepared.clear()
            self._factories.release()
        finally:
            self._busy.release()


def _not_yet() -> None:
    """In place of what is not made ready yet."""


def check_shape(binding: int, name: str, found: TensorShape, target: Array) -> None:
    """Raise `BindingError` where the array that the caller gave for an output has not the shape that was found."""
    if target.shape != tuple(found):
        title, given = f"output {binding} ({name})", list(target.shape)
        raise BindingError(f"{title} turned out to have shape {found}, but the array for it {given}; give none")


def _overlaps(target: Array, inputs: Mapping[int, Array]) -> bool:
    """True where they may; two arrays that own their memory do not, which is quicker to ask."""
    owns = target.flags.owndata
    for array in inputs.values():
        apart = owns and array is not target and array.flags.owndata
        if not apart and np.may_share_memory(target, array):
            return True
    return False
