"""The metadata of a TFLite file: named buffers, and the zip archive that may follow the model in the file."""

from __future__ import annotations

import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NoReturn

from interposer.core.errors import DamagedFileError, ParseError
from interposer.frontends.template import Metadata
from interposer.frontends.tflite.contents import Model

__all__ = ["metadata_of"]

MOST_BYTES: Final = 1 << 28
"""The limit of the unpacked size of all files together."""

_END_OF_ARCHIVE: Final = b"PK\x05\x06"
_DAMAGE: Final = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, MemoryError, OSError, ValueError,
    OverflowError, RuntimeError, NotImplementedError,
)  # fmt: skip


def metadata_of(model: Model, data: bytes | bytearray | memoryview) -> Metadata:
    """Return the metadata of a model, whose file has the bytes `data`.

    The files of an appended zip archive are unpacked when they are read. `ParseError` is raised if the archive is
    damaged.
    """
    entries = {entry.name: bytes(model.buffer_data(entry.buffer) or b"") for entry in model.metadata}
    return Metadata(model.description, MappingProxyType(entries), _Files(memoryview(data)))


class _Files(Mapping[str, bytes]):
    """The files in a zip archive at the end of a model file, by name; each is unpacked when it is read."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._archive = _archive(data)
        infos = [] if self._archive is None else self._archive.infolist()
        self._infos = {info.filename: info for info in infos if not info.filename.endswith("/")}
        if sum(info.file_size for info in self._infos.values()) > MOST_BYTES:
            raise ParseError(f"its files have more than {MOST_BYTES:,} bytes, which is not supported", where="archive")

    def __getitem__(self, name: str) -> bytes:
        info = self._infos[name]
        assert self._archive is not None
        try:
            with self._archive.open(info) as file:
                content = file.read(info.file_size + 1)
        except _DAMAGE as error:
            _fail(error, f"archive, file {name!r}")
        if len(content) > info.file_size:
            raise DamagedFileError("it has more bytes than the archive declares", where=f"archive, file {name!r}")
        return content

    def __iter__(self) -> Iterator[str]:
        return iter(self._infos)

    def __len__(self) -> int:
        return len(self._infos)


def _archive(data: memoryview) -> zipfile.ZipFile | None:
    """Return the archive at the end of the file, or None if there is none."""
    if _END_OF_ARCHIVE not in bytes(data[-(1 << 16) - 22 :]):
        return None
    try:
        return zipfile.ZipFile(io.BufferedReader(_Bytes(data)))
    except _DAMAGE as error:
        _fail(error, "archive")


def _fail(error: BaseException, where: str) -> NoReturn:
    raise DamagedFileError(f"it cannot be unpacked ({error})", where=where) from error


class _Bytes(io.RawIOBase):
    """A readable file over bytes in memory, which are not copied."""

    def __init__(self, data: memoryview) -> None:
        super().__init__()
        self._data, self._position = data, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self._data)}[whence]
        if start + offset < 0:
            raise ValueError(f"position {start + offset} is before the start of the file")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        chunk = self._data[self._position : self._position + len(view)]
        view[: len(chunk)] = chunk
        self._position += len(chunk)
        return len(chunk)
