"""Data types, layouts, quantization and tensor infos, which describe tensors in every other part of the package."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from interposer.core.errors import InvalidArgumentError, did_you_mean
from interposer.core.masks import plain_array
from interposer.core.shape import MAX_RANK, UNKNOWN, UNRANKED, Dim, ShapeLike, TensorShape, differ

__all__ = [
    "ANYTHING",
    "ANY_TYPE",
    "COLLECTIONS",
    "FLOATS",
    "INTEGERS",
    "MAX_RANK",
    "QUANTIZABLE",
    "SIGNED_INTEGERS",
    "STORED_FLOATS",
    "UNKNOWN",
    "UNRANKED",
    "UNSIGNED_INTEGERS",
    "Array",
    "DataLayout",
    "DataType",
    "Dim",
    "Quantization",
    "ShapeLike",
    "TensorInfo",
    "TensorShape",
    "differ",
]

Array: TypeAlias = NDArray[Any]


class DataType(Enum):
    """The storage type of one element. `Quantization` says whether stored integers represent float values.

    SEQUENCE and OPTIONAL are not types of tensors: a sequence is a list of arrays, an optional holds one array or none.

    Arm NN's names (``QAsymmU8`` ...) are aliases of the storage types.
    """

    BOOL = "bool"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    FLOAT16 = "float16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BFLOAT16 = "bfloat16"
    INT4 = "int4"
    UINT4 = "uint4"
    INT2 = "int2"
    UINT2 = "uint2"
    FLOAT8_E4M3FN = "float8_e4m3fn"
    FLOAT8_E4M3FNUZ = "float8_e4m3fnuz"
    FLOAT8_E5M2 = "float8_e5m2"
    FLOAT8_E5M2FNUZ = "float8_e5m2fnuz"
    FLOAT8_E8M0FNU = "float8_e8m0fnu"
    FLOAT6_E2M3FN = "float6_e2m3fn"
    FLOAT6_E3M2FN = "float6_e3m2fn"
    FLOAT4_E2M1FN = "float4_e2m1fn"
    STRING = "string"
    SEQUENCE = "sequence"
    OPTIONAL = "optional"

    QAsymmU8 = "uint8"
    QAsymmS8 = "int8"
    QSymmS8 = "int8"
    QSymmS16 = "int16"
    Signed32 = "int32"
    Signed64 = "int64"
    Boolean = "bool"
    Float16 = "float16"
    Float32 = "float32"
    BFloat16 = "bfloat16"

    __hash__ = object.__hash__
    """Members are unique, so identity suffices; five times as fast as the hash of their names."""

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of arrays of this type (from `ml_dtypes` for types that NumPy lacks)."""
        return _numpy_dtype(self)

    @property
    def bits(self) -> int:
        """Bits of one element in a packed buffer; 0 for strings and collections, which have no fixed size."""
        return _BITS[self]

    @property
    def itemsize(self) -> int:
        """Bytes of one element of the NumPy array; types of fewer than 8 bits take a whole byte there."""
        return _itemsize(self)

    @property
    def is_float(self) -> bool:
        """True for the floating-point types of any width."""
        return self in FLOATS or self in STORED_FLOATS

    @property
    def is_integer(self) -> bool:
        """True for the integer types of any width; False for bool."""
        return self in INTEGERS

    @property
    def is_collection(self) -> bool:
        """True for sequences and optionals, whose elements are arrays."""
        return self in COLLECTIONS

    @classmethod
    def of(cls, what: DataType | str | np.dtype[Any] | type) -> DataType:
        """Return the type for a member, its name or value, or a NumPy dtype.

        Raises:
            InvalidArgumentError: there is no such type.
        """
        if isinstance(what, np.dtype):
            return _of_dtype(what)
        return what if isinstance(what, DataType) else cls._named(what)

    @classmethod
    def _named(cls, name_or_dtype: str | np.dtype[Any] | type) -> DataType:
        name = str(name_or_dtype) if isinstance(name_or_dtype, str) else _dtype_name(name_or_dtype)
        data_type = cls.__members__.get(name) or _BY_VALUE.get(name) or _BY_VALUE.get(name.lower())
        if data_type is None:
            raise InvalidArgumentError(f"unknown data type {name!r}{did_you_mean(name, _BY_VALUE)}")
        return data_type

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return f"DataType.{self.name}"


_BY_VALUE: Final = {str(member.value): member for member in DataType}
STORED_FLOATS: Final = frozenset(
    {DataType.FLOAT8_E8M0FNU, DataType.FLOAT6_E2M3FN, DataType.FLOAT6_E3M2FN, DataType.FLOAT4_E2M1FN}
)
"""Float types that are only stored, moved and converted: no operator computes in them."""
FLOATS: Final = frozenset(member for value, member in _BY_VALUE.items() if "float" in value) - STORED_FLOATS
"""Float types that operators compute in."""
SIGNED_INTEGERS: Final = frozenset(member for value, member in _BY_VALUE.items() if value.startswith("int"))
UNSIGNED_INTEGERS: Final = frozenset(member for value, member in _BY_VALUE.items() if value.startswith("uint"))
INTEGERS: Final = SIGNED_INTEGERS | UNSIGNED_INTEGERS
QUANTIZABLE: Final = INTEGERS
COLLECTIONS: Final = frozenset({DataType.SEQUENCE, DataType.OPTIONAL})
"""The types of sequences and optionals, which are not tensors."""
ANY_TYPE: Final = frozenset(DataType) - COLLECTIONS
"""The types of tensors."""
ANYTHING: Final = frozenset(DataType)
"""The types of tensors, sequences and optionals."""
_BITS: Final = {
    member: {"bool": 8}.get(value) or int("".join(filter(str.isdigit, value.split("_")[0])) or 0)
    for value, member in _BY_VALUE.items()
}


@cache
def _of_dtype(dtype: np.dtype[Any]) -> DataType:
    return DataType._named(dtype)


@cache
def _numpy_dtype(data_type: DataType) -> np.dtype[Any]:
    if data_type is DataType.STRING or data_type in COLLECTIONS:
        return np.dtype(object)
    try:
        dtype: np.dtype[Any] = np.dtype(data_type.value)
    except TypeError:
        import ml_dtypes  # noqa: PLC0415 - 5 ms that most programs never need

        dtype = np.dtype(getattr(ml_dtypes, str(data_type.value)))
    return dtype


@cache
def _itemsize(data_type: DataType) -> int:
    return _numpy_dtype(data_type).itemsize


def _dtype_name(numpy_type: np.dtype[Any] | type) -> str:
    try:
        dtype = np.dtype(numpy_type)
    except TypeError as error:
        raise InvalidArgumentError(
            f"a data type is a DataType, its name or a NumPy dtype, not {numpy_type!r}"
        ) from error
    if numpy_type is None:
        raise InvalidArgumentError("a data type is a DataType, its name or a NumPy dtype, not None")
    return "string" if dtype.kind in "OUST" else dtype.name


def integer_range(data_type: DataType) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer type."""
    bits = data_type.bits
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if data_type in SIGNED_INTEGERS else (0, (1 << bits) - 1)


def largest_float(data_type: DataType) -> float:
    """Return the largest finite value of a float type."""
    try:
        return float(np.finfo(data_type.numpy).max)
    except ValueError:  # a type that NumPy lacks
        import ml_dtypes  # noqa: PLC0415 - 5 ms that most programs never need

        return float(ml_dtypes.finfo(data_type.numpy).max)  # type: ignore[no-untyped-call] # it has no annotations


def smallest_float(data_type: DataType) -> float:
    """Return the smallest positive value of a float type, which is a subnormal number."""
    try:
        return float(np.finfo(data_type.numpy).smallest_subnormal)
    except ValueError:  # a type that NumPy lacks
        import ml_dtypes  # noqa: PLC0415 - 5 ms that most programs never need

        return float(ml_dtypes.finfo(data_type.numpy).smallest_subnormal)  # type: ignore[no-untyped-call] # as above


def from_bits(low_bits: Array, data_type: DataType) -> Array:
    """Return an array of a type of fewer than 8 bits, such as int4, from bytes that hold one element each.

    An element is in the lowest bits of its byte in `low_bits`.
    """
    bits = (low_bits & np.uint8(2**data_type.bits - 1)).astype(np.uint8, copy=False)
    elements: Array = bits.view(data_type.numpy)
    return elements


class LayoutAxes(NamedTuple):
    """The positions of height, width and channels among the axes of an image tensor."""

    height: int
    width: int
    channels: int


class DataLayout(Enum):
    """The order of the axes of an image: N is the batch, C the channels, D the depth, H the height and W the width."""

    NCHW = "NCHW"
    NHWC = "NHWC"
    NCDHW = "NCDHW"
    NDHWC = "NDHWC"

    @cache
    def axes(self) -> LayoutAxes:
        """Return the indices of the height, width and channel axes."""
        return LayoutAxes(*(self.value.index(letter) for letter in "HWC"))

    @property
    def channels_last(self) -> bool:
        """True if the channels are the last axis."""
        return str(self.value).endswith("C")

    @property
    def other(self) -> DataLayout:
        """The layout of the same axes with the channels last instead of first, or first instead of last."""
        letters = self.value.replace("C", "")
        return DataLayout(f"{letters[0]}C{letters[1:]}" if self.channels_last else f"{letters}C")

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.value)

    def __str__(self) -> str:
        return str(self.value)


class QuantizationArrays(NamedTuple):
    """The scales of a quantization as a vector of float64, and its zero points as a vector of int64."""

    scales: Array
    zero_points: Array


class Quantization:
    """The mapping of stored integers to float values: ``real = scale * (stored - zero_point)``.

    There is one scale for the whole tensor, or one for every index along `axis`. Instances are immutable and hashable.

    Raises:
        InvalidArgumentError: no scale, a scale that is not finite and positive, a zero point that is not an integer, or
            counts that do not agree.
    """

    __slots__ = ("_distinct", "_hash", "_numbers", "_scales", "_zero_points", "axis")
    axis: int | None
    _scales: tuple[float, ...]
    _zero_points: tuple[int, ...]
    _numbers: QuantizationArrays
    _distinct: tuple[int, ...]
    _hash: int

    def __init__(
        self, scale: float | Iterable[float], zero_point: int | Iterable[int] = 0, axis: int | None = None
    ) -> None:
        scales = _numbers(scale, float, "a scale must be a number")
        zero_points = _numbers(zero_point, operator.index, "a zero point must be an integer")
        axis = None if axis is None else _number(axis, operator.index, "the quantized axis must be an integer")
        zero_points = zero_points * len(scales) if len(zero_points) == 1 else zero_points
        for error in _quantization_problems(scales, zero_points, axis):
            raise InvalidArgumentError(error)
        object.__setattr__(self, "_scales", scales)
        object.__setattr__(self, "_zero_points", zero_points)
        object.__setattr__(self, "axis", axis)

    @classmethod
    def of_arrays(cls, scales: Array, zero_points: Array, axis: int | None) -> Quantization:
        """Return the quantization with these vectors of one scale and one zero point for every index along `axis`.

        This is faster than the constructor, as no Python number is made for each. The arrays must not change later.

        Raises:
            InvalidArgumentError: as for the constructor.
        """
        arrays = _read_only(np.asarray(scales, np.float64), np.asarray(zero_points, np.int64))
        are_vectors = arrays.scales.ndim == 1 and arrays.scales.shape == arrays.zero_points.shape
        if axis is None or not 0 <= axis < MAX_RANK or not are_vectors or not _are_scales(arrays.scales):
            return cls(scales.tolist(), zero_points.tolist(), axis)
        quantization = object.__new__(cls)
        object.__setattr__(quantization, "_numbers", arrays)
        object.__setattr__(quantization, "axis", axis)
        return quantization

    @property
    def scales(self) -> tuple[float, ...]:
        """The scale of the whole tensor, or the scales of all indices along `axis`."""
        try:
            return self._scales
        except AttributeError:  # made of arrays; computed on first use, as there may be thousands of scales
            object.__setattr__(self, "_scales", tuple(self._numbers.scales.tolist()))
            return self._scales

    @property
    def zero_points(self) -> tuple[int, ...]:
        """The zero point of the whole tensor, or the zero points of all indices along `axis`."""
        try:
            return self._zero_points
        except AttributeError:
            object.__setattr__(self, "_zero_points", tuple(self._numbers.zero_points.tolist()))
            return self._zero_points

    @property
    def arrays(self) -> QuantizationArrays:
        """The scales as a read-only vector of float64, and the zero points as one of int64.

        `OverflowError` is raised if a zero point is not an integer of 64 bits, as no type of tensors has.
        """
        try:
            return self._numbers
        except AttributeError:
            arrays = _read_only(np.array(self._scales), np.array(self._zero_points, np.int64))
            object.__setattr__(self, "_numbers", arrays)
            return arrays

    @property
    def distinct_zero_points(self) -> tuple[int, ...]:
        """The zero points, each once, in order of first appearance."""
        try:
            return self._distinct
        except AttributeError:
            object.__setattr__(self, "_distinct", self._computed_distinct())
            return self._distinct

    def _computed_distinct(self) -> tuple[int, ...]:
        arrays = getattr(self, "_numbers", None)
        if arrays is not None and bool((arrays.zero_points == arrays.zero_points[0]).all()):
            return (self.zero_point,)  # makes no Python number for each of thousands
        return tuple(dict.fromkeys(self.zero_points))

    @property
    def count(self) -> int:
        """The number of scales."""
        try:
            return len(self._scales)
        except AttributeError:
            return len(self._numbers.scales)

    def along(self, axis: int) -> Quantization:
        """Return a per-axis quantization with the same scales and zero points along another axis."""
        return Quantization.of_arrays(*self.arrays, axis)

    @property
    def per_axis(self) -> bool:
        """True if there is one scale for every index along `axis`, such as for every output channel of weights."""
        return self.axis is not None

    @property
    def scale(self) -> float:
        """The scale of a per-tensor quantization (the first one of a per-axis quantization)."""
        try:
            return self._scales[0]
        except AttributeError:
            return float(self._numbers.scales[0])

    @property
    def zero_point(self) -> int:
        """The zero point of a per-tensor quantization (the first one of a per-axis quantization)."""
        try:
            return self._zero_points[0]
        except AttributeError:
            return int(self._numbers.zero_points[0])

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Quantization is immutable; cannot set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Quantization is immutable; cannot delete {name!r}")

    def __reduce__(self) -> tuple[type[Quantization], tuple[object, ...]]:
        return Quantization, (self.scales, self.zero_points, self.axis)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantization):
            return NotImplemented
        if self is other:
            return True
        if self.axis != other.axis or self.count != other.count:
            return False
        try:
            return all(map(np.array_equal, self._numbers, other._numbers))
        except AttributeError:  # not made of arrays
            return (self.scales, self.zero_points) == (other.scales, other.zero_points)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:  # of the first scale alone, as there may be thousands of them
            object.__setattr__(self, "_hash", hash((self.scale, self.count, self.axis)))
            return self._hash

    def __repr__(self) -> str:
        if self.per_axis:
            return f"Quantization({list(self.scales)}, {list(self.zero_points)}, axis={self.axis})"
        return f"Quantization({self.scale!r}, {self.zero_point})"

    def __str__(self) -> str:
        if self.per_axis:
            return f"q(axis {self.axis}, {self.count} scales)"
        return f"q({self.scale:.6g}, {self.zero_point})"


_PLAIN: Final[dict[Any, set[type]]] = {float: {float}, operator.index: {int}}
"""The types of numbers that need no conversion."""


def _numbers(value: Any, convert: Callable[[Any], Any], requirement: str) -> tuple[Any, ...]:
    if type(value) in _PLAIN[convert]:  # fast paths, since large networks have thousands of scales
        return (value,)
    if type(value) in {tuple, list} and set(map(type, value)) == _PLAIN[convert]:
        return tuple(value)
    is_sequence = isinstance(value, Iterable) and not isinstance(value, (str, bytes)) and getattr(value, "ndim", True)
    return tuple(_number(number, convert, requirement) for number in (value if is_sequence else (value,)))


def _number(value: Any, convert: Callable[[Any], Any], requirement: str) -> Any:
    try:
        number = convert(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"{requirement}, not {value!r}") from error
    if isinstance(value, (str, bytes, bool)):
        raise InvalidArgumentError(f"{requirement}, not {value!r}")
    return number


def _quantization_problems(scales: tuple[float, ...], zero_points: tuple[int, ...], axis: int | None) -> Iterator[str]:
    if not scales:
        yield "a quantization needs at least one scale"
    if len(scales) > 1 and axis is None:
        yield f"{len(scales)} scales were given without the axis that they belong to"
    if axis is not None and not 0 <= axis < MAX_RANK:
        yield f"the quantized axis must be 0 to {MAX_RANK - 1}, not {axis}"
    if len(zero_points) != len(scales):
        yield f"{len(scales)} scales but {len(zero_points)} zero points were given"
    if scales and min(scales) > 0 and sum(scales) < math.inf:
        return  # a sum with NaN is NaN
    for scale in [scale for scale in scales if not 0 < scale < math.inf]:
        yield f"a scale must be positive and finite, not {scale!r}"


def _read_only(scales: Array, zero_points: Array) -> QuantizationArrays:
    arrays = QuantizationArrays(scales.view(), zero_points.view())
    for array in arrays:
        array.flags.writeable = False
    return arrays


def _are_scales(scales: Array) -> bool:
    """Return True if there is a scale, and all of them are positive and finite."""
    return len(scales) > 0 and bool(scales.min() > 0) and bool(scales.max() < math.inf)  # NaN makes both NaN


_ARRAY_OVERHEAD: Final = 128
"""Approximate size of an array in bytes, without its elements."""


class TensorInfo:
    """The description of a tensor without its data: shape, type, quantization and, for a constant, its value.

    A sequence has the shape [number of elements], and an optional the shape [0] or [1]; `element` then describes what
    all elements have in common. It is None for tensors. `constant` is an array that shape inference may read (axes,
    target shapes ...); equality ignores it. Instances are immutable; `with_shape`, `with_dtype`, `with_quantization`,
    `with_constant` and `with_element` return changed copies.

    >>> str(TensorInfo((1, 4), "uint8", Quantization(0.5, 3)))
    'uint8[1, 4] q(0.5, 3)'
    >>> str(TensorInfo((None,), "sequence", element=TensorInfo((None, 3))))
    'sequence[?] of float32[?, 3]'
    """

    __slots__ = ("_hash", "constant", "dtype", "element", "quantization", "shape")
    shape: TensorShape
    dtype: DataType
    quantization: Quantization | None
    constant: Array | None
    element: TensorInfo | None
    _hash: int

    def __init__(
        self,
        shape: ShapeLike = (),
        dtype: DataType | str | np.dtype[Any] | type = DataType.FLOAT32,
        quantization: Quantization | None = None,
        constant: Array | None = None,
        element: TensorInfo | None = None,
    ) -> None:
        object.__setattr__(self, "shape", shape if type(shape) is TensorShape else TensorShape(shape))
        object.__setattr__(self, "dtype", dtype if type(dtype) is DataType else DataType.of(dtype))
        object.__setattr__(self, "quantization", quantization)
        object.__setattr__(self, "constant", constant)
        object.__setattr__(self, "element", None if element is None else _without_constant(element))
        is_plain = constant is None and element is None and self.dtype not in COLLECTIONS
        for error in () if is_plain and _surely_fits(quantization, self.dtype) else self._problems():
            raise InvalidArgumentError(error)

    @classmethod
    def of(cls, array: Array, quantization: Quantization | None = None) -> TensorInfo:
        """Return the info of a constant: shape and type of the array, this quantization, and the array as its value.

        Raises:
            InvalidArgumentError: the array has no type of tensors or has masked elements, or the quantization does not
                fit the array.
        """
        if type(array) is not np.ndarray:  # this and what follows are fast paths, as networks have many constants
            array = plain_array(array, "the constant", InvalidArgumentError)
        info, set_slot = object.__new__(cls), object.__setattr__
        set_slot(info, "shape", TensorShape.of(array))
        set_slot(info, "dtype", _of_dtype(array.dtype))
        set_slot(info, "quantization", quantization)
        set_slot(info, "constant", array)
        set_slot(info, "element", None)
        if quantization is not None and not _surely_fits(quantization, info.dtype):
            for error in info._quantization_problems(quantization):
                raise InvalidArgumentError(error)
        return info

    def _problems(self) -> Iterator[str]:
        if self.dtype in COLLECTIONS or self.element is not None:
            yield from self._element_problems(self.element)
        if self.constant is not None:
            yield from self._constant_problems(self.constant)
        if self.quantization is not None:
            yield from self._quantization_problems(self.quantization)

    def _element_problems(self, element: TensorInfo | None) -> Iterator[str]:
        if self.dtype not in COLLECTIONS:
            yield f"a tensor of type {self.dtype} has no element, but {element!r} was given"
            return
        if not isinstance(element, TensorInfo):
            yield f"the element of {_with_article(self.dtype)} must be a TensorInfo, not {element!r}"
            return
        if not self.is_ranked or self.rank != 1:
            yield f"{_with_article(self.dtype)} has rank 1, not the shape {self.shape}"
        elif self.dtype is DataType.OPTIONAL and self.shape[0] > 1:
            yield f"an optional holds at most one element, not {self.shape[0]}"
        if element.dtype is DataType.OPTIONAL or (self.dtype is DataType.SEQUENCE and element.dtype in COLLECTIONS):
            yield f"{_with_article(self.dtype)} cannot hold elements of type {element.dtype}"
        if self.constant is not None:
            yield f"the value of {_with_article(self.dtype)} cannot be a constant"

    def _constant_problems(self, constant: Array) -> Iterator[str]:
        if self.dtype in COLLECTIONS:
            return
        if not isinstance(constant, np.ndarray):
            yield f"the constant must be an array, not {constant!r}"
        elif DataType.of(constant.dtype) is not self.dtype or not (
            self.shape == constant.shape or self.shape.accepts(TensorShape(constant.shape))
        ):
            constant_type = f"{DataType.of(constant.dtype)}{TensorShape(constant.shape)}"
            yield f"the constant is {constant_type}, but the tensor {self.dtype}{self.shape}"

    def _quantization_problems(self, quantization: Quantization | None) -> Iterator[str]:
        if not isinstance(quantization, Quantization):
            yield f"the quantization must be a Quantization, not {quantization!r}"
            return
        if self.dtype not in QUANTIZABLE:
            yield f"a tensor of type {self.dtype} cannot be quantized"
            return
        low, high = integer_range(self.dtype)
        distinct_zero_points = quantization.distinct_zero_points
        for zero_point in [zero_point for zero_point in distinct_zero_points if not low <= zero_point <= high]:
            yield f"a zero point of {self.dtype} must be {low} to {high}, not {zero_point}"
        if quantization.axis is not None and (not self.is_ranked or quantization.axis >= self.rank):
            rank = f"rank {self.rank}" if self.is_ranked else "no known rank"
            yield f"the quantized axis is {quantization.axis}, but the shape {self.shape} has {rank}"
        elif quantization.axis is not None and differ(self.shape[quantization.axis], quantization.count):
            yield f"{quantization.count} scales along axis {quantization.axis} of shape {self.shape}"

    @property
    def rank(self) -> int:
        """The number of axes, 0 for a scalar. Raises `UnknownRankError` if the rank is unknown."""
        return len(self.shape)

    @property
    def is_ranked(self) -> bool:
        """True if the rank is known."""
        return self.shape.is_ranked

    @property
    def is_tensor(self) -> bool:
        """False for sequences and optionals."""
        return self.element is None

    @property
    def num_elements(self) -> int:
        """The number of elements; `UNKNOWN` if a dimension is unknown."""
        return self.shape.num_elements

    @property
    def num_bytes(self) -> int:
        """Size in bytes of the NumPy array, or of all arrays in a collection; `UNKNOWN` if a dimension is unknown."""
        return self.shape.num_elements * (
            _itemsize(self.dtype) if self.element is None else _ARRAY_OVERHEAD + self.element.num_bytes
        )

    @property
    def is_concrete(self) -> bool:
        """True if every dimension is known."""
        return self.shape.is_concrete

    @property
    def is_quantized(self) -> bool:
        """True if stored integers represent float values."""
        return self.quantization is not None

    @property
    def scale(self) -> float:
        """The scale of a quantized tensor (the first one if per axis); 1.0 if the tensor is not quantized."""
        return self.quantization.scale if self.quantization else 1.0

    @property
    def zero_point(self) -> int:
        """The zero point of a quantized tensor (the first one if per axis); 0 if the tensor is not quantized."""
        return self.quantization.zero_point if self.quantization else 0

    def with_shape(self, shape: ShapeLike) -> TensorInfo:
        """Return this info with another shape, without the constant; a per-axis quantization must fit or is dropped."""
        shape = TensorShape(shape)
        quantization = self.quantization
        if quantization is not None and quantization.axis is not None:
            still_fits = (
                shape.is_ranked
                and quantization.axis < len(shape)
                and not differ(shape[quantization.axis], quantization.count)
            )
            quantization = quantization if still_fits else None
        return TensorInfo(shape, self.dtype, quantization, element=self.element)

    def with_dtype(self, dtype: DataType) -> TensorInfo:
        """Return this info with another type, without the constant; the quantization is dropped if the type changes."""
        is_same = dtype is self.dtype
        return TensorInfo(
            self.shape, dtype, self.quantization if is_same else None, element=self.element if is_same else None
        )

    def with_quantization(self, quantization: Quantization | None) -> TensorInfo:
        """Return this info with another quantization and the same constant."""
        return TensorInfo(self.shape, self.dtype, quantization, self.constant, self.element)

    def with_constant(self, constant: Array | None) -> TensorInfo:
        """Return this info with a constant value, or without one for None."""
        if constant is self.constant:
            return self
        return TensorInfo(self.shape, self.dtype, self.quantization, constant, self.element)

    def with_element(self, element: TensorInfo) -> TensorInfo:
        """Return this info of a collection with another description of its elements."""
        return TensorInfo(self.shape, self.dtype, element=element)

    def joined(self, other: TensorInfo) -> TensorInfo:
        """Return what this info and `other` have in common, for tensors that are one or the other.

        Dimensions that differ become unknown; the constant is dropped.

        Raises:
            InvalidArgumentError: the types or the quantizations differ.
        """
        if self.dtype is not other.dtype or self.quantization != other.quantization:
            raise InvalidArgumentError(f"{self} and {other} differ in type or quantization and have no common info")
        own_element, other_element = self.element, other.element
        element = (
            None
            if own_element is None or other_element is None
            else _merged_elements(self, other, own_element, other_element)
        )
        return TensorInfo(self.shape.joined(other.shape), self.dtype, self.quantization, element=element)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"TensorInfo is immutable; cannot set {name!r}, use with_{name}(...)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"TensorInfo is immutable; cannot delete {name!r}")

    def __reduce__(self) -> tuple[type[TensorInfo], tuple[object, ...]]:
        return TensorInfo, (self.shape, self.dtype, self.quantization, self.constant, self.element)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorInfo):
            return NotImplemented
        if self is other:
            return True
        own_fields, other_fields = (
            (self.shape, self.dtype, self.quantization),
            (other.shape, other.dtype, other.quantization),
        )
        return own_fields == other_fields and self.element == other.element

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", hash((self.shape, self.dtype, self.quantization, self.element)))
            return self._hash

    def __repr__(self) -> str:
        shape = repr(tuple(self.shape)) if self.is_ranked else "..."
        optional_fields = f", {self.quantization!r}" if self.quantization else ""
        optional_fields += "" if self.element is None else f", element={self.element!r}"
        return f"TensorInfo({shape}, {self.dtype!r}{optional_fields})"

    def __str__(self) -> str:
        suffix = f" {self.quantization}" if self.quantization else ""
        suffix += "" if self.element is None else f" of {self.element}"
        return f"{self.dtype}{self.shape}{suffix}"


def _surely_fits(quantization: Quantization | None, dtype: DataType) -> bool:
    """Return True if a tensor of any shape is certain to be valid with a type and a quantization; a fast path."""
    if quantization is None:
        return True
    low, high = _ZERO_POINTS.get(dtype, (0, -1))
    return type(quantization) is Quantization and quantization.axis is None and low <= quantization.zero_point <= high


_ZERO_POINTS: Final = {dtype: integer_range(dtype) for dtype in QUANTIZABLE}
"""The smallest and the largest zero point of each type of quantized values."""


def _without_constant(element: TensorInfo | None) -> TensorInfo | None:
    has_constant = isinstance(element, TensorInfo) and element.constant is not None
    return element.with_constant(None) if element is not None and has_constant else element


def _with_article(dtype: DataType) -> str:
    return f"{'an' if dtype.value[0] in 'aeiou' else 'a'} {dtype}"


def _merged_elements(a: TensorInfo, b: TensorInfo, element_a: TensorInfo, element_b: TensorInfo) -> TensorInfo:
    """Return what the elements of two collections have in common; `element_a` describes those of `a`.

    An empty collection does not restrict the other one: the info of its elements is ignored.
    """
    if element_a.dtype is element_b.dtype and a.shape[0] == 0:
        return element_b
    return element_a if element_a.dtype is element_b.dtype and b.shape[0] == 0 else element_a.joined(element_b)
