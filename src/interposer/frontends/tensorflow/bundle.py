"""Checkpoints of TensorFlow (``variables.index`` and ``variables.data-00000-of-00001``), read without TensorFlow.

The index is a sorted table in the format of LevelDB: blocks of keys with shared prefixes, an index block, and a footer.
Its values say where in the data files each tensor is.

Source: table_format.txt of LevelDB; tensor_bundle.proto of TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from interposer.core.constants import mapped
from interposer.core.errors import DamagedFileError, ParseError
from interposer.core.files import check_regular, unreadable
from interposer.core.types import Array, DataType
from interposer.core.varint import varint
from interposer.formats.foreign import foreign
from interposer.frontends.tensorflow.dtypes import data_type
from interposer.frontends.tensorflow.messages import BundleEntry, BundleHeader, TrackableGraph, decode
from interposer.frontends.tensorflow.tensors import from_bytes, shape_of, texts_of

__all__ = ["Checkpoint"]

_FOOTER: Final = 48
_MAGIC: Final = (0xDB4775248B80FB57).to_bytes(8, "little")
_TRAILER: Final = 5
_POINTER: Final = b"version https://git-lfs"
"""The first bytes of a pointer of Git LFS; those of weights may be anything else."""
_OBJECTS: Final = "_CHECKPOINTABLE_OBJECT_GRAPH"


class Checkpoint:
    """The tensors of a checkpoint by their keys; `prefix` is the path of its files without their endings.

    Raises from all methods:
        ParseError: a file cannot be read, or is damaged.
    """

    def __init__(self, prefix: Path) -> None:
        self._prefix = prefix
        index = _content(prefix.with_name(f"{prefix.name}.index"))
        self._entries = dict(_table(index))
        header = decode(BundleHeader, self._entries.pop("", memoryview(b"")))
        if header.endianness or not 0 < header.num_shards < 1 << 20:
            raise ParseError(f"the checkpoint has {header.num_shards} data files, or is of a big-endian machine")
        self._shards = header.num_shards
        self._files: dict[int, memoryview] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def keys_by_name(self) -> dict[str, str]:
        """Return the keys of variables by their full names, as the checkpoint's graph of objects records them."""
        if _OBJECTS not in self:
            return {}
        [content] = self._strings(decode(BundleEntry, self._entries[_OBJECTS]))
        objects = decode(TrackableGraph, content)
        names_and_keys = (
            (attribute.full_name, attribute.checkpoint_key) for node in objects.nodes for attribute in node.attributes
        )
        return {name: key for name, key in names_and_keys if name and key in self}

    def array(self, key: str) -> Array:
        """Return the tensor with this key, as a view of its data file if possible."""
        if key not in self:
            raise ParseError(f"the checkpoint has no tensor {key!r}")
        entry = decode(BundleEntry, self._entries[key])
        dtype, shape = data_type(entry.dtype), shape_of(entry.shape)
        if entry.slices:
            raise ParseError(f"the tensor {key!r} is stored in slices, which is not supported")
        if dtype is DataType.STRING:
            return texts_of(self._strings(entry)).reshape(shape)
        try:
            return from_bytes(self._data(entry), dtype, shape)
        except ParseError as error:
            raise ParseError(error.message, where=f"tensor {key!r}") from error

    def _data(self, entry: BundleEntry) -> memoryview:
        if not 0 <= entry.shard_id < self._shards:
            raise DamagedFileError(f"a tensor is in data file {entry.shard_id} of {self._shards}")
        if entry.shard_id not in self._files:
            name = f"{self._prefix.name}.data-{entry.shard_id:05d}-of-{self._shards:05d}"
            self._files[entry.shard_id] = _content(self._prefix.with_name(name))
        file = self._files[entry.shard_id]
        if entry.offset < 0 or entry.size < 0 or entry.offset + entry.size > len(file):
            raise DamagedFileError("a tensor reaches beyond its data file")
        return file[entry.offset : entry.offset + entry.size]

    def _strings(self, entry: BundleEntry) -> list[memoryview]:
        """Return the elements of a tensor of strings: their lengths, a checksum of these, and the bytes."""
        content, offset, sizes = self._data(entry), 0, []
        for _ in range(int(np.prod(shape_of(entry.shape), dtype=object))):
            size, offset = _number(content, offset)
            sizes.append(size)
        offset += 4
        if offset + sum(sizes) > len(content):
            raise DamagedFileError("a tensor of strings is truncated")
        ends = np.cumsum([offset, *sizes]).tolist()
        return [content[start:end] for start, end in zip(ends, ends[1:], strict=False)]


def _content(path: Path) -> memoryview:
    try:
        check_regular(path)
        content = mapped(path).data if path.stat().st_size else memoryview(b"")
    except (OSError, ValueError) as error:
        raise unreadable(error, path) from error
    if bytes(content[: len(_POINTER)]) == _POINTER:
        raise ParseError(foreign(_POINTER) or "", path=str(path))
    return content


# --- the table --------------------------------------------------------------------------------------------------------


def _table(file: memoryview) -> Iterator[tuple[str, memoryview]]:
    """Yield the keys and values of a sorted table."""
    footer = file[-_FOOTER:]
    if len(footer) < _FOOTER or bytes(footer[-8:]) != _MAGIC:
        raise DamagedFileError("the checkpoint's index has no footer of a table")
    _, _, handle_offset = _handle(footer, 0)
    offset, size, _ = _handle(footer, handle_offset)
    for _, block_handle in _block(file, offset, size):
        block_offset, block_size, _ = _handle(block_handle, 0)
        for key, content in _block(file, block_offset, block_size):
            yield key.decode("utf-8", "replace"), content


def _handle(view: memoryview, position: int) -> tuple[int, int, int]:
    offset, position = _number(view, position)
    size, position = _number(view, position)
    return offset, size, position


def _block(file: memoryview, offset: int, size: int) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the entries of a block; each key has a prefix in common with the one before it."""
    if offset + size + _TRAILER > len(file) or size < 4:
        raise DamagedFileError("a block of the checkpoint's index reaches beyond the file")
    if file[offset + size]:
        raise ParseError("the checkpoint's index is compressed, which is not supported")
    num_restarts = int.from_bytes(file[offset + size - 4 : offset + size], "little")
    view = file[offset : offset + size - 4 - min(4 * num_restarts, size - 4)]
    position, key = 0, b""
    while position < len(view):
        shared_length, position = _number(view, position)
        rest_length, position = _number(view, position)
        value_length, position = _number(view, position)
        if shared_length > len(key) or position + rest_length + value_length > len(view):
            raise DamagedFileError("an entry of the checkpoint's index reaches beyond its block")
        key = key[:shared_length] + bytes(view[position : position + rest_length])
        yield key, view[position + rest_length : position + rest_length + value_length]
        position += rest_length + value_length


def _number(view: memoryview, position: int) -> tuple[int, int]:
    return varint(view, position, len(view), "a number in the checkpoint")
