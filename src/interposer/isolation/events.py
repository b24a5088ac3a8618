"""Messages of profiles between a child process and the host, over a socket of their own.

The host sends commands of one byte, or of JSON. The child sends descriptions of sites, counters and threads as JSON,
and events as arrays of 8-byte integers. Nothing of this passes through the connection by which networks run.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from interposer.core.types import Array

__all__ = [
    "COUNTER",
    "DONE",
    "ENABLE",
    "EVENTS",
    "FLUSH",
    "INSTANT",
    "LOST",
    "OFF",
    "ON",
    "REFUSED",
    "SELECT",
    "SITE",
    "STEPS",
    "THREAD",
    "WIDTH",
    "Part",
    "WrongEventsError",
    "integers",
    "receive",
    "send",
]

SITE, COUNTER, THREAD, EVENTS, STEPS, LOST, DONE, SELECT = 1, 2, 3, 4, 5, 6, 7, 8
ON, OFF, FLUSH, ENABLE, REFUSED = 9, 10, 11, 12, 13
WIDTH: Final = 4
"""The number of integers of an event: its site or counter, begin, end, and thread."""
INSTANT: Final = -(1 << 63)
"""The end of an instant."""
_HEAD: Final = struct.Struct("<4sII")
_MARK: Final = b"iprE"
_LONGEST: Final = 1 << 24


class WrongEventsError(Exception):
    """Raised if received bytes are not a message of a profile."""


class Part(NamedTuple):
    """One message: its kind, and its body."""

    kind: int
    body: bytes

    @property
    def plain(self) -> Any:
        """The body as JSON data."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise WrongEventsError(f"a description that is no JSON ({error})") from error

    def numbers(self, width: int = 1) -> Array:
        """Return the body as rows of `width` integers."""
        if len(self.body) % (8 * width):
            raise WrongEventsError(f"{len(self.body)} bytes, which are not rows of {width} integers")
        return np.frombuffer(self.body, np.int64).reshape(-1, width)


def integers(values: Sequence[int]) -> bytes:
    """Return the body of a message of integers."""
    return np.array(values, np.int64).tobytes()


def send(end: socket.socket, kind: int, body: bytes | Any = b"") -> None:
    """Send a message; a body that is not bytes becomes JSON.

    Raises:
        OSError: the other end is closed, or reads nothing.
    """
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    end.sendall(_HEAD.pack(_MARK, kind, len(content)) + content)


def receive(end: socket.socket) -> Part:
    """Wait for the next message and return it.

    Raises:
        EOFError: the other end is closed.
        WrongEventsError: the bytes are not a message.
    """
    mark, kind, length = _HEAD.unpack(_exactly(end, _HEAD.size))
    if mark != _MARK or length > _LONGEST:
        raise WrongEventsError("bytes that are no message of a profile")
    return Part(kind, _exactly(end, length))


def _exactly(socket_end: socket.socket, count: int) -> bytes:
    received_bytes = bytearray()
    while len(received_bytes) < count:
        try:
            chunk = socket_end.recv(min(count - len(received_bytes), 1 << 16))
        except OSError as error:
            raise EOFError from error
        if not chunk:
            raise EOFError
        received_bytes += chunk
    return bytes(received_bytes)
