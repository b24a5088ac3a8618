"""Data types, layouts, shapes and the description of a tensor: what every other part of the package speaks in."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from interposer.errors import InvalidArgumentError, did_you_mean

__all__ = [
    "ANY_TYPE",
    "FLOATS",
    "INTEGERS",
    "MAX_RANK",
    "QUANTIZABLE",
    "SIGNED_INTEGERS",
    "UNKNOWN",
    "UNSIGNED_INTEGERS",
    "Array",
    "DataLayout",
    "DataType",
    "Dim",
    "Quantization",
    "ShapeLike",
    "TensorInfo",
    "TensorShape",
]

MAX_RANK: Final = 8
Array: TypeAlias = NDArray[Any]


class DataType(Enum):
    """How one element is stored; whether it stands for a real number by scale and zero point, `Quantization` says.

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
    FLOAT8_E4M3FN = "float8_e4m3fn"
    FLOAT8_E4M3FNUZ = "float8_e4m3fnuz"
    FLOAT8_E5M2 = "float8_e5m2"
    FLOAT8_E5M2FNUZ = "float8_e5m2fnuz"
    STRING = "string"

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

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of an array of this type (`ml_dtypes` supplies those that NumPy lacks)."""
        return _numpy_dtype(self)

    @property
    def bits(self) -> int:
        """Bits of one element in a packed buffer; 0 for strings, which have no fixed size."""
        return _BITS[self]

    @property
    def itemsize(self) -> int:
        """Bytes of one element of the NumPy array (4-bit types take a whole byte there)."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        """True for the floating-point types of any width."""
        return self in FLOATS

    @property
    def is_integer(self) -> bool:
        """True for the integer types of any width; false for bool."""
        return self in INTEGERS

    @classmethod
    def of(cls, what: DataType | str | np.dtype[Any] | type) -> DataType:
        """The type named by a member, its name or value, or a NumPy dtype; else `InvalidArgumentError`."""
        if isinstance(what, DataType):
            return what
        name = str(what) if isinstance(what, str) else _dtype_name(what)
        found = cls.__members__.get(name) or _BY_VALUE.get(name) or _BY_VALUE.get(name.lower())
        if found is None:
            raise InvalidArgumentError(f"unknown data type {name!r}{did_you_mean(name, _BY_VALUE)}")
        return found

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return f"DataType.{self.name}"


_BY_VALUE: Final = {str(member.value): member for member in DataType}
FLOATS: Final = frozenset(member for value, member in _BY_VALUE.items() if "float" in value)
SIGNED_INTEGERS: Final = frozenset(member for value, member in _BY_VALUE.items() if value.startswith("int"))
UNSIGNED_INTEGERS: Final = frozenset(member for value, member in _BY_VALUE.items() if value.startswith("uint"))
INTEGERS: Final = SIGNED_INTEGERS | UNSIGNED_INTEGERS
QUANTIZABLE: Final = INTEGERS
ANY_TYPE: Final = frozenset(DataType)
_BITS: Final = {
    member: {"bool": 8, "string": 0}.get(value) or int("".join(filter(str.isdigit, value.split("_")[0])) or 0)
    for value, member in _BY_VALUE.items()
}


@cache
def _numpy_dtype(data_type: DataType) -> np.dtype[Any]:
    if data_type is DataType.STRING:
        return np.dtype(object)
    try:
        dtype: np.dtype[Any] = np.dtype(data_type.value)
    except TypeError:
        import ml_dtypes  # noqa: PLC0415 - 5 ms that most programs never need

        dtype = np.dtype(getattr(ml_dtypes, str(data_type.value)))
    return dtype


def _dtype_name(what: np.dtype[Any] | type) -> str:
    try:
        dtype = np.dtype(what)
    except TypeError as error:
        raise InvalidArgumentError(f"a data type is a DataType, its name or a NumPy dtype, not {what!r}") from error
    if what is None:
        raise InvalidArgumentError("a data type is a DataType, its name or a NumPy dtype, not None")
    return "string" if dtype.kind in "OUST" else dtype.name


def integer_range(data_type: DataType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    bits = data_type.bits
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if data_type in SIGNED_INTEGERS else (0, (1 << bits) - 1)


class LayoutAxes(NamedTuple):
    """Positions of the axes of an image tensor."""

    height: int
    width: int
    channels: int


class DataLayout(Enum):
    """The order of the axes of an image (N batch, C channels, D depth, H height, W width)."""

    NCHW = "NCHW"
    NHWC = "NHWC"
    NCDHW = "NCDHW"
    NDHWC = "NDHWC"

    def axes(self) -> LayoutAxes:
        """Positions of height, width and channels."""
        return LayoutAxes(*(self.value.index(letter) for letter in "HWC"))

    @property
    def channels_last(self) -> bool:
        """True where the channels are the last axis."""
        return str(self.value).endswith("C")

    @property
    def rank(self) -> int:
        """How many axes the layout names."""
        return len(self.value)

    def __str__(self) -> str:
        return str(self.value)


class Dim(int):
    """An extent that is not known yet, optionally named (``Dim("batch")``); arithmetic with it gives `UNKNOWN` again.

    It orders with nothing (every ``<`` or ``>`` is False) and divides by everything, so that a check which reports
    faults by comparing keeps quiet about what cannot be known. Its value as an int is -1.
    """

    name: str | None
    _named: dict[str | None, Dim] = {}

    def __new__(cls, name: str | None = None) -> Dim:
        found = cls._named.get(name)
        if found is None:
            made = super().__new__(cls, -1)
            made.name = name
            found = cls._named.setdefault(name, made)
        return found

    def _same(self, *_: object) -> Dim:
        return UNKNOWN

    def _never(self, _: object) -> bool:
        return False

    def __mod__(self, _: object) -> int:
        return 0

    def __divmod__(self, _: object) -> tuple[Dim, int]:
        return UNKNOWN, 0

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _same
    __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = __pow__ = __rpow__ = _same  # type: ignore[assignment]
    __neg__ = __abs__ = __round__ = __ceil__ = __floor__ = __trunc__ = _same
    __rmod__ = __mod__
    __rdivmod__ = __divmod__
    __lt__ = __le__ = __gt__ = __ge__ = _never

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name or "?"

    __str__ = __repr__

    def __reduce__(self) -> tuple[type[Dim], tuple[str | None]]:
        return Dim, (self.name,)


UNKNOWN: Final = Dim()
ShapeLike: TypeAlias = "Iterable[int | str | None]"


class TensorShape(tuple[int, ...]):
    """The extents of a tensor, rank 0 to 8; `None` or a name stands for an extent that is not known yet.

    >>> TensorShape((1, None, "width", 3))
    TensorShape(1, ?, width, 3)
    """

    __slots__ = ()

    def __new__(cls, dims: ShapeLike = ()) -> TensorShape:
        if type(dims) is cls:
            return dims
        if isinstance(dims, (str, bytes)) or not isinstance(dims, Iterable):
            raise InvalidArgumentError(f"a shape must be a sequence of extents, not {dims!r}")
        made = tuple(_dim(dim) for dim in dims)
        if len(made) > MAX_RANK:
            raise InvalidArgumentError(f"a tensor has rank {len(made)}; ranks 0 to {MAX_RANK} are supported")
        return super().__new__(cls, made)

    @property
    def rank(self) -> int:
        """How many axes there are."""
        return len(self)

    @property
    def is_concrete(self) -> bool:
        """True where every extent is known."""
        return not any(isinstance(dim, Dim) for dim in self)

    @property
    def num_elements(self) -> int:
        """The product of the extents (1 for a scalar); `UNKNOWN` where one is unknown."""
        return math.prod(self) if self.is_concrete else UNKNOWN

    def accepts(self, other: TensorShape) -> bool:
        """True where `other` has the same rank and agrees in every extent that both know."""
        return len(self) == len(other) and not any(differ(a, b) for a, b in zip(self, other, strict=True))

    def __repr__(self) -> str:
        return f"TensorShape({', '.join(map(str, self))})"

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self))}]"


def _dim(given: int | str | None) -> int:
    if given is None or isinstance(given, str):
        return Dim(given)
    if isinstance(given, Dim):
        return given
    try:
        extent = operator.index(given)
    except TypeError:
        extent = None
    if extent is None or isinstance(given, bool):
        raise InvalidArgumentError(f"an extent must be an integer, a name or None, not {given!r}")
    if extent < 0:
        raise InvalidArgumentError(f"an extent must not be negative, but {extent} was given; None means unknown")
    return extent


def differ(a: int, b: int) -> bool:
    """True where both extents are known and are not the same."""
    return a != b and not isinstance(a, Dim) and not isinstance(b, Dim)


class Quantization:
    """How stored integers stand for real numbers: ``real = scale * (stored - zero_point)``.

    One scale for the whole tensor, or one for every index along `axis`. Immutable and hashable.

    Raises:
        InvalidArgumentError: no scale, a scale that is not finite and positive, a zero point that is no integer, or
            counts that do not agree.
    """

    __slots__ = ("axis", "scales", "zero_points")
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None

    def __init__(
        self, scale: float | Iterable[float], zero_point: int | Iterable[int] = 0, axis: int | None = None
    ) -> None:
        scales = _numbers(scale, float, "a scale must be a number")
        points = _numbers(zero_point, operator.index, "a zero point must be an integer")
        axis = None if axis is None else _number(axis, operator.index, "the quantized axis must be an integer")
        points = points * len(scales) if len(points) == 1 else points
        for fault in _quantization_faults(scales, points, axis):
            raise InvalidArgumentError(fault)
        object.__setattr__(self, "scales", scales)
        object.__setattr__(self, "zero_points", points)
        object.__setattr__(self, "axis", axis)

    @property
    def per_axis(self) -> bool:
        """True where every index along `axis` has a scale of its own."""
        return self.axis is not None

    @property
    def scale(self) -> float:
        """The scale of a per-tensor quantization (the first one of a per-axis quantization)."""
        return self.scales[0]

    @property
    def zero_point(self) -> int:
        """The zero point of a per-tensor quantization (the first one of a per-axis quantization)."""
        return self.zero_points[0]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Quantization is immutable; cannot set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Quantization is immutable; cannot delete {name!r}")

    def __reduce__(self) -> tuple[type[Quantization], tuple[object, ...]]:
        return Quantization, (self.scales, self.zero_points, self.axis)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantization):
            return NotImplemented
        return (self.scales, self.zero_points, self.axis) == (other.scales, other.zero_points, other.axis)

    def __hash__(self) -> int:
        return hash((self.scales, self.zero_points, self.axis))

    def __repr__(self) -> str:
        if self.per_axis:
            return f"Quantization({list(self.scales)}, {list(self.zero_points)}, axis={self.axis})"
        return f"Quantization({self.scale!r}, {self.zero_point})"

    def __str__(self) -> str:
        if self.per_axis:
            return f"q(axis {self.axis}, {len(self.scales)} scales)"
        return f"q({self.scale:.6g}, {self.zero_point})"


def _numbers(given: Any, convert: Callable[[Any], Any], wanted: str) -> tuple[Any, ...]:
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes)) and getattr(given, "ndim", True)
    return tuple(_number(item, convert, wanted) for item in (given if several else (given,)))


def _number(given: Any, convert: Callable[[Any], Any], wanted: str) -> Any:
    try:
        made = convert(given)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"{wanted}, not {given!r}") from error
    if isinstance(given, (str, bytes, bool)):
        raise InvalidArgumentError(f"{wanted}, not {given!r}")
    return made


def _quantization_faults(scales: tuple[float, ...], points: tuple[int, ...], axis: int | None) -> Iterator[str]:
    if not scales:
        yield "a quantization needs at least one scale"
    if len(scales) > 1 and axis is None:
        yield f"{len(scales)} scales were given without the axis that they belong to"
    if axis is not None and not 0 <= axis < MAX_RANK:
        yield f"the quantized axis must be 0 to {MAX_RANK - 1}, not {axis}"
    if len(points) != len(scales):
        yield f"{len(scales)} scales but {len(points)} zero points were given"
    for scale in scales:
        if not (scale > 0 and math.isfinite(scale)):
            yield f"a scale must be positive and finite, not {scale!r}"


class TensorInfo:
    """What is known of a tensor without its data: shape, type, quantization and, where it is constant, the value.

    `constant` is an array that shape inference may read (axes, target shapes ...); it takes no part in equality.
    Immutable; copies with changes come from `with_shape`, `with_dtype`, `with_quantization` and `with_constant`.

    >>> str(TensorInfo((1, 4), "uint8", Quantization(0.5, 3)))
    'uint8[1, 4] q(0.5, 3)'
    """

    __slots__ = ("constant", "dtype", "quantization", "shape")
    shape: TensorShape
    dtype: DataType
    quantization: Quantization | None
    constant: Array | None

    def __init__(
        self,
        shape: ShapeLike = (),
        dtype: DataType | str | np.dtype[Any] | type = DataType.FLOAT32,
        quantization: Quantization | None = None,
        constant: Array | None = None,
    ) -> None:
        object.__setattr__(self, "shape", TensorShape(shape))
        object.__setattr__(self, "dtype", DataType.of(dtype))
        object.__setattr__(self, "quantization", quantization)
        object.__setattr__(self, "constant", constant)
        for fault in self._faults():
            raise InvalidArgumentError(fault)

    @classmethod
    def of(cls, array: Array, quantization: Quantization | None = None) -> TensorInfo:
        """The info of a constant array, which it keeps."""
        array = np.asarray(array)
        return cls(array.shape, array.dtype, quantization, array)

    def _faults(self) -> Iterator[str]:
        if self.constant is not None:
            yield from self._constant_faults(self.constant)
        if self.quantization is not None:
            yield from self._quantization_faults(self.quantization)

    def _constant_faults(self, constant: Array) -> Iterator[str]:
        if not isinstance(constant, np.ndarray):
            yield f"the constant must be an array, not {constant!r}"
        elif DataType.of(constant.dtype) is not self.dtype or not self.shape.accepts(TensorShape(constant.shape)):
            given = f"{DataType.of(constant.dtype)}{TensorShape(constant.shape)}"
            yield f"the constant is {given}, but the tensor {self.dtype}{self.shape}"

    def _quantization_faults(self, q: Quantization) -> Iterator[str]:
        if not isinstance(q, Quantization):
            yield f"the quantization must be a Quantization, not {q!r}"
            return
        if self.dtype not in QUANTIZABLE:
            yield f"a tensor of type {self.dtype} cannot be quantized"
            return
        low, high = integer_range(self.dtype)
        for point in (point for point in q.zero_points if not low <= point <= high):
            yield f"a zero point of {self.dtype} must be {low} to {high}, not {point}"
        if q.axis is not None and q.axis >= self.rank:
            yield f"the quantized axis is {q.axis}, but the shape {self.shape} has rank {self.rank}"
        elif q.axis is not None and differ(self.shape[q.axis], len(q.scales)):
            yield f"{len(q.scales)} scales along axis {q.axis} of shape {self.shape}"

    @property
    def rank(self) -> int:
        """How many axes there are; a scalar has none."""
        return len(self.shape)

    @property
    def num_elements(self) -> int:
        """How many elements there are; `UNKNOWN` where an extent is."""
        return self.shape.num_elements

    @property
    def num_bytes(self) -> int:
        """Bytes of the NumPy array; `UNKNOWN` where an extent is."""
        return self.num_elements * self.dtype.itemsize

    @property
    def is_concrete(self) -> bool:
        """True where every extent is known."""
        return self.shape.is_concrete

    @property
    def is_quantized(self) -> bool:
        """True where stored integers stand for real numbers."""
        return self.quantization is not None

    @property
    def scale(self) -> float:
        """The scale of a quantized tensor (the first of several), 1.0 where there is none."""
        return self.quantization.scale if self.quantization else 1.0

    @property
    def zero_point(self) -> int:
        """The zero point of a quantized tensor (the first of several), 0 where there is none."""
        return self.quantization.zero_point if self.quantization else 0

    def with_shape(self, shape: ShapeLike) -> TensorInfo:
        """This info with another shape; a per-axis quantization is kept where it still fits, a constant is not."""
        shape = TensorShape(shape)
        q = self.quantization
        if q is not None and q.axis is not None:
            fits = q.axis < len(shape) and not differ(shape[q.axis], len(q.scales))
            q = q if fits else None
        return TensorInfo(shape, self.dtype, q)

    def with_dtype(self, dtype: DataType) -> TensorInfo:
        """This info with another type and, unless it is the same type, without quantization; without the constant."""
        return TensorInfo(self.shape, dtype, self.quantization if dtype is self.dtype else None)

    def with_quantization(self, quantization: Quantization | None) -> TensorInfo:
        """This info with another quantization, constant kept."""
        return TensorInfo(self.shape, self.dtype, quantization, self.constant)

    def with_constant(self, constant: Array | None) -> TensorInfo:
        """This info with the value that the tensor is known to have, or without one."""
        return TensorInfo(self.shape, self.dtype, self.quantization, constant)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"TensorInfo is immutable; cannot set {name!r}, use with_{name}(...)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"TensorInfo is immutable; cannot delete {name!r}")

    def __reduce__(self) -> tuple[type[TensorInfo], tuple[object, ...]]:
        return TensorInfo, (tuple(self.shape), self.dtype, self.quantization, self.constant)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorInfo):
            return NotImplemented
        return (self.shape, self.dtype, self.quantization) == (other.shape, other.dtype, other.quantization)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype, self.quantization))

    def __repr__(self) -> str:
        tail = f", {self.quantization!r}" if self.quantization else ""
        return f"TensorInfo({tuple(self.shape)}, {self.dtype!r}{tail})"

    def __str__(self) -> str:
        tail = f" {self.quantization}" if self.quantization else ""
        return f"{self.dtype}{self.shape}{tail}"
