"""Connections of a client: to a collector's socket, to files alone, and copies of both directions in files."""

from __future__ import annotations

import os
import select
import socket
import time
from collections import deque
from contextlib import ExitStack
from typing import BinaryIO, Final, Protocol

from interposer.profiling.external.options import ExternalProfilingOptions
from interposer.profiling.external.packets import Kind, Packet, PacketReader

__all__ = ["Connection", "open_connection", "ready", "socket_address"]

_CHUNK: Final = 1 << 16
_ADDRESS: Final = 108
"""The bytes of an address in the Unix domain. Both sides pass all of them, so that zeros fill an abstract name."""
_MOST_PENDING: Final = 1 << 22
"""The most bytes that wait for a collector that does not read; more packets are dropped."""


class Connection(Protocol):
    """Where packets are sent to and commands come from."""

    def send(self, data: bytes) -> bool:
        """Send a packet without waiting; return False if it is dropped.

        `OSError` is raised if the other side is gone.
        """

    def receive(self, seconds: float) -> bytes | None:
        """Return what has arrived after at most so many seconds, b"" at the end, and None if nothing has arrived."""

    def close(self, seconds: float = 0) -> None:
        """Send what is waiting within so many seconds, and end the connection."""


class _Socket:
    """A socket of Unix domain that is connected to a collector. Only one thread uses it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(socket_address(path))
        except OSError:
            self._socket.close()
            raise
        self._socket.setblocking(False)
        self._pending_views: deque[memoryview] = deque()
        self._waiting_bytes = 0

    def send(self, data: bytes) -> bool:
        if self._waiting_bytes + len(data) > _MOST_PENDING:
            return False
        self._pending_views.append(memoryview(data))
        self._waiting_bytes += len(data)
        self._flush()
        return True

    def _flush(self) -> None:
        while self._pending_views:
            try:
                num_sent = self._socket.send(self._pending_views[0])
            except BlockingIOError:
                return
            self._waiting_bytes -= num_sent
            self._pending_views[0] = self._pending_views[0][num_sent:]
            if not self._pending_views[0]:
                self._pending_views.popleft()

    def receive(self, seconds: float) -> bytes | None:
        events = ready(self._socket, seconds, writing=bool(self._pending_views))
        if events & select.POLLOUT:
            self._flush()
        return self._socket.recv(_CHUNK) if events & ~select.POLLOUT else None

    def close(self, seconds: float = 0) -> None:
        try:
            if self._pending_views and seconds:
                self._socket.settimeout(seconds)
                self._socket.sendall(b"".join(self._pending_views))
        except OSError:
            pass
        finally:
            self._socket.close()


class _NoCollector:
    """Answers the metadata of a stream as a collector does, and drops all other packets."""

    def __init__(self) -> None:
        self._answers: deque[bytes] = deque()
        self._reader = PacketReader()

    def send(self, data: bytes) -> bool:
        for packet in self._reader.feed(data):
            if packet.kind is Kind.STREAM_METADATA:
                self._answers.append(Packet(Kind.CONNECTION_ACKNOWLEDGED, b"").encode(self._reader.order or "<"))
        return True

    def receive(self, seconds: float) -> bytes | None:
        if self._answers:
            return self._answers.popleft()
        time.sleep(max(seconds, 0))
        return None

    def close(self, seconds: float = 0) -> None:
        pass


class _Copied:
    """A connection that copies what is sent and received to files."""

    def __init__(self, inner: Connection, outgoing: BinaryIO | None, incoming: BinaryIO | None) -> None:
        self._inner, self._outgoing, self._incoming = inner, outgoing, incoming

    def send(self, data: bytes) -> bool:
        if self._outgoing is not None:
            self._outgoing.write(data)
            self._outgoing.flush()
        return self._inner.send(data)

    def receive(self, seconds: float) -> bytes | None:
        received_bytes = self._inner.receive(seconds)
        if received_bytes and self._incoming is not None:
            self._incoming.write(received_bytes)
            self._incoming.flush()
        return received_bytes

    def close(self, seconds: float = 0) -> None:
        with ExitStack() as stack:
            for file in (self._outgoing, self._incoming):
                if file is not None:
                    stack.callback(file.close)
            self._inner.close(seconds)


def ready(connection: socket.socket, seconds: float, *, writing: bool = False) -> int:
    """Wait for at most so many seconds until a socket can be read, or written, and return the events of ``poll``.

    Unlike ``select``, this has no limit for the number of the socket's file descriptor.
    """
    poll = select.poll()
    poll.register(connection, select.POLLIN | (select.POLLOUT if writing else 0))
    return sum(events for _, events in poll.poll(max(seconds, 0) * 1000))


def socket_address(path: str | os.PathLike[str]) -> str | bytes:
    """Return the address of a Unix domain socket for its path, in which "@" in front stands for an abstract one."""
    path = os.fspath(path)
    if path.startswith("@"):
        return (b"\0" + path[1:].encode()).ljust(_ADDRESS, b"\0")
    return path


def open_connection(options: ExternalProfilingOptions, *, again: bool = False) -> Connection:
    """Return the connection that the options ask for; `OSError` is raised if there is no collector, or no file.

    The capture files are new, unless the client connects `again`: then it adds to those of its first connection.
    """
    has_files = bool(options.outgoing_capture_file or options.incoming_capture_file)
    connection: Connection = _NoCollector() if options.file_only and has_files else _Socket(options.socket)
    if not has_files:
        return connection
    try:
        files = [_opened(path, again) for path in (options.outgoing_capture_file, options.incoming_capture_file)]
        return _Copied(connection, *files)
    except OSError:
        connection.close()
        raise


def _opened(path: str | os.PathLike[str], again: bool) -> BinaryIO | None:
    return open(path, "ab" if again else "wb") if path else None
