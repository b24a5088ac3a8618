"""The program that answers about the health of a server. It imports nothing else of Interposer.

Its arguments are the descriptors of a socket that listens, and of a file in which the server notes its state.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import socket
import struct
import sys
import time
from typing import Final

_STATE: Final = struct.Struct("<d?")
"""When the event loop of the server had its turn, as `time.monotonic` says, and whether it is ready."""
_LIFELESS: Final = 20.0
"""Seconds without a turn of the event loop after which the server is not live."""
_MOST: Final = 64
"""Connections that may be open; the oldest is closed for a new one."""
_SECONDS: Final = 2.0
_LONGEST: Final = 8192
_PATHS: Final = {b"/v2/health/live": 0, b"/v2/health/ready": 1, b"/livez": 0, b"/readyz": 1}


class Answers:
    """Answers ``GET /v2/health/live`` and ``/v2/health/ready`` with 200 or 503, until standard input ends."""

    def __init__(self, listening: socket.socket, memory: mmap.mmap) -> None:
        self._socket, self._memory = listening, memory
        self._connections: dict[int, tuple[socket.socket, float, bytearray]] = {}
        listening.setblocking(False)

    def run(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(0, select.POLLIN | select.POLLHUP)
        while True:
            ready = {number for number, _ in poll.poll(500)}
            if 0 in ready:  # standard input has ended, because the server is gone
                break
            for number in ready & self._connections.keys():
                self._read(number, poll)
            if self._socket.fileno() in ready:
                self._accept(poll)
            self._close_old(poll)
        for number in tuple(self._connections):
            self._close(number, poll)

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
            received_bytes = connection.recv(_LONGEST)
        except BlockingIOError:
            return
        except OSError:
            received_bytes = b""
        received += received_bytes
        is_whole = b"\r\n\r\n" in received
        if is_whole:
            with contextlib.suppress(OSError):
                connection.send(self._answer(bytes(received)))
        if is_whole or not received_bytes or len(received) > _LONGEST:
            self._close(number, poll)

    def _answer(self, request: bytes) -> bytes:
        method, _, after_method = request.partition(b" ")
        kind = _PATHS.get(after_method.partition(b" ")[0].partition(b"?")[0])
        if kind is None or method not in (b"GET", b"HEAD"):
            return _response("404 Not Found", b'{"error":"this port answers about health only"}', method)
        beat, is_ready = _STATE.unpack_from(self._memory)
        is_live = time.monotonic() - beat < _LIFELESS
        is_well = is_live and (is_ready or kind == 0)
        json_text = f'{{"{("live", "ready")[kind]}":{str(is_well).lower()}}}'.encode()
        return _response("200 OK" if is_well else "503 Service Unavailable", json_text, method)

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


if __name__ == "__main__":
    with contextlib.suppress(OSError):  # only some users may go before other processes
        os.nice(-10)
    Answers(socket.socket(fileno=int(sys.argv[1])), mmap.mmap(int(sys.argv[2]), _STATE.size)).run()
