"""Answers about health on a port of their own, from a thread that nothing else uses.

Requests are refused or answered on the other ports however many there are; this port answers also while all
connections there are taken.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

__all__ = ["HealthPort"]

_MOST: Final = 64
"""Connections that may be open; the oldest is closed for a new one."""
_SECONDS: Final = 2.0
_LONGEST: Final = 8192
_PATHS: Final = {b"/v2/health/live": 0, b"/v2/health/ready": 1, b"/livez": 0, b"/readyz": 1}


class HealthPort:
    """A thread that answers ``GET /v2/health/live`` and ``/v2/health/ready``, with 200 or 503.

    Args:
        bound: the socket, which is bound; it is closed at the end.
        is_live: called in the thread for the answer about liveness.
        is_ready: called in the thread for the answer about readiness.
    """

    def __init__(self, bound: socket.socket, is_live: Callable[[], bool], is_ready: Callable[[], bool]) -> None:
        self._socket = bound
        self._answers = is_live, is_ready
        self._connections: dict[int, tuple[socket.socket, float, bytearray]] = {}
        self._wake, self._woken = socket.socketpair()
        bound.setblocking(False)
        bound.listen(_MOST)
        self._thread = threading.Thread(target=self._run, name="interposer-health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, and close the port."""
        self._wake.close()
        self._thread.join()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            ready = {number for number, _ in poll.poll(500)}
            if self._woken.fileno() in ready:
                break
            for number in ready & self._connections.keys():
                self._read(number, poll)
            if self._socket.fileno() in ready:
                self._accept(poll)
            self._close_old(poll)
        for number in tuple(self._connections):
            self._close(number, poll)
        self._socket.close()
        self._woken.close()

    def _accept(self, poll: select.poll) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return
        if len(self._connections) >= _MOST:
            self._close(next(iter(self._connections)), poll)
        connection.setblocking(False)
        self._connections[connection.fileno()] = connection, time.monotonic(), bytearray()
        poll.register(connection, select.POLLIN)

    def _read(self, number: int, poll: select.poll) -> None:
        connection, _, received = self._connections[number]
        try:
            data = connection.recv(_LONGEST)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        received += data
        is_whole = b"\r\n\r\n" in received
        if is_whole:
            with contextlib.suppress(OSError):
                connection.send(self._answer(bytes(received)))
        if is_whole or not data or len(received) > _LONGEST:
            self._close(number, poll)

    def _answer(self, request: bytes) -> bytes:
        method, _, rest = request.partition(b" ")
        kind = _PATHS.get(rest.partition(b" ")[0].partition(b"?")[0])
        if kind is None or method not in (b"GET", b"HEAD"):
            return _response("404 Not Found", b'{"error":"this port answers about health only"}', method)
        is_well = self._answers[kind]()
        text = f'{{"{("live", "ready")[kind]}":{str(is_well).lower()}}}'.encode()
        return _response("200 OK" if is_well else "503 Service Unavailable", text, method)

    def _close_old(self, poll: select.poll) -> None:
        end = time.monotonic() - _SECONDS
        for number in [number for number, (_, began, _) in self._connections.items() if began < end]:
            self._close(number, poll)

    def _close(self, number: int, poll: select.poll) -> None:
        connection, _, _ = self._connections.pop(number)
        poll.unregister(connection)
        connection.close()


def _response(status: str, content: bytes, method: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n"
    return f"{head}connection: close\r\n\r\n".encode() + (b"" if method == b"HEAD" else content)
