"""The contents of a TFLite file as frozen dataclasses, which `container.read_model` creates and validates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from interposer.core.errors import ParseError
from interposer.core.records import dataclass
from interposer.formats.tflite.schema import defaults

__all__ = [
    "Blocks",
    "Dimension",
    "Metadata",
    "Model",
    "Operator",
    "QuantizationParameters",
    "Signature",
    "Sparsity",
    "Subgraph",
    "Tensor",
    "byte_size",
    "numpy_dtype",
    "packed_bits",
]

_CODES: Final = dict(
    bool="?", int8="i1", uint8="u1", int16="<i2", uint16="<u2", int32="<i4", uint32="<u4", int64="<i8", uint64="<u8",
    float16="<f2", float32="<f4", float64="<f8", complex64="<c8", complex128="<c16",
)  # fmt: skip

_PACKED: Final = {"int4": 4, "int2": 2, "uint4": 4}
_WIDTHS: Final = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}
"""The bytes of an element of the types that NumPy itself lacks."""


def numpy_dtype(dtype: str) -> np.dtype[Any] | None:
    """Return the NumPy type for a tensor type's name, as stored in the file; None if NumPy has none."""
    return np.dtype(_CODES[dtype]) if dtype in _CODES else None


def packed_bits(dtype: str) -> int:
    """Return the bits of an element of a type whose elements are packed in bytes, such as 4 for int4; 0 for others."""
    return _PACKED.get(dtype, 0)


def byte_size(dtype: str, elements: int) -> int | None:
    """Return the number of bytes that the elements take in the file; None if the type alone does not determine it."""
    if dtype in _PACKED:
        return (elements * _PACKED[dtype] + 7) // 8
    if dtype in _WIDTHS:
        return elements * _WIDTHS[dtype]
    numpy_type = numpy_dtype(dtype)
    return elements * numpy_type.itemsize if numpy_type else None


@dataclass(frozen=True, slots=True)
class Blocks:
    """Where the scales of blocks of elements are: `scales` and `zero_points` are indices of the subgraph's tensors.

    A block has `size` elements along one dimension, or `shape` elements along all dimensions. `axes` are the dimensions
    along which there are several scales, if the file names them.
    """

    scales: int
    zero_points: int
    size: int
    shape: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class QuantizationParameters:
    """Scales and zero points, per tensor (`axis` is None) or per index along `axis`.

    A stored integer stands for ``scale * (stored - zero_point)``. `details` is the schema's name
    of another kind of parameters that replaces these, usually None; `blocks` has those for blocks of elements.
    """

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None
    details: str | None = None
    blocks: Blocks | None = None


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of a sparse tensor, in the order of traversal.

    A dense dimension has `size` entries for each entry of the dimensions before. A sparse one has `segments` and
    `indices`: entry n of the dimensions before has the indices from ``segments[n]`` to before ``segments[n + 1]``.
    """

    size: int
    segments: NDArray[Any] | None = None
    indices: NDArray[Any] | None = None


@dataclass(frozen=True, slots=True)
class Sparsity:
    """Where the stored elements of a sparse tensor belong.

    `traversal_order` has the dimensions in the order of `dimensions`: those of the tensor, then those of blocks.
    `block_map` has the tensor's dimension for each dimension of blocks.
    """

    traversal_order: tuple[int, ...]
    block_map: tuple[int, ...]
    dimensions: tuple[Dimension, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a subgraph.

    `shape_signature` has negative numbers for dimensions that may change from run to run. It is None if the file has
    none, or one of another rank, which TFLite ignores.
    `buffer` is an index into the model's buffers, 0 for no data; `has_rank` distinguishes a scalar from a tensor of
    unknown rank, in files that have this field.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    shape_signature: tuple[int, ...] | None = None
    buffer: int = 0
    quantization: QuantizationParameters | None = None
    is_variable: bool = False
    has_rank: bool = False
    sparsity: Sparsity | None = None

    @property
    def is_sparse(self) -> bool:
        """True if the file stores only some of the elements, at positions that `sparsity` describes."""
        return self.sparsity is not None

    @property
    def elements(self) -> int:
        """The number of elements, as in the shape."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of a subgraph: `name` is that of the schema (``CONV_2D``), or of the custom operator.

    `inputs`, `outputs` and `intermediates` are indices of the subgraph's tensors, -1 for an absent operand.
    `attributes` are the fields of its options by the schema's names (``stride_h``), defaults filled in: numbers, texts,
    tuples, memoryviews of bytes, None for a text or vector that is missing; without options there are none. `where` is
    for error messages.
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    version: int = 1
    is_custom: bool = False
    options_type: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    custom_options: memoryview | None = None
    intermediates: tuple[int, ...] = ()
    mutating_variable_inputs: tuple[bool, ...] = ()
    where: str = ""

    def attributes_as(self, options_type: str) -> Mapping[str, Any]:
        """Return the operator's options by name, if they have the schema's type `options_type`.

        A type is, for example, ``"Conv2DOptions"``. An operator without options has the schema's defaults.

        Raises:
            ParseError: the operator has options of another type.
        """
        if self.options_type is None:
            return defaults(options_type)
        if self.options_type != options_type:
            raise ParseError(f"{self.name} has {self.options_type} instead of {options_type}", where=self.where)
        return self.attributes


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A graph of the model; `inputs` and `outputs` are indices of `tensors`, `operators` are in topological order."""

    name: str
    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]

    def empty_constants(self) -> set[int]:
        """Return the tensors without elements and producer: neither an input, nor a variable, nor an output."""
        assigned_tensors = set(self.inputs).union(*(operator.outputs for operator in self.operators))
        empty_tensors = {i for i, tensor in enumerate(self.tensors) if 0 in tensor.shape and not tensor.is_variable}
        return empty_tensors - assigned_tensors


@dataclass(frozen=True, slots=True)
class Signature:
    """A named way to call a subgraph: its argument and result names, each with the index of its tensor."""

    key: str
    subgraph: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Metadata:
    """An entry of the file's metadata: a name, and the index of a buffer with data that belongs to no tensor."""

    name: str
    buffer: int


@dataclass(frozen=True, slots=True)
class Model:
    """A whole file. The first subgraph is the main one; operators or signatures call the others."""

    version: int
    description: str
    subgraphs: tuple[Subgraph, ...]
    buffers: tuple[memoryview | None, ...] = field(repr=False)
    metadata: tuple[Metadata, ...] = ()
    signatures: tuple[Signature, ...] = ()

    def buffer_data(self, index: int) -> memoryview | None:
        """Return the bytes of a buffer, without a copy; None for an empty one and for buffer 0, which means no data."""
        return self.buffers[index] if index else None

    def constant(self, tensor: Tensor) -> NDArray[Any] | None:
        """Return the values that the file has for a tensor, as a read-only view of the file; None if it has none.

        They have the tensor's type and shape, except for sparse tensors and for types that NumPy lacks (int4, int2,
        uint4, bfloat16, float8, string, resource, variant): for these the result is the flat bytes. Bools are copied;
        any byte but 0 is true.
        """
        buffer_bytes = self.buffer_data(tensor.buffer)
        return None if buffer_bytes is None else _values(buffer_bytes, tensor)

    def constants(self, subgraph: Subgraph) -> dict[int, NDArray[Any]]:
        """Return the `constant` values of a subgraph's tensors by index.

        The result includes tensors without elements and without a producer, as the file has no data for them.
        """
        arrays = {i: self.constant(tensor) for i, tensor in enumerate(subgraph.tensors)}
        for i in subgraph.empty_constants():
            arrays[i] = _values(memoryview(b""), subgraph.tensors[i])
        return {i: values for i, values in arrays.items() if values is not None}


def _values(buffer_bytes: memoryview, tensor: Tensor) -> NDArray[Any]:
    raw_bytes = np.frombuffer(buffer_bytes, np.uint8)
    dtype = numpy_dtype(tensor.dtype)
    if dtype is None or tensor.is_sparse:
        return raw_bytes
    values: NDArray[Any] = raw_bytes != 0 if dtype == np.bool_ else raw_bytes.view(dtype)
    return values.reshape(tensor.shape)
