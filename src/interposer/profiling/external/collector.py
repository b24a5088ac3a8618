"""A collector of Arm NN's external profiling protocol, which accepts clients on a socket."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final

from interposer.core.errors import InvalidArgumentError, ParseError
from interposer.core.files import check_regular
from interposer.core.records import dataclass
from interposer.profiling.external.connections import ready, socket_address
from interposer.profiling.external.messages import Selection, encode_selection
from interposer.profiling.external.options import DEFAULT_SOCKET
from interposer.profiling.external.packets import Kind, Packet, PacketReader
from interposer.profiling.external.streams import Room, Stream

__all__ = ["Collector", "Orders", "Session", "read_stream"]

_log: Final = logging.getLogger("interposer.profiling")
_CHUNK: Final = 1 << 16
_PATIENCE: Final = 0.1
_TO_SEND: Final = 5.0
_LARGEST: Final = 1 << 22
"""The most bytes of a packet of a client; Arm NN's packets have at most 4,096."""
_MOST_CLIENTS: Final = 256
"""The most clients that are connected at the same time; more are turned away."""
_MOST_STORED: Final = 1 << 30
"""The most bytes of clients that a collector keeps; a client that sends more is disconnected."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What a collector asks of each client.

    Args:
        period: the period of captures in microseconds.
        counters: the numbers of the counters to capture; None asks for all that the client lists.
        timeline: whether to ask for the timeline. A client that has enabled it itself sends it in any case.
    """

    period: int = 100_000
    counters: tuple[int, ...] | None = None
    timeline: bool = False


@dataclass(slots=True)
class Session:
    """One client of a collector: its number from 1 on, what it has sent, and why its session ended.

    `error` is None while the client is connected, and empty if it has ended the connection itself. `size` is the number
    of bytes that it has sent, and `data` has them if the collector keeps them. `requested` is the latest selection of
    counters that it was sent.
    """

    number: int
    stream: Stream
    size: int = 0
    error: str | None = None
    data: bytearray | None = None
    requested: Selection | None = None


PacketHandler = Callable[[Session, Packet, Any], None]


class Collector:
    """Listens on a socket of Unix domain, and talks to each client that connects in a thread of its own.

    A client that sends damaged packets is disconnected; the others go on. Use it in a ``with`` block. `sessions` may be
    read at any time.

    Args:
        path: the path of the socket; "@" in front stands for an abstract one. A file of this name must not exist.
        orders: what to ask of clients.
        on_packet: called with each packet of a client: the session, the packet, and its content as of `Stream.add`.
            The threads of all clients call it, one at a time.
        keep: whether sessions keep the bytes that clients have sent.

    Raises:
        InvalidArgumentError: the socket cannot be created.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = DEFAULT_SOCKET,
        orders: Orders | None = None,
        on_packet: PacketHandler | None = None,
        keep: bool = False,
    ) -> None:
        path = os.fspath(path)
        if path in ("", "@"):
            raise InvalidArgumentError("the socket has no name; give a path, or a name after '@'")
        self.path, self._orders, self._on_packet, self._keep = path, orders or Orders(), on_packet, keep
        self.sessions: list[Session] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._room, self._stored_room = Room(), Room(bytes=_MOST_STORED)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(socket_address(path))
            self._socket.listen()
        except (OSError, ValueError) as error:
            self._socket.close()
            raise InvalidArgumentError(f"the socket {path!r} cannot be created: {error}") from error
        self._start(self._accept)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, name="interposer-collector", daemon=True)
        thread.start()
        self._threads = [*(other for other in self._threads if other.is_alive()), thread]

    def _accept(self) -> None:
        while not self._closing.is_set():
            if not ready(self._socket, _PATIENCE):
                continue
            try:
                connection, _ = self._socket.accept()
            except OSError as error:  # such as too many open files, until clients have gone
                _log.warning("a program could not be accepted: %s", error)
                self._closing.wait(_PATIENCE)
                continue
            self._welcome(connection)

    def _welcome(self, connection: socket.socket) -> None:
        """Begin the session of a client, unless there are too many."""
        if len(self._threads) > _MOST_CLIENTS and sum(thread.is_alive() for thread in self._threads) > _MOST_CLIENTS:
            connection.close()
            _log.warning("a program was turned away: %d are connected", _MOST_CLIENTS)
            return
        stream = Stream(room=self._room)
        session = Session(len(self.sessions) + 1, stream, data=bytearray() if self._keep else None)
        self.sessions.append(session)
        self._start(self._talk, session, connection)

    def _talk(self, session: Session, connection: socket.socket) -> None:
        reader = PacketReader(limit=_LARGEST)
        try:
            with connection:
                connection.settimeout(_TO_SEND)
                while not self._closing.is_set():
                    received_bytes = _received(connection) if ready(connection, _PATIENCE) else None
                    if received_bytes == b"":
                        break
                    self._take(session, reader, connection, received_bytes or b"")
            session.error = f"{reader.rest} bytes of a packet are missing at the end" if reader.rest else ""
        except (OSError, ParseError) as error:
            session.error = str(error)
        except Exception as error:  # the other clients go on
            session.error = f"{type(error).__name__}: {error}"
            _log.exception("the session with a program ended")

    def _take(self, session: Session, reader: PacketReader, connection: socket.socket, received_bytes: bytes) -> None:
        session.size += len(received_bytes)
        if session.data is not None:
            if not self._stored_room.take(0, len(received_bytes)):
                raise ParseError(f"programs have sent more than the {_MOST_STORED:,} bytes that are stored")
            session.data += received_bytes
        for packet in reader.feed(received_bytes):
            content = _decoded(session, reader, packet, self._room)
            if self._on_packet is not None:
                with self._lock:
                    self._on_packet(session, packet, content)
            self._answer(session, packet, connection, reader.order or "<")

    def _answer(self, session: Session, packet: Packet, connection: socket.socket, order: str) -> None:
        """Accept a client after its metadata, and ask for counters once their directory has come."""
        if packet.kind is Kind.STREAM_METADATA:
            _send(connection, Packet(Kind.CONNECTION_ACKNOWLEDGED, b""), order)
        elif packet.kind is Kind.COUNTER_DIRECTORY:
            selection, is_first = self._selection(session), session.stream.packets[packet.kind.name] == 1
            if is_first or selection != session.requested:  # a backend has registered its counters later
                session.requested = selection
                _send(connection, Packet(Kind.COUNTER_SELECTION, encode_selection(selection, order)), order)
            if self._orders.timeline and is_first:
                _send(connection, Packet(Kind.ACTIVATE_TIMELINE, b""), order)

    def _selection(self, session: Session) -> Selection:
        directory, ordered_counters = session.stream.directory, self._orders.counters
        all_counters = () if directory is None else tuple(directory.by_number())
        return Selection(self._orders.period, all_counters if ordered_counters is None else ordered_counters)

    def wait(self, seconds: float | None = None, clients: int | None = None) -> bool:
        """Wait until so many clients have come and gone, or the seconds are over; return True if they have.

        None for `clients` waits for all seconds, and None for `seconds` waits without an end.
        """
        deadline = None if seconds is None else monotonic() + seconds
        while deadline is None or monotonic() < deadline:
            ended_sessions = [session for session in list(self.sessions) if session.error is not None]
            if clients is not None and len(ended_sessions) >= clients:
                return True
            self._closing.wait(_PATIENCE / 2)
        return False

    def close(self) -> None:
        """End all connections, and remove the socket."""
        self._closing.set()
        for thread in list(self._threads):
            thread.join(_TO_SEND)
        self._socket.close()
        if not self.path.startswith("@"):
            with suppress(OSError):
                os.unlink(self.path)

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _send(connection: socket.socket, packet: Packet, order: str) -> None:
    """Send a packet, unless the client has gone: what it sent before is read all the same."""
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(packet.encode(order))


def _received(connection: socket.socket) -> bytes:
    """Return the next bytes, or none at the end; a client that goes before it reads our packets ends its stream too."""
    try:
        return connection.recv(_CHUNK)
    except ConnectionResetError:
        return b""


def _decoded(session: Session, reader: PacketReader, packet: Packet, room: Room | None = None) -> Any:
    """Add a packet to the stream of a session, and return what it contains as of `Stream.add`.

    The first packet gives the order of bytes. `room` limits what the stream stores.
    """
    if not session.stream.packets and reader.order is not None:
        session.stream = Stream(reader.order, room)
    return session.stream.add(packet)


def read_stream(path: str | os.PathLike[str], on_packet: PacketHandler | None = None) -> Session:
    """Return the session of a file that has the bytes of a client, as a capture or a collector writes it.

    Raises:
        ParseError: the file cannot be read, is no such stream, or is damaged; says where.
    """
    try:
        check_regular(path)
        stream_bytes = Path(path).read_bytes()
    except OSError as error:
        raise ParseError(f"the file cannot be read: {error.strerror or error}", path=os.fspath(path)) from error
    reader = PacketReader(limit=_LARGEST)
    session = Session(1, Stream(), len(stream_bytes), "")
    try:
        for packet in reader.feed(stream_bytes):
            content = _decoded(session, reader, packet)
            if on_packet is not None:
                on_packet(session, packet, content)
    except ParseError as error:
        raise ParseError(str(error), path=os.fspath(path)) from error
    if reader.rest:
        message = f"the stream ends within a packet: {reader.rest} bytes are left after byte {reader.offset}"
        raise ParseError(message, path=os.fspath(path))
    return session
