"""Parts of networks as bytes that can be stored: the tables of a `FlatGraph`, which a plug-in can compile again.

An image has all tables and the data they point to, contiguously. Pointers are stored as offsets in the image; `places`
has their positions. Therefore they become addresses again by a single addition.
"""

from __future__ import annotations

import ctypes
import hashlib
from functools import cached_property
from typing import Any, Final

import numpy as np

from interposer.core.addresses import address_of, aligned_empty
from interposer.core.errors import InvalidArgumentError
from interposer.core.types import Array
from interposer.plugins.capi.abi import structs as abi

__all__ = ["Image", "ImageGraph", "outline"]

ALIGNMENT: Final = 64


class Image:
    """A copy of an ``ipr_graph``, its tables and its constants as one block of bytes that can be stored in a file.

    `data` begins with the ``ipr_graph``. `places` lists the positions in `data` at which there is a pointer, each as a
    uint64; such a pointer holds an offset in `data`. `digest` is a digest of both.
    """

    def __init__(self, data: bytes | memoryview, places: bytes | memoryview, digest: str | None = None) -> None:
        self.data, self.places = data, places
        if digest is not None:
            self.digest = digest

    @cached_property
    def digest(self) -> str:
        """A digest of `data` and `places`, in hexadecimal digits."""
        result = hashlib.sha256(self.data)
        result.update(self.places)
        return result.hexdigest()

    @classmethod
    def of(cls, graph: abi.Graph) -> Image:
        """Return a copy of an ``ipr_graph`` with all the memory that it points to."""
        writer = _Writer()
        writer.graph(graph)
        return cls(memoryview(writer.data), np.array(writer.places, np.uint64).tobytes())

    def has_constants_of(self, graph: abi.Graph) -> bool:
        """Return True if the constants of an ``ipr_graph`` are equal to those in this image.

        They may differ because a mapped file was modified in place.
        """
        ours = abi.Graph.from_buffer_copy(self.data).constants or 0
        step = ctypes.sizeof(abi.Constant)
        return all(
            _is_same(
                self.data[abi.Constant.from_buffer_copy(self.data, ours + at).data or 0 :],
                abi.Constant.from_address(graph.constants + at),
            )
            for at in range(0, graph.constant_count * step, step)
        )


def _is_same(copied: bytes | memoryview, constant: abi.Constant) -> bool:
    if not constant.data or not constant.size:
        return True
    now = (ctypes.c_char * constant.size).from_address(constant.data)
    return np.array_equal(np.frombuffer(copied, np.uint8, constant.size), np.frombuffer(now, np.uint8))


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
        if len(image.data) % 8 or len(image.data) < ctypes.sizeof(abi.Graph):
            raise InvalidArgumentError("this is no image of a part")
        memory.view(np.uint8)[:] = np.frombuffer(image.data, np.uint8)
        if places.size and (np.any(places % 8) or int(places.max()) >= memory.nbytes):
            raise InvalidArgumentError("the pointers of the image lie outside")
        index = (places // 8).astype(np.int64)
        if np.any(memory[index] > memory.nbytes):
            raise InvalidArgumentError("the image points outside")
        self.address = address_of(memory)
        memory[index] += np.uint64(self.address)
        self.constants: list[Array] = [memory]
        """The whole image, which has the constants."""


class _Writer:
    def __init__(self) -> None:
        self.data = bytearray()
        self.places: list[int] = []
        self._known: dict[tuple[int, int], int] = {}

    def graph(self, graph: abi.Graph) -> None:
        self._copy(ctypes.addressof(graph), ctypes.sizeof(abi.Graph))
        self._text(abi.Graph.name.offset, graph.name)
        for name, kind, write in (
            ("layers", abi.Layer, self._layer), ("tensors", abi.TensorInfo, self._tensor),
            ("constants", abi.Constant, self._constant),
        ):  # fmt: skip
            count = getattr(graph, f"{name.removesuffix('s')}_count")
            at = self._point(getattr(abi.Graph, name).offset, getattr(graph, name), count * ctypes.sizeof(kind))
            for number in range(count):
                step = number * ctypes.sizeof(kind)
                write(at + step, kind.from_address(getattr(graph, name) + step))
        self._point(abi.Graph.inputs.offset, graph.inputs, 8 * graph.input_count)
        self._point(abi.Graph.outputs.offset, graph.outputs, 8 * graph.output_count)
        self.data += bytes(-len(self.data) % 8)

    def _layer(self, at: int, layer: Any) -> None:
        self._text(at + abi.Layer.type.offset, layer.type)
        self._text(at + abi.Layer.name.offset, layer.name)
        self._point(at + abi.Layer.inputs.offset, layer.inputs, 8 * layer.input_count)
        self._point(at + abi.Layer.outputs.offset, layer.outputs, 8 * layer.output_count)
        size = ctypes.sizeof(abi.Attribute)
        known = (layer.attributes or 0, layer.attribute_count * size) in self._known
        table = self._point(at + abi.Layer.attributes.offset, layer.attributes, layer.attribute_count * size)
        for number in range(0 if known else layer.attribute_count):
            self._attribute(table + number * size, abi.Attribute.from_address(layer.attributes + number * size))

    def _attribute(self, at: int, value: Any) -> None:
        self._text(at + abi.Attribute.name.offset, value.name)
        self._text(at + abi.Attribute.text.offset, value.text)
        self._point(at + abi.Attribute.ints.offset, value.ints, 8 * value.count)
        self._point(at + abi.Attribute.floats.offset, value.floats, 8 * value.count)
        size = ctypes.sizeof(abi.String)
        texts = self._point(at + abi.Attribute.texts.offset, value.texts, size * value.count)
        for number in range(value.count if value.texts else 0):
            self._text(texts + number * size, abi.String.from_address(value.texts + number * size))

    def _tensor(self, at: int, value: Any) -> None:
        self._text(at + abi.TensorInfo.name.offset, value.name)
        self._point(at + abi.TensorInfo.shape.offset, value.shape, 8 * max(0, value.rank))
        self._point(at + abi.TensorInfo.scales.offset, value.scales, 8 * value.scale_count)
        self._point(at + abi.TensorInfo.zero_points.offset, value.zero_points, 8 * value.scale_count)

    def _constant(self, at: int, value: Any) -> None:
        copied = abi.Constant.from_buffer_copy(self.data, at)
        copied.fd, copied.offset = -1, 0  # a copy is in no file
        self.data[at : at + ctypes.sizeof(copied)] = bytes(copied)
        self._point(at + abi.Constant.data.offset, value.data, value.size)
        self._point(at + abi.Constant.sha256.offset, value.sha256, 32)

    def _text(self, at: int, text: Any) -> None:
        self._point(at + abi.String.data.offset, text.data, text.size + 1)  # including the final NUL

    def _point(self, at: int, address: int | None, size: int) -> int:
        """Copy `size` bytes at an address to the end of the image, and return their offset in it; 0 for NULL.

        The pointer at the offset `at` of the image is set to the copy.
        """
        if not address:
            return 0
        result = self._copy(address, size)
        self.data[at : at + 8] = result.to_bytes(8, "little")
        self.places.append(at)
        return result

    def _copy(self, address: int, size: int) -> int:
        count = self._known.get((address, size))
        if count is None:
            self.data += bytes(-len(self.data) % (ALIGNMENT if size >= ALIGNMENT else 8))
            count = self._known[address, size] = len(self.data)
            self.data += (ctypes.c_char * size).from_address(address)
        return count
