"""Samples of quantization, conversion and casting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ops import (
    Bitcast,
    BlockDequantize,
    Cast,
    ConvertBf16ToFp32,
    ConvertFp16ToFp32,
    ConvertFp32ToBf16,
    ConvertFp32ToFp16,
    Dequantize,
    DynamicFakeQuantization,
    DynamicQuantize,
    FakeQuantization,
    Quantize,
    RoundingMethod,
)
from interposer.testing.sample import Given, Sample, given, of, samples
from interposer.testing.samples.common import (
    FLOATS,
    PLAIN,
    QUANTIZED,
    SMALL_FLOATS,
    TINY_QUANTIZED,
    f16,
    f32,
    i8,
    i32,
    plain,
    u8,
)

__all__: list[str] = []

SHAPE: Final = (2, 3, 4)
ALL_QUANTIZED: Final = {**QUANTIZED, **TINY_QUANTIZED}
INT8, UINT8, FLOAT32 = DataType.INT8, DataType.UINT8, DataType.FLOAT32


@samples(DynamicQuantize)
def dynamic_quantize() -> Iterator[Sample]:
    """Yield DynamicQuantize samples: several shapes, numbers of one sign, zeros, and ties of rounding."""
    for shape in ((), (1,), SHAPE, (3, 0), (5, 1000)):
        yield Sample(DynamicQuantize(), [given(shape)], name=f"shape-{'x'.join(map(str, shape))}")
    yield Sample(DynamicQuantize(), [given((70,), low=1.0, high=3.0)], name="positive")
    yield Sample(DynamicQuantize(), [given((70,), low=-3.0, high=-1.0)], name="negative")
    yield Sample(DynamicQuantize(), [of([0.0, -0.0, 0.0])], name="zeros")
    halves = of([0.0, 0.5, 1.5, 2.5, 254.0, 255.0])
    expected = [u8([0, 0, 2, 2, 254, 255]), f32(1.0), u8(0)]
    yield Sample(DynamicQuantize(), [halves], name="halves", expected=expected)


@samples(DynamicFakeQuantization)
def dynamic_fake_quantization() -> Iterator[Sample]:
    """Yield samples of every float type, of axes in every place, and of rows of zeros and of one sign."""
    for dtype in (*FLOATS, *SMALL_FLOATS):
        yield Sample(DynamicFakeQuantization((2,)), [given(SHAPE, dtype)], name=str(dtype))
    for asymmetric in (False, True):
        suffix = "-asymmetric" if asymmetric else ""
        for axes in ((), (0,), (-1,), (1, 2), (2, 0)):
            name = "-".join(map(str, axes)) or "all"
            yield Sample(DynamicFakeQuantization(axes, asymmetric), [given(SHAPE)], name=f"axes-{name}{suffix}")
        for shape in ((3, 0), (1, 1), (2, 37), (5, 1000)):
            title = f"shape-{shape[0]}x{shape[1]}{suffix}"
            yield Sample(DynamicFakeQuantization((1,), asymmetric), [given(shape)], name=title)
        for name, low, high in (("positive", 1.0, 3.0), ("negative", -3.0, -1.0)):
            op = DynamicFakeQuantization((1,), asymmetric)
            yield Sample(op, [given((3, 70), low=low, high=high)], name=f"{name}{suffix}")
        zeros = [of([[0.0, -0.0, 0.0], [0.0, 127.0, -3.5]])]
        yield Sample(DynamicFakeQuantization((1,), asymmetric), zeros, name=f"zeros{suffix}")
    worked = [of([[12.7, 0.26, 0.0], [127.0, 0.5, -3.5]])]
    yield Sample(DynamicFakeQuantization((1,)), worked, name="worked", expected=[f32([[12.7, 0.3, 0.0], [127, 1, -4]])])
    shifted = [of([[0.0, 2.54, 0.014, 2.55]])]
    expected = [f32([[0.0, 2.54, 0.01, 2.55]])]
    yield Sample(DynamicFakeQuantization((1,), asymmetric=True), shifted, name="worked-asymmetric", expected=expected)


@samples(Quantize)
def quantize() -> Iterator[Sample]:
    """Yield Quantize samples: every float type with every integer type, both rounding modes, and per-axis scales."""
    for dtype, quantization in ALL_QUANTIZED.items():
        info = TensorInfo(SHAPE, dtype, quantization)
        for source in (*FLOATS, *SMALL_FLOATS):
            yield Sample(Quantize(dtype), [given(SHAPE, source)], [info], f"{source}-to-{dtype}")
        to_even = Quantize(dtype, RoundingMethod.HALF_TO_EVEN)
        yield Sample(to_even, [given(SHAPE)], [info], f"half-to-even-{dtype}")
    for axis in (0, 1, 2):
        for dtype in (INT8, UINT8):
            yield Sample(Quantize(dtype), [given(SHAPE)], [_per_axis(dtype, axis)], f"axis-{axis}-{dtype}")
    for shape in ((), (0, 3)):
        info = TensorInfo(shape, INT8, QUANTIZED[INT8])
        yield Sample(Quantize(INT8), [given(shape)], [info], f"rank-{len(shape)}")


def _per_axis(dtype: DataType, axis: int) -> TensorInfo:
    count, zero = SHAPE[axis], 128 if dtype is UINT8 else 0
    return TensorInfo(SHAPE, dtype, Quantization([1 / (16 + 8 * index) for index in range(count)], zero, axis))


@samples(Quantize)
def requantize() -> Iterator[Sample]:
    """Yield Quantize samples.

    They cover every quantized type with every 8- and 16-bit type, with finer and coarser output scales.
    """
    for source, quantization in ALL_QUANTIZED.items():
        for target in (INT8, UINT8, DataType.INT16, DataType.INT32):
            for label, scale_factor in {"finer": 0.6, "coarser": 2.5}.items():
                output = TensorInfo(SHAPE, target, Quantization(QUANTIZED[target].scale * scale_factor))
                title = f"requantize-{source}-to-{target}-{label}"
                yield Sample(Quantize(target), [given(SHAPE, source, quantization)], [output], title)
    for target in ALL_QUANTIZED:
        output = TensorInfo(SHAPE, target, ALL_QUANTIZED[target])
        yield Sample(Quantize(target), [given(SHAPE, INT8, QUANTIZED[INT8])], [output], f"requantize-{target}")


@samples(Quantize)
def worked_quantize() -> Iterator[Sample]:
    """Yield a worked Quantize example for each of two rounding methods.

    The numbers are halfway between two steps, or out of range.
    """
    x = of([0, 0.25, 0.75, -0.25, 100, -100, np.inf])
    info = TensorInfo((7,), UINT8, Quantization(0.5, 10))
    expected = [u8([10, 11, 12, 9, 210, 0, 255])]
    yield Sample(Quantize(UINT8), [x], [info], "worked", expected, exact=True)
    to_even = [u8([10, 10, 12, 10, 210, 0, 255])]
    yield Sample(Quantize(UINT8, RoundingMethod.HALF_TO_EVEN), [x], [info], "worked-half-to-even", to_even, exact=True)


@samples(Dequantize)
def dequantize() -> Iterator[Sample]:
    """Yield Dequantize samples: every integer type with every float type."""
    for dtype, quantization in ALL_QUANTIZED.items():
        for target in (*FLOATS, *SMALL_FLOATS):
            yield Sample(Dequantize(target), [given(SHAPE, dtype, quantization)], name=f"{dtype}-to-{target}")
    for axis in (0, 1, 2):
        for dtype in (INT8, UINT8):
            yield Sample(Dequantize(), [Given(_per_axis(dtype, axis))], name=f"axis-{axis}-{dtype}")
    integers = Given(TensorInfo((3,), INT8, Quantization(0.5, -2)), i8([-2, 0, 127]))
    yield Sample(Dequantize(), [integers], name="worked", expected=[f32([0, 1, 64.5])])


@samples(BlockDequantize)
def block_dequantize() -> Iterator[Sample]:
    """Yield every type of integers and of scales, both axes, constants, and short last blocks."""
    for dtype in ALL_QUANTIZED:
        yield Sample(BlockDequantize(8, 1), _blocks(dtype, (3, 16), 1, 8), name=str(dtype))
        yield Sample(BlockDequantize(8, 1), _blocks(dtype, (3, 16), 1, 8)[:2], name=f"{dtype}-no-zero-point")
    for scale in (*FLOATS, *SMALL_FLOATS):
        for target in {FLOAT32, scale}:
            for dtype in (DataType.INT4, UINT8):
                op = BlockDequantize(8, 1, target)
                yield Sample(op, _blocks(dtype, (3, 16), 1, 8, scale), name=f"{dtype}-by-{scale}-to-{target}")
    for shape, axis, size in (((5,), 0, 2), ((20, 33), 0, 16), ((20, 33), 1, 16), ((2, 3, 4), -1, 3), ((0, 4), 1, 2)):
        for constant in (False, True):
            for dtype in (DataType.UINT4, INT8):
                operands = _blocks(dtype, shape, axis, size, constant=constant)
                title = f"{dtype}-{'x'.join(map(str, shape))}-axis-{axis}-{'constant' if constant else 'given'}"
                yield Sample(BlockDequantize(size, axis), operands, name=title)
    worked = [of([[1, 2, 3], [-4, 5, 6]], INT8), of([[0.5, 2], [1, 10]])]
    expected = [f32([[0.5, 1, 6], [-4, 5, 60]])]
    yield Sample(BlockDequantize(2), worked, name="worked", expected=expected, exact=True)


def _blocks(
    dtype: DataType, shape: tuple[int, ...], axis: int, size: int, scale: DataType = FLOAT32, *, constant: bool = False
) -> list[Given]:
    """Return integers, and a scale and a zero point for each block."""
    high = 2.0 ** (min(dtype.bits, 8) - (str(dtype).startswith("int")))
    integers = Given(TensorInfo(shape, dtype), low=high - 2.0 ** min(dtype.bits, 8), high=high - 1, constant=constant)
    counts = BlockDequantize(size, axis).shape_of_scales(integers.info)
    scales = Given(TensorInfo(counts, scale), low=0.25, high=2, constant=constant)
    return [integers, scales, Given(TensorInfo(counts, dtype), low=0, high=high / 2, constant=constant)]


@samples(FakeQuantization)
def fake_quantization() -> Iterator[Sample]:
    """Yield FakeQuantization samples.

    They cover every float type, narrow ranges, few and many bits, and a range that must be shifted to contain zero.
    """
    for dtype in (*FLOATS, *SMALL_FLOATS):
        yield Sample(FakeQuantization(-2, 3), [given(SHAPE, dtype)], name=str(dtype))
    for bits in (2, 4, 8, 16):
        for narrow in (False, True):
            op = FakeQuantization(-1, 2, bits, narrow)
            yield Sample(op, [given(SHAPE)], name=f"bits-{bits}{'-narrow' if narrow else ''}")
    worked = [of([-9, -1, 0.3, 0.6, 9])]
    expected = [f32([-1, -1, 0, 1, 2])]
    yield Sample(FakeQuantization(-1, 2, num_bits=2), worked, name="worked", expected=expected)


@samples(Cast)
def cast() -> Iterator[Sample]:
    """Yield Cast samples: every type with every type; quantized values are cast as plain integers, texts as numbers."""
    for source in PLAIN:
        for target in PLAIN:
            if DataType.STRING not in (source, target):
                high = min(100.0, 2.0 ** (target.bits - 1))
                low = 0.0 if str(source).startswith("uint") else -high
                x = plain(SHAPE, source, low=low, high=high)
                yield Sample(Cast(target), [x], name=f"{source}-to-{target}")
    for dtype, quantization in ALL_QUANTIZED.items():
        yield Sample(Cast(FLOAT32), [given(SHAPE, dtype, quantization)], name=f"quantized-{dtype}")
    numbers = of([1.9, -1.9, 300, -300, np.nan, 0])
    yield Sample(Cast(INT8), [numbers], name="worked", expected=[i8([1, -1, 127, -128, 0, 0])])
    expected_truths = [np.array([1, 1, 1, 1, 1, 0], bool)]
    yield Sample(Cast(DataType.BOOL), [numbers], name="worked-truth", expected=expected_truths)
    written, texts = [0.1, 1e20, -np.inf, -2, 2**24], ["0.1", "1e+20", "-INF", "-2", "16777216"]
    yield Sample(Cast(DataType.STRING), [of(written)], name="to-texts", expected=[np.array(texts, object)])
    yield Sample(Cast(FLOAT32), [of(texts, DataType.STRING)], name="from-texts", expected=[f32(written)])
    wrapped = [u8([44, 255, 7])]
    yield Sample(Cast(UINT8), [of([300, -1, 7], DataType.INT32)], name="worked-lowest-bits", expected=wrapped)


@samples(ConvertFp16ToFp32, ConvertFp32ToFp16, ConvertBf16ToFp32, ConvertFp32ToBf16)
def conversions() -> Iterator[Sample]:
    """Yield samples of conversions between float types.

    They cover numbers within the range of the narrower type, a scalar, and an empty tensor.
    """
    for op, source in (
        (ConvertFp16ToFp32(), DataType.FLOAT16),
        (ConvertFp32ToFp16(), FLOAT32),
        (ConvertBf16ToFp32(), DataType.BFLOAT16),
        (ConvertFp32ToBf16(), FLOAT32),
    ):
        for shape in (SHAPE, (), (0, 2), (5,)):
            yield Sample(op, [given(shape, source)], name=f"shape-{'x'.join(map(str, shape)) or 'scalar'}")
    halves = [f16([2048, 2052, np.inf, -0.0])]
    yield Sample(ConvertFp32ToFp16(), [of([2049, 2051, 1e6, -1e-9])], name="worked", expected=halves)
    bfloat16s = [np.array([256, 260, np.inf], DataType.BFLOAT16.numpy)]
    yield Sample(ConvertFp32ToBf16(), [of([257, 259, np.inf])], name="worked", expected=bfloat16s)


@samples(Bitcast)
def bitcasts() -> Iterator[Sample]:
    """Yield Bitcast samples.

    They cover all pairs of types of equal width, a scalar, an empty tensor, and the bits of the number 1.
    """
    for source in PLAIN:
        for target in PLAIN:
            same_width = source.bits == target.bits
            if same_width and not {DataType.STRING, DataType.BOOL} & {source, target} and not target.is_float:
                yield Sample(Bitcast(target), [plain(SHAPE, source)], name=f"{source}-to-{target}")
    for dtype, quantization in ALL_QUANTIZED.items():
        yield Sample(Bitcast(dtype), [given(SHAPE, dtype, quantization)], name=f"quantized-{dtype}")
    for target in (FLOAT32, DataType.UINT32):
        for shape in ((), (0, 2)):
            yield Sample(Bitcast(target), [given(shape)], name=f"to-{target}-shape-{len(shape)}")
    ones, truths = of([1, 0], DataType.BOOL), of([0, 1, 255], UINT8)
    yield Sample(Bitcast(UINT8), [ones], name="worked-from-truth", expected=[u8([1, 0])])
    yield Sample(Bitcast(DataType.BOOL), [truths], name="worked-truth", expected=[np.array([False, True, True])])
    yield Sample(Bitcast(DataType.INT32), [of([1, -2])], name="worked", expected=[i32([0x3F800000, -0x40000000])])
    yield Sample(Bitcast(FLOAT32), [of([0x40490FDB], DataType.INT32)], name="worked-pi", expected=[f32([np.pi])])
