"""A reader of ELF files that checks machine, type and exported functions without executing any code.

Symbols are looked up like in the dynamic linker, by the hash tables of the dynamic segment; sections are not needed.
Every offset and size in the file is validated before it is used.

Source: System V ABI, chapters 4 and 5; the GNU hash table as in glibc's ``elf/dl-lookup.c``.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

from interposer.core.records import dataclass

__all__ = ["Elf", "build_id", "elf_problem"]

CUT_OFF: Final = "it is damaged: an offset in it is beyond the end of the file"
MOST_SEGMENTS: Final = 4096
MOST_DYNAMIC_BYTES: Final = 1 << 20
MOST_NOTE_BYTES: Final = 1 << 16
LONGEST_CHAIN: Final = 1 << 16

_SHARED_OBJECT: Final = 3
_KINDS: Final = {1: "an object file that is not linked yet", 2: "a program", 4: "a core dump"}
_MACHINES: Final = {
    2: "SPARC", 3: "x86", 8: "MIPS", 20: "PowerPC", 21: "64-bit PowerPC", 22: "S390", 40: "32-bit Arm", 62: "x86-64",
    183: "AArch64", 243: "RISC-V", 258: "LoongArch",
}  # fmt: skip
_OTHERS: Final = {
    b"\xcf\xfa\xed\xfe": "a Mach-O file, for macOS",
    b"\xca\xfe\xba\xbe": "a Mach-O file, for macOS",
    b"MZ": "a PE file, for Windows",
    b"!<arch>\n": "an archive of object files",
    b"BC\xc0\xde": "LLVM bitcode",
    b"/* GNU ld script": "a script for the linker",
    b"#!": "a script",
}
_LOAD, _DYNAMIC, _NOTES = 1, 2, 4
_BUILD_ID: Final = 3, b"GNU\0"
"""The type and the owner of the note with the build ID."""
_HASH, _STRINGS, _SYMBOLS, _STRINGS_SIZE, _GNU_HASH, _FLAGS_1 = 4, 5, 6, 10, 0x6FFFFEF5, 0x6FFFFFFB
_PIE: Final = 0x08000000
_FUNCTION_TYPES: Final = frozenset({0, 2, 10})  # no type, as assemblers leave it; function; indirect function
_EXPORTED_BINDINGS: Final = frozenset({1, 2, 10})  # global, weak, unique
_EXPORTED_VISIBILITIES: Final = frozenset({0, 3})  # default, protected


@dataclass(frozen=True)
class Elf:
    """The header of an open ELF file, with functions for reading the rest."""

    descriptor: int
    size: int
    is_64_bit: bool
    """True for 64-bit files, False for 32-bit files."""
    byte_order: str
    """The byte order, as in `struct` format strings."""
    kind: int
    machine: int
    segments_at: int
    segment_size: int
    segment_count: int

    @classmethod
    def of(cls, descriptor: int) -> Elf:
        """Read the header of an open file; raise ValueError with a message if it is invalid."""
        size = os.fstat(descriptor).st_size
        header = os.pread(descriptor, 64, 0)
        if header[:4] != b"\x7fELF":
            description = next(
                (file_kind for mark, file_kind in _OTHERS.items() if header.startswith(mark)), "" if header else "empty"
            )
            raise ValueError(f"it is not an ELF file{f', but {description}' if description else ''}")
        if len(header) < 52 or header[4] not in (1, 2) or header[5] not in (1, 2) or header[6] != 1:
            raise ValueError("it is damaged: its ELF header makes no sense")
        is_64_bit, byte_order = header[4] == 2, "<" if header[5] == 1 else ">"
        layout = f"{byte_order}HHIQQQIHHH" if is_64_bit else f"{byte_order}HHIIIIIHHH"
        if len(header) < 16 + struct.calcsize(layout):
            raise ValueError(CUT_OFF)
        kind, machine, _, _, segments_at, _, _, _, segment_size, segment_count = struct.unpack_from(layout, header, 16)
        return cls(descriptor, size, is_64_bit, byte_order, kind, machine, segments_at, segment_size, segment_count)

    @property
    def target(self) -> str:
        """The description of the target machine."""
        name = _MACHINES.get(self.machine, f"machine {self.machine}")
        return f"{name} ({64 if self.is_64_bit else 32}-bit, {'little' if self.byte_order == '<' else 'big'}-endian)"

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes of the file at an offset; raise ValueError if the file is shorter."""
        content = os.pread(self.descriptor, size, offset) if offset >= 0 and offset + size <= self.size else b""
        if len(content) != size:
            raise ValueError(CUT_OFF)
        return content

    def unpack(self, layout: str, offset: int) -> tuple[int, ...]:
        """Return the numbers at an offset of the file, in its byte order.

        `layout` is a format of `struct` without byte order.
        """
        layout = self.byte_order + layout
        return struct.unpack(layout, self.read(offset, struct.calcsize(layout)))


def elf_problem(descriptor: int, functions: Sequence[str]) -> str | None:
    """Return why an open file is not a shared object for this process with these functions, or None if it is one."""
    try:
        elf = Elf.of(descriptor)
        return _header_problem(elf) or _symbols_problem(elf, functions)
    except ValueError as error:
        return str(error)
    except OSError as error:
        return f"it cannot be read: {error.strerror}"


def build_id(path: str | os.PathLike[str]) -> str:
    """Return the build ID of an ELF file as hexadecimal digits: a digest of its code and data that the linker wrote.

    The result is empty if the file has none, or is no valid ELF file.

    Raises:
        OSError: the file cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        elf = Elf.of(descriptor)
        return next((content.hex() for *key, content in _notes(elf) if tuple(key) == _BUILD_ID), "")
    except ValueError:
        return ""
    finally:
        os.close(descriptor)


def _header_problem(elf: Elf) -> str | None:
    this_target = _this_process()
    if this_target is not None and elf.target != this_target:
        return f"it is for {elf.target}, but this process is {this_target}"
    if elf.kind != _SHARED_OBJECT:
        return f"it is {_KINDS.get(elf.kind, f'an ELF file of kind {elf.kind}')}, not a shared object"
    return None


@cache
def _this_process() -> str | None:
    try:
        descriptor = os.open("/proc/self/exe", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return Elf.of(descriptor).target
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)


def _symbols_problem(elf: Elf, functions: Sequence[str]) -> str | None:
    tables = _Tables.of(elf)
    if tables.dynamic_entries.get(_FLAGS_1, 0) & _PIE:
        return "it is a program, not a shared object"
    missing_functions = [name for name in functions if not (symbol := tables.find(name)) or not symbol.is_exported]
    if missing_functions:
        return f"it does not export {' and '.join(missing_functions)}"
    not_functions = [name for name in functions if not tables.find(name).is_function]  # type: ignore[union-attr]
    return f"{' and '.join(not_functions)} in it is no function" if not_functions else None


# --- the dynamic segment ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Symbol:
    info: int
    other: int
    section: int

    @property
    def is_exported(self) -> bool:
        is_visible = self.other & 3 in _EXPORTED_VISIBILITIES
        return self.section != 0 and is_visible and self.info >> 4 in _EXPORTED_BINDINGS

    @property
    def is_function(self) -> bool:
        return self.info & 15 in _FUNCTION_TYPES


@dataclass(frozen=True)
class _Tables:
    """The tables in an ELF file that the dynamic linker uses, such as the symbol table.

    They are given by addresses, which are translated to file offsets by means of the loaded segments.
    """

    elf: Elf
    load_segments: tuple[tuple[int, int, int], ...]
    """The address, the file offset and the size of each segment."""
    dynamic_entries: dict[int, int]

    @classmethod
    def of(cls, elf: Elf) -> _Tables:
        if elf.segment_count > MOST_SEGMENTS:
            raise ValueError(f"it is damaged: it has {elf.segment_count:,} segments")
        segments = list(_segments(elf))
        load_segments = tuple((address, offset, size) for kind, offset, address, size in segments if kind == _LOAD)
        dynamic_segments = [(offset, size) for kind, offset, _, size in segments if kind == _DYNAMIC]
        if not dynamic_segments:
            raise ValueError("it is not a shared object: nothing in it is for the dynamic linker")
        return cls(elf, load_segments, _dynamic_entries(elf, *dynamic_segments[0]))

    def offset(self, tag: int) -> int:
        """Return the file offset of the table to which the dynamic entry with this tag (``DT_...``) points.

        Raises:
            ValueError: the file does not contain it.
        """
        address = self.dynamic_entries[tag]
        for start, offset, size in self.load_segments:
            if start <= address < start + size:
                return offset + address - start
        raise ValueError(CUT_OFF)

    def find(self, name: str) -> _Symbol | None:
        if not {_SYMBOLS, _STRINGS, _STRINGS_SIZE} <= self.dynamic_entries.keys():
            return None
        encoded_name = name.encode()
        candidates: Iterator[int] = iter(())
        if _GNU_HASH in self.dynamic_entries:
            candidates = self._by_gnu_hash(encoded_name)
        elif _HASH in self.dynamic_entries:
            candidates = self._by_hash(encoded_name)
        return next((self._symbol(index) for index in candidates if self._is_called(index, encoded_name)), None)

    def _by_gnu_hash(self, name: bytes) -> Iterator[int]:
        offset, name_hash = self.offset(_GNU_HASH), _gnu_hash(name)
        buckets, first_hashed, words, _ = self.elf.unpack("IIII", offset)
        if not buckets:
            return
        offset += 16 + words * (8 if self.elf.is_64_bit else 4)
        [index] = self.elf.unpack("I", offset + 4 * (name_hash % buckets))
        if index < first_hashed:
            return
        chain = offset + 4 * buckets
        for candidate in range(index, index + LONGEST_CHAIN):
            [chain_hash] = self.elf.unpack("I", chain + 4 * (candidate - first_hashed))
            if chain_hash | 1 == name_hash | 1:
                yield candidate
            if chain_hash & 1:
                return

    def _by_hash(self, name: bytes) -> Iterator[int]:
        offset = self.offset(_HASH)
        buckets, _ = self.elf.unpack("II", offset)
        if not buckets:
            return
        [index] = self.elf.unpack("I", offset + 8 + 4 * (_system_v_hash(name) % buckets))
        for _ in range(LONGEST_CHAIN):
            if not index:
                return
            yield index
            [index] = self.elf.unpack("I", offset + 8 + 4 * (buckets + index))

    def _entry(self, index: int) -> tuple[int, _Symbol]:
        offset = self.offset(_SYMBOLS)
        if self.elf.is_64_bit:
            name, info, other, section = self.elf.unpack("IBBH", offset + 24 * index)
        else:
            name, _, _, info, other, section = self.elf.unpack("IIIBBH", offset + 16 * index)
        return name, _Symbol(info, other, section)

    def _symbol(self, index: int) -> _Symbol:
        return self._entry(index)[1]

    def _is_called(self, index: int, name: bytes) -> bool:
        name_offset = self._entry(index)[0]
        if name_offset + len(name) + 1 > self.dynamic_entries[_STRINGS_SIZE]:
            return False
        return self.elf.read(self.offset(_STRINGS) + name_offset, len(name) + 1) == name + b"\0"


def _segments(elf: Elf) -> Iterator[tuple[int, int, int, int]]:
    for index in range(elf.segment_count):
        offset_of_header = elf.segments_at + index * elf.segment_size
        if elf.is_64_bit:
            kind, _, offset, address, _, size = elf.unpack("IIQQQQ", offset_of_header)
        else:
            kind, offset, address, _, size = elf.unpack("IIIII", offset_of_header)
        yield kind, offset, address, size


def _notes(elf: Elf) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the type, the owner and the content of each note."""
    for kind, offset, _, size in _segments(elf) if elf.segment_count <= MOST_SEGMENTS else ():
        end = offset + min(size, MOST_NOTE_BYTES)
        while kind == _NOTES and offset + 12 <= end:
            owner_size, content_size, note_type = elf.unpack("III", offset)
            content_at = offset + 12 + _padded(owner_size)
            if content_at + content_size > end:
                break
            yield note_type, elf.read(offset + 12, owner_size), elf.read(content_at, content_size)
            offset = content_at + _padded(content_size)


def _padded(size: int) -> int:
    return size + -size % 4


def _dynamic_entries(elf: Elf, offset: int, size: int) -> dict[int, int]:
    content = elf.read(offset, min(size, MOST_DYNAMIC_BYTES))
    layout = elf.byte_order + ("QQ" if elf.is_64_bit else "II")
    complete_size = len(content) - len(content) % struct.calcsize(layout)
    dynamic_entries: dict[int, int] = {}
    for tag, value in struct.iter_unpack(layout, content[:complete_size]):
        if tag == 0:
            break
        dynamic_entries[tag] = value
    return dynamic_entries


def _gnu_hash(name: bytes) -> int:
    hash_ = 5381
    for byte in name:
        hash_ = (hash_ * 33 + byte) & 0xFFFFFFFF
    return hash_


def _system_v_hash(name: bytes) -> int:
    hash_ = 0
    for byte in name:
        hash_ = (hash_ << 4) + byte
        high_bits = hash_ & 0xF0000000
        hash_ = (hash_ ^ (high_bits >> 24)) & ~high_bits & 0xFFFFFFFF
    return hash_
