"""CpuRef, the reference backend: all layers and all data types, in straightforward NumPy code."""

from __future__ import annotations

from typing import ClassVar

from interposer.backend import Backend, BackendId, Capabilities
from interposer.kernels import KernelTable, reference

__all__ = ["ReferenceBackend"]


class ReferenceBackend(Backend):
    """A backend that runs the reference kernels, which favor correctness over speed and serve as the baseline."""

    id: ClassVar = BackendId("CpuRef")
    kernels: ClassVar[KernelTable] = reference()
    capabilities: ClassVar = Capabilities(
        NonConstWeights=True, ConstantTensorsAsInputs=True, HasFp16=True, DynamicShapes=True, Sequences=True
    )
