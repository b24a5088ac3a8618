"""Quantization, dequantization and type conversion."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, ClassVar

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role, Trait
from interposer.core.types import FLOATS, MAX_RANK, QUANTIZABLE, DataType, TensorInfo, TensorShape, differ
from interposer.ops.axes import axes_problems

__all__ = [
    "Bitcast",
    "BlockDequantize",
    "Cast",
    "ConvertBf16ToFp32",
    "ConvertFp16ToFp32",
    "ConvertFp32ToBf16",
    "ConvertFp32ToFp16",
    "Dequantize",
    "DynamicFakeQuantization",
    "DynamicQuantize",
    "FakeQuantization",
    "Quantize",
    "Requantization",
    "RoundingMethod",
]


class RoundingMethod(Enum):
    """How `Quantize` rounds numbers half-way between two integers; all others are rounded to the nearest."""

    HALF_AWAY_FROM_ZERO = "half_away_from_zero"
    HALF_TO_EVEN = "half_to_even"


class Requantization(Enum):
    """How an operator on quantized tensors rounds its results to the steps of the output.

    FIXED_POINT is the arithmetic of TensorFlow Lite's reference kernels: factors become integers of 31 bits, and the
    results are rounded half away from zero, some of them twice. HALF_TO_EVEN is the arithmetic of ONNX: the result on
    the dequantized operands, divided by the scale of the output and rounded half to even. Sums and means are then exact
    before they are divided; functions of single elements are computed in float32. A bias may be float32.
    """

    FIXED_POINT = "fixed_point"
    HALF_TO_EVEN = "half_to_even"


def requantization() -> Any:
    """Return the declaration of an operator's attribute of this type."""
    return attribute(
        default=Requantization.FIXED_POINT, doc="How results on quantized tensors are rounded; no effect on others."
    )


@op(traits=Trait.POINTWISE | Trait.CONVERTS)
class Quantize(Op):
    """Quantize float values: ``clamp(round(input / scale) + zero_point)``.

    Scale and zero point are the declared ones of the output. A quantized input is requantized in fixed-point
    arithmetic.

    Shapes:
        input, output: any, the same

    Example:
        >>> numbers, quantization = [0.5, 1.5, -2.5, 999.0], {"output": Quantization(1.0, 10)}
        >>> compute(Quantize(), numbers, quantization=quantization).tolist()
        [11, 12, 7, 255]
        >>> compute(Quantize(rounding=RoundingMethod.HALF_TO_EVEN), numbers, quantization=quantization).tolist()
        [10, 12, 8, 255]
        >>> quantization = {"input": Quantization(0.5), "output": Quantization(1.0, 10)}
        >>> compute(Quantize(dtype=DataType.INT8), np.uint8([4, 255]), quantization=quantization).tolist()
        [12, 127]

    Source:
        ONNX QuantizeLinear-23 (which rounds half to even); TFLite QUANTIZE; NNAPI QUANTIZE; Arm NN QuantizeLayer.
    """

    in_place: ClassVar = ("input",)
    input = operand()
    output = result(dtypes=QUANTIZABLE)

    dtype: DataType = attribute(default=DataType.UINT8, choices=tuple(sorted(QUANTIZABLE, key=str)), doc="The type.")
    rounding: RoundingMethod = attribute(
        default=RoundingMethod.HALF_AWAY_FROM_ZERO, doc="Rounding of values half-way between two integers."
    )

    def check(self, input: TensorInfo) -> Iterator[str]:
        if not (input.dtype.is_float or input.is_quantized):
            yield f"input is {input.dtype} and not quantized; expected float values"

    def infer(self, input: TensorInfo) -> TensorInfo:
        return TensorInfo(input.shape, self.dtype)


@op(traits=Trait.POINTWISE | Trait.CONVERTS)
class Dequantize(Op):
    """Dequantize integers to float values: ``scale * (input - zero_point)``.

    Shapes:
        input, output: any, the same

    Example:
        >>> compute(Dequantize(), np.uint8([0, 128, 255]), quantization={"input": Quantization(0.5, 128)}).tolist()
        [-64.0, 0.0, 63.5]
        >>> per_row = Quantization([1.0, 10.0], axis=0)
        >>> compute(Dequantize(), np.int8([[1, 2], [1, 2]]), quantization={"input": per_row}).tolist()
        [[1.0, 2.0], [10.0, 20.0]]

    Source:
        ONNX DequantizeLinear-23; TFLite DEQUANTIZE; NNAPI DEQUANTIZE; Arm NN DequantizeLayer.
    """

    in_place: ClassVar = ("input",)
    input = operand(dtypes=QUANTIZABLE)
    output = result(dtypes=FLOATS)

    dtype: DataType = attribute(default=DataType.FLOAT32, choices=tuple(sorted(FLOATS, key=str)), doc="The type.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        if not input.is_quantized:
            yield f"input is {input.dtype} without scale and zero point; expected a quantized tensor"

    def infer(self, input: TensorInfo) -> TensorInfo:
        return TensorInfo(input.shape, self.dtype)


@op(traits=Trait.CONVERTS)
class BlockDequantize(Op):
    """Dequantize integers with a scale for every block along an axis: ``scale * (input - zero_point)``.

    The axis is divided into blocks of `block_size` elements; the last block may be shorter. The integers are used as
    they are stored, without a quantization of the tensor. Without zero points, these are 0. The exact product is
    rounded once, to the type of the result.

    Shapes:
        input, output: any, the same
        scale, zero_point: as the input, except that the axis has one element for every block

    Example:
        >>> codes, scale = np.int8([[1, 2, 3, 4]]), np.float32([[0.5, 10]])
        >>> compute(BlockDequantize(block_size=2), codes, scale).tolist()
        [[0.5, 1.0, 30.0, 40.0]]
        >>> compute(BlockDequantize(block_size=2), codes, scale, np.int8([[1, 3]])).tolist()
        [[0.0, 0.5, 0.0, 10.0]]

    Source:
        ONNX DequantizeLinear-21 with block_size.
    """

    input = operand(rank=(1, MAX_RANK), dtypes=QUANTIZABLE)
    scale = operand(role=Role.PARAMETER, rank=(1, MAX_RANK), dtypes=FLOATS)
    zero_point = operand(
        role=Role.PARAMETER, rank=(1, MAX_RANK), dtypes=QUANTIZABLE, optional=True, same_dtype_as="input"
    )
    output = result(dtypes=FLOATS)

    block_size: int = attribute(ge=1, doc="The number of elements of a block.")
    axis: int = attribute(default=1, doc="The axis that is divided into blocks.")
    dtype: DataType = attribute(default=DataType.FLOAT32, choices=tuple(sorted(FLOATS, key=str)), doc="The type.")

    def check(self, input: TensorInfo, scale: TensorInfo, zero_point: TensorInfo | None) -> Iterator[str]:
        for name, info in {"input": input, "zero_point": zero_point}.items():
            if info is not None and info.is_quantized:
                yield f"{name} is quantized; expected integers without scale and zero point"
        if not -input.rank <= self.axis < input.rank:
            yield f"axis is {self.axis}, but the input has rank {input.rank}"
            return
        expected = self.shape_of_scales(input)
        for name, info in {"scale": scale, "zero_point": zero_point}.items():
            if info is not None and (info.rank != input.rank or any(map(differ, info.shape, expected))):
                yield f"{name} has shape {info.shape}; expected {expected} for blocks of {self.block_size}"

    def infer(self, input: TensorInfo, scale: TensorInfo, zero_point: TensorInfo | None) -> TensorInfo:
        return TensorInfo(input.shape, self.dtype)

    def shape_of_scales(self, input: TensorInfo) -> TensorShape:
        """Return the shape of scales and zero points for this input: its own, with the number of blocks at the axis."""
        shape = list(input.shape)
        shape[self.axis] = -(-shape[self.axis] // self.block_size)
        return TensorShape(shape)


@op
class DynamicQuantize(Op):
    """Quantize float values to uint8, with a scale and a zero point that follow from the values.

    The range of the values, extended to contain zero, is divided into 255 steps:
    ``scale = (max(input, 0) - min(input, 0)) / 255``, ``zero_point = clamp(round(-min(input, 0) / scale))`` and
    ``output = clamp(round(input / scale) + zero_point)``, in float32. ``round`` rounds half to even, and ``clamp``
    saturates to 0 to 255. NaN becomes 0.

    Shapes:
        input, output: any, the same
        scale, zero_point: ()

    Example:
        >>> output, scale, zero_point = compute(DynamicQuantize(), [-51.0, 0.0, 102.0, 204.0])
        >>> output.tolist(), scale.tolist(), zero_point.tolist()
        ([0, 51, 153, 255], 1.0, 51)

    Source:
        ONNX DynamicQuantizeLinear-11.
    """

    input = operand(dtypes=[DataType.FLOAT32])
    output = result(dtypes=[DataType.UINT8])
    scale = result(rank=0, dtypes=[DataType.FLOAT32])
    zero_point = result(rank=0, dtypes=[DataType.UINT8])

    def infer(self, input: TensorInfo) -> tuple[TensorInfo, TensorInfo, TensorInfo]:
        return (
            TensorInfo(input.shape, DataType.UINT8),
            TensorInfo((), DataType.FLOAT32),
            TensorInfo((), DataType.UINT8),
        )


@op(traits=Trait.DISCONTINUOUS)
class DynamicFakeQuantization(Op):
    """Simulate dynamic quantization: round float values as quantizing them to 8 bits and dequantizing them would.

    The scale follows from the values: elements along ``axes`` share one. Symmetric quantization divides the range
    ``-max(abs(input))`` to ``max(abs(input))`` into 254 steps. Asymmetric quantization divides the range of the values,
    extended to contain zero, into 255 steps, and shifts it so that zero is exactly representable. Halves are rounded
    away from zero. All elements with a common scale become NaN if one of them is not finite.

    Shapes:
        input, output: any, the same

    Example:
        >>> compute(DynamicFakeQuantization(axes=(1,)), [[254.0, 5.0, 0.0], [127.0, 0.25, -3.75]]).tolist()
        [[254.0, 6.0, 0.0], [127.0, 0.0, -4.0]]

    Source:
        The activations of TFLite's hybrid operators, which have quantized weights.
    """

    in_place: ClassVar = ("input",)
    input = operand(dtypes=FLOATS)
    output = result(like="input")

    axes: tuple[int, ...] = attribute(default=(), doc="The axes along which elements share a scale; empty means all.")
    asymmetric: bool = attribute(default=False, doc="Use a zero point, instead of a range that is symmetric to zero.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        yield from axes_problems(self.axes, input.rank, "axes")


@op(traits=Trait.POINTWISE | Trait.DISCONTINUOUS)
class FakeQuantization(Op):
    """Simulate quantization: round float values as quantizing and dequantizing would.

    The range is divided into ``2**num_bits - 1`` steps (one less if ``narrow_range``), and shifted so that zero is
    exactly representable.

    Shapes:
        input, output: any, the same

    Example:
        >>> compute(FakeQuantization(min=0.0, max=3.0, num_bits=2), [-1.0, 0.4, 1.6, 9.0]).tolist()
        [0.0, 0.0, 2.0, 3.0]

    Source:
        TFLite FAKE_QUANT; Arm NN FakeQuantizationDescriptor (whose reference kernel gives the numbers of the steps).
    """

    in_place: ClassVar = ("input",)
    input = operand(dtypes=FLOATS)
    output = result(like="input")

    min: float = attribute(default=-6.0, doc="Lower bound of the range.")
    max: float = attribute(default=6.0, doc="Upper bound of the range.")
    num_bits: int = attribute(default=8, ge=2, le=16, doc="Number of bits of the simulated type.")
    narrow_range: bool = attribute(default=False, doc="Do not use the lowest quantized value.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        if not self.min <= 0 <= self.max or self.min == self.max:
            yield f"the range is {self.min:g} to {self.max:g}; expected a range that contains zero"


@op(traits=Trait.POINTWISE | Trait.CONVERTS)
class Cast(Op):
    """Convert to another type; quantized values are converted as plain integers, without their scale.

    Floats are truncated towards zero and saturated, and NaN becomes 0. Integers are converted to narrower types modulo
    2**bits. To bool, everything except zero becomes true.

    Texts are converted to the numbers with which they begin. Numbers are converted to texts: floats with 8 significant
    digits, infinities and NaN to ``INF``, ``-INF`` and ``NaN``, and bools to 0 and 1.

    Shapes:
        input, output: any, the same

    Example:
        >>> compute(Cast(dtype=DataType.UINT8), [1.9, -1.9, 300.0]).tolist()
        [1, 0, 255]
        >>> compute(Cast(dtype=DataType.UINT8), [257, -1]).tolist()
        [1, 255]
        >>> compute(Cast(dtype=DataType.BOOL), [0.5, 0.0]).tolist()
        [True, False]
        >>> compute(Cast(dtype=DataType.STRING), [0.1, 1e20, float("inf")]).tolist()
        ['0.1', '1e+20', 'INF']

    Source:
        ONNX Cast-23; TFLite CAST; NNAPI CAST; Arm NN CastLayer.
    """

    in_place: ClassVar = ("input",)
    input = operand()
    output = result()

    dtype: DataType = attribute(doc="The type of the result.")

    def infer(self, input: TensorInfo) -> TensorInfo:
        return TensorInfo(input.shape, self.dtype)


@op(traits=Trait.POINTWISE | Trait.CONVERTS)
class ConvertFp16ToFp32(Op):
    """Convert float16 to float32.

    Shapes:
        input, output: any, the same

    Example:
        >>> compute(ConvertFp16ToFp32(), np.float16([0.1, -2.0])).tolist()
        [0.0999755859375, -2.0]

    Source:
        Arm NN ConvertFp16ToFp32Layer.
    """

    input = operand(dtypes=[DataType.FLOAT16])
    output = result(dtypes=[DataType.FLOAT32])

    def infer(self, input: TensorInfo) -> TensorInfo:
        return input.with_dtype(DataType.FLOAT32)


@op(traits=Trait.POINTWISE | Trait.CONVERTS)
class ConvertFp32ToFp16(Op):
    """Convert float32 to float16, rounding half to even.

    Shapes:
        input, output: any, the same

    Example:
        >>> compute(ConvertFp32ToFp16(), [2049.0, 2051.0, 1e6]).tolist()
        [2048.0, 2052.0, inf]

    Source:
        Arm NN ConvertFp32ToFp16Layer.
    """

    input = operand(dtypes=[DataType.FLOAT32])
    output = result(dtypes=[DataType.FLOAT16])

    def infer(self, input: TensorInfo) -> TensorInfo:
        return input.with_dtype(DataType.FLOAT16)


@op(traits=Trait.POINTWISE | Trait.CONVERTS)
class ConvertBf16ToFp32(Op):
    """Convert bfloat16 to float32.

    Shapes:
        input, output: any, the same

    Example:
        >>> narrow = compute(ConvertFp32ToBf16(), [1.0, 257.0])
        >>> compute(ConvertBf16ToFp32(), narrow).tolist()
        [1.0, 256.0]

    Source:
        Arm NN ConvertBf16ToFp32Layer (to 22.08).
    """

    input = operand(dtypes=[DataType.BFLOAT16])
    output = result(dtypes=[DataType.FLOAT32])

    def infer(self, input: TensorInfo) -> TensorInfo:
        return input.with_dtype(DataType.FLOAT32)


@op(traits=Trait.POINTWISE | Trait.CONVERTS)
class ConvertFp32ToBf16(Op):
    """Convert float32 to bfloat16, rounding half to even.

    Shapes:
        input, output: any, the same

    Example:
        >>> compute(ConvertFp32ToBf16(), [1.0, 257.0, 259.0]).astype(np.float32).tolist()
        [1.0, 256.0, 260.0]

    Source:
        Arm NN ConvertFp32ToBf16Layer (to 22.08).
    """

    input = operand(dtypes=[DataType.FLOAT32])
    output = result(dtypes=[DataType.BFLOAT16])

    def infer(self, input: TensorInfo) -> TensorInfo:
        return input.with_dtype(DataType.BFLOAT16)


@op
class Bitcast(Op):
    """Reinterpret the bits of the elements as another type of the same width.

    Shapes:
        input, output: any, the same

    Example:
        >>> compute(Bitcast(dtype=DataType.UINT8), np.int8([-1, 127, -128])).tolist()
        [255, 127, 128]
        >>> compute(Bitcast(dtype=DataType.INT32), [1.0, -0.0]).tolist()
        [1065353216, -2147483648]

    Source:
        ONNX BitCast-26; TFLite BITCAST between types of one width.
    """

    in_place: ClassVar = ("input",)
    input = operand()
    output = result()

    dtype: DataType = attribute(doc="The type of the result.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        if DataType.STRING in (input.dtype, self.dtype):
            yield "a string cannot be reinterpreted, as it has no fixed width"
        elif input.dtype.bits != self.dtype.bits:
            yield f"input is {input.dtype}, of {input.dtype.bits} bits, but {self.dtype} has {self.dtype.bits}"

    def infer(self, input: TensorInfo) -> TensorInfo:
        return TensorInfo(input.shape, self.dtype)
