"""The Open Inference Protocol, version 2: tensors and messages, without a server."""

from __future__ import annotations

from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.protocol.messages import InferRequest, InferResponse, RequestedOutput

__all__ = ["InferRequest", "InferResponse", "RequestedOutput", "ServingError", "Status"]
