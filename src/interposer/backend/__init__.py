"""The plug-in interface: all classes and functions that the author of a backend needs."""

from interposer.backend.allocator import PROTECTED_CONTENT, CustomAllocator
from interposer.backend.base import API_VERSION, Backend, BackendContext, BackendId
from interposer.backend.caching import SavedPart
from interposer.backend.capabilities import Capabilities, Capability, Options, OptionValue
from interposer.backend.devices import Device
from interposer.backend.events import BackendEvent
from interposer.backend.external import ExternalMemory, MemoryDescriptor, machine_sources
from interposer.backend.handles import (
    DEFAULT_FACTORY,
    ArrayHandleFactory,
    TensorHandleFactory,
    TensorHandleFactoryRegistry,
    own_factory_id,
)
from interposer.backend.memory import ArenaMemoryManager, ArrayHandle, MemoryManager, MemorySource, TensorHandle
from interposer.backend.queues import READY, Event, Queue, SkippedError, ThreadQueue
from interposer.backend.strategies import (
    MEMORY_STRATEGIES,
    ConstantMemoryStrategy,
    MemoryBin,
    MemoryBlock,
    MemoryOptimizerStrategy,
    MultiAxisStrategy,
    Packing,
    SingleAxisStrategy,
    StrategyValidator,
)
from interposer.backend.support import KernelSupport, LayerSupport, Support
from interposer.backend.views import Failure, OptimizationViews, Substitution
from interposer.backend.workload import (
    KernelWorkload,
    KernelWorkloadFactory,
    Workload,
    WorkloadFactory,
    WorkloadInfo,
)
from interposer.core.config import thread_budget
from interposer.core.schema import Op
from interposer.ir.subgraph import SubgraphView
from interposer.kernels.table import KernelInfo, KernelTable
from interposer.profiling.backends import (
    BackendProfiling,
    BackendProfilingContext,
    CounterRegistration,
    CounterStatus,
    CounterTimestamp,
    DeviceClock,
)
from interposer.profiling.events import CounterClass

__all__ = [
    "API_VERSION",
    "DEFAULT_FACTORY",
    "MEMORY_STRATEGIES",
    "PROTECTED_CONTENT",
    "READY",
    "ArenaMemoryManager",
    "ArrayHandle",
    "ArrayHandleFactory",
    "Backend",
    "BackendContext",
    "BackendEvent",
    "BackendId",
    "BackendProfiling",
    "BackendProfilingContext",
    "Capabilities",
    "Capability",
    "ConstantMemoryStrategy",
    "CounterClass",
    "CounterRegistration",
    "CounterStatus",
    "CounterTimestamp",
    "CustomAllocator",
    "Device",
    "DeviceClock",
    "Event",
    "ExternalMemory",
    "Failure",
    "KernelInfo",
    "KernelSupport",
    "KernelTable",
    "KernelWorkload",
    "KernelWorkloadFactory",
    "LayerSupport",
    "MemoryBin",
    "MemoryBlock",
    "MemoryDescriptor",
    "MemoryManager",
    "MemoryOptimizerStrategy",
    "MemorySource",
    "MultiAxisStrategy",
    "Op",
    "OptimizationViews",
    "OptionValue",
    "Options",
    "Packing",
    "Queue",
    "SavedPart",
    "SingleAxisStrategy",
    "SkippedError",
    "StrategyValidator",
    "SubgraphView",
    "Substitution",
    "Support",
    "TensorHandle",
    "TensorHandleFactory",
    "TensorHandleFactoryRegistry",
    "ThreadQueue",
    "Workload",
    "WorkloadFactory",
    "WorkloadInfo",
    "machine_sources",
    "own_factory_id",
    "thread_budget",
]
