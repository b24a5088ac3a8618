"""The workloads, which run layers, and the factory that creates them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from custom_backend.compiler import CustomPreCompiledObject
from custom_backend.memory import CustomMemoryManager, CustomTensorHandle
from interposer.backend import TensorHandle, Workload, WorkloadFactory, WorkloadInfo
from interposer.ir.graph import Layer
from interposer.ops import PreCompiled
from interposer.types import TensorInfo


class CustomPreCompiledWorkload(Workload):
    """Runs one compiled addition."""

    def __init__(self, compiled: CustomPreCompiledObject) -> None:
        self.compiled = compiled

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        """Map the tensors, add them, and unmap them; called in every run."""
        with np.errstate(all="ignore"), ExitStack() as stack:  # infinities and NaN are results like others
            arrays = [stack.enter_context(handle.mapped()) for handle in inputs if handle is not None]
            a, b = (arrays[operand] if isinstance(operand, int) else operand for operand in self.compiled.operands)
            for handle in outputs:
                np.add(a, b, out=stack.enter_context(handle.mapped()))
        self.compiled.runs += 1


class CustomWorkloadFactory(WorkloadFactory):
    """Creates the workloads and the handles of one network."""

    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        """Return the workload of a PreCompiled layer; there are no other layers, as every addition is compiled."""
        if isinstance(layer.op, PreCompiled) and isinstance(layer.op.object, CustomPreCompiledObject):
            return CustomPreCompiledWorkload(layer.op.object)
        return super().create_workload(layer, info)

    def create_tensor_handle(self, info: TensorInfo) -> TensorHandle:
        """Return the handle of a tensor in the network's memory."""
        assert isinstance(self.memory_manager, CustomMemoryManager)
        return CustomTensorHandle(info, self.memory_manager)
