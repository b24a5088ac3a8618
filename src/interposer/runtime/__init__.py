"""The runtime: loads, runs and unloads optimized networks."""

from interposer.runtime.creation_options import CreationOptions
from interposer.runtime.direct import OnlyPart
from interposer.runtime.imports import ImportedInputId, ImportedOutputId
from interposer.runtime.memory import MemoryReport
from interposer.runtime.runs import PendingRun, RunControl
from interposer.runtime.runtime import NetworkId, Runtime
from interposer.runtime.states import StateMemory
from interposer.runtime.working import WorkingMemHandle
from interposer.runtime.workloads import TransferReport

__all__ = [
    "CreationOptions",
    "ImportedInputId",
    "ImportedOutputId",
    "MemoryReport",
    "NetworkId",
    "OnlyPart",
    "PendingRun",
    "RunControl",
    "Runtime",
    "StateMemory",
    "TransferReport",
    "WorkingMemHandle",
]
