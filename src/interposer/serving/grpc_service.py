"""The Open Inference Protocol over gRPC."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from interposer.core.errors import ConfigError, MissingDependencyError
from interposer.serving.admission import Holding
from interposer.serving.core import Call, Core
from interposer.serving.grpc_connections import close_connection
from interposer.serving.grpc_health import Health
from interposer.serving.grpc_reading import Calls, Readers, Streams
from interposer.serving.listen import Listen, host_and_port
from interposer.serving.peers import Peer, peer_of_call
from interposer.serving.protocol.errors import ServingError, Status, as_serving_error
from interposer.serving.protocol.extensions import ABSENT_METHODS, EMPTY_METHODS
from interposer.serving.protocol.grpc_messages import (
    HEALTH,
    INFERENCE,
    InferMessage,
    Message,
    checked,
    checked_infer,
    infer_response,
    infer_stream_response,
    message,
    methods,
    parameters_of,
    read_infer_request,
)
from interposer.serving.protocol.messages import InferResponse
from interposer.serving.protocol.reading import Reading
from interposer.serving.protocol.tensors import size_of
from interposer.serving.streams import answers
from interposer.serving.tracing import is_traced

__all__ = ["start_grpc"]

_Emit: TypeAlias = Callable[[InferResponse, bool], Awaitable[None]]
"""Sends an answer of a stream; the second argument says whether its elements are in typed contents."""
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
"""Bytes of a message with typed contents from which on it is read or made in another thread."""
_COUNTED: Final = 1 << 14
"""Bytes of a message from which on they count: a request until its call ends, an answer until gRPC has sent it."""
_UNREAD: Final = 20.0
"""Seconds after which the connection is closed whose client does not read an answer."""
_LEAST_RATE: Final = 1 << 18
"""Bytes per second of a large answer at which a client may read it for longer."""
_PATIENCE: Final = 5.0
"""Seconds in which a client can read an answer before it may have to make room for others."""
_ELEMENT: Final = 10
"""The most bytes of an element in typed contents."""


class _LostClientError(ServingError):
    """The connection of a client has ended while an answer was sent to it."""

    def __init__(self) -> None:
        super().__init__(Status.CANCELLED, "the client has left")


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
    services = {INFERENCE: _handlers(grpc, service), HEALTH: Health(grpc, core, service.calls).handlers()}
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
        reason = str(error).partition("; set GRPC_VERBOSITY")[0]
        hint = "choose another port, as with --grpc-port, or offer no gRPC (--no-grpc)"
        raise ConfigError(f"the server cannot listen for gRPC on {address}: {reason}; {hint}") from None
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
        # requests are bytes, as gRPC has no status code for damaged messages; answers to inference are, too
        serialize = None if name in ("ModelInfer", "ModelStreamInfer") else response.SerializeToString
        if name == "ModelStreamInfer":
            handler = grpc.stream_stream_rpc_method_handler(service.stream, response_serializer=serialize)
        else:
            answer_request = service.answering(name, request)  # reads its one message itself, when there is room for it
            handler = grpc.stream_unary_rpc_method_handler(answer_request, response_serializer=serialize)
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
        self._readers, self.calls = Readers(core.options), Calls(core.options)
        self._streams = Streams(core.options, lambda: core.admission.held, lambda: core.repository.served)
        self.port = 0
        self._has_certificates = has_certificates

    def answering(self, name: str, kind: Message) -> Callable[[Any, Any], Awaitable[Message]]:
        """Return the handler of the method `name`, whose errors become status codes; requests have the class `kind`."""
        method = getattr(self, f"on_{name}")

        async def handler(requests: Any, context: Any) -> Message:
            try:
                peer = self._peer(context, name not in _FOR_ALL)
                client = self.core.access.name_of(peer)
                self.calls.enter(client)
                try:
                    with self.core.admission.holding(client) as holding:
                        return await method(await self._request(kind, context, holding), context, peer)
                finally:
                    self.calls.leave(client)
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
        arrived_at = time.monotonic()
        request_bytes = await self._readers.read(context, context.time_remaining())
        holding.finish()
        if request_bytes is self._grpc.aio.EOF:
            raise ServingError(Status.INVALID, "the call has no message")
        return await self._parsed(kind, request_bytes, arrived_at, context.time_remaining(), holding)

    async def _parsed(
        self, kind: Message, request_bytes: bytes, arrived_at: float, seconds: float | None, holding: Holding
    ) -> Message:
        """Return a message, whose bytes count until its call or its answer in a stream ends.

        Its elements are counted before it is parsed.
        """
        if len(request_bytes) >= _COUNTED:
            holding.take(len(request_bytes))
        options = self.core.options
        limit = options.timeout if seconds is None else min(seconds, options.timeout)
        reading = Reading(options.max_values, arrived_at + limit, holding.take)
        parse = checked_infer if kind is message("ModelInferRequest") else partial(checked, kind)
        if len(request_bytes) < _LARGE:
            return parse(request_bytes, reading)
        return await self.core.in_parser(reading, parse, request_bytes, reading)

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
        return message("RepositoryIndexResponse")(models=await self.core.index(peer, request.ready))

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
        regions = {region["name"]: kind(**region) for region in self._regions(request.name, peer)}
        return message("SystemSharedMemoryStatusResponse")(regions=regions)

    def _regions(self, name: str, peer: Peer) -> list[dict[str, Any]]:
        return self.core.shared_memory().status(name, self.core.owner_of_regions(peer))

    async def on_SystemSharedMemoryRegister(self, request: Message, context: Any, peer: Peer) -> Message:  # noqa: N802
        self.core.check_shared_memory(peer)
        self.core.shared_memory().register(request.name, request.key, request.offset, request.byte_size, peer)
        return message("SystemSharedMemoryRegisterResponse")()

    async def on_SystemSharedMemoryUnregister(self, request: Message, context: Any, peer: Peer) -> Message:  # noqa: N802
        self.core.check_shared_memory(peer)
        self.core.shared_memory().unregister(request.name, self.core.owner_of_regions(peer))
        return message("SystemSharedMemoryUnregisterResponse")()

    def on_ModelInfer(self, request: InferMessage, context: Any, peer: Peer) -> Coroutine[Any, Any, bytes | None]:  # noqa: N802
        return self._infer(request, context, peer)

    async def _infer(self, request: InferMessage, context: Any, peer: Peer, emit: _Emit | None = None) -> bytes | None:
        """Return the answer to a request, or pass each of its answers to `emit`.

        The request and its inputs are forgotten as soon as possible, because they may be large.
        """
        core, seconds = self.core, context.time_remaining()
        metadata = _metadata(context) if is_traced() else None
        fields, raw_contents = request
        name, version = fields.model_name, fields.model_version
        core.access.check("infer", peer, name)
        client = core.access.name_of(peer)
        with core.call(name, version, "grpc", seconds, client=client) as call, core.span(call, metadata):
            call.peer, regions = peer, core.regions_of(peer)
            reading = Reading(core.options.max_values, call.deadline)
            size = fields.ByteSize() + sum(map(len, raw_contents))
            if size < _LARGE or (raw_contents and not any(_has_strings(tensor) for tensor in fields.inputs)):
                infer_request = read_infer_request(request, regions, reading)
            else:
                infer_request = await core.in_parser(reading, read_infer_request, request, regions, reading)
            is_typed = any(tensor.HasField("contents") for tensor in fields.inputs)
            del request, fields, raw_contents
            if emit is not None and "steps" in infer_request.parameters:
                async with aclosing(answers(call, infer_request)) as responses:
                    async for response in responses:
                        await emit(response, is_typed)
                return None
            response = await call.run(infer_request)
            del infer_request
            if emit is None:
                return await self._counted_answer(response, is_typed, context, call)
        await emit(response, is_typed)
        return None

    async def _counted_answer(self, response: InferResponse, is_typed: bool, context: Any, call: Call) -> bytes:
        """Return the message of an answer, whose bytes count until gRPC has sent it.

        Once it is made, the connection is closed if the client reads it slowly.

        Raises:
            ServingError: there is no room for the answer.
        """
        size = _size_of(response, is_typed)
        if size < _COUNTED:
            return infer_response(response, not is_typed)
        holding, close = self.core.admission.holding(call.client), self._closing(call.peer)
        holding.finish()
        holding.take(size)
        context.add_done_callback(lambda _: self.core.admission.release(holding))
        answer = await _made(self.core, infer_response, response, is_typed)
        holding.sends(close, _PATIENCE)
        timer = asyncio.get_running_loop().call_later(max(_UNREAD, size / _LEAST_RATE), close)
        context.add_done_callback(lambda _: timer.cancel())
        return answer

    def _closing(self, peer: Peer) -> Callable[[], None]:
        """Return a function that closes the connection of a client soon. It may be called in any thread."""
        loop = asyncio.get_running_loop()

        def close() -> None:
            if peer.ends is not None:  # in another thread, because a look at a thousand files takes long
                loop.call_soon_threadsafe(loop.run_in_executor, None, close_connection, peer.ends[0], self.port)

        return close

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
        peer = self._peer(context)
        client = self.core.access.name_of(peer)
        try:
            with self.calls.of(client):
                await self._answer_requests(context, peer, client)
        except _LostClientError:
            raise asyncio.CancelledError from None  # gRPC sends no status then; it would fail on a closed connection
        except ServingError as error:
            await context.abort(getattr(self._grpc.StatusCode, error.status.grpc), str(error))

    @contextmanager
    def _emission(self, context: Any, peer: Peer, client: str) -> Iterator[_Emit]:
        """Yield a function that sends an answer of a stream, whose bytes count until the client has read it."""
        with self.core.admission.holding(client) as holding:
            holding.finish()

            async def emit(response: InferResponse, is_typed: bool) -> None:
                size = _size_of(response, is_typed)
                with holding.also(size):
                    answer = await _made(self.core, infer_stream_response, response, is_typed)
                    await self._write(context, peer, answer, max(_UNREAD, size / _LEAST_RATE))

            yield emit

    async def _answer_requests(self, context: Any, peer: Peer, client: str) -> None:
        """Answer the requests of a stream until the client ends it. An idle stream keeps no message."""
        is_open = True
        while is_open:
            is_open = await self._answer_next(await self._next(context), context, peer, client)

    async def _answer_next(self, request_bytes: Any, context: Any, peer: Peer, client: str) -> bool:
        """Answer a message of a stream; return False at the end of the stream."""
        if request_bytes is self._grpc.aio.EOF:
            return False
        kind = message("ModelInferRequest")
        request = InferMessage(kind(), [])
        try:
            with self.core.admission.holding(client) as holding, self._emission(context, peer, client) as emit:
                holding.finish()
                request = await self._parsed(kind, request_bytes, time.monotonic(), context.time_remaining(), holding)
                await self._infer(request, context, peer, emit)
            return True
        except _LostClientError:
            raise
        except ServingError as error:
            answer = _error_in_stream(error, request.message)
            error.__traceback__ = error.__context__ = error.__cause__ = None  # whose frames have the message
        del request_bytes, request  # nothing counts them while the client reads the answer
        await self._write(context, peer, answer, _UNREAD)
        return True

    async def _write(self, context: Any, peer: Peer, answer: bytes, seconds: float) -> None:
        """Send an answer of a stream, and close the connection if the client does not read it in this time.

        The answer is not cancelled, because gRPC cannot end a call while an answer is under way. It fails by itself as
        soon as the connection is closed.

        Raises:
            ServingError: the connection has been closed.
        """
        timer = asyncio.get_running_loop().call_later(seconds, self._closing(peer))
        try:
            await context.write(answer)
        except self._grpc.aio.InternalError:
            raise _LostClientError from None
        finally:
            timer.cancel()


def _size_of(response: InferResponse, is_typed: bool) -> int:
    """Return about how many bytes an answer needs as a message, and again in the form in which gRPC sends it."""
    arrays = [output.array for output in response.outputs if not output.is_shared]
    return 2 * sum(max(size_of(array), array.size * _ELEMENT if is_typed else 0) for array in arrays)


async def _made(
    core: Core, make: Callable[[InferResponse, bool], bytes], response: InferResponse, is_typed: bool
) -> bytes:
    """Return the message of an answer; a large one is made in another thread."""
    if _size_of(response, is_typed) < _LARGE:
        return make(response, not is_typed)
    return await core.in_writer(make, response, not is_typed)


def _error_in_stream(error: ServingError, request: Message) -> bytes:
    """Return the answer of a stream to a request that is refused."""
    response = message("ModelInferResponse")(
        model_name=request.model_name, model_version=request.model_version, id=request.id
    )
    answer = message("ModelStreamInferResponse")(error_message=str(error), infer_response=response)
    content: bytes = answer.SerializeToString()
    return content


def _has_strings(tensor: Message) -> bool:
    """Return True if the elements of a tensor are texts, which are read one by one."""
    return bool(tensor.datatype == "BYTES")


def _metadata(context: Any) -> dict[str, str]:
    metadata_pairs = context.invocation_metadata() or ()
    return {name: value for name, value in metadata_pairs if isinstance(value, str)}
