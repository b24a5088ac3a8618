"""The Open Inference Protocol over gRPC."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, TypeAlias

from interposer.core.errors import ConfigError, MissingDependencyError
from interposer.serving.admission import Holding
from interposer.serving.core import Core
from interposer.serving.grpc_health import Health
from interposer.serving.grpc_reading import Readers, Streams
from interposer.serving.listen import Listen, host_and_port
from interposer.serving.peers import Peer, peer_of_call
from interposer.serving.protocol.errors import ServingError, Status, as_serving_error
from interposer.serving.protocol.extensions import ABSENT_METHODS, EMPTY_METHODS
from interposer.serving.protocol.grpc_messages import (
    HEALTH,
    INFERENCE,
    Message,
    checked,
    infer_response,
    message,
    methods,
    parameters_of,
    read_infer_request,
)
from interposer.serving.protocol.reading import Reading
from interposer.serving.streams import answers
from interposer.serving.tracing import is_traced

__all__ = ["start_grpc"]

_Emit: TypeAlias = Callable[[Message], Awaitable[None]]
_OVERHEAD: Final = 1 << 16
"""Bytes of a message beside its tensors."""
_MAX_MESSAGE: Final = (1 << 31) - 1
"""The largest message that gRPC can be configured for."""
_STREAMS: Final = 256
"""Calls of one connection that run at the same time."""
_FOR_ALL: Final = frozenset(
    {"ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelConfig", "RepositoryIndex",
     "ModelInfer"}
)  # fmt: skip
"""Methods that need no token unless all requests of clients do."""
_LARGE: Final = 1 << 18
"""Bytes of a message with typed contents from which on it is read in another thread."""


async def start_grpc(core: Core, listen: Listen) -> Any:
    """Start to answer gRPC requests; return the server, whose attribute `port` is the port that was opened.

    Raises:
        MissingDependencyError: the packages grpcio and protobuf are not installed.
        ConfigError: the port is taken, or a file for TLS cannot be read.
    """
    try:
        import grpc  # noqa: PLC0415 - an optional dependency
        import grpc.aio  # noqa: PLC0415
    except ImportError:
        raise MissingDependencyError("grpcio", "grpc", "gRPC (which --no-grpc switches off)") from None
    limit = min(core.options.max_body + _OVERHEAD, _MAX_MESSAGE)
    options = [
        ("grpc.max_receive_message_length", limit), ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", int(listen.is_shared)), ("grpc.max_concurrent_streams", _STREAMS),
    ]  # fmt: skip
    server = grpc.aio.server(options=options)
    service = _Service(grpc, core, listen.certificate is not None)
    services = {INFERENCE: _handlers(grpc, service), HEALTH: Health(grpc, core).handlers()}
    server.add_generic_rpc_handlers(
        tuple(grpc.method_handlers_generic_handler(name, handlers) for name, handlers in services.items())
    )
    address = host_and_port(listen.host, listen.grpc_port)
    try:
        credentials = _credentials(grpc, listen)
        if credentials is None:
            server.port = server.add_insecure_port(address)
        else:
            server.port = server.add_secure_port(address, credentials)
        service.port = server.port
        await server.start()
    except (RuntimeError, OSError) as error:
        raise ConfigError(f"the server cannot listen for gRPC on {address}: {error}") from None
    return server


def _credentials(grpc: Any, listen: Listen) -> Any:
    if listen.certificate is None or listen.key is None:
        return None
    key_and_certificate = Path(listen.key).read_bytes(), Path(listen.certificate).read_bytes()
    authorities = None if listen.client_ca is None else Path(listen.client_ca).read_bytes()
    return grpc.ssl_server_credentials([key_and_certificate], authorities, authorities is not None)


def _handlers(grpc: Any, service: _Service) -> dict[str, Any]:
    handlers: dict[str, Any] = {}
    for name, sentence in ABSENT_METHODS.items():
        handlers[name] = grpc.unary_unary_rpc_method_handler(_absent(grpc, sentence))
    for name in EMPTY_METHODS:
        handlers[name] = grpc.unary_unary_rpc_method_handler(_empty)
    for name, (request, response) in methods().items():
        serialize = response.SerializeToString  # requests are bytes, as gRPC has no status code for damaged messages
        if name == "ModelStreamInfer":
            handler = grpc.stream_stream_rpc_method_handler(service.stream, response_serializer=serialize)
        else:
            answering = service.answering(name, request)  # reads its one message itself, when there is room for it
            handler = grpc.stream_unary_rpc_method_handler(answering, response_serializer=serialize)
        handlers[name] = handler
    return handlers


def _absent(grpc: Any, sentence: str) -> Callable[[bytes, Any], Awaitable[bytes]]:
    """Return the handler of a method that is not implemented. Messages are bytes, as nothing is read."""

    async def handler(request: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, sentence)
        return b""

    return handler


async def _empty(request: bytes, context: Any) -> bytes:
    return b""


class _Service:
    """The methods of the service. Each takes a message and the context of the call, and returns a message."""

    def __init__(self, grpc: Any, core: Core, has_certificates: bool) -> None:
        self._grpc, self.core = grpc, core
        self._readers = Readers(core.options)
        self._streams = Streams(core.options, lambda: core.admission.held, lambda: core.repository.served)
        self.port = 0
        self._has_certificates = has_certificates

    def answering(self, name: str, kind: Message) -> Callable[[Any, Any], Awaitable[Message]]:
        """Return the handler of the method `name`, whose errors become status codes; requests have the class `kind`."""
        method = getattr(self, f"on_{name}")

        async def handler(requests: Any, context: Any) -> Message:
            try:
                peer = self._peer(context, name not in _FOR_ALL)
                with self.core.admission.holding(self.core.access.name_of(peer)) as holding:
                    request = await self._request(kind, context, holding)
                    return await method(request, context, peer)
            except asyncio.CancelledError:
                raise
            except Exception as caught:
                error = as_serving_error(caught)
            error.__traceback__ = error.__context__ = error.__cause__ = None  # whose frames have the message
            metadata = () if error.retry_after is None else (("retry-after", str(error.retry_after)),)
            return await context.abort(getattr(self._grpc.StatusCode, error.status.grpc), str(error), metadata)

        return handler

    def _peer(self, context: Any, needs_token: bool = False) -> Peer:
        """Return who sends a call.

        The metadata of the call, of which there may be very many, are looked at only for a token: if `needs_token`, or
        if the server does not let everybody send requests to models.
        """
        needs_token = needs_token or not self.core.access.is_open
        authorization = _metadata(context).get("authorization", "") if needs_token else ""
        identity = (context.auth_context() or {}) if self._has_certificates else {}
        return peer_of_call(context.peer(), self.port, authorization, identity)

    async def _request(self, kind: Message, context: Any, holding: Holding) -> Message:
        """Receive and return the request of a call, which has the class `kind`."""
        arrived = time.monotonic()
        data = await self._readers.read(context, context.time_remaining())
        holding.finish()
        if data is self._grpc.aio.EOF:
            raise ServingError(Status.INVALID, "the call has no message")
        return await self._parsed(kind, data, arrived, context.time_remaining(), holding)

    async def _parsed(
        self, kind: Message, data: bytes, arrived: float, seconds: float | None, holding: Holding
    ) -> Message:
        """Return a message, whose elements are counted before it is parsed."""
        options = self.core.options
        limit = options.timeout if seconds is None else min(seconds, options.timeout)
        reading = Reading(options.max_values, arrived + limit, holding.take)
        if len(data) < _LARGE:
            return checked(kind, data, reading)
        return await self.core.in_parser(reading, checked, kind, data, reading)

    async def on_ServerLive(self, request: Message, context: Any, peer: Peer) -> Message:  # noqa: N802 - names of the protocol
        return message("ServerLiveResponse")(live=True)

    async def on_ServerReady(self, request: Message, context: Any, peer: Peer) -> Message:  # noqa: N802
        return message("ServerReadyResponse")(ready=self.core.is_ready)

    async def on_ModelReady(self, request: Message, context: Any, peer: Peer) -> Message:  # noqa: N802
        try:
            is_ready = self.core.is_model_ready(request.name, request.version)
        except ServingError:  # clients of Triton wait for a model with this method, and expect no error
            is_ready = False
        return message("ModelReadyResponse")(ready=is_ready)

    async def on_ServerMetadata(self, request: Message, context: Any, peer: Peer) -> Message:  # noqa: N802
        return message("ServerMetadataResponse")(**self.core.server_metadata())

    async def on_ModelMetadata(self, request: Message, context: Any, peer: Peer) -> Message:  # noqa: N802
        self.core.access.check("infer", peer, request.name)
        fields = self.core.model_metadata(request.name, request.version)
        fields.pop("parameters", None)
        return message("ModelMetadataResponse")(**fields)

    async def on_ModelConfig(self, request: Message, context: Any, peer: Peer) -> Message:  # noqa: N802
        self.core.access.check("infer", peer, request.name)
        config = self.core.repository.find(request.name, request.version).config()
        return message("ModelConfigResponse")(config=config)

    async def on_ModelStatistics(self, request: Message, context: Any, peer: Peer) -> Message:  # noqa: N802
        self.core.access.check("statistics", peer)
        models = self.core.statistics(request.name, request.version)
        for model in models:
            del model["inference_stats"]["cancel"]
        return message("ModelStatisticsResponse")(model_stats=models)

    async def on_RepositoryIndex(self, request: Message, context: Any, peer: Peer) -> Message:  # noqa: N802
        self.core.access.check("infer", peer)
        return message("RepositoryIndexResponse")(models=self.core.repository.index(request.ready))

    async def on_RepositoryModelLoad(self, request: Message, context: Any, peer: Peer) -> Message:  # noqa: N802
        self.core.check_control(peer)
        await self.core.load(request.model_name, parameters_of(request.parameters))
        return message("RepositoryModelLoadResponse")()

    async def on_RepositoryModelUnload(self, request: Message, context: Any, peer: Peer) -> Message:  # noqa: N802
        self.core.check_control(peer)
        await self.core.repository.unload(request.model_name)
        return message("RepositoryModelUnloadResponse")()

    async def on_SystemSharedMemoryStatus(self, request: Message, context: Any, peer: Peer) -> Message:  # noqa: N802
        self.core.check_shared_memory(peer)
        kind = message("SystemSharedMemoryStatusResponse.RegionStatus")
        regions = {region["name"]: kind(**region) for region in self.core.shared_memory().status(request.name)}
        return message("SystemSharedMemoryStatusResponse")(regions=regions)

    async def on_SystemSharedMemoryRegister(self, request: Message, context: Any, peer: Peer) -> Message:  # noqa: N802
        self.core.check_shared_memory(peer)
        self.core.shared_memory().register(request.name, request.key, request.offset, request.byte_size, peer)
        return message("SystemSharedMemoryRegisterResponse")()

    async def on_SystemSharedMemoryUnregister(self, request: Message, context: Any, peer: Peer) -> Message:  # noqa: N802
        self.core.check_shared_memory(peer)
        self.core.shared_memory().unregister(request.name)
        return message("SystemSharedMemoryUnregisterResponse")()

    async def on_ModelInfer(self, request: Message, context: Any, peer: Peer) -> Message:  # noqa: N802
        return await self._infer(request, context, peer)

    async def _infer(self, request: Message, context: Any, peer: Peer, emit: _Emit | None = None) -> Message:
        """Return the answer to a request, or pass each answer of a stream to `emit`."""
        core, seconds = self.core, context.time_remaining()
        metadata = _metadata(context) if is_traced() else {}
        is_raw = bool(request.raw_input_contents)
        name, version = request.model_name, request.model_version
        core.access.check("infer", peer, name)
        with core.call(name, version, "grpc", seconds) as call, core.span(call, metadata):
            call.peer, regions = peer, core.regions_of(peer)
            reading = Reading(core.options.max_values, call.deadline)
            if request.ByteSize() < _LARGE or (is_raw and not any(_has_strings(tensor) for tensor in request.inputs)):
                infer_request = read_infer_request(request, regions, reading)
            else:
                infer_request = await core.in_parser(reading, read_infer_request, request, regions, reading)
            is_typed = any(tensor.HasField("contents") for tensor in request.inputs)
            if emit is None:
                return infer_response(await call.run(infer_request), not is_typed)
            async with aclosing(answers(call, infer_request)) as responses:
                async for response in responses:
                    await emit(infer_response(response, not is_typed))
            return None

    async def _next(self, context: Any) -> Any:
        """Return the next message of a stream; end the stream if it has to yield."""
        try:
            return await self._streams.read(context)
        except ServingError as error:
            await context.abort(getattr(self._grpc.StatusCode, error.status.grpc), str(error))

    async def stream(self, requests: AsyncIterator[bytes], context: Any) -> None:
        """Answer the requests of a stream in order; an error is an answer too, and does not end the stream.

        A request with the parameter ``steps`` gets several answers.
        """
        kind_of_answer, peer = message("ModelStreamInferResponse"), self._peer(context)

        async def emit(response: Message) -> None:
            await context.write(kind_of_answer(infer_response=response))

        while True:
            kind = message("ModelInferRequest")
            request = kind()
            data = await self._next(context)
            if data is self._grpc.aio.EOF:
                return
            try:
                with self.core.admission.holding(self.core.access.name_of(peer)) as holding:
                    holding.finish()
                    request = await self._parsed(kind, data, time.monotonic(), context.time_remaining(), holding)
                    has_steps = "steps" in request.parameters
                    response = await self._infer(request, context, peer, emit if has_steps else None)
                if response is not None:
                    await emit(response)
            except ServingError as error:
                empty_response = message("ModelInferResponse")(
                    model_name=request.model_name, model_version=request.model_version, id=request.id
                )
                await context.write(kind_of_answer(error_message=str(error), infer_response=empty_response))


def _has_strings(tensor: Message) -> bool:
    """Return True if the elements of a tensor are texts, which are read one by one."""
    return bool(tensor.datatype == "BYTES")


def _metadata(context: Any) -> dict[str, str]:
    pairs = context.invocation_metadata() or ()
    return {name: value for name, value in pairs if isinstance(value, str)}
