"""Custom, an example backend: it adds float32 tensors in its own memory, as precompiled layers."""

from custom_backend.backend import CustomBackend
from custom_backend.compiler import CustomPreCompiledObject
from custom_backend.context import CustomBackendContext
from custom_backend.memory import CustomMemoryManager, CustomTensorHandle
from custom_backend.support import CustomLayerSupport
from custom_backend.workloads import CustomPreCompiledWorkload, CustomWorkloadFactory

__all__ = [
    "CustomBackend",
    "CustomBackendContext",
    "CustomLayerSupport",
    "CustomMemoryManager",
    "CustomPreCompiledObject",
    "CustomPreCompiledWorkload",
    "CustomTensorHandle",
    "CustomWorkloadFactory",
]
