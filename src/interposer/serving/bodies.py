"""Bodies of HTTP requests, read with limits and decompressed while they arrive."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

from interposer.serving.encodings import WINDOW_BITS
from interposer.serving.protocol.errors import ServingError, Status

__all__ = ["Receive", "headers_of", "read_body", "whole_header"]

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]


def headers_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of a request by their names in lower case."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def whole_header(headers: Mapping[str, str], name: str) -> int | None:
    """Return a header that is a whole number, None without it; raise `ServingError` if it is something else."""
    text = headers.get(name.lower())
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise ServingError(Status.INVALID, f"the header {name} is not a whole number")
    return int(text)


async def read_body(receive: Receive, headers: Mapping[str, str], limit: int, seconds: float) -> bytes:
    """Return the body of a request, decompressed.

    Args:
        receive: the ASGI function for the next message.
        headers: the headers of the request.
        limit: the most bytes, before and after decompression; they are counted while they arrive.
        seconds: the time in which the body must arrive.

    Raises:
        ServingError: the body is too large, too late or damaged, or the client has left.
    """
    announced = whole_header(headers, "Content-Length")
    if announced is not None and announced > limit:
        raise _too_large(limit)
    unpack = _unpacker(headers.get("content-encoding", "identity").strip().lower(), limit)
    parts: list[bytes] = []
    num_received = 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ServingError(Status.CANCELLED, "the client has left")
                data = message.get("body", b"")
                num_received += len(data)
                if num_received > limit:
                    raise _too_large(limit)
                is_last = not message.get("more_body", False)
                parts.append(data if unpack is None else unpack(data, is_last))
                if is_last:
                    return parts[0] if len(parts) == 1 else b"".join(parts)
    except TimeoutError:
        raise ServingError(
            Status.TIMEOUT_OF_BODY, f"the body of the request did not arrive within {seconds:.3g} seconds"
        ) from None


def _too_large(limit: int) -> ServingError:
    return ServingError(Status.TOO_LARGE, f"the body of the request is larger than {limit:,} bytes")


def _unpacker(encoding: str, limit: int) -> Callable[[bytes, bool], bytes] | None:
    """Return a function that decompresses the next bytes, or None if they are not compressed."""
    if encoding in ("", "identity"):
        return None
    if encoding not in WINDOW_BITS:
        raise ServingError(Status.ENCODING, f"the content encoding {encoding[:40]!r} is neither gzip nor deflate")
    stream = zlib.decompressobj(WINDOW_BITS[encoding])
    size = 0

    def unpack(data: bytes, is_last: bool) -> bytes:
        nonlocal size
        try:
            unpacked = stream.decompress(data, limit - size + 1)
        except zlib.error:
            raise ServingError(Status.INVALID, f"the body of the request is not {encoding} data") from None
        size += len(unpacked)
        if size > limit:
            raise _too_large(limit)
        if is_last and (not stream.eof or stream.unused_data):
            raise ServingError(Status.INVALID, f"the body of the request is not one complete {encoding} stream")
        return unpacked

    return unpack
