"""Layers whose second operand is computed, or consists of several matrices, and layers that sort or sample."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array, DataLayout, DataType
from interposer.ops import (
    BatchMatMul,
    Cast,
    DeformableConvolution2d,
    IntegerMatMul,
    Multiplication,
    Resize,
    ResizeMethod,
    ReverseSequence,
    TopK,
    Unique,
)
from tests.backends.cpuacc.single import network_of, outcomes

pytestmark = [pytest.mark.usefixtures("cpuacc"), pytest.mark.needs_cpuref]


def integers(dtype: str, *shape: int) -> Array:
    limits, draw = np.iinfo(dtype), np.random.default_rng(sum(shape))
    return draw.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def reals(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("types", [("uint8", "int8"), ("int8", "uint8"), ("int8", "int8"), ("uint8", "uint8")])
@pytest.mark.parametrize(
    "shapes", [((3, 70), (70, 33)), ((2, 3, 17, 20), (3, 20, 64)), ((9,), (9, 130)), ((1, 64), (64,))]
)
@pytest.mark.parametrize("zeros", ["none", "one", "columns"])
def test_products_of_computed_integers_are_the_reference(types, shapes, zeros):
    a, b = (integers(dtype, *shape) for dtype, shape in zip(types, shapes, strict=True))
    columns = b.shape[-1] if zeros == "columns" and b.ndim > 1 else 1
    points = [] if zeros == "none" else [integers(types[0], 1), integers(types[1], columns)]
    network, given = network_of(IntegerMatMul(), [a, b, *points])
    [found], [expected] = outcomes(network, given)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("points", [(3, None), (None, -2), (3, -2)])
def test_products_of_integers_ignore_the_quantization_of_their_operands(points):
    network, arrays = ip.Network("stored"), [integers("int8", 3, 20), integers("int8", 20, 17)]
    scales = [point and ip.Quantization(0.5, point) for point in points]
    infos = [ip.TensorInfo(x.shape, "int8", scale) for x, scale in zip(arrays, scales, strict=True)]
    operands = [network.add_input_layer(number, info) for number, info in enumerate(infos)]
    network.add_output_layer(0, network.add_layer(IntegerMatMul(), *operands))
    [found] = ip.load(network, ["CpuAcc"]).run(arrays)
    np.testing.assert_array_equal(found, np.matmul(*arrays, dtype=np.int32))


def test_products_of_computed_integers_are_scaled_in_the_same_step():
    network = ip.Network("attention")
    arrays = [integers("uint8", 2, 40, 64), integers("int8", 2, 64, 48)]
    a, b = (network.add_input_layer(n, ip.TensorInfo(x.shape, DataType.of(x.dtype))) for n, x in enumerate(arrays))
    zeros = [network.add_constant_layer(np.array(7, dtype)) for dtype in (np.uint8, np.int8)]
    sums = network.add_layer(Cast(DataType.FLOAT32), network.add_layer(IntegerMatMul(), a, b, *zeros))
    network.add_output_layer(
        0, network.add_layer(Multiplication(), sums, network.add_constant_layer(np.float32([0.01])))
    )
    [found], [expected] = outcomes(network, arrays)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "shapes", [((5, 17, 24), (5, 24, 40)), ((1, 17, 24), (5, 24, 40)), ((2, 1, 3, 8), (1, 4, 8, 19))]
)
def test_products_with_several_constant_matrices_are_the_reference(shapes, transposed):
    a, b = reals(*shapes[0]), reals(*shapes[1])
    op = BatchMatMul(transpose_y=transposed)
    network, given = network_of(op, [a, b.swapaxes(-1, -2).copy() if transposed else b], constants=[1])
    [found], [expected] = outcomes(network, given)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("groups", "filters", "offset_groups"), [(1, 40, 2), (2, 8, 1), (4, 4, 4)])
@pytest.mark.parametrize("constants", [(1, 3), (1,), ()], ids=["constant", "computed-bias", "computed-weights"])
def test_deformable_convolutions_of_few_and_many_filters_are_the_reference(groups, filters, offset_groups, constants):
    op = DeformableConvolution2d(
        pad_left=1, pad_right=1, pad_top=1, pad_bottom=1, groups=groups, offset_groups=offset_groups
    )
    taps, size = 9 * offset_groups, (11, 13)
    arrays = [
        reals(2, 8, *size), reals(filters, 8 // groups, 3, 3), 2 * reals(2, 2 * taps, *size), reals(filters),
        reals(2, taps, *size),
    ]  # fmt: skip
    network, given = network_of(op, arrays, constants=constants)
    [found], [expected] = outcomes(network, given)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", ["int16", "uint16", "int32", "uint32", "int64", "uint64", "float64"])
@pytest.mark.parametrize("layout", [DataLayout.NCHW, DataLayout.NHWC])
@pytest.mark.parametrize("corners", [False, True])
def test_images_of_wide_types_are_interpolated_like_the_reference(dtype, layout, corners):
    shape = (2, 3, 5, 7) if layout is DataLayout.NCHW else (2, 5, 7, 3)
    x = reals(*shape).astype(dtype) if dtype == "float64" else integers(dtype, *shape)
    op = Resize(9, 11, ResizeMethod.BILINEAR, align_corners=corners, data_layout=layout)
    network, given = network_of(op, [x])
    [found], [expected] = outcomes(network, given)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int64"])
@pytest.mark.parametrize("inner", [1, 5])
@pytest.mark.parametrize(("time_axis", "batch_axis"), [(0, 1), (1, 0)])
def test_sequences_of_items_of_every_size_are_reversed(dtype, inner, time_axis, batch_axis):
    x = integers(dtype, 6, 9, inner)
    lengths = np.arange(x.shape[batch_axis], dtype=np.int64) % (x.shape[time_axis] + 1)
    network, given = network_of(ReverseSequence(time_axis=time_axis, batch_axis=batch_axis), [x, lengths])
    [found], [expected] = outcomes(network, given)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["int8", "int32", "float64"])
@pytest.mark.parametrize("k", [2, 20])
def test_the_largest_elements_of_many_columns_are_the_reference(dtype, k):
    x = (100 * reals(2, 50, 150)).astype(dtype)
    network, given = network_of(TopK(k=k, axis=1), [x])
    for found, expected in zip(*outcomes(network, given), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float32"])
@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("axis", [None, 0])
def test_distinct_elements_of_many_are_the_reference(dtype, is_sorted, axis):
    x = (reals(700, 2) * 30).astype(dtype) if axis == 0 else (reals(30, 40) * 1000).astype(dtype)
    network, given = network_of(Unique(axis=axis, sorted=is_sorted), [x])
    for found, expected in zip(*outcomes(network, given), strict=True):
        np.testing.assert_array_equal(found, expected)
