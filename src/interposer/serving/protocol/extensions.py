"""Extensions of the protocol that the server does not offer, and its answers to clients that ask for them."""

from __future__ import annotations

from typing import Final

__all__ = ["ABSENT_METHODS", "EMPTY_METHODS", "NO_CUDA", "NO_LOGS", "NO_TRACES"]

NO_CUDA: Final = "this server has no shared memory of CUDA; use that of the system"
NO_TRACES: Final = "this server has no trace settings; a program with OpenTelemetry decides which requests are traced"
NO_LOGS: Final = "this server has no log settings that clients can read or change; see its option --json-logs"
ABSENT_METHODS: Final = {"CudaSharedMemoryRegister": NO_CUDA, "TraceSetting": NO_TRACES, "LogSettings": NO_LOGS}
"""Methods of gRPC that are not implemented, and the details of their status."""
EMPTY_METHODS: Final = frozenset({"CudaSharedMemoryStatus", "CudaSharedMemoryUnregister"})
"""Methods of gRPC whose answer is an empty message, because there are no regions."""
