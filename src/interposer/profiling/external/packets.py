"""Packets of Arm NN's external profiling protocol: headers of eight bytes, bodies, and their order of bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from interposer.core.errors import ParseError

__all__ = ["HEADER", "MAGIC", "MOST_BYTES", "Kind", "Packet", "PacketReader", "versions"]

HEADER: Final = 8
MAGIC: Final = 0x45495434
"""The first word of a stream, by which the receiver finds the order of bytes of the sender."""
MOST_BYTES: Final = 1 << 24
"""The body of a packet is shorter than this, as its length has 24 bits."""
_LENGTH: Final = MOST_BYTES - 1
_KIND: Final = 0xFFFF0000


class Kind(IntEnum):
    """What a packet is: the upper half of the first word of its header."""

    STREAM_METADATA = 0x00000000
    CONNECTION_ACKNOWLEDGED = 0x00010000
    COUNTER_DIRECTORY = 0x00020000
    REQUEST_COUNTER_DIRECTORY = 0x00030000
    COUNTER_SELECTION = 0x00040000
    PER_JOB_COUNTER_SELECTION = 0x00050000
    ACTIVATE_TIMELINE = 0x00060000
    DEACTIVATE_TIMELINE = 0x00070000
    COUNTER_CAPTURE = 0x0C000000
    PER_JOB_CAPTURE = 0x0C080000
    PER_JOB_CAPTURE_DATA = 0x0C090000
    TIMELINE_DIRECTORY = 0x04000000
    TIMELINE_MESSAGE = 0x04010000


def versions() -> list[tuple[Kind, int]]:
    """Return the version of each kind of packet, all 1.0.0, in the order of the stream's metadata."""
    return [(kind, 1 << 22) for kind in Kind]


class Packet(NamedTuple):
    """A packet: the first word of its header, and its body. `kind` is None for a kind that is not known."""

    word: int
    body: bytes

    @property
    def kind(self) -> Kind | None:
        """The kind of the packet; None for one that this protocol does not define."""
        try:
            return Kind(self.word & _KIND)
        except ValueError:
            return None

    def encode(self, order: str = "<") -> bytes:
        """Return the bytes of the packet, with numbers in an order of bytes: ``<`` little endian, ``>`` big endian."""
        return struct.pack(f"{order}II", self.word, len(self.body)) + self.body


class PacketReader:
    """Divides a stream of bytes into packets, however they arrive.

    The stream of a client begins with its metadata, which has `MAGIC` as its first word. Until it has arrived, the
    order of bytes is not known. The stream of a collector has the order of the client, which is given.

    Args:
        order: the order of bytes; None finds it in the stream.
        limit: the most bytes that a body may have.
    """

    def __init__(self, order: str | None = None, limit: int = MOST_BYTES) -> None:
        self.order, self._limit = order, limit
        self._received_bytes = bytearray()
        self.offset = 0

    def feed(self, data: bytes) -> Iterator[Packet]:
        """Yield the packets that are complete with these bytes.

        Raises:
            ParseError: the stream does not begin as one of a client, or a body is longer than the limit.
        """
        self._received_bytes += data
        if self.order is None and len(self._received_bytes) >= HEADER + 4:
            self.order = _order_of(bytes(self._received_bytes[: HEADER + 4]))
        while self.order is not None and len(self._received_bytes) >= HEADER:
            word, length = struct.unpack_from(f"{self.order}II", self._received_bytes)
            length &= _LENGTH
            if length > self._limit:
                raise ParseError(
                    f"a packet has {length:,} bytes; at most {self._limit:,} are accepted", where=f"byte {self.offset}"
                )
            if len(self._received_bytes) < HEADER + length:
                return
            body = bytes(self._received_bytes[HEADER : HEADER + length])
            del self._received_bytes[: HEADER + length]
            self.offset += HEADER + length
            yield Packet(word, body)

    @property
    def rest(self) -> int:
        """The number of buffered bytes, which belong to a packet that has not arrived completely."""
        return len(self._received_bytes)


def _order_of(first_bytes: bytes) -> str:
    for order in "<>":
        word, _, magic = struct.unpack(f"{order}III", first_bytes)
        if magic == MAGIC and word & _KIND == Kind.STREAM_METADATA:
            return order
    raise ParseError(
        f"this is no profiling stream: its first packet has {first_bytes[8:].hex()} instead of the magic number"
    )
