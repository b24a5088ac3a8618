"""Shapes and descriptions of tensors: `TensorShape`, `TensorInfo`, `PermutationVector`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from pyarmnn._arguments import BOOL, FLOAT, INT32, UINT, Kind, count_error, enumeration, instance, overload_error
from pyarmnn._proxy import Proxy, borrowed
from pyarmnn._types import QUANTIZED, GetDataTypeSize

__all__ = ["PermutationVector", "TensorInfo", "TensorShape"]

MAXIMUM_DIMENSIONS = 5


def _numbers(values: Any) -> list[int]:
    """Return the elements of a tuple as unsigned integers of 32 bits.

    As in PyArmNN, an element is whatever ``int`` converts: a number, of which a fraction is truncated, or its text.
    """
    if not isinstance(values, tuple):
        raise TypeError("Argument is not a tuple")
    numbers = [_integer(value) for value in values]
    for number in numbers:
        if not 0 <= number < 2**32:
            raise OverflowError(f"{number} cannot be an unsigned integer of 32 bits")
    return numbers


def _integer(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError("All elements must be numbers") from None


class TensorShape(Proxy):
    """The sizes of the dimensions of a tensor, from 1 to 5 of them.

    Elements can be read and assigned with ``[]``.

    Args:
        numDimensions: the sizes, a tuple of numbers or of their texts, such as ``(1, "2", 3.0)``.

    Raises:
        TypeError: the argument is no tuple of numbers.
        RuntimeError: the tuple is empty or has more than 5 elements.
    """

    def __init__(self, numDimensions: tuple[float, ...]) -> None:
        sizes = _numbers(numDimensions)
        if not sizes:
            raise RuntimeError("Tensor numDimensions must be greater than 0")
        if len(sizes) > MAXIMUM_DIMENSIONS:
            raise RuntimeError("Tensor numDimensions must be less than or equal to MaxNumOfTensorDimensions")
        self._sizes = sizes

    @classmethod
    def _of(cls, sizes: Iterable[int]) -> TensorShape:
        """Return a shape of any sizes, also of none."""
        shape = object.__new__(cls)
        shape._sizes = list(sizes)
        return shape

    def GetNumDimensions(self) -> int:
        """Return the number of dimensions."""
        return len(self._sizes)

    def GetNumElements(self) -> int:
        """Return the product of the sizes; 0 without dimensions."""
        return math.prod(self._sizes) if self._sizes else 0

    def __getitem__(self, i: int) -> int:
        return self._sizes[self._index(i, "__getitem__")]

    def __setitem__(self, i: int, val: int) -> None:
        index = self._index(i, "__setitem__")
        self._sizes[index] = UINT(val, "TensorShape___setitem__", 3)

    def _index(self, i: int, method: str) -> int:
        index: int = UINT(i, f"TensorShape_{method}", 2)
        if index >= len(self._sizes):
            raise ValueError(f"Invalid dimension index: {index} (number of dimensions is {len(self._sizes)})")
        return index

    def __iter__(self) -> Iterator[int]:
        yield from list(self._sizes)

    def __str__(self) -> str:
        sizes = ", ".join(map(str, self._sizes))
        return f"TensorShape{{Shape({sizes}), NumDimensions: {len(self._sizes)}, NumElements: {self.GetNumElements()}}}"


SHAPE = instance(TensorShape, "armnn::TensorShape const &")
DATA_TYPE = enumeration("DataType")


class TensorInfo(Proxy):
    """The shape, data type and quantization of a tensor.

    Args:
        args: nothing; another TensorInfo, which is copied; or shape, data type and optionally quantization scale and
            offset, both 0 by default.

    Raises:
        TypeError: the arguments are others.
    """

    def __init__(self, *args: Any) -> None:
        self._shape, self._type = TensorShape._of(()), 1
        self._scale: float | None = None
        self._offset: int | None = None
        self._is_constant = False
        if len(args) > 4:
            raise count_error("new_TensorInfo", 4, len(args), self._overload_error())
        if len(args) == 1 and isinstance(args[0], TensorInfo):
            self._assign(args[0])
        elif args:
            self._define(args)

    def _define(self, args: tuple[Any, ...]) -> None:
        kinds = (SHAPE, DATA_TYPE, FLOAT, INT32)
        if len(args) < 2 or not all(kind.accepts(value) for kind, value in zip(kinds, args, strict=False)):
            raise self._overload_error()
        shape, self._type, *quantization = args
        self._shape = TensorShape._of(shape)
        scale, offset = (*quantization, 0, 0)[:2]
        self._scale, self._offset = FLOAT.convert(scale), INT32.convert(offset)

    def _assign(self, other: TensorInfo) -> None:
        self._shape, self._type = TensorShape._of(other._shape), other._type
        self._scale, self._offset = other._scale, other._offset
        self._is_constant = other._is_constant

    @staticmethod
    def _overload_error() -> TypeError:
        types = [kind.parameter for kind in (SHAPE, DATA_TYPE, FLOAT, INT32)]
        prototypes = [(), ("armnn::TensorInfo const &",), types, types[:3], types[:2]]
        return overload_error("new_TensorInfo", "armnn::TensorInfo::TensorInfo", prototypes)

    def GetShape(self) -> TensorShape:
        """Return the shape; assignments to its elements change the info."""
        return borrowed(self._shape)

    def SetShape(self, newShape: TensorShape) -> None:
        """Set the shape to a copy of the argument."""
        self._shape = TensorShape._of(SHAPE(newShape, "TensorInfo_SetShape", 2))

    def GetDataType(self) -> int:
        """Return the data type, such as `DataType_Float32`."""
        return self._type

    def SetDataType(self, type: int) -> None:
        """Set the data type, such as `DataType_Float32`."""
        self._type = DATA_TYPE(type, "TensorInfo_SetDataType", 2)

    def GetQuantizationScale(self) -> float:
        """Return the quantization scale; 1.0 if it was never set."""
        return 1.0 if self._scale is None else self._scale

    def SetQuantizationScale(self, scale: float) -> None:
        """Set the quantization scale."""
        self._scale = FLOAT(scale, "TensorInfo_SetQuantizationScale", 2)

    def GetQuantizationOffset(self) -> int:
        """Return the quantization offset (zero point)."""
        return self._offset or 0

    def SetQuantizationOffset(self, offset: int) -> None:
        """Set the quantization offset (zero point)."""
        self._offset = INT32(offset, "TensorInfo_SetQuantizationOffset", 2)

    def IsConstant(self) -> bool:
        """Return whether the tensor was declared constant. Release 21.08."""
        return self._is_constant

    def SetConstant(self, IsConstant: bool = True) -> None:
        """Declare whether the tensor is constant, which has no effect here. Release 21.08."""
        self._is_constant = BOOL(IsConstant, "TensorInfo_SetConstant", 2)

    def GetNumDimensions(self) -> int:
        """Return the number of dimensions."""
        return self._shape.GetNumDimensions()

    def GetNumElements(self) -> int:
        """Return the number of elements."""
        return self._shape.GetNumElements()

    def GetNumBytes(self) -> int:
        """Return the number of bytes of the tensor's data."""
        return GetDataTypeSize(self._type) * self._shape.GetNumElements()

    def IsQuantized(self) -> bool:
        """Return whether the data type is a quantized one."""
        return self._type in QUANTIZED

    def IsTypeSpaceMatch(self, other: TensorInfo) -> bool:
        """Return whether both have the same data type and, if it is quantized, the same scale and offset."""
        info = INFO(other, "TensorInfo_IsTypeSpaceMatch", 2)
        if self._type != info._type or not self.IsQuantized():
            return bool(self._type == info._type)
        mine = self.GetQuantizationScale(), self.GetQuantizationOffset()
        return bool(mine == (info.GetQuantizationScale(), info.GetQuantizationOffset()))

    def __str__(self) -> str:
        return (
            f"TensorInfo{{DataType: {self._type}, IsQuantized: {self.IsQuantized():d}, "
            f"QuantizationScale: {self.GetQuantizationScale():f}, "
            f"QuantizationOffset: {self.GetQuantizationOffset()}, "
            f"NumDimensions: {self.GetNumDimensions()}, NumElements: {self.GetNumElements()}}}"
        )


INFO: Kind = instance(TensorInfo, "armnn::TensorInfo const &")


class PermutationVector(Proxy):
    """A mapping of dimensions: dimension `i` of the input becomes dimension ``mapping[i]`` of the output.

    Args:
        dimMappings: a tuple of at most 5 numbers, each less than their number, all different.

    Raises:
        TypeError: the argument is no tuple of numbers.
        RuntimeError: there are too many numbers, or a number is too large or there twice.
    """

    def __init__(self, dimMappings: tuple[float, ...]) -> None:
        mapping = _numbers(dimMappings)
        size = len(mapping)
        if size > MAXIMUM_DIMENSIONS:
            raise RuntimeError(
                f"The number of mappings ({size}) cannot be greater than the maximum number of dimensions supported "
                f"({MAXIMUM_DIMENSIONS})"
            )
        for index, target in enumerate(mapping):
            if target >= size:
                raise RuntimeError(
                    f"Dimension mapping at index {index} is invalid: {target} is outside of the valid range "
                    f"[0,{size - 1}]"
                )
        if len(set(mapping)) < size:
            raise RuntimeError(
                "Invalid dimension mappings: Two or more source dimensions are mapped to the same output dimension"
            )
        self._mapping = tuple(mapping)

    def GetSize(self) -> int:
        """Return the number of dimensions."""
        return len(self._mapping)

    def IsInverse(self, other: PermutationVector) -> bool:
        """Return whether one mapping followed by the other leaves all dimensions where they were."""
        mapping = PERMUTATION(other, "PermutationVector_IsInverse", 2)._mapping
        pairs = zip(self._mapping, range(len(self._mapping)), strict=True)
        return len(mapping) == len(self._mapping) and all(mapping[target] == index for target, index in pairs)

    def __getitem__(self, i: int) -> int:
        index: int = UINT(i, "PermutationVector___getitem__", 2)
        if index >= len(self._mapping):
            raise IndexError(f"index {index} is too large for a permutation of {len(self._mapping)} dimensions")
        return self._mapping[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PermutationVector) and self._mapping == other._mapping

    __hash__ = None  # type: ignore[assignment]


PERMUTATION = instance(PermutationVector, "armnn::PermutationVector const &")
