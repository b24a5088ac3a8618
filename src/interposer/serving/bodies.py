"""Bodies of HTTP requests, read with limits and decompressed while they arrive."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, TypeAlias, cast

from interposer.core.records import dataclass
from interposer.serving.admission import Admission, Holding
from interposer.serving.encodings import WINDOW_BITS
from interposer.serving.protocol.errors import ServingError, Status

__all__ = ["BodyEnd", "BodyLimits", "Receive", "discard_rest", "headers_of", "read_body", "whole_header"]

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Unpack: TypeAlias = Callable[[bytes, bool, bytearray], Awaitable[None]]
_STEP: Final = 1 << 17
"""The most bytes that are decompressed before other requests have their turn."""
_LARGE: Final = 1 << 20
"""Bytes of a body from which on it takes turns with other large ones."""
_UNSUSPICIOUS: Final = 1 << 20
"""Bytes of a body up to which it may be any number of times as large as its compressed form."""
_LINGER: Final = 3.0
"""Seconds in which the rest of a refused body is read and forgotten."""
_MOST_DISCARDS: Final = 8


_HEADERS: Final = "interposer.headers"
"""The key in an ASGI scope whose value is the headers by name."""


def headers_of(scope: MutableMapping[str, Any]) -> dict[str, str]:
    """Return the headers of a request by their names in lower case."""
    headers: dict[str, str] | None = scope.get(_HEADERS)
    if headers is None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        scope[_HEADERS] = headers
    return headers


def whole_header(headers: Mapping[str, str], name: str) -> int | None:
    """Return a header that is a whole number, None without it; raise `ServingError` if it is something else."""
    header_text = headers.get(name.lower())
    if header_text is None:
        return None
    if not (header_text.isascii() and header_text.isdecimal() and len(header_text) < 19):
        raise ServingError(Status.INVALID, f"the header {name} is not a whole number")
    return int(header_text)


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The limits of the body of a request.

    Args:
        size: the most bytes, before and after decompression.
        ratio: how many times as large as its compressed form a body may be, beyond its first MiB.
        seconds: the time in which the body must arrive.
    """

    size: int
    ratio: int
    seconds: float


async def read_body(
    receive: Receive, headers: Mapping[str, str], limits: BodyLimits, holding: Holding
) -> bytes | bytearray:
    """Return the body of a request, decompressed.

    Args:
        receive: the ASGI function for the next message.
        headers: the headers of the request.
        limits: the limits; bytes are counted while they arrive.
        holding: what the request holds; the body is added to it.

    Raises:
        ServingError: the body is too large, too late, too slow or damaged, there is no room for it, or the client has
            left.
    """
    announced_size = whole_header(headers, "Content-Length")
    if announced_size is not None and announced_size > limits.size:
        raise _too_large(limits.size)
    unpack = _unpacker(headers.get("content-encoding", "identity").strip().lower(), limits, holding)
    try:
        holding.watch(limits.seconds)
        return await _received(receive, unpack, limits, holding)
    except asyncio.CancelledError:
        if holding.reason is None:
            raise
        _uncancel()
        raise holding.reason from None
    finally:
        holding.finish()


def _uncancel() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()


async def _received(receive: Receive, unpack: Unpack | None, limits: BodyLimits, holding: Holding) -> bytes | bytearray:
    body: bytes | bytearray = b""
    num_received = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ServingError(Status.CANCELLED, "the client has left")
        chunk = message.get("body", b"")
        num_received += len(chunk)
        if num_received > limits.size:
            raise _too_large(limits.size)
        holding.arrived(len(chunk))
        is_last = not message.get("more_body", False)
        if unpack is not None:
            body = body or bytearray()
            await unpack(chunk, is_last, cast(bytearray, body))
        else:
            holding.take(len(chunk))
            body = _joined(body, chunk)
        if is_last:
            return body
        if num_received > _LARGE:  # of several large bodies, only one goes on in each turn of the event loop
            async with holding.turn:
                await asyncio.sleep(0)


def _joined(body: bytes | bytearray, chunk: bytes) -> bytes | bytearray:
    """Return the body with the next bytes. A body that arrives in one piece is not copied."""
    if not body:
        return chunk
    joined_body = body if isinstance(body, bytearray) else bytearray(body)
    joined_body += chunk
    return joined_body


def _too_large(limit: int) -> ServingError:
    return ServingError(Status.TOO_LARGE, f"the body of the request is larger than {limit:,} bytes")


def _unpacker(encoding: str, limits: BodyLimits, holding: Holding) -> Unpack | None:
    """Return a function that decompresses the next bytes into a body, or None if they are not compressed.

    It decompresses a little at a time and one body after the other, so that other requests do not wait for it.
    """
    if encoding in ("", "identity"):
        return None
    if encoding not in WINDOW_BITS:
        raise ServingError(Status.ENCODING, f"the content encoding {encoding[:40]!r} is neither gzip nor deflate")
    stream = zlib.decompressobj(WINDOW_BITS[encoding])
    num_packed = 0

    async def unpack(chunk: bytes, is_last: bool, body: bytearray) -> None:
        nonlocal num_packed
        num_packed += len(chunk)
        while True:
            try:
                unpacked = stream.decompress(chunk, _STEP)
            except zlib.error:
                raise ServingError(Status.INVALID, f"the body of the request is not {encoding} data") from None
            _check_unpacked(len(body) + len(unpacked), num_packed, limits)
            holding.take(len(unpacked))
            body += unpacked
            chunk = stream.unconsumed_tail
            if not chunk and len(unpacked) < _STEP:
                break
            async with holding.turn:  # so that others have their turns after each piece, not after one of each body
                await asyncio.sleep(0)
        if is_last and (not stream.eof or stream.unused_data):
            raise ServingError(Status.INVALID, f"the body of the request is not one complete {encoding} stream")

    return unpack


def _check_unpacked(size: int, num_packed: int, limits: BodyLimits) -> None:
    if size > limits.size:
        raise _too_large(limits.size)
    if size > max(_UNSUSPICIOUS, limits.ratio * num_packed):
        raise ServingError(
            Status.TOO_LARGE,
            f"the body of the request is more than {limits.ratio} times as large as its compressed form; send it with "
            "less compression, or without",
        )


class BodyEnd:
    """The ASGI function for the next message, which notes whether the body has arrived completely.

    Attributes:
        has_ended: whether the last message of the body has arrived, or the client has left.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.has_ended = False

    async def __call__(self) -> MutableMapping[str, Any]:
        """Return the next message."""
        message = await self._receive()
        self.has_ended = self.has_ended or not message.get("more_body", False)
        return message


async def discard_rest(receive: Receive, admission: Admission) -> None:
    """Read and forget the rest of a body for a short time, so that a client that still sends it reads its answer.

    Only a few bodies are discarded at a time; the others end at once.
    """
    if admission.discards >= _MOST_DISCARDS:
        return
    admission.discards += 1
    try:
        async with asyncio.timeout(_LINGER):
            message = await receive()
            while message["type"] == "http.request" and message.get("more_body", False):
                async with admission.turn:
                    await asyncio.sleep(0)
                message = await receive()
    except TimeoutError:
        pass
    finally:
        admission.discards -= 1
