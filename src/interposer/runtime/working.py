"""`WorkingMemHandle`: the tensors of one run of a network, and the memory behind them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from interposer.backend import MemoryManager, TensorHandle, WorkloadFactory
from interposer.backend.registry import checked
from interposer.errors import BackendContractError, BindingError, ExecutionError, InterposerError, LoadError
from interposer.ir.graph import Layer, Value
from interposer.kernels.table import empty
from interposer.ops.control import Constant, Input
from interposer.runtime.late import LateHandles, LateStep
from interposer.types import Array, TensorInfo

if TYPE_CHECKING:
    from interposer.runtime.loaded import LoadedNetwork

__all__ = ["WorkingMemHandle", "guarded", "new_handle", "said"]

_T = TypeVar("_T")
_log = logging.getLogger("interposer.runtime")
_Call: TypeAlias = tuple[Callable[[Any, Any], None], Any, Any]


class WorkingMemHandle:
    """What one run of a loaded network needs for itself: handles for its tensors, and memory managers.

    Several of them let as many threads run one network at a time. One of them serves one run at a time, and any
    thread. Its memory is acquired in its first run and released when its network is unloaded, or by `free`.

    Raises:
        LoadError: a backend could not make a handle or its memory plan.
    """

    def __init__(
        self,
        network: LoadedNetwork,
        managers: Mapping[str, MemoryManager],
        factories: Mapping[str, WorkloadFactory],
    ) -> None:
        self.network = network
        self._managers = dict(managers)
        self._acquired: set[str] = set()
        self._imported: set[int] = set()
        self._busy = threading.Lock()
        self._handles: dict[Value, TensorHandle] = {}
        self._free_border: set[Value] = set()
        self._make_handles(factories)
        self._plan_memory()
        self._inputs = [(_binding(layer), layer, self._handles[layer.output]) for layer in network.optimized.inputs]
        self._layers, self._calls = self._resolve(network.steps)
        self._outputs = network.optimized.outputs
        self._directly = self._direct_outputs()

    # --- making -------------------------------------------------------------------------------------------------------

    def _make_handles(self, factories: Mapping[str, WorkloadFactory]) -> None:
        pieces = self.network.layout.pieces
        for layer in self.network.order:
            for value in layer.outputs if not isinstance(layer.op, Constant) else ():
                if value not in self.network.late and value not in pieces:
                    self._handles[value] = new_handle(layer, value, factories[str(layer.backend)])
        for value in pieces:
            self._make_piece(value)

    def _make_piece(self, value: Value) -> TensorHandle:
        """The handle of a piece; of the tensor that it lies in first, where that is a piece itself."""
        if value in self._handles:
            return self._handles[value]
        piece = self.network.layout.pieces[value]
        whole, info = self._make_piece(piece.whole), value.known.with_constant(None)
        made = whole.create_sub_tensor(piece.origin, info)
        if made is None:
            raise LoadError(f"backend {value.producer.backend} makes no sub-tensor of {whole.info} for {value.name!r}")
        self._handles[value] = made
        return made

    def _plan_memory(self) -> None:
        """Tell every handle, in running order, when its tensor begins to live and when it was read for the last time.

        A tensor at the border that can lie in the caller's memory is no part of the plan.
        """
        layout = self.network.layout
        self._free_border = {
            value for value in layout.border if value in self._handles and self._handles[value].imports
        }
        for beginning, ending in zip(layout.begins, layout.ends, strict=True):
            for value in beginning:
                if value not in self._free_border:
                    guarded(value.producer, "got no memory", lambda: self._begin(value))  # noqa: B023
            for value in ending:
                if value not in self._free_border:
                    guarded(value.producer, "got no memory", self._handles[value].allocate)

    def _begin(self, value: Value) -> None:
        handle, source = self._handles[value], self.network.layout.in_place.get(value)
        if source is None or not handle.share(self._handles[source]):
            handle.manage()

    def _resolve(self, steps: Sequence[Any]) -> tuple[list[Layer], list[_Call]]:
        layers, calls = [], list[_Call]()
        for step in steps:
            layers.append(step.layer)
            if isinstance(step, LateStep):
                fixed = {value: self._input(step.layer, value) for value in step.layer.values if self._is_fixed(value)}
                fixed |= {value: self._handles[value] for value in step.layer.outputs if self._is_fixed(value)}
                calls.append((step.execute, fixed, None))
            else:
                inputs = tuple(None if value is None else self._input(step.layer, value) for value in step.layer.inputs)
                calls.append((step.execute, inputs, tuple(self._handles[value] for value in step.layer.outputs)))
        return layers, calls

    def _is_fixed(self, value: Value) -> bool:
        return value not in self.network.late

    def _input(self, layer: Layer, value: Value) -> TensorHandle:
        return self.network.constant(layer, value) if value.is_constant else self._handles[value]

    def _direct_outputs(self) -> dict[int, TensorHandle]:
        """The outputs, by binding id, that can be written where the caller wants them."""
        found: dict[Value, int] = {}
        for layer in self._outputs:
            [value] = layer.values
            if value in self._free_border and not isinstance(value.producer.op, Input):
                found.setdefault(value, _binding(layer))
        return {binding: self._handles[value] for value, binding in found.items()}

    # --- running ------------------------------------------------------------------------------------------------------

    def run(self, inputs: Mapping[int, Array], outputs: dict[int, Array]) -> None:
        """Run once, from checked inputs into checked outputs; where a shape depends on data, arrays are added to them.

        Raises:
            BindingError: an output has another shape than the array that was given for it.
            ExecutionError: it is in use, a backend got no memory, or a workload failed.
        """
        if not self._busy.acquire(blocking=False):
            raise ExecutionError("this working memory is used by another run; make one for each thread")
        try:
            self._acquire()
            self._bring(inputs, outputs)
            late = self._execute()
            for layer in self._outputs:
                self._give_out(layer, outputs, late)
        finally:
            self._forget()
            self._busy.release()

    def _bring(self, inputs: Mapping[int, Array], outputs: Mapping[int, Array]) -> None:
        for binding, layer, handle in self._inputs:
            array = inputs[binding]
            try:
                if not handle.imports or not handle.import_memory(_guarded_view(array)):
                    _fill(handle, array)
            except Exception as error:
                raise _failure(layer, "could not take in its data", error) from error
        for binding, handle in self._directly.items():
            target = outputs.get(binding)
            if target is not None and not _overlaps(target, inputs) and handle.import_memory(target):
                self._imported.add(binding)
            else:
                handle.allocate()

    def _execute(self) -> LateHandles:
        late: LateHandles = {}
        done = 0
        try:
            for execute, given, made in self._calls:
                execute(given, late if made is None else made)
                done += 1
        except Exception as error:
            raise _failure(self._layers[done], "failed", error) from error
        return late

    def _give_out(self, layer: Layer, outputs: dict[int, Array], late: LateHandles) -> None:
        [value], binding = layer.values, _binding(layer)
        if value.is_constant:
            np.copyto(outputs[binding], constant_of(value))
            return
        handle = late[value] if value in late else self._handles[value]
        if binding not in outputs:
            outputs[binding] = empty(handle.info)
        target, found = outputs[binding], handle.info.shape
        if target.shape != tuple(found):
            title, given = f"output {binding} ({layer.name})", list(target.shape)
            raise BindingError(f"{title} turned out to have shape {found}, but the array for it {given}; give none")
        if binding in self._imported:
            return
        try:
            handle.copy_out(target)
        except Exception as error:
            raise _failure(layer, "could not give its data", error) from error

    def _forget(self) -> None:
        self._imported.clear()
        for value in self._free_border:
            self._handles[value].forget_memory()

    # --- memory -------------------------------------------------------------------------------------------------------

    @property
    def acquired(self) -> bool:
        """True while a backend holds memory for the tensors."""
        return bool(self._acquired)

    @property
    def planned_bytes(self) -> int:
        """The bytes of all arenas, as far as the backends' memory managers tell."""
        return sum(int(getattr(manager, "planned_bytes", 0)) for manager in self._managers.values())

    def _acquire(self) -> None:
        for backend, manager in self._managers.items():
            if backend in self._acquired:
                continue
            try:
                manager.acquire()
            except Exception as error:
                raise ExecutionError(f"backend {backend} got no memory: {said(error)}", backend=backend) from error
            self._acquired.add(backend)

    def free(self) -> None:
        """Give the memory back; the next run acquires it anew. A failure is only logged.

        Raises:
            ExecutionError: it is in use.
        """
        if not self._busy.acquire(blocking=False):
            raise ExecutionError("this working memory is used by a run; it is freed afterwards")
        try:
            while self._acquired:
                backend = self._acquired.pop()
                try:
                    self._managers[backend].release()
                except Exception as error:
                    _log.warning("backend %s could not release its memory: %s", backend, said(error))
        finally:
            self._busy.release()


def _fill(handle: TensorHandle, array: Array) -> None:
    if handle.imports:
        handle.allocate()
    handle.copy_in(array)


def _guarded_view(array: Array) -> Array:
    """The same memory, which nobody can write to by mistake."""
    view = array.view()
    view.flags.writeable = False
    return view


def _overlaps(target: Array, inputs: Mapping[int, Array]) -> bool:
    return any(np.may_share_memory(target, array) for array in inputs.values())


def new_handle(layer: Layer, value: Value, factory: WorkloadFactory) -> TensorHandle:
    """A handle from a backend's factory, checked.

    Raises:
        LoadError: the tensor's shape is not known, or the factory fails.
    """
    info = value.known
    if not info.is_concrete:
        raise LoadError(f"the tensor {value.name!r} of shape {info.shape} has unknown extents; give the inputs' shapes")
    backend, plain = str(layer.backend), info.with_constant(None)
    make = factory.create_tensor_handle
    return guarded(
        layer, "got no tensor handle", lambda: checked_handle(make(plain), plain, "create_tensor_handle", backend)
    )


def checked_handle(made: object, info: TensorInfo, what: str, backend: str) -> TensorHandle:
    """A handle that a factory made, if it is one of this info; else `BackendContractError`."""
    handle = checked(made, TensorHandle, what, backend)
    if handle.info != info:
        raise BackendContractError(f"{what} gave a handle of {handle.info}; expected {info}", backend=backend)
    return handle


def constant_of(value: Value) -> Array:
    """The array of a constant."""
    op = value.producer.op
    assert isinstance(op, Constant)
    return op.value


def _binding(layer: Layer) -> int:
    op: Any = layer.op
    return int(op.binding_id)


def said(error: BaseException) -> str:
    """What an error says, with its type where it is none of ours."""
    return str(error) if isinstance(error, InterposerError) else f"{type(error).__name__}: {error}"


def guarded(layer: Layer, what: str, call: Callable[[], _T]) -> _T:
    """What a call gives while a network is loaded; `LoadError` naming layer and backend where it fails."""
    try:
        return call()
    except Exception as error:
        raise LoadError(f"layer {layer} {what} on backend {layer.backend}: {said(error)}") from error


def _failure(layer: Layer, what: str, error: Exception) -> ExecutionError:
    text = f"layer {layer} {what} on backend {layer.backend}: {said(error)}"
    return ExecutionError(text, layer=layer.name, backend=str(layer.backend))
