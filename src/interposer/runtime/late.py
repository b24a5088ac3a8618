"""Layers whose tensors' shapes are only known while running: infos are inferred and workloads made then.

Such a tensor gets an `ArrayHandle` of its own in every run. Where its shape is still unknown when its layer runs, as it
depends on the values that are computed, the workload asks for memory with `TensorHandle.resize`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from interposer.backend import ArrayHandle, TensorHandle, Workload, WorkloadFactory, WorkloadInfo
from interposer.backend.contracts import checked
from interposer.core.errors import BackendContractError
from interposer.core.types import TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.ir.inference import infos_for
from interposer.runtime.step import Step

__all__ = ["LateHandles", "LateStep"]

LateHandles: TypeAlias = dict[Value, TensorHandle]
"""The handles of one run, of tensors whose shapes were not known before it."""


class LateStep:
    """A layer that waits for shapes. The workload of its last run is kept, and serves again for the same shapes.

    `workload` is that of a layer which the runtime runs itself.
    """

    def __init__(self, layer: Layer, factory: WorkloadFactory, workload: Workload | None = None) -> None:
        self.layer = layer
        self.workload = workload
        self._factory = factory
        self._made: tuple[WorkloadInfo, Step] | None = None

    def execute(self, fixed: Mapping[Value, TensorHandle], late: LateHandles) -> None:
        """Run the layer on handles that are fixed or are in `late`, and add to `late` those of its outputs.

        `fixed` holds the handles of those of its tensors whose shapes are known when the network is loaded.

        Raises:
            InvalidArgumentError: the operator cannot be run on inputs of the shapes that were found.
            BackendContractError: a backend makes no workload, or its workload leaves the shape of an output unknown.
        """
        infos = tuple(None if value is None else _info(value, late) for value in self.layer.inputs)
        info = WorkloadInfo(infos, tuple(infos_for(self.layer, infos)))
        pairs = zip(self.layer.outputs, info.outputs, strict=True)
        result = {value: _new_handle(item) for value, item in pairs if value not in fixed}
        late.update(result)
        handles = {**fixed, **{value: late[value] for value in (*self.layer.values, *result) if value in late}}
        inputs = [None if value is None else handles[value] for value in self.layer.inputs]
        self._step(info).execute(inputs, [handles[value] for value in self.layer.outputs])
        for value, handle in result.items():
            if not handle.info.is_concrete:
                raise BackendContractError(f"the workload left the shape of {value.name!r}, {handle.info}, unknown")

    def _step(self, info: WorkloadInfo) -> Step:
        created = self._made
        if created is None or not (self.workload is not None or _same(created[0], info)):
            created = self._made = info, Step.of(self.layer, self.workload or self._new_workload(info))
        return created[1]

    def _new_workload(self, info: WorkloadInfo) -> Workload:
        created = self._factory.create_workload(self.layer, info)
        workload = checked(created, Workload, "create_workload", str(self.layer.backend))
        workload.post_allocation_configure()
        return workload


def _info(value: Value, late: LateHandles) -> TensorInfo:
    return late[value].info if value in late else value.known


def _new_handle(info: TensorInfo) -> ArrayHandle:
    handle = ArrayHandle(info)
    if info.is_concrete:
        handle.allocate()
    return handle


def _same(a: WorkloadInfo, b: WorkloadInfo) -> bool:
    """Return True if both say the same, constants included: what a kernel prepares is made from those."""
    pairs = zip((*a.inputs, *a.outputs), (*b.inputs, *b.outputs), strict=True)
    return a == b and all(x is None or y is None or x.constant is y.constant for x, y in pairs)
