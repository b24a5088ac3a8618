"""Samples of operators whose attributes are tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from interposer.core.types import STORED_FLOATS, DataType
from interposer.ops import (
    DynamicBroadcastTo,
    DynamicPad,
    DynamicReshape,
    DynamicSlice,
    DynamicSplitter,
    DynamicTile,
    DynamicTopK,
)
from interposer.ops.rearrange import PaddingMode
from interposer.testing.sample import Given, Sample, given, of, samples
from interposer.testing.samples.common import f32, i32, typed

__all__: list[str] = []

INT32, INT64 = DataType.INT32, DataType.INT64
NONE: Final = ()


def _numbers(values: object, dtype: DataType = INT64) -> Given:
    """Return an integer operand that is an input, so that its values are unknown before the run."""
    array = np.array(values, dtype.numpy)
    return of(array, dtype)


@samples(DynamicReshape)
def dynamic_reshape() -> Iterator[Sample]:
    """Yield DynamicReshape samples.

    They cover all types, a dimension of -1, a copied dimension, and both integer types of the shape.
    """
    for label, operand in typed((2, 3, 4)):
        yield Sample(DynamicReshape(), [operand, _numbers([4, 6])], name=label)
    for source, target in [((2, 3, 4), (-1,)), ((6,), (1, 2, 3)), ((1, 1), NONE), ((0, 3), (3, 0))]:
        name = f"{'x'.join(map(str, source))}-to-{'x'.join(map(str, target)) or 'scalar'}"
        yield Sample(DynamicReshape(), [given(source), _numbers(target)], name=name)
    yield Sample(DynamicReshape(copy_zeros=True), [given((2, 3)), _numbers([0, 1, -1])], name="copied")
    yield Sample(DynamicReshape(), [given((2, 3)), _numbers([3, 2], INT32)], name="numbers-int32")
    expected = [f32([[1, 2], [3, 4], [5, 6]])]
    numbers = of([[1, 2, 3], [4, 5, 6]])
    yield Sample(DynamicReshape(), [numbers, _numbers([3, -1])], name="worked", expected=expected)


@samples(DynamicBroadcastTo)
def dynamic_broadcast_to() -> Iterator[Sample]:
    """Yield DynamicBroadcastTo samples: all types, new axes, unchanged dimensions, scalars, and empty tensors."""
    for label, operand in typed((3, 1)):
        yield Sample(DynamicBroadcastTo(), [operand, _numbers([2, 3, 4])], name=label)
    for source, target in [(NONE, (2, 3)), ((2, 3), (1, 3)), ((1, 3), (0, 3)), ((3,), (2, 1, 1))]:
        name = f"{'x'.join(map(str, source)) or 'scalar'}-to-{'x'.join(map(str, target))}"
        yield Sample(DynamicBroadcastTo(), [given(source), _numbers(target, INT32)], name=name)
    expected = [f32([[1, 1], [2, 2]])]
    yield Sample(DynamicBroadcastTo(), [of([[1], [2]]), _numbers([2, 2])], name="worked", expected=expected)


@samples(DynamicSlice)
def dynamic_slice() -> Iterator[Sample]:
    """Yield DynamicSlice samples.

    They cover all types, negative bounds, negative steps, bounds beyond the end, and empty results.
    """
    for label, operand in typed((4, 3)):
        yield Sample(DynamicSlice((0,)), [operand, _numbers([1]), _numbers([3])], name=label)
    for start, end, step in [(-2, 100, 1), (-1, -100, -1), (-7, -100, -1), (3, 0, -2), (2, 2, 1), (0, 1 << 40, 3)]:
        operands = [_numbers([bound]) for bound in (start, end, step)]
        yield Sample(DynamicSlice((1,)), [given((2, 5)), *operands], name=f"{start}-{end}-{step}")
    bounds = [_numbers([0, 1], INT32), _numbers([-1, 2], INT32)]
    yield Sample(DynamicSlice((-1, 0)), [given((3, 4, 5)), *bounds], name="axes")
    expected = [f32([[2, 3], [5, 6]])]
    operands = [of([[1, 2, 3], [4, 5, 6]]), _numbers([1]), _numbers([100])]
    yield Sample(DynamicSlice((1,)), operands, name="worked", expected=expected)


@samples(DynamicSplitter)
def dynamic_splitter() -> Iterator[Sample]:
    """Yield DynamicSplitter samples: all types, each axis, pieces of nothing, and both integer types of the sizes."""
    for label, operand in typed((3, 4)):
        yield Sample(DynamicSplitter(1, 2), [operand, _numbers([1, 3])], name=label)
    for axis, sizes in [(0, [1, 0, 1]), (-1, [4]), (1, [3, 0])]:
        op = DynamicSplitter(axis, len(sizes))
        yield Sample(op, [given((2, 3, 4)), _numbers(sizes, INT32)], name=f"{axis}-{len(sizes)}")
    expected = [f32([[1], [4]]), f32([[2, 3], [5, 6]])]
    operands = [of([[1, 2, 3], [4, 5, 6]]), _numbers([1, 2])]
    yield Sample(DynamicSplitter(1, 2), operands, name="worked", expected=expected)


@samples(DynamicTile)
def dynamic_tile() -> Iterator[Sample]:
    """Yield DynamicTile samples: all types, with repeat counts of one, several, and zero."""
    for label, operand in typed((2, 3)):
        yield Sample(DynamicTile(), [operand, _numbers([2, 1])], name=label)
    yield Sample(DynamicTile(), [given((2, 3)), _numbers([0, 2], INT32)], name="nothing")
    expected = [f32([[1, 2, 1, 2], [1, 2, 1, 2]])]
    yield Sample(DynamicTile(), [of([[1, 2]]), _numbers([2, 2])], name="worked", expected=expected)


@samples(DynamicPad)
def dynamic_pad() -> Iterator[Sample]:
    """Yield DynamicPad samples: all types and every padding mode."""
    for label, operand in typed((2, 3), leave_out=[DataType.STRING]):
        yield Sample(DynamicPad(), [operand, _numbers([[1, 0], [0, 2]])], name=label)
    for mode in PaddingMode:
        paddings = _numbers([[1, 1], [2, 0]], INT32)
        yield Sample(DynamicPad(padding_mode=mode), [given((3, 4)), paddings], name=mode.name.lower())
    expected = [f32([9, 1, 2, 9, 9])]
    yield Sample(DynamicPad(pad_value=9), [of([1, 2]), _numbers([[1, 2]])], name="worked", expected=expected)


@samples(DynamicTopK)
def dynamic_top_k() -> Iterator[Sample]:
    """Yield DynamicTopK samples: numeric types along each axis: the largest and smallest elements, none and all."""
    for label, operand in typed((3, 4), leave_out=[DataType.STRING, *STORED_FLOATS]):
        yield Sample(DynamicTopK(), [operand, _numbers([2])], name=label)
    top_k_of_int64 = DynamicTopK(index_dtype=INT64)
    yield Sample(top_k_of_int64, [given((3, 4)), _numbers([3])], name="indices-int64")
    for axis, k in [(0, 3), (1, 0), (-1, 4)]:
        yield Sample(DynamicTopK(axis, largest=False), [given((3, 4)), _numbers(k, INT32)], name=f"{axis}-{k}")
    expected = [f32([9, 9]), i32([1, 2])]
    yield Sample(DynamicTopK(), [of([3, 9, 9, 1]), _numbers([2])], name="worked", expected=expected)
