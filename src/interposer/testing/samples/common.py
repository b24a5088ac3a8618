"""Helpers of the sample modules: types, suitable ranges of values, and usual quantizations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import Array, DataLayout, DataType, Quantization, ShapeLike, TensorInfo
from interposer.testing.sample import Given

__all__ = [
    "BYTES",
    "FLOATS",
    "INTEGERS",
    "PLAIN",
    "QUANTIZED",
    "SMALL_FLOATS",
    "STORED_FLOATS",
    "TINY_INTEGERS",
    "TINY_QUANTIZED",
    "bytes_of",
    "declared",
    "f16",
    "f32",
    "i8",
    "i32",
    "image_shape",
    "like",
    "plain",
    "quantized",
    "retyped",
    "typed",
    "u8",
]

FLOATS: Final = (DataType.FLOAT32, DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT64)
SMALL_FLOATS: Final = (
    DataType.FLOAT8_E4M3FN,
    DataType.FLOAT8_E4M3FNUZ,
    DataType.FLOAT8_E5M2,
    DataType.FLOAT8_E5M2FNUZ,
)
INTEGERS: Final = (
    DataType.INT8,
    DataType.INT16,
    DataType.INT32,
    DataType.INT64,
    DataType.UINT8,
    DataType.UINT16,
    DataType.UINT32,
    DataType.UINT64,
)
STORED_FLOATS: Final = (
    DataType.FLOAT8_E8M0FNU,
    DataType.FLOAT6_E2M3FN,
    DataType.FLOAT6_E3M2FN,
    DataType.FLOAT4_E2M1FN,
)
TINY_INTEGERS: Final = (DataType.INT4, DataType.UINT4, DataType.INT2, DataType.UINT2)
PLAIN: Final = (
    *FLOATS, *SMALL_FLOATS, *STORED_FLOATS, *INTEGERS, *TINY_INTEGERS, DataType.BOOL, DataType.STRING,
)  # fmt: skip
"""All types that a tensor can have without a quantization."""

BYTES: Final = {DataType.UINT8: Quantization(1 / 32, 128), DataType.INT8: Quantization(1 / 32, -3)}
"""The usual types of quantized networks, with quantizations for numbers from about -4 to 4."""

QUANTIZED: Final = {
    **BYTES,
    DataType.INT16: Quantization(1 / 4096),
    DataType.INT32: Quantization(1 / 65536, 5),
    DataType.INT64: Quantization(1 / 65536),
    DataType.UINT16: Quantization(1 / 4096, 2**15),
    DataType.UINT32: Quantization(1 / 65536, 2**20),
    DataType.UINT64: Quantization(1 / 65536, 2**20),
}
"""A usual quantization for each type of 8 bits and more."""

TINY_QUANTIZED: Final = {
    DataType.INT4: Quantization(0.5, -1),
    DataType.UINT4: Quantization(0.5, 7),
    DataType.INT2: Quantization(2.0, -1),
    DataType.UINT2: Quantization(2.0, 1),
}
"""Quantizations for types of fewer than 8 bits, which operators can move, but not compute with."""

_LARGEST_VALUES: Final = {
    DataType.INT2: 2.0,
    DataType.UINT2: 3.0,
    DataType.INT4: 7.0,
    DataType.UINT4: 15.0,
    DataType.INT8: 90.0,
    DataType.UINT8: 200.0,
}


def plain(shape: ShapeLike, dtype: DataType = DataType.FLOAT32, *, low: float = -4.0, high: float = 4.0) -> Given:
    """Return an operand that is not quantized; without bounds, integers cover more of their data type's range."""
    if dtype.is_integer and (low, high) == (-4.0, 4.0):
        low, high = -_LARGEST_VALUES.get(dtype, 1000.0), _LARGEST_VALUES.get(dtype, 1000.0)
    return Given(TensorInfo(shape, dtype), low=max(low, 0.0) if str(dtype).startswith("uint") else low, high=high)


def quantized(shape: ShapeLike, dtype: DataType, q: Quantization | None = None, **bounds: Any) -> Given:
    """Return a quantized operand with random values; without `q`, it has the type's usual quantization.

    `bounds` are the arguments `low` and `high` of `Given`, the range of the values.
    """
    return Given(TensorInfo(shape, dtype, q or QUANTIZED[dtype]), **bounds)


def typed(
    shape: ShapeLike, leave_out: Iterable[DataType] = (), *, tiny_quantized: bool = True
) -> Iterator[tuple[str, Given]]:
    """Yield pairs of a name such as "quantized-int8" and an operand of this shape, for every type.

    Unquantized operands are left out if their type is in `leave_out`, quantized ones of less than 8 bits if
    `tiny_quantized` is False.
    """
    types = [dtype for dtype in PLAIN if dtype not in leave_out]
    yield from ((str(dtype), plain(shape, dtype)) for dtype in types)
    for dtype, quantization in {**QUANTIZED, **(TINY_QUANTIZED if tiny_quantized else {})}.items():
        yield f"quantized-{dtype}", Given(TensorInfo(shape, dtype, quantization))


def bytes_of(shape: ShapeLike, dtype: DataType, *, constant: bool = False) -> Given:
    """Return an operand of 8-bit integers that are not quantized, from most of their range."""
    low, high = (-120.0, 120.0) if dtype is DataType.INT8 else (0.0, 250.0)
    return Given(TensorInfo(shape, dtype), low=low, high=high, constant=constant)


def image_shape(layout: DataLayout, n: int, h: int, w: int, c: int) -> tuple[int, ...]:
    """Return the shape of images in the layout NHWC or NCHW."""
    return (n, h, w, c) if layout is DataLayout.NHWC else (n, c, h, w)


def like(operand: Given, shape: ShapeLike, q: Quantization | None = None) -> TensorInfo:
    """Return the info of a result with this shape, the operand's type, and the quantization `q` or the operand's."""
    return TensorInfo(shape, operand.info.dtype, q or operand.info.quantization)


def retyped(operand: Given, shape: ShapeLike) -> Given:
    """Return an operand of another shape with the type, quantization and range of random values of `operand`."""
    return Given(like(operand, shape), low=operand.low, high=operand.high)


def declared(op: Op, *operands: Given | None, q: Quantization) -> TensorInfo:
    """Return the inferred info of an operator's only result on these operands, with the quantization `q`."""
    [info] = op.infer_infos(*(None if operand is None else operand.info for operand in operands))
    assert info is not None
    return info.with_quantization(q)


def f16(values: object) -> Array:
    """Return `values` as a float16 array, for the expected result of a sample."""
    return np.asarray(values, np.float16)


def f32(values: object) -> Array:
    """Return `values` as a float32 array, for the expected result of a sample."""
    return np.asarray(values, np.float32)


def i8(values: object) -> Array:
    """Return `values` as an int8 array, for the expected result of a sample."""
    return np.asarray(values, np.int8)


def i32(values: object) -> Array:
    """Return `values` as an int32 array, for the expected result of a sample."""
    return np.asarray(values, np.int32)


def u8(values: object) -> Array:
    """Return `values` as a uint8 array, for the expected result of a sample."""
    return np.asarray(values, np.uint8)
