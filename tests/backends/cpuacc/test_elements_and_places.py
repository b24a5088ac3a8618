"""CpuAcc on layers that search, gather, scatter, sample, accumulate and move elements: the results of the reference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import interposer as ip
from interposer import TensorInfo
from interposer.core.errors import InvalidValueError
from interposer.core.types import DataType
from interposer.ops import (
    Addition,
    ArgMinMax,
    ArgMinMaxFunction,
    Cast,
    CumSum,
    Einsum,
    EmbeddingLookup,
    Gather,
    GatherElements,
    GatherNd,
    GridSample,
    GridSampleMode,
    OneHot,
    Pad,
    PaddingMode,
    Reduce,
    ReduceOperation,
    Resize,
    ResizeMethod,
    ReverseSequence,
    RoiAlign,
    RoiAlignMode,
    ScatterElements,
    ScatterFunction,
    ScatterNd,
    TensorScatter,
    TopK,
    Transpose,
    Where,
)
from tests.backends.cpuacc.single import Layers, outcomes

RANDOM = np.random.default_rng(20261122)

pytestmark = pytest.mark.usefixtures("shared_cpuacc")


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def whole(high, *shape, dtype=np.int64):
    return RANDOM.integers(-high, high, shape).astype(dtype)


def network_of(op, arrays):
    network = ip.Network("one layer")
    infos = [TensorInfo(array.shape, DataType.of(array.dtype)) for array in arrays]
    inputs = [network.add_input_layer(n, info, name=f"x{n}") for n, info in enumerate(infos)]
    for number, output in enumerate(network.add_layer(op, *inputs).outputs):
        network.add_output_layer(number, output, name=f"y{number}")
    return network


def assert_like_the_reference(op, *arrays, atol=0.0):
    assert_all_like_the_reference([(op, *arrays)], atol)


def assert_all_like_the_reference(cases, atol=0.0):
    layers = Layers()
    for op, *arrays in cases:
        layers.add(f"{op} of {[array.dtype.name for array in arrays]}", op, arrays)
    for threads in (1, 2):
        layers.assert_like_the_reference(atol=atol, threads=threads)


# --- searches ---------------------------------------------------------------------------------------------------------


def with_ties(*shape):
    values = np.round(floats(*shape), 1)
    values[RANDOM.random(shape) < 0.02] = np.nan
    values[RANDOM.random(shape) < 0.02] = -0.0
    return values


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("function", [ArgMinMaxFunction.MIN, ArgMinMaxFunction.MAX])
@pytest.mark.parametrize(("shape", "axis"), [((2, 21, 40, 40), 1), ((40, 40, 21), -1), ((3, 5000), 1), ((1000, 2), 0)])
def test_the_place_of_the_greatest_of_equal_elements_and_nans_is_that_of_the_reference(shape, axis, function, last):
    op = ArgMinMax(function=function, axis=axis, select_last_index=last)
    assert_like_the_reference(op, with_ties(*shape))


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("k", [0, 1, 5, 16, 17, 300, 3000])
def test_the_best_elements_come_in_the_order_of_the_reference(k, largest):
    assert_like_the_reference(TopK(k=k, largest=largest), with_ties(4, 3000))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.float64, np.bool_])
def test_the_best_elements_along_another_axis_are_those_of_the_reference(dtype):
    assert_like_the_reference(TopK(k=7, axis=1), whole(50, 3, 100, 9).astype(dtype))


# --- elements at indices ----------------------------------------------------------------------------------------------


def test_rows_are_gathered_and_scattered_like_the_reference():
    x, indices = floats(40, 30, 70), np.stack([whole(40, 500), whole(30, 500)], axis=-1)
    assert_like_the_reference(GatherNd(), x, indices)
    updated = [(ScatterNd(function=function), x, indices, floats(500, 70)) for function in ScatterFunction]
    assert_all_like_the_reference(updated, atol=1e-3)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_single_elements_are_gathered_and_scattered_like_the_reference(axis):
    x, indices = floats(20, 30, 40), whole((20, 30, 40)[axis], 11, 13, 17)
    assert_like_the_reference(GatherElements(axis=axis), x, indices)
    assert_like_the_reference(ScatterElements(axis=axis), x, indices, floats(11, 13, 17))
    op = ScatterElements(axis=axis, function=ScatterFunction.ADD)
    assert_like_the_reference(op, x, indices, floats(11, 13, 17), atol=1e-5)


def refusal(op, arrays, backend):
    """Return the error for arrays with a value that the operator cannot use, which the backend must find."""
    model = ip.load(network_of(op, arrays), [backend])
    with pytest.raises(InvalidValueError) as caught:
        model.run(arrays)
    assert caught.value.backend == backend
    assert model.events == ()
    return caught.value


@pytest.mark.parametrize("op", [Gather(), GatherNd(), GatherElements(), ScatterNd(), ScatterElements()])
@pytest.mark.parametrize("index", [5, -6])
def test_an_index_outside_of_the_axis_is_an_error(op, index):
    x, indices = floats(5), np.array([index])
    nd = isinstance(op, GatherNd | ScatterNd)
    arrays = [x, indices[:, np.newaxis] if nd else indices]
    arrays += [floats(1)] if isinstance(op, ScatterNd | ScatterElements) else []
    expected = str(refusal(op, arrays, "CpuRef"))
    found = refusal(op, arrays, "CpuAcc")
    assert str(found) == expected
    assert (found.value, found.allowed, found.operand) == (index, (-5, 4), "indices")


@pytest.mark.parametrize("batch_dims", [0, 1])
def test_rows_of_an_axis_without_elements_are_not_read(batch_dims):
    shape = (2,) * batch_dims
    arrays = [np.zeros((*shape, 0, 5_000_000), np.float32), np.zeros((*shape, 1), np.int64)]
    op = Gather(axis=batch_dims, batch_dims=batch_dims)
    assert str(refusal(op, arrays, "CpuAcc")) == str(refusal(op, arrays, "CpuRef"))


@pytest.mark.parametrize("shape", [(0, 2), (3, 2, 0)])
@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_the_lengths_of_sequences_without_elements_are_checked(shape, axes):
    op = ReverseSequence(time_axis=axes[0], batch_axis=axes[1])
    lengths = np.full(shape[op.batch_axis], 9)
    if lengths.size:
        arrays = [np.zeros(shape, np.float32), lengths]
        assert str(refusal(op, arrays, "CpuAcc")) == str(refusal(op, arrays, "CpuRef"))


def with_constant_indices(op, data, indices, updates):
    network = ip.Network("known places")
    values = [network.add_input_layer(0, TensorInfo(data.shape, DataType.of(data.dtype)), name="x")]
    values.append(network.add_constant_layer(indices))
    if updates is not None:
        values.append(network.add_input_layer(1, TensorInfo(updates.shape, DataType.of(updates.dtype)), name="updates"))
    network.add_output_layer(0, network.add_layer(op, *values).output, name="y")
    return network


def block_of_places(dtype=np.int64):
    """Return the indices of a block: all rows of a tensor but the first, and in them the columns 2 to 8."""
    return np.stack(np.meshgrid(np.arange(1, 6), np.arange(2, 9), indexing="ij"), -1).astype(dtype)


@pytest.mark.parametrize("function", [ScatterFunction.UPDATE, ScatterFunction.ADD, ScatterFunction.MAX])
@pytest.mark.parametrize("inner", [(), (3,)])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_updates_at_constant_places_are_like_those_of_the_reference(function, inner, dtype):
    places = {
        "a block": block_of_places(dtype),
        "from the end": block_of_places(dtype) - np.array([6, 11], dtype),
        "repeated": np.concatenate([block_of_places(dtype), block_of_places(dtype)[::-1]]),
        "scattered": whole(6, 20, 2, dtype=dtype),
        "rows": np.array([[1], [2], [3], [4], [0]], dtype),
    }
    for name, indices in places.items():
        data = floats(6, 11, *inner)
        updates = floats(*indices.shape[:-1], *data.shape[indices.shape[-1] :])
        network = with_constant_indices(ScatterNd(function=function), data, indices, updates)
        for threads in (1, 2):
            [result], [expected] = outcomes(network, [data, updates], threads)
            np.testing.assert_array_equal(result, expected, err_msg=name)


@pytest.mark.parametrize("batch_dims", [0, 1])
def test_rows_at_constant_places_are_like_those_of_the_reference(batch_dims):
    data = floats(*[2] * batch_dims, 6, 11, 3)
    for indices in (block_of_places(), block_of_places() - [6, 11], whole(6, 20, 2)):
        batches = np.stack([indices, indices[::-1]]) if batch_dims else indices
        network = with_constant_indices(GatherNd(batch_dims), data, batches, None)
        for threads in (1, 2):
            [result], [expected] = outcomes(network, [data], threads)
            np.testing.assert_array_equal(result, expected)


def test_a_scattered_tensor_that_another_layer_reads_is_not_changed():
    network = ip.Network("two readers")
    x = network.add_input_layer(0, TensorInfo((8, 4)), name="x")
    indices = network.add_input_layer(1, TensorInfo((2, 1), DataType.INT64), name="indices")
    updates = network.add_input_layer(2, TensorInfo((2, 4)), name="updates")
    doubled = network.add_layer(Addition(), x, x)
    written = network.add_layer(ScatterNd(), doubled, indices, updates)
    network.add_output_layer(0, network.add_layer(Addition(), doubled, written), name="y")
    arrays = [floats(8, 4), np.array([[1], [6]]), floats(2, 4)]
    expected = 4 * arrays[0]
    expected[[1, 6]] = 2 * arrays[0][[1, 6]] + arrays[2]
    [result] = ip.load(network, backends=["CpuAcc"]).run(arrays)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


# --- samples of images ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(GridSampleMode))
def test_images_are_sampled_like_by_the_reference(mode):
    grid = RANDOM.uniform(-1.3, 1.3, (2, 9, 13, 2)).astype(np.float32)
    grid[0, 0, 0] = np.nan
    assert_like_the_reference(GridSample(mode=mode), floats(2, 5, 17, 11), grid, atol=1e-5)


def test_regions_are_extracted_like_by_the_reference():
    corners = RANDOM.uniform(-5, 30, (30, 2, 2)).astype(np.float32)
    regions, batches = np.sort(corners, axis=1).reshape(30, 4), RANDOM.integers(0, 2, 30)
    for ratio in (0, 2):
        op = RoiAlign(5, 7, height_sampling_ratio=ratio, width_sampling_ratio=ratio)
        assert_like_the_reference(op, floats(2, 6, 25, 31), regions, batches, atol=1e-5)


@pytest.mark.parametrize("method", list(ResizeMethod))
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 15, 16, 20])
def test_images_of_few_channels_are_resized_like_by_the_reference(channels, method):
    floating, integers = [], []
    for layout in (ip.DataLayout.NHWC, ip.DataLayout.NCHW):
        shape = (2, 9, 13, channels) if layout is ip.DataLayout.NHWC else (2, channels, 9, 13)
        op = Resize(target_width=31, target_height=17, method=method, data_layout=layout, half_pixel_centers=True)
        floating.append((op, floats(*shape)))
        integers.append((op, RANDOM.integers(0, 255, shape).astype(np.uint8)))
        integers.append((op, RANDOM.integers(-128, 127, shape).astype(np.int8)))
    assert_all_like_the_reference(floating, atol=1e-5)
    assert_all_like_the_reference(integers)


# --- moves, casts and sums --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(2, 3, 40, 41), (1, 64, 33, 17), (2, 5, 6, 7), (1, 1, 9, 9), (3, 70, 2, 65)])
def test_axes_are_transposed_like_by_the_reference(shape, dtype):
    x = RANDOM.integers(0, 200, shape).astype(dtype)
    orders = (0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (0, 1, 3, 2), (2, 0, 1, 3)
    assert_all_like_the_reference((Transpose(order), x) for order in orders)


@pytest.mark.parametrize("shape", [(3,), (50, 1), (2, 1, 3), (1, 50, 1), (2, 50, 1)])
def test_operands_are_broadcast_along_short_rows_like_by_the_reference(shape):
    x, y = floats(2, 50, 3), floats(*shape)
    sums = [(Addition(), x, y), (Addition(), y, x)]
    assert_all_like_the_reference([*sums, (Where(), y > 0, x, floats(*shape)), (Where(), x > 0, y, floats(1))])


@pytest.mark.parametrize("target", [DataType.INT8, DataType.UINT8, DataType.INT16, DataType.UINT32, DataType.INT64])
def test_casts_saturate_like_those_of_the_reference(target):
    x = np.concatenate([floats(100) * 300, np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 255.9, -0.9], np.float32)])
    assert_like_the_reference(Cast(target), x)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_sums_are_accumulated_like_by_the_reference(axis, exclusive, reverse):
    op = CumSum(axis=axis, exclusive=exclusive, reverse=reverse)
    assert_all_like_the_reference([(op, floats(9, 70, 11)), (op, whole(9, 9, 7, 11, dtype=np.int32))])


@pytest.mark.parametrize(
    "operation", [ReduceOperation.SUM, ReduceOperation.MAX, ReduceOperation.MIN, ReduceOperation.MEAN]
)
@pytest.mark.parametrize("axis", [(0,), (1,), (2,), (0, 2), ()])
def test_integers_are_reduced_like_by_the_reference(axis, operation):
    op, dtypes = Reduce(operation=operation, axis=axis), (np.int8, np.uint8, np.int32, np.int64)
    assert_all_like_the_reference((op, whole(90, 7, 70, 5).astype(dtype)) for dtype in dtypes)


@pytest.mark.parametrize("operation", [ReduceOperation.ANY, ReduceOperation.ALL])
def test_truth_values_are_reduced_like_by_the_reference(operation):
    assert_like_the_reference(Reduce(operation=operation, axis=(1,)), RANDOM.random((50, 3)) < 0.5)


@pytest.mark.parametrize("mode", [PaddingMode.REFLECT, PaddingMode.SYMMETRIC, PaddingMode.EDGE, PaddingMode.WRAP])
@pytest.mark.parametrize("pads", [((0, 0), (0, 0), (2, 1), (1, 3)), ((1, 0), (2, 2), (0, 0), (0, 0)), ((0, 0),) * 4])
def test_borders_repeat_elements_like_those_of_the_reference(pads, mode):
    op, dtypes = Pad(pads, padding_mode=mode), (np.uint8, np.float32, np.int64)
    assert_all_like_the_reference((op, whole(90, 2, 3, 4, 5).astype(dtype)) for dtype in dtypes)


def test_a_scalar_has_no_border():
    modes = PaddingMode.EDGE, PaddingMode.WRAP, PaddingMode.CONSTANT
    assert_all_like_the_reference((Pad((), padding_mode=mode), np.float32(3)) for mode in modes)


def test_rows_of_a_table_are_looked_up_like_by_the_reference():
    arrays = [RANDOM.integers(0, 9, 30).astype(np.int32), floats(9, 5)]
    assert_like_the_reference(EmbeddingLookup(), *arrays)
    arrays[0][3] = -1
    for backend in ("CpuRef", "CpuAcc"):
        assert refusal(EmbeddingLookup(), arrays, backend).reason == "lookups has -1 at [3]; expected 0 to 8"


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_indices_become_one_hot_like_by_the_reference(axis):
    kinds = itertools.product((DataType.FLOAT32, DataType.INT64, DataType.BOOL), (False, True))
    ops = [OneHot(depth=6, axis=axis, dtype=dtype, from_end=from_end) for dtype, from_end in kinds]
    assert_all_like_the_reference((op, whole(9, 4, 7)) for op in ops)


def test_values_of_one_hot_that_are_no_numbers_stay_so():
    assert_like_the_reference(OneHot(depth=6, on_value=np.nan, off_value=-np.inf), whole(9, 4, 7))


def test_an_einsum_runs_on_cpuacc():
    x, y = floats(2, 50, 3, 16), floats(2, 60, 3, 16)
    assert_like_the_reference(Einsum("bqhd,bkhd->bhqk"), x, y, atol=1e-4)


@pytest.mark.parametrize("mode", RoiAlignMode, ids=str)
@pytest.mark.parametrize("corner", [np.nan, np.inf, -np.inf])
def test_regions_whose_corners_are_not_finite_are_an_error(mode, corner):
    arrays = [floats(1, 2, 5, 6), np.array([[corner, 0, corner, 2]], np.float32), np.zeros(1, np.int32)]
    op = RoiAlign(output_height=2, output_width=2, mode=mode)
    message = "a region cannot be sampled: it is not finite, or a bin has more than 2**20 rows or columns"
    assert message in str(refusal(op, arrays, "CpuAcc"))


def test_steps_that_begin_at_the_largest_index_do_not_fit_into_a_cache():
    arrays = [floats(2, 4, 3), floats(2, 2, 3), np.array([np.iinfo(np.int64).max, 0])]
    for backend in ("CpuRef", "CpuAcc"):
        error = refusal(TensorScatter(axis=1), arrays, backend)
        assert error.reason == "start has 9223372036854775807 at [0]; expected 0 to 2"


def test_steps_from_a_large_index_on_are_written_around_a_cache():
    old, new = np.zeros((1, 5), np.int32), np.array([[1, 2, 3]], np.int32)
    start = np.array([np.iinfo(np.int64).max])  # 2 more than a multiple of 5
    for backend in ("CpuAcc", "CpuRef"):
        network = network_of(TensorScatter(axis=1, circular=True), [old, new, start])
        [result] = ip.load(network, [backend]).run([old, new, start])
        assert result.tolist() == [[0, 0, 1, 2, 3]]
