"""Messages between the host and its child over a socket pair; tensors are never sent this way.

Every message has a header (magic mark, kind, number, length) and a body: JSON, or 4-byte integers for the most frequent
messages. An answer has the number of its question. File descriptors of shared memory are attached to a message.
"""

from __future__ import annotations

import array
import json
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from interposer.core.config import thread_budget

__all__ = ["ANSWER", "ASK", "PROBLEM", "RUN", "Channel", "GarbageError", "Message"]

MARK: Final = b"ipr1"
HEAD: Final = struct.Struct("<4sIII")
LONGEST: Final = 256 << 20
"""The largest length of a message in bytes; enough for a graph of a million layers."""
FOR_EVER: Final = 1e6
"""Timeouts of this many seconds or more are replaced by none, because they overflow the kernel's timers."""
SPIN: Final = 150e-6
"""Seconds of busy polling before a blocking wait, because waking up an idle processor takes about as long."""
ASK, RUN, ANSWER, PROBLEM = 1, 2, 3, 4
_CHUNK: Final = 1 << 16
_FDS: Final = socket.CMSG_SPACE(64) if hasattr(socket, "CMSG_SPACE") else 0


class GarbageError(Exception):
    """Raised if received bytes are not a valid message."""


class Message(NamedTuple):
    """One message between the host and its child process, as `Channel` sends and receives it.

    `kind` is ASK, RUN, ANSWER or PROBLEM (the answer if the request failed). `number` identifies a request, and its
    answer has the same number. `body` is JSON, or 4-byte integers for RUN. `fds` are the file descriptors that were
    attached.
    """

    kind: int
    number: int
    body: bytes
    fds: tuple[int, ...] = ()

    @property
    def plain(self) -> dict[str, Any]:
        """The body as a JSON object; raises `GarbageError` if it is not one."""
        try:
            content = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise GarbageError(f"a message that is no JSON ({error})") from error
        if not isinstance(content, dict):
            raise GarbageError("a message that is no JSON object")
        return content


class Channel:
    """One end of the socket pair by which the host and its child process exchange messages. Not thread-safe."""

    def __init__(self, socket_end: socket.socket) -> None:
        self._socket = socket_end
        self._wait_seconds: float | None = None
        self._poll = select.poll()
        self._poll.register(socket_end, select.POLLIN)
        self._spins = thread_budget() > 1

    def send(self, kind: int, number: int, body: bytes, fds: Sequence[int] = ()) -> None:
        """Send a message: its kind, the number of its request, its body, and file descriptors for the other process.

        Raises:
            OSError: the other end is closed.
            TimeoutError: the other end did not read within the timeout that `wait_at_most` set.
        """
        header = HEAD.pack(MARK, kind, number, len(body))
        if not fds:
            self._socket.sendall(header + body)
            return
        self._socket.sendmsg([header], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
        self._socket.sendall(body)

    def wait_at_most(self, seconds: float | None) -> None:
        """Set the timeout in seconds for sending and receiving; None waits forever."""
        if seconds != self._wait_seconds:
            self._socket.settimeout(seconds if seconds is None or seconds < FOR_EVER else None)
            self._wait_seconds = seconds

    def receive(self) -> Message:
        """Return the next message.

        Raises:
            EOFError: the other end is closed.
            TimeoutError: no complete message came within the timeout that `wait_at_most` set.
            GarbageError: the received bytes are not a message.
        """
        received, fds = self._receive_with_fds()
        started_at = time.monotonic() if len(received) < HEAD.size else 0.0
        while len(received) < HEAD.size:
            received += self._receive_some(started_at)
        mark, kind, number, length = HEAD.unpack_from(received)
        if mark != MARK or length > LONGEST:
            raise GarbageError(f"bytes that are no message: {received[:16]!r}")
        body = received[HEAD.size :]
        if len(body) < length:
            body = self._receive_rest(body, length)
        if len(body) > length:
            raise GarbageError("more bytes than one message has")
        return Message(kind, number, body, fds)

    def _receive_with_fds(self) -> tuple[bytes, tuple[int, ...]]:
        if self._spins:
            self._spin()
        received, ancillary, _, _ = self._socket.recvmsg(_CHUNK, _FDS)
        if not received:
            raise EOFError
        if not ancillary:
            return received, ()
        fds = array.array("i")
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
        return received, tuple(fds)

    def _spin(self) -> None:
        until = time.perf_counter() + SPIN
        while not self._poll.poll(0) and time.perf_counter() < until:
            pass

    def _receive_some(self, started_at: float) -> bytes:
        if self._wait_seconds is not None and time.monotonic() - started_at > self._wait_seconds:
            raise TimeoutError
        received = self._socket.recv(_CHUNK)
        if not received:
            raise EOFError
        return received

    def _receive_rest(self, body: bytes, length: int) -> bytes:
        pieces, length_so_far, started_at = [body], len(body), time.monotonic()
        while length_so_far < length:
            pieces.append(self._receive_some(started_at))
            length_so_far += len(pieces[-1])
        return b"".join(pieces)

    def close(self) -> None:
        """Close this end of the connection."""
        self._socket.close()
