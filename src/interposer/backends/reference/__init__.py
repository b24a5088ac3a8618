"""CpuRef, the reference backend: every layer and every data type, in obvious NumPy."""

from __future__ import annotations

from typing import ClassVar

from interposer.backend import Backend, BackendId, Capabilities
from interposer.kernels import KernelTable, reference

__all__ = ["ReferenceBackend"]


class ReferenceBackend(Backend):
    """Runs the reference kernels: right before quick, and what other backends are compared with."""

    id: ClassVar = BackendId("CpuRef")
    kernels: ClassVar[KernelTable] = reference()
    capabilities: ClassVar = Capabilities(
        NonConstWeights=True, ConstantTensorsAsInputs=True, HasFp16=True, DynamicShapes=True, Sequences=True
    )
