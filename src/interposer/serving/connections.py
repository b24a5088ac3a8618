"""Connections of clients over HTTP: their number, the size of the head of a request, and the time until it is there.

The head of a request is its line and its headers. Its bytes are counted while they arrive.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from interposer.serving.peers import STATE, connection_state, crowding_client

__all__ = ["HEAD_SECONDS", "LARGEST_HEAD", "Connections", "allowed_connections", "protocol_class"]

HEAD_SECONDS: Final = 20.0
"""Seconds after which a connection without a request is looked at; it is closed after one or two of these times."""
LARGEST_HEAD: Final = 1 << 16
"""The most bytes of the line and the headers of a request."""
_MOST_HEADERS: Final = 256
_MOST_PIPELINED: Final = 64
_PARSED_AT_ONCE: Final = 1 << 14
"""Bytes of a body in chunks that are parsed before other connections have their turns."""
_LINGER: Final = 1.0
"""Seconds in which a client can read why its request was refused before the connection is closed."""
_OTHER_FILES: Final = 256
"""Open files that the process needs beside HTTP connections."""


class Connections:
    """The open HTTP connections of a server. Used from the thread of the event loop only.

    Args:
        limit: how many may be open. If there are more, the one that has waited for a request for longest is closed. If
            none waits, it is the oldest one of those that send a body or do not read an answer, of the client with the
            most connections.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[Any, None] = {}
        self._waiting: dict[Any, None] = {}
        """Connections without a whole head of a request, those first that have waited for longest."""

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, connection: Any) -> None:
        """Note a new connection, and close another one if there are too many."""
        self._open[connection] = None
        self._waiting[connection] = None
        if len(self._open) > self._limit:
            oldest = next(iter(self._waiting))
            if oldest is connection:
                oldest = self._of_busiest_client(connection)
            self.closed(oldest)
            oldest.transport.abort()

    def _of_busiest_client(self, newest_connection: Any) -> Any:
        """Return the connection that makes room for the newest one, or the newest one itself if none has to.

        A client has to make room for one that has fewer connections. Those that wait for an answer stay.
        """
        other_connections = (connection for connection in self._open if connection is not newest_connection)
        address = crowding_client(Counter(map(_address_of, other_connections)), _address_of(newest_connection))
        of_client = (
            connection for connection in self._open if address is not None and _address_of(connection) == address
        )
        return next((connection for connection in of_client if connection.is_slow), newest_connection)

    def waits(self, connection: Any) -> None:
        """Note that a connection waits for its next request."""
        if connection in self._open:
            self._waiting.pop(connection, None)
            self._waiting[connection] = None

    def works(self, connection: Any) -> None:
        """Note that a connection has a request."""
        self._waiting.pop(connection, None)

    def closed(self, connection: Any) -> None:
        """Forget a connection."""
        self._open.pop(connection, None)
        self._waiting.pop(connection, None)


def _address_of(connection: Any) -> str:
    return connection.client[0] if connection.client else ""


def allowed_connections(wanted: int, protocols: int = 1) -> int:
    """Let the process open files for so many connections of each protocol, and return how many the system allows."""
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = protocols * wanted + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < files:
        soft = files if hard == resource.RLIM_INFINITY else min(files, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, (soft - _OTHER_FILES) // protocols))


class _HeadError(Exception):
    """A request whose head is refused, with the HTTP status and the sentence for the client."""

    def __init__(self, status: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


if TYPE_CHECKING:
    _Protocol: TypeAlias = Any
else:
    _Protocol = object


class _Limits(_Protocol):  # type: ignore[misc] # uvicorn's class is added by `protocol_class`
    """Limits of a connection: it is closed if the head of a request does not arrive in time, or is too large."""

    registry: Connections
    app_state: dict[str, Any]
    _seen: Any = None
    _timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _head: int | None = None
    """Bytes of the head that is arriving; None if no head is arriving, or if h11 counts them."""
    _parsed = 0
    _refusal: _HeadError | None = None
    _is_refused = _has_chunks = False
    _unparsed = b""
    """Bytes of a body in chunks that are parsed after others had their turns."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        of_connection = connection_state(transport) | {"abort": transport.abort}
        self.app_state = {**self.app_state, STATE: of_connection}
        self._head = 0 if hasattr(self, "parser") else None
        self._timer = self.loop.call_later(HEAD_SECONDS, self._close_if_idle)
        self.registry.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self.registry.closed(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._unparsed:  # which arrived although reading was paused
            self._unparsed += data
            self.transport.pause_reading()
            return
        if len(data) > _PARSED_AT_ONCE and self._head is not None:  # the head says whether a body in chunks comes
            self._parse(data[:_PARSED_AT_ONCE])
            data = data[_PARSED_AT_ONCE:]
        if self._is_refused:
            return
        if len(data) <= _PARSED_AT_ONCE or not self._has_chunks:
            self._parse(data)
            return
        self._unparsed = data
        self.transport.pause_reading()
        self.loop.call_soon(self._parse_next)

    @property
    def is_slow(self) -> bool:
        """True if the client sends a body, or does not read an answer."""
        is_sending = self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete
        return is_sending or self.flow.write_paused

    def _parse_next(self) -> None:
        """Parse the next bytes of a body in chunks, which may be so small that its bytes take long."""
        received_bytes, self._unparsed = self._unparsed[:_PARSED_AT_ONCE], self._unparsed[_PARSED_AT_ONCE:]
        if self._is_refused or self.transport.is_closing():
            self._unparsed = b""
            return
        self._parse(received_bytes)
        if self._unparsed:
            self.flow.read_paused = False  # the application must not resume reading before all of these are parsed
            self.loop.call_soon(self._parse_next)
        elif not self.flow.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def _parse(self, data: bytes) -> None:
        if self._head is not None:
            self._head += len(data)
        super().data_received(data)
        if self._head is not None and self._head > LARGEST_HEAD:
            self._refuse(_too_large_head())

    # Called by httptools while it parses; an exception ends that, and uvicorn then calls send_400_response.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head, self._parsed = self._head or 0, 0
        self._has_chunks = False

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._has_chunks = self._has_chunks or name.lower() == b"transfer-encoding"
        self._count(len(name) + len(value) + 4)
        if len(self.headers) > _MOST_HEADERS:
            self._raise(_HeadError("431 Request Header Fields Too Large", f"it has over {_MOST_HEADERS} headers"))

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= _MOST_PIPELINED:
            self._raise(_HeadError("429 Too Many Requests", f"{_MOST_PIPELINED} requests before it have no answer"))
        self._head = None
        self.registry.works(self)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not getattr(self, "pipeline", None):  # which h11 does not have
            self.registry.waits(self)

    def _count(self, size: int) -> None:
        self._parsed += size
        if self._parsed > LARGEST_HEAD:
            self._raise(_too_large_head())

    def _raise(self, error: _HeadError) -> None:
        self._refusal = error
        raise error

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal or _HeadError("400 Bad Request", msg))

    def _unsupported_upgrade_warning(self) -> None:
        """Do not log that a client asked for another protocol; the request is answered in HTTP/1.1."""

    def _refuse(self, error: _HeadError) -> None:
        """Answer that a head is refused, and read no more requests."""
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        content = json.dumps({"error": f"the head of the request is refused: {error}"}).encode()
        head = f"HTTP/1.1 {error.status}\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n"
        retry = "retry-after: 1\r\n" if error.status.startswith("429") else ""
        self.transport.write(f"{head}{retry}connection: close\r\n\r\n".encode() + content)
        self.loop.call_later(_LINGER, self.transport.close)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
        super().resume_writing()

    def _close_if_idle(self) -> None:
        """Close the connection if no request has begun since the last look."""
        if self.transport.is_closing():  # and the client does not read what is left
            self.transport.abort()
            return
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self._seen is self.cycle:
            self.transport.close()
        self._seen = self.cycle if is_idle else self  # itself: no cycle, so the next idle one gets its whole time
        self._timer = self.loop.call_later(HEAD_SECONDS, self._close_if_idle)


def protocol_class(base: Any, registry: Connections) -> Any:
    """Return uvicorn's class of connections `base`, with limits for the head of a request and for slow readers.

    uvicorn itself closes connections that are idle after an answer, but waits forever for the first request, for the
    rest of one that has begun, and for a client that does not read its answer. With httptools, it has no limit for the
    size of a head; h11 has one of its own.

    Args:
        base: uvicorn's class, with httptools or with h11.
        registry: the connections of the server.
    """
    return type("Connection", (_Limits, base), {"registry": registry})


def _too_large_head() -> _HeadError:
    return _HeadError("431 Request Header Fields Too Large", f"it has more than {LARGEST_HEAD:,} bytes")
