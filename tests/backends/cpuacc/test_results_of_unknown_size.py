"""Layers of CpuAcc whose results have a size that follows from values give what the reference gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import InvalidValueError
from interposer.core.types import Array, DataType, TensorInfo
from interposer.ops import (
    DynamicBroadcastTo,
    DynamicPad,
    DynamicReshape,
    DynamicSlice,
    DynamicTile,
    DynamicTopK,
    Fill,
    Unique,
)
from interposer.ops.rearrange import PaddingMode
from tests.backends.cpuacc.single import outcomes

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

RNG = np.random.default_rng(3)


def network_of(op: Any, *arrays: Array) -> ip.Network:
    """Return a network with one layer, all of whose operands are inputs."""
    network = ip.Network("layer")
    inputs = [
        network.add_input_layer(n, TensorInfo(array.shape, DataType.of(array.dtype))) for n, array in enumerate(arrays)
    ]
    for n, output in enumerate(network.add_layer(op, *inputs).outputs):
        network.add_output_layer(n, output)
    return network


def assert_same(op: Any, *arrays: Array) -> None:
    result, expected = outcomes(network_of(op, *arrays), list(arrays))
    for one, other in zip(result, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8])
def test_distinct_elements_and_slices(sort: bool, axis: int | None, dtype: type) -> None:
    array = RNG.integers(0, 3, (7, 5, 2)).astype(dtype)
    assert_same(Unique(axis=axis, sorted=sort), array)


def test_numbers_that_compare_equal_are_one_distinct_element() -> None:
    assert_same(Unique(), np.array([np.nan, -0.0, 1, 0.0, np.nan, -np.inf, np.inf, -1], np.float32))
    assert_same(Unique(index_dtype=DataType.INT32), np.zeros(0, np.float32))


@pytest.mark.parametrize("shape", [(4, -1), (-1, 2, 3), (24,), (2, 0, 4), (0, 0, -1)])
def test_reshaping_to_a_shape_that_is_data(shape: tuple[int, ...]) -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert_same(DynamicReshape(copy_zeros=0 in shape), array, np.array(shape))


@pytest.mark.parametrize("shape", [(5, -1), (-1, -1), (2, 13), (-2, 12), (0, 24)])
def test_shapes_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    array, target = np.zeros((2, 3, 4), np.float32), np.array(shape)
    with (
        ip.load(network_of(DynamicReshape(), array, target), ["CpuAcc"]) as model,
        pytest.raises(InvalidValueError),
    ):
        model.run([array, target])


@pytest.mark.parametrize("steps", [(1, 1), (2, -1), (-3, 4), (-1, -7)])
def test_slices_with_bounds_that_are_data(steps: tuple[int, int]) -> None:
    array = RNG.integers(-9, 9, (5, 2, 6)).astype(np.int16)
    for _ in range(20):
        starts, ends = RNG.integers(-9, 9, (2, 2))
        assert_same(DynamicSlice(axes=(2, 0)), array, starts, ends, np.array(steps))


def test_broadcasting_and_tiling_by_data() -> None:
    array = RNG.standard_normal((3, 1, 2)).astype(np.float32)
    assert_same(DynamicBroadcastTo(), array, np.array([4, 1, 5, 2]))
    assert_same(DynamicBroadcastTo(), array, np.array([2]))
    assert_same(DynamicTile(), array, np.array([1, 3, 2]))
    assert_same(DynamicTile(), array, np.array([2, 0, 1], np.int32))


@pytest.mark.parametrize("mode", list(PaddingMode))
def test_borders_whose_widths_are_data(mode: PaddingMode) -> None:
    array = RNG.standard_normal((4, 3, 5)).astype(np.float32)
    assert_same(DynamicPad(pad_value=2.5, padding_mode=mode), array, np.array([[1, 2], [0, 0], [3, 1]]))
    assert_same(DynamicPad(padding_mode=mode), array, np.array([[0, 0], [2, 1], [0, 0]]))


def test_fills_and_best_elements() -> None:
    assert_same(Fill(value=-3.0, dtype=DataType.INT16), np.array([2, 0, 3]))
    assert_same(Fill(value=0.25), np.array([5, 7], np.int32))
    array = RNG.standard_normal((3, 300, 2)).astype(np.float32)
    for k in (0, 1, 40, 300):
        assert_same(DynamicTopK(axis=1, largest=k != 40), array, np.array([k]))


@pytest.mark.parametrize(
    ("op", "values", "reason"),
    [
        (DynamicBroadcastTo(), [[2, 4]], "cannot be broadcast"),
        (DynamicTile(), [[1, -1]], "negative"),
        (DynamicPad(), [[[0, 0], [-1, 0]]], "-1"),
        (DynamicPad(padding_mode=PaddingMode.REFLECT), [[[0, 0], [3, 0]]], "3"),
        (DynamicSlice(axes=(0,)), [[0], [1], [0]], "step is 0"),
        (DynamicTopK(), [[4]], "4"),
        (DynamicTile(), [[1 << 40, 1 << 40]], "larger than any memory"),
    ],
)
def test_values_that_a_layer_cannot_use_are_refused(op: Any, values: list[Any], reason: str) -> None:
    arrays = [np.zeros((2, 3), np.float32), *map(np.array, values)]
    with (
        ip.load(network_of(op, *arrays), ["CpuAcc"]) as model,
        pytest.raises(InvalidValueError, match=reason),
    ):
        model.run(arrays)


def test_results_that_nothing_reads_are_left_out() -> None:
    network = ip.Network("counts")
    x = network.add_input_layer(0, TensorInfo((9,), DataType.FLOAT16))
    layer = network.add_layer(Unique(), x)
    network.add_output_layer(0, layer.outputs[3])
    network.add_output_layer(1, network.add_addition_layer(x, x))
    array = np.array([3, 1, 1, 3, 2, 1, 0, 0, 0], np.float16)
    counts, sums = ip.load(network, ["CpuAcc"]).run([array])
    assert counts.tolist() == [3, 3, 1, 2]
    np.testing.assert_array_equal(sums, array + array)
