"""Layers with tensors whose shapes are only known while running; shape inference and workload creation happen then.

Each run creates a separate `ArrayHandle` for such a tensor. If a shape depends on computed values, it is still
unknown when the layer runs; the workload then requests memory with `TensorHandle.resize`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from interposer.backend import ArrayHandle, TensorHandle, Workload, WorkloadFactory, WorkloadInfo
from interposer.backend.contracts import checked
from interposer.core.errors import BackendContractError, InterposerError, InvalidValueError
from interposer.core.room import Room, current_room
from interposer.core.types import TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.ir.inference import infos_for
from interposer.runtime.step import Step

__all__ = ["LateHandles", "LateStep"]

LateHandles: TypeAlias = dict[Value, TensorHandle]
"""The handles of one run for tensors whose shapes were not known when the network was loaded."""


class LateStep:
    """Runs a layer whose tensors have shapes that are only known during the run, because they depend on data.

    The workload is created for the actual shapes. The last one is cached, and used again for the same shapes. `factory`
    creates it, unless the runtime executes the layer itself by `workload`.
    """

    def __init__(self, layer: Layer, factory: WorkloadFactory, workload: Workload | None = None) -> None:
        self.layer = layer
        self.workload = workload
        self._factory = factory
        self._last_step: tuple[WorkloadInfo, Step, int] | None = None

    def execute(self, fixed: Mapping[Value, TensorHandle], late_handles: LateHandles) -> None:
        """Infer the actual shapes of the outputs, run the layer, and add the handles of its outputs to `late_handles`.

        `fixed` has the handles of tensors whose shapes are known when the network is loaded, and `late_handles` those
        of the tensors that earlier layers of this run have computed.

        Raises:
            InvalidValueError: the operator does not support the actual shapes of the inputs, or a value of them.
            LimitExceededError: the run would use more memory or arithmetic than its limits.
            BackendContractError: a backend creates no workload, or its workload leaves the shape of an output unknown.
        """
        infos = tuple(None if value is None else _info(value, late_handles) for value in self.layer.inputs)
        info = WorkloadInfo(infos, tuple(self._inferred(infos)))
        room = current_room()
        outputs_with_infos = zip(self.layer.outputs, info.outputs, strict=True)
        new_handles = {
            value: _new_handle(output_info, room) for value, output_info in outputs_with_infos if value not in fixed
        }
        late_handles.update(new_handles)
        handles = {
            **fixed,
            **{value: late_handles[value] for value in (*self.layer.values, *new_handles) if value in late_handles},
        }
        inputs = [None if value is None else handles[value] for value in self.layer.inputs]
        step, operations = self._step(info)
        room.compute(operations)
        computed_outputs = [(value, handle) for value, handle in new_handles.items() if not handle.info.is_concrete]
        try:
            step.execute(inputs, [handles[value] for value in self.layer.outputs])
        except MemoryError as error:
            raise InvalidValueError(f"there is not enough memory for the sizes that were computed: {error}") from error
        for value, handle in computed_outputs:
            if not handle.info.is_concrete:
                raise BackendContractError(f"the workload left the shape of {value.name!r}, {handle.info}, unknown")
            room.take(int(handle.info.num_bytes))

    def ready_step(self) -> Step | None:
        """Return the step that runs the layer if the shapes of its inputs are known before the run; else None."""
        infos = tuple(None if value is None else value.known for value in self.layer.inputs)
        if self.workload is not None or not all(info is None or info.is_concrete for info in infos):
            return None
        try:
            return self._step(WorkloadInfo(infos, tuple(self._inferred(infos))))[0]
        except InterposerError:  # runs report it
            return None

    def _inferred(self, infos: tuple[TensorInfo | None, ...]) -> Sequence[TensorInfo]:
        """Return the infos of the outputs for the actual infos of the inputs.

        Raises:
            InvalidValueError: the operator does not accept the inputs, whose shapes are computed from values.
        """
        try:
            return infos_for(self.layer, infos)
        except InterposerError as error:
            raise InvalidValueError(str(error)) from error

    def _step(self, info: WorkloadInfo) -> tuple[Step, int]:
        """Return the step for these tensors, and the number of its arithmetic operations, as far as it is known."""
        last_step = self._last_step
        if last_step is None or not (self.workload is not None or _same(last_step[0], info)):
            step = Step.of(self.layer, self.workload or self._new_workload(info))
            operations = 0 if self.workload is not None else _operations(self.layer, info)
            last_step = self._last_step = info, step, operations
        return last_step[1:]

    def _new_workload(self, info: WorkloadInfo) -> Workload:
        returned_object = self._factory.create_workload(self.layer, info)
        workload = checked(returned_object, Workload, "create_workload", str(self.layer.backend))
        workload.post_allocation_configure()
        return workload


def _info(value: Value, late_handles: LateHandles) -> TensorInfo:
    return late_handles[value].info if value in late_handles else value.known


def _new_handle(info: TensorInfo, room: Room) -> ArrayHandle:
    handle = ArrayHandle(info)
    if info.is_concrete:
        room.take(int(info.num_bytes))
        try:
            handle.allocate()
        except MemoryError as error:
            raise InvalidValueError(f"there is not enough memory for the computed size of {info}: {error}") from error
    return handle


def _operations(layer: Layer, info: WorkloadInfo) -> int:
    """Return the number of arithmetic operations of a layer on these tensors; 0 if a shape is not known yet."""
    if not all(tensor is None or tensor.is_concrete for tensor in (*info.inputs, *info.outputs)):
        return 0
    return int(layer.op.operations(info.inputs, info.outputs))


def _same(a: WorkloadInfo, b: WorkloadInfo) -> bool:
    """Return True if a workload created for `a` can run with `b`: equal infos, and the very same constants.

    Constants matter, because kernels may have prepared data from them.
    """
    tensors_of_both = zip((*a.inputs, *a.outputs), (*b.inputs, *b.outputs), strict=True)
    return a == b and all(x is None or y is None or x.constant is y.constant for x, y in tensors_of_both)
