"""Reading a file of `torch.export.save` without opening its pickles, and without running anything that it says.

PyTorch's own `torch.export.load` opens pickles, evaluates expressions and generates code from names that the file
has. This module reads the archive itself, lets `program_checks` look at the description of the program, and then calls
PyTorch's function that builds an `ExportedProgram` from it.
"""

from __future__ import annotations

import io
import json
import os
import struct
import threading
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from interposer.core.constants import LEAST_MAPPED, mapped
from interposer.core.errors import (
    DamagedFileError,
    InterposerError,
    InvalidArgumentError,
    LimitExceededError,
    MissingDependencyError,
    ParseError,
)
from interposer.core.files import check_regular, unreadable
from interposer.core.types import Array
from interposer.formats.pytorch import kind_of_names, not_a_program, refused_pickle
from interposer.frontends.sources import errors_at
from interposer.frontends.torch.program_checks import checked_program

__all__ = ["content_of_program", "program_of"]

_LOCAL: Final = struct.Struct("<4s5H3I2H")
"""The header before each member of a ZIP archive."""
_MOST_TEXT: Final = 1 << 29
"""The largest description of a program that is read, in bytes."""
_building = threading.Lock()


def program_of(source: str | bytes | bytearray | memoryview) -> Any:
    """Return the `torch.export.ExportedProgram` in a file of `torch.export.save`, given by its path or its bytes.

    Weights share the memory of the file, which is mapped if it is large. They must not be changed.

    Raises:
        ParseError: the file cannot be read, is damaged, is another kind of file, or needs a pickle to be opened.
        LimitExceededError: the description of the program is larger than 512 MiB.
        MissingDependencyError: PyTorch is not installed, or older than 2.9.
    """
    with errors_at(source if isinstance(source, str) else None):
        return _program(_Archive(_bytes_of(source)))


def content_of_program(exported: Any) -> bytes:
    """Return the content of the file that `torch.export.save` writes for an exported program.

    Raises:
        InvalidArgumentError: PyTorch cannot save the program.
    """
    import torch  # noqa: PLC0415 - a program exists, so PyTorch is installed

    content = io.BytesIO()
    try:
        torch.export.save(exported, content)
    except Exception as error:
        raise InvalidArgumentError(f"PyTorch cannot save the program: {error}") from error
    return content.getvalue()


def _bytes_of(source: str | bytes | bytearray | memoryview) -> Array:
    if not isinstance(source, str):
        return np.frombuffer(source, np.uint8)
    try:
        check_regular(source)
        if os.path.getsize(source) >= LEAST_MAPPED:
            return mapped(source)
        with open(source, "rb") as file:
            return np.frombuffer(file.read(), np.uint8)
    except (OSError, ValueError) as error:
        raise unreadable(error, source) from error


class _Archive:
    """The members of a ZIP archive, each stored as it is, as arrays over the bytes of the file.

    Raises:
        ParseError: the archive is damaged, or a member is compressed or encrypted.
    """

    def __init__(self, data: Array) -> None:
        self._data = data
        try:
            with zipfile.ZipFile(_Reader(data)) as archive:
                members = archive.infolist()
        except (ValueError, OSError, zipfile.BadZipFile, NotImplementedError, struct.error, EOFError) as error:
            raise DamagedFileError(f"its list of members cannot be read: {error}") from error
        self.members = {member.filename: member for member in members}
        if len(self.members) != len(members):
            raise DamagedFileError("two members have the same name")
        self.root = os.path.commonprefix([name.partition("/")[0] for name in self.members])

    def __contains__(self, name: str) -> bool:
        return self._full(name) in self.members

    def _full(self, name: str) -> str:
        return name if name in self.members else f"{self.root}/{name}"

    def names(self, start: str, end: str) -> Iterator[str]:
        """Yield the names between `start` and `end` of all members that begin and end so."""
        for full_name in self.members:
            name = full_name.partition("/")[2]
            if name.startswith(start) and name.endswith(end):
                yield name[len(start) : -len(end)]

    def read(self, name: str) -> Array:
        """Return the bytes of a member, whose checksum is right."""
        member = self.members.get(self._full(name))
        if member is None:
            raise DamagedFileError(f"it has no member {name!r}")
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
            raise ParseError(
                f"its member {name!r} is compressed or encrypted; torch.export.save writes members as they are"
            )
        content = self._stored(member)
        if zlib.crc32(content.data) != member.CRC:
            raise DamagedFileError(f"the checksum of its member {name!r} is wrong")
        return content

    def _stored(self, member: zipfile.ZipInfo) -> Array:
        local_header = self._data[member.header_offset : member.header_offset + _LOCAL.size].tobytes()
        if len(local_header) != _LOCAL.size or not local_header.startswith(b"PK\x03\x04"):
            raise DamagedFileError(f"the header of its member {member.filename!r} is wrong")
        *_, name, extra = _LOCAL.unpack(local_header)
        start = member.header_offset + _LOCAL.size + name + extra
        content = self._data[start : start + member.file_size]
        if len(content) != member.file_size or member.file_size != member.compress_size:
            raise DamagedFileError(f"the size of its member {member.filename!r} is wrong")
        return content

    def json(self, name: str) -> Any:
        """Return the JSON value that a member has."""
        content = self.read(name)
        if content.nbytes > _MOST_TEXT:
            raise LimitExceededError("description", content.nbytes, _MOST_TEXT, "bytes")
        try:
            return json.loads(content.tobytes())
        except (ValueError, RecursionError) as error:
            raise DamagedFileError(f"its member {name!r} is no JSON: {error}") from error


class _Reader(io.RawIOBase):
    """A file of the bytes of an array, which are not copied as a whole."""

    def __init__(self, data: Array) -> None:
        super().__init__()
        self._data, self._position = data, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to a position from the start (0), from here (1) or from the end (2), and return it."""
        position = offset + (0, self._position, len(self._data))[whence]
        if position < 0:
            raise ValueError("a position before the start")
        self._position = position
        return position

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the next bytes, and return how many there were."""
        chunk = self._data[self._position : self._position + len(buffer)]
        buffer[: len(chunk)] = chunk.tobytes()
        self._position += len(chunk)
        return len(chunk)


def _program(archive: _Archive) -> Any:
    kind = kind_of_names(archive.members)
    message = not_a_program(kind)
    if message is not None:
        raise ParseError(message)
    if kind == "old program":
        return _old_program(archive)
    names = list(archive.names("models/", ".json"))
    if not names:
        raise ParseError("the archive has no exported program; torch.export.save writes one")
    if len(names) > 1:
        known_names = ", ".join(map(repr, names))
        raise ParseError(f"the archive has several programs ({known_names}); load one with torch.export.pt2_archive")
    [name] = names
    weights = _tensors(archive, "data/weights", name, "weights")
    constants = _tensors(archive, "data/constants", name, "constants")
    return _built(archive.json(f"models/{name}.json"), weights, constants)


def _old_program(archive: _Archive) -> Any:
    """Return the program of an archive that PyTorch wrote before version 2.8."""
    weights = _pickled(archive, "serialized_state_dict.pt")
    constants = _pickled(archive, "serialized_constants.pt")
    return _built(archive.json("serialized_exported_program.json"), weights, constants)


def _tensors(archive: _Archive, folder: str, model: str, kind: str) -> dict[str, Any]:
    """Return the tensors of a folder of the archive by name."""
    if f"{folder}/{model}.pt" in archive:
        return _pickled(archive, f"{folder}/{model}.pt")
    config = archive.json(f"{folder}/{model}_{kind}_config.json")
    tensor_entries = config.get("config") if isinstance(config, dict) else None
    if not isinstance(tensor_entries, dict):
        raise DamagedFileError(f"the list of its {kind} is wrong")
    storages: dict[str, Any] = {}
    return {name: _tensor(archive, folder, name, entry, storages) for name, entry in tensor_entries.items()}


def _tensor(archive: _Archive, folder: str, name: str, entry: Any, storages: dict[str, Any]) -> Any:
    with _damaged_if_wrong(f"the tensor {name!r}"):
        file, member = entry["path_name"], f"{folder}/{entry['path_name']}"
        if not file.startswith(("weight_", "tensor_")):
            raise ParseError(f"the object {name!r} is no tensor; " + refused_pickle(member))
        if entry["use_pickle"]:
            return _as_stored(_unpickled(archive, member), entry["is_param"])
        if file not in storages:
            storages[file] = archive.read(member)
        tensor = _strided(storages[file], entry["tensor_meta"])
        return _as_stored(tensor, entry["is_param"])


def _as_stored(tensor: Any, is_parameter: bool) -> Any:
    """Return a tensor as the parameter or the buffer that it is."""
    torch = _torch()
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"it is a {type(tensor).__name__}")
    is_plain = not is_parameter or isinstance(tensor, torch.nn.Parameter)
    return tensor if is_plain else torch.nn.Parameter(tensor, requires_grad=False)


def _strided(storage: Array, meta: Mapping[str, Any]) -> Any:
    """Return a tensor over the bytes of a member; raise ValueError if its elements are not all inside of them."""
    torch = _torch()
    dtype = _dtype_of(meta["dtype"])
    shape, strides = _sizes(meta["sizes"]), _sizes(meta["strides"])
    offset = _size(meta["storage_offset"])
    if len(shape) != len(strides):
        raise ValueError("the rank of its strides is wrong")
    num_spanned = 0 if 0 in shape else offset + 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if num_spanned * dtype.itemsize > storage.nbytes:
        raise ValueError("it needs more bytes than the file has")
    if not num_spanned:
        return torch.empty(shape, dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the memory is read-only, and nothing writes to it
        flat_storage = torch.frombuffer(storage[: num_spanned * dtype.itemsize].data, dtype=dtype)
    return torch.as_strided(flat_storage, shape, strides, offset)


def _sizes(entries: Any) -> tuple[int, ...]:
    return tuple(map(_size, entries))


def _size(entry: Any) -> int:
    size = entry["as_int"]
    if type(size) is not int or not 0 <= size < 1 << 62:
        raise ValueError(f"its size or stride {size!r} is wrong")
    return size


def _dtype_of(code: int) -> Any:
    from torch._export.serde.serialize import _SERIALIZE_TO_TORCH_DTYPE  # noqa: PLC0415 - only a file needs it

    return _SERIALIZE_TO_TORCH_DTYPE[code]


def _pickled(archive: _Archive, member: str) -> dict[str, Any]:
    """Return the tensors by name in a pickle, which PyTorch's rule `weights_only` must accept."""
    tensors = _unpickled(archive, member) if archive.read(member).nbytes else {}
    if not isinstance(tensors, dict) or not all(isinstance(name, str) for name in tensors):
        raise DamagedFileError(f"its member {member!r} has no tensors by name")
    return tensors


def _unpickled(archive: _Archive, member: str) -> Any:
    content = io.BytesIO(archive.read(member).tobytes())
    try:
        return _torch().load(content, weights_only=True, map_location="cpu")
    except Exception as error:
        raise ParseError(refused_pickle(f"its member {member!r}")) from error


def _built(document: Any, weights: dict[str, Any], constants: dict[str, Any]) -> Any:
    """Return the program that a checked description and these tensors make."""
    _torch()
    try:
        from torch._export.serde import schema  # noqa: PLC0415 - only a file needs it
        from torch._export.serde.serialize import ExportedProgramDeserializer, _dict_to_dataclass  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependencyError("torch>=2.9", "torch", "reading a .pt2 file") from error
    document = checked_program(document)
    with _building, _damaged_if_wrong("the description of the program"):
        description = _dict_to_dataclass(schema.ExportedProgram, document)
        return ExportedProgramDeserializer().deserialize(description, weights, constants, None)


@contextmanager
def _damaged_if_wrong(title: str) -> Iterator[None]:
    """Turn any exception into an error about a damaged file: the functions of PyTorch check little themselves."""
    try:
        yield
    except (InterposerError, MemoryError):
        raise
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0]
        raise DamagedFileError(
            f"{title} is wrong: {type(error).__name__}{f': {first_line}' if first_line else ''}"
        ) from error


def _torch() -> Any:
    try:
        import torch  # noqa: PLC0415 - imported when a program is read
    except ImportError as error:
        raise MissingDependencyError("torch", "torch", "a program of PyTorch") from error
    return torch
