"""gRPC's health checking protocol, ``grpc.health.v1``, which Kubernetes and load balancers speak."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from interposer.serving.core import Core
from interposer.serving.grpc_reading import Calls
from interposer.serving.peers import peer_of_call
from interposer.serving.protocol.errors import ServingError
from interposer.serving.protocol.grpc_messages import HEALTH, INFERENCE, Message, message, methods

__all__ = ["Health"]

_SERVING, _NOT_SERVING, _SERVICE_UNKNOWN = 1, 2, 3
_SERVICES: Final = ("", INFERENCE)
"""The names that clients may ask for: that of the server, and that of the inference service."""
_POLL: Final = 0.1
_LOOK: Final = 5.0
"""Seconds after which a watching call looks at the status itself."""


class Health:
    """The methods of the health service. A server is healthy if all of its models are loaded and it is not stopping."""

    def __init__(self, grpc: Any, core: Core, calls: Calls) -> None:
        self._grpc, self._core, self._calls = grpc, core, calls
        self._change: asyncio.Task[None] | None = None

    def handlers(self) -> dict[str, Any]:
        """Return the handlers of gRPC by the names of the methods."""
        handlers = {}
        for name, (request, response) in methods(HEALTH).items():
            codec = {"request_deserializer": request.FromString, "response_serializer": response.SerializeToString}
            make_handler = self._grpc.unary_stream_rpc_method_handler if name == "Watch" else None
            handlers[name] = (make_handler or self._grpc.unary_unary_rpc_method_handler)(
                getattr(self, name.lower()), **codec
            )
        return handlers

    async def check(self, request: Message, context: Any) -> Message:
        """Return the status of a service; the status of the call is NOT_FOUND if there is no such service."""
        if request.service not in _SERVICES:
            await context.abort(self._grpc.StatusCode.NOT_FOUND, f"unknown service {request.service[:200]!r}")
        return self._response(request.service)

    async def list(self, request: Message, context: Any) -> Message:
        """Return the status of each service."""
        statuses = {service: self._response(service) for service in _SERVICES}
        return message("HealthListResponse", HEALTH)(statuses=statuses)

    async def watch(self, request: Message, context: Any) -> AsyncIterator[Message]:
        """Yield the status of a service, and again after each change until the client leaves."""
        try:
            with self._calls.of(peer_of_call(context.peer(), 0, "", {}).address):
                async for status in self._statuses(request.service):
                    yield status
        except ServingError as error:
            await context.abort(getattr(self._grpc.StatusCode, error.status.grpc), str(error))

    async def _statuses(self, service: str) -> AsyncIterator[Message]:
        last_status = None
        while True:
            status = self._response(service)
            if status != last_status:
                last_status = status
                yield status
            else:
                await self._changed()

    async def _changed(self) -> None:
        """Wait until the server has become ready or not ready; all calls share one task that looks."""
        if self._change is None or self._change.done():
            self._change = asyncio.create_task(self._look_for_change())
        await asyncio.wait([self._change], timeout=_LOOK)

    async def _look_for_change(self) -> None:
        is_ready = self._core.is_ready
        while self._core.is_ready == is_ready:
            await asyncio.sleep(_POLL)

    def _response(self, service: str) -> Message:
        status = _SERVICE_UNKNOWN
        if service in _SERVICES:
            status = _SERVING if self._core.is_ready else _NOT_SERVING
        return message("HealthCheckResponse", HEALTH)(status=status)
