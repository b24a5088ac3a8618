"""The container format of saved networks: a header, sections with checksums, and an index; no knowledge of networks.

docs/reference/saved-format.md describes the layout byte by byte. All numbers are little-endian.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np

from interposer.core.addresses import aligned_empty
from interposer.core.checksums import BLOCK, Checksum, checksum, chunks_of_file, condensed
from interposer.core.config import thread_budget
from interposer.core.constants import LEAST_MAPPED, mapped, place_of
from interposer.core.errors import DamagedFileError, ParseError
from interposer.core.files import check_regular, unreadable
from interposer.core.records import dataclass
from interposer.core.types import Array

__all__ = ["HEADER_BYTES", "MAGIC", "PAGE", "VERSION", "Container", "Header", "Ref", "SectionWriter", "is_saved"]

MAGIC: Final = b"\x89IPN\r\n\x1a\n"
"""The first bytes of a file. Like those of PNG, they reveal a transfer that changed the ends of lines."""
VERSION: Final = 2
"""The version of the format. A file of any other version is refused."""
HEADER_BYTES: Final = 256
PAGE: Final = 4096
"""Data of at least this many bytes begins at a multiple of this many bytes."""
ALIGNMENT: Final = 64
"""Other data, and every section, begins at a multiple of this many bytes."""
_FIELDS: Final = struct.Struct("<8sIIQQQ32s")
_SIGNATURE: Final = struct.Struct("<II32s64s")
_ED25519: Final = 1
_CONTEXT: Final = b"interposer saved network signature 1\0"
_MOST_SECTIONS: Final = 1 << 24
_MOST_INDEX: Final = 1 << 30
_BYTES_PER_THREAD: Final = 4 << 20
"""Bytes of a section for each thread that verifies it."""
_VERIFIED_AT_ONCE: Final = 8 * BLOCK
"""Bytes of a section that a thread verifies before it takes the next ones."""

Ref = tuple[int, int, int]
"""A place of data: the number of its section, an offset in the section, and a size in bytes."""


class _Section(NamedTuple):
    """An entry of the table of sections: what it has, its place in the file, and the digests of its bytes."""

    kind: str
    offset: int
    size: int
    sha256: str
    checksum: str


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file. `key` and `signature` are the public key and the signature, or empty without one."""

    index_offset: int
    index_size: int
    file_size: int
    index_sha256: bytes
    version: int = VERSION
    key: bytes = b""
    signature: bytes = b""

    def to_bytes(self) -> bytes:
        """Return the bytes at the beginning of a file."""
        algorithm = _ED25519 if self.signature else 0
        signature_bytes = _SIGNATURE.pack(algorithm, 0, self.key, self.signature)
        return (self._fields() + signature_bytes).ljust(HEADER_BYTES, b"\0")

    def _fields(self) -> bytes:
        return _FIELDS.pack(
            MAGIC, self.version, HEADER_BYTES, self.index_offset, self.index_size, self.file_size, self.index_sha256
        )

    def message(self, key: bytes) -> bytes:
        """Return the bytes that a signature with the public key `key` covers.

        They have the digest of the index, which has the digests of all sections, so that the signature covers all.
        """
        return _CONTEXT + self._fields() + key

    @classmethod
    def of(cls, head: bytes, path: str | None) -> Header:
        """Return the header in the first bytes of a file.

        Raises:
            ParseError: the file has another version of the format, or the header is damaged.
        """
        if not head.startswith(MAGIC):
            raise ParseError(
                f"this is no saved network: {f'its content starts with {head[:8]!r}' if head else 'it is empty'}",
                path=path,
            )
        if len(head) < HEADER_BYTES:
            raise _damaged(path, "header", f"it has {len(head):,} bytes; expected at least {HEADER_BYTES}")
        _, version, size, index_offset, index_size, file_size, sha256 = _FIELDS.unpack_from(head)
        if version != VERSION:
            raise ParseError(
                f"this saved network has version {version} of the format, and this interposer reads version {VERSION}; "
                "save the network again with this version of interposer",
                path=path,
            )
        algorithm, reserved, key, signature = _SIGNATURE.unpack_from(head, _FIELDS.size)
        padding = head[_FIELDS.size + _SIGNATURE.size : HEADER_BYTES]
        if size != HEADER_BYTES or reserved or any(padding) or algorithm not in (0, _ED25519):
            raise _damaged(path, "header", "reserved bytes are not zero")
        if not algorithm and any(key + signature):
            raise _damaged(path, "header", "it has a signature of an unknown kind")
        header = cls(index_offset, index_size, file_size, sha256)
        return replace(header, key=key, signature=signature) if algorithm else header


def is_saved(head: bytes) -> bool:
    """Return True if the first bytes of a file are those of a saved network."""
    return head.startswith(MAGIC)


def _damaged(path: str | None, where: str, message: str) -> DamagedFileError:
    return DamagedFileError(message, path=path, where=where)


class Container:
    """An open file of sections, from a path or from bytes.

    The index is read and verified when the file is opened. A section is verified when it is read for the first time.
    Large files are mapped; what is verified is read from the file, not from the mapping.

    Raises:
        ParseError: the file cannot be read, has another version, or is damaged.
    """

    def __init__(self, source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> None:
        self.path = None if isinstance(source, bytes | bytearray | memoryview) else os.fsdecode(source)
        if sys.byteorder != "little":
            raise ParseError("saved networks are little-endian, and this machine is not", path=self.path)
        self._content = _content(source, self.path)
        self._fd = place_of(self._content)
        self.header = Header.of(self._read(0, min(HEADER_BYTES, self.size)), self.path)
        self.index = self._index()
        self._sections = self._table()
        self._verified: set[tuple[int, bool]] = set()

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self._content.nbytes

    def _index(self) -> Mapping[str, Any]:
        header = self.header
        if header.file_size != self.size:
            raise _damaged(self.path, "header", f"the file has {self.size:,} bytes; expected {header.file_size:,}")
        if header.index_size > min(self.size, _MOST_INDEX) or header.index_offset > self.size - header.index_size:
            raise _damaged(self.path, "header", "the index is outside of the file")
        index_bytes = self._read(header.index_offset, header.index_size)
        if hashlib.sha256(index_bytes).digest() != header.index_sha256:
            raise _damaged(self.path, "index", "its checksum is wrong")
        index = self._json(index_bytes, "index")
        if not isinstance(index, dict):
            raise _damaged(self.path, "index", "it is no JSON object")
        return index

    def _json(self, json_bytes: bytes, where: str) -> Any:
        try:
            return json.loads(json_bytes)
        except (ValueError, RecursionError) as error:
            raise _damaged(self.path, where, f"it is no JSON: {error}") from error

    def _table(self) -> list[_Section]:
        rows = self.index.get("sections")
        if not isinstance(rows, list) or len(rows) > _MOST_SECTIONS:
            raise _damaged(self.path, "index", "it has no table of sections")
        sections = [self._row(number, row) for number, row in enumerate(rows)]
        end = HEADER_BYTES
        for section in sorted(sections, key=lambda each: (each.offset, each.size)):
            if section.offset < end:
                raise _damaged(self.path, "index", f"sections overlap at byte {section.offset:,}")
            end = section.offset + section.size
        if end > self.header.index_offset:
            raise _damaged(self.path, "index", "a section overlaps the index, or is outside of the file")
        return sections

    def _row(self, number: int, row: Any) -> _Section:
        field_types = (str, int, int, str, str)
        if not isinstance(row, list) or len(row) != len(field_types) or list(map(type, row)) != list(field_types):
            raise _damaged(self.path, "index", f"entry {number} of the table of sections is damaged")
        section = _Section(*row)
        if section.offset < 0 or section.size < 0 or section.offset % ALIGNMENT:
            raise _damaged(self.path, "index", f"entry {number} of the table of sections is damaged")
        return section

    @property
    def sections(self) -> tuple[_Section, ...]:
        """The entries of the table of sections."""
        return tuple(self._sections)

    def _section(self, number: Any) -> _Section:
        if type(number) is not int or not 0 <= number < len(self._sections):
            raise _damaged(self.path, "index", f"there is no section {number!r}")
        return self._sections[number]

    def _read(self, offset: int, size: int) -> bytes:
        return b"".join(map(bytes, self._pieces(offset, size)))

    def _pieces(self, offset: int, size: int) -> Iterator[memoryview]:
        """Yield bytes of the file in chunks, each of which is valid until the next one.

        Those of a mapped file are read from the file, as its pages may be gone by now.
        """
        if self._fd is None:
            yield self._content[offset : offset + size].data
            return
        bytes_read = 0
        for piece in chunks_of_file(self._fd.fd, self._fd.offset + offset, size):
            yield piece
            bytes_read += len(piece)
        if bytes_read != size:
            raise _damaged(self.path, f"byte {offset + bytes_read:,}", "the file was truncated while it was read")

    def verify(self, number: int, *, strictly: bool = False) -> None:
        """Compare the checksum of a section with its bytes, once; `strictly` compares the SHA-256.

        Raises:
            ParseError: they differ.
        """
        section = self._section(number)
        if (number, strictly) not in self._verified:
            self._compare(number, self._sha256(section) if strictly else self._checksum(section), strictly)

    def _compare(self, number: int, actual: str, strictly: bool) -> None:
        """Compare the checksum of a section in the table, or its SHA-256, with that of its bytes."""
        section = self._sections[number]
        if actual != (section.sha256 if strictly else section.checksum):
            raise _damaged(self.path, f"section {number} ({section.kind})", "its checksum is wrong")
        self._verified.add((number, strictly))

    def _sha256(self, section: _Section) -> str:
        digest = hashlib.sha256()
        for piece in self._pieces(section.offset, section.size):
            digest.update(piece)
        return digest.hexdigest()

    def _checksum(self, section: _Section) -> str:
        """Return the checksum of a section; several threads read a large one."""
        full_tasks = section.size // _BYTES_PER_THREAD
        num_threads = min(full_tasks, thread_budget()) if full_tasks > 1 else 1
        if num_threads < 2:
            return checksum(self._pieces(section.offset, section.size))
        total = Checksum()
        with ThreadPoolExecutor(num_threads) as threads:
            for sums in threads.map(
                lambda start: self._sums(section, start), range(0, section.size, _VERIFIED_AT_ONCE)
            ):
                total.include(sums)
        return total.hexdigest()

    def _sums(self, section: _Section, start: int) -> bytes:
        """Return the condensed checksums of the part of a section from `start` on that one task of a thread reads."""
        size = min(_VERIFIED_AT_ONCE, section.size - start)
        return b"".join(map(condensed, self._pieces(section.offset + start, size)))

    def check(self) -> None:
        """Verify every byte of the file, with SHA-256; bytes between sections must be zero.

        Raises:
            ParseError: the file is damaged.
        """
        for number in range(len(self._sections)):
            self.verify(number, strictly=True)
        end = HEADER_BYTES
        section_ranges = sorted((section.offset, section.size) for section in self._sections)
        index_range = (self.header.index_offset, self.header.index_size)
        for offset, size in (*section_ranges, index_range, (self.size, 0)):
            if any(any(piece) for piece in self._pieces(end, offset - end)):
                raise _damaged(self.path, f"byte {end:,}", "the bytes between sections are not zero")
            end = offset + size

    def facts(self, number: Any, kind: str, *, strictly: bool = False) -> Any:
        """Return the JSON data of a section, which must be of this kind.

        Raises:
            ParseError: the section does not exist, is of another kind, or is damaged.
        """
        section = self._section(number)
        if section.kind != kind:
            raise _damaged(self.path, f"section {number}", f"it has {section.kind!r}; expected {kind!r}")
        section_bytes = self._read(section.offset, section.size)
        self._compare(
            number, hashlib.sha256(section_bytes).hexdigest() if strictly else checksum(section_bytes), strictly
        )
        return self._json(section_bytes, f"section {number} ({kind})")

    def data(self, ref: Any, *, strictly: bool = False) -> Array:
        """Return the bytes that a `Ref` names, as a read-only array of uint8, without a copy.

        Raises:
            ParseError: there are no such bytes, or their section is damaged.
        """
        if not (isinstance(ref, list | tuple) and len(ref) == 3 and all(type(element) is int for element in ref)):
            raise _damaged(self.path, "index", f"a place of data is {ref!r}; expected three numbers")
        number, offset, size = ref
        section = self._section(number)
        if section.kind != "data" or offset < 0 or size < 0 or offset > section.size - size:
            raise _damaged(self.path, f"section {number}", f"it has no {size:,} bytes of data at {offset:,}")
        self.verify(number, strictly=strictly)
        view = self._content[section.offset + offset : section.offset + offset + size]
        view.flags.writeable = False
        return view


def _content(source: str | os.PathLike[str] | bytes | bytearray | memoryview, path: str | None) -> Array:
    """Return all bytes of a file: mapped if it is large, else in aligned memory of their own."""
    try:
        if isinstance(source, bytes | bytearray | memoryview):
            return _copied(source)
        check_regular(source)
        if os.stat(source).st_size >= LEAST_MAPPED:
            return mapped(source)
        with open(source, "rb") as file:
            return _copied(file.read())
    except (OSError, ValueError) as error:
        raise unreadable(error, path) from error


def _copied(content: bytes | bytearray | memoryview) -> Array:
    memory = aligned_empty((len(content),), np.dtype(np.uint8), ALIGNMENT)
    memory[:] = np.frombuffer(content, np.uint8)
    return memory


class SectionWriter:
    """Writes the sections of a new file one after the other, and its index and header at the end.

    Equal data is stored once. Data of less than `PAGE` bytes shares one section, which is number 0.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._file.write(bytes(HEADER_BYTES))
        self._position = HEADER_BYTES
        self._sections: list[_Section | None] = [None]
        self._small_data = bytearray()
        self._stored_refs: dict[bytes, Ref] = {}
        self._numbers: dict[tuple[str, str], int] = {}

    def facts(self, kind: str, facts: Any) -> int:
        """Write JSON-compatible data as a section, and return its number. Equal data of a kind is stored once."""
        json_bytes = json.dumps(facts, separators=(",", ":"), allow_nan=False).encode()
        return self._section(kind, memoryview(json_bytes), hashlib.sha256(json_bytes).digest(), ALIGNMENT)

    def data(self, raw: memoryview) -> Ref:
        """Store bytes, unless equal bytes are stored already, and return their place."""
        digest = hashlib.sha256(raw).digest()
        stored_ref = self._stored_refs.get(digest)
        if stored_ref is not None:
            return stored_ref
        if raw.nbytes >= PAGE:
            ref = self._section("data", raw, digest, PAGE), 0, raw.nbytes
        else:
            self._small_data += bytes(-len(self._small_data) % ALIGNMENT)
            ref = 0, len(self._small_data), raw.nbytes
            self._small_data += raw
        self._stored_refs[digest] = ref
        return ref

    def _section(
        self, kind: str, section_bytes: memoryview, sha256: bytes, alignment: int, number: int | None = None
    ) -> int:
        key = kind, sha256.hex()
        if number is None and key in self._numbers:
            return self._numbers[key]
        if number is None:
            number = len(self._sections)
            self._sections.append(None)
        self._pad(alignment)
        self._file.write(section_bytes)
        self._sections[number] = _Section(
            kind, self._position, section_bytes.nbytes, sha256.hex(), checksum(section_bytes)
        )
        self._numbers[key] = number
        self._position += section_bytes.nbytes
        return number

    def _pad(self, alignment: int) -> None:
        gap = -self._position % alignment
        self._file.write(bytes(gap))
        self._position += gap

    def finish(self, facts: Mapping[str, Any]) -> Header:
        """Write the index, which has `facts` and the table of sections, and the header; return the header."""
        small_bytes = memoryview(bytes(self._small_data))
        self._section("data", small_bytes, hashlib.sha256(small_bytes).digest(), ALIGNMENT, 0)
        json_bytes = json.dumps({**facts, "sections": self._sections}, separators=(",", ":"), allow_nan=False).encode()
        self._pad(ALIGNMENT)
        self._file.write(json_bytes)
        header = Header(
            self._position, len(json_bytes), self._position + len(json_bytes), hashlib.sha256(json_bytes).digest()
        )
        self.sign(header)
        return header

    def sign(self, header: Header) -> None:
        """Write a header, such as one with a signature, at the beginning of the file."""
        self._file.seek(0)
        self._file.write(header.to_bytes())
        with suppress(OSError):
            self._file.seek(0, os.SEEK_END)
