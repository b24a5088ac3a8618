"""Interposer: an inference middleware with pluggable backends.

Load a network from a file, or build it layer by layer. Every backend is asked which layers it supports, and for the
reason if it does not support a layer. The optimizer divides the graph among the backends, and the runtime executes it::

    import interposer as ip

    model = ip.load("net.tflite", backends=["CpuAcc", "CpuRef"])
    outputs = model.run([x])
    print(model.explain())

Public names are imported on first use, so that ``import interposer`` takes little longer than importing NumPy.
"""

from __future__ import annotations

from importlib import import_module

from interposer._version import __version__

TYPE_CHECKING = False  # avoids importing the module typing, which takes longer than the rest of this module
if TYPE_CHECKING:
    from typing import Any

    from interposer import backend, dlpack, errors, frontends, ops, profiling, saved, schema, testing, types, writers
    from interposer.backend import (
        Backend,
        BackendContext,
        BackendId,
        Capabilities,
        MemoryDescriptor,
        MemorySource,
        OptimizationViews,
        Substitution,
        Support,
    )
    from interposer.core.errors import InterposerError
    from interposer.core.types import DataLayout, DataType, Quantization, TensorInfo, TensorShape
    from interposer.ir.network import Network
    from interposer.isolation import Isolation
    from interposer.kernels import compute
    from interposer.optimizer.optimize import optimize
    from interposer.optimizer.optimizer_options import OptimizerOptions
    from interposer.plugins import BackendRegistry, DeviceSpec, process_registry
    from interposer.profiling import ExternalProfilingOptions, Profile, profile
    from interposer.quantization.quantizer import QuantizedNetwork, quantize
    from interposer.report.optimized import OptimizedNetwork
    from interposer.runtime import CreationOptions, RunControl, Runtime, WorkingMemHandle
    from interposer.session.limits import Limits
    from interposer.session.loading import load
    from interposer.session.model import Model
    from interposer.session.placement import Plan, Search
    from interposer.session.runtimes import default_runtime

_HOMES = {
    "interposer.backend": (
        "Backend", "BackendContext", "BackendId", "Capabilities", "MemoryDescriptor", "MemorySource",
        "OptimizationViews", "Substitution", "Support",
    ),
    "interposer.isolation": ("Isolation",),
    "interposer.plugins": ("BackendRegistry", "DeviceSpec", "process_registry"),
    "interposer.core.errors": ("InterposerError",),
    "interposer.ir.network": ("Network",),
    "interposer.profiling": ("ExternalProfilingOptions", "Profile", "profile"),
    "interposer.quantization": ("QuantizedNetwork", "quantize"),
    "interposer.report.optimized": ("OptimizedNetwork",),
    "interposer.kernels": ("compute",),
    "interposer.optimizer": ("OptimizerOptions", "optimize"),
    "interposer.runtime": ("CreationOptions", "RunControl", "Runtime", "WorkingMemHandle"),
    "interposer.session": ("Limits", "Model", "default_runtime", "load"),
    "interposer.session.placement": ("Plan", "Search"),
    "interposer.core.types": ("DataLayout", "DataType", "Quantization", "TensorInfo", "TensorShape"),
}  # fmt: skip
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = frozenset(
    {
        "backend", "dlpack", "errors", "frontends", "ops", "profiling", "saved", "schema", "testing", "types",
        "writers",
    }
)  # fmt: skip

__all__ = [
    "Backend",
    "BackendContext",
    "BackendId",
    "BackendRegistry",
    "Capabilities",
    "CreationOptions",
    "DataLayout",
    "DataType",
    "DeviceSpec",
    "ExternalProfilingOptions",
    "InterposerError",
    "Isolation",
    "Limits",
    "MemoryDescriptor",
    "MemorySource",
    "Model",
    "Network",
    "OptimizationViews",
    "OptimizedNetwork",
    "OptimizerOptions",
    "Plan",
    "Profile",
    "Quantization",
    "QuantizedNetwork",
    "RunControl",
    "Runtime",
    "Search",
    "Substitution",
    "Support",
    "TensorInfo",
    "TensorShape",
    "WorkingMemHandle",
    "__version__",
    "backend",
    "compute",
    "default_runtime",
    "dlpack",
    "errors",
    "frontends",
    "load",
    "ops",
    "optimize",
    "process_registry",
    "profile",
    "profiling",
    "quantize",
    "saved",
    "schema",
    "testing",
    "types",
    "writers",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES and name not in _HOME_OF:
        raise AttributeError(f"module 'interposer' has no attribute {name!r}")
    from interposer.core.pauses import collector_paused  # noqa: PLC0415 - `import interposer` does not need it

    with collector_paused():
        if name in _MODULES:
            return import_module(f"interposer.{name}")
        member = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = member
    return member


def __dir__() -> list[str]:
    return sorted(__all__)
