"""The TCP connections of gRPC: gRPC neither limits their number nor closes one of them for the server.

They are found among the open files of the process, and shut down there. gRPC then ends their calls.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias

from interposer.serving.peers import same_address

__all__ = ["close_connection", "close_excess"]

_FILES: Final = "/dev/fd"
_End: TypeAlias = tuple[str, int]
_OTHER_FILES: Final = 32
"""Open files that every server has beside connections."""


def close_connection(client: _End, port: int) -> None:
    """Close the connection of a client, given by its address and port, to a port of this process. Thread safe."""
    for file, peer in _connections(port):
        if peer[1] == client[1] and same_address(peer[0], client[0]):
            _shut_down(file, peer, port)


def close_excess(port: int, most: int) -> int:
    """Close connections to a port of this process beyond `most`, and return how many were closed.

    They are connections of the clients, given by their addresses, that have the most of them. This works as well if the
    process can open no more files.
    """
    if len(_open_files()) <= most + _OTHER_FILES:
        return 0
    by_address: dict[str, list[tuple[int, _End]]] = defaultdict(list)
    for file, peer in _connections(port):
        by_address[peer[0]].append((file, peer))
    excess = max(0, sum(map(len, by_address.values())) - most)
    for _ in range(excess):
        file, peer = max(by_address.values(), key=len).pop()
        _shut_down(file, peer, port)
    return excess


def _connections(port: int) -> Iterator[tuple[int, _End]]:
    """Yield the files of the connections to a port of this process, and their clients."""
    for descriptor in _open_files():
        peer = _peer_of(descriptor, port)
        if peer is not None:
            yield descriptor, peer


def _open_files() -> list[int]:
    try:
        return [int(name) for name in os.listdir(_FILES)]
    except OSError as error:
        can_open_none = error.errno == errno.EMFILE
        return [file for file in range(os.sysconf("SC_OPEN_MAX")) if _is_open(file)] if can_open_none else []


def _is_open(file: int) -> bool:
    try:
        os.fstat(file)
    except OSError:
        return False
    return True


def _peer_of(file: int, port: int) -> _End | None:
    """Return the client at the other end of an open file; None if that is no connection to a port of this process."""
    peer: _End | None = None
    with suppress(OSError), _as_socket(file) as connection:
        name = connection.getsockname()
        if isinstance(name, tuple) and name[1] == port:
            peer = connection.getpeername()[:2]
    return peer


@contextmanager
def _as_socket(file: int) -> Iterator[socket.socket]:
    """Yield an open file, which stays open, as a socket; raise `OSError` if it is none."""
    connection = socket.socket(fileno=file)
    try:
        yield connection
    finally:
        connection.detach()


def _shut_down(descriptor: int, peer: _End, port: int) -> None:
    """Shut a connection down, unless its file is another one by now. A copy of the file cannot become another one."""
    copy: int | None = None
    with suppress(OSError):
        copy = os.dup(descriptor)
    descriptor = descriptor if copy is None else copy  # no copy if no more files can be opened
    with suppress(OSError), _as_socket(descriptor) as connection:
        if _peer_of(descriptor, port) == peer:
            connection.shutdown(socket.SHUT_RDWR)
    if copy is not None:
        os.close(copy)
