"""Bodies of packets: the metadata of a stream, the directory of counters, selections and captures of counters."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any, Final

from interposer.core.errors import ParseError
from interposer.core.records import dataclass
from interposer.profiling.external.packets import MAGIC, versions

__all__ = [
    "Capture",
    "Category",
    "Counter",
    "Directory",
    "Selection",
    "StreamMetadata",
    "decode_capture",
    "decode_directory",
    "decode_metadata",
    "decode_selection",
    "encode_capture",
    "encode_directory",
    "encode_metadata",
    "encode_selection",
    "swtrace",
    "swtrace_at",
]

_VERSION: Final = 1 << 22
_DATA_LENGTH: Final = 4096
_WORDS: Final = 10
_EVENT: Final = 32
_SECTION: Final = 24
_MOST_RECORDS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class StreamMetadata:
    """The first packet of a client: who it is. `process` is the name of the process, of at most 60 characters."""

    pid: int
    process: str
    info: str = "ArmNN"
    hardware: str = ""
    software: str = "Armnn 22.0"
    data_length: int = _DATA_LENGTH


def encode_metadata(metadata: StreamMetadata, order: str = "<") -> bytes:
    """Return the body of a packet with this metadata, and the versions of all packets."""
    texts = [metadata.info, metadata.hardware, metadata.software, metadata.process]
    encoded_texts = [text.encode("ascii", "replace") + b"\0" for text in texts]
    offsets = [_WORDS * 4]
    for encoded_text in encoded_texts:
        offsets.append(offsets[-1] + len(encoded_text))
    header = struct.pack(f"{order}10I", MAGIC, _VERSION, metadata.data_length, metadata.pid, *offsets, 0)
    version_numbers = [number for kind, version in versions() for number in (kind, version)]
    return (
        header
        + b"".join(encoded_texts)
        + struct.pack(f"{order}{1 + len(version_numbers)}I", len(version_numbers) // 2 << 16, *version_numbers)
    )


def decode_metadata(body: bytes, order: str = "<") -> StreamMetadata:
    """Return the metadata in the body of a packet; raise `ParseError` if it is damaged."""
    words = _unpacked(f"{order}10I", body, 0)
    if words[0] != MAGIC:
        raise ParseError(f"the magic number of the stream is {words[0]:#x}; expected {MAGIC:#x}")
    info, hardware, software, process = (_terminated(body, offset) for offset in words[4:8])
    return StreamMetadata(words[3], process, info, hardware, software, words[2])


def _terminated(body: bytes, offset: int) -> str:
    """Return the text at an offset up to its zero byte; an offset of 0 means that there is none."""
    if not offset:
        return ""
    end = body.find(b"\0", offset)
    if offset > len(body) or end < 0:
        raise ParseError(f"the text at byte {offset} of the stream's metadata has no end")
    return body[offset:end].decode("ascii", "replace")


# --- the directory of counters ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter of a category: `number` identifies it in selections and captures.

    A counter of a device with several cores has the numbers up to `last`. `kind` is 0 for counts since the previous
    capture and 1 for values, and `interpolation` 0 for linear and 1 for none. A captured number times `multiplier` is
    in `units`.
    """

    number: int
    name: str
    description: str
    units: str = ""
    last: int = -1
    device: int = 0
    counter_set: int = 0
    kind: int = 0
    interpolation: int = 0
    multiplier: float = 1.0


@dataclass(frozen=True, slots=True)
class Category:
    """A named group of counters."""

    name: str
    counters: tuple[Counter, ...]


@dataclass(frozen=True, slots=True)
class Directory:
    """All counters of a client. Devices are ``(number, name, cores)``, and counter sets ``(number, name, count)``."""

    categories: tuple[Category, ...]
    devices: tuple[tuple[int, str, int], ...] = ()
    counter_sets: tuple[tuple[int, str, int], ...] = ()

    def counters(self) -> list[Counter]:
        """Return the counters of all categories, by their numbers."""
        return sorted(
            (counter for category in self.categories for counter in category.counters),
            key=lambda counter: counter.number,
        )

    def by_number(self) -> dict[int, Counter]:
        """Return the counters by the numbers that captures have: one of several cores once for each core."""
        counters, counters_by_number = self.counters(), dict[int, Counter]()
        next_numbers = [*(counter.number for counter in counters[1:]), _MOST_RECORDS]
        for counter, next_number in zip(counters, next_numbers, strict=False):
            last_number = min(max(counter.last, counter.number), next_number - 1)
            for number in range(counter.number, last_number + 1):
                name = (
                    f"{counter.name} of core {number - counter.number}"
                    if last_number > counter.number
                    else counter.name
                )
                counters_by_number[number] = replace(counter, number=number, last=number, name=name)
        return counters_by_number


def swtrace(text: str, order: str = "<") -> bytes:
    """Return a text as the protocol writes it: its length with the zero at its end, and zeros up to a full word."""
    text_bytes = text.encode("ascii", "replace") + b"\0"
    return struct.pack(f"{order}I", len(text_bytes)) + text_bytes + b"\0" * (-len(text_bytes) % 4)


def swtrace_at(body: bytes, offset: int, order: str = "<") -> tuple[str, int]:
    """Return the text that `swtrace` has written at an offset, and the offset after it.

    A text that the end of the body truncates is accepted, as Arm NN truncates the last one of its directory.
    """
    (length,) = _unpacked(f"{order}I", body, offset)
    start = offset + 4
    if length > len(body) - start + 4:
        raise ParseError(f"the text at byte {offset} has {length:,} bytes, which is more than the packet has left")
    return body[start : start + length].rstrip(b"\0").decode("ascii", "replace"), start + length + -length % 4


def encode_directory(directory: Directory, order: str = "<") -> bytes:
    """Return the body of a packet with the directory."""
    sections = [
        [_named(number, cores, name, order) for number, name, cores in directory.devices],
        [_named(number, count, name, order) for number, name, count in directory.counter_sets],
        [_category(category, order) for category in directory.categories],
    ]
    counts = [len(section) for section in sections]
    starts = [_SECTION, _SECTION + 4 * counts[0], _SECTION + 4 * (counts[0] + counts[1])]
    words = [word for count, start in zip(counts, starts, strict=True) for word in (count << 16, start)]
    offset, pointers = _SECTION + 4 * sum(counts), list[int]()
    for section, start in zip(sections, starts, strict=True):
        for record in section:
            pointers.append(offset - start)
            offset += len(record)
    header = struct.pack(f"{order}{6 + len(pointers)}I", *words, *pointers)
    return header + b"".join(record for section in sections for record in section)


def _named(number: int, count: int, name: str, order: str) -> bytes:
    return struct.pack(f"{order}II", number << 16 | count, 8) + swtrace(name, order)


def _category(category: Category, order: str) -> bytes:
    events = [_event(counter, order) for counter in category.counters]
    name = swtrace(category.name, order)
    offsets = [4 * len(events) + len(name)]
    for event in events:
        offsets.append(offsets[-1] + len(event))
    header = (len(events) << 16, 12, 4 * (3 + len(events)), *offsets[:-1])
    return struct.pack(f"{order}{len(header)}I", *header) + name + b"".join(events)


def _event(counter: Counter, order: str) -> bytes:
    name, description = swtrace(counter.name, order), swtrace(counter.description, order)
    units = swtrace(counter.units, order) if counter.units else b""
    description_offset = _EVENT + len(name)
    last_number = counter.number if counter.last < 0 else counter.last
    header = struct.pack(
        f"{order}IIIdIII",
        last_number << 16 | counter.number,
        counter.device << 16 | counter.counter_set,
        counter.kind << 16 | counter.interpolation,
        counter.multiplier,
        _EVENT,
        description_offset,
        description_offset + len(description) if units else 0,
    )
    return header + name + description + units


def decode_directory(body: bytes, order: str = "<") -> Directory:
    """Return the directory in the body of a packet; raise `ParseError` if it is damaged."""
    records = _Records(body, order)
    words = records.numbers("6I", 0)
    offset_tables = [records.places(words[word] >> 16, words[word + 1]) for word in (0, 2, 4)]
    devices, sets = (tuple(records.named(offset) for offset in offsets) for offsets in offset_tables[:2])
    return Directory(tuple(records.category(offset) for offset in offset_tables[2]), devices, sets)


class _Records:
    """Reads the records of a directory, which do not overlap; so they cannot need more memory than the packet does."""

    def __init__(self, body: bytes, order: str) -> None:
        self._body, self._order = body, order
        self._bytes_left = len(body) + 4

    def _spend(self, size: int) -> None:
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise ParseError("the records of a directory of counters overlap")

    def numbers(self, form: str, offset: int) -> tuple[Any, ...]:
        """Return the numbers at an offset."""
        self._spend(struct.calcsize(f"<{form}"))
        return _unpacked(f"{self._order}{form}", self._body, offset)

    def places(self, count: int, start: int) -> list[int]:
        """Return the offsets of the records to which a table of pointers at `start` points."""
        return [start + pointer for pointer in self.numbers(f"{count}I", start)]

    def text(self, offset: int) -> str:
        """Return the text at an offset."""
        text, end = swtrace_at(self._body, offset, self._order)
        self._spend(min(end, len(self._body)) - offset)
        return text

    def named(self, offset: int) -> tuple[int, str, int]:
        """Return the number, the name and the count of a device or a set of counters."""
        number, name = self.numbers("II", offset)
        return number >> 16, self.text(offset + name), number & 0xFFFF

    def category(self, offset: int) -> Category:
        """Return a category with its counters."""
        count, table, name = self.numbers("III", offset)
        events = self.places(count >> 16, offset + table)
        return Category(self.text(offset + name), tuple(self.event(event) for event in events))

    def event(self, offset: int) -> Counter:
        """Return a counter."""
        numbers, owner, kind, multiplier, name, description, units = self.numbers("IIIdIII", offset)
        texts = [self.text(offset + text_offset) if text_offset else "" for text_offset in (name, description, units)]
        owners = {"device": owner >> 16, "counter_set": owner & 0xFFFF}
        return Counter(
            numbers & 0xFFFF, texts[0], texts[1], texts[2], numbers >> 16, kind=kind >> 16,
            interpolation=kind & 0xFFFF, multiplier=multiplier, **owners,
        )  # fmt: skip


# --- selections and captures ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Selection:
    """Which counters are captured, and how often: the period in microseconds. 0 or no counters end the captures."""

    period: int
    counters: tuple[int, ...] = ()


def encode_selection(selection: Selection, order: str = "<") -> bytes:
    """Return the body of a packet with the selection."""
    return struct.pack(f"{order}I{len(selection.counters)}H", selection.period, *selection.counters)


def decode_selection(body: bytes, order: str = "<") -> Selection:
    """Return the selection in the body of a packet, which may be empty; raise `ParseError` if it is damaged."""
    if not body:
        return Selection(0)
    if len(body) < 4 or len(body) % 2:
        raise ParseError(f"a selection of counters has {len(body)} bytes; expected 4 and 2 for each counter")
    period, *counters = struct.unpack(f"{order}I{(len(body) - 4) // 2}H", body)
    return Selection(period, tuple(counters))


@dataclass(frozen=True, slots=True)
class Capture:
    """The values of counters, as pairs of number and value, at a moment in nanoseconds of the client's clock."""

    at: int
    values: tuple[tuple[int, int], ...]


def encode_capture(capture: Capture, order: str = "<") -> bytes:
    """Return the body of a packet with the capture. Values are modulo 2**32."""
    values = b"".join(struct.pack(f"{order}HI", number, value & 0xFFFFFFFF) for number, value in capture.values)
    return struct.pack(f"{order}Q", capture.at) + values


def decode_capture(body: bytes, order: str = "<") -> Capture:
    """Return the capture in the body of a packet; raise `ParseError` if it is damaged."""
    if len(body) < 8 or (len(body) - 8) % 6:
        raise ParseError(f"a capture of counters has {len(body)} bytes; expected 8 and 6 for each counter")
    (at,) = struct.unpack_from(f"{order}Q", body)
    return Capture(at, tuple(struct.iter_unpack(f"{order}HI", body[8:])))


def _unpacked(form: str, body: bytes, offset: int) -> tuple[Any, ...]:
    try:
        return struct.unpack_from(form, body, offset)
    except struct.error:
        message = f"the packet ends at byte {len(body)}, within the numbers at byte {offset}"
        raise ParseError(message) from None
