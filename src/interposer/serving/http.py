"""The Open Inference Protocol over HTTP, as an ASGI application."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from interposer.core.errors import MissingDependencyError
from interposer.serving.admission import Admission, Holding
from interposer.serving.bodies import (
    BodyEnd,
    BodyLimits,
    Receive,
    discard_rest,
    headers_of,
    read_body,
    whole_header,
)
from interposer.serving.core import Call, Core
from interposer.serving.doors import Doors
from interposer.serving.encodings import accepted_encoding, compressed
from interposer.serving.peers import Peer, abort_of_scope, peer_of_scope
from interposer.serving.protocol.errors import ServingError, Status, as_serving_error
from interposer.serving.protocol.extensions import NO_CUDA, NO_LOGS, NO_TRACES
from interposer.serving.protocol.http_messages import read_infer_request, small_object_of, write_response
from interposer.serving.protocol.messages import InferRequest, InferResponse
from interposer.serving.protocol.reading import Reading
from interposer.serving.protocol.tensors import size_of
from interposer.serving.streams import answers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["http_app", "metrics_app"]

Scope: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Handler: TypeAlias = Callable[[Any], Awaitable[Any]]
Result = TypeVar("Result")
_log: Final = logging.getLogger("interposer.serving")
_LENGTH: Final = "Inference-Header-Content-Length"
_LARGE: Final = 1 << 18
"""Bytes of JSON from which on it is read and written in another thread, so that the event loop can go on."""
_COMPRESSED: Final = 1 << 10
"""Bytes of an answer from which on it is compressed, if the client accepts that."""
_PIECE: Final = 1 << 18
"""Bytes of an answer that are sent at once."""
_LONGEST_NUMBER: Final = 12
"""Characters that a number has in JSON text, with its comma."""
_SMALL_BODY: Final = 1 << 16
"""The largest body of a request that is no inference."""
_SECONDS: Final = 10.0
_LONG: Final = 0.02
"""Seconds of a request after which the server looks whether its client has left."""


def http_app(core: Core, *, metrics: bool = True) -> Any:
    """Return the ASGI application of a server. `metrics` says whether it answers at ``/metrics``.

    Raises:
        MissingDependencyError: the package starlette is not installed.
    """
    try:
        from starlette.applications import Starlette  # noqa: PLC0415 - an optional dependency
        from starlette.exceptions import HTTPException  # noqa: PLC0415
        from starlette.routing import Route  # noqa: PLC0415
    except ImportError:
        raise MissingDependencyError("starlette", "serve", "the server") from None
    api = _Api(core)
    infer, stream = _Infer(core), _InferStream(core)
    routes = [Route(f"{path}/infer", infer, methods=["POST"]) for path in _MODEL]  # first, as they are sought in order
    routes += [Route(f"{path}/infer_stream", stream, methods=["POST"]) for path in _MODEL]
    routes += [Route(path, _guarded(handler), methods=[method]) for method, path, handler in api.routes(metrics)]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _wrong_path}, lifespan=_lifespan(core))
    return Doors(_Shortcut(infer, app), core.options.hosts, core.options.origins)


_MODEL: Final = ("/v2/models/{model}", "/v2/models/{model}/versions/{version}")


class _Shortcut:
    """An ASGI application that passes inference requests on without a search in the routes of the other one.

    Args:
        infer: the application for inference requests.
        app: the application for all requests. It also has the route of `infer`, for requests with a root path.
    """

    def __init__(self, infer: _Infer, app: Any) -> None:
        self._infer, self._app = infer, app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = _names_in(scope) if scope["type"] == "http" else None
        if names is None:
            await self._app(scope, receive, send)
            return
        scope["path_params"] = names
        await self._infer(scope, receive, send)


def _names_in(scope: Scope) -> dict[str, str] | None:
    """Return the model and its version in the path of an inference request; None for other requests."""
    if scope["method"] != "POST" or scope.get("root_path"):
        return None
    match scope["path"].split("/"):
        case ["", "v2", "models", model, "infer"] if model:
            return {"model": model}
        case ["", "v2", "models", model, "versions", version, "infer"] if model and version:
            return {"model": model, "version": version}
    return None


def metrics_app(core: Core) -> Any:
    """Return an ASGI application that answers at ``/metrics`` only, and not pages of other hosts."""
    from starlette.applications import Starlette  # noqa: PLC0415 - an optional dependency
    from starlette.routing import Route  # noqa: PLC0415

    app = Starlette(routes=[Route("/metrics", _guarded(_Api(core).public_metrics), methods=["GET"])])
    return Doors(app, core.options.hosts, ())


def _lifespan(core: Core) -> Any:
    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        try:
            yield
        finally:
            core.end()

    return lifespan


def answer(payload: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Any:
    """Return a response with a JSON body."""
    from starlette.responses import Response  # noqa: PLC0415 - an optional dependency

    json_text = json.dumps(payload, separators=(",", ":"))
    return Response(json_text, status, dict(headers or {}), "application/json")


def refusal(error: ServingError) -> Any:
    """Return the response for an error."""
    return answer({"error": str(error)}, error.status.http, _headers_of(error))


def _headers_of(error: ServingError) -> dict[str, str]:
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    if error.status is Status.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = "Bearer"
    return headers


async def _wrong_path(request: Any, error: Any) -> Any:
    reason = "has no such path" if error.status_code == 404 else "does not offer this method for the path"
    message = f"the server {reason}: {request.method} {request.url.path[:200]}"
    return answer({"error": message}, error.status_code, error.headers)


def _guarded(handler: Handler) -> Handler:
    async def guarded(request: Any) -> Any:
        try:
            return await handler(request)
        except ServingError as error:
            return refusal(error)
        except Exception as error:
            _log.error("%s %r failed: %s", request.method, request.url.path, error, exc_info=error)
            return refusal(as_serving_error(error))

    return guarded


class _Infer:
    """The ASGI application for inference requests, which stops a run when its client leaves."""

    def __init__(self, core: Core) -> None:
        self.core = core

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body_end, headers = BodyEnd(receive), headers_of(scope)
        peer = peer_of_scope(scope, headers.get("authorization", ""))
        with self.core.admission.holding(self.core.access.name_of(peer)) as holding:
            try:
                body_parts, length = await self._answered(scope, headers, peer, body_end, holding)
                size, refusal = sum(map(len, body_parts)), None
            except ServingError as error:
                refusal = _bare(error)
            if refusal is not None:
                self.core.admission.release(holding)
                await _send_error(send, refusal, body_end, self.core.admission)
                return
            fields = [(b"content-type", b"application/json" if length is None else b"application/octet-stream")]
            if length is not None:
                fields.append((_LENGTH.lower().encode(), str(length).encode()))
            encoding = accepted_encoding(headers.get("accept-encoding", "")) if size >= _COMPRESSED else None
            if encoding is not None:
                fields += [(b"content-encoding", encoding.encode()), (b"vary", b"accept-encoding")]
                body_parts = [await _in_thread(self.core, size, compressed, body_parts, encoding)]
            if size > _PIECE:
                holding.sends(abort_of_scope(scope))
            await _send(send, 200, fields, body_parts, holding)

    async def _answered(
        self, scope: Scope, headers: Mapping[str, str], peer: Peer, receive: Receive, holding: Holding
    ) -> tuple[list[bytes], int | None]:
        core, path, arrived_at = self.core, scope["path_params"], time.monotonic()
        name, version = path["model"], path.get("version", "")
        try:
            core.access.check("infer", peer, name)
            core.check_model(name, version)
            length = whole_header(headers, _LENGTH)
            body = await read_body(receive, headers, core.body_limits, holding)
        except ServingError as error:
            core.refused("http", error)
            raise
        with (
            core.call(name, version, "http", arrived=arrived_at, client=holding.client) as call,
            core.span(call, headers),
        ):
            call.peer = peer
            request = await self._read(
                body, length, peer, Reading(core.options.max_values, call.deadline, holding.take)
            )
            with _Watch(receive, call):
                response = await call.run(request)
            is_binary = request.parameters.get("binary_data_output") is True
            size = _size_of_answer(response, is_binary)
            if size >= _LARGE:
                holding.take(size)
            return await _in_thread(core, size, write_response, response, is_binary)

    async def _read(self, body: bytes | bytearray, length: int | None, peer: Peer, reading: Reading) -> InferRequest:
        regions = self.core.regions_of(peer)
        size = len(body) if length is None or _may_have_strings(body, length) else length
        if size < _LARGE:
            return read_infer_request(body, length, regions, reading)
        return await self.core.in_parser(reading, read_infer_request, body, length, regions, reading)


def _bare(error: ServingError) -> ServingError:
    """Return an error without the frames in which it was raised, because they have the body of the request."""
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error


def _size_of_answer(response: InferResponse, is_binary: bool) -> int:
    """Return about how many bytes an answer needs while it is written: its arrays, its parts, and all of them."""
    arrays = [output.array for output in response.outputs]
    size_of_text = 0 if is_binary else sum(array.size for array in arrays) * _LONGEST_NUMBER
    size = sum(map(size_of, arrays))
    return size + 2 * max(size_of_text, size)


def _may_have_strings(body: bytes | bytearray, length: int) -> bool:
    """Return True if the binary tensors of a request may be texts, which are read one by one."""
    return body.find(b"BYTES", 0, length) >= 0 or body.find(b"\\", 0, length) >= 0


async def _in_thread(core: Core, size: int, function: Callable[..., Result], *args: Any) -> Result:
    """Return the result of a function, which is called in another thread if it has to do with many bytes."""
    return function(*args) if size < _LARGE else await core.in_writer(function, *args)


class _InferStream(_Infer):
    """The ASGI application for inference requests that are answered by a stream of server-sent events."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body_end, headers = BodyEnd(receive), headers_of(scope)
        peer = peer_of_scope(scope, headers.get("authorization", ""))
        events = _Events(self.core, send)
        with self.core.admission.holding(self.core.access.name_of(peer)) as holding:
            try:
                await self._streamed(scope, headers, peer, body_end, holding, events)
                refusal = None
            except ServingError as error:
                refusal = _bare(error)
            if refusal is not None and not events.has_begun:
                self.core.admission.release(holding)
                await _send_error(send, refusal, body_end, self.core.admission)
                return
            await events.end(refusal)

    async def _streamed(
        self, scope: Scope, headers: Mapping[str, str], peer: Peer, receive: Receive, holding: Holding, events: _Events
    ) -> None:
        core, path, arrived_at = self.core, scope["path_params"], time.monotonic()
        name, version = path["model"], path.get("version", "")
        try:
            core.access.check("infer", peer, name)
            core.check_model(name, version)
            length = whole_header(headers, _LENGTH)
            body = await read_body(receive, headers, core.body_limits, holding)
        except ServingError as error:
            core.refused("http", error)
            raise
        with (
            core.call(name, version, "http", arrived=arrived_at, client=holding.client) as call,
            core.span(call, headers),
        ):
            call.peer = peer
            reading = Reading(core.options.max_values, call.deadline, holding.take)
            request = await self._read(body, length, peer, reading)
            with _Watch(receive, call):
                async with aclosing(answers(call, request)) as responses:
                    async for response in responses:
                        await events.send(response, holding)


class _Events:
    """Sends answers as server-sent events."""

    def __init__(self, core: Core, send: Send) -> None:
        self._core, self._send = core, send
        self.has_begun = False

    async def send(self, response: InferResponse, holding: Holding) -> None:
        """Send an answer, whose bytes `holding` holds until then; raise `ServingError` if it has bytes of tensors."""
        size = _size_of_answer(response, False)
        with holding.also(size if size >= _LARGE else 0):
            body_parts, length = await _in_thread(self._core, size, write_response, response, False)
            if length is not None:
                raise ServingError(
                    Status.INVALID, "a stream of events has no binary tensors; ask for JSON, or use gRPC"
                )
            await self._event(b"data: ", body_parts[0])

    async def end(self, error: ServingError | None) -> None:
        """End the stream, with an event for an error if there is one."""
        if error is not None:
            await self._event(b"event: error\ndata: ", json.dumps({"error": str(error)}).encode())
        await self._send({"type": "http.response.body", "body": b""})

    async def _event(self, prefix: bytes, content: bytes) -> None:
        if not self.has_begun:
            headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            self.has_begun = True
        await self._send({"type": "http.response.body", "body": prefix + content + b"\n\n", "more_body": True})


class _Watch:
    """A context in which a request is cancelled when its client closes the connection. Short requests are not."""

    def __init__(self, receive: Receive, call: Call) -> None:
        self._receive, self._call = receive, call
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LONG, self._begin)

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._call.cancel(ServingError(Status.CANCELLED, "the client has left"))


async def _send_error(send: Send, error: ServingError, receive: BodyEnd, admission: Admission) -> None:
    """Send an error. If the body has not arrived completely, the connection ends after the answer."""
    content = json.dumps({"error": str(error)}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    headers += [(name.lower().encode(), value.encode()) for name, value in _headers_of(error).items()]
    if not receive.has_ended:
        headers.append((b"connection", b"close"))
    with suppress(OSError):  # the client may be gone
        await send({"type": "http.response.start", "status": error.status.http, "headers": headers})
        await send({"type": "http.response.body", "body": content, "more_body": not receive.has_ended})
        if not receive.has_ended:
            await discard_rest(receive, admission)
            await send({"type": "http.response.body", "body": b""})


async def _send(
    send: Send, status: int, headers: list[tuple[bytes, bytes]], body_parts: list[bytes], holding: Holding
) -> None:
    headers.append((b"content-length", str(sum(map(len, body_parts))).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    body = body_parts[0] if len(body_parts) == 1 else b"".join(body_parts)
    if len(body) <= _PIECE:
        await send({"type": "http.response.body", "body": body})
        return
    for begin in range(0, len(body) - _PIECE, _PIECE):  # each is sent when the client has read most of those before
        await send({"type": "http.response.body", "body": body[begin : begin + _PIECE], "more_body": True})
        holding.arrived(_PIECE)
    await send({"type": "http.response.body", "body": body[max(0, (len(body) - 1) // _PIECE * _PIECE) :]})


class _Api:
    """The requests that are no inference."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._has_metrics = False

    def routes(self, metrics: bool) -> list[tuple[str, str, Handler]]:
        """Return method, path and handler of each request. `metrics` says whether ``/metrics`` is among them."""
        self._has_metrics = metrics
        routes: list[tuple[str, str, Handler]] = [
            *([("GET", "/metrics", self.metrics)] if metrics else []),
            ("GET", "/", self.page),
            ("GET", "/openapi.json", self.openapi),
            ("GET", "/v2", self.server),
            ("GET", "/v2/", self.server),
            ("GET", "/v2/health/live", self.live),
            ("GET", "/v2/health/ready", self.ready),
            ("GET", "/v2/models/stats", self.statistics),
            ("POST", "/v2/repository/index", self.index),
            ("POST", "/v2/repository/models/{model}/load", self.load),
            ("POST", "/v2/repository/models/{model}/unload", self.unload),
            ("GET", "/v2/systemsharedmemory/status", self.regions),
            ("GET", "/v2/systemsharedmemory/region/{region}/status", self.regions),
            ("POST", "/v2/systemsharedmemory/unregister", self.unregister),
            ("POST", "/v2/systemsharedmemory/region/{region}/register", self.register),
            ("POST", "/v2/systemsharedmemory/region/{region}/unregister", self.unregister),
            ("GET", "/v2/cudasharedmemory/status", self.no_regions),
            ("GET", "/v2/cudasharedmemory/region/{region}/status", self.no_regions),
            ("POST", "/v2/cudasharedmemory/unregister", self.nothing),
            ("POST", "/v2/cudasharedmemory/region/{region}/unregister", self.nothing),
            ("POST", "/v2/cudasharedmemory/region/{region}/register", _absent(NO_CUDA)),
        ]
        for path in ("/v2/trace/setting", "/v2/models/{model}/trace/setting"):
            routes += [(method, path, _absent(NO_TRACES)) for method in ("GET", "POST")]
        routes += [(method, "/v2/logging", _absent(NO_LOGS)) for method in ("GET", "POST")]
        for path in _MODEL:
            routes += [
                ("GET", path, self.model),
                ("GET", f"{path}/ready", self.model_ready),
                ("GET", f"{path}/config", self.config),
                ("GET", f"{path}/stats", self.statistics),
            ]
        return routes

    async def server(self, request: Any) -> Any:
        return answer(self.core.server_metadata())

    async def openapi(self, request: Any) -> Any:
        from interposer.serving.protocol.openapi import openapi_document  # noqa: PLC0415 - only where it is asked for

        return answer(openapi_document())

    async def live(self, request: Any) -> Any:
        return answer({"live": True})

    async def ready(self, request: Any) -> Any:
        return answer({"ready": self.core.is_ready}, 200 if self.core.is_ready else 503)

    async def model(self, request: Any) -> Any:
        self._check_use(request)
        return answer(self.core.model_metadata(*_name(request)))

    async def model_ready(self, request: Any) -> Any:
        name, version = _name(request)
        is_ready = self.core.is_model_ready(name, version)
        return answer({"name": name, "ready": is_ready}, 200 if is_ready else 503)

    async def config(self, request: Any) -> Any:
        self._check_use(request)
        return answer(self.core.repository.find(*_name(request)).config())

    async def statistics(self, request: Any) -> Any:
        self._check_statistics(request)
        return answer({"model_stats": self.core.statistics(*_name(request))})

    async def index(self, request: Any) -> Any:
        self._check_use(request)
        fields = await self._body(request)
        return answer(await self.core.index(_peer(request), fields.get("ready") is True))

    async def load(self, request: Any) -> Any:
        self._check_control(request)
        await self.core.load(request.path_params["model"], (await self._body(request)).get("parameters") or {})
        return answer({})

    async def unload(self, request: Any) -> Any:
        self._check_control(request)
        await self._body(request)
        await self.core.repository.unload(request.path_params["model"])
        return answer({})

    async def regions(self, request: Any) -> Any:
        self._check_memory(request)
        return answer(self.core.shared_memory().status(request.path_params.get("region", ""), self._owner(request)))

    async def no_regions(self, request: Any) -> Any:
        return answer([])

    async def nothing(self, request: Any) -> Any:
        await self._body(request)
        return answer({})

    async def register(self, request: Any) -> Any:
        self._check_memory(request)
        fields = await self._body(request)
        key, offset, size = fields.get("key"), fields.get("offset", 0), fields.get("byte_size")
        self.core.shared_memory().register(request.path_params["region"], key, offset, size, _peer(request))
        return answer({})

    async def unregister(self, request: Any) -> Any:
        self._check_memory(request)
        await self._body(request)
        self.core.shared_memory().unregister(request.path_params.get("region", ""), self._owner(request))
        return answer({})

    async def metrics(self, request: Any) -> Any:
        self._check_statistics(request)
        return await self.public_metrics(request)

    async def public_metrics(self, request: Any) -> Any:
        from starlette.responses import Response  # noqa: PLC0415 - an optional dependency

        metrics_text, content_type = self.core.metrics.text(self.core.repository.served)
        return Response(metrics_text, headers={"Content-Type": content_type})

    async def page(self, request: Any) -> Any:
        self._check_statistics(request)
        from starlette.responses import HTMLResponse  # noqa: PLC0415 - an optional dependency

        from interposer.serving.page import status_page  # noqa: PLC0415 - only where it is looked at

        return HTMLResponse(status_page(self.core, self._has_metrics, request.url.query))

    async def _body(self, request: Any) -> dict[str, Any]:
        limits = BodyLimits(_SMALL_BODY, self.core.options.max_ratio, _SECONDS)
        with self.core.admission.holding(self.core.access.name_of(_peer(request))) as holding:
            body = await read_body(request.receive, headers_of(request.scope), limits, holding)
            return small_object_of(body) if body.strip() else {}

    def _check_control(self, request: Any) -> None:
        self.core.check_control(_peer(request))

    def _check_memory(self, request: Any) -> None:
        self.core.check_shared_memory(_peer(request))

    def _owner(self, request: Any) -> int | None:
        return self.core.owner_of_regions(_peer(request))

    def _check_statistics(self, request: Any) -> None:
        self.core.access.check("statistics", _peer(request))

    def _check_use(self, request: Any) -> None:
        self.core.access.check("infer", _peer(request), request.path_params.get("model", ""))


def _absent(sentence: str) -> Handler:
    """Return the handler of an extension of the protocol that the server does not offer."""

    async def handler(request: Any) -> Any:
        raise ServingError(Status.UNIMPLEMENTED, sentence)

    return handler


def _peer(request: Any) -> Peer:
    """Return who sends a request. A browser can send the token of the server as ``token`` in the query."""
    authorization = request.headers.get("authorization", "")
    token = request.query_params.get("token") if request.method == "GET" else None
    return peer_of_scope(request.scope, f"Bearer {token}" if token and not authorization else authorization)


def _name(request: Any) -> tuple[str, str]:
    return request.path_params.get("model", ""), request.path_params.get("version", "")
