"""Messages between a process and its workers: pickled objects over a socket."""

from __future__ import annotations

import pickle
import select
import socket
import struct
import time
from typing import Any, Final

__all__ = ["Channel", "Nothing"]

_HEAD: Final = struct.Struct("<Q")


class Nothing(Exception):  # noqa: N818 - a state of the channel, not a failure
    """Raised by `Channel.pop` if no complete message has arrived yet."""


class Channel:
    """One end of a connection between two processes that trust each other. Not thread-safe."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._unread_bytes = bytearray()
        self.ended = False

    def fileno(self) -> int:
        """Return the file descriptor, for `select.poll`."""
        return self._socket.fileno()

    def send(self, message: Any) -> None:
        """Send a message; raise `OSError` if the other end is closed."""
        content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._socket.sendall(_HEAD.pack(len(content)) + content)

    def take_in(self) -> None:
        """Read the bytes that have arrived into a buffer, from which `pop` takes messages; wait if there are none."""
        try:
            content = self._socket.recv(1 << 20)
        except ConnectionError:
            content = b""
        self.ended = self.ended or not content
        self._unread_bytes += content

    def pop(self) -> Any:
        """Return the next complete message.

        Raises:
            Nothing: no complete message has arrived.
        """
        if len(self._unread_bytes) < _HEAD.size:
            raise Nothing
        (size,) = _HEAD.unpack_from(self._unread_bytes)
        if len(self._unread_bytes) < _HEAD.size + size:
            raise Nothing
        content = bytes(self._unread_bytes[_HEAD.size : _HEAD.size + size])
        del self._unread_bytes[: _HEAD.size + size]
        return pickle.loads(content)

    def receive(self, deadline: float | None = None) -> Any:
        """Wait for the next message.

        Args:
            deadline: a time of `time.monotonic`; None waits without limit.

        Raises:
            EOFError: the other end is closed.
            TimeoutError: no message arrived before the deadline.
        """
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while True:
            try:
                return self.pop()
            except Nothing:
                if self.ended:
                    raise EOFError from None
            seconds_left = None if deadline is None else deadline - time.monotonic()
            if seconds_left is not None and seconds_left <= 0:
                raise TimeoutError
            if poll.poll(None if seconds_left is None else 1000 * seconds_left):
                self.take_in()

    def close(self) -> None:
        """Close this end of the connection."""
        self._socket.close()
