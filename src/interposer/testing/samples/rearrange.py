"""Samples of operators that move elements to other places."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ops import (
    Concat,
    Pad,
    PaddingMode,
    Permute,
    ReverseV2,
    Slice,
    Splitter,
    Stack,
    StridedSlice,
    Tile,
    Transpose,
)
from interposer.testing.sample import Given, Sample, given, of, samples, weights
from interposer.testing.samples.common import QUANTIZED, TINY_QUANTIZED, f32, quantized, retyped, typed

__all__: list[str] = []

INT8, UINT8 = DataType.INT8, DataType.UINT8
SHAPE: Final = (2, 3, 4)
TABLE: Final = of([[1, 2, 3], [4, 5, 6]])


def _along(axis: int, shape: tuple[int, ...] = SHAPE) -> Given:
    """Return a quantized operand with one scale for each index along an axis."""
    quantization = Quantization([0.1 * (1 + index) for index in range(shape[axis])], axis=axis)
    return Given(TensorInfo(shape, INT8, quantization))


def _expect(op: Op, rows: Any, name: str = "worked", operands: tuple[Given, ...] = (TABLE,)) -> Sample:
    return Sample(op, operands, name=name, expected=[f32(rows)])


# --- axes -------------------------------------------------------------------------------------------------------------


@samples(Transpose, Permute)
def permutations() -> Iterator[Sample]:
    """Yield Transpose and Permute samples.

    They cover all orders of three axes, all types, other ranks, per-axis scales, and empty tensors.
    """
    for order in itertools.permutations(range(3)):
        title = "".join(map(str, order))
        for op in (Transpose(order), Permute(order)):
            yield Sample(op, [given(SHAPE)], name=f"order-{title}")
            yield Sample(op, [given(SHAPE, UINT8, QUANTIZED[UINT8])], name=f"order-{title}-quantized")
            yield Sample(op, [_along(1)], name=f"order-{title}-axis")
    for label, x in typed(SHAPE):
        yield from (Sample(op, [x], name=f"type-{label}") for op in (Transpose((1, 2, 0)), Permute((1, 2, 0))))
    for shape, order in [
        ((), ()),
        ((3,), (0,)),
        ((0, 2), (1, 0)),
        ((1, 2, 1, 2, 1, 2, 1, 2), (7, 5, 3, 1, 0, 2, 4, 6)),
    ]:
        for op in (Transpose(order), Permute(order)):
            yield Sample(op, [given(shape)], name=f"rank-{len(shape)}")
    for order in ((0, 2, 3, 1), (0, 3, 1, 2)):
        for op in (Transpose(order), Permute(order)):
            yield Sample(op, [given((1, 2, 3, 4))], name=f"image-{''.join(map(str, order))}")
    yield _expect(Transpose((1, 0)), [[1, 4], [2, 5], [3, 6]])
    cube = of(np.arange(6).reshape(1, 2, 3))
    yield _expect(Transpose((1, 2, 0)), np.arange(6).reshape(2, 3, 1), "worked-cycle", (cube,))
    yield _expect(Permute((1, 2, 0)), [[[0, 3]], [[1, 4]], [[2, 5]]], "worked-cycle", (cube,))


@samples(ReverseV2)
def reverse() -> Iterator[Sample]:
    """Yield ReverseV2 samples: no axis, each axis and all axes, and all types."""
    for axis in ((), (0,), (1,), (-1,), (0, 2), (0, 1, 2)):
        yield Sample(ReverseV2(axis), [given(SHAPE)], name=f"axis-{'-'.join(map(str, axis)) or 'none'}")
    for label, x in typed(SHAPE):
        yield Sample(ReverseV2((1,)), [x], name=f"type-{label}")
    yield Sample(ReverseV2((0,)), [_along(1)], name="other-axis")
    yield Sample(ReverseV2((0,)), [given((0, 3))], name="empty")
    yield _expect(ReverseV2((1,)), [[3, 2, 1], [6, 5, 4]])


# --- joining and cutting ----------------------------------------------------------------------------------------------


@samples(Concat)
def concat() -> Iterator[Sample]:
    """Yield Concat samples.

    They cover every axis, one to four tensors, all types, empty tensors, constants, and different scales.
    """
    for axis in (0, 1, 2, -1, -3):
        for count in (1, 2, 4):
            shapes = [_with(SHAPE, axis, 1 + index) for index in range(count)]
            yield Sample(Concat(axis), [given(shape) for shape in shapes], name=f"axis{axis}-of-{count}")
    for label, x in typed(SHAPE):
        yield Sample(Concat(0), [x, retyped(x, (1, 3, 4))], [_merged(x)], f"type-{label}")
    for dtype, quantization in {**QUANTIZED, **TINY_QUANTIZED}.items():
        coarser_quantization = Quantization(quantization.scale * 2, quantization.zero_point)
        operands = [given(SHAPE, dtype, quantization), given(SHAPE, dtype, coarser_quantization)]
        yield Sample(Concat(0), operands, [TensorInfo((4, 3, 4), dtype, coarser_quantization)], f"two-scales-{dtype}")
    yield Sample(Concat(0), [given((0, 3)), given((2, 3)), given((0, 3))], name="empty")
    yield Sample(Concat(1), [given((2, 3)), weights((2, 1))], name="constant")
    yield _expect(Concat(1), [[1, 2, 3, 7], [4, 5, 6, 8]], operands=(TABLE, of([[7], [8]])))


def _merged(x: Given) -> TensorInfo:
    return TensorInfo((3, 3, 4), x.info.dtype, x.info.quantization)


def _with(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    dims = list(shape)
    dims[axis] = size
    return tuple(dims)


@samples(Stack)
def stack() -> Iterator[Sample]:
    """Yield Stack samples: every position of the new axis, all types, scalars, and different scales."""
    for axis in (0, 1, 2, -1, -3):
        yield Sample(Stack(axis), [given((2, 3)), given((2, 3)), given((2, 3))], name=f"axis{axis}")
    for label, x in typed((2, 3)):
        info = TensorInfo((2, 2, 3), x.info.dtype, x.info.quantization)
        yield Sample(Stack(), [x, retyped(x, (2, 3))], [info], f"type-{label}")
    yield Sample(Stack(), [given(()), given(())], name="scalars")
    yield Sample(Stack(1), [given((2, 0)), given((2, 0))], name="empty")
    yield Sample(Stack(), [given((2, 3))], name="single")
    coarser_quantization = Quantization(1 / 8, -3)
    operands = [quantized((2, 3), INT8), quantized((2, 3), INT8, coarser_quantization)]
    yield Sample(Stack(), operands, [TensorInfo((2, 2, 3), INT8, coarser_quantization)], "two-scales")
    yield _expect(Stack(1), [[1, 3], [2, 4]], operands=(of([1, 2]), of([3, 4])))


@samples(Splitter)
def split() -> Iterator[Sample]:
    """Yield Splitter samples: every axis, equal, unequal and empty pieces, one piece, and all types."""
    for axis, sizes in [(0, (1, 1)), (1, (2, 1)), (-1, (1, 1, 2)), (2, (4,)), (1, (0, 3, 0)), (-3, (2,))]:
        title = f"axis{axis}-{'-'.join(map(str, sizes))}"
        yield Sample(Splitter(axis, sizes), [given(SHAPE)], name=title)
        yield Sample(Splitter(axis, sizes), [quantized(SHAPE, INT8)], name=f"{title}-quantized")
    for label, x in typed(SHAPE):
        yield Sample(Splitter(1, (1, 2)), [x], name=f"type-{label}")
    yield Sample(Splitter(1, (1, 2)), [_along(2)], name="other-axis")
    halves = [f32([[1], [4]]), f32([[2, 3], [5, 6]])]
    yield Sample(Splitter(1, (1, 2)), [TABLE], name="worked", expected=halves)


@samples(Slice)
def slices() -> Iterator[Sample]:
    """Yield Slice samples: slices from the start, the middle and the end, empty ones, sizes of -1, and all types."""
    for begin, size in [
        ((0, 0, 0), (2, 3, 4)),
        ((0, 1, 2), (2, 1, 2)),
        ((1, 2, 3), (1, 1, 1)),
        ((1, 0, 1), (-1, -1, 2)),
        ((0, 3, 0), (2, 0, 4)),
    ]:
        title = f"{'-'.join(map(str, begin))}-size-{'_'.join(map(str, size))}"
        yield Sample(Slice(begin, size), [given(SHAPE)], name=title)
        yield Sample(Slice(begin, size), [quantized(SHAPE, UINT8)], name=f"{title}-quantized")
    for label, x in typed(SHAPE):
        yield Sample(Slice((0, 1, 1), (2, 2, 3)), [x], name=f"type-{label}")
    yield Sample(Slice((1, 0, 0), (1, 3, 4)), [_along(2)], name="other-axis")
    yield Sample(Slice((), ()), [given(())], name="scalar")
    yield _expect(Slice((0, 1), (2, 2)), [[2, 3], [5, 6]])


STRIDES: Final[dict[str, dict[str, Any]]] = {
    "plain": {"begin": (0, 1, 1), "end": (2, 3, 4), "stride": (1, 1, 2)},
    "backwards": {"begin": (1, 2, 3), "end": (-3, 0, 0), "stride": (-1, -1, -2)},
    "from-the-end": {"begin": (-1, -2, -3), "end": (2, -1, -1), "stride": (1, 1, 1)},
    "beyond": {"begin": (-9, 0, 1), "end": (9, 9, 9), "stride": (1, 2, 3)},
    "nothing": {"begin": (0, 2, 0), "end": (2, 1, 4), "stride": (1, 1, 1)},
    "masks": {"begin": (1, 1, 1), "end": (1, 1, 1), "stride": (1, 1, 1), "begin_mask": 5, "end_mask": 6},
    "shrink": {"begin": (1, 0, -1), "end": (2, 3, 4), "stride": (1, 1, 1), "shrink_axis_mask": 5},
    "shrink-all": {"begin": (1, 0, -1), "end": (2, 1, 4), "stride": (1, 1, 1), "shrink_axis_mask": 7},
    "ellipsis": {"begin": (0, 1), "end": (0, 3), "stride": (1, 1), "ellipsis_mask": 1},
    "new-axis": {"begin": (0, 0, 1), "end": (0, 2, 3), "stride": (1, 1, 1), "new_axis_mask": 1},
    "all-masks": {
        "begin": (0, 0, 0, 1), "end": (1, 0, 0, 3), "stride": (1, 1, 1, 1),
        "shrink_axis_mask": 1, "ellipsis_mask": 2, "new_axis_mask": 4,
    },
    "few-items": {"begin": (1,), "end": (2,), "stride": (1,)},
}  # fmt: skip


@samples(StridedSlice)
def strided_slices() -> Iterator[Sample]:
    """Yield StridedSlice samples: positive and negative steps, every mask, and all types."""
    for title, attributes in STRIDES.items():
        op = StridedSlice(**attributes)
        yield Sample(op, [given(SHAPE)], name=f"{title}-float32")
        yield Sample(op, [quantized(SHAPE, INT8)], name=f"{title}-quantized")
        yield Sample(op, [given(SHAPE, DataType.INT32)], name=f"{title}-int32")
    for label, x in typed(SHAPE):
        yield Sample(StridedSlice((0, 2, 0), (2, 0, 4), (1, -1, 2)), [x], name=f"type-{label}")
    yield _expect(StridedSlice((0, 2), (2, -4), (1, -1)), [[3, 2, 1], [6, 5, 4]])
    yield _expect(StridedSlice((1, 0), (2, 3), (1, 2), shrink_axis_mask=1), [4, 6], "worked-shrink")


# --- borders and repetition -------------------------------------------------------------------------------------------


@samples(Pad)
def pad() -> Iterator[Sample]:
    """Yield Pad samples: every padding mode in every type, and float pad values for quantized tensors."""
    pads = ((1, 0), (0, 2), (1, 1))
    for mode in PaddingMode:
        for label, x in typed(SHAPE, [DataType.STRING]):
            yield Sample(Pad(pads, padding_mode=mode), [x], name=f"{mode.name.lower()}-{label}")
        yield Sample(Pad(((0, 0), (0, 0)), padding_mode=mode), [given((2, 3))], name=f"{mode.name.lower()}-none")
    for value in (1.0, -2.0):
        for label, x in typed(SHAPE, [DataType.STRING]):
            if "uint" not in label or "quantized" in label or value > 0:
                yield Sample(Pad(pads, value), [x], name=f"value{value:g}-{label}")
    yield Sample(Pad(((2, 1),)), [given((0,))], name="empty")
    yield Sample(Pad(()), [given(())], name="scalar")
    for title, axis in (("other-axis", 2), ("one-axis", 0)):
        op = Pad(((0, 0), (1, 1), (0, 0)))
        yield Sample(op, [_along(axis)], name=title)
    row = of([1, 2, 3])
    for mode, expected in {
        PaddingMode.CONSTANT: [9, 9, 1, 2, 3, 9],
        PaddingMode.REFLECT: [3, 2, 1, 2, 3, 2],
        PaddingMode.SYMMETRIC: [2, 1, 1, 2, 3, 3],
        PaddingMode.EDGE: [1, 1, 1, 2, 3, 3],
        PaddingMode.WRAP: [2, 3, 1, 2, 3, 1],
    }.items():
        value = 9.0 if mode is PaddingMode.CONSTANT else 0.0
        yield _expect(Pad(((2, 1),), value, mode), expected, f"worked-{mode.name.lower()}", (row,))


@samples(Tile)
def tile() -> Iterator[Sample]:
    """Yield Tile samples: repeats along some axes, all axes and no axis, zero repeats, and all types."""
    for multiples in ((1, 1, 1), (2, 1, 1), (1, 3, 2), (0, 1, 1), (2, 2, 2)):
        yield Sample(Tile(multiples), [given(SHAPE)], name=f"times-{'-'.join(map(str, multiples))}")
    for label, x in typed(SHAPE):
        yield Sample(Tile((1, 2, 1)), [x], name=f"type-{label}")
    yield Sample(Tile((2, 1, 1)), [_along(2)], name="other-axis")
    yield Sample(Tile(()), [given(())], name="scalar")
    yield _expect(Tile((1, 2)), [[1, 2, 3, 1, 2, 3], [4, 5, 6, 4, 5, 6]])
