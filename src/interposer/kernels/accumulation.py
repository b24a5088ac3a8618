"""Exact sums of products of quantized values, and their requantization.

Sums of products of quantized values are computed in floating point, where BLAS is fast. This is done only if no partial
sum can leave the range in which the type represents every integer. Therefore the sums are exact in any order of
addition.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interposer.core.records import dataclass
from interposer.core.types import ANY_TYPE, STORED_FLOATS, Array, DataType, Quantization, TensorInfo
from interposer.kernels.fixedpoint import (
    clamp_to,
    multiply_by_quantized_multiplier,
    multiply_wide,
    quantize_multiplier,
    round_half_away,
)
from interposer.kernels.table import KernelInfo
from interposer.ops.quantization import Requantization

__all__ = [
    "EIGHT_BITS",
    "NUMBERS",
    "ExactRequantizer",
    "Plan",
    "Requantizer",
    "Scaling",
    "centered",
    "constant_plan",
    "exact_type",
    "float_type",
    "integer_sums",
    "largest_distance",
    "plan",
    "shifted",
    "summable_types",
]

NUMBERS: Final = ANY_TYPE - STORED_FLOATS - {DataType.BOOL, DataType.STRING}
EIGHT_BITS: Final = frozenset({DataType.INT8, DataType.UINT8})
_EXACT: Final = ((np.float32, 2**24), (np.float64, 2**53))


def float_type(dtype: DataType) -> np.dtype[Any]:
    """Return the NumPy type in which kernels compute sums of unquantized elements of a type.

    Floats of up to 32 bits are computed in float32, float64 in float64, and integers in int64.
    """
    if dtype.is_float:
        return np.dtype(np.float64 if dtype is DataType.FLOAT64 else np.float32)
    return np.dtype(np.int64)


def exact_type(largest_sum: float) -> np.dtype[Any]:
    """Return the fastest NumPy type in which sums of integers up to `largest_sum` in magnitude are exact.

    This is float32 below 2**24, float64 below 2**53, else int64.
    """
    return np.dtype(next((dtype for dtype, limit in _EXACT if largest_sum < limit), np.int64))


def largest_distance(info: TensorInfo) -> int:
    """Return the largest possible distance of a quantized value of this tensor from its zero point."""
    limits = np.iinfo(info.dtype.numpy)
    return max(int(limits.max) - info.zero_point, info.zero_point - int(limits.min))


def centered(quantized: Array, info: TensorInfo, dtype: np.dtype[Any]) -> Array:
    """Return quantized values minus their zero point, as `dtype`; unquantized values are only converted."""
    if not info.zero_point:
        return quantized.astype(dtype, copy=False)
    difference: Array = np.subtract(quantized, dtype.type(info.zero_point), dtype=dtype)
    return difference


def shifted(values: Array, zero_point: Array | None) -> Array:
    """Return integers minus their zero points as float64; None stands for zero points of 0.

    The zero points are a scalar, or an array that broadcasts with `values`.
    """
    floats: Array = values.astype(np.float64)
    return floats if zero_point is None else floats - zero_point


def integer_sums(sums: Array) -> Array:
    """Convert whole numbers, which may be stored as floats, to int32; those out of range wrap around."""
    return sums.astype(np.int64).astype(np.int32)


def summable_types(op: object, info: KernelInfo) -> str | None:
    """Return why the types of input, weights, bias and output cannot be combined, or None if they can.

    This is a rule of the kernels of convolutions and fully connected layers. Without quantization, all types must be
    equal.
    """
    if not info.quantized:
        return _unquantized_types(info)
    return _quantized_types(info, getattr(op, "requantization", Requantization.FIXED_POINT))


def _unquantized_types(info: KernelInfo) -> str | None:
    types = sorted({str(tensor.dtype) for tensor in (*info.inputs, *info.outputs) if tensor is not None})
    if len(types) > 1:
        return f"the tensors are {' and '.join(types)}; takes one type for all of them"
    if info.input.dtype not in NUMBERS:
        return f"input is {types[0]}; takes {sorted(map(str, NUMBERS))}"
    return None


def _quantized_types(info: KernelInfo, requantization: Requantization) -> str | None:
    x, weights, output = info.input, info.at(1), info.output
    if not (weights.is_quantized and output.is_quantized):
        return "input is quantized, but weights or output are not"
    if x.dtype is not output.dtype or x.dtype not in EIGHT_BITS | {DataType.INT16}:
        return f"input is {x.dtype} and output {output.dtype}; takes int8, uint8 or int16 for both"
    if weights.dtype not in EIGHT_BITS and (x.dtype, weights.dtype) != (DataType.INT16,) * 2:
        return f"weights are {weights.dtype}; takes int8 or uint8, or int16 with an input of int16"
    if any(tensor.quantization and tensor.quantization.per_axis for tensor in (x, output)):
        return "input or output is quantized along an axis; takes one scale for each"
    return _bias_types(x, info.get("bias"), requantization)


def _bias_types(x: TensorInfo, bias: TensorInfo | None, requantization: Requantization) -> str | None:
    allowed_types = {DataType.INT32, DataType.INT64} if x.dtype is DataType.INT16 else {DataType.INT32}
    if requantization is Requantization.HALF_TO_EVEN:
        allowed_types |= {DataType.FLOAT32}
    if bias is None or bias.dtype in allowed_types:
        return None
    return f"bias is {bias.dtype}; takes {' or '.join(sorted(map(str, allowed_types)))} with {x.dtype}"


class Scaling(Enum):
    """How a kernel rescales sums to the output's quantization: the first three as kernels of TFLite do.

    EXACT is `Requantization.HALF_TO_EVEN`.
    """

    FIXED_POINT = "fixed point"
    FIXED_POINT_OF_SINGLES = "fixed point, from the product of the scales of input and weights rounded to float32"
    REAL = "in float64"
    EXACT = "in float64, rounded half to even"

    def of(self, requantization: Requantization) -> Scaling:
        """Return the scaling of an operator that asks for this requantization: EXACT, or this one for FIXED_POINT."""
        return Scaling.EXACT if requantization is Requantization.HALF_TO_EVEN else self


@dataclass(frozen=True, slots=True)
class Requantizer:
    """Converts sums of products of quantized values to quantized outputs, bit for bit as TFLite's reference.

    It is called with an array of sums, whose last axis is the channel axis. Sums have 32 bits. For 16-bit activations
    they have 64 bits (`wide`), unless the bias has 32 bits and the weights have 8.
    """

    scale: Callable[[Array], Array]
    bias: Array | None
    wide: bool
    zero_point: int
    dtype: DataType

    @classmethod
    def of(
        cls,
        x: TensorInfo,
        weights: TensorInfo,
        output: TensorInfo,
        bias: Array | None,
        scaling: Scaling,
        repeats: int = 1,
    ) -> Requantizer:
        """Return the requantizer for a layer with input `x`, these weights and output, and the bias if it has one.

        If the weights have several scales, the output channels have them in turn, `repeats` times.
        """
        has_64_bits = x.dtype is DataType.INT16 and (bias is None or bias.dtype != np.int32 or weights.dtype is x.dtype)
        ratios = _ratio(x, weights, output, in_float32=scaling is Scaling.FIXED_POINT_OF_SINGLES)
        ratios = np.tile(ratios, repeats) if ratios.ndim else ratios
        return cls(_scale(ratios, scaling, has_64_bits), bias, has_64_bits, output.zero_point, output.dtype)

    def __call__(self, sums: Array) -> Array:
        """Return quantized outputs: add the bias to the sums, scale, round, add the output's zero point, and clamp."""
        if self.wide or sums.dtype != np.float32:
            sums = sums.astype(np.int64)
        if not self.wide:
            sums = sums.astype(np.int32)
        if self.bias is not None:
            sums += self.bias
        scaled = self.scale(sums)
        scaled += self.zero_point
        return clamp_to(scaled, self.dtype)


@dataclass(frozen=True, slots=True)
class ExactRequantizer:
    """Converts exact sums of products of quantized values to quantized outputs, rounded half to even.

    The sums, whose last axis is the channel axis, are multiplied by `products`, the scale of the input times those of
    the weights, and divided by `scale`, that of the output. Both are float32 numbers, so a result that lies halfway
    between two steps is halfway in float64 too. `bias` holds the float value
    that each channel adds, or is None.
    """

    products: NDArray[np.float64]
    scale: float
    bias: Array | None
    zero_point: int
    dtype: DataType

    @classmethod
    def of(
        cls, x: TensorInfo, weights: TensorInfo, output: TensorInfo, bias: Array | None, repeats: int = 1
    ) -> ExactRequantizer:
        """Return the requantizer for a layer with input `x`; `repeats` is as for `Requantizer.of`.

        A bias of integers is in steps of the products, as it is added to their sums.
        """
        products = _products(x, weights, np.float64)
        products = np.tile(products, repeats) if products.ndim else products
        real_bias = bias if bias is None or bias.dtype.kind == "f" else bias * products
        return cls(products, float(np.float32(output.scale)), real_bias, output.zero_point, output.dtype)

    def __call__(self, sums: Array) -> Array:
        """Return quantized outputs: scale the sums, add the bias, round, add the zero point, and clamp."""
        values = sums * self.products
        if self.bias is not None:
            values += self.bias
        return clamp_to(np.rint(values / self.scale) + self.zero_point, self.dtype)


def _products(x: TensorInfo, weights: TensorInfo, dtype: type[np.floating]) -> NDArray[np.float64]:
    """Return scale of `x` * scale of weights, in the type `dtype`: an array, per output channel or of one number."""
    quantization = weights.quantization or Quantization(1.0)
    scales = np.asarray(quantization.scales if quantization.per_axis else quantization.scale, np.float32)
    return np.multiply(scales, np.float32(x.scale), dtype=dtype).astype(np.float64)


def _ratio(x: TensorInfo, weights: TensorInfo, output: TensorInfo, *, in_float32: bool) -> NDArray[np.float64]:
    """Return scale of `x` * scale of weights / scale of output: an array, per output channel or of a single number.

    With `in_float32`, the product of the scales is rounded to float32.
    """
    products = _products(x, weights, np.float32 if in_float32 else np.float64)
    return products / np.float32(output.scale).astype(np.float64)


def _scale(ratio: NDArray[np.float64], scaling: Scaling, has_64_bits: bool) -> Callable[[Array], Array]:
    if scaling is Scaling.REAL:
        return lambda sums: round_half_away(sums * ratio)
    factor = quantize_multiplier(ratio)
    return partial(multiply_wide if has_64_bits else multiply_by_quantized_multiplier, factor=factor)


class Plan(NamedTuple):
    """What a kernel of a convolution or fully connected layer computes once if weights and bias are constant.

    `weights` are the weights minus their zero point, in the type in which the products are summed. `epilogue` converts
    the sums to outputs: it adds the bias, and for quantized tensors it rescales the sums to the output's quantization.
    """

    weights: Array
    epilogue: Callable[[Array], Array]


def plan(
    info: KernelInfo, weights: Array, bias: Array | None, axis: int, scaling: Scaling, repeats: int = 1
) -> Plan:  # fmt: skip
    """Return the plan for weights whose output channels are along `axis`.

    `scaling` is how sums of quantized values are rescaled; it is not used for unquantized tensors. `repeats` is the
    number of output channels that have one index along `axis`, and so one scale of the weights.
    """
    x = info.input
    if not x.is_quantized:
        dtype = float_type(x.dtype)
        return Plan(weights.astype(dtype), _BiasAddition(None if bias is None else bias.astype(dtype)))
    centered_weights = centered(weights, info.at(1), np.dtype(np.int64))
    magnitude_sums = np.abs(centered_weights).sum(
        axis=tuple(other_axis for other_axis in range(centered_weights.ndim) if other_axis != axis)
    )
    dtype = exact_type(magnitude_sums.max(initial=0) * largest_distance(x))
    if scaling is Scaling.EXACT:
        exact_requantizer = ExactRequantizer.of(x, info.at(1), info.output, bias, repeats)
        return Plan(centered_weights.astype(dtype), exact_requantizer)
    return Plan(centered_weights.astype(dtype), Requantizer.of(x, info.at(1), info.output, bias, scaling, repeats))


@dataclass(frozen=True, slots=True)
class _BiasAddition:
    """The `epilogue` function of a plan for unquantized tensors: add the bias to the sums, if there is one."""

    bias: Array | None

    def __call__(self, sums: Array) -> Array:
        return sums if self.bias is None else sums + self.bias


def constant_plan(
    make_plan: Callable[[Any, KernelInfo, Array, Array | None], Plan],
) -> Callable[[Any, KernelInfo], Plan | None]:
    """Return a function that prepares a kernel: it returns the plan that every call of the kernel can use.

    The function returns `make_plan(op, info, weights, bias)`, or None if weights or bias are not constants.
    """

    def prepare(op: Any, info: KernelInfo) -> Plan | None:
        weights, bias = info.at(1), info.get("bias")
        if weights.constant is None or (bias is not None and bias.constant is None):
            return None
        return make_plan(op, info, weights.constant, None if bias is None else bias.constant)

    return prepare
