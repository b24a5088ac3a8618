"""Parts of networks as bytes that can be stored: the tables of a `FlatGraph`, which a plug-in can compile again.

An image has all tables and the data they point to, contiguously, except for large constants. Pointers are stored as
offsets in the image; `places` has their positions. Therefore they become addresses again by a single addition. Large
constants are separate pieces, or places in the model file, so they are not copied.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np

from interposer.core.addresses import address_of, aligned_empty
from interposer.core.constants import changed_file, place_of
from interposer.core.errors import InvalidArgumentError
from interposer.core.types import Array
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.flatten import FlatGraph

__all__ = ["Image", "ImageGraph", "outline"]

ALIGNMENT: Final = 64
LEAST_APART: Final = 1 << 12
"""Size in bytes from which on a constant is not copied into the tables."""
_IN_A_PIECE: Final = (1 << 64) - 1
_ATTRIBUTE: Final = ctypes.sizeof(abi.Attribute)
_CONSTANT: Final = ctypes.sizeof(abi.Constant)
_STRING: Final = ctypes.sizeof(abi.String)


class Image:
    """A copy of an ``ipr_graph`` and its tables as one block of bytes that can be stored in a file.

    `data` begins with the ``ipr_graph``. `places` lists the positions in `data` at which there is a pointer; such a
    pointer holds an offset in `data`. Small constants are in `data`, too.

    `apart` has two numbers for each large constant: the offset of its ``ipr_constant`` in `data`, and its offset in the
    model `file`, or `_IN_A_PIECE` if its bytes are the next of `constants`. All numbers are uint64. `identity`
    describes the model file and everything else that the large constants depend on; empty if this is not known.
    """

    def __init__(
        self,
        pieces: Sequence[bytes | memoryview],
        digest: str | None = None,
        file: Array | None = None,
        identity: str = "",
    ) -> None:
        self.data, self.places, self.apart, *self.constants = pieces
        self.file, self._identity = file, identity
        self._sources: Sequence[Array] = ()
        if digest is not None:
            self.digest = digest

    @classmethod
    def of(cls, flat: FlatGraph, file: Array | None = None, identity: str = "") -> Image:
        """Return the image of tables; large constants that are not in `file` stay in the memory of the tables."""
        writer = _Writer(file)
        writer.graph(flat)
        pieces = memoryview(writer.data), writer.places.tobytes(), np.array(writer.apart, np.uint64).tobytes()
        image = cls((*pieces, *writer.constants), None, file, identity)
        image._sources = () if identity else flat.constants
        return image

    @property
    def pieces(self) -> tuple[bytes | memoryview, ...]:
        """All bytes, from which the image can be created again."""
        return self.data, self.places, self.apart, *self.constants

    @cached_property
    def digest(self) -> str:
        """A digest in hexadecimal digits: of `identity` if there is one, else of the constants."""
        digest = hashlib.sha256(self._identity.encode() or self._sum)
        for piece in (self.data, self.places, self.apart):
            digest.update(piece)
        return digest.hexdigest()

    @cached_property
    def _sum(self) -> bytes:
        return _sum(self._sources)

    def is_unchanged(self) -> bool:
        """Return whether no constant has changed since `digest` was computed, as those in mapped files may."""
        return changed_file([] if self.file is None else [self.file]) is None and _sum(self._sources) == self._sum


def _sum(arrays: Sequence[Array]) -> bytes:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(_bytes_of(array))
    return digest.digest()


def _bytes_of(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def outline(tables: abi.Graph) -> str:
    """Return the numbers of layers, tensors, constants, inputs and outputs as text, to find equal tables quickly."""
    counts = (tables.layer_count, tables.tensor_count, tables.constant_count, tables.input_count, tables.output_count)
    return "-".join(map(str, counts))


class ImageGraph:
    """An ``ipr_graph`` that was created from an image; `address` is its address, in separate memory.

    Raises:
        InvalidArgumentError: the image is damaged, as far as this is detected.
    """

    def __init__(self, image: Image) -> None:
        memory = aligned_empty((len(image.data) // 8,), np.dtype(np.uint64), ALIGNMENT)
        places = np.frombuffer(image.places, np.uint64)
        if len(image.data) % 8 or len(image.data) < ctypes.sizeof(abi.Graph) or len(image.apart) % 16:
            raise InvalidArgumentError("this is no image of a part")
        memory.view(np.uint8)[:] = np.frombuffer(image.data, np.uint8)
        if places.size and (np.any(places % 8) or int(places.max()) >= memory.nbytes):
            raise InvalidArgumentError("the pointers of the image lie outside")
        index = (places // 8).astype(np.int64)
        if np.any(memory[index] > memory.nbytes):
            raise InvalidArgumentError("the image points outside")
        self.address = address_of(memory)
        memory[index] += np.uint64(self.address)
        self.constants: list[Array] = [memory, *_attached(image, memory)]
        """The tables, which have the small constants, and the large constants."""


def _attached(image: Image, memory: Array) -> Iterator[Array]:
    """Let the tables point to the large constants of an image, and yield these."""
    pieces = iter(image.constants)
    rows = np.frombuffer(image.apart, np.uint64).reshape(-1, 2)
    for place, offset in rows.tolist():
        if place % 8 or place + _CONSTANT > memory.nbytes:
            raise InvalidArgumentError("the constants of the image lie outside")
        constant = abi.Constant.from_address(address_of(memory) + place)
        if offset == _IN_A_PIECE:
            array = np.frombuffer(next(pieces, b""), np.uint8)
        else:
            array = np.empty(0, np.uint8) if image.file is None else image.file[offset : offset + constant.size]
        if array.nbytes != constant.size:
            raise InvalidArgumentError("a constant of the image is missing")
        constant.data = address_of(array)
        constant.fd, constant.offset = place_of(array) or (-1, 0)
        yield array


class _Writer:
    def __init__(self, file: Array | None) -> None:
        self.data = bytearray()
        self.apart: list[tuple[int, int]] = []
        self.constants: list[memoryview] = []
        self._file = (0, 0) if file is None else (address_of(file), file.nbytes)
        self._places: list[Array] = []
        self._single_places: list[int] = []
        self._copied_offsets: dict[tuple[int, int], int] = {}
        self._begins = self._offsets = np.empty(0, np.uint64)

    @property
    def places(self) -> Array:
        """The offsets of all pointers."""
        return np.concatenate([*self._places, np.array(self._single_places, np.uint64)])

    def graph(self, flat_graph: FlatGraph) -> None:
        self.data += bytes(flat_graph.struct)
        self._copy_blocks(flat_graph.blocks)
        layers, tensors, constants = (
            flat_graph.layer_table.copy(),
            flat_graph.tensor_table.copy(),
            flat_graph.constant_table.copy(),
        )
        self._relocate(layers["name"]["data"], layers["inputs"], layers["outputs"])
        self._relocate(tensors["name"]["data"], tensors["shape"], tensors["scales"], tensors["zero_points"])
        _replace(layers["type"]["data"], layers["type"]["size"] + 1, self._copy)
        _replace(layers["attributes"], layers["attribute_count"], self._attributes)
        self._small_constants(constants)
        self._table(abi.Graph.layers.offset, layers, [("type", 0), ("name", 0), "inputs", "outputs", "attributes"])
        self._table(abi.Graph.tensors.offset, tensors, [("name", 0), "shape", "scales", "zero_points"])
        constants_at = self._table(abi.Graph.constants.offset, constants, ["data", "sha256"])
        self._large_constants(constants_at, flat_graph)
        for field, address in (("inputs", flat_graph.struct.inputs), ("outputs", flat_graph.struct.outputs)):
            self._set(getattr(abi.Graph, field).offset, self._offsets_of(np.array([address], np.uint64))[0])
        self._set(abi.Graph.name.offset, self._offsets_of(np.array([flat_graph.struct.name.data], np.uint64))[0])
        self.data += bytes(-len(self.data) % 8)

    def _copy_blocks(self, blocks: Sequence[Array]) -> None:
        """Copy the memory to which most pointers of the tables point."""
        places = sorted((address_of(block), self._append(block.view(np.uint8).data)) for block in blocks)
        self._begins, self._offsets = np.array(places, np.uint64).T

    def _offsets_of(self, addresses: Array) -> Array:
        """Return the offsets of addresses in the blocks; 0 remains 0."""
        block = np.maximum(np.searchsorted(self._begins, addresses, "right") - 1, 0)
        return np.where(addresses == 0, np.uint64(0), addresses - self._begins[block] + self._offsets[block])

    def _relocate(self, *columns: Array) -> None:
        for column in columns:
            column[:] = self._offsets_of(column)

    def _table(self, pointer: int, table: Array, fields: Sequence[str | tuple[str, int]]) -> int:
        """Append a table and set the pointer to it; `fields` are those of its pointers that are not null."""
        offset = self._append(table.view(np.uint8).data)
        self._set(pointer, offset)
        rows = offset + np.arange(len(table), dtype=np.uint64) * np.uint64(table.itemsize)
        for field in fields:
            name = field if isinstance(field, str) else field[0]
            column = table[name] if isinstance(field, str) else table[name]["data"]
            self._places.append(rows[column != 0] + np.uint64(_offset(table, name)))
        return offset

    def _small_constants(self, table: Array) -> None:
        """Copy constants, except for large ones, whose pointers become 0; a copy is in no file."""
        table["fd"], table["offset"] = -1, 0
        is_large = table["size"] >= LEAST_APART
        table["data"][is_large] = 0
        for column, sizes in ((table["data"], table["size"]), (table["sha256"], np.full(len(table), 32))):
            _replace(column, sizes, self._copy)

    def _large_constants(self, table_offset: int, flat_graph: FlatGraph) -> None:
        begin, size = self._file
        for number, array in enumerate(flat_graph.constants):
            if array.nbytes < LEAST_APART:
                continue
            offset = address_of(array) - begin
            is_inside = 0 <= offset <= size - array.nbytes
            self.apart.append((table_offset + number * _CONSTANT, offset if is_inside else _IN_A_PIECE))
            if not is_inside:  # the content of another mapped file is copied, as it may change before it is stored
                self.constants.append(memoryview(array.tobytes() if place_of(array) else _bytes_of(array)))

    def _attributes(self, address: int, count: int) -> int:
        table = self._copy(address, count * _ATTRIBUTE)
        for index in range(count):
            self._attribute(table + index * _ATTRIBUTE, abi.Attribute.from_address(address + index * _ATTRIBUTE))
        return table

    def _attribute(self, attribute_offset: int, attribute: Any) -> None:
        self._text(attribute_offset + abi.Attribute.name.offset, attribute.name)
        self._text(attribute_offset + abi.Attribute.text.offset, attribute.text)
        self._point(attribute_offset + abi.Attribute.ints.offset, attribute.ints, 8 * attribute.count)
        self._point(attribute_offset + abi.Attribute.floats.offset, attribute.floats, 8 * attribute.count)
        texts = self._point(attribute_offset + abi.Attribute.texts.offset, attribute.texts, _STRING * attribute.count)
        for index in range(attribute.count if attribute.texts else 0):
            self._text(texts + index * _STRING, abi.String.from_address(attribute.texts + index * _STRING))

    def _text(self, at: int, text: Any) -> None:
        self._point(at + abi.String.data.offset, text.data, text.size + 1)  # including the final NUL

    def _point(self, at: int, address: int | None, size: int) -> int:
        """Copy `size` bytes at an address to the end of the image, and return their offset in it; 0 for NULL.

        The pointer at the offset `at` of the image is set to the copy.
        """
        if not address:
            return 0
        offset = self._copy(address, size)
        self._set(at, offset)
        return offset

    def _set(self, at: int, target: int) -> None:
        """Set the pointer at offset `at`."""
        self.data[at : at + 8] = int(target).to_bytes(8, "little")
        self._single_places.append(at)

    def _copy(self, address: int, size: int) -> int:
        offset = self._copied_offsets.get((address, size))
        if offset is None:
            offset = self._copied_offsets[address, size] = self._append(ctypes.string_at(address, size))
        return offset

    def _append(self, content: bytes | memoryview) -> int:
        """Append bytes at an aligned offset, which is returned."""
        self.data += bytes(-len(self.data) % (ALIGNMENT if len(content) >= ALIGNMENT else 8))
        offset = len(self.data)
        self.data += content
        return offset


def _offset(table: Array, field: str) -> int:
    fields = table.dtype.fields
    assert fields is not None
    return int(fields[field][1])


def _replace(addresses: Array, sizes: Array, copy: Any) -> None:
    """Replace addresses by what `copy` returns for each address and size; 0 remains 0."""
    addresses_and_sizes = list(zip(addresses.tolist(), sizes.tolist(), strict=True))
    offsets = {pair: copy(*pair) for pair in dict.fromkeys(addresses_and_sizes) if pair[0]}
    addresses[:] = [offsets.get(pair, 0) for pair in addresses_and_sizes]
